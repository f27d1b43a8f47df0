//! `fgrpo paper`, through the command line.

use crate::support::{self, done, ends, refused, sets};
use assert_cmd::Command;
use fgrpo_eval::dataset::presets::{Family, Preset};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_train::config::Config;
use std::fmt::Write;
use std::path::Path;

/// Exit code, stdout and stderr.
fn fgrpo(args: &[&str]) -> (i32, String, String) {
    let (out, said, code) = support::run(support::fgrpo().args(args));
    (code, out, said)
}

/// Writes a file of counts: problems with `n` samples, of which the i-th has `of(i)` correct ones.
fn counts(path: &Path, problems: u64, n: u64, of: impl Fn(u64) -> u64) {
    let mut text = String::new();
    for i in 0..problems {
        writeln!(text, "{{\"problem\": {i}, \"n\": {n}, \"c\": {}}}", of(i)).unwrap();
    }
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn the_list_has_a_row_for_every_table_and_figure() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        Command::cargo_bin("fgrpo").unwrap().current_dir(&folder).args(["paper", "list"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> =
        text.lines().filter(|l| !l.starts_with(' ')).filter_map(|l| l.split_whitespace().next()).collect();
    assert_eq!(text.matches(" laptop ").count(), 19, "{text}");
    assert_eq!(text.matches(" full ").count(), 19, "{text}");
    let mut wanted: Vec<String> = (1..=17).map(|i| format!("table-{i}")).collect();
    wanted.push("notation".to_owned());
    wanted.extend((1..=10).map(|i| format!("figure-{i}")));
    assert_eq!(names, wanted);
}

#[test]
fn names_are_found_in_every_spelling_and_the_nearest_is_suggested() {
    for (name, wanted) in
        [("Table 9", "table-9"), ("fig3", "figure-3"), ("fig:tailmiss_detailed", "figure-3")]
    {
        let text = done(&["paper", name, "--dry-run"]);
        assert!(text.starts_with(&format!("{wanted}: ")), "{text}");
    }
    assert!(refused(&["paper", "figur-2"]).contains("did you mean figure-2?"));
    assert!(refused(&["paper", "table-1", "--markdown"]).contains("--markdown"));
}

#[test]
fn figures_of_the_theory_come_at_once_with_what_the_paper_states_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for (name, states) in [("figure-3", 2), ("figure-4", 2), ("figure-5", 3)] {
        let text = done(&["paper", name, "--out", out]);
        assert_eq!(text.lines().filter(|l| l.ends_with(" yes")).count(), states, "{name}: {text}");
        for ending in ["svg", "md", "tex", "csv"] {
            let size = std::fs::metadata(folder.path().join(format!("{name}.{ending}"))).unwrap().len();
            assert!(size > 100, "{name}.{ending}");
        }
    }
}

#[test]
fn constants_stand_beside_those_of_the_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    for name in ["table-6", "table-7", "table-8"] {
        let text = done(&["paper", name, "--out", out]);
        assert!(text.contains("here: the same, "), "{text}");
    }
    assert!(done(&["paper", "notation", "--out", out]).contains("focal_weight"));
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
    let numbers: toml::Table = include_str!("../../../paper/src/numbers.toml").parse().unwrap();
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
                        let path = format!(
                            "{}/../../configs/{}",
                            env!("CARGO_MANIFEST_DIR"),
                            word(&model["config"])
                        );
                        let config = Config::load(Path::new(&path), &[]).unwrap().to_toml().parse().unwrap();
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

fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|e| e == "rs") {
            text += &std::fs::read_to_string(path).unwrap();
        }
    }
    text
}

#[test]
fn the_notation_names_what_exists() {
    let numbers: toml::Table = include_str!("../../../paper/src/numbers.toml").parse().unwrap();
    let notation = numbers["table"].as_array().unwrap().last().unwrap();
    let mut seen = 0;
    for row in notation["rows"].as_array().unwrap() {
        let name = row["cells"][1].as_str().unwrap();
        let Some((home, _)) = name.split_once("::") else { continue };
        let folder = format!("{}/../{}/src", env!("CARGO_MANIFEST_DIR"), home.trim_start_matches("fgrpo_"));
        let last = name.rsplit("::").next().unwrap();
        let text = sources(Path::new(&folder));
        let defined =
            ["fn", "struct", "enum", "trait"].iter().any(|kind| text.contains(&format!("{kind} {last}")));
        assert!(defined, "{name} does not exist");
        seen += 1;
    }
    assert_eq!(seen, 38);
}

