//! Tables and figures from results, plans at both scales, and the constants of the configurations.

use super::data::item;
use super::made::Made;
use super::plan::{self, Options, Plan, Scale};
use super::results::Results;
use super::{config_text, described};
use fgrpo_eval::dataset::presets::{Family, Preset};
use fgrpo_eval::dumps;
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_eval::table::Table;
use fgrpo_train::config::Config;
use fgrpo_train::run::metrics::Metrics;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A folder of results.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the value `NAME=PATH` or `PATH` of `--from` with the path inside the folder.
    fn from(&self, text: &str) -> String {
        let (name, path) = text.split_once('=').map_or((String::new(), text), |(n, p)| (format!("{n}="), p));
        format!("{name}{}", self.at(path).display())
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        std::fs::write(self.at(name), text).unwrap();
    }

    fn lines(&self, name: &str, lines: impl IntoIterator<Item = Value>) {
        self.write(name, &lines.into_iter().map(|line| format!("{line}\n")).collect::<String>());
    }

    /// Writes a file of counts: problems with `n` samples each, of which `correct` are correct.
    fn counts(&self, name: &str, problems: u64, n: u64, correct: u64) {
        self.lines(name, (0..problems).map(|i| json!({"problem": i, "n": n, "c": correct})));
    }

    /// Writes a run folder as a training writes it.
    fn run(&self, name: &str, config: &str, evaluations: &str) {
        self.write(&format!("{name}/config.toml"), config);
        self.write(&format!("{name}/eval.jsonl"), evaluations);
    }

    fn results(&self, from: &[&str]) -> anyhow::Result<Results> {
        Results::open(&from.iter().map(|text| self.from(text)).collect::<Vec<_>>())
    }

    /// Makes a table or figure from these results.
    #[track_caller]
    fn made(&self, name: &str, from: &[&str]) -> Made {
        plan::from_results(item(name).unwrap(), self.results(from).unwrap()).unwrap()
    }

    #[track_caller]
    fn refused(&self, name: &str, from: &[&str]) -> String {
        let made = self.results(from).and_then(|results| plan::from_results(item(name).unwrap(), results));
        format!("{:#}", made.err().unwrap())
    }
}

/// Rows of a table as texts.
fn texts(table: &Table) -> Vec<Vec<String>> {
    let cell = |cell: &fgrpo_eval::table::Cell| {
        cell.parts.iter().map(|part| part.text.as_str()).collect::<Vec<_>>().join("/")
    };
    table.rows.iter().map(|row| row.iter().map(cell).collect()).collect()
}

/// The lines of a file of values.
fn values(made: &Made) -> Vec<String> {
    texts(&made.values[0].1).iter().map(|row| row.join(",")).collect()
}

/// The value here of a table, by the name of a row, the column and the part of the cell.
#[track_caller]
fn here(made: &Made, row: &str, column: &str, part: u32) -> String {
    let (start, place) = (format!("{row},"), format!(",{column},{part},"));
    let all = values(made);
    let line = all.iter().find(|line| line.starts_with(&start) && line.contains(&place));
    let line = line.unwrap_or_else(|| panic!("no {row}, {column}: {all:#?}"));
    line.split_once(&place).unwrap().1.split(',').next().unwrap().to_owned()
}

/// Notes and effects, which the command prints below the table.
fn said(made: &Made) -> String {
    let effects = texts(&made.effects).into_iter().map(|row| row.join("  "));
    made.notes.iter().cloned().chain(effects).collect::<Vec<_>>().join("\n")
}

/// Evaluations of `set` in a run: at each step, the given number of samples of each problem is correct.
fn evaluated(set: &str, samples: u64, correct: &[(u64, u64)]) -> String {
    let line = |&(step, correct): &(u64, u64)| {
        let pass_at_1 = correct as f64 / samples as f64;
        let line = json!({
            "step": step, "set": set, "problems": 3, "samples": samples, "pass_at_k": {"1": pass_at_1}, "interval": {},
            "problem_set": "a", "per_problem": [correct, correct, correct], "completion_length_mean": 1.0,
            "unscorable": 0, "examples": [],
        });
        format!("{line}\n")
    };
    correct.iter().map(line).collect()
}

