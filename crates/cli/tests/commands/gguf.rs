//! A model in one GGUF file: `fgrpo merge` writes it, and it is used to generate, evaluate and train.

use crate::support::{assert_same_files, ends, file, model, signal, spawned, sums_run, tells, timeless};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Converts a model into a folder or a GGUF file, and returns its path.
fn merged(model: &Path, out: PathBuf) -> PathBuf {
    ends(0, command!("merge --model", model, "--out", &out));
    out
}

/// The small model with a tokenizer, as a GGUF file in f32.
fn small(folder: &Path) -> PathBuf {
    merged(model(), folder.join("small.gguf"))
}

#[test]
fn a_model_as_gguf_says_what_its_folder_says() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = small(folder.path());
    let say = |model: &Path| {
        let prompt = "Compute 12 + 34.\n\nÄ\t 5";
        ends(0, command!("generate --model", model, "--max-tokens 24 --seed 3 --threads 1", prompt)).0
    };
    assert_eq!(say(&gguf), say(model()));
    // To GGUF and back once more, without rounding in between.
    let back = merged(&gguf, folder.path().join("back"));
    assert_eq!(say(&back), say(model()));
    assert_same_files(&back, model(), &["model.safetensors"]);
}

#[test]
fn a_run_on_a_gguf_file_is_the_run_on_its_folder_and_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = small(folder.path());
    // The file has more tokens that end an answer, so few tokens are drawn.
    let rollout = "rollout={ prompts = 2, group_size = 4, max_new_tokens = 6 }";
    let algorithm = "algorithm={ entropy_coef = 0.01, reward_wrong = -1 }";
    let train = |name: &str, model: &Path, more: &str| {
        let config = sums_run(folder.path(), model, &["save.every=1", rollout, algorithm]);
        let out = folder.path().join(name);
        ends(0, command!("train", config, "--out", &out, ..more.split(' ')));
        out
    };
    let whole = train("whole", &gguf, "--set steps=2");
    let of_folder = train("folder", model(), "--set steps=2");
    train("cut", &gguf, "--set steps=1");
    let cut = train("cut", &gguf, "--set steps=2 --resume --accept-changes");
    let metrics = timeless(&whole.join("metrics.jsonl"));
    assert!(metrics[1]["gradient_norm"].as_f64().unwrap() > 0.0);
    for other in [&of_folder, &cut] {
        assert_eq!(timeless(&other.join("metrics.jsonl")), metrics, "{}", other.display());
        assert_same_files(other, &whole, &["checkpoints/step-000002/model.safetensors"]);
    }
    // The trained model is an ordinary folder.
    for name in ["config.json", "tokenizer.json", "chat_template.jinja", "generation_config.json"] {
        assert!(whole.join("checkpoints/step-000002").join(name).is_file(), "{name}");
    }
}

#[test]
fn every_command_takes_a_model_as_a_run_or_a_gguf_file() {
    let folder = tempfile::tempdir().unwrap();
    let gguf = small(folder.path());
    let run = folder.path().join("first");
    let config = |model: &Path| sums_run(folder.path(), model, &["steps=1"]);
    ends(0, command!("train", config(model()), "--out", &run));
    let (data, tokens) =
        (folder.path().join("sums.jsonl"), file(folder.path(), "t.jsonl", "{\"tokens\":[1,2,3]}\n"));
    let alone = folder.path().join("alone");
    file(&alone, "it.gguf", "");
    std::fs::copy(&gguf, alone.join("it.gguf")).unwrap();
    for (name, model) in [("run", &run), ("alone", &alone)] {
        let out = |command: &str| folder.path().join(format!("{name}-{command}"));
        let samples = out("eval");
        for command in [
            command!("data show", config(model)),
            command!("train", config(model), "--out", out("train")),
            command!("generate --max-tokens 4 hello --model", model),
            command!("score --model", model, &tokens),
            command!("data show", &data, "--model", model),
            command!("merge --model", model, "--out", out("merge")),
            command!("init --arch qwen3 --tokenizer", model, "--out", out("init")),
            command!(
                "eval --task math -n 2 --max-tokens 4 --model",
                model,
                "--data",
                &data,
                "--out",
                &samples
            ),
        ] {
            ends(0, command);
        }
        // It reaches the samples, of which none is right.
        let trained = format!("it={}", model.display());
        tells(2, command!("nll", &samples, "--base", model, "--model", trained), "correct sample");
        // The server listens with both models, and stops on request.
        let mut serve = spawned(&["serve", "--listen", "127.0.0.1:0", "--name", "a", "--teacher-name", "b"]);
        serve.arg("--model").arg(model).arg("--teacher").arg(model).arg("--out").arg(out("serve"));
        let mut child = serve.spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        assert!(said.any(|line| line.starts_with("serving a at ")), "{name}: {:?}", child.wait());
        signal(&child, libc::SIGTERM);
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
    }
    // A file without a model doesn't leave a server folder.
    let (broken, out) = (file(folder.path(), "broken.gguf", "GGUF"), folder.path().join("nothing"));
    ends(2, command!("serve --model", broken, "--out", &out));
    assert!(!out.exists());
}

#[test]
fn what_a_gguf_file_cannot_be_is_said_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("m.gguf");
    tells(2, command!("merge --dtype nf4 --model", model(), "--out", &out), "found nf4");
    let other = command!("merge --dtype q8_0 --model", model(), "--out", folder.path().join("m"));
    tells(2, other, "ends in .gguf");
    assert!(!out.exists());
    let gguf = small(folder.path());
    let bytes = std::fs::read(&gguf).unwrap();
    std::fs::write(&gguf, &bytes[..bytes.len() / 2]).unwrap();
    tells(2, command!("generate --model", gguf, "hello"), "truncated");
}
