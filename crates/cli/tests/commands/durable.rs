//! Nothing is lost or hangs, and no process stays behind: concurrent runs with one cache, removed checkpoints, broken streams,
//! signals, moved folders and the child processes of verifiers, through the command line.

use crate::support::{
    assert_same_files, count, ended, ends, fgrpo, model, signal, small_run, spawned, wait_until,
};
use predicates::prelude::*;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SFT: [&str; 3] = ["sft.steps=30", "sft.batch_size=4", "sft.lr=5e-3"];

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

const LAST: [&str; 3] = [
    "checkpoints/step-000004/model.safetensors",
    "checkpoints/step-000004/optimizer.safetensors",
    "checkpoints/step-000004/trainer_state.json",
];

#[test]
fn runs_at_once_share_one_cache_and_end_in_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&SFT));
    for round in 0..3 {
        let home = folder.path().join(round.to_string());
        // The files of a run that was killed before it wrote to the cache.
        let debris = home.join("sft-cache/.partial-x-1");
        std::fs::create_dir_all(&debris).unwrap();
        let run = |i: usize| home.join(format!("run-{i}"));
        let children: Vec<Child> = (0..5)
            .map(|i| spawned(&["train", &config, "--out", run(i).to_str().unwrap()]).spawn().unwrap())
            .collect();
        for child in children {
            let (code, said) = ended(child);
            assert_eq!(code, Some(0), "{said}");
        }
        (1..5).for_each(|i| assert_same_files(&run(0), &run(i), &LAST));
        let cache = std::fs::read_dir(home.join("sft-cache")).unwrap().count();
        assert_eq!(cache, 1, "one result and no debris");
    }
}

#[test]
fn the_best_policy_survives_a_checkpoint_of_before_its_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    // A learning rate that changes nothing, so that the first evaluation stays the best.
    let config = write(folder.path(), "c.toml", &small_run(&["update.lr=1e-30"]));
    let out = folder.path().join("run");
    let train = |more: &[&str]| {
        ends(0, command!("train", &config, "--out", &out, ..more));
    };
    train(&["--set", "steps=2"]);
    // The state after a stop in the evaluation of step 2, and a resume that was killed before the next save.
    let state = out.join("checkpoints/step-000002/trainer_state.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    assert_eq!(json["best"]["step"], 2);
    json["best"] = serde_json::Value::Null;
    std::fs::write(&state, json.to_string()).unwrap();
    train(&["--resume", "--accept-changes"]);
    assert!(out.join("checkpoints/best-000002/model.safetensors").exists());
    assert!(!out.join("checkpoints/best-000004").exists());
}

#[test]
fn a_run_of_a_version_without_some_keys_is_resumed_if_their_defaults_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&["update.lr=2e-3"]));
    let (whole, older) = (folder.path().join("whole"), folder.path().join("older"));
    let train =
        |out: &Path, more: &[&str]| fgrpo().args(["train", &config, "--out"]).arg(out).args(more).assert();
    train(&whole, &[]).success();
    train(&older, &["--set", "steps=2"]).success();
    let written = older.join("config.toml");
    let without = |key: &str| {
        let text = std::fs::read_to_string(&written).unwrap();
        let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with(key)).collect();
        assert!(kept.len() < text.lines().count(), "{text}");
        std::fs::write(&written, kept.join("\n").replace("steps = 2", "steps = 4")).unwrap();
    };
    without("optimizer_offload =");
    without("moments =");
    train(&older, &["--resume"]).success();
    assert_same_files(&whole, &older, &LAST);
    // A value that isn't the default.
    without("lr =");
    let error = String::from_utf8(train(&older, &["--resume"]).code(2).get_output().stderr.clone()).unwrap();
    assert!(error.contains("update.lr: ") && error.contains("-> 0.002") && !error.contains(';'), "{error}");
}

