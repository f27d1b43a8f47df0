//! Resumes: the files after a stop during sampling, and damaged checkpoints.

use crate::support::{
    assert_same_files, assert_same_run, count, ended, ends, file, lines, model, signal, small_run, spawned,
    sums_run, tells, timeless, wait_until,
};
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn a_stop_while_long_completions_grow_saves_at_once_and_resumes_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    // A vocabulary from which the end token is hardly ever drawn, so sampling takes seconds.
    let long = folder.path().join("long");
    let sizes =
        "--arch qwen3 --hidden-size 32 --layers 2 --heads 2 --kv-heads 1 --context 8192 --vocab-size 20000";
    ends(0, command!("init", ..sizes.split(' '), "--tokenizer", model(), "--out", &long));
    let rollout = "rollout={ prompts = 1, group_size = 2, max_new_tokens = 1200 }";
    let changes = ["steps=2", rollout, "save.every=1", "compute.threads=1", "log.rollout_share=1.0"];
    let config = sums_run(folder.path(), &long, &changes);
    let (undisturbed, stopped) = (folder.path().join("undisturbed"), folder.path().join("stopped"));
    ends(0, command!("train", &config, "--out", &undisturbed));
    let child = spawned(&["train"]).arg(&config).arg("--out").arg(&stopped).spawn().unwrap();
    wait_until("the first step", || stopped.join("checkpoints/step-000001").exists());
    // Seconds of sampling in the last step.
    let seconds = lines(&undisturbed.join("metrics.jsonl"))[1]["seconds"]["rollout"].as_f64().unwrap();
    let sampling = Duration::from_secs_f64(seconds);
    std::thread::sleep(sampling / 3);
    let asked = Instant::now();
    signal(&child, libc::SIGTERM);
    let (code, said) = ended(child);
    let most = Duration::from_secs(2).max(sampling / 4);
    assert!(asked.elapsed() < most, "took {:?} of {sampling:?}", asked.elapsed());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("interrupted after step 1"), "{said}");
    let resume = || command!("train", &config, "--resume --out", &stopped);
    ends(0, resume());
    assert_eq!(timeless(&stopped.join("metrics.jsonl")), timeless(&undisturbed.join("metrics.jsonl")));
    let sessions = lines(&stopped.join("sessions.jsonl"));
    assert_eq!(sessions.len(), 2, "one before the stop, one after");
    assert!(sessions.iter().all(|s| s["ended"].as_u64() >= s["started"].as_u64() && s["ended"].is_u64()));
    // A damaged record of sessions is refused before any work.
    file(&stopped, "sessions.jsonl", &format!("{{\"broken\": 1}}\n{}\n", sessions[0]));
    tells(2, resume(), "sessions.jsonl");
    let last =
        ["model.safetensors", "optimizer.safetensors"].map(|name| format!("checkpoints/step-000002/{name}"));
    assert_same_files(&stopped, &undisturbed, &["rollouts.jsonl", &last[0], &last[1]]);
}

#[test]
fn an_evaluation_that_fails_loses_no_step_and_a_resume_repeats_it() {
    let folder = tempfile::tempdir().unwrap();
    let changes = ["steps=200", "eval.every=200", "save.every=0"];
    let config = file(folder.path(), "maze.toml", &small_run(&changes));
    let (undisturbed, failed) = (folder.path().join("undisturbed"), folder.path().join("failed"));
    ends(0, command!("train", &config, "--out", &undisturbed));
    let child = spawned(&["train"]).arg(&config).arg("--out").arg(&failed).spawn().unwrap();
    wait_until("a step", || count(&failed.join("metrics.jsonl")) > 0);
    // The last evaluation can't make its folder.
    let blocked = file(&failed, "evaluations/step-000200", "");
    let (code, said) = ended(child);
    assert!(code != Some(0) && said.contains("step-000200"), "{said}");
    assert_eq!(count(&failed.join("metrics.jsonl")), 200);
    std::fs::remove_file(blocked).unwrap();
    let (_, said) = ends(0, command!("train", &config, "--resume --out", &failed));
    assert!(said.contains("resumed after step 200"), "{said}");
    assert_same_run(&undisturbed, &failed, &["metrics.jsonl", "eval.jsonl"], 200);
}

#[test]
fn a_checkpoint_without_its_optimizer_or_with_a_damaged_one_is_never_gone_on_from() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "maze.toml", &small_run(&["steps=8", "eval.every=0"]));
    let run = folder.path().join("run");
    ends(0, command!("train", &config, "--out", &run));
    let resume = |code: i32| ends(code, command!("train", &config, "--resume --out", &run)).1;
    let bytes = |folder: &Path, name: &str| std::fs::read(folder.join(name)).unwrap();
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
    for (name, damaged) in [
        ("optimizer.safetensors", &state[..state.len() - 4]),
        ("optimizer.safetensors", &header),
        ("optimizer.safetensors", b"\x02\0\0\0\0\0\0\0[]"),
        ("optimizer.safetensors", b""),
        ("model.safetensors", &whole[..whole.len() / 2]),
        ("trainer_state.json", b"{"),
    ] {
        let path = checkpoint(8).join(name);
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, damaged).unwrap();
        let said = resume(2);
        assert!(said.contains("step-000008 can't be used; move it away to resume from step 6"), "{said}");
        assert!(said.contains(&format!("step-000008/{name}: ")), "{said}");
        std::fs::write(&path, good).unwrap();
    }

    // Without it, a resume from step 6 gives the same bits.
    std::fs::rename(checkpoint(8), kept.join("8")).unwrap();
    resume(0);
    assert!(bytes(&checkpoint(8), "model.safetensors") == whole, "resumed to other bits");
    assert!(bytes(&checkpoint(8), "optimizer.safetensors") == state, "resumed to another optimizer");

    // Older checkpoints contain only the policy. No run resumes from them, least of all with new moments.
    for step in [6, 8] {
        std::fs::rename(checkpoint(step), kept.join(format!("{step} again"))).unwrap();
    }
    let before = std::fs::read(run.join("metrics.jsonl")).unwrap();
    let said = resume(2);
    for words in ["step-000004: ", "no optimizer.safetensors", "newest 2 checkpoints", "with model.path="] {
        assert!(said.contains(words), "wanted {words:?} in: {said}");
    }
    assert_eq!(std::fs::read(run.join("metrics.jsonl")).unwrap(), before, "lines were dropped");
}
