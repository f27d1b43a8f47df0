//! Mistakes with models and data, through the command line: exit code 2, and a message that names file or field, the expected
//! value and the one found.

use crate::support::{self, ends, fgrpo, model, tells};
use assert_cmd::Command;
use predicates::prelude::*;
use serde_json::Value;
use std::path::{Path, PathBuf};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

fn problems(folder: &Path, rows: &[String]) -> PathBuf {
    let path = folder.join("problems.jsonl");
    std::fs::write(&path, rows.join("\n")).unwrap();
    path
}

fn row(i: u32) -> String {
    format!(r#"{{"problem": "Take {i}. Add 1.", "answer": "{}", "solution": "\\boxed{{{}}}"}}"#, i + 1, i + 1)
}

fn config(folder: &Path, model: &Path, data: &Path, task: &str) -> PathBuf {
    let path = folder.join("math.toml");
    std::fs::write(
        &path,
        format!(
            "steps = 1\n[task]\nkind = \"math\"\ndata = {data:?}\nheld_out_share = 0.2\n{task}\n[model]\npath = {model:?}\n\
             [sft]\nsteps = 1\nbatch_size = 2\n[rollout]\nprompts = 2\ngroup_size = 2\nmax_new_tokens = 4\n[eval]\nevery = 0\n"
        ),
    )
    .unwrap();
    path
}

fn edit_config(folder: &Path, edit: impl Fn(&mut Value)) {
    let path = folder.join("config.json");
    let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    edit(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
}

type Damage = fn(&Path);

const DAMAGED: [(&str, Damage, &[&str]); 7] = [
    (
        "an empty folder",
        |m| {
            std::fs::remove_dir_all(m).unwrap();
            std::fs::create_dir(m).unwrap();
        },
        &["config.json"],
    ),
    ("no folder", |m| std::fs::remove_dir_all(m).unwrap(), &["broken"]),
    (
        "an unknown architecture",
        |m| edit_config(m, |c| c["architectures"] = serde_json::json!(["MambaForCausalLM"])),
        &["architectures", "MambaForCausalLM", "Qwen3ForCausalLM"],
    ),
    (
        "an unsupported field",
        |m| edit_config(m, |c| c["hidden_act"] = "gelu".into()),
        &["config.json", "hidden_act", "gelu", "silu"],
    ),
    (
        "sizes other than the weights'",
        |m| edit_config(m, |c| c["intermediate_size"] = 48.into()),
        &["mlp.", "[32, 16]", "[48, 16]"],
    ),
    (
        "a truncated weights file",
        |m| {
            let file = m.join("model.safetensors");
            let bytes = std::fs::read(&file).unwrap();
            std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
        },
        &["model.safetensors"],
    ),
    (
        "weights that are no safetensors",
        |m| std::fs::write(m.join("model.safetensors"), "<!DOCTYPE html>").unwrap(),
        &["model.safetensors"],
    ),
];

#[test]
fn damaged_model_folders_are_refused_by_every_command_that_opens_one() {
    let folder = tempfile::tempdir().unwrap();
    let good = model();
    let data = problems(folder.path(), &(0..20).map(row).collect::<Vec<_>>());
    let broken = folder.path().join("broken");
    // The tokenizer comes from the valid folder, so that only the weights are wrong.
    let config = config(folder.path(), &broken, &data, &format!("tokenizer = {good:?}"));
    let sequences = folder.path().join("tokens.jsonl");
    std::fs::write(&sequences, "{\"tokens\": [5, 6, 7]}\n").unwrap();
    for (k, (what, damage, says)) in DAMAGED.into_iter().enumerate() {
        let _ = std::fs::remove_dir_all(&broken);
        copy(good, &broken);
        damage(&broken);
        let (a, b) = (folder.path().join("never-a"), folder.path().join("never-b"));
        let mut commands: Vec<Command> = vec![fgrpo()];
        commands[0].arg("score").arg("--model").arg(&broken).arg(&sequences);
        // All commands open a model by the same function, so one of these tests is enough.
        if k == 3 {
            for name in ["train", "sft"] {
                let mut command = fgrpo();
                command.arg(name).arg(&config).args(["--resume", "--out"]).arg(&a);
                commands.push(command);
            }
            let mut eval = fgrpo();
            eval.arg("eval").arg("--model").arg(&broken).arg("--data").arg(&data);
            eval.args(["--task", "math", "-n", "1", "--max-tokens", "4", "--out"]).arg(&b);
            commands.push(eval);
        }
        for command in commands {
            let (_, said, code) = support::run(command);
            assert_eq!(code, 2, "{what}: {said}");
            assert!(says.iter().all(|text| said.contains(text)), "{what}, {says:?}: {said}");
            assert!(said.contains("broken"), "{what} names no file: {said}");
        }
    }
}

#[test]
fn weights_that_are_not_numbers_end_the_work_and_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("broken");
    copy(model(), &broken);
    let file = broken.join("model.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let n = bytes.len();
    bytes[n - 400..].chunks_exact_mut(4).for_each(|b| b.copy_from_slice(&f32::NAN.to_le_bytes()));
    std::fs::write(&file, bytes).unwrap();
    let data = problems(folder.path(), &(0..20).map(row).collect::<Vec<_>>());
    let config = config(folder.path(), &broken, &data, "");
    for command in ["train", "sft"] {
        fgrpo()
            .arg(command)
            .arg(&config)
            .arg("--out")
            .arg(folder.path().join(command))
            .assert()
            .failure()
            .stderr(predicate::str::contains("finite"));
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
        let output = fgrpo()
            .args(["score", "-", "--model"])
            .arg(&broken)
            .env("FGRPO_CHECK_LAYERS", setting)
            .write_stdin("{\"tokens\": [1, 2, 3]}\n")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        said
    };
    let plain = score("off", 1);
    assert!(plain.contains("lm_head") && plain.contains("FGRPO_CHECK_LAYERS=on"), "{plain}");
    let checked = score("on", 1);
    let wanted = "forward pass, layer 0: output of model.layers.0.mlp.gate_proj, row 0 of 2, column 0";
    assert!(checked.contains(wanted) && checked.contains("all weights are finite"), "{checked}");
    let refused = score("1", 2);
    assert!(refused.contains("FGRPO_CHECK_LAYERS: expected on, off, or no setting, found 1"), "{refused}");
}

#[test]
fn a_learning_rate_that_destroys_the_policy_stops_with_the_state_saved() {
    let folder = tempfile::tempdir().unwrap();
    let good = model();
    let data = problems(folder.path(), &(0..20).map(row).collect::<Vec<_>>());
    let config = config(folder.path(), good, &data, "");
    let out = folder.path().join("run");
    let run = fgrpo()
        .arg("sft")
        .arg(&config)
        .args(["--set", "sft.steps=400", "--set", "sft.lr=0.99", "--set", "sft.max_grad_norm=1e30"])
        .args(["--set", "sft.betas=[0.0, 0.0]", "--set", "sft.weight_decay=1e38", "--out"])
        .arg(&out)
        .assert()
        .code(1);
    let said = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(said.contains("finite"), "{said}");
    let logged = std::fs::read_to_string(out.join("sft.jsonl")).unwrap().lines().count();
    assert!(
        logged == 0 || out.join(format!("checkpoints/step-{logged:06}")).exists(),
        "{logged} steps, none saved"
    );
}

#[test]
fn data_and_tokenizers_that_cannot_be_used_are_refused_by_file_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let good = &folder.path().join("good");
    copy(model(), good);
    let refused = |rows: &[String], task: &str, says: &[&str]| {
        let data = problems(folder.path(), rows);
        let config = config(folder.path(), good, &data, task);
        let out = folder.path().join("never");
        let output = fgrpo().arg("train").arg(&config).arg("--out").arg(&out).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        for text in says {
            assert!(said.contains(text), "wanted {text:?} in: {said}");
        }
        assert!(!out.exists(), "a run folder for data that can't be read");
    };
    let of = |text: &str| vec![text.to_owned()];
    refused(&of(r#"{"question_text": "2+2?", "answer": "4"}"#), "", &["problems.jsonl", "question_text"]);
    refused(&of(r#"{"problem": "2+2?"}"#), "", &["problems.jsonl", "answer"]);
    refused(&of(r#"{"problem": "2+2?", "answer": ""}"#), "", &["problems.jsonl", "answer"]);
    refused(&of("not json"), "", &["problems.jsonl"]);
    refused(&[], "", &["problems.jsonl"]);
    refused(
        &of(&row(1)),
        "",
        &["problems.jsonl", "all 1 problems are held out with task.held_out_share = 0.2"],
    );
    refused(&of(&row(1)), "max_prompt_tokens = 2", &["longer than 2 tokens", "max_prompt_tokens"]);
    refused(&of(&row(1)), "columns = { answer = \"final\" }", &["problems.jsonl", "final"]);
    refused(&of(&row(1)), "stop = [\"\"]", &["task.stop: "]);
    refused(
        &of(&row(1)),
        &format!("held_out = {:?}", folder.path().join("problems.jsonl")),
        &["all of its problems are also in task.held_out", "a file of other problems"],
    );

    // A model without a tokenizer, and a tokenizer without a template.
    let rows = of(&row(1));
    for (file, says) in [("tokenizer.json", "tokenizer.json"), ("chat_template.jinja", "chat template")] {
        let kept = std::fs::read(good.join(file)).unwrap();
        std::fs::remove_file(good.join(file)).unwrap();
        refused(&rows, "", &[good.to_str().unwrap(), says]);
        std::fs::write(good.join(file), kept).unwrap();
    }

    // Problems of another kind, and no model that has a tokenizer.
    let path = config(folder.path(), good, &problems(folder.path(), &rows), "");
    let text = std::fs::read_to_string(&path).unwrap();
    let sizes = &MAZE[MAZE.find("hidden_size").unwrap()..MAZE.find("[rollout]").unwrap()];
    for (from, to, says) in [
        ("kind = \"math\"", "kind = \"synlogic\"".to_owned(), "task.data"),
        (
            &*format!("[model]\npath = {good:?}\n"),
            format!("[model.init]\n{sizes}"),
            "task.tokenizer: this key is missing",
        ),
    ] {
        std::fs::write(&path, text.replace(from, &to)).unwrap();
        tells(2, command!("train", &path, "--dry-run"), says);
    }

    // A vocabulary too small for the tokenizer's tokens.
    let small = folder.path().join("small");
    ends(0, command!("init --arch qwen3 --vocab-size 64 --hidden-size 16 --layers 1 --out", &small));
    let whole = model();
    let data = problems(folder.path(), &(0..20).map(row).collect::<Vec<_>>());
    let config = config(folder.path(), &small, &data, &format!("tokenizer = {whole:?}"));
    tells(
        2,
        command!("train", &config, "--out", folder.path().join("vocabulary")),
        "its vocabulary of 64 tokens is smaller than the task's, which has 320",
    );
}

#[test]
fn rows_without_an_answer_and_prompts_too_long_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let good = model();
    let mut rows: Vec<String> = (0..20).map(row).collect();
    rows.push(r#"{"problem": "2+2?", "answer": " "}"#.into());
    rows.push(format!(r#"{{"problem": "{}", "answer": "1"}}"#, "Add 1. ".repeat(300)));
    let data = problems(folder.path(), &rows);
    let config = config(folder.path(), good, &data, "max_prompt_tokens = 200");
    fgrpo().arg("train").arg(&config).arg("--out").arg(folder.path().join("run")).assert().success().stderr(
        predicate::str::contains("answer").and(predicate::str::contains("prompt longer than 200 tokens")),
    );
}

#[test]
fn a_dry_run_explains_every_rejected_row_and_writes_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut rows: Vec<String> = (0..20).map(row).collect();
    rows.push(format!(r#"{{"problem": "{}", "answer": "1"}}"#, "Add 1. ".repeat(300)));
    rows.extend((0..5).map(|i| format!(r#"{{"problem": "No answer {i}?", "answer": " "}}"#)));
    rows.push(r#"{"problem": "Twice?", "answer": "1"}"#.to_owned());
    rows.push(r#"{"problem": "Twice?", "answer": "2"}"#.to_owned());
    let data = problems(folder.path(), &rows);
    let dry = |model: &Path, more: &[&str]| {
        let config = config(folder.path(), model, &data, "max_prompt_tokens = 200");
        let output = fgrpo().arg("train").arg(&config).arg("--dry-run").args(more).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) = dry(model(), &[]);
    assert_eq!(code, Some(0), "{said}");
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
    let (code, said) = dry(model(), &["--rejected", all.to_str().unwrap()]);
    assert!(code == Some(0) && said.contains("8 rejected rows: "), "{said}");
    let lines: Vec<Value> = std::fs::read_to_string(&all)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
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
    let (code, said) = dry(&at("no-model-yet"), &[]);
    assert!(
        code == Some(0) && said.contains("7 of 28 rows rejected") && said.contains("without the tokenizer"),
        "{said}"
    );
    // The data file isn't overwritten.
    let (code, said) = dry(model(), &["--rejected", &problems]);
    assert!(code == Some(2) && said.contains("--rejected: "), "{said}");
    assert_eq!(std::fs::read_to_string(&data).unwrap().lines().count(), 28);
}

#[test]
fn a_split_of_a_folder_is_there_for_a_dry_run() {
    let folder = tempfile::tempdir().unwrap();
    let shard = folder.path().join("train-00000-of-00001.jsonl");
    std::fs::write(&shard, (0..20).map(row).collect::<Vec<_>>().join("\n")).unwrap();
    let config = config(folder.path(), model(), &folder.path().join("train"), "");
    fgrpo().arg("train").arg(&config).arg("--dry-run").assert().success().stderr(
        predicate::str::contains("20 rows read").and(predicate::str::contains("not there yet").not()),
    );
}

/// A small maze configuration.
const MAZE: &str = "steps = 1\n[task]\nkind = \"maze\"\nsize = 9\ntrain = 8\nheld_out = 2\n[model.init]\n\
    hidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\n\
    num_key_value_heads = 2\n[rollout]\nprompts = 2\ngroup_size = 2\n[eval]\nsamples = 2\nk = [1]\n\
    [sft]\nsteps = 1\n";

#[test]
fn a_key_found_wrong_only_with_the_problems_at_hand_is_blamed_on_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("maze.toml");
    std::fs::write(&config, MAZE.replace("size = 9", "size = 5").replace("held_out = 2", "held_out = 64"))
        .unwrap();
    let says = "maze.toml: task.held_out: 64 is too many: there are so few mazes of size 5";
    for line in [&["train", "--dry-run"][..], &["train"], &["sft"], &["sweep", "--grid", "seed=1,2"]] {
        let mut command = fgrpo();
        command.arg(line[0]).arg(&config).args(&line[1..]).arg("--out").arg(folder.path().join("out"));
        command.assert().code(2).stderr(predicate::str::contains(says));
    }
}

#[test]
fn mazes_that_repeat_are_evaluated_once_and_few_training_mazes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("maze.toml");
    let of_size = |size: &str| {
        let text = MAZE.replace("size = 9", &format!("size = {size}"));
        std::fs::write(
            &config,
            text.replace("train = 8", "train = 2000").replace("held_out = 2", "held_out = 128"),
        )
        .unwrap();
    };
    // A 7x7 grid has 192 mazes.
    of_size("7");
    let few = "task.held_out: only 72 of the 128 mazes";
    let train = "task.train: only 112 of the first 2000 problems";
    fgrpo()
        .arg("train")
        .arg(&config)
        .arg("--out")
        .arg(folder.path().join("run"))
        .assert()
        .success()
        .stdout(predicate::str::contains("held-out, 72 problems x 2 samples"))
        .stderr(predicate::str::contains(few).and(predicate::str::contains(train)));
    of_size("9");
    let dry_run = fgrpo().arg("train").arg(&config).arg("--dry-run").assert().success();
    dry_run.stderr(predicate::str::contains("different").not());

    let lines = ["5", "6", "5"].map(|i| format!("{{\"size\": 9, \"seed\": 0, \"index\": {i}}}\n"));
    let file = folder.path().join("mazes.jsonl");
    std::fs::write(&file, lines.concat()).unwrap();
    let model = folder.path().join("run/checkpoints/step-000001");
    let eval = ["eval", "--task", "maze", "-n", "1"];
    let mut command = fgrpo();
    command
        .args(eval)
        .arg("--model")
        .arg(model)
        .arg("--data")
        .arg(&file)
        .arg("--out")
        .arg(folder.path().join("e"));
    command.assert().code(2).stderr(predicate::str::contains("line 3: an earlier line has the same maze"));
}

#[test]
fn a_new_model_with_a_tokenizer_has_its_vocabulary_and_its_end_token() {
    let folder = tempfile::tempdir().unwrap();
    let (tokenizer, out) = (model().to_str().unwrap(), folder.path().join("new"));
    let out = out.to_str().unwrap();
    let init = ["init", "--arch", "qwen3", "--tokenizer", tokenizer, "--out", out, "--layers", "1"];
    let said = support::ends_with(2, &[&init[..], &["--vocab-size", "300"]].concat());
    assert!(said.contains("--vocab-size: expected at least 320"), "{said}");
    support::ends_with(0, &init);
    let config = |folder: &str| -> Value {
        serde_json::from_slice(&std::fs::read(Path::new(folder).join("config.json")).unwrap()).unwrap()
    };
    let (made, given) = (config(out), config(tokenizer));
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
fn counts_and_indices_of_samples_beyond_any_evaluation_are_refused_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("samples.jsonl");
    for (line, says) in [
        (r#"{"problem": 1, "n": 1000000000, "c": 1}"#, "problem 1: n: expected at most 1000000"),
        (r#"{"problem": 1, "n": 18446744073709551615, "c": 1}"#, "found 18446744073709551615"),
        (r#"{"problem": 1, "n": 4, "c": 1, "unscorable": 18446744073709551615}"#, "unscorable: expected"),
        (r#"{"problem": 1, "sample": 1000000000000, "correct": true}"#, "found 1000000000000"),
        (r#"{"problem": 1, "sample": 18446744073709551615, "correct": true}"#, "found 18446744073709551615"),
        (
            r#"{"problem": 1, "sample": 0, "correct": true, "tokens": 18446744073709551615}"#,
            "tokens: expected",
        ),
    ] {
        std::fs::write(&file, line).unwrap();
        for command in ["pass-at-k", "plan"] {
            let output = fgrpo().arg(command).arg(&file).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command} {line}: {said}");
            assert!(said.contains("samples.jsonl line 1") && said.contains(says), "{command} {line}: {said}");
        }
    }
}

#[test]
fn sequences_longer_than_the_models_positions_are_refused_before_they_are_scored() {
    let folder = tempfile::tempdir().unwrap();
    let (good, root) = (model().to_str().unwrap(), folder.path());
    let tokens = support::file(root, "tokens.jsonl", &format!("{{\"tokens\": {:?}}}\n", vec![5; 40_000]));
    let said = support::ends_with(2, &["score", "--model", good, tokens.to_str().unwrap()]);
    assert!(said.contains("tokens.jsonl line 1: expected at most"), "{said}");
    let data = support::file(root, "sums.jsonl", "{\"problem\": \"2+2?\", \"answer\": \"4\"}\n");
    let text = format!("{{\"problem\": 0, \"text\": \"{}\\\\boxed{{4}}\"}}\n", "x ".repeat(20_000));
    let made = support::file(root, "made.jsonl", &text);
    let (data, made, out) = (data.to_str().unwrap(), made.to_str().unwrap(), root.join("eval"));
    let out = out.to_str().unwrap();
    ends(0, command!("eval --samples", made, "--data", data, "--task math -n 1 --out", out));
    let said = support::ends_with(2, &["nll", out, "--base", good, "--model", &format!("x={good}")]);
    assert!(said.contains("tokens with its prompt") && said.contains("positions"), "{said}");
}
