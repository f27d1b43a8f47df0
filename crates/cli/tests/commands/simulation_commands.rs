//! `fgrpo theory` and `fgrpo simulate`, through the command line.

use crate::support::{self, done, ended, ends_with, file, json, lines, refused, signal, spawned, wait_until};
use serde_json::Value;
use std::path::Path;

#[test]
fn theory_prints_the_json_of_the_contract() {
    for (words, pointer, wanted) in [
        ("tail-miss --mu 0.5 --tau 1e-12 --n 1000000000", "/tail_miss", 0.9990004998333745),
        ("tail-miss --mu 0.5 --tau 1e-12 --n 1000000000", "/active", 1.0),
        ("peak --mu 0.5 --tau 0.05", "/n", 5.0),
        ("low-lr --gamma 0.5", "/multiplier", 32.0 / (15.0 * std::f64::consts::PI)),
        ("advantage --success-rate 0.2 --gamma 1", "/correct", 1.6),
        ("advantage --success-rate 0.2 --gamma 1", "/wrong", -0.4),
        ("advantage --success-rate 0.2 --gamma 1", "/weight", 0.8),
        ("advantage --success-rate 0.5 --gamma 0 --n 2", "/correct", 0.5 / (0.5f64.sqrt() + 1e-6)),
        ("active --mu 0.2 --n 2,3", "/0/active", 0.32),
        ("active --mu 0.2 --n 2,3", "/1/n", 3.0),
    ] {
        let words: Vec<&str> = ["theory"].into_iter().chain(words.split(' ')).chain(["--json"]).collect();
        let value = json(&words);
        let found = value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{value}"));
        assert!((found - wanted).abs() <= 1e-14 * wanted.abs(), "{words:?}: found {found}, wanted {wanted}");
    }
}

#[test]
fn mass_terms_add_up_to_the_subsets_change() {
    let mut args = vec!["theory", "mass", "--logits", "2,0,0,1", "--correct", "0,1", "--sample", "0,3,3"];
    args.extend(["--reward-wrong", "-1", "--lr", "0.1", "--subset", "1"]);
    let value = json(&[&args[..], &["--json"]].concat());
    // Action 1 is the only correct one not drawn.
    let (a, b) = (&value["delta_q_unsampled_pos"]["total"], &value["delta_subset"]["total"]);
    assert!((a.as_f64().unwrap() - b.as_f64().unwrap()).abs() < 1e-16);
    let rows = json(&["theory", "sampled-mass", "--logits", "1,0,0", "--correct", "0", "--n", "3", "--json"]);
    assert_eq!(rows.as_array().unwrap().len(), 4);
    // Every value is explained, beside bars.
    let said = done(&args);
    for table in [&value, &value["delta_q_pos"], &value["delta_q_unsampled_pos"]] {
        for (key, _) in table.as_object().unwrap().iter().filter(|(_, v)| v.is_number()) {
            let row = said.lines().find(|l| l.trim_start().starts_with(&format!("{key} ")));
            let row = row.unwrap_or_else(|| panic!("{key} is not explained:\n{said}"));
            assert!(row.split_whitespace().count() >= 4, "{row}");
        }
    }
    assert!(said.contains("change of the mass of --subset") && said.contains('\u{2588}'), "{said}");
    assert!(said.lines().all(|l| l.chars().count() <= 110), "{said}");
}

#[test]
fn figures_are_written_as_svg() {
    let folder = tempfile::tempdir().unwrap();
    for (i, args) in
        [vec!["tail-miss"], vec!["tail-miss", "--mu", "0.64", "--tau", "6.3e-5"], vec!["advantage"]]
            .into_iter()
            .enumerate()
    {
        let file = folder.path().join(format!("{i}.svg"));
        done(&[&["theory"], &args[..], &["--plot", file.to_str().unwrap()]].concat());
        assert!(std::fs::read(&file).unwrap().starts_with(b"<svg "), "{args:?}");
    }
    let panels = std::fs::read_to_string(folder.path().join("0.svg")).unwrap();
    for title in ["\u{3bc} = 0.8", "\u{3bc} = 0.5", "\u{3bc} = 0.2"] {
        assert!(panels.contains(title), "{title}");
    }
    // A star for each of the 4 curves in 3 panels.
    assert_eq!(panels.matches("<path class=\"star\"").count(), 12);
}

#[test]
fn bad_theory_input_ends_with_two() {
    for (args, message) in [
        // One refusal of a formula; tests next to the formulas cover the others.
        ("tail-miss --mu 0.5 --tau 0.6 --n 8", "tau: expected"),
        ("tail-miss --mu 0.5 --tau 0.1", "--n is required"),
        ("tail-miss --mu 0.5 --n 8", "--tau and --n are required"),
        ("active --mu 0.5 --n -3", "-3"),
        ("advantage --success-rate 0.3", "--gamma is required"),
        ("mass --logits 1,2 --correct 2 --sample 0", "found 2"),
        ("advantage --plot x.pdf", ".svg"),
        ("advantage --plot x.png", "rsvg-convert -z 2 -o x.png x.svg"),
    ] {
        let said = refused(&[&["theory"], &args.split(' ').collect::<Vec<_>>()[..]].concat());
        assert!(said.contains(message), "{args}: {said}");
    }
}

/// A small sweep: 3 group sizes, 2 gammas, 2 seeds.
fn small(folder: &Path) -> String {
    let text = "group_sizes = [2, 64, 4000]\nseeds = 2\nsteps = 60\nactions = 3000\ncorrect = 200\n";
    file(folder, "small.toml", text).display().to_string()
}

