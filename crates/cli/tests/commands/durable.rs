//! Nothing is lost or hangs, and no process stays behind: concurrent runs with one cache, removed checkpoints, broken streams,
//! signals, moved folders and the child processes of verifiers, through the command line.

use crate::support::{
    assert_same_files, copy, count, ended, ends, file, finished, kill_at, lines, model, signal, small_run,
    spawned, tells, wait_until,
};
use serde_json::Value;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A supervised stage before RL.
const SFT: [&str; 3] = ["sft.steps=30", "sft.batch_size=4", "sft.lr=5e-3"];

/// Writes the configuration of a small run into a folder.
fn config(folder: &Path, changes: &[&str]) -> PathBuf {
    file(folder, "c.toml", &small_run(changes))
}

/// `fgrpo train`, which can get signals.
fn train(config: &Path, out: &Path) -> std::process::Command {
    let mut command = spawned(&["train"]);
    command.arg(config).arg("--out").arg(out);
    command
}

const LAST: [&str; 3] = [
    "checkpoints/step-000004/model.safetensors",
    "checkpoints/step-000004/optimizer.safetensors",
    "checkpoints/step-000004/trainer_state.json",
];

#[test]
fn runs_at_once_share_one_cache_and_end_in_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &SFT);
    // The files of a run that was killed before it wrote to the cache.
    std::fs::create_dir_all(folder.path().join("sft-cache/.partial-x-1")).unwrap();
    let run = |i: usize| folder.path().join(format!("run-{i}"));
    let children: Vec<Child> = (0..5).map(|i| train(&config, &run(i)).spawn().unwrap()).collect();
    for child in children {
        let (code, said) = ended(child);
        assert_eq!(code, Some(0), "{said}");
    }
    (1..5).for_each(|i| assert_same_files(&run(0), &run(i), &LAST));
    let cache = std::fs::read_dir(folder.path().join("sft-cache")).unwrap().count();
    assert_eq!(cache, 1, "one result and no debris");
}

#[test]
fn the_best_policy_survives_a_checkpoint_of_before_its_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    // A learning rate that changes nothing, so that the first evaluation stays the best.
    let config = config(folder.path(), &["update.lr=1e-30"]);
    let out = folder.path().join("run");
    ends(0, command!("train", &config, "--out", &out, "--set steps=2"));
    // The state after a stop in the evaluation of step 2, and a resume that was killed before the next save.
    let state = out.join("checkpoints/step-000002/trainer_state.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    assert_eq!(json["best"]["step"], 2);
    json["best"] = Value::Null;
    std::fs::write(&state, json.to_string()).unwrap();
    ends(0, command!("train", &config, "--out", &out, "--resume --accept-changes"));
    assert!(out.join("checkpoints/best-000002/model.safetensors").exists());
    assert!(!out.join("checkpoints/best-000004").exists());
}

#[test]
fn a_run_of_a_version_without_some_keys_is_resumed_if_their_defaults_are_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let (config, whole) = finished(folder.path());
    let older = folder.path().join("older");
    copy(&whole, &older);
    std::fs::remove_dir_all(older.join("checkpoints/step-000004")).unwrap();
    let written = older.join("config.toml");
    let without = |key: &str| {
        let text = std::fs::read_to_string(&written).unwrap();
        let kept: Vec<&str> = text.lines().filter(|line| !line.starts_with(key)).collect();
        assert!(kept.len() < text.lines().count(), "{text}");
        std::fs::write(&written, kept.join("\n")).unwrap();
    };
    without("optimizer_offload =");
    without("moments =");
    let resume = || command!("train", &config, "--resume --out", &older);
    ends(0, resume());
    assert_same_files(&whole, &older, &LAST);
    // A value that isn't the default.
    without("lr =");
    let (_, error) = ends(2, resume());
    assert!(error.contains("update.lr: ") && error.contains("-> 0.001") && !error.contains(';'), "{error}");
}

