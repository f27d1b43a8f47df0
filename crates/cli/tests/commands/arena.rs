//! `fgrpo arena`: named methods on a task, their table, and a custom method.

use super::support::{
    assert_same_files, ended, ends_with, fgrpo, file, lines, sets, signal, spawned, wait_until,
};
use predicates::prelude::{PredicateBooleanExt, predicate};
use serde_json::Value;
use std::path::Path;

/// Settings of mazes on which a run takes seconds.
fn small() -> Vec<&'static str> {
    sets(&[
        "steps=2",
        "task.size=5",
        "task.held_out=6",
        "sft.steps=20",
        "model.init.hidden_size=16",
        "model.init.intermediate_size=32",
        "model.init.num_hidden_layers=1",
        "model.init.num_attention_heads=2",
        "rollout.prompts=8",
        "update.mini_batch=4",
        "eval.every=2",
        "eval.samples=8",
        "eval.k=[1, 8]",
        "save.every=2",
    ])
}

fn arena(home: &Path, words: &[&str]) -> assert_cmd::assert::Assert {
    fgrpo().env("XDG_CONFIG_HOME", home.join("settings")).current_dir(home).arg("arena").args(words).assert()
}

fn json(assert: &assert_cmd::assert::Assert) -> Vec<Value> {
    serde_json::from_slice(&assert.get_output().stdout).unwrap()
}

#[test]
fn every_listed_method_has_an_estimator_a_loss_and_a_source() {
    let home = tempfile::tempdir().unwrap();
    let rows = json(&arena(home.path(), &["list", "--json"]).success());
    assert!(rows.len() >= 20, "{}", rows.len());
    for row in &rows {
        for key in ["name", "advantage", "loss", "source"] {
            assert!(row[key].as_str().is_some_and(|text| !text.is_empty()), "{row}");
        }
    }
    let of = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!((&of("grpo")["advantage"], &of("grpo")["loss"]), (&"grpo".into(), &"grpo".into()));
    assert_eq!((&of("gpg")["advantage"], &of("gpg")["loss"]), (&"gpg".into(), &"cispo".into()));
    arena(home.path(), &["list"]).success().stdout(predicate::str::contains("arXiv 2508.10751"));
}

#[test]
fn methods_run_together_resume_and_are_ranked_against_grpo() {
    let home = tempfile::tempdir().unwrap();
    let run = |more: &[&str]| arena(home.path(), &[&["run"], more, &small()[..]].concat());
    let seeds = ["--methods", "grpo,lite-ppo", "--seeds", "2", "--json"];
    let table = run(&[&seeds[..], &["--jobs", "3"]].concat()).success();
    let said = String::from_utf8_lossy(&table.get_output().stderr).into_owned();
    assert!(said.contains("[4/4] runs/arena/maze/") && said.contains(": done. pass@1 changed"), "{said}");
    let rows = json(&table);
    assert_eq!(rows.len(), 2);
    for row in &rows {
        assert_eq!((&row["task"], &row["seeds"], &row["tuned"]), (&"maze".into(), &2.into(), &false.into()));
        let (one, all) = (row["pass_at_1"].as_f64().unwrap(), row["pass_at_8"].as_f64().unwrap());
        assert!((0.0..=1.0).contains(&one) && one <= all, "{row}");
        let interval = row["pass_at_1_interval"].as_array().unwrap();
        assert!(interval.len() == 2 && row["seconds"].as_f64().unwrap() > 0.0);
    }
    let of = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    let difference = &of("lite-ppo")["pass_at_1_difference"];
    let wanted = of("lite-ppo")["pass_at_1"].as_f64().unwrap() - of("grpo")["pass_at_1"].as_f64().unwrap();
    assert!((difference["value"].as_f64().unwrap() - wanted).abs() < 1e-12);
    assert!(of("grpo").get("pass_at_1_difference").is_none());
    // The same command again trains nothing and prints the same.
    let again = run(&seeds).success();
    assert_eq!(again.get_output().stdout, table.get_output().stdout);
    // Runs one after another are the same.
    run(&[&seeds[..], &["--jobs", "1", "--out", "alone"]].concat()).success();
    for name in ["grpo_seed-2", "lite-ppo_seed-2"] {
        let [together, alone] =
            ["runs/arena", "alone"].map(|out| home.path().join(out).join("maze").join(name));
        assert_same_files(&together, &alone, &["eval.jsonl", "checkpoints/step-000002/model.safetensors"]);
    }
    // With one more method, only that one is trained.
    let fewer = || predicate::str::contains("Methods with fewer seeds");
    arena(home.path(), &["table"]).success().stdout(fewer().not());
    let more = run(&["--methods", "grpo,gmpo", "--plot", "front.svg"]).success();
    more.stderr(predicate::str::contains("1 of 2 runs are finished"))
        .stdout(predicate::str::contains("gmpo").and(fewer()));
    let front = std::fs::read_to_string(home.path().join("front.svg")).unwrap();
    assert!(front.contains("grpo") && front.matches("class=\"dot").count() >= 3, "{front}");
    // All runs of a seed have the same start, which the table shows.
    let runs = home.path().join("runs/arena/maze");
    assert_eq!(std::fs::read_dir(runs.join("sft-cache")).unwrap().count(), 2);
    let began = |seed: u64| {
        let evaluations = lines(&runs.join(format!("grpo_seed-{seed}/eval.jsonl")));
        evaluations[0]["pass_at_k"]["1"].as_f64().unwrap()
    };
    let start = 50.0 * (began(1) + began(2));
    let start = format!("default settings: no method was tuned; before training pass@1 {start:.1}");
    arena(home.path(), &["table"]).success().stdout(predicate::str::contains(start));
    // Another configuration would spoil a run.
    let other = [&["run", "--methods", "grpo"], &small()[..], &["--set", "steps=3"]].concat();
    arena(home.path(), &other).code(2).stderr(predicate::str::contains("another configuration"));
    arena(home.path(), &["table", "--baseline", "rloo"]).code(2).stderr(predicate::str::contains("rloo"));
}

