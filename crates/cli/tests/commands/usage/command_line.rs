//! Mistakes on the command line and in configurations, shell completions, manual pages, devices.

use super::{config, fgrpo, file, run};
use serde_json::Value;

#[test]
fn a_wrong_key_names_the_users_file_and_line_or_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let data = file(folder.path(), "d.jsonl", "{\"problem\": \"a\", \"answer\": \"1\"}\n");
    let path = config(folder.path(), "math", &data, "");
    let text = std::fs::read_to_string(&path).unwrap();
    let line = text.lines().count() + 2;
    for (keys, wanted) in [
        ("focal_gama = 0.5", format!("line {line}: unknown key `focal_gama`; did you mean `focal_gamma`?")),
        ("focal_gamma = \"x\"", "algorithm.focal_gamma: expected a number, found \"x\"".to_owned()),
    ] {
        std::fs::write(&path, format!("{text}[algorithm]\n{keys}\n")).unwrap();
        let (_, said, code) = run(fgrpo().arg("train").arg(&path).args(["--set", "update.lr=1e-5"]));
        assert!(code == 2 && said.contains("run.toml: ") && said.contains(&wanted), "{code}: {said}");
    }
    std::fs::write(&path, text).unwrap();
    let (_, said, code) =
        run(fgrpo().arg("train").arg(&path).args(["--set", "update.epochs=1", "--set", "num_generations=8"]));
    assert!(code == 2 && said.contains("--set num_generations=8: unknown key"), "{code}: {said}");
    assert!(said.contains("did you mean `rollout.group_size`?"), "{said}");
}

#[test]
fn wrong_flags_get_the_tip_that_leads_on_and_wrong_numbers_what_was_wanted() {
    for (line, wanted) in [
        (
            "train a.toml --lr 1e-6",
            "tip: to change a key of the configuration, use '--set update.lr=VALUE' (or sft.lr)",
        ),
        ("sft a.toml --lr 1e-6", "'--set sft.lr=VALUE'"),
        ("sft a.toml --learning-rate=1e-6", "VALUE"),
        ("sweep a.toml --num-generations 8", "--set rollout.group_size=VALUE"),
        ("train a.toml --set steps 5", "'--set steps=5'"),
        ("sweep --set steps 5 a.toml", "'--set steps=5'"),
        ("eval --max-new-tokens 8", "'--max-tokens'"),
        ("serve --model m --port 9", "'--listen 127.0.0.1:8000'"),
        (
            "plan x.jsonl --group-sizes 2,inf",
            "invalid value 'inf' for '--group-sizes <N,...>': expected a whole number",
        ),
        ("maze show --seed=-1", "'--seed <SEED>': expected a whole number"),
        ("maze show --seed 99999999999999999999", "'--seed <SEED>': expected a smaller number"),
        ("theory active --mu half --n 8", "invalid value 'half' for '--mu <MU>': expected a number"),
    ] {
        let (_, said, code) = run(fgrpo().args(line.split(' ')));
        assert!(code == 2 && said.contains(wanted), "wanted {wanted:?} in: {said}");
        assert!(said.contains("tip: ") != said.contains("invalid value"), "{said}");
    }
    let (_, said, _) = run(fgrpo().args(["verify", "math", "-", "--colour"]));
    assert!(said.contains("--colour") && !said.contains("--set"), "{said}");
}

#[test]
fn completions_know_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let (out, said, code) = run(fgrpo().args(["completions", shell]));
        assert_eq!(code, 0, "{said}");
        for word in ["train", "pass-at-k", "generate", "max-tokens"] {
            assert!(out.contains(word), "{shell}: {word}");
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("fgrpo.bash");
    let (out, ..) = run(fgrpo().args(["completions", "bash"]));
    std::fs::write(&script, out).unwrap();
    let check = "source \"$0\" && COMP_WORDS=(fgrpo ev) COMP_CWORD=1 && _fgrpo fgrpo ev fgrpo && echo \"${COMPREPLY[*]}\"";
    let bash = std::process::Command::new("bash").args(["-c", check]).arg(&script).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), "eval");
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let (_, said, code) = run(fgrpo().args(["completions", "man", "--out"]).arg(folder.path()));
    assert_eq!(code, 0, "{said}");
    for (page, wanted) in
        [("fgrpo.1", "generate"), ("fgrpo-train.1", "\\-\\-resume"), ("fgrpo-eval.1", "pass@k")]
    {
        let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
        assert!(text.starts_with(".ie") && text.contains(wanted), "{page}: {text}");
    }
    let (out, ..) = run(fgrpo().args(["completions", "man"]));
    assert!(out.contains(".TH fgrpo 1"), "{out}");
}

