//! A model in one GGUF file: `fgrpo merge` writes it, and it is used to generate, evaluate and train.

use crate::support::{done, ends, ends_with, fgrpo, file, lines, model, run, signal, spawned};
use fgrpo_nn::config::Config;
use fgrpo_nn::weights::{Checkpoint, GgufType, Item, write_gguf};
use fgrpo_train::language::Language;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// The small model with a tokenizer, as a GGUF file in f32.
fn small(folder: &Path) -> PathBuf {
    let path = folder.join("small.gguf");
    done(&["merge", "--model", text(model()), "--out", text(&path)]);
    path
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_model_as_gguf_says_what_its_folder_says() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = small(folder.path());
    let say = |model: &Path| {
        let prompt = "Compute 12 + 34.\n\nÄ\t 5";
        ends(0, command!("generate --model", text(model), "--max-tokens 24 --seed 3 --threads 1", prompt)).0
    };
    assert_eq!(say(&gguf), say(model()));
    // To GGUF and back once more, without rounding in between.
    let back = folder.path().join("back");
    done(&["merge", "--model", text(&gguf), "--out", text(&back)]);
    assert_eq!(say(&back), say(model()));
    assert_eq!(
        std::fs::read(back.join("model.safetensors")).unwrap(),
        std::fs::read(model().join("model.safetensors")).unwrap()
    );
}

#[test]
fn a_run_on_a_gguf_file_is_the_run_on_its_folder_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = small(folder.path());
    let data = file(folder.path(), "sums.jsonl", &sums());
    let train = |name: &str, model: &Path, steps: &str, more: &[&str]| {
        let out = folder.path().join(name);
        let settings = [format!("model.path={}", model.display()), format!("task.data={}", data.display())];
        let config = file(folder.path(), "run.toml", RUN);
        let mut args = vec!["train", text(&config), "--out", text(&out), "--set", steps];
        settings.iter().for_each(|setting| args.extend(["--set", setting]));
        args.extend(more);
        done(&args);
        out
    };
    let whole = train("whole", &gguf, "steps=2", &[]);
    let of_folder = train("folder", model(), "steps=2", &[]);
    let cut = train("cut", &gguf, "steps=1", &[]);
    train("cut", &gguf, "steps=2", &["--resume", "--accept-changes"]);
    let metrics = |run: &Path| {
        let mut steps = lines(&run.join("metrics.jsonl"));
        let timed = |key: &str| key == "seconds" || key.contains("per_second");
        steps.iter_mut().for_each(|line| line.as_object_mut().unwrap().retain(|key, _| !timed(key)));
        steps
    };
    let weights = |run: &Path| std::fs::read(run.join("checkpoints/step-000002/model.safetensors")).unwrap();
    assert!(metrics(&whole)[1]["gradient_norm"].as_f64().unwrap() > 0.0);
    for other in [&of_folder, &cut] {
        assert_eq!(metrics(other), metrics(&whole), "{}", other.display());
        assert!(weights(other) == weights(&whole), "{}", other.display());
    }
    // The trained model is an ordinary folder.
    let checkpoint = whole.join("checkpoints/step-000002");
    for name in [
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
        "model.safetensors",
    ] {
        assert!(checkpoint.join(name).is_file(), "{name}");
    }
}