#[test]
fn evaluation_folders_give_the_papers_table_beside_its_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    for (method, more) in [("GRPO", 0), ("F-GRPO", 3)] {
        for of in ["aime24", "aime25", "amc23", "math500", "minerva", "olympiad"] {
            let file = at(&format!("evaluations/Qwen2.5-7B/{method}/{of}.jsonl"));
            counts(&file, 40, 512, |i| if i % 2 == 0 { 100 + more } else { 0 });
        }
    }
    let (from, out) = (at("evaluations"), at("out"));
    let args = ["paper", "table-1", "--from", from.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let text = done(&args);
    assert!(
        text.contains("empty, because no samples of ifeval: Qwen2.5-7B/F-GRPO, Qwen2.5-7B/GRPO"),
        "{text}"
    );
    let without = text.lines().find(|l| l.starts_with("empty, because no results: ")).unwrap();
    assert!(without.contains("Qwen3-4B-Base/GRPO"), "{text}");
    // pass@1 of F-GRPO: half the problems have 103 correct of 512. Over all benchmarks the paired test finds a difference from GRPO,
    // but not at pass@256.
    assert!(
        text.contains("  *10.1 (38.6)*/50.0 (70.3)") && text.contains("  9.8 (37.3)/50.0 (64.1)"),
        "{text}"
    );
    assert!(text.contains("*1.0*: differs from the same setting without focal weight"), "{text}");
    let effect = text.lines().find(|l| l.contains("Math, pass@1 ")).unwrap();
    assert!(effect.contains("+0.3") && effect.contains("+1.3") && effect.ends_with("yes"), "{effect}");
    let csv = std::fs::read_to_string(at("out/table-1.csv")).unwrap();
    assert!(csv.contains("Qwen2.5-7B,F-GRPO,354,AIME24,1,10.058594,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 18 * 11 * 2);
    let latex = std::fs::read_to_string(at("out/table-1.tex")).unwrap();
    assert!(latex.contains("\\textbf{10.1 (38.6)}/50.0 (70.3)"), "{latex}");
    assert!(
        std::fs::read_to_string(at("out/table-1.md"))
            .unwrap()
            .contains("| Qwen2.5-7B | GRPO | 9.8 (37.3) / 50.0 (64.1) |")
    );
}

#[test]
fn a_name_says_which_row_a_folder_is_and_fewer_samples_leave_cells_empty() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    counts(&at("a/math500.jsonl"), 10, 64, |_| 32);
    counts(&at("a/gsm8k.jsonl"), 10, 64, |_| 32);
    counts(&at("b/math500.jsonl"), 10, 64, |_| 48);
    let named = [format!("GRPO-KL={}", at("a").display()), format!("F-GRPO={}", at("b").display())];
    let (out, a) = (at("out"), at("a"));
    let base = ["paper", "table-13", "--from", &named[0], "--from", &named[1]];
    let text = done(&[&base[..], &["--out", out.to_str().unwrap()]].concat());
    assert!(text.contains("  50.0 (76.7)/(95.2)") && text.contains("  75.0 (76.2)/(95.1)"), "{text}");
    assert!(text.contains("pass@256 needs 256 scored samples of every problem, found 64"), "{text}");
    assert!(text.contains("not used: samples of gsm8k"), "{text}");
    let dry = done(&[&base[..], &["--dry-run"]].concat());
    assert!(dry.contains("DARO: nothing") && dry.contains(a.to_str().unwrap()), "{dry}");
    // A row that the table doesn't have, a benchmark that it doesn't have, no samples, and a missing path.
    counts(&at("next/F-GRPO/aime26.jsonl"), 30, 256, |_| 32);
    let unknown = refused(&["paper", "table-13", "--from", at("next").to_str().unwrap()]);
    assert!(unknown.contains("not used: samples of aime26"), "{unknown}");
    assert!(!unknown.contains("no results"), "{unknown}");
    let nothing = refused(&["paper", "table-13", "--from", &format!("mine={}", a.display())]);
    assert!(nothing.contains("rows: Base, GRPO low-LR"), "{nothing}");
    std::fs::create_dir(at("empty")).unwrap();
    assert!(
        refused(&["paper", "table-13", "--from", at("empty").to_str().unwrap()])
            .contains("neither samples of fgrpo eval, verl or lm-eval")
    );
    assert!(
        refused(&["paper", "table-13", "--from", at("absent").to_str().unwrap()])
            .contains("there is no such file")
    );
}

#[test]
fn reported_values_fill_the_columns_that_are_not_of_samples() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(at("nll.json"), r#"{"models": [{"model": "GRPO-N2", "nll": 1.2, "increase": 0.21}, {"model": "GRPO", "increase": 0.3}]}"#)
        .unwrap();
    let text = done(&["paper", "table-2", "--from", &format!("nll={}", at("nll.json")), "--out", &at("out")]);
    let row = text.lines().find(|l| l.starts_with("GRPO N=2")).unwrap();
    assert!(row.ends_with("  0.21 (0.19)") && row.contains("  (36.2)/(75.0)"), "{row}");
    assert!(text.contains("empty, because no samples of math500: GRPO-N2"), "{text}");
    assert!(text.contains("nll.json), whose name fits several rows"), "{text}");
    std::fs::write(
        at("distances.json"),
        r#"{"folders": ["x/GRPO", "x/F-GRPO"], "diversity": [{"benchmark": "AIME24", "values": [0.01, 0.02]}, {"benchmark": "All Math", "values": [0.03, 0.04]}]}"#,
    )
    .unwrap();
    let from = format!("embeddings={}", at("distances.json"));
    let text = done(&["paper", "table-14", "--from", &from, "--out", &at("out")]);
    assert!(text.contains("0.0200 (0.0179)") && text.contains("0.0400 (0.0184)"), "{text}");
}

#[test]
fn full_scale_lists_all_that_is_missing_and_resolves_for_all_models() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let (code, out, err) = fgrpo(&["paper", "table-1", "--scale", "full", "--root", root, "--out", root]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    for missing in [
        "Qwen2.5-7B from huggingface.co",
        "Llama-3.2-3B-Instruct",
        "deepscaler.json",
        "gpqa.jsonl",
        "13 of 13",
    ] {
        assert!(err.contains(missing), "{missing}: {err}");
    }
    // Files are found by their usual names, and two of one benchmark are refused.
    let put = |name: &str| std::fs::write(folder.path().join("data").join(name), "").unwrap();
    std::fs::create_dir_all(folder.path().join("data/OlympiadBench")).unwrap();
    for name in
        ["aime_2024.parquet", "MATH-500.jsonl.gz", "gpqa_diamond.csv", "synlogic.parquet", "notes.txt"]
    {
        put(name);
    }
    let plan = ["paper", "table-1", "--scale", "full", "--dry-run", "--root", root];
    let text = done(&plan);
    // SynLogic's training problems are not its validation problems.
    assert!(text.matches("  there: ").count() == 4 && text.contains("data/synlogic.jsonl from"), "{text}");
    put("aime24.jsonl");
    assert!(refused(&plan).contains("aime24.jsonl"));
    // Items share runs with the same model and setting, and no others. The maze and a figure of training need no evaluations.
    for (item, config, trainings, model, evaluated) in [
        ("table-1", "qwen2.5-7b-math.toml", 18, "Qwen2.5-7B", true),
        ("table-3", "qwen3-1.7b-synlogic.toml", 6, "Qwen3-1.7B", true),
        ("table-10", "llama-3.2-3b-math.toml", 36, "Qwen2.5-7B", true),
        ("table-14", "qwen2.5-7b-math.toml", 2, "Qwen2.5-7B", true),
        ("figure-9", "qwen3-4b-base-math.toml", 2, "", false),
        ("figure-6", "maze-17.toml", 18, "", false),
    ] {
        let plan = done(&["paper", item, "--scale", "full", "--dry-run", "--out", "out"]);
        assert!(plan.contains(config), "{plan}");
        assert_eq!(plan.matches("  fgrpo train configs/").count(), trainings, "{item}: {plan}");
        assert_eq!(plan.contains("fgrpo eval --suite paper"), evaluated, "{item}: {plan}");
        let shared = format!("--out out/full/{model}/grpo-gamma-0-N8 ");
        assert!(plan.contains(&shared) || model.is_empty(), "{item}: {plan}");
    }
}

#[test]
fn the_laptop_plans_runs_as_commands() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let plan = done(&["paper", "table-5", "--dry-run", "--out", out]);
    assert_eq!(plan.matches("fgrpo train configs/maze-long.toml").count(), 9, "{plan}");
    let plan = done(&["paper", "table-2", "--dry-run", "--out", out, "--set", "task.train=64"]);
    assert!(plan.contains("of the start's evaluation under each model"), "{plan}");
}