#[test]
fn devices_says_what_there_is_and_why_not() {
    let (out, said, code) = run(fgrpo().arg("devices"));
    assert_eq!(code, 0, "{said}");
    assert!(out.contains("cpu    yes") && out.contains("threads"), "{out}");
    let plain = run(fgrpo().arg("devices").env("FGRPO_SIMD", "plain")).0;
    assert!(plain.contains("matrix products by plain kernels"), "{plain}");
    let avx2 = run(fgrpo().arg("devices").env("FGRPO_SIMD", "avx2")).0;
    if avx2.contains("avx2 fma") {
        assert!(avx2.contains("matrix products by kernels for avx2"), "{avx2}");
    }
    let (out, ..) = run(fgrpo().args(["devices", "--json"]));
    let list: Vec<Value> = serde_json::from_str(&out).unwrap();
    assert_eq!(list[0]["device"], "cpu");
    for device in &list {
        let name = device["device"].as_str().unwrap();
        let (_, said, _) = run(fgrpo().args(["train", "/no/such.toml", "--device", name]));
        assert!(!said.contains("invalid value"), "{name} is no value of --device");
        assert!(device["available"] == true || device["reason"].is_string(), "{device}");
    }
}

#[test]
fn devices_compares_this_machines_results_with_pytorchs() {
    let (out, said, code) = run(fgrpo().args(["devices", "--check"]));
    assert_eq!(code, 0, "{out}{said}");
    let results = if out.contains("with products bf16x3 (") { 5 } else { 3 };
    assert_eq!(out.lines().filter(|line| line.ends_with("| ok |")).count(), results, "{out}");
    assert!(out.contains("GFLOP/s") && out.contains("tokens/s"), "{out}");
}

#[test]
fn the_commands_are_listed_in_groups_a_line_each() {
    let (out, ..) = run(fgrpo().arg("--help"));
    for line in out.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    for heading in ["Train:", "Evaluate:", "Analyse:", "Data:", "Paper:", "Options:"] {
        assert!(out.lines().any(|line| line == heading), "{heading} in: {out}");
    }
    let command = <fgrpo::args::Cli as clap::CommandFactory>::command();
    for name in command.get_subcommands().map(clap::Command::get_name) {
        let listed = out.lines().filter(|line| line.split_whitespace().next() == Some(name)).count();
        assert_eq!(listed, 1, "{name} in: {out}");
    }
}

/// Parses a command as a shell would pass it, without redirections and pipes, and doesn't run it.
pub(super) fn parse(line: &str) -> Result<(), clap::Error> {
    let words = shlex::split(line.split([';', '|', '>']).next().unwrap()).unwrap_or_default();
    let parsed = <fgrpo::args::Cli as clap::Parser>::try_parse_from(words).map(|_| ());
    // Help and version are requested outputs, not errors.
    parsed.or_else(|error| if error.exit_code() == 0 { Ok(()) } else { Err(error) })
}

#[test]
fn every_command_has_examples_that_can_be_pasted() {
    // Each command without subcommands, with its help or the help of the command that contains it.
    fn leaves(command: &clap::Command, outer: &str, found: &mut Vec<(String, String)>) {
        let help = command.get_after_help().map_or(outer.to_owned(), ToString::to_string);
        let mut inner = command.get_subcommands().filter(|c| c.get_name() != "help").peekable();
        if inner.peek().is_none() {
            found.push((command.get_name().to_owned(), help.clone()));
        }
        inner.for_each(|c| leaves(c, &help, found));
    }
    let mut commands = Vec::new();
    leaves(&<fgrpo::args::Cli as clap::CommandFactory>::command(), "", &mut commands);
    for (name, text) in commands {
        // From the program's name to the first word for the shell.
        let lines = text.lines().filter_map(|line| Some(&line[line.find("fgrpo ")?..]));
        let lines: Vec<&str> = lines.filter(|line| line.split(' ').any(|word| word == name)).collect();
        assert!(!lines.is_empty(), "{name}: no example in: {text}");
        for line in text.lines().filter(|line| line.starts_with("  fgrpo ")) {
            let parsed = parse(line);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
    }
}

#[test]
fn completions_and_manual_pages_are_whole_or_absent_on_a_full_disk() {
    use std::os::unix::process::CommandExt;
    for what in ["bash", "man"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fgrpo"));
        command.args(["completions", what, "--out"]).arg(folder.path());
        // SAFETY: signal and setrlimit may be called between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
                libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
                libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
                Ok(())
            })
        };
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("error: writing") && !said.contains("panicked"), "{said}");
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let (whole, ..) = run(fgrpo().args(["completions", "man"]));
            assert!(entry.metadata().unwrap().len() < 4096 && !name.starts_with(".partial-"), "{name}");
            assert!(name != "fgrpo.1" || std::fs::read_to_string(entry.path()).unwrap() == whole);
        }
    }
}
