use super::*;
use crate::config::{ArithmeticConfig, MazeConfig, TextConfig};
use crate::language::chat::{ChatOptions, ChatTemplate};
use fgrpo_eval::dataset::Message;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_verify::verdict::Verdict;
use std::path::Path;

fn mazes(config: MazeConfig) -> anyhow::Result<Task> {
    let mut whole = Config::parse(include_str!("../../../../configs/maze-quick.toml"), &[])?;
    whole.task = TaskConfig::Maze(config);
    Task::open(&whole)
}

#[test]
fn the_demonstration_is_the_only_correct_answer_to_a_maze() {
    let config = MazeConfig { size: 9, train: 100, held_out: 10, ..MazeConfig::default() };
    let task = mazes(config).unwrap();
    let prompt = task.prompt(Split::Train, 3);
    let mut answer = task.demonstration(&prompt).unwrap();
    assert_eq!(task.language.text(&answer), prompt.problem.truth.gold().unwrap());
    assert_eq!(task.grade(&prompt, &answer).verdict, Verdict::Correct);
    answer.swap_remove(0);
    assert_ne!(task.grade(&prompt, &answer).verdict, Verdict::Correct);
    assert_eq!(task.grade(&prompt, &[]).verdict, Verdict::Unparsed);
}

#[test]
fn a_grid_too_small_for_its_held_out_mazes_is_refused() {
    let config = MazeConfig { size: 5, train: 100, held_out: 60, ..MazeConfig::default() };
    let error = format!("{:#}", mazes(config).err().unwrap());
    assert!(error.contains("task.held_out: 60"), "{error}");
}

fn open(kind: TaskKind, text: &TextConfig, model: Option<&Path>) -> anyhow::Result<Task> {
    let mut config = Config::parse(include_str!("../../../../configs/maze-quick.toml"), &[])?;
    config.task = TaskConfig::Text(Box::new(TextConfig { kind, ..text.clone() }));
    config.model.path = model.map(Path::to_owned);
    Task::open(&config)
}

/// Creates a folder with a tokenizer and a template, but without weights.
fn model() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    generated::language(&ArithmeticConfig::default(), &[]).unwrap().write(folder.path()).unwrap();
    folder
}

fn data(folder: &Path, lines: &[&str]) -> PathBuf {
    let path = folder.join("data.jsonl");
    std::fs::write(&path, lines.join("\n")).unwrap();
    path
}

fn config(data: &Path, more: &str) -> TextConfig {
    toml::from_str(&format!(
        "kind = \"math\"\ndata = {:?}\nheld_out_share = 0\n{more}",
        data.display().to_string()
    ))
    .unwrap()
}

const HALF: &str = r#"{"problem": "Half of 7?", "answer": "\\frac{7}{2}", "solution": "\\boxed{3.5}"}"#;
const SUM: &str = r#"{"problem": "2+2?", "answer": "4"}"#;

#[test]
fn prompts_are_what_the_chat_template_renders_and_have_no_second_beginning() {
    let folder = model();
    // The template writes the beginning-of-sequence token, and the tokenizer would add it again.
    let template = "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}>{{ enable_thinking }}";
    std::fs::write(folder.path().join("chat_template.jinja"), template).unwrap();
    let names = r#"{"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}"#;
    std::fs::write(folder.path().join("tokenizer_config.json"), names).unwrap();
    let path = folder.path().join("tokenizer.json");
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    json["post_processor"] = serde_json::json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [0], "tokens": ["<|endoftext|>"]}}
    });
    std::fs::write(&path, json.to_string()).unwrap();

    let file = data(folder.path(), &[HALF]);
    let config = config(&file, "preset = \"qwen3\"");
    let task = open(TaskKind::Math, &config, Some(folder.path())).unwrap();
    let messages = [Message::new("system", dataset::presets::BOXED), Message::new("user", "Half of 7?")];
    let options = ChatOptions { enable_thinking: Some(true), ..ChatOptions::default() };
    let text = ChatTemplate::open(folder.path()).unwrap().render(&messages, &options).unwrap();
    let prompt = task.prompt(Split::Train, 0).tokens;
    assert_eq!(task.language.text(&prompt), text);
    assert_eq!(prompt.iter().filter(|&&id| id == 0).count(), 1);
}

