//! Samples that are easily counted wrong: dumps of other programs, folders of mixed files, and misleading names and numbers.

mod imported;
mod varied;

use crate::{Folder, file};
use fgrpo_eval::benchmarks::{Averages, parse};
use fgrpo_eval::compare::matched;
use fgrpo_eval::dumps::{read_all, read_each};
use fgrpo_eval::samples::Benchmark;
use fgrpo_eval::verifier::Mode;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn read(paths: &[impl AsRef<Path>], merge: bool, mode: Option<Mode>) -> Result<Vec<Benchmark>, String> {
    let paths: Vec<PathBuf> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
    read_all(&paths, merge, mode).map_err(|error| format!("{error:#}"))
}

/// Correct and scored samples of each problem.
#[track_caller]
fn counts(paths: &[impl AsRef<Path>]) -> Vec<(u64, u64)> {
    let problems = read(paths, false, None).unwrap().into_iter().flat_map(|b| b.problems);
    problems.map(|problem| (problem.correct, problem.samples)).collect()
}

/// Checks that samples are refused, with all of these words in the message.
#[track_caller]
fn refused(paths: &[impl AsRef<Path>], words: &[&str]) {
    let error = read(paths, false, None).unwrap_err();
    assert!(words.iter().all(|word| error.contains(word)), "no {words:?} in {error}");
}

fn logged(doc_id: u64, target: &str, responses: &[&str]) -> Value {
    json!({"doc_id": doc_id, "doc": {}, "target": target, "resps": [responses], "filter": "f"})
}

fn dumped(input: &str, gts: &str, step: u64) -> Value {
    json!({"input": input, "output": format!("\\boxed{{{gts}}}"), "gts": gts, "step": step, "data_source": "aime24"})
}

fn sample(problem: &str, index: u64) -> Value {
    json!({"problem": problem, "sample": index, "correct": true})
}

#[test]
fn scored_samples_of_other_programs_are_read_by_their_names() {
    let folder = Folder::new();
    for (problem, sample, correct) in [
        ("problem", Some("sample"), "correct"),
        ("task_id", None, "passed"),
        ("task_id", Some("completion_id"), "passed"),
        ("question_id", None, "is_correct"),
        ("problem_id", Some("sample_index"), "success"),
    ] {
        let row = |i: u64| {
            let mut row =
                json!({problem: format!("HumanEval/{}", i / 4), "completion": "x", correct: i % 4 < i / 4});
            sample.into_iter().for_each(|sample| row[sample] = json!(i % 4));
            row
        };
        let path = folder.lines("scored.jsonl", (0..12).map(row).collect::<Vec<_>>());
        assert_eq!(counts(&[&path]), [(0, 4), (1, 4), (2, 4)], "{problem}");
    }
    // A byte order mark is no part of the first line.
    let marked = folder.write("a.jsonl", "\u{feff}{\"problem\":1,\"n\":4,\"c\":4}\n");
    assert_eq!(counts(&[&marked]), [(4, 4)]);
}

#[test]
fn a_worked_answer_is_the_reference_of_a_dump_as_of_a_data_set() {
    let folder = Folder::new();
    let worked = "48+24 = <<48+24=72>>72 clips.\n#### 72";
    for (row, wanted) in [
        (logged(0, worked, &["so \\boxed{72}", "#### 72"]), (2, 2)),
        (json!({"input": "?", "output": "\\boxed{1234}", "gts": "#### 1,234"}), (1, 1)),
        (json!({"doc_id": 0, "target": ["72"], "resps": [["\\boxed{72}"]]}), (1, 1)),
    ] {
        assert_eq!(counts(&[&folder.lines("dump.jsonl", &[row])]), [wanted]);
    }
    let empty = folder.lines("empty.jsonl", &[logged(0, "", &["\\boxed{72}"])]);
    refused(&[&empty], &["empty.jsonl", "reference answer is empty"]);
}