#[test]
fn grpo_is_without_the_focal_weight_whatever_a_task_says_or_leaves_out() {
    let home = tempfile::tempdir().unwrap();
    let maze = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/arena-maze.toml"));
    let maze = maze.unwrap();
    assert!(maze.contains("focal_gamma = 0\n"));
    for (name, line) in [("absent", ""), ("stated", "focal_gamma = 0.5\n")] {
        let task = file(home.path(), &format!("{name}.toml"), &maze.replace("focal_gamma = 0\n", line));
        let words = ["run", "--methods", "grpo", "--seeds", "1", "--tasks", task.to_str().unwrap()];
        arena(home.path(), &[&words[..], &small()[..]].concat()).success();
        let config = home.path().join("runs/arena").join(name).join("grpo_seed-1/config.toml");
        let config = std::fs::read_to_string(config).unwrap();
        assert!(config.contains("focal_gamma = 0.0\n"), "{config}");
    }
}

#[test]
fn after_an_error_no_other_run_begins() {
    let home = tempfile::tempdir().unwrap();
    file(&home.path().join("failing/maze"), "sft-cache", "");
    let words = ["run", "--methods", "grpo,gmpo,rloo", "--seeds", "2", "--out", "failing", "--jobs", "2"];
    let failed = arena(home.path(), &[&words, &small()[..]].concat()).failure();
    failed.stderr(predicate::str::contains("sft-cache"));
    let begun = std::fs::read_dir(home.path().join("failing/maze")).unwrap().count() - 1;
    assert!((1..=3).contains(&begun), "{begun}");
}

#[test]
fn an_arena_that_was_stopped_goes_on_with_the_same_command() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("arena");
    let named = ["arena", "run", "--methods", "grpo,gmpo", "--jobs", "2", "--out", out.to_str().unwrap()];
    let longer = |word: &&'static str| match *word {
        "steps=2" => "steps=100",
        "eval.every=2" => "eval.every=100",
        "save.every=2" => "save.every=50",
        other => other,
    };
    let args: Vec<&str> = named.into_iter().chain(small().iter().map(longer)).collect();
    let child = spawned(&args).spawn().unwrap();
    let steps = |method: &str| out.join(format!("maze/{method}_seed-1/metrics.jsonl"));
    wait_until("steps", || {
        ["grpo", "gmpo"].iter().all(|m| std::fs::metadata(steps(m)).is_ok_and(|f| f.len() > 0))
    });
    signal(&child, libc::SIGTERM);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("stopped on request. The same command continues") && !said.contains("--resume"),
        "{said}"
    );
    ends_with(0, &args);
    assert_eq!(std::fs::read_to_string(steps("gmpo")).unwrap().lines().count(), 100);
}

