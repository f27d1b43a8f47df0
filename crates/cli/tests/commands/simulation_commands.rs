//! `fgrpo theory` and `fgrpo simulate`, through the command line.

use crate::support::{self, done, ended, json, refused, signal, spawned, wait_until};
use assert_cmd::Command;
use fgrpo_paper::simulate::Config;
use serde_json::Value;
use std::path::Path;

fn fgrpo(args: &[&str]) -> Command {
    let mut command = support::fgrpo();
    command.args(args);
    command
}

#[test]
fn theory_prints_the_json_of_the_contract() {
    let close = |found: &Value, wanted: f64| {
        let found = found.as_f64().unwrap();
        assert!((found - wanted).abs() <= 1e-14 * wanted.abs(), "found {found}, wanted {wanted}");
    };
    let value =
        json(&["theory", "tail-miss", "--mu", "0.5", "--tau", "1e-12", "--n", "1000000000", "--json"]);
    close(&value["tail_miss"], 0.9990004998333745);
    close(&value["active"], 1.0);
    assert_eq!(value.as_object().unwrap().len(), 2);
    let value = json(&["theory", "peak", "--mu", "0.5", "--tau", "0.05", "--json"]);
    assert_eq!(value["n"], 5);
    let value = json(&["theory", "low-lr", "--gamma", "0.5", "--json"]);
    close(&value["multiplier"], 32.0 / (15.0 * std::f64::consts::PI));
    let value = json(&["theory", "advantage", "--success-rate", "0.2", "--gamma", "1", "--json"]);
    close(&value["correct"], 1.6);
    close(&value["wrong"], -0.4);
    close(&value["weight"], 0.8);
    let value = json(&["theory", "advantage", "--success-rate", "0.5", "--gamma", "0", "--n", "2", "--json"]);
    close(&value["correct"], 0.5 / (0.5f64.sqrt() + 1e-6));
    let value = json(&["theory", "active", "--mu", "0.2", "--n", "2,3", "--json"]);
    assert_eq!(value[1]["n"], 3);
    close(&value[0]["active"], 0.32);
}

#[test]
fn mass_terms_add_up_to_the_subsets_change() {
    let mut args = vec!["theory", "mass", "--logits", "2,0,0,1", "--correct", "0,1", "--sample", "0,3,3"];
    args.extend(["--reward-wrong", "-1", "--lr", "0.1", "--subset", "1", "--json"]);
    let value = json(&args);
    // Action 1 is the only correct one not drawn.
    let (a, b) = (&value["delta_q_unsampled_pos"]["total"], &value["delta_subset"]["total"]);
    assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-16);
    let rows = json(&["theory", "sampled-mass", "--logits", "1,0,0", "--correct", "0", "--n", "3", "--json"]);
    assert_eq!(rows.as_array().unwrap().len(), 4);
}

#[test]
fn figures_are_written_as_svg() {
    let folder = tempfile::tempdir().unwrap();
    for (i, args) in
        [vec!["tail-miss"], vec!["tail-miss", "--mu", "0.64", "--tau", "6.3e-5"], vec!["advantage"]]
            .into_iter()
            .enumerate()
    {
        let file = folder.path().join(format!("{i}.svg"));
        fgrpo(&["theory"]).args(&args).arg("--plot").arg(&file).assert().success();
        assert!(std::fs::read(&file).unwrap().starts_with(b"<svg "), "{args:?}");
    }
    let panels = std::fs::read_to_string(folder.path().join("0.svg")).unwrap();
    for title in ["\u{3bc} = 0.8", "\u{3bc} = 0.5", "\u{3bc} = 0.2"] {
        assert!(panels.contains(title), "{title}");
    }
    // A star for each of the 4 curves in 3 panels.
    assert_eq!(panels.matches("<path class=\"star\"").count(), 12);
}