#[test]
fn run_folders_give_the_mazes_table_and_figures() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let runs = at("runs").display().to_string();
    let small = [
        &SMALL[..],
        &["steps=4", "task.size=7", "sft.steps=100", "sft.lr=5e-3", "rollout.prompts=4", "eval.samples=32"],
        &["model.init.intermediate_size=64"],
    ];
    let config = "maze-long";
    let grid =
        ["--grid", "rollout.group_size=4,8", "--grid", "algorithm.focal_gamma=0,0.5", "--grid", "seed=1,2"];
    done(&[&["sweep", config, "--out", &runs], &grid[..], &sets(&small.concat())].concat());
    let out = at("out").display().to_string();
    let text = done(&["paper", "table-5", "--from", &runs, "--out", &out]);
    assert!(text.contains("pass@128 needs 128 scored samples of every problem, found 32"), "{text}");
    assert!(text.contains("F-GRPO-gamma-0.5-N8 against GRPO-N8"), "{text}");
    // These mazes are smaller than the paper's.
    let other = "here: 7x7 mazes after 4 steps (8 runs); the paper: 17x17 mazes after 20,000 steps";
    assert!(text.contains(other), "{text}");
    assert!(done(&["paper", "figure-6", "--from", &runs, "--out", &out]).contains(other));
    let found = done(&["paper", "table-13", "--from", &runs, "--dry-run"]);
    assert!(found.contains("\nF-GRPO-N8: /") && found.contains("focal-gamma-0.5_seed-2"), "{found}");
    done(&["paper", "figure-7", "--from", &runs, "--out", &out]);
    for file in ["figure-6.svg", "figure-6-values.csv", "figure-7-N4.svg", "figure-7-N8.svg", "figure-7.md"] {
        assert!(at("out").join(file).exists(), "{file}");
    }
    // The tables and the figure of language models, with these runs as replacements.
    let text = done(&["paper", "table-12", "--from", &runs, "--out", &out]);
    assert!(text.contains("maze (Avg.)"), "{text}");
    let rows: Vec<&str> = text
        .lines()
        .filter(|l| ["GRPO N=", "F-GRPO N=", "F-GRPO-N4  "].iter().any(|row| l.starts_with(row)))
        .collect();
    assert_eq!(
        rows.len(),
        4,
        "N = 4 and 8, with and without a focal weight, one of which the paper doesn't have: {text}"
    );
    let text = done(&["paper", "table-13", "--from", &runs, "--out", &out]);
    assert!(text.contains("Base") && text.contains("F-GRPO-N8 against GRPO-N8"), "{text}");
    done(&["paper", "figure-1", "--from", &runs, "--out", &out]);
    let values = std::fs::read_to_string(at("out/figure-1-values.csv")).unwrap();
    let lost = |l: &&str| l.starts_with("lost of the start,") && l.split(',').nth(2) == Some("0");
    assert_eq!(values.lines().filter(lost).count(), 2, "{values}");
    assert!(!values.contains("NaN"), "{values}");
    let values = std::fs::read_to_string(at("out/figure-6-values.csv")).unwrap();
    assert!(values.lines().any(|l| l.starts_with("maze,8,0.5,1,2,")), "two seeds: {values}");
    // A run that was stopped after its first evaluations doesn't count as trained.
    let stopped = at("runs/group-size-8_focal-gamma-0.5_seed-2");
    let evaluations = std::fs::read_to_string(stopped.join("eval.jsonl")).unwrap();
    let kept: Vec<&str> = evaluations.lines().filter(|l| !l.contains("\"step\":4,")).collect();
    assert_eq!(kept.len() + 1, evaluations.lines().count());
    std::fs::write(stopped.join("eval.jsonl"), kept.join("\n") + "\n").unwrap();
    let (code, text, err) = fgrpo(&["paper", "figure-6", "--from", &runs, "--out", &out]);
    let said = "isn't finished: its last evaluation is at step 2 of 4";
    assert!(code == 0 && text.contains(said), "{text}{err}");
    let values = std::fs::read_to_string(at("out/figure-6-values.csv")).unwrap();
    assert!(values.lines().any(|l| l.starts_with("maze,8,0.5,1,1,")), "one seed: {values}");
    assert!(done(&["paper", "table-5", "--from", &runs, "--out", &out]).contains(said));
    let error = refused(&["paper", "figure-6", "--from", stopped.to_str().unwrap(), "--out", &out]);
    assert!(error.contains("finished") && error.contains(said), "{error}");
}