#[test]
fn a_better_policy_replaces_the_best_only_with_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&["eval.every=1"]));
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    let more = ["--set", "save.every=4", "--set", "steps=4"];
    ends(0, command!("train", &config, "--out", &whole, ..more));
    for seen in 1..=4 {
        let out = killed.to_str().unwrap();
        let mut child = spawned(&["train", &config, "--resume", "--out", out]).args(more).spawn().unwrap();
        wait_until("the evaluation", || {
            count(&killed.join("eval.jsonl")) > seen || child.try_wait().unwrap().is_some()
        });
        let _ = child.kill();
        child.wait().unwrap();
    }
    ends(0, command!("train", &config, "--resume --out", &killed, ..more));
    assert_same_files(&whole, &killed, &LAST);
    let names = |run: &Path| {
        let mut names: Vec<String> = std::fs::read_dir(run.join("checkpoints"))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&whole), names(&killed));
}

#[test]
fn a_resume_without_the_checkpoints_is_refused_and_a_restart_says_what_it_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&[]));
    let out = folder.path().join("run");
    let train = |more: &[&str]| fgrpo().args(["train", &config, "--out"]).arg(&out).args(more).assert();
    train(&[]).success();
    let before = std::fs::read(out.join("metrics.jsonl")).unwrap();
    std::fs::rename(out.join("checkpoints"), folder.path().join("elsewhere")).unwrap();
    for empty in [false, true] {
        if empty {
            std::fs::create_dir(out.join("checkpoints")).unwrap();
        }
        train(&["--resume"]).code(2).stderr(
            predicate::str::contains(out.join("checkpoints").to_str().unwrap())
                .and(predicate::str::contains("--restart")),
        );
    }
    assert_eq!(std::fs::read(out.join("metrics.jsonl")).unwrap(), before);
    train(&["--restart", "--resume"]).code(2);
    train(&["--restart"]).success().stderr(
        predicate::str::contains("deleting the run")
            .and(predicate::str::contains("4 RL steps, 0 checkpoints")),
    );
    assert_eq!(count(&out.join("metrics.jsonl")), 4);
    // Before the first checkpoint there is nothing to lose.
    std::fs::remove_dir_all(out.join("checkpoints")).unwrap();
    std::fs::remove_file(out.join("checkpoints.latest")).unwrap();
    let first = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap();
    std::fs::write(out.join("metrics.jsonl"), first.lines().next().unwrap().to_owned() + "\n").unwrap();
    train(&["--resume"]).success().stderr(predicate::str::contains("stopped before its first checkpoint"));
    assert_eq!(count(&out.join("metrics.jsonl")), 4);
}

#[test]
fn a_resume_says_which_steps_and_numbers_are_missing_and_so_does_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&[]));
    let out = folder.path().join("run");
    ends(0, command!("train", &config, "--out", &out));
    let metrics = out.join("metrics.jsonl");
    let text = std::fs::read_to_string(&metrics).unwrap();
    let mut all: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    all[0]["reward_mean"] = serde_json::Value::Null;
    all[0]["reasons"]["x"] = serde_json::Value::Null;
    std::fs::write(&metrics, format!("{}\n\0\0\0\n{}\n", all[0], all[3])).unwrap();
    fgrpo().args(["train", &config, "--resume", "--out"]).arg(&out).assert().success().stderr(
        predicate::str::contains("steps 2-3")
            .and(predicate::str::contains("1 lines that aren't JSON"))
            .and(predicate::str::contains("step 1: reward_mean, reasons/x")),
    );
    ends(0, command!("report", &out));
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("no lines of steps 2-3"));
}

