//! Samples of other programs, matched with the problems of a data set.

use crate::file;
use crate::files::{boxed, lines, sums};
use fgrpo_eval::dataset::{Problem, load};
use fgrpo_eval::from_file::{Imported, import};
use fgrpo_eval::generations::Generations;
use fgrpo_eval::kind::TaskKind;
use serde_json::{Value, json};
use std::path::Path;

/// Reads the problems of rows, at most `limit` of them.
fn problems(root: &Path, rows: Vec<Value>, limit: usize) -> Vec<Problem> {
    let path = file(root, "data.jsonl", &lines(rows));
    let mut problems = load(&path, TaskKind::Math, &Default::default()).unwrap().0;
    problems.truncate(limit);
    problems
}

/// Imports the samples of a file. Returns the counts, and the number of samples with the right answer of their problem.
fn imported(root: &Path, problems: &[Problem], name: &str, text: &str) -> Result<(Imported, usize), String> {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Generations::open(&folder.path().join("generations.jsonl")).unwrap();
    let found = import(&file(root, name, text), &problems.iter().collect::<Vec<_>>(), &mut store);
    let mut right = 0;
    store
        .each(|sample| {
            let problem = problems.iter().find(|problem| problem.id == sample.problem).unwrap();
            right += usize::from(sample.text.contains(&format!("{{{}}}", problem.truth.gold().unwrap())));
            Ok(())
        })
        .unwrap();
    found.map(|found| (found, right)).map_err(|error| {
        assert_eq!(right, 0, "a refused file stores nothing");
        format!("{error:#}")
    })
}

#[test]
fn the_number_of_a_problem_is_that_of_its_row_with_rejected_rows_counted() {
    let folder = tempfile::tempdir().unwrap();
    // The third row is a copy of the second, and the last one has no answer.
    let mut rows = sums([0, 1, 1, 2, 3]);
    rows.push(json!({"problem": "Why?", "answer": null}));
    let answers = [1, 2, 2, 3, 4, 9];
    let samples =
        answers.iter().enumerate().map(|(i, &a)| json!({"problem": i, "sample": 0, "text": boxed(a)}));
    let samples = lines(samples);
    // With a limit, the later rows are left out.
    for (limit, new, no_problem) in [(9, 4, 2), (2, 2, 4)] {
        let problems = problems(folder.path(), rows.clone(), limit);
        let found = imported(folder.path(), &problems, "made.jsonl", &samples);
        assert_eq!(found, Ok((Imported { new, no_problem, ..Imported::default() }, new)));
    }
}

#[test]
fn numbers_of_rows_name_no_problem_where_the_data_has_ids() {
    let folder = tempfile::tempdir().unwrap();
    let with_ids = |ids: [Value; 4]| {
        let row = |(mut row, id): (Value, Value)| {
            row["id"] = id;
            row
        };
        problems(folder.path(), sums(0..4).into_iter().zip(ids).map(row).collect(), 4)
    };
    let import =
        |problems: &[Problem], samples: &str| imported(folder.path(), problems, "made.jsonl", samples);
    let all = with_ids([5, 6, 7, 8].map(Value::from));
    // Right as ids, but wrong if the ids were taken for row numbers.
    let samples = lines((0..10usize).map(|id| json!({"problem": id, "text": boxed(id.saturating_sub(4))})));
    let counts = |new, foreign| Imported { new, foreign, ..Imported::default() };
    assert_eq!(import(&all, &samples), Ok((counts(4, 6), 4)));
    // Rows without an id don't turn other programs' ids into row numbers.
    let some = with_ids([json!(5), json!(6), Value::Null, Value::Null]);
    assert_eq!(import(&some, &samples), Ok((counts(2, 8), 2)));
    // A number column with missing values contains 5.0.
    assert_eq!(import(&some, "{\"problem\": 5.0, \"text\": \"x\"}\n"), Ok((counts(1, 0), 0)));
    let error = import(&some, "{\"problem\": 0, \"text\": \"x\"}\n").unwrap_err();
    assert!(error.contains("none of the 1 samples belongs") && error.contains("\"5\""), "{error}");
}

#[test]
fn a_problem_has_one_name_in_a_file_and_a_name_means_one_problem() {
    let folder = tempfile::tempdir().unwrap();
    let samples = [json!({"problem": 1, "text": boxed(2)}), json!({"problem": "1+1?", "text": boxed(2)})];
    let all = problems(folder.path(), sums(0..3), 3);
    let error = imported(folder.path(), &all, "made.jsonl", &lines(samples)).unwrap_err();
    assert!(error.contains("made.jsonl line 2: problem \"1+1?\" is called \"1\" in line 1"), "{error}");
    let mut twice = sums(0..2);
    twice.iter_mut().for_each(|row| row["id"] = "same".into());
    let same = "{\"problem\": \"same\", \"text\": \"x\"}\n";
    let all = problems(folder.path(), twice, 2);
    let error = imported(folder.path(), &all, "made.jsonl", same).unwrap_err();
    assert!(error.contains("made.jsonl line 1: problem: \"same\" names several problems"), "{error}");
}

#[test]
fn a_table_that_is_cut_off_within_quotes_is_refused_by_the_line_of_the_quote() {
    let folder = tempfile::tempdir().unwrap();
    let all = problems(folder.path(), sums(0..2), 2);
    let whole = "problem,sample,text\n0,0,\"so\n\\boxed{1}\"\n1,0,\"so\n\\boxed{2}\"\n";
    assert_eq!(imported(folder.path(), &all, "made.csv", whole).unwrap().1, 2);
    let error = imported(folder.path(), &all, "made.csv", &whole[..whole.len() - 6]).unwrap_err();
    assert!(error.contains("made.csv: line 4: "), "{error}");
    // Data are read the same way.
    let data = file(folder.path(), "d.tsv", "problem\tanswer\n1+1?\t2\n2+1?\t\"3");
    let error = format!("{:#}", load(&data, TaskKind::Math, &Default::default()).err().unwrap());
    assert!(error.contains("d.tsv: line 3: "), "{error}");
}