/// Evaluations of `set` in a run: at each step, the given number of samples of each problem is correct.
fn evaluated(set: &str, samples: u64, correct: &[(u64, u64)]) -> String {
    let line = |&(step, correct): &(u64, u64)| {
        let pass_at_1 = correct as f64 / samples as f64;
        let line = serde_json::json!({
            "step": step, "set": set, "problems": 3, "samples": samples, "pass_at_k": {"1": pass_at_1}, "interval": {},
            "problem_set": "a", "per_problem": [correct, correct, correct], "completion_length_mean": 1.0,
            "unscorable": 0, "examples": [],
        });
        format!("{line}\n")
    };
    correct.iter().map(line).collect()
}

/// A run folder as a training writes it.
fn run_folder(folder: &Path, config: &str, evaluations: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join("config.toml"), config).unwrap();
    std::fs::write(folder.join("eval.jsonl"), evaluations).unwrap();
}

/// The column `here` of a table's CSV, by the start of a row, the column and the part of the cell.
fn here(folder: &Path, table: &str, row: &str, column: &str, part: u32) -> String {
    let csv = std::fs::read_to_string(folder.join(format!("{table}.csv"))).unwrap();
    let is = |l: &&str| l.starts_with(&format!("{row},")) && l.contains(&format!(",{column},{part},"));
    let line = csv.lines().find(is).unwrap_or_else(|| panic!("no {row}, {column}: {csv}"));
    let after = line.split(&format!(",{column},{part},")).nth(1).unwrap();
    after.split(',').next().unwrap().to_owned()
}