fn sources(folder: &Path) -> String {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let text = |path: PathBuf| match path.is_dir() {
        true => sources(&path),
        false if path.extension().is_some_and(|e| e == "rs") => std::fs::read_to_string(path).unwrap(),
        false => String::new(),
    };
    paths.map(text).collect()
}

#[test]
fn the_notation_names_what_exists() {
    let numbers: toml::Table = include_str!("numbers.toml").parse().unwrap();
    let notation = numbers["table"].as_array().unwrap().last().unwrap();
    let mut seen = 0;
    for row in notation["rows"].as_array().unwrap() {
        let name = row["cells"][1].as_str().unwrap();
        let Some((home, _)) = name.split_once("::") else { continue };
        let folder = format!("{}/../{}/src", env!("CARGO_MANIFEST_DIR"), home.trim_start_matches("fgrpo_"));
        let (last, text) = (name.rsplit("::").next().unwrap(), sources(Path::new(&folder)));
        let kinds = ["fn", "struct", "enum", "trait"];
        assert!(kinds.iter().any(|kind| text.contains(&format!("{kind} {last}"))), "{name} does not exist");
        seen += 1;
    }
    assert_eq!(seen, 38);
}

/// Our prompt in the notation of the paper's table. Llama's chat template writes its header itself.
fn prompt(kind: &str, family: Family) -> String {
    let preset = Preset::paper(family, TaskKind::from_name(kind).unwrap());
    let system = preset.system.unwrap_or_default();
    let thinking = if preset.thinking == Some(true) { "Thinking: on." } else { "Thinking: off." };
    let header = r"Cutting Knowledge Date: December 2023\nToday Date: [date]";
    match (family, system.as_str()) {
        (Family::Qwen25, _) => system,
        (Family::Qwen3, "") => format!("No system prompt. {thinking}"),
        (Family::Qwen3, _) => format!("System: {system} {thinking}"),
        (Family::Llama32, "") => header.to_owned(),
        (Family::Llama32, _) => format!(r"{header}\n{system}"),
    }
}

