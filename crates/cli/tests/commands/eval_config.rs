//! `fgrpo eval CONFIG` against the trainer: the same held-out problems, prompts and verdicts for every kind of task and
//! every setting of its verifier.

use crate::support::{ends, ends_with, lines, tells};
use fgrpo_core::rng::Key;
use fgrpo_train::config::{ArithmeticConfig, Config};
use fgrpo_train::language::Language;
use fgrpo_train::problem::{Split, Task, generated};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A model with random weights and the tokenizer of the arithmetic task.
fn model(dir: &Path) -> PathBuf {
    let (tokenizer, out) = (dir.join("tokenizer"), dir.join("model"));
    std::fs::create_dir(&tokenizer).unwrap();
    generated::language(&ArithmeticConfig::default(), &[]).unwrap().write(&tokenizer).unwrap();
    let sizes = "--hidden-size 16 --heads 2 --kv-heads 1 --layers 1 --context 8192 --std 0.5";
    ends(0, command!("init --arch qwen2", ..sizes.split(' '), "--tokenizer", tokenizer, "--out", &out));
    out
}

fn write(path: PathBuf, rows: impl IntoIterator<Item = Value>) -> String {
    let rows: Vec<String> = rows.into_iter().map(|r| r.to_string()).collect();
    std::fs::write(&path, rows.join("\n") + "\n").unwrap();
    format!("{:?}", path.to_str().unwrap())
}

/// A program whose verdict depends on its arguments, one of which has a space, on the row and on the completion.
const GRADER: &str = r#"
import json, sys
for line in sys.stdin:
    d = json.loads(line)
    right = sys.argv[1] in d["completion"] or (len(d["completion"]) + d["problem"]["worth"]) % 2 == 0
    print(json.dumps({"score": 0.5 if right else 0.25}), flush=True)
"#;

/// The files of all kinds. Each has a problem whose prompt is longer than training allows.
struct Data {
    math: String,
    choice: String,
    ifeval: String,
    synlogic: String,
    own: String,
    grader: String,
    /// A correct answer to the n-th logic puzzle.
    solutions: Vec<String>,
}

