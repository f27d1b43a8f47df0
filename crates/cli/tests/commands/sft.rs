//! `fgrpo sft` and the supervised stage of `fgrpo train`: kills, interruptions, epochs, data without solutions.

use crate::support::{
    assert_same_files, count, ended, ends, fgrpo, file, signal, spawned, tells, timeless, wait_until,
};
use predicates::prelude::*;
use std::path::Path;

const CONFIG: &str = r#"
[task]
kind = "maze"
size = 7
train = 50
held_out = 6
[model.init]
hidden_size = 16
intermediate_size = 32
num_hidden_layers = 2
num_attention_heads = 2
num_key_value_heads = 1
[sft]
steps = 60
batch_size = 8
lr = 5e-3
warmup_steps = 3
schedule = "cosine"
eval_every = 7
save_every = 4
[rollout]
prompts = 6
group_size = 4
max_new_tokens = 8
[update]
lr = 1e-3
[eval]
every = 0
[compute]
threads = 2
"#;

fn start(command: &str, config: &Path, more: &[&str], out: &Path) -> std::process::Child {
    spawned(&[command]).arg(config).args(more).arg("--out").arg(out).spawn().unwrap()
}

/// Kills the command each time `sft.jsonl` has this many lines. Returns the checkpoints that existed then.
fn kill_at(counts: &[usize], command: &str, config: &Path, more: &[&str], out: &Path) {
    for &wanted in counts {
        let mut child = start(command, config, more, out);
        wait_until("a line", || {
            count(&out.join("sft.jsonl")) >= wanted || child.try_wait().unwrap().is_some()
        });
        let _ = child.kill();
        child.wait().unwrap();
    }
}

#[test]
fn killed_and_resumed_sft_equals_the_uninterrupted_one_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", CONFIG);
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    fgrpo()
        .arg("sft")
        .arg(&config)
        .arg("--out")
        .arg(&whole)
        .assert()
        .success()
        .stdout(
            predicate::str::contains("sft: 60 steps, 9.60 epochs").and(predicate::str::contains("held-out")),
        )
        .stderr(predicate::str::contains("50 demonstrations, 6 held out"));
    for name in
        ["config.toml", "report.html", "log.txt", "events.out.tfevents.sft", "checkpoints/step-000060"]
    {
        assert!(whole.join(name).exists(), "{name} is missing");
    }
    kill_at(&[1, 13, 31, 50], "sft", &config, &["--resume"], &killed);
    assert!(count(&killed.join("sft.jsonl")) >= 31, "the kills came too early to tell anything");
    ends(0, command!("sft", &config, "--resume --out", &killed));
    assert_eq!(timeless(&whole.join("sft.jsonl")), timeless(&killed.join("sft.jsonl")));
    let last = "checkpoints/step-000060";
    assert_same_files(
        &whole.join(last),
        &killed.join(last),
        &["model.safetensors", "optimizer.safetensors", "trainer_state.json"],
    );
    let held_out: Vec<u64> = timeless(&whole.join("sft.jsonl"))
        .iter()
        .filter(|l| l["held_out_loss"].is_number())
        .map(|l| l["step"].as_u64().unwrap())
        .collect();
    assert_eq!(held_out, [7, 14, 21, 28, 35, 42, 49, 56, 60]);
}