#[test]
fn a_dot_in_a_folders_name_is_no_ending() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let config = include_str!("../../../../configs/qwen3-4b-base-math.toml");
    for (name, gamma, correct) in [("grpo-gamma-0-N8", "0", 8), ("grpo-gamma-0.5-N8", "0.5", 16)] {
        let config = config.replace("focal_gamma = 0.5", &format!("focal_gamma = {gamma}"));
        let config = config.replace("epochs = 10", "steps = 50").replace("every = \"epoch\"", "every = 50");
        let evaluations = evaluated("held-out", 64, &[(0, 4), (25, correct), (50, correct)]);
        run_folder(&folder.path().join(name), &config, &evaluations);
    }
    let (base, focal, out) = (at("grpo-gamma-0-N8"), at("grpo-gamma-0.5-N8"), at("out"));
    let found = done(&["paper", "figure-8", "--from", &base, "--from", &focal, "--dry-run"]);
    assert_eq!(found, format!("GRPO: {base}\nF-GRPO: {focal}\n"));
    // Evaluations with the same names.
    counts(&folder.path().join("e/GRPO/math500.jsonl"), 5, 256, |_| 64);
    counts(&folder.path().join("e/GRPO-gamma-0.5/math500.jsonl"), 5, 256, |_| 128);
    done(&["paper", "table-11", "--from", &at("e/GRPO"), "--from", &at("e/GRPO-gamma-0.5"), "--out", &out]);
    let value = |row: &str| here(&folder.path().join("out"), "table-11", row, "MATH500", 1);
    assert_eq!(
        (value("GRPO"), value("F-GRPO \u{3b3}=0.5")),
        ("25.000000".to_owned(), "50.000000".to_owned())
    );
}

#[test]
fn results_of_one_name_are_its_seeds_or_other_benchmarks_and_a_path_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let at = |name: &str| folder.path().join(name);
    counts(&at("a/aime24.jsonl"), 5, 256, |_| 64);
    counts(&at("b/aime24/aime24.jsonl"), 5, 256, |_| 128);
    counts(&at("b/math500.jsonl"), 5, 256, |_| 64);
    let table = |from: &[&str]| {
        let mut args = vec!["paper".to_owned(), "table-13".to_owned(), "--out".to_owned()];
        args.push(out.display().to_string());
        for text in from {
            let (name, path) = text.split_once('=').unwrap();
            args.extend(["--from".to_owned(), format!("{name}={}", at(path).display())]);
        }
        let text = done(&args.iter().map(String::as_str).collect::<Vec<_>>());
        let value = |of: &str| here(&out, "table-13", "F-GRPO", of, 1);
        (value("AIME24"), value("MATH500"), text)
    };
    let seeds = table(&["F-GRPO=a", "F-GRPO=b"]);
    assert_eq!((seeds.0.as_str(), seeds.1.as_str()), ("37.500000", "25.000000"));
    let spelled = table(&["F-GRPO=a", "f_grpo=b"]);
    assert_eq!((seeds.0, seeds.1), (spelled.0, spelled.1));
    // A file next to another benchmark's folder is read too.
    let parts = table(&["F-GRPO=a/aime24.jsonl", "F-GRPO=b/math500.jsonl"]);
    assert_eq!((parts.0.as_str(), parts.1.as_str()), ("25.000000", "25.000000"));
    for again in ["F-GRPO=b", "F-GRPO=b/../b", "f-grpo=b/aime24"] {
        let twice = table(&["F-GRPO=a", "F-GRPO=b", again]);
        assert_eq!(twice.0, "37.500000", "{again}");
        assert!(twice.2.contains("gives again: each counts once"), "{}", twice.2);
    }
}