#[test]
fn the_baseline_is_trained_with_the_methods_and_an_unknown_one_is_refused_before_training() {
    let home = tempfile::tempdir().unwrap();
    // Of two evaluations, the full one is in the table.
    let full = ["--set", "eval.full.samples=8", "--set", "eval.full.k=[1, 8]"];
    let run = |more: &[&str]| {
        arena(home.path(), &[&["run", "--methods", "rloo"], more, &small()[..], &full].concat())
    };
    let folder = |name: &str| home.path().join("runs/arena/maze").join(name);
    run(&["--baseline", "nothing"]).code(2).stderr(predicate::str::contains("--baseline"));
    assert!(!home.path().join("runs").exists());
    let dry = run(&["--tune", "--dry-run"]).success();
    let folders = String::from_utf8(dry.get_output().stdout.clone()).unwrap();
    // Three rates for each method, three values of grpo's parameter, and the two runs of the table.
    assert_eq!(folders.lines().count(), 11, "{folders}");
    let first = run(&["--json"]).success().stderr(predicate::str::contains("grpo is trained too"));
    let (rows, printed) = (json(&first), first.get_output().stdout.clone());
    let names: Vec<&str> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    assert!(names.len() == 2 && names.contains(&"grpo") && names.contains(&"rloo"), "{names:?}");
    let again = run(&["--json"]).success().stderr(predicate::str::contains("2 of 2 runs are finished"));
    assert_eq!(again.get_output().stdout, printed);

    // A file of standings prints what its runs did, and bad rows are refused.
    let standings = home.path().join("rows.json");
    std::fs::write(&standings, &printed).unwrap();
    let table = |more: &[&str]| arena(home.path(), &[&["table", "--out", "rows.json"], more].concat());
    assert_eq!(table(&["--json"]).success().get_output().stdout, printed);
    let of_runs =
        arena(home.path(), &["table", "--format", "markdown"]).success().get_output().stdout.clone();
    assert_eq!(table(&["--format", "markdown"]).success().get_output().stdout, of_runs);
    table(&["--baseline", "rloo"]).code(2).stderr(predicate::str::contains("compared with rloo"));
    let text = String::from_utf8(printed).unwrap();
    for (bad, says) in [
        (text.replace("\"pass_at_8\"", "\"pass_at_9\""), "pass@9"),
        (text.replace("\"task\"", "\"tusk\""), "row 1: `task`"),
        (text.replace("}]", "}"), "rows.json"),
    ] {
        std::fs::write(&standings, bad).unwrap();
        table(&[]).code(2).stderr(predicate::str::contains(says));
    }

    // Another baseline is trained if its run is missing. If it is missing elsewhere, the command doesn't fail.
    let other = home.path().join("runs/arena/other/opo_seed-1");
    std::fs::create_dir_all(other.parent().unwrap()).unwrap();
    std::fs::rename(folder("grpo_seed-1"), &other).unwrap();
    let rows = run(&["--baseline", "lite-ppo", "--json"]).success();
    let rows = json(&rows.stderr(predicate::str::contains("no finished run of lite-ppo: other")));
    let paired = |row: &&Value| row.get("pass_at_1_difference").is_some();
    assert_eq!(rows.iter().filter(paired).map(|row| &row["name"]).collect::<Vec<_>>(), ["rloo"]);
    assert!(folder("lite-ppo_seed-1").is_dir() && !folder("grpo_seed-1").exists());
    let table = || arena(home.path(), &["table"]).code(2);
    table().stderr(predicate::str::contains("grpo has no finished run on maze; other"));
    // As if the grader of a run had another file.
    std::fs::rename(&other, folder("grpo_seed-1")).unwrap();
    std::fs::remove_dir(other.parent().unwrap()).unwrap();
    let evaluations = folder("rloo_seed-1").join("eval.jsonl");
    let text = std::fs::read_to_string(&evaluations).unwrap();
    std::fs::write(&evaluations, text.replace("\"maze/", "\"maze/0")).unwrap();
    table().stderr(predicate::str::contains("different graders"));
}