#[test]
fn a_run_killed_in_its_supervised_stage_goes_on_from_there_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", CONFIG);
    // Each with a separate cache, and with a KL penalty, whose reference is the result of the same stage.
    let (whole, killed) = (folder.path().join("a/whole"), folder.path().join("b/killed"));
    let more = ["--set", "steps=2", "--set", "algorithm.kl_coef=0.001", "--resume"];
    ends(0, command!("train", &config, ..more, "--out", &whole));
    kill_at(&[9, 22, 41], "train", &config, &more, &killed);
    // On a machine that is so fast that the stage ended before the last kill, there is nothing to resume.
    let under_way = killed.join("sft").exists();
    let resumed = fgrpo().arg("train").arg(&config).args(more).arg("--out").arg(&killed).assert().success();
    let said = String::from_utf8_lossy(&resumed.get_output().stderr).into_owned();
    assert!(!under_way || said.contains("sft: resumed after step"), "{said}");
    assert_eq!(timeless(&whole.join("sft.jsonl")), timeless(&killed.join("sft.jsonl")));
    let last = "checkpoints/step-000002";
    assert_same_files(&whole.join(last), &killed.join(last), &["model.safetensors", "optimizer.safetensors"]);
    assert!(!killed.join("sft").exists(), "the checkpoints of a stage that is done are of no use");
}

#[test]
fn a_stage_that_goes_on_with_other_settings_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", CONFIG);
    let (whole, changed) = (folder.path().join("a/whole"), folder.path().join("b/changed"));
    let more = ["--set", "steps=1", "--set", "sft.steps=120", "--set", "sft.eval_every=0", "--resume"];
    kill_at(&[30], "train", &config, &more, &changed);
    assert!(changed.join("sft").exists(), "the stage was over before the kill");
    let more = [&more[..], &["--accept-changes", "--set", "sft.lr=1e-3"]].concat();
    let train = |out: &Path| {
        let done = fgrpo().arg("train").arg(&config).args(&more).arg("--out").arg(out).assert().success();
        String::from_utf8_lossy(&done.get_output().stderr).into_owned()
    };
    let said = train(&changed);
    assert!(said.contains("sft: starting again") && !said.contains("sft: resumed"), "{said}");
    train(&whole);
    assert_eq!(timeless(&whole.join("sft.jsonl")), timeless(&changed.join("sft.jsonl")));
    assert_same_files(&whole, &changed, &["checkpoints/step-000001/model.safetensors"]);
}

#[test]
fn held_out_losses_are_those_of_the_runs_own_held_out_demonstrations() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |from: u32| -> String {
        let row =
            |i| format!("{{\"problem\": \"Say {i}\", \"answer\": \"{i}\", \"solution\": \"It is {i}\"}}\n");
        (from..from + 8).map(row).collect()
    };
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (data, held_out) = (write("data.jsonl", &rows(0)), write("held-out.jsonl", &rows(20)));
    let text = format!(
        "steps = 1\n[task]\nkind = \"math\"\ndata = {data:?}\nheld_out = {held_out:?}\n[model]\npath = {:?}\n\
         [sft]\nsteps = 2\nbatch_size = 2\neval_every = 1\n[rollout]\nprompts = 2\ngroup_size = 2\nmax_new_tokens = 4\n[eval]\nevery = 0\n",
        crate::support::model()
    );
    let config = write("c.toml", &text);
    let train = |out: &str| {
        let out = folder.path().join(out);
        let done = fgrpo().arg("train").arg(&config).arg("--out").arg(&out).assert().success();
        let said = String::from_utf8_lossy(&done.get_output().stderr).into_owned();
        (said.contains("sft: taken from"), timeless(&out.join("sft.jsonl"))[1]["held_out_loss"].clone())
    };
    let (first, again) = (train("first"), train("again"));
    assert_eq!((first.0, again.0), (false, true));
    write("held-out.jsonl", &rows(500));
    let other = train("other");
    assert!(!other.0 && other.1 != first.1, "{other:?}");
}