#[test]
fn a_better_policy_replaces_the_best_only_with_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), &["eval.every=1", "save.every=4"]);
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    ends(0, command!("train", &config, "--out", &whole));
    let start = || {
        let mut command = train(&config, &killed);
        command.arg("--resume");
        command
    };
    kill_at(start, &killed.join("eval.jsonl"), &[2, 3, 4, 5]);
    ends(0, command!("train", &config, "--resume --out", &killed));
    assert_same_files(&whole, &killed, &LAST);
    let names = |run: &Path| {
        let entries = std::fs::read_dir(run.join("checkpoints")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&whole), names(&killed));
}

#[test]
fn a_resume_without_the_checkpoints_is_refused_and_a_restart_says_what_it_deletes() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = finished(folder.path());
    let (checkpoints, metrics) = (out.join("checkpoints"), out.join("metrics.jsonl"));
    let again = |more: &str| command!("train", &config, "--out", &out, ..more.split(' '));
    let before = std::fs::read(&metrics).unwrap();
    std::fs::remove_dir_all(&checkpoints).unwrap();
    for empty in [false, true] {
        if empty {
            std::fs::create_dir(&checkpoints).unwrap();
        }
        let (_, said) = ends(2, again("--resume"));
        assert!(said.contains(checkpoints.to_str().unwrap()) && said.contains("--restart"), "{said}");
    }
    assert_eq!(std::fs::read(&metrics).unwrap(), before);
    ends(2, again("--restart --resume"));
    let (_, said) = ends(0, again("--restart"));
    assert!(said.contains("deleting the run") && said.contains("4 RL steps, 0 checkpoints"), "{said}");
    assert_eq!(count(&metrics), 4);
    // Before the first checkpoint there is nothing to lose.
    std::fs::remove_dir_all(&checkpoints).unwrap();
    std::fs::remove_file(out.join("checkpoints.latest")).unwrap();
    file(&out, "metrics.jsonl", &format!("{}\n", lines(&metrics)[0]));
    tells(0, again("--resume"), "stopped before its first checkpoint");
    assert_eq!(count(&metrics), 4);
}

#[test]
fn a_resume_removes_the_debris_of_kills_and_says_which_steps_and_numbers_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = finished(folder.path());
    let debris = ["", "checkpoints", "evaluations", "full-evaluations"]
        .map(|place| out.join(place).join(".partial-step-000002-x"));
    std::fs::write(&debris[0], "x").unwrap();
    debris[1..].iter().for_each(|folder| drop(file(folder, "optimizer.safetensors", "x")));
    let mut all = lines(&out.join("metrics.jsonl"));
    all[0]["entropy"] = Value::Null;
    all[0]["reasons"]["x"] = Value::Null;
    file(&out, "metrics.jsonl", &format!("{}\n\0\0\0\n{}\n", all[0], all[3]));
    let (_, said) = ends(0, command!("train", &config, "--resume --out", &out));
    for part in ["steps 2-3", "1 lines that aren't JSON", "step 1: entropy, reasons/x"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    ends(0, command!("report", &out));
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("no lines of steps 2-3"));
    for path in debris {
        assert!(!path.exists(), "{}", path.display());
    }
}

#[test]
fn broken_streams_end_no_training() {
    let folder = tempfile::tempdir().unwrap();
    let (config, whole) = finished(folder.path());
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
        let out = folder.path().join(name);
        let mut child = start(&mut train(&config, &out));
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
        assert_same_files(&whole, &out, &LAST);
        assert!(out.join("report.html").exists(), "{name}");
    }
}

