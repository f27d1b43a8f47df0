//! Strict mode on generated answers: right ones in the forms that models write, and wrong ones that a lenient reader accepts.
//!
//! `cargo test --release -p fgrpo-verify --test math_strict -- --nocapture` prints the counts by class. With
//! `FGRPO_STRICT_LIST=1` it also prints each case that strict mode gets wrong, and with `FGRPO_STRICT_EXPORT=FILE` it writes
//! the cases as JSON lines for `peers/strict_math.py`, which grades them with math-verify.

mod by_hand;
mod dishonest;
mod honest;
mod random;

use std::collections::BTreeMap;

use fgrpo_verify::math::{Mode, Options, Verifier};
use fgrpo_verify::verdict::Verdict;
use random::Case;

/// Number of cases of each class.
const EACH: usize = 400;

fn options(mode: Mode) -> Options {
    Options { mode, ..Options::default() }
}

fn is_correct(case: &Case, mode: Mode) -> bool {
    Verifier::new(&case.gold, &options(mode)).check(&case.response).is_correct()
}

/// Prints a table by class: cases, and those accepted in parity mode and in strict mode. Returns the cases that strict mode accepts and refuses.
fn table(title: &str, cases: &[Case]) -> (Vec<Case>, Vec<Case>) {
    let mut classes: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for case in cases {
        let strict = is_correct(case, Mode::Strict);
        let row = classes.entry(case.class).or_default();
        row[0] += 1;
        row[1] += usize::from(is_correct(case, Mode::Parity));
        row[2] += usize::from(strict);
        if strict { &mut accepted } else { &mut refused }.push(case.clone());
    }
    println!("{title}: class | cases | correct in parity mode | correct in strict mode");
    for (class, [all, parity, strict]) in &classes {
        println!("  {class} | {all} | {parity} | {strict}");
    }
    let total = classes.values().fold([0; 3], |total, row| [0, 1, 2].map(|at| total[at] + row[at]));
    println!("  total | {} | {} | {}", total[0], total[1], total[2]);
    (accepted, refused)
}

fn list(cases: &[Case], what: &str) {
    if std::env::var_os("FGRPO_STRICT_LIST").is_some() {
        for case in cases {
            println!("{what}\t{}\t{}\t{}", case.class, case.gold, case.response.replace('\n', "\\n"));
        }
    }
}

#[test]
fn no_dishonest_answer_is_accepted() {
    let cases = dishonest::cases(EACH);
    let (accepted, _) = table("dishonest", &cases);
    list(&accepted, "accepted");
    assert!(accepted.is_empty(), "{} of {} are accepted", accepted.len(), cases.len());
}

#[test]
fn fewer_than_one_in_twenty_right_answers_are_refused() {
    let cases = honest::cases(EACH);
    let (_, refused) = table("honest", &cases);
    list(&refused, "refused");
    assert!(refused.len() * 20 < cases.len(), "{} of {} are refused", refused.len(), cases.len());
}

#[test]
fn answers_judged_by_hand_are_judged_alike() {
    let (right, wrong) = by_hand::cases(by_hand::OF_ALL_KINDS);
    let (_, refused) = table("right by hand", &right);
    let (accepted, _) = table("wrong by hand", &wrong);
    list(&refused, "refused");
    list(&accepted, "accepted");
    assert!(right.len() + wrong.len() > 500);
    assert!(accepted.is_empty(), "{} of {} are accepted", accepted.len(), wrong.len());
    assert!(refused.len() * 20 < right.len(), "{} of {} are refused", refused.len(), right.len());
}

