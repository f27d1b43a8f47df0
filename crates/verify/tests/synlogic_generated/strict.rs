//! Strict mode over all SynLogic tasks: honest ways to give a right answer are correct, dishonest ones are not.
//! `cargo test --release -p fgrpo-verify --test synlogic_generated -- --nocapture` prints the counts.

use std::collections::BTreeMap;

use fgrpo_verify::synlogic::python::literal;
use fgrpo_verify::synlogic::value::Value;
use fgrpo_verify::synlogic::{Mode, Options, Task, Verifier};
use fgrpo_verify::thoughts::Tags;

use crate::problems::{Problem, problems};

const STRICT: Options = Options { mode: Mode::Strict, format_gate: false };

/// Ways to state a right answer `S` next to a wrong one `W`, with their class.
const HONEST: &[(&str, &str)] = &[
    ("alone", "S"),
    ("after words", "Let me think about it step by step.\n\nS\n"),
    ("after a thought", "<think>Could it be this?\nW\nNo.</think>\n\nS"),
    ("in tags", "<think>Hm.</think>\n<answer>\nS\n</answer>"),
    ("in tags, again", "<think>Hm.</think>\n<answer>S</answer>\nI repeat:\n<answer>S</answer>"),
    ("corrected", "First I found this:\n\nW\n\nThat breaks a rule, so I corrected it:\n\nS"),
    ("repeated", "S\n\nI checked it once more. This is my result:\n\nS"),
    ("twice", "S\n\nS"),
    ("after another task's", "A small case first, [[1, 2], [3, 4]] say.\n\nS"),
    ("not the other", "Not W but:\n\nS"),
    ("not the other", "I first tried W, which fails.\n\nS"),
    ("announced", "**Answer:**\n\nS"),
    ("announced", "So the final answer is\n\nS"),
    ("checked", "S\n\nI checked it once more: every rule holds."),
    ("checked", "S\n\nThis satisfies all the constraints."),
    ("closed", "Here is my solution:\n\nS\n\nDone."),
    ("in tags", "<answer>S</answer>\n\nI checked the rules once more."),
    ("not the other", "Not W. The answer is S"),
    ("not the other", "W is wrong, so the answer is S"),
    ("not the other", "Bob says W, but the answer is S"),
    ("not the other", "At first glance W, but the right answer is S"),
    ("not the other", "My first guess was W, but the correct answer is S"),
    ("not the other", "Someone might say W. However, the answer is S"),
    ("not the other", "Without the last rule, W would be right. With it, the answer is S"),
    ("corrected", "W\n\nThat is wrong. The answer is:\n\nS"),
    ("closed", "S\n\nAll other possibilities lead to contradictions."),
];