#[test]
fn rewards_that_overflow_are_refused_at_the_door() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&[]));
    for (set, says) in [
        ("algorithm.reward_correct=1e308", "algorithm.reward_correct: "),
        ("algorithm.reward_wrong=-inf", "algorithm.reward_wrong: "),
        ("algorithm.reward_correct=nan", "algorithm.reward_correct: "),
        ("update.betas=[0.9, 0.99, 0.999]", "update.betas"),
        ("update.betas=[0.9]", "update.betas"),
        ("algorithm.loss.clip=[0.5, 2.0, 3.0]", "algorithm.loss.clip"),
        ("seed=1\nsteps = 9", "seed"),
        ("seed=1 # steps", "seed"),
    ] {
        let run = fgrpo().args(["train", &config, "--dry-run", "--set", set]).assert();
        run.code(2).stderr(predicate::str::contains(says));
    }
    // A value over several lines counts as one value.
    fgrpo().args(["train", &config, "--dry-run", "--set", "eval.k=[1,\n 2]"]).assert().success();
}

#[test]
fn broken_streams_end_no_training() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&SFT));
    let whole = folder.path().join("whole/run");
    ends(0, command!("train", &config, "--out", &whole));
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    type Broken<'a> = (&'a str, Box<dyn Fn(&mut std::process::Command) -> Child>);
    let ways: [Broken<'_>; 3] = [
        ("full", Box::new(move |c| c.stdout(full()).stderr(full()).spawn().unwrap())),
        (
            "closed",
            Box::new(|c| {
                let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
                drop((child.stdout.take(), child.stderr.take()));
                child
            }),
        ),
        (
            "absent",
            Box::new(|c| {
                // SAFETY: close may be called between fork and exec.
                unsafe {
                    c.pre_exec(|| {
                        libc::close(1);
                        libc::close(2);
                        Ok(())
                    })
                };
                c.spawn().unwrap()
            }),
        ),
    ];
    for (name, start) in ways {
        let out = folder.path().join(name).join("run");
        let mut child = start(&mut spawned(&["train", &config, "--out", out.to_str().unwrap()]));
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
        assert_same_files(&whole, &out, &LAST);
        assert!(out.join("report.html").exists(), "{name}");
    }
}

#[test]
fn data_on_a_closed_stdout_ends_quietly_and_on_a_full_one_fails() {
    let folder = tempfile::tempdir().unwrap();
    let samples = write(folder.path(), "s.jsonl", "{\"problem\": 1, \"n\": 8, \"c\": 3}\n");
    let commands: [&[&str]; 4] = [
        &["pass-at-k", &samples, "-k", "1"],
        &["theory", "peak", "--mu", "0.5", "--tau", "0.05", "--json"],
        &["maze", "show", "--size", "7"],
        &["plan", &samples],
    ];
    for args in commands {
        let mut child = spawned(args).stdout(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let (code, said) = ended(child);
        assert!(code == Some(0) && !said.contains("panicked") && !said.contains("error"), "{args:?}: {said}");
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (code, said) = ended(spawned(args).stdout(full).spawn().unwrap());
        assert!(code == Some(1) && said.contains("standard output"), "{args:?}: {code:?} {said}");
    }
}

#[test]
fn a_lost_terminal_saves_and_nohup_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&[]));
    let set = ["--set", "steps=100000", "--set", "save.every=0", "--set", "eval.every=0"];
    for ignored in [false, true] {
        let out = folder.path().join(format!("run {ignored}"));
        let mut command = spawned(&["train", &config, "--out", out.to_str().unwrap()]);
        command.args(set);
        if ignored {
            // SAFETY: signal may be called between fork and exec.
            unsafe {
                command.pre_exec(|| {
                    libc::signal(libc::SIGHUP, libc::SIG_IGN);
                    Ok(())
                })
            };
        }
        let mut child = command.spawn().unwrap();
        let metrics = out.join("metrics.jsonl");
        wait_until("two steps", || count(&metrics) >= 2);
        // A shell and the kernel have different messages.
        signal(&child, libc::SIGHUP);
        std::thread::sleep(Duration::from_millis(150));
        signal(&child, libc::SIGHUP);
        if ignored {
            let now = count(&metrics);
            wait_until("steps after the signal", || count(&metrics) > now + 2);
            assert!(child.try_wait().unwrap().is_none());
            signal(&child, libc::SIGTERM);
        }
        let (code, said) = ended(child);
        assert_eq!(code, Some(1), "{said}");
        assert!(out.join(format!("checkpoints/step-{:06}", count(&metrics))).is_dir(), "{said}");
    }
}