#[test]
fn rules_by_the_type_of_an_answer_hold() {
    let (mut right, mut wrong) = by_hand::cases(by_hand::BY_TYPE);
    let further = by_hand::cases(by_hand::BY_RULE);
    right.extend(further.0);
    wrong.extend(further.1);
    let off = |cases: Vec<Case>, wanted: bool| {
        let missed = cases.into_iter().filter(|case| is_correct(case, Mode::Strict) != wanted);
        missed.map(|case| format!("{}: {} | {}", case.class, case.gold, case.response)).collect::<Vec<_>>()
    };
    let (refused, accepted) = (off(right, true), off(wrong, false));
    assert!(accepted.is_empty(), "accepted:\n{}\nrefused:\n{}", accepted.join("\n"), refused.join("\n"));
    assert!(refused.is_empty(), "refused:\n{}", refused.join("\n"));
}

/// Writes all cases for math-verify.
#[test]
fn cases_are_exported() {
    let Some(path) = std::env::var_os("FGRPO_STRICT_EXPORT") else { return };
    let line = |case: &Case, right: bool| {
        serde_json::json!({"class": case.class, "gold": case.gold, "pred": case.response, "right": right})
            .to_string()
    };
    let mut lines: Vec<String> = honest::cases(EACH).iter().map(|case| line(case, true)).collect();
    lines.extend(dishonest::cases(EACH).iter().map(|case| line(case, false)));
    std::fs::write(path, lines.join("\n") + "\n").unwrap();
}

/// With the setting that accepts unfinished answers, a comparison doesn't depend on which side is the gold.
#[test]
fn comparison_is_symmetric() {
    let options = Options { accept_unfinished: true, ..options(Mode::Strict) };
    let judge = |gold: &str, answer: &str| {
        Verifier::new(gold, &options).check(&format!("\\boxed{{{answer}}}")).is_correct()
    };
    let inside = |case: &Case| {
        let from = case.response.find("\\boxed{")? + 7;
        let to = from + case.response[from..].rfind('}')?;
        Some(case.response[from..to].to_owned())
    };
    let mut compared = 0;
    for case in honest::cases(EACH).iter().chain(&dishonest::cases(EACH)) {
        let Some(answer) = inside(case).filter(|answer| !answer.is_empty() && !answer.contains("boxed"))
        else {
            continue;
        };
        // `5=5` isn't an answer, whatever it is compared with.
        let empty =
            |text: &str| text.split_once('=').is_some_and(|(left, right)| left.trim() == right.trim());
        if empty(&case.gold) || empty(&answer) {
            continue;
        }
        if !Verifier::new(&answer, &options).is_parsed() || !Verifier::new(&case.gold, &options).is_parsed() {
            continue;
        }
        compared += 1;
        assert_eq!(judge(&case.gold, &answer), judge(&answer, &case.gold), "{} | {answer}", case.gold);
    }
    assert!(compared > 5_000, "{compared}");
}

/// Whether a problem is unscorable depends only on its gold.
#[test]
fn unscorable_is_decided_by_the_gold() {
    let deep = format!("{}1{}", "\\sqrt{".repeat(60), "}".repeat(60));
    for mode in [Mode::Parity, Mode::Strict] {
        for gold in [
            "m\\frac{dv}{dt}+bv=f",
            "\\sum_{n=0}^\\infty \\frac{x^n}{n!}",
            "9^{9^{9^9}}",
            "\\int e^{x^2} dx",
            "\\lim_{x\\to0}f(x)",
            "5",
            "\\text{Yes}",
            "",
            &deep,
            "what is this",
            "\\frac{1}{",
        ] {
            let verifier = Verifier::new(gold, &options(mode));
            let verdict = |answer: &str| verifier.check(&format!("\\boxed{{{answer}}}")).verdict;
            let answers = [
                gold,
                "5",
                "0",
                "e^x",
                "9^{9^{9^9}}",
                "\\sum_{n=0}^\\infty a_n",
                "y'=2",
                "??",
                "",
                &deep,
                "f=m\\frac{dv}{dt}+bv",
            ];
            let unscorable = answers.iter().filter(|answer| verdict(answer) == Verdict::Unscorable).count();
            assert!(unscorable == 0 || unscorable == answers.len(), "{gold} in {mode:?}: {unscorable}");
        }
    }
}
