//! Mistakes with models and data, through the command line: exit code 2, and a message that names file or field, the expected
//! value and the one found.

use crate::support::{self, copy, ends, file, lines, model, small_run, sums_run, tells};
use serde_json::Value;
use std::path::Path;

fn row(i: u32) -> String {
    let answer = i + 1;
    format!(r#"{{"problem": "Take {i}. Add 1.", "answer": "{answer}", "solution": "\\boxed{{{answer}}}"}}"#)
        + "\n"
}

#[test]
fn a_damaged_model_folder_is_refused_by_every_command_that_opens_one() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    copy(model(), &broken);
    let settings = broken.join("config.json");
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(settings, text.replace("\"silu\"", "\"gelu\"")).unwrap();
    let sft = "sft={ steps = 1, batch_size = 2 }";
    let config = sums_run(folder.path(), &broken, &["steps=1", sft]);
    let data = folder.path().join("sums.jsonl");
    let tokens = file(folder.path(), "tokens.jsonl", "{\"tokens\": [5, 6, 7]}\n");
    let never = folder.path().join("never");
    for command in [
        command!("score", tokens, "--model", &broken),
        command!("train", &config, "--resume --out", &never),
        command!("sft", &config, "--resume --out", &never),
        command!("eval --task math -n 1 --max-tokens 4 --model", &broken, "--data", data, "--out", &never),
    ] {
        let (_, said) = ends(2, command);
        for part in ["broken/config.json", "hidden_act", "gelu", "silu"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
}

/// Overwrites a tensor of a safetensors file in f32.
fn fill(file: &Path, tensor: &str, value: f32) {
    let mut bytes = std::fs::read(file).unwrap();
    let n = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&bytes[8..8 + n]).unwrap();
    let ends: Vec<usize> = serde_json::from_value(header[tensor]["data_offsets"].clone()).unwrap();
    let part = &mut bytes[8 + n + ends[0]..8 + n + ends[1]];
    part.chunks_exact_mut(4).for_each(|b| b.copy_from_slice(&value.to_le_bytes()));
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn numbers_that_grow_too_large_are_named_with_their_layer_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    copy(model(), &broken);
    fill(&broken.join("model.safetensors"), "model.layers.0.mlp.gate_proj.weight", 3e38);
    let score = |setting: &str, code: i32| {
        let mut command = command!("score - --model", &broken);
        command.env("FGRPO_CHECK_LAYERS", setting).write_stdin("{\"tokens\": [1, 2, 3]}\n");
        ends(code, command).1
    };
    for (setting, code, words) in [
        ("off", 1, "lm_head|FGRPO_CHECK_LAYERS=on"),
        (
            "on",
            1,
            "forward pass, layer 0: output of model.layers.0.mlp.gate_proj, row 0 of 2, column 0|all weights are finite",
        ),
        ("1", 2, "FGRPO_CHECK_LAYERS: expected on, off, or no setting, found 1"),
    ] {
        let said = score(setting, code);
        assert!(words.split('|').all(|word| said.contains(word)), "{said}");
    }
}

#[test]
fn a_learning_rate_that_destroys_the_policy_stops_with_the_state_saved() {
    let folder = tempfile::tempdir().unwrap();
    let sft = "sft={ steps = 400, batch_size = 2, lr = 0.99, max_grad_norm = 1e30, betas = [0.0, 0.0], weight_decay = 1e38 }";
    let config = sums_run(folder.path(), model(), &[sft]);
    let out = folder.path().join("run");
    tells(1, command!("sft", config, "--out", &out), "finite");
    let logged = support::count(&out.join("sft.jsonl"));
    assert!(
        logged == 0 || out.join(format!("checkpoints/step-{logged:06}")).exists(),
        "{logged} steps, none saved"
    );
}

#[test]
fn data_that_cannot_be_used_make_no_run_folder_and_a_vocabulary_must_hold_the_tasks_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let (small, out) = (folder.path().join("small"), folder.path().join("run"));
    ends(0, command!("init --arch qwen3 --vocab-size 64 --hidden-size 16 --layers 1 --out", &small));
    let tokenizer = format!("task.tokenizer={:?}", model());
    let config = sums_run(folder.path(), &small, &[&tokenizer]);
    let says = "its vocabulary of 64 tokens is smaller than the task's, which has 320";
    tells(2, command!("train", &config, "--out", folder.path().join("vocabulary")), says);
    let data = file(folder.path(), "sums.jsonl", "{\"question_text\": \"2+2?\", \"answer\": \"4\"}\n");
    let (_, said) = ends(2, command!("train", &config, "--out", &out));
    assert!(said.contains(data.to_str().unwrap()) && said.contains("question_text"), "{said}");
    assert!(!out.exists(), "a run folder for data that can't be read");
}