#[test]
fn data_on_a_closed_stdout_ends_quietly_and_on_a_full_one_fails() {
    let folder = tempfile::tempdir().unwrap();
    let samples = file(folder.path(), "s.jsonl", "{\"problem\": 1, \"n\": 8, \"c\": 3}\n");
    for line in ["pass-at-k SAMPLES -k 1", "theory peak --mu 0.5 --tau 0.05 --json", "plan SAMPLES"] {
        let line = line.replace("SAMPLES", samples.to_str().unwrap());
        let args: &[&str] = &line.split(' ').collect::<Vec<_>>();
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
    let config = config(folder.path(), &["steps=100000", "save.every=0", "eval={ every = 0 }"]);
    for ignored in [false, true] {
        let out = folder.path().join(format!("run {ignored}"));
        let mut command = train(&config, &out);
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
fn an_interrupted_run_saves_and_the_printed_command_goes_on_whatever_the_folder_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let text = small_run(&["steps=3000", "eval={ every = 0 }", "save.every=0"]);
    let config = file(folder.path(), "a c.toml", &text);
    let out = folder.path().join("it's a \"run\" $x");
    let mut command = train(&config, &out);
    let child = command.args(["--set", "steps=3001"]).spawn().unwrap();
    wait_until("two steps", || count(&out.join("metrics.jsonl")) >= 2);
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1), "{said}");
    let logged = count(&out.join("metrics.jsonl"));
    assert!(out.join(format!("checkpoints/step-{logged:06}")).exists(), "no checkpoint after step {logged}");
    let command = said.split("Continue with: ").nth(1).unwrap_or_else(|| panic!("{said}")).trim();
    let again = command.replace("steps=3001", "steps=1 --accept-changes");
    let shell = std::process::Command::new("sh").args(["-c", &again]).output().unwrap();
    let said = String::from_utf8_lossy(&shell.stderr);
    assert!(shell.status.success() && said.contains("resumed after step"), "{again}: {said}");
}

#[test]
fn a_moved_run_folder_stops_the_run_which_goes_on_from_its_newest_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let every = "sft={ steps = 100000, batch_size = 4, save_every = 2 }";
    let config = config(folder.path(), &[every, "eval={ every = 0 }"]);
    // RL has no supervised stage before it.
    for (name, file, first, steps) in
        [("train", "metrics.jsonl", "sft.steps=1", "steps"), ("sft", "sft.jsonl", "steps=1", "sft.steps")]
    {
        let (from, to) = (folder.path().join(name), folder.path().join(format!("{name} moved")));
        let endless = format!("{steps}=100000");
        let set = ["--set", first, "--set", &endless];
        let mut command = spawned(&[name]);
        let child = command.arg(&config).arg("--out").arg(&from).args(set).spawn().unwrap();
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
        let few = format!("{steps}={}", newest + 1);
        let again = command!(name, &config, "--resume --accept-changes --out", &to, ..set, "--set", few);
        tells(0, again, "resumed");
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
    let script = file(folder.path(), "slow.py", SLOW);
    let rows: String = (0..4).map(|i| format!("{{\"problem\": {i}, \"response\": \"slow\"}}\n")).collect();
    let rows = file(folder.path(), "rows.jsonl", &rows);
    for (number, signals) in
        [&[libc::SIGKILL][..], &[libc::SIGINT, libc::SIGINT], &[libc::SIGTERM]].into_iter().enumerate()
    {
        let pids = folder.path().join(format!("pids{number}"));
        std::fs::create_dir(&pids).unwrap();
        let grader = format!("python3 {} {} 1000", script.display(), pids.display());
        let mut command = spawned(&["verify", "command", "--timeout-s", "900", "--command", &grader]);
        let child = command.arg(&rows).spawn().unwrap();
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

#[test]
fn a_stop_while_a_verifier_works_saves_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let script = file(folder.path(), "slow.py", SLOW);
    let pids = folder.path().join("pids");
    std::fs::create_dir(&pids).unwrap();
    let data: String = (0..8).map(|i| format!("{{\"problem\": \"Take {i}.\"}}\n")).collect();
    let data = file(folder.path(), "data.jsonl", &data);
    let task = format!(
        "task={{ kind = \"command\", data = {data:?}, held_out_share = 0, verifier.command = {{ command = [\"python3\", {script:?}, {pids:?}, \"1000\"], timeout_s = 900 }} }}"
    );
    let model = format!("model={{ path = {:?} }}", model());
    let config = config(folder.path(), &[&task, &model, "rollout.max_new_tokens=4", "eval={ every = 0 }"]);
    let out = folder.path().join("run");
    let child = train(&config, &out).spawn().unwrap();
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