#[test]
fn a_tuned_method_takes_the_best_of_three_values_on_a_seed_that_is_not_shown() {
    let home = tempfile::tempdir().unwrap();
    let words = [&["run", "--tune", "--methods", "grpo,f-grpo", "--json"], &small()[..]].concat();
    let rows = json(&arena(home.path(), &words).success());
    assert!(rows.len() == 2 && rows.iter().all(|row| row["tuned"] == true && row["seeds"] == 1), "{rows:?}");
    let runs = home.path().join("runs/arena/maze");
    let tried = |name: &str| (1..=3).filter(|i| runs.join(format!("tuning_{name}-{i}")).is_dir()).count();
    let all = ["grpo_rate", "grpo_own", "f-grpo_own"].map(tried);
    assert_eq!(all, [3, 3, 3]);
    let again = [&["run", "--tune", "--methods", "grpo,f-grpo", "--dry-run"], &small()[..]].concat();
    let dry = arena(home.path(), &again).success();
    assert!(String::from_utf8_lossy(&dry.get_output().stdout).contains("tuned_grpo_seed-1"));
    // The reported run has the settings of the best trial.
    let read = |folder: &str| -> toml::Table {
        std::fs::read_to_string(runs.join(folder).join("config.toml")).unwrap().parse().unwrap()
    };
    let value = |folder: &str| {
        let last = lines(&runs.join(folder).join("eval.jsonl")).pop().unwrap();
        last["pass_at_k"]["1"].as_f64().unwrap() + last["pass_at_k"]["8"].as_f64().unwrap()
    };
    let trials: Vec<String> = (1..=3).map(|i| format!("tuning_grpo_rate-{i}")).collect();
    let values: Vec<f64> = trials.iter().map(|t| value(t)).collect();
    let best = values.iter().position(|v| values.iter().all(|other| other <= v)).unwrap();
    assert_eq!(read("tuned_grpo_seed-1")["update"]["lr"], read(&trials[best])["update"]["lr"]);
    assert_eq!(read(&trials[0])["seed"].as_integer(), Some(1000));
}

#[test]
fn an_own_method_is_kept_and_bad_ones_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let power = "algorithm.advantage={ kind = \"power\", a = 0.5, b = -1 }";
    arena(home.path(), &["add", "mine", "--set", power]).success();
    let rows = json(&arena(home.path(), &["list", "--json"]).success());
    let mine = rows.iter().find(|row| row["name"] == "mine").unwrap();
    assert_eq!((&mine["advantage"], &mine["source"]), (&"power".into(), &"your own".into()));
    arena(home.path(), &["add", "mine", "--set", power])
        .code(2)
        .stderr(predicate::str::contains("--replace"));
    arena(home.path(), &["add", "mine", "--set", "algorithm.focal_gamma=2", "--replace"]).success();
    for (words, says) in [
        (["add", "grpo", "--set", power], "built-in"),
        (["add", "Mine", "--set", power], "\"Mine\""),
        (["add", "worse", "--set", "algorithm.advantage=worse"], "worse"),
        (["run", "--methods", "unheard-of", "--dry-run"], "unheard-of"),
        (["run", "--tasks", "nowhere.toml", "--dry-run"], "nowhere.toml"),
    ] {
        arena(home.path(), &words).code(2).stderr(predicate::str::contains(says));
    }
    arena(home.path(), &["table"]).code(2).stderr(predicate::str::contains("no finished run"));
    let dry = arena(home.path(), &["run", "--methods", "grpo,mine", "--seeds", "2", "--dry-run"]).success();
    let folders = String::from_utf8(dry.get_output().stdout.clone()).unwrap();
    assert_eq!(folders.lines().last().unwrap(), "runs/arena/maze/mine_seed-2");
}

/// W-REINFORCE, and functions that fail.
const OWN: &str = "
def signs(rewards):
    return [0.1 if reward == 1 else -1 for reward in rewards]

def every(rewards, correct, lengths, mean_logp):
    assert len(rewards) == len(correct) == len(lengths) == len(mean_logp) and max(mean_logp) < 0 < min(lengths)
    assert [bool(reward) for reward in rewards] == correct
    return signs(rewards)

def raises(rewards):
    print('seen', rewards)
    raise KeyError('missing')