#[test]
fn a_sweep_writes_the_same_bytes_on_any_number_of_threads_and_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let config = small(folder.path());
    let out = |threads: &str| folder.path().join(threads);
    let words = |threads: &'static str| {
        ["simulate", &config, "--threads", threads, "--out", out(threads).to_str().unwrap()]
            .map(str::to_owned)
    };
    let [one, three] = ["1", "3"].map(words);
    let [one, three] = [&one, &three].map(|words| words.each_ref().map(String::as_str));
    let seen = [("1", one), ("3", three)].map(|(threads, words)| {
        assert!(done(&words).contains("Q_pos"));
        let read = |name: &str| std::fs::read(out(threads).join(name)).unwrap();
        assert!(read("tail-miss.svg").starts_with(b"<svg"));
        ["curves.jsonl", "curves.csv", "final.csv", "tail-miss.csv", "figure.svg"].map(read)
    });
    assert!(seen[0] == seen[1]);
    // 12 runs, steps 0, 10, ..., 60.
    let curves = out("1").join("curves.jsonl");
    let recorded = lines(&curves);
    assert_eq!(recorded.len(), 12 * 7);
    let keys: Vec<&str> = recorded[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["n", "gamma", "seed", "step", "q_pos", "retained", "entropy"]);
    // Four runs, half of a fifth, and an incomplete line, as after a kill in the middle of a write. After a power failure, zeros
    // replace a line.
    let whole = std::fs::read_to_string(&curves).unwrap();
    let all: Vec<&str> = whole.split_inclusive('\n').collect();
    for (torn, expected) in [
        (all[..31].concat() + &all[31][..20], "4 done before"),
        (all[..20].concat() + "\0\0\0\n" + &all[21..].concat(), "the first is line 21"),
        (whole.clone(), "all 12 runs are done already"),
    ] {
        std::fs::write(&curves, torn).unwrap();
        let said = ends_with(0, &one);
        assert!(said.contains(expected), "{said}");
        assert_eq!(std::fs::read_to_string(&curves).unwrap(), whole);
    }
    let other = refused(&[&one[..], &["--set", "lr=0.5"]].concat());
    assert!(other.contains("another configuration (there -> here: lr: 0.01 -> 0.5)"), "{other}");
    let lock = std::fs::File::create(out("1").join("lock")).unwrap();
    lock.lock().unwrap();
    assert!(refused(&one).contains("in use by another process"));
    let files = refused(&["simulate", &config, "--out", folder.path().to_str().unwrap()]);
    assert!(files.contains("holds no sweep but other files"), "{files}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_sweep_keeps_its_runs_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("long.toml");
    let text =
        "group_sizes = [3000]\ngammas = [0.0]\nseeds = 40\nsteps = 1500\nactions = 20000\ncorrect = 2000\n";
    std::fs::write(&config, text).unwrap();
    let out = folder.path().join("out");
    let args = ["simulate", config.to_str().unwrap(), "--threads", "1", "--out", out.to_str().unwrap()];
    let child = spawned(&args).spawn().unwrap();
    wait_until("a run", || std::fs::metadata(out.join("curves.jsonl")).is_ok_and(|m| m.len() > 0));
    signal(&child, libc::SIGINT);
    let (code, stderr) = ended(child);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("of 40 runs are saved") && stderr.contains("Continue with:\n  fgrpo simulate"));
    let kept = std::fs::read_to_string(out.join("curves.jsonl")).unwrap();
    // 151 recorded steps per run. Only complete runs are retained.
    assert!(kept.lines().count() >= 151 && kept.lines().count().is_multiple_of(151));
    assert!(kept.lines().count() < 40 * 151, "the sweep was over before the signal");
}

#[test]
fn bad_simulations_end_with_two_and_one_that_diverges_with_one() {
    let folder = tempfile::tempdir().unwrap();
    let (config, out) = (small(folder.path()), folder.path().join("out"));
    let simulate = ["simulate", &config, "--out", out.to_str().unwrap()];
    let said = refused(&[&simulate[..], &["--set", "lr=nan"]].concat());
    assert!(said.contains("lr: expected"), "{said}");
    assert!(!out.exists(), "nothing is written for a configuration that is refused");
    assert!(refused(&["simulate", "missing.toml"]).contains("missing.toml"));
    let diverging = ["--set", "optimizer=sgd", "--set", "lr=1e308", "--set", "reward_correct=1e10"];
    let said = ends_with(1, &[&simulate[..], &diverging].concat());
    assert!(said.contains("no longer finite") && said.contains("group size"), "{said}");
}

#[test]
fn dry_run_prints_the_resolved_configuration_which_reads_back_as_itself() {
    let folder = tempfile::tempdir().unwrap();
    let config = small(folder.path());
    let set = ["lr=3e-3", "surrogate=probability", "group_sizes=2,4", "optimizer=\"sgd\""];
    let printed = |args: &[&str]| done(&[&["simulate", "--dry-run", &config], args].concat());
    let text = printed(&support::sets(&set));
    let table: toml::Table = text.parse().unwrap();
    assert_eq!((table["lr"].as_float(), table["optimizer"].as_str()), (Some(3e-3), Some("sgd")));
    assert_eq!(table["record_every"].as_integer(), Some(10));
    for key in ["seeds", "group_sizes"] {
        assert_eq!(table[key].as_array().unwrap().len(), 2, "{key}");
    }
    std::fs::write(&config, &text).unwrap();
    assert_eq!(printed(&[]), text);
}