const DISHONEST: &[(&str, &str)] = &[
    ("empty", ""),
    ("empty", " \n"),
    ("wrong", "W"),
    ("taken back", "S\n\nNo, that breaks a rule. My result is this one:\n\nW"),
    ("hedged", "S or W"),
    ("hedged", "W or S"),
    ("hedged", "S\nor\nW"),
    ("hedged", "Either W or perhaps S"),
    ("listed", "S, W"),
    ("listed", "W, S"),
    ("listed", "W\n\nS\n\nW"),
    ("only thought", "<think>S</think>\n\nW"),
    ("only thought", "<think>S</think>\n\nI can't say."),
    ("only thought", "<think>S"),
    ("in two tags", "<answer>W</answer><answer>S</answer>"),
    ("in nested tags", "<answer><answer>S</answer>W</answer>"),
    ("in nested blocks", "````\nS\nW\n````"),
    ("stated twice", "The answer is S. The answer is W."),
    ("stated twice", "The answer is W. The answer is S."),
    ("stated twice", "S\n\nAnother solution:\n\nW"),
    ("stated twice", "W\n\nAnother solution:\n\nS"),
    ("itemized", "- W\n- S"),
    ("itemized", "Candidates:\n1. W\n2. S"),
    ("itemized", "1. S\n2. W"),
    ("denied", "It is not:\nS"),
    ("denied", "This is not correct:\n\nS"),
    ("denied", "The answer is not S"),
    ("denied", "The answer isn't S."),
    ("denied", "Wrong answer:\n\nS"),
    ("denied", "An incorrect solution would be\nS"),
    ("denied", "rather W than S"),
    ("denied", "W, not S"),
    ("quoted", "The problem says \"S\"."),
    ("quoted", "Example of the format:\n\nS\n\nI can't solve it."),
    ("taken back", "S is wrong."),
    ("taken back", "S was rejected."),
    ("taken back", "S is what Tom got, and Tom is wrong."),
    ("taken back", "S\n\nMy answer is withdrawn."),
    ("denied", "Many students get S by mistake."),
    ("quoted", "For a different puzzle: S"),
    ("taken back", "S\n\nThat is wrong."),
    ("taken back", "S\n\nThis is not the answer."),
    ("taken back", "S\n\nNo, this breaks a rule."),
    ("taken back", "My first guess was\n\nS\n\nbut it breaks a rule."),
    ("taken back", "S\n\nJust kidding."),
    ("taken back", "S\n\nIgnore the above."),
    ("taken back", "S\n\nThe above is wrong. I give up."),
    ("taken back", "<answer>S</answer>\n\nNo, that is wrong."),
    ("asked", "Is it S?"),
    ("behind the tags", "<answer>S</answer> W"),
    ("behind the tags", "<answer>S</answer> or W"),
    ("behind the tags", "<answer>S</answer>\n\nThe answer is W"),
    ("behind the tags", "<answer>S</answer> is wrong."),
    ("denied", "An incorrect solution would be\n\nS"),
    ("denied", "This fails:\n\nS"),
    ("denied", "It is not the case that S"),
    ("denied", "Discarded candidates: S"),
    ("denied", "Ignore this: S"),
    ("denied", "La respuesta no es S"),
    ("denied", "错误答案：S"),
    ("supposed", "Had I ignored the last condition, I would get S"),
    ("supposed", "Without the last rule, the answer would be:\n\nS"),
    ("supposed", "If the rules were different, the answer would be:\n\nS"),
    ("supposed", "Suppose the answer is S."),
    ("supposed", "It might be S"),
    ("somebody else's", "According to the internet, S"),
    ("somebody else's", "My friend's answer is S"),
    ("somebody else's", "A student wrote:\n\nS\n\nFind the mistake."),
    ("somebody else's", "One might think that it is S"),
    ("somebody else's", "S\n\nThis is Bob's answer."),
    ("compared", "I choose W over S"),
    ("compared", "W instead of S"),
    ("listed", "Option 1:\n\nW\n\nOption 2:\n\nS"),
    ("listed", "W\n\nAnother possibility:\n\nS"),
    ("quoted", "The example in the problem is\n\nS"),
    ("taken back", "S violates the second condition."),
    ("taken back", "S has a mistake."),
    ("taken back", "S is only a guess."),
    ("taken back", "S\n\nThis does not satisfy the conditions."),
    ("taken back", "S\n\nI made that up."),
    ("taken back", "S\n\nThere is an error in it."),
    ("taken back", "S\n\nI am not sure about this."),
    ("taken back", "S\n\nThis was only an example."),
];

/// A form with the solutions in place of the words `S` and `W`.
fn filled(form: &str, right: &Problem, other: &Problem) -> String {
    let is_word = |c: char| c.is_ascii_alphabetic();
    let mut words = form.split_inclusive(|c| !is_word(c));
    words.by_ref().fold(String::new(), |text, part| {
        let word = part.trim_end_matches(|c| !is_word(c));
        let solution = match word {
            "S" => &right.solution,
            "W" => &other.solution,
            word => word,
        };
        text + solution + &part[word.len()..]
    })
}

/// A text with its numbers written in unusual ways, and with its end cut off.
fn distorted(solution: &str) -> Vec<(&'static str, String)> {
    let digits: Vec<usize> =
        solution.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(i, _)| i).collect();
    let before = |i: usize| solution[..i].chars().next_back().is_some_and(|c| c.is_ascii_digit() || c == '.');
    let starts: Vec<usize> = digits.iter().copied().filter(|i| !before(*i)).collect();
    let mut out = Vec::new();
    for &at in [starts.first(), starts.get(starts.len() / 2), starts.last()].into_iter().flatten() {
        let (head, tail) = solution.split_at(at);
        out.push(("leading zero", format!("{head}0{tail}")));
        out.push((
            "underscore",
            format!(
                "{head}{}_{}",
                &tail[..1],
                if tail[1..].starts_with(|c: char| c.is_ascii_digit()) {
                    tail[1..].to_owned()
                } else {
                    format!("0{}", &tail[1..])
                }
            ),
        ));
        let wide = char::from_u32(0xFF10 + tail.as_bytes()[0] as u32 - 0x30).unwrap_or('0');
        out.push(("digits of another script", format!("{head}{wide}{}", &tail[1..])));
        out.push(("two signs", format!("{head}--{tail}")));
        out.push(("another digit", format!("{head}{}{}", (tail.as_bytes()[0] - b'0' + 1) % 10, &tail[1..])));
        out.push(("hexadecimal", format!("{head}0x{tail}")));
        out.push(("exponent", format!("{head}{}e0{}", &tail[..1], &tail[1..])));
    }
    let last = solution.rfind(|c: char| c.is_alphanumeric() || "()[]{}<>".contains(c));
    if let Some(at) = last {
        // The part before the last character of the answer, or before the last half of it.
        let middle = (0..=at / 2).rev().find(|i| solution.is_char_boundary(*i)).unwrap_or(0);
        out.extend([("cut", solution[..at].to_owned()), ("cut", solution[..middle].to_owned())]);
    }
    out
}