def short(rewards):
    return rewards[1:]

def nan(rewards):
    return [float('nan')] * len(rewards)

def word(rewards):
    return 'advantages'

calls = 0

def later(rewards):
    global calls
    calls += 1
    return [1 / (calls < 10)] * len(rewards)
";

#[test]
fn an_estimator_in_python_trains_as_the_same_formula_in_rust_does() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("own.py"), OWN).unwrap();
    let set = "algorithm.loss=dapo";
    for (name, more) in [
        ("mine", &["--advantage", "own.py:signs", "--set", set][..]),
        ("every", &["--advantage", "own.py:every", "--set", set]),
        ("theirs", &["--set", "algorithm.advantage=w_reinforce", "--set", set]),
    ] {
        arena(home.path(), &[&["add", name], more].concat()).success();
    }
    let rows = json(&arena(home.path(), &["list", "--json"]).success());
    let mine = rows.iter().find(|row| row["name"] == "mine").unwrap();
    assert_eq!((&mine["advantage"], &mine["loss"]), (&"python".into(), &"dapo".into()));
    let run = |more: &[&str]| {
        arena(home.path(), &[&["run", "--methods", "mine,every,theirs"], &small()[..], more].concat())
    };
    run(&["--json"]).success();
    let policy = |method: &str| {
        let path = format!("runs/arena/maze/{method}_seed-1/checkpoints/step-000002/model.safetensors");
        std::fs::read(home.path().join(path)).unwrap()
    };
    assert!(policy("mine") == policy("theirs") && policy("every") == policy("theirs"));
    assert!(policy("mine") != policy("grpo"), "the estimator changes the policy");
    run(&[]).success().stderr(predicate::str::contains("4 of 4 runs are finished"));
    // A run belongs to the version of the file with which it was trained.
    let file = home.path().join("own.py");
    std::fs::write(&file, OWN.replace("0.1", "0.2")).unwrap();
    run(&[]).code(2).stderr(predicate::str::contains("the file of algorithm.advantage has changed"));
    let folder = home.path().join("runs/arena/maze/mine_seed-1");
    let config = folder.join("config.toml");
    let train = |more: &[&str]| {
        let words = ["train", config.to_str().unwrap(), "--out", folder.to_str().unwrap(), "--resume"];
        fgrpo().current_dir(home.path()).args(words).args(more).assert()
    };
    train(&[]).code(2).stderr(predicate::str::contains("--accept-changes"));
    train(&["--accept-changes"]).success();
}

#[test]
fn an_estimator_in_python_that_fails_stops_the_run_and_says_what_it_did() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("own.py"), OWN).unwrap();
    for (function, says) in [
        ("own.py:raises", "raised KeyError: 'missing', for the rewards [1.0, 0.0"),
        ("own.py:raises", "seen [1.0"),
        ("own.py:short", "expected one advantage for each of 8 rewards"),
        ("own.py:nan", "expected finite numbers"),
        ("own.py:word", "expected one advantage for each of 8 rewards, returned 'advantages'"),
        ("own.py:none", "found nothing callable that is called none; it defines signs, every"),
        ("none.py:none", "none.py: no such file"),
        ("own.txt:f", "expected FILE.py:NAME"),
    ] {
        let added = arena(home.path(), &["add", "mine", "--advantage", function]);
        added.code(2).stderr(predicate::str::contains(says).and(predicate::str::contains("advantage")));
    }
    assert!(!home.path().join("settings/fgrpo/arena.toml").exists(), "what doesn't work isn't kept");
    // A function that works at first, and for the eight groups of the first step.
    arena(home.path(), &["add", "later", "--advantage", "own.py:later"]).success();
    let run =
        |more: &[&str]| arena(home.path(), &[&["run", "--methods", "later"], &small()[..], more].concat());
    run(&[]).code(2).stderr(predicate::str::contains("raised ZeroDivisionError"));
    let saved = home.path().join("runs/arena/maze/later_seed-1/checkpoints/step-000001");
    assert!(saved.is_dir(), "the state before the step is saved");
    for (set, says) in [
        ("algorithm.shaping=unlikely", "algorithm.advantage: expected"),
        ("algorithm.advantage.k=3", "unknown key `k`"),
        ("algorithm.advantage=python", "the key `function` is missing"),
    ] {
        let words = ["add", "other", "--advantage", "own.py:signs", "--set", set];
        arena(home.path(), &words).code(2).stderr(predicate::str::contains(says));
    }
}