#[test]
fn a_dry_run_explains_every_rejected_row_and_writes_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut rows: String = (0..20).map(row).collect();
    rows += &format!("{{\"problem\": \"{}\", \"answer\": \"1\"}}\n", "Add 1. ".repeat(300));
    rows.extend((0..5).map(|i| format!("{{\"problem\": \"No answer {i}?\", \"answer\": \" \"}}\n")));
    rows.extend(["1", "2"].map(|answer| format!("{{\"problem\": \"Twice?\", \"answer\": \"{answer}\"}}\n")));
    let dry = |code: i32, model: &Path, more: &[&str]| {
        let config = sums_run(folder.path(), model, &["task.max_prompt_tokens=200"]);
        file(folder.path(), "sums.jsonl", &rows);
        ends(code, command!("train --dry-run", config, ..more)).1
    };
    let said = dry(0, model(), &[]);
    let data = at("sums.jsonl");
    let problems = data.display().to_string();
    for wanted in [
        format!("{problems}: 8 of 28 rows rejected\n       5  empty answer\n          row 22: answer: \" \"\n"),
        "          row 24: answer: \" \"\n          and 2 more\n".to_owned(),
        "       2  copies with conflicting answers\n          row 27: answer \"1\"; row 28 has answer \"2\"\n".to_owned(),
        "       1  prompt longer than 200 tokens\n          row 21: ".to_owned(),
        "--rejected FILE".to_owned(),
    ] {
        assert!(said.contains(&wanted), "wanted {wanted:?} in: {said}");
    }
    let all = at("rejected.jsonl");
    let said = dry(0, model(), &["--rejected", all.to_str().unwrap()]);
    assert!(said.contains("8 rejected rows: "), "{said}");
    let lines = lines(&all);
    let mut numbers: Vec<u64> = lines.iter().map(|line| line["row"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [21, 22, 23, 24, 25, 26, 27, 28]);
    let long = lines.iter().find(|line| line["row"] == 21).unwrap();
    assert_eq!(
        (&long["file"], &long["reason"]),
        (&Value::from(problems.as_str()), &"prompt longer than 200 tokens".into())
    );
    let found = long["found"].as_str().unwrap();
    assert!(
        found.contains(" tokens: \"Add 1. Add 1.") && found.ends_with("...") && found.len() < 120,
        "{found}"
    );
    // Without the model, everything except the lengths is known.
    let said = dry(0, &at("no-model-yet"), &[]);
    assert!(said.contains("7 of 28 rows rejected") && said.contains("without the tokenizer"), "{said}");
    // The data file isn't overwritten.
    let said = dry(2, model(), &["--rejected", &problems]);
    assert!(said.contains("--rejected: "), "{said}");
    assert_eq!(support::count(&data), 28);
}

#[test]
fn a_split_of_a_folder_is_there_for_a_dry_run() {
    let folder = tempfile::tempdir().unwrap();
    file(folder.path(), "train-00000-of-00001.jsonl", &(0..20).map(row).collect::<String>());
    let data = format!("task.data={:?}", folder.path().join("train"));
    let config = sums_run(folder.path(), model(), &[&data]);
    let (_, said) = ends(0, command!("train --dry-run", config));
    assert!(said.contains("20 rows read") && !said.contains("not there yet"), "{said}");
}

#[test]
fn a_key_found_wrong_only_with_the_problems_at_hand_is_blamed_on_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "maze.toml", &small_run(&["task.held_out=64", "sft.steps=1"]));
    let says = "maze.toml: task.held_out: 64 is too many: there are so few mazes of size 5";
    let out = folder.path().join("out");
    for line in ["train --dry-run", "train --resume", "sft --resume", "sweep --grid seed=1,2"] {
        tells(2, command!(..line.split(' '), &config, "--out", &out), says);
    }
}