#[test]
fn the_printed_command_goes_on_whatever_the_folder_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "a c.toml", &small_run(&[]));
    let out = folder.path().join("it's a \"run\" $x");
    let child = spawned(&["train", &config, "--out", out.to_str().unwrap()])
        .args(["--set", "steps=3000", "--set", "eval.every=0", "--set", "save.every=1000000"])
        .spawn()
        .unwrap();
    wait_until("two steps", || count(&out.join("metrics.jsonl")) >= 2);
    signal(&child, libc::SIGINT);
    let (_, said) = ended(child);
    let command = said.split("Continue with: ").nth(1).unwrap_or_else(|| panic!("{said}")).trim();
    let again = command.replace("steps=3000", "steps=1 --accept-changes");
    let shell = std::process::Command::new("sh").args(["-c", &again]).output().unwrap();
    let said = String::from_utf8_lossy(&shell.stderr);
    assert!(shell.status.success() && said.contains("resumed after step"), "{again}: {said}");
}

#[test]
fn a_moved_run_folder_stops_the_run_which_goes_on_from_its_newest_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&SFT));
    for (command, file, set) in [
        (
            "train",
            "metrics.jsonl",
            ["--set", "steps=100000", "--set", "eval.every=0", "--set", "save.every=2"],
        ),
        (
            "sft",
            "sft.jsonl",
            ["--set", "sft.steps=100000", "--set", "sft.save_every=2", "--set", "eval.every=0"],
        ),
    ] {
        let (from, to) = (folder.path().join(command), folder.path().join(format!("{command} moved")));
        let child = spawned(&[command, &config, "--out", from.to_str().unwrap()]).args(set).spawn().unwrap();
        wait_until("three steps", || count(&from.join(file)) >= 3);
        std::fs::rename(&from, &to).unwrap();
        let (code, said) = ended(child);
        assert_eq!(code, Some(1), "{said}");
        let says =
            format!("{}: the run folder was moved or removed while the run wrote to it", from.display());
        assert!(said.contains(&says) && said.contains("--resume"), "{said}");
        assert!(!from.exists(), "the run went on in two folders");
        let saved = std::fs::read_dir(to.join("checkpoints")).unwrap().flatten();
        let step = |name: &str| name.strip_prefix("step-")?.parse::<u64>().ok();
        let newest = saved.filter_map(|entry| step(entry.file_name().to_str()?)).max().unwrap();
        let key = if command == "train" { "steps" } else { "sft.steps" };
        let few = format!("{key}={}", newest + 1);
        let mut again = fgrpo();
        again.args([command, &config, "--resume", "--accept-changes", "--out"]).arg(&to).args(set);
        again.args(["--set", &few]).assert().success().stderr(predicate::str::contains("resumed"));
    }
}

#[test]
fn debris_of_kills_is_removed_at_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let config = write(folder.path(), "c.toml", &small_run(&[]));
    let out = folder.path().join("run");
    ends(0, command!("train", &config, "--out", &out));
    let debris = ["", "checkpoints", "evaluations", "full-evaluations"]
        .map(|place| out.join(place).join(".partial-step-000002-x"));
    std::fs::write(&debris[0], "x").unwrap();
    for folder in &debris[1..] {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::write(folder.join("optimizer.safetensors"), "x").unwrap();
    }
    ends(0, command!("train", &config, "--resume --out", &out));
    for path in debris {
        assert!(!path.exists(), "{}", path.display());
    }
}

/// A verifier that records its process id and that of a busy child, and works long on all completions except those of its trial.
const SLOW: &str = r#"
import sys, json, subprocess, os, time
folder = sys.argv[1]
busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
open(f"{folder}/{os.getpid()}", "w").close()
open(f"{folder}/{busy.pid}", "w").close()
for line in sys.stdin:
    if json.loads(line)["completion"] not in ("", "The answer is 1."):
        time.sleep(float(sys.argv[2]))
    print(json.dumps({"score": 1}), flush=True)
