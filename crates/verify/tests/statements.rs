//! Sentences that state an answer and sentences that don't, for every kind of problem that reads its answer from sentences.

use fgrpo_verify::choice::{Match, Verifier as Choice};
use fgrpo_verify::math::{Mode, Options, Verifier as Math};
use fgrpo_verify::synlogic;

/// Forms of a response: `+` states the value `@`, `-` doesn't. `⏎` is a new line.
const FORMS: &str = include_str!("fixtures/statements.txt");

/// Responses to problems with the given number: `+` is correct, `-` isn't. ` @@ ` separates the number from the response.
const NUMBERS: &str = include_str!("fixtures/numbers_in_sentences.txt");

/// Whether a response is correct.
type Check = Box<dyn Fn(&str) -> bool>;

/// Returns the kinds of problems with a value each, and a check of a response with this value.
fn kinds() -> Vec<(&'static str, &'static str, Check)> {
    let strict = Options { mode: Mode::Strict, ..Options::default() };
    let number = Math::new("42", &strict);
    let formula = Math::new(r"\frac{3}{4}", &strict);
    let options = ["Lyon", "Paris", "Nice", "Lille"].map(str::to_owned);
    let choice = || Choice::new("B", &options, Match::LetterOrContent).unwrap();
    let (letter, words) = (choice(), choice());
    let game = r#"{"question": "", "answer": 42, "difficulty": 1, "metadata": {}}"#;
    let rules = synlogic::Options { mode: Mode::Strict, format_gate: false };
    let counts =
        move |text: &str| synlogic::check("object_counting", game, text, &rules).unwrap().is_correct();
    vec![
        ("math, number", "42", Box::new(move |text| number.check(text).is_correct())),
        ("math, formula", r"$\frac{3}{4}$", Box::new(move |text| formula.check(text).is_correct())),
        ("choice, letter", "(B)", Box::new(move |text| letter.check(text).is_correct())),
        ("choice, words", "Paris", Box::new(move |text| words.check(text).is_correct())),
        ("synlogic", r"\boxed{42}", Box::new(counts)),
    ]
}

#[test]
fn sentences_state_or_deny_an_answer_of_any_kind() {
    let mut off = Vec::new();
    for (kind, value, is_correct) in kinds() {
        for line in FORMS.lines() {
            let Some((sign @ ("+" | "-"), form)) = line.split_once(' ') else { continue };
            let boxed = form.contains(r"\boxed{@}");
            let bare = value.trim_matches('$').trim_start_matches(r"\boxed{").trim_end_matches('}');
            let bare =
                if boxed && value.contains("frac") { r"\frac{3}{4}" } else { bare.trim_matches(['(', ')']) };
            let response = form.replace('@', if boxed { bare } else { value }).replace('⏎', "\n");
            if is_correct(&response) != (sign == "+") {
                off.push(format!("{kind}: {line}"));
            }
        }
    }
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn sentences_state_or_deny_a_number() {
    let strict = Options { mode: Mode::Strict, ..Options::default() };
    let is_off = |line: &&str| {
        let Some((sign @ ("+" | "-"), case)) = line.split_once(' ') else { return false };
        let (gold, response) = case.split_once(" @@ ").expect("a number and a response");
        Math::new(gold, &strict).check(&response.replace('⏎', "\n")).is_correct() != (sign == "+")
    };
    let off: Vec<&str> = NUMBERS.lines().filter(is_off).collect();
    assert!(off.is_empty(), "{}", off.join("\n"));
}

#[test]
fn a_puzzle_asks_for_things_that_are_true_or_wrong() {
    let game = |answer: &str| {
        format!(r#"{{"question": "", "answer": {answer}, "difficulty": 1, "metadata": {{}}}}"#)
    };
    let steps = r#"{"question": "", "answer": "", "difficulty": 1, "metadata": {"error_indices": [6, 15]}}"#
        .to_owned();
    let rules = synlogic::Options { mode: Mode::Strict, format_gate: false };
    for (task, game, response, right) in [
        ("boolean_expressions", game("\"C,E\""), r"The true ones are $\boxed{C,E}$.", true),
        ("boolean_expressions", game("\"C,E\""), r"The false ones are $\boxed{C,E}$.", false),
        ("boolean_expressions", game("\"C,E\""), r"The expressions that are false are \boxed{C,E}.", false),
        ("dyck_language_reasoning_errors", steps.clone(), "The wrong thoughts are **6, 15**.", true),
        ("dyck_language_reasoning_errors", steps.clone(), "The correct thoughts are **6, 15**.", false),
        ("dyck_language_reasoning_errors", steps, "The wrong thoughts are not 6, 15.", false),
        ("word_sorting_mistake", game("12"), r"The first wrong step is \boxed{12}", true),
        ("word_sorting_mistake", game("12"), r"The first correct step is \boxed{12}", false),
        ("object_counting", game("22"), r"I have $\boxed{22 \text{ coats}}$.", true),
        ("object_counting", game("2079"), r"\boxed{2{,}079}", true),
        ("object_counting", game("22"), r"\boxed{22 \text{ or } 23}", false),
        ("object_counting", game("22"), r"\boxed{22!}", false),
        ("object_counting", game("22"), r"\boxed{22 \text{ dozen}}", false),
        ("object_counting", game("279"), r"\boxed{2,79}", false),
        ("operation", game("2079"), r"$\boxed{2{,}079}$", true),
    ] {
        let outcome = synlogic::check(task, &game, response, &rules).unwrap();
        assert_eq!(outcome.is_correct(), right, "{task}: {response}");
    }
}