/// The value of a configuration's key, as the paper prints it.
fn constant(config: &toml::Table, key: &str) -> String {
    let whole = toml::Value::Table(config.clone());
    match key.split('.').fold(&whole, |value, part| &value[part]).clone() {
        // 0 is off, which the paper writes as -1.
        toml::Value::Integer(0) if key.ends_with("top_k") => "-1".to_owned(),
        toml::Value::Array(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        toml::Value::Float(value) if value < 1e-3 => format!("{value:e}"),
        toml::Value::String(text) => text,
        value => value.to_string(),
    }
}

#[test]
fn configurations_and_prompts_have_the_papers_constants() {
    let numbers: toml::Table = include_str!("numbers.toml").parse().unwrap();
    let list = |value: &toml::Value| value.as_array().cloned().unwrap_or_default();
    let word = |value: &toml::Value| value.as_str().unwrap().to_owned();
    let mut seen = 0;
    for table in &list(&numbers["table"])[5..8] {
        let (columns, rows) = (list(&table["columns"]), list(&table["rows"]));
        for (row, i) in rows.iter().flat_map(|row| (0..columns.len()).map(move |i| (row, i))) {
            let (title, text) = (word(&columns[i]["title"]), word(&list(&row["cells"])[i]));
            for model in list(&numbers["model"]) {
                if title != "Value" && !title.contains(model["name"].as_str().unwrap()) {
                    continue;
                }
                let actual = match (row.get("task"), row.get("keys")) {
                    (Some(kind), _) => {
                        prompt(&word(kind), Family::from_name(&word(&model["family"])).unwrap())
                    }
                    (None, None) => continue,
                    (None, Some(keys)) => {
                        let config = Config::parse(config_text(&word(&model["config"])), &[]).unwrap();
                        let config = config.to_toml().parse().unwrap();
                        let all: Vec<String> =
                            list(keys).iter().map(|key| constant(&config, &word(key))).collect();
                        all.join(", ")
                    }
                };
                let expected = text.trim_matches(['(', ')']);
                assert!(actual.eq_ignore_ascii_case(expected), "{title}: {actual}, {expected}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 12 * 4 + 2 * 4 * 4);
}

#[test]
fn a_name_says_which_row_a_folder_is_and_fewer_samples_leave_cells_empty() {
    let place = Place::new();
    for (name, correct) in [("a/math500", 32), ("a/gsm8k", 32), ("b/math500", 48)] {
        place.counts(&format!("{name}.jsonl"), 10, 64, correct);
    }
    let named = ["GRPO-KL=a", "F-GRPO=b"];
    let made = place.made("table-13", &named);
    let value = |row: &str, part: u32| here(&made, row, "MATH500", part);
    assert_eq!((value("GRPO-KL", 1), value("F-GRPO", 1)), ("50.000000".into(), "75.000000".into()));
    assert_eq!(value("F-GRPO", 2), "");
    let notes = said(&made);
    assert!(notes.contains("pass@256 needs 256 scored samples of every problem, found 64"), "{notes}");
    assert!(notes.contains("not used: samples of gsm8k"), "{notes}");
    let lines = described(item("table-13").unwrap(), place.results(&named).unwrap()).unwrap().join("\n");
    assert!(lines.contains("DARO: nothing") && lines.contains(&place.from("a")), "{lines}");
    // A row that the table doesn't have, a benchmark that it doesn't have, no samples, and a missing path.
    place.counts("next/F-GRPO/aime26.jsonl", 30, 256, 32);
    let unknown = place.refused("table-13", &["next"]);
    assert!(unknown.contains("not used: samples of aime26") && !unknown.contains("no results"), "{unknown}");
    assert!(place.refused("table-13", &["mine=a"]).contains("rows: Base, GRPO low-LR"));
    std::fs::create_dir(place.at("empty")).unwrap();
    let empty = place.refused("table-13", &["empty"]);
    assert!(empty.contains("neither samples of fgrpo eval, verl or lm-eval"), "{empty}");
    assert!(place.refused("table-13", &["absent"]).contains("there is no such file"));
}

#[test]
fn reported_values_fill_the_columns_that_are_not_of_samples() {
    let place = Place::new();
    let models =
        json!([{"model": "GRPO-N2", "nll": 1.2, "increase": 0.21}, {"model": "GRPO", "increase": 0.3}]);
    place.write("nll.json", &json!({ "models": models }).to_string());
    let made = place.made("table-2", &["nll=nll.json"]);
    let row = texts(&made.table).into_iter().find(|row| row[0] == "GRPO N=2").unwrap().join("  ");
    assert!(row.ends_with("  0.21 (0.19)") && row.contains("(36.2)/(75.0)"), "{row}");
    let notes = said(&made);
    assert!(notes.contains("empty, because no samples of math500: GRPO-N2"), "{notes}");
    assert!(notes.contains("nll.json), whose name fits several rows"), "{notes}");
    let rows = json!([{"benchmark": "AIME24", "values": [0.01, 0.02]}, {"benchmark": "All Math", "values": [0.03, 0.04]}]);
    let distances = json!({"folders": ["x/GRPO", "x/F-GRPO"], "diversity": rows});
    place.write("distances.json", &distances.to_string());
    let made = place.made("table-14", &["embeddings=distances.json"]);
    let cells = texts(&made.table).concat().join("  ");
    assert!(cells.contains("0.0200 (0.0179)") && cells.contains("0.0400 (0.0184)"), "{cells}");
}

#[test]
fn full_scale_finds_files_by_their_usual_names_and_shares_runs_between_items() {
    let place = Place::new();
    let plan = |name: &str| {
        let options = Options { out: "out".into(), set: Vec::new(), root: place.at("") };
        Plan::of(item(name).unwrap(), Scale::Full, &options)
    };
    assert_eq!(plan("table-1").unwrap().missing().len(), 13);
    for name in
        ["aime_2024.parquet", "MATH-500.jsonl.gz", "gpqa_diamond.csv", "synlogic.parquet", "notes.txt"]
    {
        place.write(&format!("data/{name}"), "");
    }
    std::fs::create_dir_all(place.at("data/OlympiadBench")).unwrap();
    let lines = plan("table-1").unwrap().lines().unwrap().join("\n");
    // SynLogic's training problems are not its validation problems.
    assert!(lines.matches("  there: ").count() == 4 && lines.contains("data/synlogic.jsonl from"), "{lines}");
    place.write("data/aime24.jsonl", "");
    assert!(format!("{:#}", plan("table-1").err().unwrap()).contains("aime24.jsonl"));
    std::fs::remove_dir_all(place.at("data")).unwrap();
    // Items share runs with the same model and setting, and no others. The maze and a figure of training need no evaluations.
    for (name, config, trainings, model, evaluated) in [
        ("table-1", "qwen2.5-7b-math.toml", 18, "Qwen2.5-7B", true),
        ("table-3", "qwen3-1.7b-synlogic.toml", 6, "Qwen3-1.7B", true),
        ("table-10", "llama-3.2-3b-math.toml", 36, "Qwen2.5-7B", true),
        ("table-14", "qwen2.5-7b-math.toml", 2, "Qwen2.5-7B", true),
        ("figure-9", "qwen3-4b-base-math.toml", 2, "", false),
        ("figure-6", "maze-17.toml", 18, "", false),
    ] {
        let plan = plan(name).unwrap();
        let lines = plan.lines().unwrap().join("\n");
        assert!(lines.contains(config), "{lines}");
        assert_eq!(lines.matches("  fgrpo train configs/").count(), trainings, "{name}: {lines}");
        assert_eq!(plan.needs_evaluations(), evaluated, "{name}");
        let shared = format!("--out out/full/{model}/grpo-gamma-0-N8 ");
        assert!(lines.contains(&shared) || model.is_empty(), "{name}: {lines}");
    }
}

#[test]
fn the_laptop_plans_runs_as_commands() {
    let lines = |name: &str, set: &[&str]| {
        let set = set.iter().map(|&set| set.to_owned()).collect();
        let options = Options { out: "out".into(), set, root: ".".into() };
        Plan::of(item(name).unwrap(), Scale::Laptop, &options).unwrap().lines().unwrap().join("\n")
    };
    assert_eq!(lines("table-5", &[]).matches("fgrpo train configs/maze-long.toml").count(), 9);
    assert!(lines("table-2", &["task.train=64"]).contains("of the start's evaluation under each model"));
}

#[test]
fn run_folders_give_the_mazes_table_and_figures() {
    let place = Place::new();
    for (n, gamma, seed) in [4, 8].into_iter().flat_map(|n| {
        ["0", "0.5"].into_iter().flat_map(move |gamma| [1, 2].map(move |seed| (n, gamma, seed)))
    }) {
        let name = format!("runs/group-size-{n}_focal-gamma-{gamma}_seed-{seed}");
        let set = [
            format!("rollout.group_size={n}"),
            format!("algorithm.focal_gamma={gamma}"),
            format!("seed={seed}"),
            "steps=4".into(),
            "task.size=7".into(),
            "eval.every=2".into(),
            "eval.samples=32".into(),
            "eval.k=[1, 8]".into(),
        ];
        let config = Config::parse(config_text("maze-long.toml"), &set).unwrap().to_toml();
        place.run(&name, &config, &evaluated("held-out", 32, &[(0, 4), (2, 8), (4, 16 - seed)]));
        let step = |step: u64| {
            let mut line = Metrics::default().line();
            (line["step"], line["reward_mean"]) = (step.into(), (0.1 * step as f64).into());
            line
        };
        place.lines(&format!("{name}/metrics.jsonl"), (1..=4).map(step));
    }
    let made = |name: &str| place.made(name, &["runs"]);
    let table = made("table-5");
    let notes = said(&table);
    assert!(notes.contains("pass@128 needs 128 scored samples of every problem, found 32"), "{notes}");
    assert!(notes.contains("F-GRPO-gamma-0.5-N8 against GRPO-N8"), "{notes}");
    // These mazes are smaller than the paper's.
    let other = "here: 7x7 mazes after 4 steps (8 runs); the paper: 17x17 mazes after 20,000 steps";
    let sizes = made("figure-6");
    assert!(notes.contains(other) && said(&sizes).contains(other), "{notes}");
    assert!(values(&sizes).iter().any(|line| line.starts_with("maze,8,0.5,1,2,")), "two seeds");
    let results = place.results(&["runs"]).unwrap();
    let lines = described(item("table-13").unwrap(), results).unwrap().join("\n");
    assert!(lines.contains("\nF-GRPO-N8: /") && lines.contains("focal-gamma-0.5_seed-2"), "{lines}");
    let names: Vec<String> = made("figure-7").figures.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["figure-7-N4", "figure-7-N8"]);
    // The tables and the figure of language models, with these runs as replacements.
    let table = made("table-12");
    assert!(table.table.header.iter().any(|title| title == "maze (Avg.)"), "{:?}", table.table.header);
    let rows: Vec<String> = texts(&table.table).into_iter().map(|mut row| row.swap_remove(0)).collect();
    let ours =
        |row: &&String| row.starts_with("GRPO N=") || row.starts_with("F-GRPO N=") || *row == "F-GRPO-N4";
    // N = 4 and 8, with and without a focal weight, one of which the paper doesn't have.
    assert_eq!(rows.iter().filter(ours).count(), 4, "{rows:?}");
    let table = made("table-13");
    assert!(texts(&table.table).iter().any(|row| row[0] == "Base"));
    assert!(said(&table).contains("F-GRPO-N8 against GRPO-N8"));
    let lines = values(&made("figure-1"));
    let lost =
        lines.iter().filter(|l| l.starts_with("lost of the start,") && l.split(',').nth(2) == Some("0"));
    assert_eq!(lost.count(), 2, "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains("NaN")), "{lines:#?}");
    // A run that was stopped after its first evaluations doesn't count as trained.
    let stopped = "runs/group-size-8_focal-gamma-0.5_seed-2";
    place.write(&format!("{stopped}/eval.jsonl"), &evaluated("held-out", 32, &[(0, 4), (2, 8)]));
    let why = "isn't finished: its last evaluation is at step 2 of 4";
    let sizes = made("figure-6");
    assert!(values(&sizes).iter().any(|line| line.starts_with("maze,8,0.5,1,1,")), "one seed");
    assert!(said(&sizes).contains(why) && said(&made("table-5")).contains(why));
    let error = place.refused("figure-6", &[stopped]);
    assert!(error.contains("finished") && error.contains(why), "{error}");
}

#[test]
fn a_dot_in_a_folders_name_is_no_ending() {
    let place = Place::new();
    let config = config_text("qwen3-4b-base-math.toml");
    let config = config.replace("epochs = 10", "steps = 50").replace("every = \"epoch\"", "every = 50");
    for (name, gamma, correct) in [("grpo-gamma-0-N8", "0", 8), ("grpo-gamma-0.5-N8", "0.5", 16)] {
        let config = config.replace("focal_gamma = 0.5", &format!("focal_gamma = {gamma}"));
        place.run(name, &config, &evaluated("held-out", 64, &[(0, 4), (25, correct), (50, correct)]));
    }
    let (base, focal) = ("grpo-gamma-0-N8", "grpo-gamma-0.5-N8");
    let lines = described(item("figure-8").unwrap(), place.results(&[base, focal]).unwrap()).unwrap();
    assert_eq!(lines, [format!("GRPO: {}", place.from(base)), format!("F-GRPO: {}", place.from(focal))]);
    // Evaluations with the same names.
    place.counts("e/GRPO/math500.jsonl", 5, 256, 64);
    place.counts("e/GRPO-gamma-0.5/math500.jsonl", 5, 256, 128);
    let made = place.made("table-11", &["e/GRPO", "e/GRPO-gamma-0.5"]);
    let value = |row: &str| here(&made, row, "MATH500", 1);
    assert_eq!((value("GRPO"), value("F-GRPO \u{3b3}=0.5")), ("25.000000".into(), "50.000000".into()));
}

#[test]
fn results_of_one_name_are_its_seeds_or_other_benchmarks_and_a_path_counts_once() {
    let place = Place::new();
    place.counts("a/aime24.jsonl", 5, 256, 64);
    place.counts("b/aime24/aime24.jsonl", 5, 256, 128);
    place.counts("b/math500.jsonl", 5, 256, 64);
    let table = |from: &[&str]| {
        let made = place.made("table-13", from);
        (["AIME24", "MATH500"].map(|name| here(&made, "F-GRPO", name, 1)), said(&made))
    };
    assert_eq!(table(&["F-GRPO=a", "F-GRPO=b"]).0, ["37.500000", "25.000000"]);
    assert_eq!(table(&["F-GRPO=a", "f_grpo=b"]).0, ["37.500000", "25.000000"]);
    // A file next to another benchmark's folder is read too.
    assert_eq!(table(&["F-GRPO=a/aime24.jsonl", "F-GRPO=b/math500.jsonl"]).0, ["25.000000"; 2]);
    for again in ["F-GRPO=b", "F-GRPO=b/../b", "f-grpo=b/aime24"] {
        let (found, notes) = table(&["F-GRPO=a", "F-GRPO=b", again]);
        assert_eq!(found[0], "37.500000", "{again}");
        assert!(notes.contains("gives again: each counts once"), "{notes}");
    }
}

#[test]
fn runs_of_one_row_differ_in_their_seeds_alone() {
    let place = Place::new();
    let config = config_text("maze-17.toml");
    let run = |name: &str, was: &str, is: &str, correct: u64| {
        assert!(config.contains(was), "{was}");
        let evaluations = evaluated("held-out", 256, &[(0, 8), (20_000, correct)]);
        place.run(name, &config.replace(was, is), &evaluations);
    };
    run("seeds/1", "seed = 1\nsteps", "seed = 1\nsteps", 64);
    run("seeds/2", "seed = 1\nsteps", "seed = 2\nsteps", 128);
    run("rates/1", "lr = 1e-4", "lr = 1e-4", 64);
    run("rates/2", "lr = 1e-4", "lr = 1e-3", 128);
    run("lengths/1", "every = 250", "every = 500", 64);
    run("lengths/2", "steps = 20_000", "steps = 10_000", 128);
    let value = |made: &Made| here(made, "8", "pass@1 \u{3b3}=0.5", 1);
    let made = place.made("table-5", &["seeds"]);
    assert_eq!(value(&made), "37.500000");
    // The paper's maze size and number of steps.
    assert!(!said(&made).contains("measure other things"));
    for (of, key) in [("rates", "update.lr: 0.0001 -> 0.001"), ("lengths", "steps: 20000 -> 10000")] {
        for name in ["table-5", "figure-6", "figure-7"] {
            let error = place.refused(name, &[of]);
            let named = [key.to_owned(), place.from(&format!("{of}/1")), place.from(&format!("{of}/2"))];
            assert!(named.iter().all(|part| error.contains(part)), "{name}: {error}");
            assert!(!error.contains("every"), "{error}");
        }
    }
    // One run under two paths isn't a second seed.
    run("copy", "seed = 1\nsteps", "seed = 1\nsteps", 64);
    for again in ["seeds/1", "copy"] {
        let made = place.made("table-5", &["seeds", again]);
        assert!(value(&made) == "37.500000" && said(&made).contains("counts once"), "{again}");
    }
}

#[test]
fn rows_on_different_problems_are_not_compared_and_numbers_of_problems_other_than_the_papers_are_said() {
    let place = Place::new();
    for of in ["aime24", "aime25", "amc23", "math500", "minerva", "olympiad"] {
        place.counts(&format!("F-GRPO/{of}.jsonl"), 5, 256, 128);
        place.counts(&format!("GRPO-KL/{of}.jsonl"), 30, 256, 64);
    }
    let made = place.made("table-13", &[""]);
    let why = "F-GRPO against GRPO-KL is not compared: different problems: ";
    let note = made.notes.iter().find(|note| note.starts_with(why)).unwrap();
    assert!(note.contains("aime24 (5 and 30 problems, 5 in both)"), "{note}");
    assert!(texts(&made.effects).iter().all(|row| row[0] != "F-GRPO against GRPO-KL"));
    let other =
        "measured on different problems than the paper's values: aime24 (5 problems, the paper 30): F-GRPO";
    assert!(made.notes.iter().any(|note| note == other), "{:#?}", made.notes);
    let row = made.table.rows.iter().find(|row| row[0] == "F-GRPO".into()).unwrap();
    assert!(row.iter().flat_map(|cell| &cell.parts).all(|part| !part.bold), "{row:?}");
}

#[test]
fn curves_through_training_are_of_the_frequent_evaluations_that_have_the_samples() {
    let place = Place::new();
    let config = config_text("qwen3-4b-base-math.toml");
    // The paper's figures 8 to 10: every 25 steps, 64 samples.
    assert!(config.contains("[eval]\nevery = 25\nproblems = 30\nsamples = 64\nk = [1, 64]\n"), "{config}");
    let config = config.replace("focal_gamma = 0.5", "focal_gamma = 0");
    let config = config.replace("epochs = 10", "steps = 50").replace("every = \"epoch\"", "every = 50");
    let points = |frequent: u64| {
        let often = evaluated("held-out", frequent, &[(0, 4), (25, 8), (50, 16)]);
        place.run("run", &config, &(often + &evaluated("held-out in full", 64, &[(0, 4), (50, 16)])));
        let made = place.made("figure-8", &["run"]);
        let lines = values(&made);
        let count = |k: &str| lines.iter().filter(|l| l.split(',').nth(3) == Some(k)).count();
        (count("1"), count("64"), said(&made).contains("pass@64 is of the evaluations in full"))
    };
    assert_eq!(points(64), (3, 3, false));
    assert_eq!(points(16), (3, 2, true));
}

#[test]
fn a_name_that_fits_several_rows_and_a_folder_of_another_model_are_refused() {
    let place = Place::new();
    place.counts("Qwen2.5-7B/GRPO/aime25.jsonl", 5, 256, 64);
    place.counts("Qwen2.5-7B/F-GRPO/aime25.jsonl", 5, 256, 64);
    let error = place.refused("table-12", &["GRPO=Qwen2.5-7B/GRPO"]);
    assert!(error.contains("fits several rows: GRPO-N2, GRPO-N4, GRPO-N8"), "{error}");
    let note = "whose name fits several rows; NAME=PATH says which: GRPO-N2, GRPO-N4";
    for name in ["table-12", "figure-1"] {
        assert!(said(&place.made(name, &["Qwen2.5-7B"])).contains(note), "{name}");
    }
    let error = place.refused("table-16", &["Qwen2.5-7B"]);
    assert!(error.contains("no value of table-16 can be made"), "{error}");
    assert!(error.contains("not used: GRPO ("), "{error}");
    place.made("table-15", &["Qwen2.5-7B"]);
}

#[test]
fn unfinished_evaluations_have_no_value_and_unscorable_samples_are_said() {
    let place = Place::new();
    let file = "F-GRPO/aime24.jsonl";
    place.lines(file, (0..30).map(|i| json!({"problem": i, "n": if i < 15 { 256 } else { 512 }, "c": 8})));
    let error = place.refused("table-13", &["F-GRPO"]);
    assert!(
        error.contains("has 256 samples and problem") && error.contains("finish the evaluation"),
        "{error}"
    );
    place.lines(file, (0..30).map(|i| json!({"problem": i, "n": 256, "c": 8, "unscorable": 256})));
    let notes = said(&place.made("table-13", &["F-GRPO"]));
    assert!(notes.contains("aime24: 50.0 % of the samples are unscorable and left out"), "{notes}");
}

#[test]
fn dumps_of_verl_and_lm_eval_are_graded_and_what_they_do_not_hold_is_said() {
    let place = Place::new();
    // Of `n` responses, `correct` have the answer in a box.
    let boxed = |n: usize, correct: usize, gold: &str| -> Vec<String> {
        (0..n).map(|i| format!("so \\boxed{{{}}}", if i < correct { gold } else { "-1" })).collect()
    };
    // verl: a line for each response, with all data sets in a file named after its step. Its scores aren't used.
    let verl = |correct: usize| -> Vec<Value> {
        let sources =
            [("math-ai/aime25", "7"), ("HuggingFaceH4/MATH-500", "\\frac12"), ("MiniMaxAI/SynLogic", "x")];
        let rows = sources.into_iter().flat_map(|(source, gold)| {
            boxed(4, correct, gold).into_iter().map(move |output| {
                json!({"input": format!("{source}?"), "output": output, "gts": gold, "score": 0.0, "step": 90, "data_source": source})
            })
        });
        rows.enumerate()
            .map(|(i, mut row)| {
                row["uid"] = format!("random-{i}_0_0").into();
                row
            })
            .collect()
    };
    place.lines("dumps/GRPO/90.jsonl", verl(1));
    // lm-eval: a line for each problem and filter.
    let lm_eval = |task: &str, lines: Vec<Value>| {
        place.lines(&format!("dumps/F-GRPO/model/samples_{task}_2026-01-01T00-00-00.000000.jsonl"), lines);
    };
    let line = |filter: &str| json!({"doc_id": 0, "doc": {}, "target": "7", "resps": [boxed(4, 3, "7")], "filter": filter});
    lm_eval("aime25", vec![line("strict"), line("loose")]);
    let kwargs = json!([{"num_words": null, "relation": null}]);
    let doc = json!({"instruction_id_list": ["punctuation:no_comma"], "kwargs": kwargs});
    lm_eval(
        "ifeval",
        vec![json!({"doc_id": 3, "doc": doc, "target": 0, "resps": [["no commas", "one, comma"]]})],
    );
    let choice = json!({"doc_id": 1, "doc": {}, "target": "(B)", "resps": [["\\boxed{B}", "\\boxed{A}"]]});
    lm_eval("gpqa_diamond_cot_zeroshot", vec![choice]);

    let made = place.made("table-13", &["dumps", "GRPO-KL=dumps/GRPO"]);
    for (row, column, value) in [
        ("GRPO-KL", "AIME25", "25.000000"),
        ("GRPO-KL", "MATH500", "25.000000"),
        ("GRPO-KL", "SynLogic", ""),
        ("F-GRPO", "AIME25", "75.000000"),
        ("F-GRPO", "IFEval", "50.000000"),
        ("F-GRPO", "GPQA", "50.000000"),
    ] {
        assert_eq!(here(&made, row, column, 1), value, "{row}, {column}");
    }
    let notes = said(&made);
    assert!(
        notes.contains("MiniMaxAI/SynLogic") && notes.contains("the dump doesn't contain the puzzles"),
        "{notes}"
    );

    // Dumps of two steps in a folder count as two models, and likelihoods aren't samples.
    place.lines("dumps/GRPO/100.jsonl", verl(2));
    let error = |name: &str| format!("{:#}", dumps::read(&place.at(name), None).err().unwrap());
    assert!(error("dumps/GRPO").contains("90.jsonl") && error("dumps/GRPO").contains("100.jsonl"));
    place.lines(
        "likelihoods/samples_arc_2026-01-01T00-00-00.000000.jsonl",
        [json!({"doc_id": 0, "target": "0", "resps": [[[-1.5, false]]]})],
    );
    assert!(error("likelihoods").contains("compares likelihoods"));
}

#[test]
fn simulations_that_cannot_run_are_refused_by_their_keys() {
    let text = "group_sizes = [2, 64, 4000]\nseeds = 2\nsteps = 60\nactions = 3000\ncorrect = 200\n";
    for (set, message) in [
        ("correct=3001", "correct: expected"),
        ("group_sizes=0", "group_sizes"),
        ("group_sizes=0,2", "group_size: expected"),
        ("group_sizes=[]", "group_sizes: the list is empty"),
        ("lr=nan", "lr: expected"),
        ("lr=fast", "lr"),
        ("lr", "KEY=VALUE"),
        ("gammas=nan", "gammas"),
        ("gammas=[-1.0]", "gamma: expected"),
        ("seeds=[1,1]", "seeds: a value is listed twice"),
        ("seeds=-1", "seeds"),
        ("steps=0", "steps: expected at least 1"),
        ("record_every=0", "record_every: expected at least 1"),
        ("surrogate=log", "surrogate"),
        ("rate=1", "unknown key `rate`"),
    ] {
        let error = super::simulate::Config::parse(text, &[set.to_owned()]).unwrap_err();
        assert!(format!("{error:#}").contains(message), "{set}: {error:#}");
    }
}
