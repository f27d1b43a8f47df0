//! Names of the Hugging Face hub in commands, with a server in this test that answers like the hub. The rules of downloads are
//! tested in their crate.

#[path = "../../../hub/tests/server/mod.rs"]
mod server;

use crate::support::{count, ended, ends, file, model, signal, small_run, spawned, tells, wait_until};
use assert_cmd::Command;
use server::{COMMIT, Fault, TestHub};
use std::sync::atomic::Ordering;

/// A hub with the small model and a data set.
fn hub() -> TestHub {
    let hub = TestHub::start().with_data();
    let files = std::fs::read_dir(model()).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let read = |path: std::path::PathBuf| {
        (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(&path).unwrap())
    };
    hub.has("models/Org/Tiny", files.map(read));
    hub
}

fn environment(hub: &TestHub) -> [(&'static str, String); 3] {
    let home = hub.home.path().display().to_string();
    [("HF_HOME", home), ("HF_ENDPOINT", hub.url()), ("HF_TOKEN", "secret".to_owned())]
}

/// A command that asks this hub.
fn on(hub: &TestHub, mut command: Command) -> Command {
    command.env_remove("HF_HUB_CACHE").envs(environment(hub));
    command
}

/// A command that may ask no hub.
fn offline(hub: &TestHub, command: Command) -> Command {
    let mut command = on(hub, command);
    command.env("HF_HUB_OFFLINE", "1");
    command
}

fn generate(hub: &TestHub) -> Command {
    on(hub, command!("generate --model Org/Tiny --max-tokens 2 --threads 1", ..["1 + 1"]))
}

#[test]
fn a_run_on_names_of_the_hub_resumes_without_it_at_the_same_commit() {
    let hub = hub();
    let folder = tempfile::tempdir().unwrap();
    let text = small_run(&[
        "task={ kind = \"math\", data = \"Org/sums\", held_out = \"Org/sums\" }",
        "model={ path = \"Org/Tiny\" }",
        "rollout={ prompts = 2, group_size = 2, max_new_tokens = 4 }",
    ]);
    let config = file(folder.path(), "run.toml", &text);
    let out = folder.path().join("run");
    let (_, said) = ends(0, on(&hub, command!("train", &config, "--out", &out, "--set steps=2")));
    assert!(said.contains("model.path: Org/Tiny at 0123456 ("), "{said}");
    assert!(said.contains("task.data: Org/sums, subset main, split train, at 0123456"), "{said}");
    assert!(said.contains("task.held_out: Org/sums, subset main, split test, at 0123456"), "{said}");
    assert!(!hub.state.leaked.load(Ordering::SeqCst), "the token was sent to another host");
    let written = std::fs::read_to_string(out.join("config.toml")).unwrap();
    assert_eq!(written.matches(&format!("/snapshots/{COMMIT}")).count(), 3, "{written}");
    let snapshot = hub.cached("models--Org--Tiny").join("snapshots").join(COMMIT);
    assert!(snapshot.join("config.json").is_symlink());
    let resume = |model: &str, steps: &str| {
        let path = format!("model.path={model}");
        command!("train", &config, "--out", &out, "--resume --accept-changes --set", &path, "--set", steps)
    };
    tells(2, on(&hub, resume("hf:Org/Tiny@v9", "steps=3")), "v9");
    // The branch main changes, and the hub can't be reached.
    for repository in ["models--Org--Tiny", "datasets--Org--sums"] {
        std::fs::write(hub.cached(repository).join("refs/main"), "f".repeat(40)).unwrap();
    }
    let before = hub.requests();
    ends(
        0,
        offline(&hub, command!("train", &config, "--out", &out, "--resume --accept-changes --set steps=3")),
    );
    // A revision is taken instead of the run's commit.
    tells(2, offline(&hub, resume("hf:Org/Tiny@main", "steps=4")), "not in the cache");
    ends(0, offline(&hub, resume(&format!("hf:Org/Tiny@{COMMIT}"), "steps=4")));
    assert_eq!(count(&out.join("metrics.jsonl")), 4);
    // The run's configuration repeats it.
    let (own, again) = (out.join("config.toml"), folder.path().join("again"));
    ends(0, on(&hub, command!("train", &own, "--out", &again, "--set steps=1")));
    assert_eq!(hub.requests(), before);
}

#[test]
fn evaluation_takes_a_model_and_a_split_by_name() {
    let hub = hub();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("eval");
    let eval = command!(
        "eval --model hf:Org/Tiny@main --task math -n 1 --max-tokens 2 --data hf:Org/sums/other@main:train --out",
        &out
    );
    tells(0, on(&hub, eval), "--data: Org/sums, subset other, split train, at 0123456");
    assert_eq!(count(&out.join("samples.jsonl")), 12);
}

#[test]
fn a_job_for_a_cluster_takes_only_the_tokenizer_of_a_model_by_name() {
    let hub = hub();
    let folder = tempfile::tempdir().unwrap();
    let text = small_run(&[
        "task={ kind = \"math\", data = \"Org/sums\", held_out = \"Org/sums\" }",
        "model={ path = \"Org/Tiny\" }",
        "rollout={ prompts = 8, group_size = 2, max_new_tokens = 4 }",
        "save={ every = 0 }",
    ]);
    let config = file(folder.path(), "run.toml", &text);
    let export = |trainer: &str, more: &str| {
        let out = folder.path().join(trainer);
        command!("export", trainer, &config, "--out", &out, "--model Org/Tiny --nodes 2 --gpus 8 --set", more)
    };
    tells(2, offline(&hub, export("verl", "steps=1")), "--set task.tokenizer=DIR");
    for trainer in ["verl", "trl", "skyrl"] {
        ends(0, on(&hub, export(trainer, "steps=1")));
        let job = folder.path().join(trainer);
        assert!(job.join("tokenizer/tokenizer.json").exists());
        let job: serde_json::Value =
            serde_json::from_slice(&std::fs::read(job.join("job.json")).unwrap()).unwrap();
        assert_eq!(job["model"], "Org/Tiny");
        std::fs::remove_dir_all(folder.path().join(trainer)).unwrap();
    }
    ends(0, offline(&hub, command!("data show", &config)));
    let snapshot = hub.cached("models--Org--Tiny").join("snapshots").join(COMMIT);
    assert!(snapshot.join("tokenizer.json").exists() && !snapshot.join("model.safetensors").exists());
    // Weights are loaded if they are needed.
    ends(0, generate(&hub));
    // Another tokenizer suffices, and so does a local folder of the job's model.
    let other = format!("model.path=Org/None --set task.tokenizer={}", model().display());
    ends(
        0,
        offline(
            &hub,
            command!(
                "export verl",
                &config,
                "--out",
                folder.path().join("other"),
                "--set",
                ..other.split(' ')
            ),
        ),
    );
    let local = command!(
        "export verl",
        &config,
        "--out",
        folder.path().join("local"),
        "--model",
        model(),
        "--set model.path=Org/None"
    );
    ends(0, offline(&hub, local));
}

#[test]
fn ctrl_c_keeps_what_is_loaded_and_says_so() {
    let hub = hub();
    hub.meets(&[Fault::Slow]);
    let args = ["score", "--model", "Org/Tiny", "none.jsonl"];
    let mut child = spawned(&args).envs(environment(&hub)).spawn().unwrap();
    wait_until("the weights", || {
        assert!(child.try_wait().unwrap().is_none(), "it ended before the download");
        let mut blobs = hub.cached("models--Org--Tiny/blobs").read_dir().into_iter().flatten().flatten();
        // The weights, by their sha256. The small files before them come immediately.
        let weights = |name: &str| name.strip_suffix(".incomplete").is_some_and(|hash| hash.len() == 64);
        blobs.any(|e| weights(&e.file_name().to_string_lossy()) && e.metadata().is_ok_and(|m| m.len() > 0))
    });
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_ne!(code, Some(0));
    assert!(said.contains("bytes are kept, and the next call goes on with them"), "{said}");
    ends(0, generate(&hub));
    assert!(!hub.state.ranges.lock().unwrap().is_empty());
}

#[test]
fn two_processes_load_a_file_once() {
    let hub = hub();
    hub.meets(&[Fault::Slow]);
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| ends(0, generate(&hub))));
        both.into_iter().for_each(|one| drop(one.join().unwrap()));
    });
    assert!(hub.state.ranges.lock().unwrap().is_empty());
}