#[test]
fn mazes_that_repeat_are_evaluated_once_and_few_training_mazes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let of_size = |size: &str| {
        let size = format!("task.size={size}");
        let set = ["steps=1", &size, "task.train=2000", "task.held_out=128", "eval.samples=2"];
        file(folder.path(), "maze.toml", &small_run(&set))
    };
    // A 7x7 grid has 192 mazes.
    let run = folder.path().join("run");
    let (printed, said) = ends(0, command!("train", of_size("7"), "--set eval.every=1 --out", &run));
    assert!(printed.contains("held-out, 72 problems x 2 samples"), "{printed}");
    assert!(said.contains("task.held_out: only 72 of the 128 mazes"), "{said}");
    assert!(said.contains("task.train: only 112 of the first 2000 problems"), "{said}");
    let (_, said) = ends(0, command!("train --dry-run", of_size("9")));
    assert!(!said.contains("different"), "{said}");

    let lines = ["5", "6", "5"].map(|i| format!("{{\"size\": 9, \"seed\": 0, \"index\": {i}}}\n"));
    let data = file(folder.path(), "mazes.jsonl", &lines.concat());
    let out = folder.path().join("eval");
    let eval = command!("eval --task maze -n 1 --model", &run, "--data", data, "--out", out);
    tells(2, eval, "line 3: an earlier line has the same maze");
}

#[test]
fn a_new_model_with_a_tokenizer_has_its_vocabulary_and_its_end_token() {
    let folder = tempfile::tempdir().unwrap();
    let (tokenizer, out) = (model(), folder.path().join("new"));
    let init = || command!("init --arch qwen3 --layers 1 --tokenizer", tokenizer, "--out", &out);
    let mut small = init();
    small.args(["--vocab-size", "300"]);
    tells(2, small, "--vocab-size: expected at least 320");
    ends(0, init());
    let config = |folder: &Path| -> Value {
        serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
    };
    let (made, given) = (config(&out), config(tokenizer));
    assert_eq!((&made["vocab_size"], &made["num_hidden_layers"]), (&320.into(), &1.into()));
    assert!(!made["eos_token_id"].is_null() && made["eos_token_id"] == given["eos_token_id"], "{made}");
}

#[test]
fn impossible_sizes_of_a_new_model_are_refused_by_flag() {
    let folder = tempfile::tempdir().unwrap();
    for (flags, says) in [
        ("--arch llama --heads 1", "--kv-heads: "),
        ("--arch llama --heads 6", "--heads: "),
        ("--arch llama --layers 0", "--layers: "),
        ("--arch llama --head-dim 5", "--head-dim: "),
        ("--arch qwen3 --heads 0", "--heads: "),
        ("--arch qwen3 --kv-heads 0", "--kv-heads: "),
        ("--arch qwen2 --hidden-size 18446744073709551612", "--hidden-size: "),
        ("--arch qwen2 --hidden-size 2000000 --head-dim 64", "GB"),
        ("--arch qwen2 --std nan", "found NaN"),
        ("--arch qwen2 --rope-theta inf", "--rope-theta: "),
        ("--arch llama --llama3-scaling 0.5", "--llama3-scaling: "),
    ] {
        tells(2, command!("init", ..flags.split(' '), "--out", folder.path().join("new")), says);
    }
}

#[test]
fn sequences_longer_than_the_models_positions_are_refused_before_they_are_scored() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let tokens = file(root, "tokens.jsonl", &format!("{{\"tokens\": {:?}}}\n", vec![5; 40_000]));
    tells(2, command!("score --model", model(), tokens), "tokens.jsonl line 1: expected at most");
    let data = file(root, "sums.jsonl", "{\"problem\": \"2+2?\", \"answer\": \"4\"}\n");
    let text = format!("{{\"problem\": 0, \"text\": \"{}\\\\boxed{{4}}\"}}\n", "x ".repeat(20_000));
    let (made, out) = (file(root, "made.jsonl", &text), root.join("eval"));
    ends(0, command!("eval --samples", made, "--data", data, "--task math -n 1 --out", &out));
    let trained = format!("x={}", model().display());
    let (_, said) = ends(2, command!("nll", &out, "--base", model(), "--model", trained));
    assert!(said.contains("tokens with its prompt") && said.contains("positions"), "{said}");
}
