//! `fgrpo sft` and the supervised stage of `fgrpo train`: kills, interruptions, epochs, data without solutions.

use crate::support::{
    assert_same_files, assert_same_run, copy, count, ended, ends, file, kill_at, lines, model, signal,
    small_run, spawned, sums_run, tells, timeless, wait_until,
};
use fgrpo_train::language::Language;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A configuration with a supervised stage of a second.
fn config(folder: &Path) -> PathBuf {
    let sft = "sft={ steps = 60, batch_size = 8, lr = 5e-3, warmup_steps = 3, schedule = \"cosine\", eval_every = 7, save_every = 4 }";
    let changes = ["task.size=7", "task.train=50", "task.held_out=6", sft, "eval={ every = 0 }"];
    file(folder, "small.toml", &small_run(&changes))
}

/// A command that can get signals.
fn start(command: &str, config: &Path, more: &[&str], out: &Path) -> Command {
    let mut start = spawned(&[command]);
    start.arg(config).args(more).arg("--out").arg(out);
    start
}

#[test]
fn killed_and_resumed_sft_equals_the_uninterrupted_one_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    let (printed, said) = ends(0, command!("sft", &config, "--out", &whole));
    assert!(printed.contains("sft: 60 steps, 9.60 epochs") && printed.contains("held-out"), "{printed}");
    assert!(said.contains("50 demonstrations, 6 held out"), "{said}");
    for name in
        ["config.toml", "report.html", "log.txt", "events.out.tfevents.sft", "checkpoints/step-000060"]
    {
        assert!(whole.join(name).exists(), "{name} is missing");
    }
    let lines = killed.join("sft.jsonl");
    kill_at(|| start("sft", &config, &["--resume"], &killed), &lines, &[1, 13, 31, 50]);
    assert!(count(&lines) >= 31, "the kills came too early to tell anything");
    ends(0, command!("sft", &config, "--resume --out", &killed));
    assert_same_run(&whole, &killed, &["sft.jsonl"], 60);
    let lines = timeless(&lines);
    let held_out =
        lines.iter().filter(|l| l["held_out_loss"].is_number()).map(|l| l["step"].as_u64().unwrap());
    assert_eq!(held_out.collect::<Vec<_>>(), [7, 14, 21, 28, 35, 42, 49, 56, 60]);
}

#[test]
fn a_run_killed_in_its_supervised_stage_goes_on_from_there_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    // Each with a separate cache, and with a KL penalty, whose reference is the result of the same stage.
    let (whole, killed) = (folder.path().join("a/whole"), folder.path().join("b/killed"));
    let more = ["--set", "steps=2", "--set", "algorithm.kl_coef=0.001", "--resume"];
    ends(0, command!("train", &config, ..more, "--out", &whole));
    kill_at(|| start("train", &config, &more, &killed), &killed.join("sft.jsonl"), &[9, 22, 41]);
    // On a machine that is so fast that the stage ended before the last kill, there is nothing to resume.
    let under_way = killed.join("sft").exists();
    let (_, said) = ends(0, command!("train", &config, ..more, "--out", &killed));
    assert!(!under_way || said.contains("sft: resumed after step"), "{said}");
    assert_same_run(&whole, &killed, &["sft.jsonl"], 2);
    assert!(!killed.join("sft").exists(), "the checkpoints of a stage that is done are of no use");
}

#[test]
fn a_stage_that_goes_on_with_other_settings_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let (whole, changed) = (folder.path().join("a/whole"), folder.path().join("b/changed"));
    let more = ["--set", "steps=1", "--set", "sft.steps=120", "--set", "sft.eval_every=0", "--resume"];
    kill_at(|| start("train", &config, &more, &changed), &changed.join("sft.jsonl"), &[30]);
    assert!(changed.join("sft").exists(), "the stage was over before the kill");
    let train = |out: &Path| {
        let other = ["--accept-changes", "--set", "sft.lr=1e-3"];
        ends(0, command!("train", &config, ..more, ..other, "--out", out)).1
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
    let rows = |name: &str, from: u32| {
        let row =
            |i| format!("{{\"problem\": \"Say {i}\", \"answer\": \"{i}\", \"solution\": \"It is {i}\"}}\n");
        file(folder.path(), name, &(from..from + 8).map(row).collect::<String>())
    };
    let held_out = format!("task.held_out={:?}", rows("held-out.jsonl", 20));
    let sft = "sft={ steps = 2, batch_size = 2, eval_every = 1 }";
    let config = sums_run(folder.path(), model(), &["steps=1", &held_out, "task.held_out_share=0.1", sft]);
    let train = |out: &str| {
        let out = folder.path().join(out);
        let (_, said) = ends(0, command!("train", &config, "--out", &out));
        (said.contains("sft: taken from"), timeless(&out.join("sft.jsonl"))[1]["held_out_loss"].clone())
    };
    let (first, again) = (train("first"), train("again"));
    assert_eq!((first.0, again.0), (false, true));
    rows("held-out.jsonl", 500);
    let other = train("other");
    assert!(!other.0 && other.1 != first.1, "{other:?}");
}