#[test]
fn ids_and_counts_that_no_evaluation_has_are_refused_by_line_and_long_ids_lose_no_digit() {
    let folder = Folder::new();
    let most = "18446744073709551615";
    for (line, word) in [
        (r#"{"problem": 100000000000000000000001, "n": 1, "c": 1}"#, "2^64"),
        (r#"{"problem": 1e30, "n": 1, "c": 1}"#, "2^64"),
        (r#"{"problem": 0.1, "n": 1, "c": 1}"#, "2^64"),
        (r#"{"problem": -100000000000000000000001, "n": 1, "c": 1}"#, "2^64"),
        (r#"{"problem": 1, "n": 1000000000, "c": 1}"#, "problem 1: n: expected at most 1000000"),
        (r#"{"problem": 1, "n": 18446744073709551615, "c": 1}"#, most),
        (r#"{"problem": 1, "n": 4, "c": 1, "unscorable": 18446744073709551615}"#, "unscorable: expected"),
        (r#"{"problem": 1, "sample": 1000000000000, "correct": true}"#, "found 1000000000000"),
        (
            r#"{"problem": 1, "correct": true, "verdict": "wrong"}"#,
            "correct\" is true, but the verdict is \"wrong",
        ),
        (r#"{"problem": 1, "correct": false, "verdict": "correct"}"#, "correct\" is false"),
        (r#"{"problem": 1, "correct": true, "verdict": "unscorable"}"#, "unscorable"),
        (r#"{"problem": 1, "sample": 18446744073709551615, "correct": true}"#, most),
        (
            r#"{"problem": 1, "sample": 0, "correct": true, "tokens": 18446744073709551615}"#,
            "tokens: expected",
        ),
    ] {
        refused(&[&folder.write("ids.jsonl", line)], &["ids.jsonl line 1: ", word]);
    }
    let whole =
        [most, "18446744073709551614", "-1"].map(|id| format!("{{\"problem\":{id},\"n\":1,\"c\":1}}\n"));
    assert_eq!(counts(&[&folder.write("ids.jsonl", &whole.concat())]).len(), 3);
    let logs = [1, 2].map(|last| {
        format!(
            "{{\"doc_id\":10000000000000000000000{last},\"target\":\"1\",\"resps\":[[\"1\"]],\"acc\":NaN}}\n"
        )
    });
    assert_eq!(counts(&[&folder.write("log.jsonl", &logs.concat())]).len(), 2, "all digits count");
}

#[test]
fn two_spellings_of_one_benchmark_in_one_model_are_refused_with_both_files() {
    let folder = Folder::new();
    for name in ["a/AIME_2024", "a/aime24", "other/数学", "other/代数"] {
        folder.lines(&format!("{name}.jsonl"), &[sample("p", 0)]);
    }
    refused(&[&folder.at("a")], &["AIME_2024.jsonl", "aime24.jsonl", "same benchmark"]);
    // Names may have characters outside ASCII.
    assert_eq!(counts(&[&folder.at("other")]).len(), 2);
}

#[test]
fn dumps_of_several_steps_are_refused() {
    let folder = Folder::new();
    for step in [0, 10] {
        folder.lines(&format!("steps/step_{step}.jsonl"), &[dumped("1+1", "2", step)]);
        folder.lines(&format!("names/{step}th.jsonl"), &[dumped("1+1", "2", step)]);
    }
    refused(&[&folder.at("steps")], &["step_0.jsonl", "step_10.jsonl"]);
    refused(&[&folder.at("names")], &["0th.jsonl", "10th.jsonl", "same benchmark"]);
    let both = folder.lines("both.jsonl", &[dumped("1+1", "2", 0), dumped("1+1", "2", 10)]);
    refused(&[&both], &["both.jsonl line 2: step: ", "steps 0 and 10"]);
}

#[test]
fn one_prompt_with_two_reference_answers_is_two_problems() {
    let folder = Folder::new();
    let rows = [dumped("1+1", "2", 5), dumped("1+1", "3", 5), dumped("2+2", "4", 5)];
    let found = read(&[&folder.lines("5.jsonl", &rows)], false, None).unwrap();
    let names: Vec<&str> = found[0].problems.iter().map(|problem| problem.name()).collect();
    assert_eq!(names, ["1+1 (reference answer 2)", "1+1 (reference answer 3)", "2+2"]);
}

#[test]
fn a_problem_of_lm_eval_without_responses_or_logged_twice_is_refused() {
    let folder = Folder::new();
    let log = |second: Value| folder.lines("log.jsonl", &[logged(0, "1", &["\\boxed{1}"]), second]);
    for none in [json!([]), json!([[]])] {
        let without = json!({"doc_id": 7, "target": "1", "resps": none});
        refused(&[&log(without)], &["log.jsonl line 2: resps", "doc_id 7"]);
    }
    refused(&[&log(logged(0, "1", &["\\boxed{2}"]))], &["log.jsonl line 2: doc_id: 0 is listed twice"]);
    // Old versions don't name the filter that repeats a problem.
    assert_eq!(counts(&[&log(logged(0, "1", &["\\boxed{1}"]))]), [(1, 1)]);
}

#[test]
fn a_file_named_twice_is_refused() {
    let folder = Folder::new();
    let path = folder.lines("d/a.jsonl", &[sample("p", 0), sample("q", 0)]);
    std::os::unix::fs::symlink(&path, folder.at("link.jsonl")).unwrap();
    for other in ["d/a.jsonl", "d/../d/a.jsonl", "d", "link.jsonl"] {
        refused(&[&path, &folder.at(other)], &["a.jsonl", "give it once"]);
    }
    // Two files of the same name are two sets of samples.
    let other = folder.lines("e/a.jsonl", &[sample("p", 0)]);
    assert_eq!(counts(&[&path, &other]).len(), 3);
}

#[test]
fn a_merge_joins_lines_of_a_benchmark_through_compression_and_folders() {
    let folder = Folder::new();
    let [a, b] = ["p1", "p2"].map(|name| {
        folder.lines(&format!("parts/{name}.jsonl"), &[sample("p", 0)]);
        folder.lines(&format!("{name}.jsonl.gz"), &[sample("p", 1)])
    });
    for paths in [vec![a, b], vec![folder.at("parts")]] {
        let error = read(&paths, true, None).unwrap_err();
        assert!(error.contains("a merge joins lines") && error.contains("p1, p2"), "{error}");
    }
    folder.lines("one/x.jsonl", &[sample("p", 0)]);
    folder.lines("two/x.jsonl.gz", &[sample("p", 1)]);
    let found = read(&[&folder.at("one"), &folder.at("two")], true, None).unwrap();
    assert_eq!((found.len(), found[0].problems.len(), found[0].problems[0].samples), (1, 1, 2));
}

#[test]
fn every_file_of_a_folder_is_read_or_the_folder_is_refused() {
    let folder = Folder::new();
    folder.lines("packed/a.jsonl", &[sample("p", 0)]);
    folder.lines("packed/p1.jsonl.gz", &[sample("q", 0)]);
    assert_eq!(counts(&[&folder.at("packed")]).len(), 2);
    folder.lines("dumps/0.jsonl.gz", &[dumped("1+1", "2", 0)]);
    assert_eq!(read(&[&folder.at("dumps")], false, None).unwrap()[0].name, "aime24");
    let (log, graded) = (logged(0, "1", &["1"]), sample("p", 0));
    for (name, files) in [
        ("programs", [("0.jsonl", &dumped("1+1", "2", 0)), ("aime25.jsonl", &graded)]),
        ("depths", [("x.jsonl", &graded), ("sub/samples.jsonl", &graded)]),
        ("below", [("x.jsonl", &graded), ("sub/log.jsonl", &log)]),
        ("logs", [("x.jsonl", &log), ("sub/y.jsonl", &log)]),
        ("evaluated", [("sub/samples.jsonl", &graded), ("log/y.jsonl", &log)]),
        ("deeper", [("a/samples.jsonl", &graded), ("b/c/samples.jsonl", &graded)]),
    ] {
        let paths =
            files.map(|(file, row)| folder.lines(&format!("{name}/{file}"), std::slice::from_ref(row)));
        refused(&[&folder.at(name)], &paths.each_ref().map(|path| path.to_str().unwrap()));
    }
    // An empty file would leave its benchmark out.
    folder.lines("hole/a.jsonl", &[sample("p", 0)]);
    folder.write("hole/b.jsonl", "");
    refused(&[&folder.at("hole")], &["b.jsonl", "empty"]);
    folder.lines("alone/sub/3.jsonl", &[dumped("1+1", "2", 0)]);
    refused(&[&folder.at("alone")], &["3.jsonl", "folder of one model"]);
}

#[test]
fn an_average_of_the_user_is_whole_or_an_error_and_one_of_the_paper_is_left_out() {
    let averaged = |average: &str, names: &[&str]| {
        let further = average.split(' ').map(|average| parse(average).unwrap()).collect();
        let averages = Averages { further, ..Averages::default() };
        averages.over(names).map_err(|error| error.to_string())
    };
    for (average, names, words) in [
        ("X=p12,nosuch", &["p12", "p13"][..], "average X: there is no benchmark nosuch|p12, p13"),
        ("X=p12,p14", &["p12", "p13"], "did you mean p1"),
        ("X=p12 X=p13", &["p12", "p13"], "average X: another average"),
        // With files of two models it isn't clear which is meant.
        ("X=p12,p13", &["p12", "p13", "p12"], "average X: |2 benchmarks p12"),
    ] {
        let error = averaged(average, names).unwrap_err();
        assert!(words.split('|').all(|word| error.contains(word)), "{error}");
    }
    assert!(parse("X=p12,P-12").unwrap_err().contains("p12 is listed twice"));
    assert_eq!(averaged("X=p12,p13", &["p12", "p13"]).unwrap(), [("X".to_owned(), vec![0, 1])]);
    let averages = Averages::default();
    let twice = ["ifeval", "synlogic", "gpqa", "ifeval"];
    assert!(averages.over(&twice).unwrap().is_empty());
    let notes = fgrpo_eval::benchmarks::incomplete(&averages.all(), &twice);
    assert_eq!(notes, ["no average OOD: there are several benchmarks ifeval"]);
}

#[test]
fn tokens_are_reported_only_where_every_sample_has_them() {
    let folder = Folder::new();
    let tokens = |rows: &[Value]| {
        read(&[&folder.lines("s.jsonl", rows)], false, None).unwrap()[0].tokens_per_problem()
    };
    let mut rows: Vec<Value> = (0..4).map(|i| sample(if i < 2 { "p" } else { "q" }, i)).collect();
    rows[0]["tokens"] = 100.into();
    assert_eq!(tokens(&rows), None);
    rows.iter_mut().for_each(|row| row["tokens"] = 100.into());
    assert_eq!(tokens(&rows), Some(200.0));
    let counted = json!({"problem": "p", "n": 3, "c": 1, "unscorable": 1, "tokens": 40});
    assert_eq!(tokens(&[counted]), Some(40.0));
}

#[test]
fn logs_of_other_problems_under_the_same_numbers_are_not_compared() {
    let folder = Folder::new();
    let [a, b] = [("a", ["1", "2"]), ("b", ["7", "8"])].map(|(side, golds)| {
        let rows = [0, 1].map(|i| logged(i, golds[i as usize], &["\\boxed{1}"]));
        read(&[&folder.lines(&format!("{side}/log.jsonl"), &rows)], false, None).unwrap()
    });
    let error = matched(a, b).map(|pairs| pairs.len()).unwrap_err().to_string();
    assert!(["problem 0: ", "\"1\" in", "\"7\" in"].iter().all(|word| error.contains(word)), "{error}");
}

/// A line of an exported job: the reference answer with its kind, and the verdict of its grader.
fn of_job(problem: &str, truth: &Value, output: &str, correct: bool, grader: &str) -> Value {
    json!({
        "input": format!("user: {problem}?"), "output": output, "gts": truth.to_string(), "step": 5,
        "score": f64::from(correct), "acc": f64::from(correct), "unparsed": 0.0, "unscorable": 0.0,
        "source": truth["kind"], "problem": problem, "grader": grader,
    })
}

#[test]
fn the_verdicts_of_a_job_count_and_another_mode_grades_again() {
    let folder = Folder::new();
    let python = json!({"kind": "python", "columns": {"question": "?"}});
    let rows: Vec<Value> =
        (0..4).map(|i| of_job(&format!("p{}", i / 2), &python, "anything", i != 3, "python")).collect();
    assert_eq!(counts(&[&folder.lines("5.jsonl", &rows)]), [(2, 2), (1, 2)]);
    // A response that could not be graded isn't a wrong one.
    let mut broken = of_job("p", &python, "?", false, "python");
    broken["unscorable"] = json!(1.0);
    let rows = [broken, of_job("p", &python, "!", true, "python")];
    assert_eq!(counts(&[&folder.lines("6.jsonl", &rows)]), [(1, 1)]);

    // An unevaluated expression, which is correct only in mode parity.
    let math = json!({"kind": "math", "gold": "29"});
    let job =
        folder.lines("job.jsonl", &[of_job("p", &math, "\\boxed{12+17}", false, "math in mode strict")]);
    // Other dumps have no mode. They get the mode of published results.
    let other = json!({"input": "What is 12 + 17?", "output": "\\boxed{12+17}", "gts": "29", "score": 0.0, "acc": 0.0, "step": 5});
    let other = folder.lines("verl.jsonl", &[other]);
    for (path, mode, correct, words) in [
        (&job, None, 0, "math in mode strict"),
        (&job, Some(Mode::Parity), 1, "math in mode parity"),
        (&other, None, 1, "mode parity|0.0 % by the dump's own `acc`"),
        (&other, Some(Mode::Strict), 0, "mode strict"),
    ] {
        let scored = read_each(path, mode).unwrap();
        assert_eq!(scored.benchmarks[0].problems[0].correct, correct, "{mode:?}");
        assert!(words.split('|').all(|word| scored.graded[0].contains(word)), "{:?}", scored.graded);
    }
    // Samples with verdicts have no mode to choose.
    let graded = folder.lines("graded.jsonl", &[json!({"problem": "p", "n": 2, "c": 1})]);
    assert!(read(&[&graded], false, Some(Mode::Strict)).unwrap_err().contains("graded already"));
}

/// `inspect_log.py` beside it describes the contents of the real log.
const INSPECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/inspect/inspect_log.json");

#[test]
fn a_log_of_inspect_is_read_with_its_scorers_verdicts() {
    let found = read(&[Path::new(INSPECT)], false, None).unwrap();
    let of = |id: &str| {
        let problem = found[0].problems.iter().find(|problem| problem.name() == id).unwrap();
        (problem.samples, problem.correct)
    };
    assert_eq!((found[0].name.as_str(), found.len()), ("sums", 1));
    assert_eq!([of("one"), of("2"), of("3")], [(4, 3), (4, 2), (3, 0)]);
    assert_eq!(found[0].problems.iter().map(|problem| problem.unscorable).sum::<u64>(), 1);
    let folder = tempfile::tempdir().unwrap();
    let log = std::fs::read_to_string(INSPECT).unwrap();
    for (name, text, words) in [
        (
            "a.json",
            log.replace(r#""success""#, r#""cancelled""#),
            r#"status: expected "success", found "cancelled""#,
        ),
        ("b.json", log.replacen(r#""value": "C""#, r#""value": "P""#, 1), r#"found "P""#),
        ("c.eval", "PK".to_owned(), "inspect log dump"),
    ] {
        refused(&[&file(folder.path(), name, &text)], &[words]);
    }
}