#[test]
fn completions_are_graded_without_their_end_token_and_solutions_are_demonstrations() {
    let folder = model();
    let file = data(folder.path(), &[HALF, SUM]);
    let task = open(TaskKind::Math, &config(&file, ""), Some(folder.path())).unwrap();
    let (half, sum) = (task.prompt(Split::Train, 0), task.prompt(Split::Train, 1));
    let demonstration = task.demonstration(&half).unwrap();
    assert_eq!(demonstration.last(), task.language.stop_tokens().first());
    assert_eq!(task.grade(&half, &demonstration).verdict, Verdict::Correct);
    assert_eq!(task.grade(&sum, &demonstration).verdict, Verdict::Wrong);
    assert_eq!(task.demonstration(&sum), None);
    assert_eq!(sum.problem.truth.gold().as_deref(), Some("4"));
}

#[test]
fn a_completion_is_graded_up_to_its_stop_text() {
    let folder = model();
    let file = data(folder.path(), &[SUM]);
    // Without the stop text the later box would be the answer; an added token remains a token.
    let config = config(&file, "stop = [\"\\nQ:\", \"<|im_start|>\"]");
    let task = open(TaskKind::Math, &config, Some(folder.path())).unwrap();
    assert_eq!(task.language.stop_texts().texts(), ["\nQ:"]);
    assert_eq!(task.language.stop_tokens().len(), 2);
    let completion = task.language.encode("so \\boxed{4}\nQ: and \\boxed{5}").unwrap();
    assert_eq!(task.grade(&task.prompt(Split::Train, 0), &completion).verdict, Verdict::Correct);
    let ended = (1..=completion.len()).find(|&n| task.language.ended(&completion[..n])).unwrap();
    assert_eq!(task.language.text(&completion[..ended]), "so \\boxed{4}\nQ:");
}