#[test]
fn an_interrupted_stage_saves_at_once_and_the_result_is_a_model_for_train() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let out = folder.path().join("run");
    let more = ["--set", "sft.steps=1000000", "--set", "sft.save_every=0"];
    let child = start("sft", &config, &more, &out).spawn().unwrap();
    wait_until("five steps", || count(&out.join("sft.jsonl")) >= 5);
    signal(&child, libc::SIGINT);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1));
    assert!(said.contains("Continue with:") && said.contains("--resume"), "{said}");
    let logged = count(&out.join("sft.jsonl"));
    let checkpoint = out.join(format!("checkpoints/step-{logged:06}"));
    assert!(checkpoint.exists(), "no checkpoint after step {logged}");
    // The saved result is a model folder, from which RL continues without demonstrations.
    let model = format!("model={{ path = {checkpoint:?} }}");
    let rl = file(folder.path(), "rl.toml", &small_run(&["steps=1", "task.size=7", &model]));
    ends(0, command!("train", &rl, "--out", folder.path().join("rl")));
    // A folder contains one kind of run.
    tells(
        2,
        command!("train", &config, ..more, "--set steps=1 --resume --accept-changes --out", &out),
        "a checkpoint of demonstrations (fgrpo sft)",
    );
}

#[test]
fn rows_without_solutions_are_counted_and_a_file_without_any_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let never = folder.path().join("never");
    let config = sums_run(folder.path(), model(), &["sft={ epochs = 1.5, batch_size = 4 }"]);
    let row = |i: u32, solved: bool| {
        let solution = if solved { format!(r#", "solution": "{i} + 1 = {}""#, i + 1) } else { String::new() };
        format!(r#"{{"problem": "Take {i}. Add 1.", "answer": "{}"{solution}}}"#, i + 1) + "\n"
    };
    let write = |solved: fn(u32) -> bool| {
        file(folder.path(), "sums.jsonl", &(0..20).map(|i| row(i, solved(i))).collect::<String>())
    };
    write(|i| i % 4 != 0);
    // 15 demonstrations, 1.5 passes of 4 at a time: 5.6 steps, rounded up.
    let (printed, said) = ends(0, command!("sft", &config, "--out", folder.path().join("run")));
    assert!(said.contains("15 demonstrations, 0 held out; 6 steps of 4 (1.60 epochs)"), "{said}");
    assert!(said.contains("training problems left out: 5 without a solution\n"), "{said}");
    assert!(printed.contains("sft: 6 steps"), "{printed}");
    write(|_| false);
    tells(
        2,
        command!("sft", &config, "--out", &never),
        "none of the 20 training problems has a demonstration",
    );
    // Neither steps nor a stage.
    let text = std::fs::read_to_string(&config).unwrap().replace("steps = 4\n", "");
    let stage = file(folder.path(), "stage.toml", &text);
    tells(2, command!("train", stage, "--out", &never), "steps: requires at least 1 RL step");
    let plain = sums_run(folder.path(), model(), &[]);
    tells(2, command!("sft", &plain, "--out", &never), "the table [sft] is missing");
}

#[test]
fn demonstrations_that_are_too_long_or_no_text_are_left_out_and_counted_with_their_row() {
    let folder = tempfile::tempdir().unwrap();
    // More tokens than the small model has positions.
    let long = "12 ".repeat(20_000);
    let rows = |name: &str, from: u32, odd: &[(u32, serde_json::Value)]| {
        let row = |i| {
            let solution =
                odd.iter().find(|(at, _)| *at == i).map_or("It is so.".into(), |(_, odd)| odd.clone());
            let row = serde_json::json!({ "problem": format!("Say {}", from + i), "answer": "1", "solution": solution });
            format!("{row}\n")
        };
        file(folder.path(), name, &(0..12).map(row).collect::<String>())
    };
    let list = serde_json::json!(["a"]);
    let held_out = format!("task.held_out={:?}", rows("held-out.jsonl", 20, &[(1, long.clone().into())]));
    let sft = "sft={ steps = 3, batch_size = 4, eval_every = 2 }";
    let config = sums_run(folder.path(), model(), &[sft]);
    rows("sums.jsonl", 0, &[(3, long.clone().into()), (5, list.clone()), (6, "".into()), (9, list)]);
    let out = folder.path().join("run");
    let more = ["--set", &held_out];
    let reasons = "1 without a solution, 2 with a solution that isn't text (row 6 and others), 1 longer than the model's ";
    let (_, said) = ends(0, command!("sft", &config, ..more, "--out", &out));
    assert!(said.contains("8 demonstrations, 11 held out; 3 steps of 4 (1.50 epochs)"), "{said}");
    assert!(
        said.contains(&format!("training problems left out: {reasons}")) && said.contains("(row 4)"),
        "{said}"
    );
    assert!(said.contains("held-out problems left out: 1 longer than") && said.contains("(row 2)"), "{said}");
    let (_, said) = ends(0, command!("sft", &config, ..more, "--dry-run --out", &out));
    assert!(said.contains(reasons) && said.contains("3 steps of 4"), "{said}");
    let all: Vec<(u32, serde_json::Value)> = (0..12).map(|i| (i, long.clone().into())).collect();
    rows("sums.jsonl", 0, &all);
    let never = command!("sft", &config, "--out", folder.path().join("never"));
    tells(2, never, "none of the 12 training problems has a demonstration that can be used (12 longer than");
}

#[test]
fn a_policy_trained_on_demonstrations_ends_its_answers_as_its_template_ends_a_turn() {
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    copy(model(), &base);
    // As Qwen2.5's base models, whose template ends a turn with a token that isn't among their end tokens.
    let tokenizer = Language::read(&base, &[]).unwrap();
    let [text_end, turn_end] =
        ["<|endoftext|>", "<|im_end|>"].map(|token| tokenizer.encode(token).unwrap()[0]);
    for name in ["config.json", "generation_config.json", "tokenizer_config.json"] {
        let text = std::fs::read_to_string(base.join(name)).unwrap();
        let mut fields: serde_json::Value = serde_json::from_str(&text).unwrap();
        let (key, end) = match name {
            "tokenizer_config.json" => ("eos_token", "<|endoftext|>".into()),
            _ => ("eos_token_id", text_end.into()),
        };
        fields[key] = end;
        file(&base, name, &fields.to_string());
    }
    assert_eq!(Language::read(&base, &[]).unwrap().stop_tokens(), [text_end]);
    let config = sums_run(folder.path(), &base, &["steps=1"]);
    let sft = ["--set", "sft={ steps = 1, batch_size = 8 }"];
    let ends_of = |checkpoint: &Path| Language::read(checkpoint, &[]).unwrap().stop_tokens().to_vec();
    let out = |name: &str| folder.path().join(name);
    ends(0, command!("sft", &config, ..sft, "--out", out("sft")));
    assert_eq!(ends_of(&out("sft/checkpoints/step-000001")), [turn_end, text_end]);
    ends(0, command!("train", &config, ..sft, "--out", out("both")));
    assert_eq!(ends_of(&out("both/checkpoints/step-000001")), [turn_end, text_end]);
    // Without demonstrations, the model's files decide.
    ends(0, command!("train", &config, "--out", out("rl")));
    assert_eq!(ends_of(&out("rl/checkpoints/step-000001")), [text_end]);
    assert_same_files(&base, &out("rl/checkpoints/step-000001"), &["generation_config.json"]);
}

#[test]
fn a_resume_after_a_failed_evaluation_repeats_only_the_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path());
    let (whole, failed) = (folder.path().join("whole"), folder.path().join("failed"));
    let more = ["--set", "sft.steps=21", "--set", "sft.save_every=7"];
    ends(0, command!("sft", &config, ..more, "--out", &whole));
    // What an error in the evaluation after step 14 leaves: the state and the line of the step, without its loss.
    copy(&whole, &failed);
    std::fs::remove_dir_all(failed.join("checkpoints/step-000021")).unwrap();
    let mut left = lines(&failed.join("sft.jsonl"));
    left.truncate(14);
    left[13].as_object_mut().unwrap().remove("held_out_loss").unwrap();
    file(&failed, "sft.jsonl", &left.iter().map(|line| format!("{line}\n")).collect::<String>());
    ends(0, command!("sft", &config, ..more, "--resume --out", &failed));
    assert_same_run(&whole, &failed, &["sft.jsonl"], 21);
}