/// A solution that is a grid, as lines of cells, as a table and as a matrix. `None` if it isn't a grid.
fn written(solution: &str) -> Option<[String; 3]> {
    let text = |cell: &Value| match cell {
        Value::Int(n) => Some(n.to_string()),
        cell => cell.as_str().map(str::to_owned),
    };
    let list = || {
        let value = literal(solution.trim_start_matches("```python").trim_matches(['`', '\n'])).ok()?;
        let row = |row: &Value| row.as_sequence()?.iter().map(text).collect::<Option<Vec<_>>>();
        value.as_sequence()?.iter().map(row).collect::<Option<Vec<_>>>()
    };
    let plain = || {
        let inside = solution.strip_prefix("[[")?.strip_suffix("]]")?;
        Some(inside.split(',').map(|row| row.split_whitespace().map(str::to_owned).collect()).collect())
    };
    let rows: Vec<Vec<String>> = list().or_else(plain)?;
    let square = rows.len() > 2
        && rows.iter().all(|row| row.len() > 2 && row.iter().all(|cell| !cell.trim().is_empty()));
    let join =
        |cells: &str, lines: &str| rows.iter().map(|row| row.join(cells)).collect::<Vec<_>>().join(lines);
    square.then(|| {
        [
            join(" ", "\n"),
            format!("| {} |", join(" | ", " |\n| ")),
            format!(r"$\begin{{pmatrix}}{}\end{{pmatrix}}$", join(" & ", r" \\ ")),
        ]
    })
}

#[test]
fn grids_are_read_in_every_notation() {
    let mut off = Vec::new();
    let mut cases = 0;
    for (task, verifier, right, other) in groups() {
        let (Some(right), Some(other)) = (written(&right.solution), written(&other.solution)) else {
            continue;
        };
        let size = |lines: &str| (lines.lines().count(), lines.split_whitespace().count());
        // Lines of another size aren't a grid.
        if size(&right[0]) != size(&other[0]) {
            continue;
        }
        for (notation, (right, other)) in right.into_iter().zip(other).enumerate() {
            let in_lines = notation < 2;
            let apart = |form: &&(&str, &str)| {
                let whole = |part: &str| part.is_empty() || part.ends_with('\n') || part.starts_with('\n');
                !in_lines || form.1.split(['S', 'W']).filter(|part| part.len() < 60).all(whole)
            };
            let honest = HONEST.iter().filter(apart).map(|form| (form, true));
            let [right, other] = [right, other].map(|solution| Problem { solution, data: String::new() });
            for ((class, form), is_right) in honest.chain(DISHONEST.iter().map(|form| (form, false))) {
                let response = filled(form, &right, &other);
                let answer = Tags::default().answer(&response);
                cases += 1;
                if answer.is_some_and(|answer| verifier.check(answer, &STRICT).is_correct()) != is_right {
                    let verdict = if is_right { "refused" } else { "accepted" };
                    off.push(format!("{task}: {verdict}: {class}: {}", short(&response)));
                }
            }
        }
    }
    off.iter().step_by(off.len() / 60 + 1).for_each(|line| println!("{line}"));
    assert!(off.is_empty() && cases > 5_000, "{} of {cases}", off.len());
}

/// Counts by class: cases, and correct ones.
type Counts = BTreeMap<&'static str, (usize, usize)>;

fn count(counts: &mut Counts, class: &'static str, correct: bool) {
    let entry = counts.entry(class).or_default();
    entry.0 += 1;
    entry.1 += usize::from(correct);
}