#[test]
fn the_map_of_the_power_family_has_a_value_for_every_pair() {
    let home = tempfile::tempdir().unwrap();
    let words = [&["map", "--a", "0.5,1", "--b", "-1"][..], &small()[..]].concat();
    let rows = json(&arena(home.path(), &[&words[..], &["--json", "--plot", "map.svg"]].concat()).success());
    let pairs: Vec<(f64, f64)> =
        rows.iter().map(|row| (row["a"].as_f64().unwrap(), row["b"].as_f64().unwrap())).collect();
    assert_eq!(pairs, [(0.5, -1.0), (1.0, -1.0)]);
    assert!(rows.iter().all(|row| row["pass_at_8_interval"].is_array()), "{rows:?}");
    let config = home.path().join("runs/arena-map/maze/power_1_-1_seed-1/config.toml");
    let config: toml::Table = std::fs::read_to_string(config).unwrap().parse().unwrap();
    let advantage = &config["algorithm"]["advantage"];
    assert_eq!((advantage["a"].as_float(), advantage["b"].as_float()), (Some(1.0), Some(-1.0)));
    let svg = std::fs::read_to_string(home.path().join("map.svg")).unwrap();
    assert_eq!(svg.matches("power_").count(), 4, "two panels of two cells");
    arena(home.path(), &words).success().stdout(predicate::str::contains("a \\ b"));
    arena(home.path(), &["map", "--a", "1,1"]).code(2).stderr(predicate::str::contains("--a: 1 is listed"));
}

/// `FGRPO_WRITE_PAGES=1 cargo test -p fgrpo --test commands arena::the_page` writes the tables of docs/arena.md and its figures.
#[test]
fn the_page_has_the_tables_and_figures_of_the_published_standings() {
    let home = tempfile::tempdir().unwrap();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let rows = std::fs::read_to_string(docs.join("standings.jsonl")).unwrap();
    let read = |line: &&str| serde_json::from_str::<Value>(line).unwrap();
    let old = std::fs::read_to_string(docs.join("arena.md")).unwrap();
    let mut page = old.clone();
    let mut figures = Vec::new();
    for (command, figure, task, tuned) in [
        ("table", "maze", "maze", false),
        ("table", "maze-tuned", "maze", true),
        ("table", "arithmetic", "arithmetic", false),
        ("table", "puzzles", "puzzles", false),
        ("table", "newer", "maze-newer", false),
        ("table", "newer-puzzles", "puzzles-newer", false),
        ("table", "newer-arithmetic", "arithmetic-newer", false),
        ("map", "map", "maze", false),
    ] {
        let of = |row: &Value| row["task"] == task && row["tuned"] == tuned;
        let own: Vec<&str> = rows.lines().filter(|line| of(&read(line))).collect();
        std::fs::write(home.path().join("rows.jsonl"), own.join("\n")).unwrap();
        let file = if command == "map" { docs.join("standings-map.jsonl") } else { "rows.jsonl".into() };
        let words = [command, "--out", file.to_str().unwrap(), "--format", "markdown", "--plot", "new.svg"];
        let table = arena(home.path(), &words).success().get_output().stdout.clone();
        figures.push((
            docs.join(format!("figures/arena-{figure}.svg")),
            std::fs::read_to_string(home.path().join("new.svg")).unwrap(),
        ));
        let below = format!("(figures/arena-{figure}.svg)\n\n");
        let from = page.find(&below).unwrap() + below.len();
        let to = from + page[from..].find("\n\n").unwrap() + 1;
        page.replace_range(from..to, &String::from_utf8(table).unwrap());
    }
    if std::env::var_os("FGRPO_WRITE_PAGES").is_some() {
        std::fs::write(docs.join("arena.md"), &page).unwrap();
        figures.iter().for_each(|(path, drawn)| std::fs::write(path, drawn).unwrap());
        return;
    }
    let wanted = "docs/arena.md is old: see this test's comment";
    assert!(old == page, "{wanted}");
    for (path, drawn) in figures {
        assert!(std::fs::read_to_string(&path).unwrap() == drawn, "{}: {wanted}", path.display());
    }
}