#[test]
fn bad_theory_input_ends_with_two() {
    for (args, message) in [
        // One refusal of a formula; tests next to the formulas cover the others.
        ("tail-miss --mu 0.5 --tau 0.6 --n 8", "tau: expected"),
        ("tail-miss --mu 0.5 --tau 0.1", "--n is required"),
        ("tail-miss --mu 0.5 --n 8", "--tau and --n are required"),
        ("active --mu 0.5 --n -3", "-3"),
        ("advantage --success-rate 0.3", "--gamma is required"),
        ("mass --logits 1,2 --correct 2 --sample 0", "found 2"),
        ("advantage --plot x.pdf", ".svg"),
        ("advantage --plot x.png", "rsvg-convert -z 2 -o x.png x.svg"),
    ] {
        let said = refused(&[&["theory"], &args.split(' ').collect::<Vec<_>>()[..]].concat());
        assert!(said.contains(message), "{args}: {said}");
    }
}

/// A small sweep: 3 group sizes, 2 gammas, 2 seeds.
fn small(folder: &Path) -> String {
    let path = folder.join("small.toml");
    let text = "group_sizes = [2, 64, 4000]\nseeds = 2\nsteps = 60\nactions = 3000\ncorrect = 200\n";
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_sweep_writes_the_same_bytes_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let config = small(folder.path());
    let mut seen = Vec::new();
    for threads in ["1", "3"] {
        let out = folder.path().join(threads);
        let run = fgrpo(&["simulate", &config, "--threads", threads, "--out", out.to_str().unwrap()]);
        let run = { run }.assert().success();
        assert!(String::from_utf8_lossy(&run.get_output().stdout).contains("Q_pos"));
        let read = |name: &str| std::fs::read(out.join(name)).unwrap();
        seen.push(["curves.jsonl", "curves.csv", "final.csv", "tail-miss.csv", "figure.svg"].map(read));
        assert!(read("tail-miss.svg").starts_with(b"<svg"));
    }
    assert_eq!(seen[0], seen[1]);
    let text = String::from_utf8(seen[0][0].clone()).unwrap();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    // 12 runs, steps 0, 10, ..., 60.
    assert_eq!(lines.len(), 12 * 7);
    let keys: Vec<&str> = lines[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["n", "gamma", "seed", "step", "q_pos", "retained", "entropy"]);
}

#[test]
fn a_torn_sweep_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let config = small(folder.path());
    let out = folder.path().join("out");
    let args = ["simulate", &config, "--out", out.to_str().unwrap()];
    fgrpo(&args).assert().success();
    let curves = out.join("curves.jsonl");
    let whole = std::fs::read_to_string(&curves).unwrap();
    // Four runs, half of a fifth, and an incomplete line, as after a kill in the middle of a write.
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    std::fs::write(&curves, lines[..31].concat() + &lines[31][..20]).unwrap();
    let again = fgrpo(&args).assert().success();
    assert!(String::from_utf8_lossy(&again.get_output().stderr).contains("4 done before"));
    assert_eq!(std::fs::read_to_string(&curves).unwrap(), whole);
    // A block after a power failure: zeros replace a line.
    std::fs::write(&curves, lines[..20].concat() + "\0\0\0\n" + &lines[21..].concat()).unwrap();
    let again = fgrpo(&args).assert().success();
    let said = String::from_utf8_lossy(&again.get_output().stderr).into_owned();
    assert!(said.contains("the first is line 21") && said.contains("11 done before"), "{said}");
    assert_eq!(std::fs::read_to_string(&curves).unwrap(), whole);
    let done = fgrpo(&args).assert().success();
    assert!(String::from_utf8_lossy(&done.get_output().stderr).contains("all 12 runs are done already"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_sweep_keeps_its_runs_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("long.toml");
    let text =
        "group_sizes = [3000]\ngammas = [0.0]\nseeds = 40\nsteps = 1500\nactions = 20000\ncorrect = 2000\n";
    std::fs::write(&config, text).unwrap();
    let out = folder.path().join("out");
    let args = ["simulate", config.to_str().unwrap(), "--threads", "1", "--out", out.to_str().unwrap()];
    let child = spawned(&args).spawn().unwrap();
    wait_until("a run", || std::fs::metadata(out.join("curves.jsonl")).is_ok_and(|m| m.len() > 0));
    signal(&child, libc::SIGINT);
    let (code, stderr) = ended(child);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("of 40 runs are saved") && stderr.contains("Continue with:\n  fgrpo simulate"));
    let kept = std::fs::read_to_string(out.join("curves.jsonl")).unwrap();
    // 151 recorded steps per run. Only complete runs are retained.
    assert!(kept.lines().count() >= 151 && kept.lines().count().is_multiple_of(151));
    assert!(kept.lines().count() < 40 * 151, "the sweep was over before the signal");
}