#[test]
fn an_interrupted_stage_saves_at_once_and_the_result_is_a_model_for_train() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", CONFIG);
    let out = folder.path().join("run");
    let more = ["--set", "sft.steps=1000000", "--set", "sft.save_every=0"];
    let child = start("sft", &config, &more, &out);
    wait_until("five steps", || count(&out.join("sft.jsonl")) >= 5);
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1));
    assert!(said.contains("Continue with:") && said.contains("--resume"), "{said}");
    let logged = count(&out.join("sft.jsonl"));
    let checkpoint = out.join(format!("checkpoints/step-{logged:06}"));
    assert!(checkpoint.exists(), "no checkpoint after step {logged}");

    // The saved result is a model folder, from which RL continues without demonstrations.
    let rl = folder.path().join("rl.toml");
    let text = CONFIG.replace("[sft]\nsteps = 60", "[ignored]\nx = 60");
    let head = text.split("[model.init]").next().unwrap();
    std::fs::write(
        &rl,
        format!(
            "steps = 1\n{head}[model]\npath = {:?}\n[rollout]\nprompts = 4\ngroup_size = 2\n[eval]\nevery = 0\n",
            checkpoint.display().to_string()
        ),
    )
    .unwrap();
    ends(0, command!("train", &rl, "--out", folder.path().join("rl")));

    // A folder contains one kind of run.
    tells(
        2,
        command!("train", &config, ..more, "--set steps=1 --resume --accept-changes --out", &out),
        "a checkpoint of demonstrations (fgrpo sft)",
    );
}

#[test]
fn configurations_that_cannot_be_fitted_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "small.toml", CONFIG);
    let without = folder.path().join("without.toml");
    let i = CONFIG.find("[sft]").unwrap();
    let j = CONFIG.find("[rollout]").unwrap();
    std::fs::write(&without, format!("{}{}", &CONFIG[..i], &CONFIG[j..])).unwrap();
    let refused = |command: &str, file: &Path, set: &[&str], says: &str| {
        let mut call = fgrpo();
        call.arg(command).arg(file).arg("--out").arg(folder.path().join("never"));
        for s in set {
            call.args(["--set", s]);
        }
        call.assert().code(2).stderr(predicate::str::contains(says));
    };
    refused("sft", &without, &[], "the table [sft] is missing");
    refused("sft", &config, &["sft.epochs=0"], "sft.epochs: ");
    refused("sft", &config, &["sft.steps=0"], "sft.steps: expected at least 1, found 0");
    refused("train", &config, &[], "steps: requires at least 1 RL step");
}

#[test]
fn rows_without_solutions_are_counted_and_a_file_without_any_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    ends(
        0,
        command!(
            "sft arithmetic-quick --set sft.steps=2 --set task.train=40 --set task.held_out=8 --set model.init.hidden_size=16 --set model.init.num_hidden_layers=1 --out",
            &base
        ),
    );
    let row = |i: u32, solved: bool| {
        let solution = if solved { format!(r#", "solution": "{i} + 1 = {}""#, i + 1) } else { String::new() };
        format!(r#"{{"problem": "Take {i}. Add 1.", "answer": "{}"{solution}}}"#, i + 1)
    };
    let data = folder.path().join("data.jsonl");
    let write = |rows: Vec<String>| std::fs::write(&data, rows.join("\n")).unwrap();
    let toml = folder.path().join("math.toml");
    let model = base.join("checkpoints/step-000002");
    std::fs::write(
        &toml,
        format!(
            "[task]\nkind = \"math\"\ndata = {data:?}\nheld_out_share = 0\n[model]\npath = {model:?}\n[sft]\nepochs = 1.5\nbatch_size = 4\n"
        ),
    )
    .unwrap();
    write((0..20).map(|i| row(i, i % 4 != 0)).collect());
    let out = folder.path().join("run");
    // 15 demonstrations, 1.5 passes of 4 at a time: 5.6 steps.
    fgrpo()
        .arg("sft")
        .arg(&toml)
        .arg("--out")
        .arg(&out)
        .assert()
        .success()
        .stderr(predicate::str::contains("15 demonstrations, 0 held out; 5 training problems have none"))
        .stdout(predicate::str::contains("sft: 6 steps"));
    write((0..20).map(|i| row(i, false)).collect());
    tells(
        2,
        command!("sft", &toml, "--out", folder.path().join("never")),
        "none of the 20 training problems has a demonstration",
    );
}
