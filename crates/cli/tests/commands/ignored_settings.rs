//! Settings that would have no effect, or not the intended one, are refused or reported.

use crate::support::{self, done, ends_with, file, model, run, signal, small_run, spawned, wait_until};
use std::path::Path;

/// A folder with a small configuration of mazes; its path and that of the configuration.
struct Place {
    folder: tempfile::TempDir,
    config: String,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = file(folder.path(), "small.toml", &small_run(&[])).to_str().unwrap().to_owned();
        Self { folder, config }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn a_cache_without_room_for_a_completion_is_refused_before_there_is_a_run() {
    let place = Place::new();
    let out = place.path("run");
    for tokens in ["rollout.max_cached_tokens=10", "rollout.max_cached_tokens=40"] {
        for dry in [&["--dry-run"][..], &[]] {
            let line = [&["train", &place.config, "--out", &out, "--set", tokens], dry].concat();
            let said = ends_with(2, &line);
            assert!(said.contains("rollout.max_cached_tokens: expected at least"), "{said}");
        }
    }
    assert!(!Path::new(&out).exists());
    done(&["train", &place.config, "--out", &out, "--set", "rollout.max_cached_tokens=200", "--set=steps=1"]);
}

#[test]
fn a_cache_without_room_for_the_longest_prompt_of_a_mix_is_refused() {
    let place = Place::new();
    let rows: String =
        (0..20).map(|i| format!("{{\"problem\": \"Say {i}\", \"answer\": \"{i}\"}}\n")).collect();
    let data = file(place.folder.path(), "short.jsonl", &rows);
    // The part with the longer completions has the shorter prompts.
    let text = format!(
        "steps = 1\n[task]\nkind = \"mix\"\n[[task.parts]]\nkind = \"math\"\nname = \"short\"\ndata = {data:?}\n\
         [[task.parts]]\nkind = \"arithmetic\"\nfewest_operations = 30\nmost_operations = 30\ntrain = 30\nheld_out = 3\n\
         [model]\npath = {:?}\n[rollout]\nprompts = 2\ngroup_size = 2\nmax_new_tokens = 8\nmax_cached_tokens = 150\n\
         [eval]\nevery = 0\n[compute]\nthreads = 1\n",
        model()
    );
    let config = file(place.folder.path(), "mix.toml", &text);
    let said = ends_with(2, &["train", config.to_str().unwrap(), "--dry-run"]);
    assert!(said.contains("rollout.max_cached_tokens: expected at least"), "{said}");
}

#[test]
fn a_dry_run_refuses_an_evaluation_without_problems_as_the_run_does() {
    let place = Place::new();
    let line = ["train", &place.config, "--set=task.held_out=0", "--out", &place.path("run")];
    let said = ends_with(2, &line);
    assert_eq!(ends_with(2, &[&line[..], &["--dry-run"]].concat()), said);
}

#[test]
fn a_key_set_for_all_runs_and_by_the_grid_is_refused() {
    let place = Place::new();
    let sweep = ["sweep", &place.config, "--out", &place.path("sweep"), "--dry-run"];
    let twice = ["--set", "algorithm.focal_gamma=2", "--grid", "algorithm.focal_gamma=0,1"];
    let said = ends_with(2, &[&sweep[..], &twice].concat());
    assert!(said.contains("algorithm.focal_gamma is also set by --set"), "{said}");
    // The name of a kind replaces its table.
    for twice in [
        &["--set", "algorithm.loss.dual_clip=2", "--grid", "algorithm.loss=grpo,dapo"][..],
        &["--grid", "algorithm.loss.clip=1,2", "--grid", "algorithm.loss=grpo,dapo"],
        &["--grid", "update.lr=1,2", "--alternative", "update.lr=3"],
    ] {
        let said = ends_with(2, &[&sweep[..], twice].concat());
        assert!(said.contains("is also set"), "{said}");
    }
    done(&[&sweep[..], &["--set", "algorithm.loss=dapo", "--grid", "algorithm.loss.dual_clip=2,3"]].concat());
    let begins_alike = ["--set", "algorithm.loss=dapo", "--grid", "algorithm.loss_x=0,3"];
    let said = ends_with(2, &[&sweep[..], &begins_alike].concat());
    assert!(said.contains("unknown key `loss_x`"), "{said}");
    let other = ["--set", "algorithm.focal_gamma=0", "--grid", "seed=1"];
    let alternative = ["--alternative", "algorithm.focal_gamma=0.5"];
    let folders = done(&[&sweep[..], &other, &alternative].concat());
    assert!(folders.contains("seed-1_base") && folders.contains("seed-1_focal-gamma-0.5"), "{folders}");
}

#[test]
fn a_grid_of_lists_and_tables_makes_a_run_of_each() {
    let place = Place::new();
    let out = place.path("sweep");
    let grid = [
        "--grid",
        "eval.k=[1, 2],[1, 4]",
        "--grid",
        "algorithm.loss=grpo,{ kind = \"dapo\", clip = [0.1, 0.3] }",
    ];
    let sweep = ["sweep", &place.config, "--out", &out, "--set=steps=1", "--set=eval.every=1"];
    let folders = done(&[&sweep[..], &grid, &["--dry-run"]].concat());
    assert_eq!(folders.lines().count(), 4, "{folders}");
    assert_eq!(folders.lines().nth(3), Some(&*format!("{out}/k-1-4_loss-kind-dapo-clip-0.1-0.3")));
    done(&[&sweep[..], &["--grid", "eval.k=[1, 2],[1, 4]"]].concat());
    let written = std::fs::read_to_string(format!("{out}/k-1-4/config.toml")).unwrap();
    let written: toml::Table = written.parse().unwrap();
    assert_eq!(written["eval"]["k"], toml::Value::from(vec![1, 4]));
}

#[test]
fn a_resume_of_nothing_says_so_and_starts() {
    let place = Place::new();
    let out = place.path("run");
    let says = format!("nothing to resume in {out}: starting at step 0");
    for command in ["train", "sft"] {
        let more = ["--set", "sft={steps=1}", "--set=steps=1", "--resume"];
        let line = [&[command, &place.config, "--out", &out][..], &more].concat();
        assert!(ends_with(0, &line).contains(&says), "{command}");
        let again = ends_with(0, &line);
        assert!(!again.contains("nothing to resume"), "{command}: {again}");
        std::fs::remove_dir_all(&out).unwrap();
    }
    let sweep = ["sweep", &place.config, "--out", &out, "--set=steps=1", "--grid=seed=1", "--resume"];
    assert!(
        ends_with(0, &sweep).contains(&format!("nothing to resume in {out}: starting with the first run"))
    );
    assert!(!ends_with(0, &sweep).contains("nothing to resume"));
}

#[test]
fn a_dry_run_says_what_resume_and_restart_would_do() {
    let place = Place::new();
    for command in ["train", "sft"] {
        let out = place.path(command);
        let more = ["--set", "sft={steps=1}", "--out", &out];
        let line = [&[command, &place.config][..], &more].concat();
        done(&line);
        let changed = [&line[..], &["--set", "update.lr=0.5", "--resume"]].concat();
        let refused = ends_with(2, &changed);
        assert!(refused.contains("update.lr: 0.001 -> 0.5"), "{refused}");
        assert_eq!(ends_with(2, &[&changed[..], &["--dry-run"]].concat()), refused);
        ends_with(0, &[&changed[..], &["--accept-changes", "--dry-run"]].concat());
        ends_with(0, &[&line[..], &["--resume", "--dry-run"]].concat());
        let restart = ends_with(0, &[&line[..], &["--restart", "--dry-run"]].concat());
        let says = if command == "train" { "4 RL steps, 2 checkpoints" } else { "0 RL steps, 1 checkpoint," };
        assert!(restart.contains(&format!("--restart would delete the run in {out}: {says}")), "{restart}");
        assert!(Path::new(&out).join("config.toml").exists());
    }
}

#[test]
fn a_run_stopped_before_its_first_checkpoint_does_not_claim_one() {
    let place = Place::new();
    let out = place.path("run");
    let long = ["--set=eval.samples=1000000", "--set=task.held_out=64", "--set=task.size=9"];
    let child = spawned(&[&["train", &place.config, "--out", &out][..], &long].concat()).spawn().unwrap();
    wait_until("the evaluation", || Path::new(&out).join("evaluations").exists());
    signal(&child, libc::SIGINT);
    let (code, said) = support::ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("stopped on request before the first checkpoint. Continue with:"), "{said}");
    assert!(!said.contains("state saved"), "{said}");
}

#[test]
fn a_file_without_prompts_is_refused_in_the_words_of_generate() {
    let folder = tempfile::tempdir().unwrap();
    let rows = file(folder.path(), "wrong.jsonl", "{\"colour\": \"red\"}\n");
    let said = ends_with(2, &["generate", "--model", model().to_str().unwrap(), rows.to_str().unwrap()]);
    assert!(said.contains("error: a file of prompts is read like data of kind command: "), "{said}");
    let (_, said, code) = run(support::fgrpo().args(["score", "--model", "/none/such", "-"]));
    assert_eq!((code, said.matches("No such file").count()), (2, 1), "{said}");
    let mut nothing = support::fgrpo();
    nothing.args(["score", "--model", model().to_str().unwrap(), "-"]).write_stdin("\n");
    let (_, said, code) = run(&mut nothing);
    assert_eq!((code, said.contains("the file is empty")), (2, true), "{said}");
}