#[test]
fn bad_simulations_end_with_two() {
    let folder = tempfile::tempdir().unwrap();
    let config = small(folder.path());
    let out = folder.path().join("out");
    let out = out.to_str().unwrap();
    for (set, message) in [
        ("correct=3001", "correct: expected"),
        ("group_sizes=0", "group_sizes"),
        ("group_sizes=0,2", "group_size: expected"),
        ("group_sizes=[]", "group_sizes: the list is empty"),
        ("lr=nan", "lr: expected"),
        ("lr=fast", "lr"),
        ("lr", "KEY=VALUE"),
        ("gammas=nan", "gammas"),
        ("gammas=[-1.0]", "gamma: expected"),
        ("seeds=[1,1]", "seeds: a value is listed twice"),
        ("seeds=-1", "seeds"),
        ("steps=0", "steps: expected at least 1"),
        ("record_every=0", "record_every: expected at least 1"),
        ("surrogate=log", "surrogate"),
        ("rate=1", "unknown key `rate`"),
    ] {
        let text = std::fs::read_to_string(&config).unwrap();
        let error = Config::parse(&text, &[set.to_owned()]).unwrap_err();
        assert!(format!("{error:#}").contains(message), "{set}: {error:#}");
    }
    let with = |args: &[&str], message: &str| {
        let said = refused(&[&["simulate"], args].concat());
        assert!(said.contains(message), "{args:?}: {said}");
    };
    with(&[config.as_str(), "--out", out, "--set", "lr=nan"], "lr: expected");
    assert!(!Path::new(out).exists(), "nothing is written for a configuration that is refused");
    with(&["missing.toml"], "missing.toml");
    done(&["simulate", &config, "--out", out]);
    with(
        &[config.as_str(), "--out", out, "--set", "lr=0.5"],
        "another configuration (there -> here: lr: 0.01 -> 0.5)",
    );
    with(&[config.as_str(), "--out", folder.path().to_str().unwrap()], "holds no sweep but other files");
    let lock = std::fs::File::create(Path::new(out).join("lock")).unwrap();
    lock.lock().unwrap();
    with(&[config.as_str(), "--out", out], "in use by another process");
}

#[test]
fn a_policy_that_diverges_fails_with_one_and_names_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let config = small(folder.path());
    let out = folder.path().join("out");
    let mut command = fgrpo(&["simulate", &config, "--out", out.to_str().unwrap()]);
    command.args(["--set", "optimizer=sgd", "--set", "lr=1e308", "--set", "reward_correct=1e10"]);
    let run = command.assert().code(1);
    let stderr = String::from_utf8_lossy(&run.get_output().stderr);
    assert!(stderr.contains("no longer finite") && stderr.contains("group size"), "{stderr}");
}

#[test]
fn dry_run_prints_the_resolved_configuration_which_reads_back_as_itself() {
    let folder = tempfile::tempdir().unwrap();
    let config = small(folder.path());
    let set = ["lr=3e-3", "surrogate=probability", "group_sizes=2,4", "optimizer=\"sgd\""];
    let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let printed = |args: &[&str]| {
        let run = fgrpo(&["simulate", "--dry-run"]).args(args).assert().success();
        String::from_utf8_lossy(&run.get_output().stdout).into_owned()
    };
    let text = printed(&[&[config.as_str()], &set[..]].concat());
    let table: toml::Table = text.parse().unwrap();
    assert_eq!((table["lr"].as_float(), table["optimizer"].as_str()), (Some(3e-3), Some("sgd")));
    assert_eq!(table["record_every"].as_integer(), Some(10));
    for key in ["seeds", "group_sizes"] {
        assert_eq!(table[key].as_array().unwrap().len(), 2, "{key}");
    }
    std::fs::write(&config, &text).unwrap();
    assert_eq!(printed(&[&config]), text);
}
