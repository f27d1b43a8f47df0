//! Settings that would have no effect, or not the intended one, are refused or reported.

use crate::support::{
    ended, ends, file, finished, model, run, signal, small_run, spawned, tells, wait_until,
};
use std::path::PathBuf;

/// A folder with a small configuration of mazes; its path and that of the configuration.
struct Place {
    folder: tempfile::TempDir,
    config: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = file(folder.path(), "small.toml", &small_run(&[]));
        Self { folder, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

#[test]
fn a_cache_without_room_for_a_completion_is_refused_before_there_is_a_run() {
    let place = Place::new();
    let out = place.path("run");
    let train = |more: &str| command!("train", &place.config, "--out", &out, ..more.split(' '));
    for tokens in ["10", "40"] {
        for dry in ["", " --dry-run"] {
            let says = "rollout.max_cached_tokens: expected at least";
            tells(2, train(&format!("--set rollout.max_cached_tokens={tokens}{dry}")), says);
        }
    }
    assert!(!out.exists());
    ends(0, train("--set rollout.max_cached_tokens=200 --set steps=1"));
}

#[test]
fn a_dry_run_refuses_an_evaluation_without_problems_as_the_run_does() {
    let place = Place::new();
    let refused = |more: &[&str]| {
        let out = place.path("run");
        ends(2, command!("train", &place.config, "--set task.held_out=0 --out", out, ..more)).1
    };
    assert_eq!(refused(&["--dry-run"]), refused(&[]));
}

#[test]
fn a_dry_run_and_a_run_report_a_focal_weight_on_another_estimator() {
    let place = Place::new();
    for dry in ["", " --dry-run"] {
        let set =
            format!("--set algorithm.focal_gamma=0.5 --set algorithm.advantage=rloo --set steps=1{dry}");
        let said = ends(0, command!("train", &place.config, "--out", place.path("run"), ..set.split(' '))).1;
        assert!(
            said.contains("note: algorithm.focal_gamma = 0.5 also multiplies the advantages of RLOO"),
            "{said}"
        );
    }
}

#[test]
fn a_key_set_for_all_runs_and_by_the_grid_is_refused() {
    let place = Place::new();
    let sweep = |flags: &str| {
        command!("sweep", &place.config, "--dry-run --out", place.path("sweep"), ..flags.split(' '))
    };
    // The name of a kind replaces its table.
    for (flags, says) in [
        (
            "--set algorithm.focal_gamma=2 --grid algorithm.focal_gamma=0,1",
            "algorithm.focal_gamma is also set by --set",
        ),
        ("--set algorithm.loss.dual_clip=2 --grid algorithm.loss=grpo,dapo", "is also set"),
        ("--grid algorithm.loss.clip=1,2 --grid algorithm.loss=grpo,dapo", "is also set"),
        ("--grid update.lr=1,2 --alternative update.lr=3", "is also set"),
        ("--set algorithm.loss=dapo --grid algorithm.loss_x=0,3", "unknown key `loss_x`"),
    ] {
        tells(2, sweep(flags), says);
    }
    ends(0, sweep("--set algorithm.loss=dapo --grid algorithm.loss.dual_clip=2,3"));
    let other = "--set algorithm.focal_gamma=0 --grid seed=1 --alternative algorithm.focal_gamma=0.5";
    let (folders, _) = ends(0, sweep(other));
    assert!(folders.contains("seed-1_base") && folders.contains("seed-1_focal-gamma-0.5"), "{folders}");
}

#[test]
fn a_grid_of_lists_and_tables_makes_a_run_of_each() {
    let place = Place::new();
    let out = place.path("sweep");
    let sweep = |more: &[&str]| {
        let k = ["--grid", "eval.k=[1, 2],[1, 4]"];
        command!("sweep", &place.config, "--out", &out, "--set steps=1 --set eval.every=1", ..k, ..more)
    };
    let loss = "algorithm.loss=grpo,{ kind = \"dapo\", clip = [0.1, 0.3] }";
    let (folders, _) = ends(0, sweep(&["--grid", loss, "--dry-run"]));
    assert_eq!(folders.lines().count(), 4, "{folders}");
    let last = format!("{}/k-1-4_loss-kind-dapo-clip-0.1-0.3", out.display());
    assert_eq!(folders.lines().nth(3), Some(&*last));
    ends(0, sweep(&[]));
    let written = std::fs::read_to_string(out.join("k-1-4/config.toml")).unwrap();
    let written: toml::Table = written.parse().unwrap();
    assert_eq!(written["eval"]["k"], toml::Value::from(vec![1, 4]));
}

#[test]
fn a_resume_of_nothing_says_so_and_starts() {
    let place = Place::new();
    for (command, starts) in [
        ("train", "starting at step 0"),
        ("sft", "starting at step 0"),
        ("sweep --grid seed=1", "starting with the first run"),
    ] {
        let out = place.path(&command[..3]);
        let set = ["--set", "sft={steps=1}", "--set=steps=1", "--resume"];
        let again = || ends(0, command!(..command.split(' '), &place.config, "--out", &out, ..set)).1;
        let says = format!("nothing to resume in {}: {starts}", out.display());
        let said = again();
        assert!(said.contains(&says), "{command}: {said}");
        let said = again();
        assert!(!said.contains("nothing to resume"), "{command}: {said}");
    }
}

#[test]
fn a_dry_run_says_what_resume_and_restart_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let (config, trained) = finished(folder.path());
    let demonstrations = folder.path().join("sft");
    ends(0, command!("sft", &config, "--set sft.steps=1 --out", &demonstrations));
    for (name, out, says) in [
        ("train", &trained, "4 RL steps, 2 checkpoints"),
        ("sft", &demonstrations, "0 RL steps, 1 checkpoint,"),
    ] {
        let again = |more: &str| command!(name, &config, "--out", out, ..more.split(' '));
        let sft = if name == "sft" { "--set sft.steps=1 " } else { "" };
        let changed = format!("{sft}--resume --set update.lr=0.5");
        let (_, refused) = ends(2, again(&changed));
        assert!(refused.contains("update.lr: 0.001 -> 0.5"), "{refused}");
        assert_eq!(ends(2, again(&format!("{changed} --dry-run"))).1, refused);
        ends(0, again(&format!("{changed} --accept-changes --dry-run")));
        ends(0, again(&format!("{sft}--resume --dry-run")));
        let says = format!("--restart would delete the run in {}: {says}", out.display());
        tells(0, again(&format!("{sft}--restart --dry-run")), says);
        assert!(out.join("config.toml").exists());
    }
}

#[test]
fn a_run_stopped_before_its_first_checkpoint_does_not_claim_one() {
    let place = Place::new();
    let out = place.path("run");
    let long = ["--set=eval.samples=1000000", "--set=task.held_out=64", "--set=task.size=9"];
    let mut train = spawned(&["train"]);
    let child = train.arg(&place.config).args(long).arg("--out").arg(&out).spawn().unwrap();
    wait_until("the evaluation", || out.join("evaluations").exists());
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stopped on request before the first checkpoint. Continue with:"), "{said}");
    assert!(!said.contains("state saved"), "{said}");
}

#[test]
fn a_file_without_prompts_is_refused_in_the_words_of_generate() {
    let folder = tempfile::tempdir().unwrap();
    let rows = file(folder.path(), "wrong.jsonl", "{\"colour\": \"red\"}\n");
    let says = "error: a file of prompts is read like data of kind command: ";
    tells(2, command!("generate --model", model(), rows), says);
    let (_, said, code) = run(command!("score --model /none/such -"));
    assert_eq!((code, said.matches("No such file").count()), (2, 1), "{said}");
    let mut nothing = command!("score --model", model(), "-");
    nothing.write_stdin("\n");
    tells(2, nothing, "the file is empty");
}