"#;

fn numbers(folder: &Path) -> Vec<i32> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries.map(|e| e.file_name().to_str().unwrap().parse().unwrap()).collect()
}

fn lives(process: i32) -> bool {
    // A zombie that hasn't been reaped has no command line.
    match std::fs::read(format!("/proc/{process}/cmdline")) {
        Ok(line) => !line.is_empty(),
        // SAFETY: signal 0 only checks that the process exists.
        Err(_) => !Path::new("/proc/self").exists() && unsafe { libc::kill(process, 0) } == 0,
    }
}

#[test]
fn no_child_of_a_verifier_outlives_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = write(folder.path(), "slow.py", SLOW);
    let rows: String = (0..4).map(|i| format!("{{\"problem\": {i}, \"response\": \"slow\"}}\n")).collect();
    let rows = write(folder.path(), "rows.jsonl", &rows);
    for (number, signals) in
        [&[libc::SIGKILL][..], &[libc::SIGINT, libc::SIGINT], &[libc::SIGTERM]].into_iter().enumerate()
    {
        let pids = folder.path().join(format!("pids{number}"));
        std::fs::create_dir(&pids).unwrap();
        let command = format!("python3 {script} {} 1000", pids.display());
        let child = spawned(&["verify", "command", &rows, "--command", &command, "--timeout-s", "900"])
            .spawn()
            .unwrap();
        wait_until("the verifier's child", || numbers(&pids).len() >= 2);
        std::thread::sleep(Duration::from_millis(100));
        let found = numbers(&pids);
        assert!(found.iter().all(|&p| lives(p)), "{found:?}");
        for &s in signals {
            signal(&child, s);
            std::thread::sleep(Duration::from_millis(200));
        }
        ended(child);
        let started = Instant::now();
        while numbers(&pids).iter().any(|&p| lives(p)) {
            assert!(started.elapsed() < Duration::from_secs(5), "{:?} live on", numbers(&pids));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A small model folder with a tokenizer.
#[test]
fn a_stop_while_a_verifier_works_saves_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let model = model();
    let script = write(folder.path(), "slow.py", SLOW);
    let pids = folder.path().join("pids");
    std::fs::create_dir(&pids).unwrap();
    // All rows except those of the first step are slow.
    let data: String = (0..8).map(|i| format!("{{\"problem\": \"Take {i}.\"}}\n")).collect();
    let data = write(folder.path(), "data.jsonl", &data);
    let config = write(
        folder.path(),
        "command.toml",
        &format!(
            "steps = 3\n[task]\nkind = \"command\"\ndata = {data:?}\nheld_out_share = 0\n\
             [task.verifier.command]\ncommand = [\"python3\", {script:?}, {pids:?}, \"1000\"]\ntimeout_s = 900\n\
             [model]\npath = {model:?}\n[rollout]\nprompts = 2\ngroup_size = 2\nmax_new_tokens = 4\n[eval]\nevery = 0\n"
        ),
    );
    let out = folder.path().join("run");
    let child = spawned(&["train", &config, "--out", out.to_str().unwrap()]).spawn().unwrap();
    wait_until("the verifier's child", || numbers(&pids).len() >= 2 && out.join("log.txt").exists());
    // Sampling takes milliseconds, so the run is grading by now.
    std::thread::sleep(Duration::from_millis(1500));
    let asked = Instant::now();
    signal(&child, libc::SIGTERM);
    let (code, said) = ended(child);
    assert!(asked.elapsed() < Duration::from_secs(2), "took {:?}", asked.elapsed());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("Continue with:"), "{said}");
    assert_eq!(count(&out.join("metrics.jsonl")), 0, "a step with verdicts that never came");
}