#[test]
fn runs_of_one_row_differ_in_their_seeds_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let config = include_str!("../../../../configs/maze-17.toml");
    let evaluations = |correct| evaluated("held-out", 256, &[(0, 8), (20_000, correct)]);
    let run = |name: &str, was: &str, is: &str, correct: u64| {
        assert!(config.contains(was), "{was}");
        run_folder(&folder.path().join(name), &config.replace(was, is), &evaluations(correct));
    };
    run("seeds/1", "seed = 1\nsteps", "seed = 1\nsteps", 64);
    run("seeds/2", "seed = 1\nsteps", "seed = 2\nsteps", 128);
    run("rates/1", "lr = 1e-4", "lr = 1e-4", 64);
    run("rates/2", "lr = 1e-4", "lr = 1e-3", 128);
    run("lengths/1", "every = 250", "every = 500", 64);
    run("lengths/2", "steps = 20_000", "steps = 10_000", 128);
    let value = || here(&folder.path().join("out"), "table-5", "8", "pass@1 \u{3b3}=0.5", 1);
    let text = done(&["paper", "table-5", "--from", &at("seeds"), "--out", &at("out")]);
    assert_eq!(value(), "37.500000");
    // The paper's maze size and number of steps.
    assert!(!text.contains("measure other things"), "{text}");
    for (of, key) in [("rates", "update.lr: 0.0001 -> 0.001"), ("lengths", "steps: 20000 -> 10000")] {
        for item in ["table-5", "figure-6", "figure-7"] {
            let error = refused(&["paper", item, "--from", &at(of), "--out", &at("out")]);
            let named =
                [key, &at(&format!("{of}/1")), &at(&format!("{of}/2"))].map(|part| error.contains(part));
            assert_eq!(named, [true; 3], "{item}: {error}");
            assert!(!error.contains("every"), "{error}");
        }
    }
    // One run under two paths isn't a second seed.
    run("copy", "seed = 1\nsteps", "seed = 1\nsteps", 64);
    for again in ["seeds/1", "copy"] {
        let text =
            done(&["paper", "table-5", "--from", &at("seeds"), "--from", &at(again), "--out", &at("out")]);
        assert!(value() == "37.500000" && text.contains("counts once"), "{again}: {text}");
    }
}

#[test]
fn rows_on_different_problems_are_not_compared_and_numbers_of_problems_other_than_the_papers_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    for of in ["aime24", "aime25", "amc23", "math500", "minerva", "olympiad"] {
        counts(&folder.path().join(format!("F-GRPO/{of}.jsonl")), 5, 256, |_| 128);
        counts(&folder.path().join(format!("GRPO-KL/{of}.jsonl")), 30, 256, |_| 64);
    }
    let text = done(&["paper", "table-13", "--from", &at(""), "--out", &at("out")]);
    let note =
        text.lines().find(|l| l.starts_with("F-GRPO against GRPO-KL is not compared: different problems: "));
    assert!(note.unwrap().contains("aime24 (5 and 30 problems, 5 in both)"), "{text}");
    assert!(!text.contains("F-GRPO against GRPO-KL  "), "{text}");
    assert!(
        text.contains(
            "measured on different problems than the paper's values: aime24 (5 problems, the paper 30): F-GRPO\n"
        ),
        "{text}"
    );
    let row = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap();
    let focal = row("F-GRPO  ");
    assert!(focal.contains("50.0 (38.6)/100.0 (70.3)") && !focal.contains('*'), "{text}");
}

#[test]
fn curves_through_training_are_of_the_frequent_evaluations_that_have_the_samples() {
    let folder = tempfile::tempdir().unwrap();
    let config = include_str!("../../../../configs/qwen3-4b-base-math.toml");
    // The paper's figures 8 to 10: every 25 steps, 64 samples.
    let wanted = "[eval]\nevery = 25\nproblems = 30\nsamples = 64\nk = [1, 64]\n";
    assert!(config.contains(wanted), "{config}");
    let config = config.replace("focal_gamma = 0.5", "focal_gamma = 0");
    let config = config.replace("epochs = 10", "steps = 50").replace("every = \"epoch\"", "every = 50");
    let (run, out) = (folder.path().join("run"), folder.path().join("out"));
    let points = |frequent: u64| {
        let often = evaluated("held-out", frequent, &[(0, 4), (25, 8), (50, 16)]);
        run_folder(&run, &config, &(often + &evaluated("held-out in full", 64, &[(0, 4), (50, 16)])));
        let args = ["paper", "figure-8", "--from", run.to_str().unwrap(), "--out", out.to_str().unwrap()];
        let text = done(&args);
        let values = std::fs::read_to_string(out.join("figure-8-values.csv")).unwrap();
        let count = |k: u64| values.lines().filter(|l| l.split(',').nth(3) == Some(&k.to_string())).count();
        (count(1), count(64), text.contains("pass@64 is of the evaluations in full"))
    };
    assert_eq!(points(64), (3, 3, false));
    assert_eq!(points(16), (3, 2, true));
}