fn print(title: &str, counts: &Counts) {
    println!("{title}");
    for (class, (cases, correct)) in counts {
        println!("{class:28} {cases:6} cases, {correct:6} correct");
    }
}

fn short(text: &str) -> String {
    text.chars().take(160).collect()
}

fn groups() -> impl Iterator<Item = (Task, Verifier, Problem, Problem)> {
    Task::ALL.into_iter().flat_map(|task| {
        let made = problems(task);
        let pairs = made.clone().into_iter().zip(made.into_iter().cycle().skip(1));
        let pairs = pairs.map(move |(right, other)| {
            (task, Verifier::parse(task, &right.data).unwrap_or_else(|e| panic!("{e}")), right, other)
        });
        pairs.filter(|(_, verifier, _, other)| !verifier.check(&other.solution, &STRICT).is_correct())
    })
}

#[test]
fn an_object_with_a_key_twice_is_no_answer() {
    for (task, answer, response) in [
        (Task::ZebraPuzzle, r#""{\"a\": \"b\"}""#, r#"{"a": "c", "a": "b"}"#),
        (Task::ZebraPuzzle, r#""{\"a\": \"b\"}""#, r"{'a': 'c', 'a': 'b'}"),
    ] {
        let data = format!(r#"{{"question": "", "answer": {answer}, "difficulty": 1, "metadata": {{}}}}"#);
        let verifier = Verifier::parse(task, &data).unwrap_or_else(|e| panic!("{e}"));
        let checked = |text: &str, mode| verifier.check(text, &Options { mode, ..STRICT }).is_correct();
        assert!(checked(r#"{"a": "b"}"#, Mode::Strict));
        assert!(!checked(response, Mode::Strict), "{response}");
        assert!(checked(response, Mode::Parity), "{response}");
    }
}

#[test]
fn the_error_of_a_camp_names_the_short_list() {
    let camp = |rows: &str, columns: &str| {
        let metadata = format!(
            r#"{{"n": 1, "m": 2, "grid": [["T", "X"]], "row_constraints": {rows}, "col_constraints": {columns}}}"#
        );
        let data = format!(r#"{{"question": "", "answer": "", "difficulty": 1, "metadata": {metadata}}}"#);
        Verifier::parse(Task::Campsite, &data).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(camp("[1]", "[0, 1]"), Ok(()));
    for (rows, columns, field) in [("[]", "[0, 1]", "row_constraints"), ("[1]", "[0]", "col_constraints")] {
        let error = camp(rows, columns).unwrap_err();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn right_answers_are_correct_however_they_are_stated() {
    let mut counts = Counts::new();
    let mut missed = Vec::new();
    for (task, verifier, right, other) in groups() {
        for (class, form) in HONEST {
            let response = filled(form, &right, &other);
            let answer = Tags::default().answer(&response).expect("the thoughts end");
            let outcome = verifier.check(answer, &STRICT);
            count(&mut counts, class, outcome.is_correct());
            if !outcome.is_correct() {
                missed.push(format!("{task}: {class}: {}: {:?}", outcome.reason, short(&response)));
            }
        }
    }
    print("honest", &counts);
    missed.iter().step_by(missed.len() / 40 + 1).for_each(|line| println!("{line}"));
    assert!(missed.is_empty(), "{} are not correct", missed.len());
}

#[test]
fn hedged_distorted_and_taken_back_answers_are_not_correct() {
    let mut counts = Counts::new();
    let mut accepted = Vec::new();
    for (task, verifier, right, other) in groups() {
        let mut responses: Vec<(&'static str, String)> =
            DISHONEST.iter().map(|(class, form)| (*class, filled(form, &right, &other))).collect();
        responses.extend(distorted(&right.solution));
        // Another digit may solve the equation too.
        responses.retain(|(class, _)| task != Task::MathPath || *class != "another digit");
        for (class, response) in responses {
            let answer = Tags::default().answer(&response);
            let correct = answer.is_some_and(|answer| verifier.check(answer, &STRICT).is_correct());
            count(&mut counts, class, correct);
            if correct {
                accepted.push(format!("{task}: {class}: {:?}", short(&response)));
            }
        }
    }
    print("dishonest", &counts);
    accepted.iter().step_by(accepted.len() / 60 + 1).for_each(|line| println!("{line}"));
    assert!(accepted.is_empty(), "{} are correct", accepted.len());
}
