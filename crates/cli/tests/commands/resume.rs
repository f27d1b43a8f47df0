//! Resumes: the files after a stop during sampling, and damaged checkpoints.

use crate::support::{
    ended, ends_with, fgrpo, file, model, signal, small_run, spawned, timeless, wait_until,
};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

fn bytes(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{}: {e}", folder.join(name).display()))
}

#[test]
fn a_stop_while_long_completions_grow_saves_at_once_and_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    // A vocabulary from which the end token is hardly ever drawn, so sampling takes seconds.
    let long = folder.path().join("long");
    let mut init = fgrpo();
    init.args([
        "init",
        "--arch",
        "qwen3",
        "--hidden-size",
        "32",
        "--layers",
        "2",
        "--heads",
        "2",
        "--kv-heads",
        "1",
    ]);
    init.args(["--context", "8192", "--vocab-size", "20000", "--tokenizer"]).arg(model());
    init.arg("--out").arg(&long).assert().success();
    let rows: String =
        (0..8).map(|i| format!("{{\"problem\": \"Take {i}.\", \"answer\": \"{i}\"}}\n")).collect();
    let data = file(folder.path(), "data.jsonl", &rows);
    let text = format!(
        "steps = 2\n[task]\nkind = \"math\"\ndata = {data:?}\nheld_out_share = 0\n[model]\npath = {long:?}\n\
         [rollout]\nprompts = 1\ngroup_size = 2\nmax_new_tokens = 1200\n\
         [update]\nlr = 1e-3\n[eval]\nevery = 0\n[save]\nevery = 1\n[compute]\nthreads = 1\n[log]\nrollout_share = 1.0\n"
    );
    let config = file(folder.path(), "long.toml", &text);
    let (undisturbed, stopped) = (folder.path().join("undisturbed"), folder.path().join("stopped"));
    ends_with(0, &["train", config.to_str().unwrap(), "--out", undisturbed.to_str().unwrap()]);
    let line = ["train", config.to_str().unwrap(), "--out", stopped.to_str().unwrap()];
    let child = spawned(&line).spawn().unwrap();
    wait_until("the first step", || stopped.join("checkpoints/step-000001").exists());
    let sampling = Duration::from_secs_f64(seconds_of_sampling(&undisturbed));
    std::thread::sleep(sampling / 3);
    let asked = Instant::now();
    signal(&child, libc::SIGTERM);
    let (code, said) = ended(child);
    let most = Duration::from_secs(2).max(sampling / 4);
    assert!(asked.elapsed() < most, "took {:?} of {sampling:?}", asked.elapsed());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("interrupted after step 1"), "{said}");
    ends_with(0, &[&line[..], &["--resume"]].concat());
    assert_eq!(timeless(&stopped.join("metrics.jsonl")), timeless(&undisturbed.join("metrics.jsonl")));
    let sessions = String::from_utf8(bytes(&stopped, "sessions.jsonl")).unwrap();
    let sessions: Vec<Value> = sessions.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(sessions.len(), 2, "one before the stop, one after");
    assert!(sessions.iter().all(|s| s["ended"].as_u64() >= s["started"].as_u64() && s["ended"].is_u64()));
    // A damaged record of sessions is refused before any work.
    let whole = bytes(&stopped, "sessions.jsonl");
    std::fs::write(stopped.join("sessions.jsonl"), [b"{\"broken\": 1}\n", &whole[..]].concat()).unwrap();
    let said = ends_with(2, &[&line[..], &["--resume"]].concat());
    assert!(said.contains("sessions.jsonl"), "{said}");
    for name in [
        "rollouts.jsonl",
        "checkpoints/step-000002/model.safetensors",
        "checkpoints/step-000002/optimizer.safetensors",
    ] {
        assert!(bytes(&stopped, name) == bytes(&undisturbed, name), "{name} differs");
    }
}

/// Seconds of sampling in the last step.
fn seconds_of_sampling(run: &Path) -> f64 {
    let text = String::from_utf8(bytes(run, "metrics.jsonl")).unwrap();
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    last["seconds"]["rollout"].as_f64().unwrap()
}

#[test]
fn a_checkpoint_without_its_optimizer_or_with_a_damaged_one_is_never_gone_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "maze.toml", &small_run(&["steps=8", "eval.every=0"]));
    let run = folder.path().join("run");
    let line = ["train", config.to_str().unwrap(), "--out", run.to_str().unwrap()];
    ends_with(0, &line);
    let resume = [&line[..], &["--resume"]].concat();
    let checkpoint = |step: u32| run.join(format!("checkpoints/step-{step:06}"));
    let whole = bytes(&checkpoint(8), "model.safetensors");
    let state = bytes(&checkpoint(8), "optimizer.safetensors");
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    let mode = |name: &str| std::fs::metadata(checkpoint(8).join(name)).unwrap().permissions();
    assert_eq!(
        mode("optimizer.safetensors"),
        mode("model.safetensors"),
        "who may read a checkpoint may resume it"
    );
    let has_optimizer = |step| checkpoint(step).join("optimizer.safetensors").exists();
    assert_eq!([2, 4, 6, 8].map(has_optimizer), [false, false, true, true]);

    // The newest is damaged. The message says so, and names the one from which to resume.
    let header = [&2u64.to_le_bytes()[..], b"{}"].concat();
    let other = b"\x02\0\0\0\0\0\0\0[]".to_vec();
    for damaged in [&state[..state.len() - 4], &header, &other, b""] {
        std::fs::write(checkpoint(8).join("optimizer.safetensors"), damaged).unwrap();
        let said = ends_with(2, &resume);
        assert!(said.contains("step-000008 can't be used; move it away to resume from step 6"), "{said}");
        assert!(said.contains("step-000008/optimizer.safetensors: "), "{said}");
    }
    std::fs::write(checkpoint(8).join("optimizer.safetensors"), &state).unwrap();
    let damaged = bytes(&checkpoint(8), "trainer_state.json");
    std::fs::write(checkpoint(8).join("trainer_state.json"), "{").unwrap();
    let said = ends_with(2, &resume);
    assert!(said.contains("resume from step 6") && said.contains("trainer_state.json"), "{said}");
    std::fs::write(checkpoint(8).join("trainer_state.json"), damaged).unwrap();

    // Without it, a resume from step 6 gives the same bits.
    std::fs::rename(checkpoint(8), kept.join("8")).unwrap();
    ends_with(0, &resume);
    assert!(bytes(&checkpoint(8), "model.safetensors") == whole, "resumed to other bits");
    assert!(bytes(&checkpoint(8), "optimizer.safetensors") == state, "resumed to another optimizer");

    // Older checkpoints contain only the policy. No run resumes from them, least of all with new moments.
    for step in [6, 8] {
        std::fs::rename(checkpoint(step), kept.join(format!("{step} again"))).unwrap();
    }
    let before = std::fs::read(run.join("metrics.jsonl")).unwrap();
    let said = ends_with(2, &resume);
    for words in ["step-000004: ", "no optimizer.safetensors", "newest 2 checkpoints", "with model.path="] {
        assert!(said.contains(words), "wanted {words:?} in: {said}");
    }
    assert_eq!(std::fs::read(run.join("metrics.jsonl")).unwrap(), before, "lines were dropped");
}