#[test]
fn a_name_that_fits_several_rows_and_a_folder_of_another_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    counts(&folder.path().join("Qwen2.5-7B/GRPO/aime25.jsonl"), 5, 256, |_| 64);
    counts(&folder.path().join("Qwen2.5-7B/F-GRPO/aime25.jsonl"), 5, 256, |_| 64);
    let (model, out) = (at("Qwen2.5-7B"), at("out"));
    let error = refused(&["paper", "table-12", "--from", &format!("GRPO={model}/GRPO"), "--out", &out]);
    assert!(error.contains("fits several rows: GRPO-N2, GRPO-N4, GRPO-N8"), "{error}");
    let note = "whose name fits several rows; NAME=PATH says which: GRPO-N2, GRPO-N4";
    let text = done(&["paper", "table-12", "--from", &model, "--out", &out]);
    assert!(text.contains(note), "{text}");
    let text = done(&["paper", "figure-1", "--from", &model, "--out", &out]);
    assert!(text.contains(note), "{text}");
    let error = refused(&["paper", "table-16", "--from", &model, "--out", &out]);
    assert!(
        error.contains("no value of table-16 can be made") && error.contains("not used: GRPO ("),
        "{error}"
    );
    done(&["paper", "table-15", "--from", &model, "--out", &out]);
}

#[test]
fn unfinished_evaluations_have_no_value_and_unscorable_samples_are_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let lines = |problem: &dyn Fn(u64) -> (u64, u64)| -> String {
        let line = |i| {
            let (n, unscorable) = problem(i);
            format!("{{\"problem\": {i}, \"n\": {n}, \"c\": 8, \"unscorable\": {unscorable}}}\n")
        };
        (0..30).map(line).collect()
    };
    std::fs::create_dir_all(at("F-GRPO")).unwrap();
    std::fs::write(at("F-GRPO/aime24.jsonl"), lines(&|i| (if i < 15 { 256 } else { 512 }, 0))).unwrap();
    let error = refused(&["paper", "table-13", "--from", &at("F-GRPO"), "--out", &at("out")]);
    assert!(
        error.contains("has 256 samples and problem") && error.contains("finish the evaluation"),
        "{error}"
    );
    std::fs::write(at("F-GRPO/aime24.jsonl"), lines(&|_| (256, 256))).unwrap();
    let text = done(&["paper", "table-13", "--from", &at("F-GRPO"), "--out", &at("out")]);
    assert!(text.contains("aime24: 50.0 % of the samples are unscorable and left out"), "{text}");
}

/// A problem's samples in a dump: `correct` of `n` responses have the answer in a box.
fn boxed(n: usize, correct: usize, gold: &str) -> Vec<String> {
    (0..n)
        .map(|i| if i < correct { format!("so \\boxed{{{gold}}}") } else { "\\boxed{-1}".to_owned() })
        .collect()
}