#[test]
fn held_out_problems_are_not_trained_on_and_long_prompts_are_dropped() {
    let folder = model();
    let long = format!(r#"{{"problem": "{}", "answer": "1"}}"#, "very ".repeat(200));
    let file = data(folder.path(), &[HALF, SUM, &long]);
    let held_out = folder.path().join("held-out.jsonl");
    std::fs::write(&held_out, SUM).unwrap();
    let config = TextConfig { held_out: Some(held_out), ..config(&file, "max_prompt_tokens = 100") };
    let task = open(TaskKind::Math, &config, Some(folder.path())).unwrap();
    assert_eq!((task.len(Split::Train), task.len(Split::HeldOut)), (1, 1));
    assert_eq!(task.prompt(Split::Train, 0).problem.question(), "Half of 7?");
}

#[test]
fn problems_and_models_that_cannot_be_used_are_refused_by_file_and_key() {
    let folder = model();
    let held_out = format!("held_out = {:?}", data(folder.path(), &[]));
    for (row, settings, words) in [
        ("", "", "data.jsonl"),
        ("not json", "", "data.jsonl"),
        (r#"{"problem": "2+2?"}"#, "", "data.jsonl|answer"),
        (r#"{"problem": "2+2?", "answer": ""}"#, "", "data.jsonl|answer"),
        (
            SUM,
            "held_out_share = 0.999",
            "data.jsonl|all 1 problems are held out with task.held_out_share = 0.999",
        ),
        (SUM, "max_prompt_tokens = 2", "longer than 2 tokens|max_prompt_tokens"),
        (SUM, "columns = { answer = \"final\" }", "data.jsonl|final"),
        (SUM, "stop = [\"\"]", "task.stop: "),
        (SUM, &held_out, "all of its problems are also in task.held_out|a file of other problems"),
    ] {
        let file = data(folder.path(), &[row]);
        let text = format!("kind = \"math\"\ndata = {file:?}\n{settings}\n");
        let share = if settings.contains("held_out_share") { "" } else { "held_out_share = 0" };
        let config: TextConfig = toml::from_str(&format!("{text}{share}")).unwrap();
        let error = format!("{:#}", open(TaskKind::Math, &config, Some(folder.path())).err().unwrap());
        assert!(words.split('|').all(|word| error.contains(word)), "{row} {settings}: {error}");
    }
    // A folder without a template, and one without a tokenizer.
    let file = data(folder.path(), &[SUM]);
    for (name, words) in [("chat_template.jinja", "chat template"), ("tokenizer.json", "tokenizer.json")] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
        let error =
            format!("{:#}", open(TaskKind::Math, &config(&file, ""), Some(folder.path())).err().unwrap());
        assert!(error.contains(folder.path().to_str().unwrap()) && error.contains(words), "{error}");
    }
    let error = format!("{:#}", open(TaskKind::Math, &config(&file, ""), None).err().unwrap());
    assert!(error.contains("task.tokenizer: this key is missing"), "{error}");
}

#[test]
fn a_share_held_out_by_hash_stays_when_the_file_grows() {
    let folder = model();
    let lines: Vec<String> =
        (0..200).map(|i| format!(r#"{{"problem": "{i}+1?", "answer": "{}"}}"#, i + 1)).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let questions = |n: usize| {
        let file = data(folder.path(), &lines[..n]);
        let config = TextConfig { held_out_share: 0.2, ..config(&file, "") };
        let task = open(TaskKind::Math, &config, Some(folder.path())).unwrap();
        assert_eq!(task.len(Split::Train) + task.len(Split::HeldOut), n as u64);
        (0..task.len(Split::HeldOut))
            .map(|i| task.prompt(Split::HeldOut, i).problem.question().to_owned())
            .collect::<Vec<_>>()
    };
    let (few, many) = (questions(100), questions(200));
    assert!(!few.is_empty() && many.len() < 100, "{} {}", few.len(), many.len());
    assert_eq!(few[..], many[..few.len()]);
}

#[test]
fn completions_of_every_kind_are_graded_by_its_verifier() {
    let folder = model();
    let puzzle = {
        let mut draws = fgrpo_core::rng::Key::new(5).stream();
        let sudoku = fgrpo_verify::synlogic::Task::Sudoku;
        fgrpo_verify::synlogic::generate(sudoku, 1, 0, &mut || draws.bits()).unwrap()
    };
    let solved = format!("<think>so</think>\n<answer>{}</answer>", puzzle.solution);
    let unsolved = "<think>so</think>\n<answer>[]</answer>";
    let puzzle_row = serde_json::json!({
        "data_source": "sudoku",
        "prompt": [{"role": "user", "content": puzzle.question}],
        "extra_info": {"game_data_str": puzzle.game_data_str()},
    })
    .to_string();
    let choice = r#"{"Question": "Which?", "Correct Answer": "this", "Incorrect Answer 1": "a", "Incorrect Answer 2": "b", "Incorrect Answer 3": "c"}"#;
    let follow =
        r#"{"key": 1, "prompt": "Say it.", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}"#;
    let custom = r#"{"prompt": "Say it.", "worth": 1}"#;
    let tested = r#"{"prompt": "Add one.", "test_list": ["assert add(1) == 2"]}"#;
    let schema = r#"{"prompt": "Ada's age?", "schema": {"required": ["age"], "properties": {"age": {"type": "integer"}}}}"#;
    let pattern = r#"{"prompt": "6 x 7?", "pattern": "\\b42\\b"}"#;
    let program = "max_prompt_tokens = 9000\n[verifier.command]\ncommand = [\"python3\", \"-u\", \"-c\", \"import sys, json\\nfor l in sys.stdin:\\n d = json.loads(l); print(json.dumps({'score': d['problem']['worth'] * ('yes' in d['completion'])}))\"]";
    let script = "def reward(completion, worth, **columns):\n    return worth * ('yes' in completion)\n";
    let function = folder.path().join("grade.py");
    std::fs::write(&function, script).unwrap();
    let function = format!("max_prompt_tokens = 9000\ngrader = \"{}:reward\"", function.display());
    let longer = "max_prompt_tokens = 9000";
    for &(kind, ..) in TaskKind::NAMES {
        let (row, settings, right, wrong) = match kind {
            // An environment grades episodes, not texts.
            TaskKind::Maze | TaskKind::Environment => continue,
            TaskKind::Math => (HALF, longer, "so \\boxed{7/2}", "\\boxed{3}"),
            TaskKind::Choice => (choice, longer, "", "\\boxed{Z}"),
            TaskKind::IfEval => (follow, longer, "no commas here", "one, comma"),
            TaskKind::SynLogic => (puzzle_row.as_str(), longer, solved.as_str(), unsolved),
            TaskKind::Code => (tested, longer, "def add(x): return x + 1", "def add(x): return x"),
            TaskKind::JsonSchema => (schema, longer, "so:\n```json\n{\"age\": 3}\n```", "{\"age\": \"3\"}"),
            TaskKind::Regex => (pattern, longer, "it is 42.", "it is 41."),
            TaskKind::Command => (custom, program, "yes", "no"),
            TaskKind::Python => (custom, function.as_str(), "yes", "no"),
        };
        let file = data(folder.path(), &[row]);
        let task = open(kind, &config(&file, settings), Some(folder.path())).unwrap();
        let prompt = task.prompt(Split::Train, 0);
        let right = match kind {
            // The options are shuffled, so the correct letter is looked up.
            TaskKind::Choice => format!("\\boxed{{{}}}", prompt.problem.truth.gold().unwrap()),
            _ => right.to_owned(),
        };
        let verdict = |text: &str| {
            let graded = task.grade(&prompt, &task.language.encode(text).unwrap());
            (graded.verdict, graded.reason)
        };
        assert_eq!(verdict(&right).0, Verdict::Correct, "{kind}: {:?}", verdict(&right));
        assert_ne!(verdict(wrong).0, Verdict::Correct, "{kind}: {:?}", verdict(wrong));
        assert_ne!(verdict(wrong).0, Verdict::Unscorable, "{kind}: {:?}", verdict(wrong));
    }
}

fn parse(parts: &str) -> anyhow::Result<Config> {
    let sizes = "hidden_size = 8\nintermediate_size = 8\nnum_hidden_layers = 1\nnum_attention_heads = 1\nnum_key_value_heads = 1";
    Config::parse(&format!("steps = 1\n[model.init]\n{sizes}\n[task]\nkind = \"mix\"\n{parts}"), &[])
}

fn mix(parts: &str) -> Task {
    let config = parse(parts).unwrap();
    assert_eq!(Config::parse(&config.to_toml(), &[]).unwrap(), config, "{}", config.to_toml());
    Task::open(&config).unwrap()
}

fn choices(folder: &Path) -> String {
    let path = folder.join("choices.jsonl");
    let lines: Vec<String> = (0..20)
        .map(|i| {
            format!(
                r#"{{"Question": "Which is {i}?", "Correct Answer": "{i}", "Incorrect Answer 1": "x{i}", "Incorrect Answer 2": "y{i}", "Incorrect Answer 3": "z{i}"}}"#
            )
        })
        .collect();
    std::fs::write(&path, lines.join("\n")).unwrap();
    format!("{:?}", path.display().to_string())
}

const ARITHMETIC: &str = "[[task.parts]]\nkind = \"arithmetic\"\ntrain = 30\nheld_out = 6\n";

#[test]
fn every_part_brings_its_prompts_its_verifier_and_its_held_out_problems() {
    let folder = tempfile::tempdir().unwrap();
    let data = choices(folder.path());
    let task = mix(&format!(
        "{ARITHMETIC}weight = 2.0\n[[task.parts]]\nname = \"options\"\nkind = \"choice\"\ndata = {data}\nsystem = \"Choose.\"\nheld_out_share = 0.3\n"
    ));
    let parts = task.held_out();
    let names: Vec<&str> = parts.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(names, ["arithmetic", "options"]);
    let held_out = parts.iter().map(|p| p.problems.len() as u64).sum::<u64>();
    assert_eq!((parts[0].problems.len(), task.len(Split::HeldOut)), (6, held_out));
    assert_eq!(task.len(Split::Train) + held_out, 30 + 6 + 20);
    let text = |split, id| task.language.text(&task.prompt(split, id).tokens);
    assert!(!text(Split::Train, 29).contains("Choose."));
    assert!(text(Split::Train, 30).contains("Choose."));
    assert_eq!(task.prompt(Split::HeldOut, 7).id, 7);
    // One part expects a letter in a box, the other a number.
    for id in [3, 30] {
        let gold = task.prompt(Split::Train, id).problem.truth.gold().unwrap();
        let answer = task.language.encode(&format!("\\boxed{{{gold}}}")).unwrap();
        let verdict = |id| task.grade(&task.prompt(Split::Train, id), &answer).verdict;
        assert_eq!((verdict(id), verdict(33 - id)), (Verdict::Correct, Verdict::Wrong), "{id}");
    }
    let demonstrates = |id| task.demonstration(&task.prompt(Split::Train, id)).is_some();
    assert!(demonstrates(29) && !demonstrates(30));
}

#[test]
fn the_longest_prompt_of_a_mix_is_that_of_any_part() {
    let folder = tempfile::tempdir().unwrap();
    let data = choices(folder.path());
    // The part with the longer completions has the shorter prompts.
    let task = mix(&format!(
        "{ARITHMETIC}fewest_operations = 60\nmost_operations = 60\n[[task.parts]]\nkind = \"choice\"\ndata = {data}\n"
    ));
    let longest = |split| (0..task.len(split)).map(|id| task.prompt(split, id).tokens.len()).max().unwrap();
    let longest = longest(Split::Train).max(longest(Split::HeldOut));
    assert_eq!(task.longest_prompt(), longest);
    assert!(longest > task.context() - task.max_new_tokens(), "the test's prompts don't tell");
}

#[test]
fn prompts_follow_the_weights_and_each_part_its_own_epochs() {
    let task = mix(&format!(
        "{ARITHMETIC}weight = 2.0\n{ARITHMETIC}name = \"b\"\nseed = 1\n{ARITHMETIC}name = \"c\"\nseed = 2\nweight = 0.0\n"
    ));
    assert_eq!((task.len(Split::Train), task.len(Split::HeldOut)), (60, 18));
    let ids = task.training(Key::new(5), 0..90);
    let part_a: Vec<u64> = ids.iter().copied().filter(|&id| id < 30).collect();
    let part_b: Vec<u64> = ids.iter().copied().filter(|&id| id >= 30).collect();
    assert_eq!((part_a.len(), part_b.len()), (60, 30));
    for epoch in part_a.chunks(30).chain(part_b.chunks(30)) {
        assert_eq!(epoch.iter().collect::<HashSet<_>>().len(), 30, "a pass shows every problem once");
    }
    assert_ne!(part_a[..30], part_a[30..], "each pass is an order of its own");
    // A slice of the sequence equals the same slice of the whole sequence.
    assert_eq!(task.training(Key::new(5), 37..52), ids[37..52]);
    assert_ne!(task.training(Key::new(6), 0..90), ids);
}

#[test]
fn what_one_part_holds_out_no_part_trains_on() {
    let alone = mix(&format!("{ARITHMETIC}name = \"a\"\nseed = 1\n"));
    let both = mix(&format!(
        "{ARITHMETIC}name = \"a\"\nseed = 1\n[[task.parts]]\nname = \"b\"\nkind = \"arithmetic\"\nheld_out = 300\nseed = 4\nweight = 0.0\nfewest_operations = 1\nmost_operations = 1\n[[task.parts]]\nname = \"c\"\nkind = \"arithmetic\"\ntrain = 300\nheld_out = 1\nseed = 5\nfewest_operations = 1\nmost_operations = 1\n"
    ));
    assert_eq!(alone.parts[0].len(Split::Train), 30);
    let held_out: HashSet<&str> = both.parts.iter().flat_map(|p| p.held_out_ids()).collect();
    let trained = &both.parts[2];
    assert!(trained.len(Split::Train) < 300, "none of 300 short problems is held out elsewhere");
    let mut ids =
        (0..trained.len(Split::Train)).map(|i| trained.problem(Split::Train, i, &both.language).1.id);
    assert!(ids.all(|id| !held_out.contains(id.as_str())));
    assert_eq!(both.parts[1].len(Split::Train), 0);
}

#[test]
fn parts_that_cannot_be_mixed_are_refused_by_number_and_name() {
    for (parts, says) in [
        ("parts = []\n".to_owned(), "no part has a weight above 0"),
        (format!("{ARITHMETIC}weight = 0.0\n"), "no part has a weight above 0"),
        (format!("{ARITHMETIC}weight = -1.0\n"), "number 1 (arithmetic): weight: "),
        (format!("{ARITHMETIC}{ARITHMETIC}"), "number 2 (arithmetic): name: \"arithmetic\""),
        ("[[task.parts]]\nkind = \"maze\"\n".to_owned(), "kind: expected a text task, found maze"),
        (format!("{ARITHMETIC}most_operations = 99\n"), "task.most_operations: "),
        (format!("{ARITHMETIC}colour = 1\n"), "colour"),
        (
            "[[task.parts]]\nkind = \"math\"\ndata = \"d\"\ntokenizer = \"t\"\n".to_owned(),
            "tokenizer: set task.tokenizer",
        ),
    ] {
        let error = format!("{:#}", parse(&parts).unwrap_err());
        assert!(error.contains(says), "{parts}: {error}");
    }
}