#[test]
fn every_command_takes_a_model_as_a_folder_a_run_or_a_gguf_file() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = small(folder.path());
    let data = file(folder.path(), "sums.jsonl", &sums());
    let config = file(folder.path(), "run.toml", RUN);
    let data_key = format!("task.data={}", data.display());
    let train = |model: &Path, out: &Path| {
        let model_key = format!("model.path={}", model.display());
        let keys = ["--set", &model_key, "--set", &data_key];
        done(&[&["data", "show", text(&config)][..], &keys].concat());
        done(&[&["train", text(&config), "--out", text(out)][..], &keys].concat());
    };
    let run = folder.path().join("first");
    train(model(), &run);
    let tokens = file(folder.path(), "tokens.jsonl", "{\"tokens\":[1,2,3]}\n");
    let alone = folder.path().join("alone");
    std::fs::create_dir(&alone).unwrap();
    std::fs::copy(&gguf, alone.join("it.gguf")).unwrap();
    for (name, model) in [("folder", model()), ("run", &run), ("gguf", &gguf), ("alone", &alone)] {
        let out = |command: &str| folder.path().join(format!("{name}-{command}"));
        train(model, &out("train"));
        done(&["generate", "--model", text(model), "--max-tokens", "4", "1 + 1?"]);
        done(&["score", "--model", text(model), text(&tokens)]);
        done(&["data", "show", text(&data), "--model", text(model)]);
        done(&["merge", "--model", text(model), "--out", text(&out("merge"))]);
        done(&["init", "--arch", "qwen3", "--tokenizer", text(model), "--out", text(&out("init"))]);
        let samples = out("eval");
        let all = ["--data", text(&data), "--task", "math", "-n", "2", "--max-tokens", "4"];
        done(&[&["eval", "--model", text(model), "--out", text(&samples)][..], &all].concat());
        assert!(samples.join("samples.jsonl").is_file());
        // It reaches the samples, of which none is right.
        let trained = format!("it={}", model.display());
        let nll = ["nll", text(&samples), "--base", text(model), "--model", &trained];
        assert!(ends_with(2, &nll).contains("correct sample"), "{name}");
        // The server listens with both models, and stops on request.
        let server = ["--listen", "127.0.0.1:0", "--name", "a", "--teacher-name", "b"];
        let models = ["serve", "--model", text(model), "--teacher", text(model), "--out"];
        let mut child = spawned(&[&models[..], &[text(&out("serve"))], &server].concat()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|line| line.starts_with("serving a at ")), "{name}: {:?}", child.wait());
        signal(&child, libc::SIGTERM);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
    }
    // A file without a model doesn't leave a server folder.
    let (broken, out) = (file(folder.path(), "broken.gguf", "GGUF"), folder.path().join("nothing"));
    ends_with(2, &["serve", "--model", text(&broken), "--out", text(&out)]);
    assert!(!out.exists());
}

const RUN: &str = r#"
steps = 1
[task]
kind = "math"
data = ""
[rollout]
prompts = 2
group_size = 4
max_new_tokens = 6
[algorithm]
entropy_coef = 0.01
[update]
lr = 1e-3
[save]
every = 1
[eval]
every = 0
[compute]
threads = 1
"#;

fn sums() -> String {
    (1..9).map(|i| format!("{{\"question\": \"{i} + 1 = ?\", \"answer\": \"{}\"}}\n", i + 1)).collect()
}

#[test]
fn what_a_gguf_file_cannot_be_is_said_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.gguf");
    let merge = |more: &[&str], out: &Path| {
        ends_with(2, &[&["merge", "--model", text(model()), "--out", text(out)], more].concat())
    };
    assert!(merge(&["--dtype", "nf4"], &out).contains("found nf4"));
    assert!(merge(&["--dtype", "q8_0"], &folder.path().join("m")).contains("ends in .gguf"));
    assert!(!out.exists());
    let gguf = small(folder.path());
    let bytes = std::fs::read(&gguf).unwrap();
    std::fs::write(&gguf, &bytes[..bytes.len() / 2]).unwrap();
    let (_, said, code) = run(fgrpo().args(["generate", "--model", text(&gguf), "hello"]));
    assert!(code == 2 && said.contains("truncated"), "{code}: {said}");
}