#[test]
fn dumps_of_verl_and_lm_eval_are_graded_and_what_they_do_not_hold_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let write = |name: &str, rows: Vec<serde_json::Value>| {
        std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        let lines: String = rows.iter().map(|r| format!("{r}\n")).collect();
        std::fs::write(at(name), lines).unwrap();
    };
    // verl: a line for each response, with all data sets in a file named after its step. Its scores aren't used.
    let verl = |correct: usize| {
        let mut rows = Vec::new();
        for (source, gold) in
            [("math-ai/aime25", "7"), ("HuggingFaceH4/MATH-500", "\\frac12"), ("MiniMaxAI/SynLogic", "x")]
        {
            for (i, output) in boxed(4, correct, gold).into_iter().enumerate() {
                let uid = format!("random-{correct}-{i}_0_0");
                rows.push(serde_json::json!({"input": format!("{source}?"), "output": output, "gts": gold, "score": 0.0, "step": 90, "data_source": source, "uid": uid}));
            }
        }
        rows
    };
    write("dumps/GRPO/90.jsonl", verl(1));
    // lm-eval: a line for each problem and filter.
    let lm_eval = |filter: &str| serde_json::json!({"doc_id": 0, "doc": {}, "target": "7", "resps": [boxed(4, 3, "7")], "filter": filter});
    write(
        "dumps/F-GRPO/model/samples_aime25_2026-01-01T00-00-00.000000.jsonl",
        vec![lm_eval("strict"), lm_eval("loose")],
    );
    let kwargs = serde_json::json!([{"num_words": null, "relation": null}]);
    let doc = serde_json::json!({"instruction_id_list": ["punctuation:no_comma"], "kwargs": kwargs});
    let ifeval =
        serde_json::json!({"doc_id": 3, "doc": doc, "target": 0, "resps": [["no commas", "one, comma"]]});
    write("dumps/F-GRPO/model/samples_ifeval_2026-01-01T00-00-00.000000.jsonl", vec![ifeval]);
    let choice =
        serde_json::json!({"doc_id": 1, "doc": {}, "target": "(B)", "resps": [["\\boxed{B}", "\\boxed{A}"]]});
    write(
        "dumps/F-GRPO/model/samples_gpqa_diamond_cot_zeroshot_2026-01-01T00-00-00.000000.jsonl",
        vec![choice],
    );

    let (from, out) = (at("dumps").display().to_string(), at("out").display().to_string());
    let text = ends(
        0,
        command!(
            "paper table-13 --from",
            &from,
            "--out",
            &out,
            "--from",
            &format!("GRPO-KL={}", at("dumps/GRPO").display())
        ),
    )
    .0;
    let csv = std::fs::read_to_string(at("out/table-13.csv")).unwrap();
    let value = |row: &str, column: &str| {
        let start = format!("{row},");
        let line =
            csv.lines().find(|l| l.starts_with(&start) && l.contains(&format!(",{column},1,"))).unwrap();
        line.split(',').nth(4).unwrap().to_owned()
    };
    assert_eq!(value("GRPO-KL", "AIME25"), "25.000000");
    assert_eq!(value("GRPO-KL", "MATH500"), "25.000000");
    assert_eq!(value("GRPO-KL", "SynLogic"), "");
    assert_eq!(value("F-GRPO", "AIME25"), "75.000000");
    assert_eq!(value("F-GRPO", "IFEval"), "50.000000");
    assert_eq!(value("F-GRPO", "GPQA"), "50.000000");
    assert!(
        text.contains("MiniMaxAI/SynLogic") && text.contains("the dump doesn't contain the puzzles"),
        "{text}"
    );

    // The other commands use the same reader.
    let grpo = at("dumps/GRPO/90.jsonl").display().to_string();
    let text = done(&["pass-at-k", &grpo, "-k", "1,4"]);
    assert!(text.contains("math-ai/aime25") && text.contains("25.0"), "{text}");
    write("other/91.jsonl", verl(3));
    let text = done(&["compare", &grpo, &at("other/91.jsonl").display().to_string(), "-k", "1"]);
    assert!(text.contains("+50.0"), "{text}");
    // Dumps of two steps in a folder count as two models.
    write("dumps/GRPO/100.jsonl", verl(2));
    let error = refused(&["pass-at-k", &at("dumps/GRPO").display().to_string()]);
    assert!(error.contains("90.jsonl") && error.contains("100.jsonl"), "{error}");
    write(
        "likelihoods/samples_arc_2026-01-01T00-00-00.000000.jsonl",
        vec![serde_json::json!({"doc_id": 0, "target": "0", "resps": [[[-1.5, false]]]})],
    );
    let error = refused(&["pass-at-k", &at("likelihoods").display().to_string()]);
    assert!(error.contains("compares likelihoods"), "{error}");
}

/// Settings that make runs of both kinds small.
const SMALL: [&str; 6] = [
    "eval.every=2",
    "eval.samples=8",
    "eval.k=[1, 8]",
    "task.train=200",
    "task.held_out=8",
    "model.init.hidden_size=32",
];

/// Flags that make the laptop's runs tiny.
fn tiny() -> Vec<&'static str> {
    let own =
        ["steps=2", "save.every=2", "sft.steps=150", "rollout.prompts=2", "model.init.num_hidden_layers=1"];
    sets(&[&SMALL[..], &own].concat())
}

#[test]
fn the_laptop_measures_the_nll_of_its_runs_evaluations() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    // Weak policies have a correct sample among this many for sums this small.
    let more = sets(&[
        "eval.samples=32",
        "task.held_out=8",
        "task.most_operations=1",
        "task.largest=20",
        "task.fewest_operations=1",
    ]);
    let text = done(&[&["paper", "table-2", "--out", &out][..], &tiny(), &more].concat());
    assert!(text.contains("arithmetic (Avg. Math)") && text.contains("here with eval.every=2"), "{text}");
    let csv = std::fs::read_to_string(folder.path().join("out/table-2.csv")).unwrap();
    let filled = |column: &str| {
        let rows = csv.lines().filter(|l| l.contains(column));
        rows.filter(|l| !l.split(',').nth(4).unwrap().is_empty()).count()
    };
    // pass@1 and an increase of the NLL for each of the six settings.
    assert_eq!(filled("ΔNLL rare"), 6, "{csv}");
    assert_eq!(filled("arithmetic (Avg. Math),1,"), 6, "{csv}");
    // Another table uses the same runs. If their policies are too weak for it, the command says so.
    let (code, _, err) = fgrpo(&[&["paper", "table-14", "--out", &out][..], &tiny(), &more].concat());
    assert!(err.contains("2 of 2 runs are finished"), "{err}");
    let weak = err.contains("no problem has 2 correct responses from every model");
    assert_eq!(code, if weak { 2 } else { 0 }, "{err}");
    for flag in ["--set", "--from"] {
        assert!(refused(&["paper", "figure-3", flag, "steps=2"]).contains(flag));
    }
}