fn data(dir: &Path) -> Data {
    let long = "very ".repeat(500);
    let math = (0..40).map(|i| {
        let question = if i == 7 { format!("{long} {i}+1?") } else { format!("{i}+1?") };
        json!({"problem": question, "answer": (i + 1).to_string()})
    });
    let choice = (0..12).map(|i| {
        json!({"Question": format!("Which is {i}?"), "Correct Answer": format!("it is {i}"), "Incorrect Answer 1": format!("x{i}"),
            "Incorrect Answer 2": format!("y{i}"), "Incorrect Answer 3": format!("z{i}")})
    });
    let ifeval = (0..12).map(|i| {
        json!({"key": i, "prompt": format!("Say it, number {i}."), "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]})
    });
    let mut draws = Key::new(5).stream();
    let sudoku = fgrpo_verify::synlogic::Task::Sudoku;
    let puzzles: Vec<_> = (0..6)
        .map(|_| fgrpo_verify::synlogic::generate(sudoku, 1, 0, &mut || draws.bits()).unwrap())
        .collect();
    let synlogic = puzzles.iter().enumerate().map(|(i, p)| {
        json!({"data_source": "sudoku", "prompt": [{"role": "user", "content": format!("{i}: {}", p.question)}],
            "extra_info": {"game_data_str": p.game_data_str()}})
    });
    let own = (0..10).map(|i| json!({"prompt": format!("Say {i}."), "worth": i}));
    let grader = dir.join("a grader.py");
    std::fs::write(&grader, GRADER).unwrap();
    Data {
        math: write(dir.join("math.jsonl"), math),
        choice: write(dir.join("choice.jsonl"), choice),
        ifeval: write(dir.join("ifeval.jsonl"), ifeval),
        synlogic: write(dir.join("synlogic.jsonl"), synlogic),
        own: write(dir.join("own.jsonl"), own),
        grader: format!("{:?}", grader.to_str().unwrap()),
        solutions: puzzles.iter().map(|p| p.solution.clone()).collect(),
    }
}

/// The table `[task]` of each kind, without defaults.
fn tasks(d: &Data) -> Vec<(&'static str, String)> {
    let command = format!(
        "[task.verifier.command]\ncommand = [\"python3\", {}, \"two words\"]\ncorrect_from = 0.5\ntimeout_s = 20.0\n",
        d.grader
    );
    let mixed = command.replace("[task.verifier.command]", "[task.parts.verifier.command]");
    vec![
        ("maze", "kind = \"maze\"\nsize = 5\ntrain = 50\nheld_out = 6\nreward = \"reaches_goal\"\n".into()),
        ("arithmetic", "kind = \"arithmetic\"\ntrain = 20\nheld_out = 5\n".into()),
        (
            "math",
            format!(
                "kind = \"math\"\ndata = {}\nheld_out_share = 0.3\nmax_prompt_tokens = 400\nsystem = \"Be brief.\"\nstop = [\"Q:\"]\nverifier.mode = \"strict\"\n",
                d.math
            ),
        ),
        (
            "choice",
            format!(
                "kind = \"choice\"\ndata = {}\nheld_out_share = 0.6\npreset = \"qwen3\"\nverifier.choice = \"letter-or-content\"\n",
                d.choice
            ),
        ),
        ("ifeval", format!("kind = \"ifeval\"\ndata = {}\nheld_out_share = 0.5\n", d.ifeval)),
        (
            "synlogic",
            format!(
                "kind = \"synlogic\"\ndata = {}\nheld_out_share = 0.5\nmax_prompt_tokens = 8000\nverifier.format_gate = false\n",
                d.synlogic
            ),
        ),
        ("command", format!("kind = \"command\"\ndata = {}\nheld_out_share = 0.6\n{command}", d.own)),
        (
            "mix",
            format!(
                "kind = \"mix\"\n[[task.parts]]\nkind = \"arithmetic\"\ntrain = 20\nheld_out = 4\n\
                 [[task.parts]]\nname = \"sums\"\nkind = \"math\"\ndata = {math}\nmax_prompt_tokens = 400\nweight = 0.0\nsystem = \"Box it.\"\n\
                 [[task.parts]]\nname = \"again\"\nkind = \"math\"\ndata = {math}\nmax_prompt_tokens = 400\nweight = 0.0\n\
                 [[task.parts]]\nname = \"options\"\nkind = \"choice\"\ndata = {}\nweight = 0.0\nsystem = \"Choose.\"\nverifier.choice = \"letter-or-content\"\n\
                 [[task.parts]]\nkind = \"command\"\ndata = {}\nweight = 0.0\n{mixed}",
                d.choice,
                d.own,
                math = d.math,
            ),
        ),
    ]
}

fn config(dir: &Path, name: &str, task: &str, model: &Path) -> PathBuf {
    let model = match name {
        "maze" => "[model.init]\nhidden_size = 16\nintermediate_size = 32\nnum_hidden_layers = 1\nnum_attention_heads = 2\nnum_key_value_heads = 1\nstd = 0.5".to_owned(),
        // The task trains the same tokenizer as the model has.
        _ => format!("[model]\npath = {:?}", model.to_str().unwrap()),
    };
    let limit = if name == "mix" { "problems = 3\n" } else { "" };
    let text = format!(
        "steps = 1\n{model}\n[algorithm]\nfocal_gamma = 0\n[rollout]\nprompts = 1\ngroup_size = 2\nmax_new_tokens = 12\n[eval]\nevery = 1\nsamples = 1\nk = [1]\n{limit}[compute]\nthreads = 1\n[task]\n{task}"
    );
    let path = dir.join(format!("{name}.toml"));
    std::fs::write(&path, text).unwrap();
    path
}

/// The held-out problems that the trainer evaluates on, in its order.
fn evaluated(task: &Task, limit: Option<usize>) -> Vec<u64> {
    let mut from = 0;
    let mut ids = Vec::new();
    for part in task.held_out() {
        let n = part.problems.len();
        ids.extend(from..from + limit.map_or(n, |l| l.min(n)) as u64);
        from += n as u64;
    }
    ids
}

/// Completions whose verdicts depend on the settings of the verifiers.
fn completions(target: &str, solution: &str) -> Vec<String> {
    [
        format!("so \\boxed{{{target}}}"),
        format!("\\boxed{{{}}}", target.to_lowercase()),
        format!("the answer is {target}"),
        format!("\\boxed{{{target}}} Q: \\boxed{{17}}"),
        target.to_string(),
        "\\boxed{it is 3}".into(),
        format!("<answer>{solution}</answer>"),
        format!("<think>so</think>\n<answer>{solution}</answer>"),
        "one, two".into(),
        "two words".into(),
        "x".into(),
        "UP RIGHT DOWN DONE".into(),
    ]
    .into()
}

#[test]
fn a_training_configuration_asks_and_grades_as_the_trainer_does() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let d = data(dir.path());
    for (name, task) in tasks(&d) {
        let path = config(dir.path(), name, &task, &model);
        let config = Config::load(&path, &[]).unwrap();
        let task = Task::open(&config).unwrap();
        let ids = evaluated(&task, config.eval.problems);
        let text_of = |p: &Path| p.to_str().unwrap().to_owned();
        let (run, out, given) = (
            text_of(&dir.path().join(format!("run-{name}"))),
            text_of(&dir.path().join(format!("eval-{name}"))),
            text_of(&dir.path().join(format!("given-{name}"))),
        );
        let path = text_of(&path);

        // The trainer's evaluation of a checkpoint and the command's have the same prompts, samples and verdicts, byte for byte.
        ends_with(0, &["train", &path, "--out", &run]);
        let checkpoint = format!("{run}/checkpoints/step-000001");
        ends_with(0, &["eval", &path, "--model", &checkpoint, "--out", &out]);
        let trained = lines(&Path::new(&run).join("eval.jsonl")).pop().unwrap();
        let out = Path::new(&out);
        for file in ["prompts.jsonl", "generations.jsonl", "samples.jsonl"] {
            let of_run = Path::new(&run).join("evaluations/step-000001").join(file);
            // Samples are stored in the order in which they end, which depends on the number of threads.
            let sorted = |path: &Path| {
                let text = std::fs::read_to_string(path).unwrap();
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                if file == "generations.jsonl" {
                    lines.sort();
                }
                lines
            };
            let (theirs, ours) = (sorted(&out.join(file)), sorted(&of_run));
            assert!(!ours.is_empty() && theirs == ours, "{name}: {file}: {theirs:#?} {ours:#?}");
        }
        let (prompts, samples) = (lines(&out.join("prompts.jsonl")), lines(&out.join("samples.jsonl")));
        assert_eq!(trained["step"], 1, "{name}");
        assert_eq!((prompts.len(), samples.len()), (ids.len(), ids.len()), "{name}");
        let by_problem: HashMap<&str, &Value> =
            samples.iter().map(|s| (s["problem"].as_str().unwrap(), s)).collect();
        let generated: HashMap<String, String> = lines(&out.join("generations.jsonl"))
            .iter()
            .map(|g| (g["problem"].as_str().unwrap().to_owned(), g["text"].as_str().unwrap().to_owned()))
            .collect();
        let language = match name {
            "maze" => Language::mazes(),
            _ => Language::read(Path::new(&checkpoint), &[]).unwrap(),
        };
        for (i, (&id, asked)) in ids.iter().zip(&prompts).enumerate() {
            let problem = asked["problem"].as_str().unwrap();
            // The same prompt, token by token.
            let messages: Vec<fgrpo_eval::dataset::Message> =
                serde_json::from_value(asked["messages"].clone()).unwrap();
            let tokens = language.prompt(&messages, asked["thinking"].as_bool()).unwrap();
            assert_eq!(tokens, task.prompt(Split::HeldOut, id).tokens, "{name}: prompt {i}");
            let correct = u64::from(by_problem[problem]["correct"].as_bool().unwrap());
            assert_eq!(trained["per_problem"][i], correct, "{name}: problem {i}");
            if let Some(example) = trained["examples"].get(i) {
                assert_eq!(example["completion"], generated[problem], "{name}: completion {i}");
            }
        }

        // The same verdict and reason for the same completion.
        let texts: Vec<Vec<String>> = ids
            .iter()
            .enumerate()
            .map(|(i, &id)| {
                let solution = d.solutions.iter().find(|_| name == "synlogic").cloned().unwrap_or_default();
                let target =
                    task.prompt(Split::HeldOut, id).problem.truth.gold().unwrap_or_else(|| i.to_string());
                completions(&target, &solution)
            })
            .collect();
        let n = texts[0].len();
        let rows = prompts.iter().zip(&texts).map(|(p, t)| json!({"problem": p["problem"], "texts": t}));
        write(dir.path().join("given.jsonl"), rows);
        let file = text_of(&dir.path().join("given.jsonl"));
        ends_with(0, &["eval", &path, "--samples", &file, "-n", &n.to_string(), "--out", &given]);
        let verdicts: HashMap<(String, u64), (String, String)> =
            lines(&Path::new(&given).join("samples.jsonl"))
                .iter()
                .map(|s| {
                    let text = |key: &str| s[key].as_str().unwrap().to_owned();
                    ((text("problem"), s["sample"].as_u64().unwrap()), (text("verdict"), text("reason")))
                })
                .collect();
        let mut seen = std::collections::BTreeSet::new();
        for ((&id, asked), texts) in ids.iter().zip(&prompts).zip(&texts) {
            for (i, text) in texts.iter().enumerate() {
                let tokens = language.encode(text).unwrap();
                let graded = task.grade(&task.prompt(Split::HeldOut, id), &tokens);
                let verdict = json!(graded.verdict).as_str().unwrap().to_owned();
                let key = (asked["problem"].as_str().unwrap().to_owned(), i as u64);
                let given = &verdicts[&key];
                // A text from elsewhere is graded as a whole; a completion ends before its stop string.
                if name != "math" || !text.contains(" Q: ") {
                    assert_eq!(*given, (verdict.clone(), graded.reason.to_string()), "{name}: {text:?}");
                }
                seen.insert(verdict);
            }
        }
        assert!(seen.contains("correct") && seen.len() > 1, "{name}: {seen:?} tell nothing apart");
        assert!(!seen.contains("unscorable"), "{name}");
    }
}

#[test]
fn nll_asks_as_the_folder_says() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let d = data(dir.path());
    let (model, own) = (model.to_str().unwrap().to_owned(), d.own.trim_matches('"').to_owned());
    let command = format!("python3 {} 'two words'", d.grader);
    let folder = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (out, elsewhere) = (folder("out"), folder("elsewhere"));
    let problems = ["--task", "command", "--data", &own, "--command", &command, "--correct-from", "0.5"];
    let asked = ["--system", "Be brief.", "-n", "4", "--max-tokens", "6"];
    ends_with(0, &[&["eval", "--model", &model, "--out", &out][..], &problems, &asked].concat());
    let nll = |folder: &str, flags: &[&str]| {
        let (same, separator) = (format!("same={model}"), ["--"].iter().filter(|_| !flags.is_empty()));
        command!("nll", folder, "--base", &model, "--model", same, "--json --share 1", ..separator, ..flags)
    };
    let base_nll = |command| -> f64 {
        let value: Value = serde_json::from_str(&ends(0, command).0).unwrap();
        value["base_nll"].as_f64().unwrap()
    };
    let own_prompt = base_nll(nll(&out, &[]));
    assert_eq!(base_nll(nll(&out, &problems)), own_prompt, "flags without a prompt take the folder's");
    let other = nll(&out, &[&problems[..], &["--system", "Other."]].concat());
    tells(2, other, "the prompt differs from that of the samples");

    // If strings end responses too, nothing shows which responses ended by the model's own token.
    let stopped = folder("stopped");
    ends_with(
        0,
        &[&["eval", "--model", &model, "--out", &stopped, "--stop", "zzz"][..], &problems, &asked].concat(),
    );
    tells(0, nll(&stopped, &[]), "aren't scored");

    // The same texts as samples from elsewhere: there the flags set the prompt.
    let texts = lines(&Path::new(&out).join("generations.jsonl")).into_iter().map(
        |g| json!({"problem": g["problem"], "sample": g["sample"], "text": g["text"], "finish": g["finish"]}),
    );
    let file = dir.path().join("texts.jsonl");
    write(file.clone(), texts);
    let file = file.to_str().unwrap().to_owned();
    ends_with(0, &[&["eval", "--samples", &file, "--out", &elsewhere, "-n", "4"][..], &problems].concat());
    let with = |system: &str| base_nll(nll(&elsewhere, &[&problems[..], &["--system", system]].concat()));
    assert_eq!(with("Be brief."), own_prompt);
    assert_ne!(with("Write a novel."), own_prompt);
}

#[test]
fn a_demonstration_ends_with_what_ends_a_turn_not_with_the_first_end_token() {
    let dir = tempfile::tempdir().unwrap();
    let model = model(dir.path());
    let id = |token: &str| Language::read(&model, &[]).unwrap().encode(token).unwrap()[0];
    let (text_end, turn_end) = (id("<|endoftext|>"), id("<|im_end|>"));
    // As Llama's instruct models list them, with the end of a text first.
    let generation = json!({"eos_token_id": [text_end, turn_end]});
    std::fs::write(model.join("generation_config.json"), generation.to_string()).unwrap();
    let language = Language::read(&model, &[]).unwrap();
    assert_eq!(language.stop_tokens(), [turn_end, text_end]);
    assert_eq!(language.demonstration("7").unwrap().last(), Some(&turn_end));
}