#[test]
fn a_token_that_ends_a_turn_ends_an_answer_whatever_type_the_file_gives_it() {
    let folder = tempfile::tempdir().unwrap();
    let named = folder.path().join("named");
    std::fs::create_dir(&named).unwrap();
    for entry in std::fs::read_dir(model()).unwrap() {
        let from = entry.unwrap().path();
        std::fs::copy(&from, named.join(from.file_name().unwrap())).unwrap();
    }
    // An ordinary token of the vocabulary gets the name. In the file its type is then normal.
    let tokenizer = std::fs::read_to_string(named.join("tokenizer.json")).unwrap();
    let mut tokenizer: serde_json::Value = serde_json::from_str(&tokenizer).unwrap();
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let id = vocabulary.remove("~").unwrap();
    vocabulary.insert("<|eot_id|>".into(), id.clone());
    std::fs::write(named.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let (gguf, back) = (folder.path().join("named.gguf"), folder.path().join("back"));
    done(&["merge", "--model", text(&named), "--out", text(&gguf)]);
    done(&["merge", "--model", text(&gguf), "--out", text(&back)]);
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(back.join(name)).unwrap()).unwrap()
    };
    let added = read("tokenizer.json")["added_tokens"].as_array().unwrap().clone();
    assert!(added.iter().any(|token| token["id"] == id && token["special"] == true), "{added:?}");
    let ends = read("generation_config.json")["eos_token_id"].clone();
    assert!(ends.as_array().is_some_and(|ends| ends.len() > 1 && ends.contains(&id)), "{ends}");
}

/// Tokens of Gemma 4's kind, with llama.cpp's ids of some strings. `peers/gguf_tokenizers.py --golden` writes the file.
#[test]
fn a_tokenizer_of_gemma_4_gives_the_tokens_of_llama_cpp() {
    let golden: Value = serde_json::from_str(include_str!("../golden/gemma4_tokens.json")).unwrap();
    let texts = |key: &str| -> Vec<String> { serde_json::from_value(golden[key].clone()).unwrap() };
    let (tokens, kinds) = (texts("tokens"), serde_json::from_value(golden["kinds"].clone()).unwrap());
    let end = tokens.iter().position(|token| token == "<turn|>").unwrap() as u32;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gemma4.gguf");
    let from = Checkpoint::open(model()).unwrap();
    let config = Config { vocab_size: tokens.len(), ..from.config().clone() };
    let about = [
        ("model", Item::Text("gemma4".into())),
        ("tokens", Item::Texts(tokens)),
        ("token_type", Item::Numbers(kinds)),
        ("merges", Item::Texts(texts("merges"))),
        ("unknown_token_id", Item::Number(3)),
        ("bos_token_id", Item::Number(2)),
        ("eos_token_id", Item::Number(1)),
        // llama.cpp begins with <bos> whatever this says.
        ("add_bos_token", Item::Flag(false)),
    ];
    let about = about.map(|(key, item)| (format!("tokenizer.ggml.{key}"), item)).to_vec();
    let zeros = |(name, shape): (String, Vec<usize>)| {
        let values = vec![0f32; shape.iter().product()];
        (name, shape, values)
    };
    write_gguf(&path, &config, about, config.tensors().into_iter().map(zeros), GgufType::F32).unwrap();
    // As the file has it, as a folder, and as a file written from that.
    let (back, again) = (folder.path().join("back"), folder.path().join("again.gguf"));
    done(&["merge", "--model", text(&path), "--out", text(&back)]);
    done(&["merge", "--model", text(&back), "--out", text(&again)]);
    for model in [&path, &back, &again] {
        let language = Language::read(model, &[]).unwrap();
        assert!(language.stop_tokens().contains(&end));
        // A message that spells a special token doesn't become one.
        let call = language.encode("<|tool_call>").unwrap();
        assert_eq!(
            (call.len(), call == language.encode_parts(&language.broken("<|tool_call>")).unwrap()),
            (1, false)
        );
        for pair in golden["strings"].as_array().unwrap() {
            let (string, ids): (String, Vec<u32>) = serde_json::from_value(pair.clone()).unwrap();
            assert_eq!(language.encode(&string).unwrap(), ids, "{}: {string:?}", model.display());
            assert_eq!(language.plain(&string).unwrap(), [&[2], &ids[..]].concat());
            // Gemma writes a space as U+2581.
            assert_eq!(language.text(&ids), string.replace('\u{2581}', " "));
        }
    }
}