#[test]
fn a_refusal_names_the_flag_and_a_download_that_fails_ends_with_one() {
    let hub = hub();
    let score = |name: &str| command!("score --model", name, "none.jsonl");
    for (command, wanted) in [
        (on(&hub, score("Org/nothing")), "--model: Org/nothing: the hub has no such repository"),
        (on(&hub, score("hf:Tiny")), "--model: expected hf:ORG/NAME"),
        (offline(&hub, score("Org/Tiny")), "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"),
        // A split written as a path.
        (
            on(&hub, command!("data show Org/sums/main/train")),
            "for the data set on the hub, write hf:Org/sums/main:train",
        ),
    ] {
        tells(2, command, wanted);
    }
    hub.meets(&[Fault::Wrong]);
    tells(1, on(&hub, score("Org/Tiny")), "damaged");
}

#[test]
fn a_local_path_wins_and_a_dry_run_knows_sizes_without_a_request() {
    let hub = hub();
    let folder = tempfile::tempdir().unwrap();
    let local = folder.path().join("Org/Tiny");
    std::fs::create_dir_all(local.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(model(), &local).unwrap();
    let mut command = generate(&hub);
    command.current_dir(folder.path());
    ends(0, command);
    let text =
        "steps = 1\n[task]\nkind = \"math\"\ndata = \"Org/sums\"\n[model]\npath = \"Qwen/Qwen3-0.6B\"\n";
    let config = file(folder.path(), "run.toml", text);
    tells(0, on(&hub, command!("train", &config, "--dry-run")), "596049920");
    assert_eq!(hub.requests(), 0);
}
