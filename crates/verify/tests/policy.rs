//! Loopholes that a policy could find in training: answers without content, and answers that try to exclude themselves from their group.
//!
//! Their verdict is wrong or unparsed in both modes, never correct and never unscorable.

use fgrpo_verify::choice;
use fgrpo_verify::math::{Memo, Mode, Options, Verifier};
use fgrpo_verify::synlogic;
use fgrpo_verify::thoughts::Tags;
use fgrpo_verify::verdict::Verdict;
use proptest::prelude::*;
use serde_json::Value;

const MODES: [Mode; 2] = [Mode::Parity, Mode::Strict];

fn options(mode: Mode) -> Options {
    Options { mode, ..Options::default() }
}

fn verdict(gold: &str, response: &str, mode: Mode) -> Verdict {
    Verifier::new(gold, &options(mode)).check(response).verdict
}

/// `fixtures/math_empty.jsonl`: kinds of empty answers against golds of every kind.
#[test]
fn no_empty_answer_of_the_corpus_is_correct_or_unscorable() {
    let mut failures = Vec::new();
    for line in include_str!("fixtures/math_empty.jsonl").lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let (gold, response) = (row["gold"].as_str().unwrap(), row["pred"].as_str().unwrap());
        for mode in MODES {
            let outcome = Verifier::new(gold, &options(mode)).check(response);
            if !matches!(outcome.verdict, Verdict::Wrong | Verdict::Unparsed) {
                failures.push(format!("{gold} | {response} | {mode:?}: {outcome:?}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} of the corpus:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn a_gold_that_is_an_identity_or_everything_equals_its_like() {
    for (gold, response) in [
        ("0=0", "\\boxed{0=0}"),
        ("x \\in \\mathbb{R}", "\\boxed{x \\in \\mathbb{R}}"),
        ("\\mathbb{R}", "\\boxed{(-\\infty,\\infty)}"),
        ("x^2+1>0", "\\boxed{\\mathbb{R}}"),
        ("\\int x dx", "\\boxed{\\int x dx}"),
        ("\\sum_{n=0}^{\\infty}(n+1) x^{n}", "\\boxed{\\sum_{n=0}^{\\infty}(x^n+n x^n)}"),
        ("\\sum_{n=0}^{\\infty} a_n", "\\boxed{\\frac{2\\sum_{n=0}^{\\infty} a_n}{2}}"),
        ("\\emptyset", "\\boxed{\\{\\}}"),
    ] {
        for mode in MODES {
            assert_eq!(verdict(gold, response, mode), Verdict::Correct, "{gold} | {response} | {mode:?}");
        }
    }
}

/// Two responses can have the same value, of which only one states it.
#[test]
fn a_denied_answer_does_not_get_the_outcome_of_a_repeated_one() {
    let (verifier, mut memo) = (Verifier::new("x+1", &options(Mode::Strict)), Memo::new());
    assert_eq!(verifier.check_with("\\boxed{1+x}", &mut memo).verdict, Verdict::Correct);
    assert_eq!(verifier.check_with("It is not \\boxed{1+x}.", &mut memo).verdict, Verdict::Wrong);
    assert_eq!(verifier.check_with("\\boxed{1+x} or \\boxed{", &mut memo).verdict, Verdict::Unparsed);
    assert_eq!(memo.len(), 1);
}

#[test]
fn strictly_an_identity_and_a_list_that_goes_on_are_no_answer() {
    for (gold, answer, parity) in [
        ("0", "0=0", Verdict::Correct),
        ("x", "x=x", Verdict::Correct),
        ("5", "5=5", Verdict::Correct),
        ("0", "1=1", Verdict::Wrong),
        ("(1,2)", "\\{1,2,\\ldots\\}", Verdict::Correct),
        ("\\{1,2\\}", "\\{1,2,\\ldots\\}", Verdict::Correct),
        ("\\{1,2,\\ldots\\}", "\\{1,2\\}", Verdict::Correct),
        ("\\{1,2,10\\}", "\\{1,2,\\ldots,10\\}", Verdict::Correct),
    ] {
        let response = format!("\\boxed{{{answer}}}");
        assert_eq!(verdict(gold, &response, Mode::Parity), parity, "{gold} | {answer}");
        assert_ne!(verdict(gold, &response, Mode::Strict), Verdict::Correct, "{gold} | {answer}");
    }
    for (gold, answer) in [
        ("5", "2+3=5"),
        ("139", "\\frac{278}{2} = 139"),
        ("0=0", "0=0"),
        ("0", "1-1=0"),
        ("\\{1,2,\\ldots\\}", "\\{1, 2, \\dots\\}"),
        ("\\{1,2,\\ldots,n\\}", "\\{1,2,\\ldots,n\\}"),
        ("3.14", "3.14\\ldots"),
    ] {
        let response = format!("\\boxed{{{answer}}}");
        assert_eq!(verdict(gold, &response, Mode::Strict), Verdict::Correct, "{gold} | {answer}");
    }
}

/// The reference can't read these, or rounds them. Strict mode gives the mathematical verdict.
#[test]
fn quirks_of_the_reference_are_in_parity_mode_only() {
    use Mode::{Parity, Strict};
    for (gold, answer, correct_in) in [
        ("(x+1)", "\\bigl(x+1\\bigr)", Strict),
        ("(1,2)", "\\Big(1,2\\Big)", Strict),
        ("253", "2.53\\times 10^{2}", Strict),
        ("\\frac{3}{10000}", "3.0\\times 10^{-4}", Strict),
        ("x=5", "x={5}", Strict),
        ("x=5", "x \\in \\{5\\}", Strict),
        ("x=(0.5,1)", "x=(\\frac12,1)", Strict),
        ("(1,2)", "f(x) = (1,2)", Strict),
        ("\\{1,2\\}", "x \\approx \\{1,2\\}", Strict),
        ("(1,2),5", "M=(1,2), d=5", Strict),
        ("60^\\circ", "60^ \\circ", Strict),
        ("50\\%", "50\\,\\%", Strict),
        ("\\{1,2\\}", "\\lbrace 1,2\\rbrace", Strict),
        ("\\ln x", "\\log_e x", Strict),
        ("\\frac{x+1}{2}", "x+1 \\over 2", Strict),
        ("1000", "\\text{\\$}1,000", Strict),
        ("90", "90^T", Parity),
        ("A", "A^{T}", Parity),
        ("x+\\frac12", "x+1 \\over 2", Parity),
    ] {
        for mode in MODES {
            let correct = verdict(gold, &format!("\\boxed{{{answer}}}"), mode) == Verdict::Correct;
            assert_eq!(correct, mode == correct_in, "{gold} | {answer} | {mode:?}");
        }
    }
    for (gold, answer) in [
        ("1500", "1.5\\times 10^{3}"),
        ("453000", "4.53\\times 10^{5}"),
        ("\\theta", "θ"),
        ("2\\theta+1", "2θ+1"),
        ("\\Delta", "Δ"),
        ("\\pi", "\\text{π}"),
        ("\\dot{x}+1", "1+\\dot{x}"),
        ("x=2", "{x}={2}"),
        ("0<x<4", "{0}<x<{4}"),
        ("60^\\circ", "60 ^\\circ"),
        ("50\\%", "50\\ \\%"),
        ("\\ln x", "\\log_{e} x"),
    ] {
        for mode in MODES {
            let found = verdict(gold, &format!("\\boxed{{{answer}}}"), mode);
            assert_eq!(found, Verdict::Correct, "{gold} | {answer} | {mode:?}");
        }
    }
}

#[test]
fn equal_functions_stay_equal() {
    for (gold, response) in [
        ("y=2x+3", "\\boxed{2x-y+3=0}"),
        ("y=\\frac{2x+3}{x-1}", "\\boxed{y(x-1)=2x+3}"),
        ("\\lfloor x+1\\rfloor", "\\boxed{\\lfloor x\\rfloor+1}"),
        ("|x-1|", "\\boxed{|1-x|}"),
        ("\\sin 2x", "\\boxed{2\\sin x\\cos x}"),
        ("e^{x+y}", "\\boxed{e^x e^y}"),
        ("\\sqrt{2}^{2011}", "\\boxed{2^{1005}\\sqrt{2}}"),
        ("2^{2011}\\sqrt{3}", "\\boxed{\\sqrt{3}\\cdot 2^{2011}}"),
        ("n!\\cdot(n+1)", "\\boxed{(n+1)!}"),
        ("\\sum_{k=1}^{n} k", "\\boxed{\\frac{n(n+1)}{2}}"),
        ("\\sqrt{3+2\\sqrt2}", "\\boxed{1+\\sqrt2}"),
        ("x \\neq 1", "\\boxed{(-\\infty,1)\\cup(1,\\infty)}"),
        ("(x-1)^2>0", "\\boxed{(-\\infty,1)\\cup(1,\\infty)}"),
        ("1<x<4", "\\boxed{(1,4)}"),
        ("\\frac{1}{x}>0", "\\boxed{(0,\\infty)}"),
        ("\\ln x + \\ln y", "\\boxed{\\ln y + \\ln x}"),
        ("x^{20}\\sqrt{x+1}", "\\boxed{x^{19}\\sqrt{1+x}\\cdot x}"),
    ] {
        for mode in MODES {
            assert_eq!(verdict(gold, response, mode), Verdict::Correct, "{gold} | {response} | {mode:?}");
        }
    }
}

#[test]
fn an_inequality_is_looked_at_where_its_own_bounds_are() {
    for (gold, answer, wanted) in [
        ("x > 30", "\\emptyset", Verdict::Wrong),
        ("x < -50", "\\emptyset", Verdict::Wrong),
        ("x < 100", "\\mathbb{R}", Verdict::Wrong),
        ("x \\geq -1000", "(-\\infty,\\infty)", Verdict::Wrong),
        ("(x-5)(x-1000)(x-1001)<0", "(-\\infty,5)", Verdict::Wrong),
        ("x > 30", "(30,\\infty)", Verdict::Correct),
        ("x < -50", "(-\\infty,-50)", Verdict::Correct),
        ("(x-5)(x-1000)(x-1001)<0", "(-\\infty,5)\\cup(1000,1001)", Verdict::Correct),
    ] {
        let response = format!("\\boxed{{{answer}}}");
        for mode in MODES {
            assert_eq!(verdict(gold, &response, mode), wanted, "{gold} | {answer} | {mode:?}");
        }
    }
}

#[test]
fn the_last_of_several_boxes_between_delimiters_is_the_answer() {
    for (response, parity) in [
        ("\\(\\boxed{20}\\) items and \\(\\boxed{13}\\) items", true),
        ("\\[\\boxed{20}\\]\nThat is, \\[\\boxed{13}\\]", true),
        ("First $x=\\boxed{20}$, then $y=\\boxed{13}$.", true),
        ("$$\\boxed{20}$$ and so $$\\boxed{13}$$", true),
        ("\\(\\boxed{13}\\) items and \\(\\boxed{20}\\) items", false),
        ("\\boxed{20}, \\boxed{13}", false),
        ("\\(\\boxed{20}\\), \\(\\boxed{13}\\)", false),
        ("\\boxed{20} because of \\text{this}. Therefore it is \\boxed{13}, \\text{as said}", true),
        ("\\boxed{13}", true),
        ("\\fbox{13}", false),
    ] {
        let found = Verifier::new("13", &options(Mode::Parity)).check(response).is_correct();
        assert_eq!(found, parity, "{response}");
    }
}

#[test]
fn strictly_a_response_has_one_answer() {
    for (gold, response, right) in [
        ("13", "\\boxed{13}", true),
        ("13", "\\fbox{13}", true),
        ("13", "\\boxed{\\boxed{13}}", true),
        ("13", "\\boxed{20}. No, that is too much. The answer is \\boxed{13}.", true),
        ("13", "\\boxed{13}, and indeed $\\boxed{13}$", true),
        ("\\frac12", "\\boxed{\\frac12}, which is \\boxed{0.5}", true),
        ("13, 20", "\\boxed{20} and \\boxed{13}", true),
        // The last statement has two answers.
        ("13", "\\(\\boxed{20}\\) items and \\(\\boxed{13}\\) items", false),
        ("13", "$$\\boxed{20}$$ and so $$\\boxed{13}$$", false),
        ("13", "\\boxed{20} or \\boxed{13}", false),
        ("13", "\\boxed{13} or 20", false),
        ("13", "either 20 or $\\boxed{13}$", false),
        // An answer that can't be read isn't replaced by one that can.
        ("13", "\\boxed{13}. So it is \\boxed{\\frac{}}", false),
        ("13", "\\boxed{13}. So it is \\boxed{}", false),
        ("13", "\\boxed{13}. So it is \\boxed{14", false),
        ("13", "\\boxed{\\neq 13}", false),
        ("13", "The answer is $\\neq 13$", false),
        ("13", "\\boxed{20 \\boxed{13}}", false),
    ] {
        let outcome = Verifier::new(gold, &options(Mode::Strict)).check(response);
        assert_eq!(outcome.is_correct(), right, "{gold} | {response}: {outcome:?}");
    }
}

#[test]
fn strictly_an_operation_on_a_value_is_no_answer() {
    let game = r#"{"question": "", "answer": [[7, 14], [21, 28]], "difficulty": 1, "metadata": {}}"#;
    let settings = synlogic::Options { mode: Mode::Strict, format_gate: false };
    for (behind, correct) in
        [("", true), (".", true), ("[::-1]", false), (".reverse()", false), ("(doubled)", false)]
    {
        let response = format!("The grid is\n[[7, 14], [21, 28]]{behind}");
        let outcome = synlogic::check("arc_agi", game, &response, &settings).unwrap();
        assert_eq!(outcome.is_correct(), correct, "{response}");
    }
}

#[test]
fn strictly_a_problem_restated_is_no_answer() {
    let loose = Options { accept_unfinished: true, ..options(Mode::Strict) };
    for (gold, answer) in [
        ("56088", "123\\times 456"),
        ("55", "\\sum_{k=1}^{10} k"),
        ("\\frac13", "\\int_0^1 x^2 dx"),
        ("12", "\\gcd(24,36)"),
        ("3", "\\log_2 8"),
        ("1023", "2^{10}-1"),
        ("x=5", "2x=10"),
        ("-7", "\\begin{vmatrix}1&2\\\\5&3\\end{vmatrix}"),
    ] {
        let response = format!("\\boxed{{{answer}}}");
        let outcome = Verifier::new(gold, &options(Mode::Strict)).check(&response);
        assert_eq!((outcome.verdict, &*outcome.reason), (Verdict::Wrong, "restated"), "{gold} | {answer}");
        // Unless the gold is written in this way, or the setting allows it.
        assert!(Verifier::new(gold, &loose).check(&response).is_correct(), "{gold} | {answer}");
        let same = Verifier::new(answer, &options(Mode::Strict)).check(&format!("\\boxed{{{answer} }}"));
        assert!(same.is_correct(), "{answer}: {same:?}");
    }
}

#[test]
fn spellings_of_the_right_answer_are_read() {
    use Mode::{Parity, Strict};
    for (gold, answer, modes) in [
        ("\\frac12", "{1 \\over 2}", &MODES[..]),
        ("\\frac12", "1 \\over 2", &MODES),
        ("\\frac{a+1}{b}", "{a+1 \\over b}", &[Strict]),
        ("a+\\frac{1}{b}", "{a+1 \\over b}", &[Parity]),
        ("x+\\frac12", "x+{1 \\over 2}", &MODES),
        ("\\frac12", "\\boldsymbol{\\frac{1}{2}}", &MODES),
        ("17", "\\boldsymbol{17}", &[Strict]),
        ("1917", "\\text{ }1917\\text{ cm}", &MODES),
        ("121", "121.", &[Strict]),
        ("[0,1)", "{[0,1)}", &[Strict]),
        ("[0,1)", "\\{[0,1)\\}", &[Strict]),
        ("35", "35\\%", &[Parity]),
        ("(-\\infty,\\infty)", "[-\\infty,\\infty]", &[Parity]),
        ("\\frac12", "0\\frac12", &MODES),
        ("-I(0)", "-I(0)", &MODES),
        ("x=3,5", "5,3", &MODES),
        ("x=3,5", "x=5,3", &MODES),
        ("x=3,5", "x=3,x=5", &MODES),
    ] {
        for mode in MODES {
            let found = verdict(gold, &format!("so \\boxed{{{answer}}}"), mode) == Verdict::Correct;
            assert_eq!(found, modes.contains(&mode), "{gold} | {answer} | {mode:?}");
        }
    }
    let percent = Options { percent_as_number: true, ..options(Strict) };
    assert!(Verifier::new("35", &percent).check("\\boxed{35\\%}").is_correct());
    assert!(Verifier::new("35\\%", &percent).check("\\boxed{35}").is_correct());
    assert!(Verifier::new("35", &percent).check("\\boxed{0.35\\%}").verdict == Verdict::Wrong);
}

/// Golds of every kind. None of them is an identity, a universal set, a word or unevaluated.
fn gold() -> impl Strategy<Value = String> {
    let number = -40i64..400;
    prop_oneof![
        (2i64..2000).prop_map(|n| n.to_string()),
        (2i64..90, 2i64..90).prop_map(|(a, b)| format!("\\frac{{{a}}}{{{}}}", a + b)),
        (2i64..90).prop_map(|n| format!("{n}\\sqrt{{{}}}", n * n + 1)),
        (2i64..90).prop_map(|n| format!("{n}.{}", 100 + n)),
        (number.clone(), 2i64..9).prop_map(|(a, b)| format!("{b}x^2+{a}x-7")),
        (number.clone(), 2i64..9).prop_map(|(a, b)| format!("y={b}x+{a}")),
        (2i64..400).prop_map(|a| format!("x={a}")),
        (2i64..400, 2i64..9).prop_map(|(a, b)| format!("x={a},{}", a + b)),
        (2i64..400, 2i64..9).prop_map(|(a, b)| format!("{a}, {}", a + b)),
        number.clone().prop_map(|a| format!("x \\neq {a}")),
        number.clone().prop_map(|a| format!("x > {a}")),
        (number.clone(), 2i64..9).prop_map(|(a, b)| format!("{a} \\le x < {}", a + b)),
        (2i64..90, 2i64..9).prop_map(|(a, b)| format!("({a}, {})", a + b)),
        (2i64..90, 2i64..9).prop_map(|(a, b)| format!("[{a}, {}) \\cup ({}, \\infty)", a + b, a + b + 1)),
        (2i64..9).prop_map(|a| format!("\\sin {a}x")),
        (2i64..9).prop_map(|a| format!("e^{{-{a}x}}+{a}")),
        (2i64..9).prop_map(|a| format!("\\frac{{{a}\\pi}}{{7}}")),
        (2i64..9, 2i64..9)
            .prop_map(|(a, b)| format!("\\begin{{pmatrix}} {a} & 1 \\\\ 0 & {b} \\end{{pmatrix}}")),
        (2i64..9, 1i64..9).prop_map(|(a, b)| format!("{a}+{b}i")),
        (2i64..9).prop_map(|a| format!("x^{a}+y^{a}=z^{a}")),
    ]
}

/// Terms for identities and unevaluated expressions.
fn term() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["x", "y", "t", "a", "b", "\\pi", "e"]).prop_map(str::to_owned),
        (1i64..50).prop_map(|n| n.to_string()),
    ];
    leaf.prop_recursive(3, 12, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}+{b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} \\cdot {b}")),
            inner.clone().prop_map(|a| format!("\\sin({a})")),
            inner.clone().prop_map(|a| format!("({a})^2")),
            inner.prop_map(|a| format!("\\sqrt{{{a}}}")),
        ]
    })
}

/// Answers without content.
fn empty() -> impl Strategy<Value = String> {
    prop_oneof![
        term().prop_map(|a| format!("{a}={a}")),
        (term(), term()).prop_map(|(a, b)| format!("{a}+{b}={b}+{a}")),
        (term(), term()).prop_map(|(a, b)| format!("{a}\\cdot({b})-({b})\\cdot{a}=0")),
        term().prop_map(|a| format!("\\sin^2({a})+\\cos^2({a})=1")),
        term().prop_map(|a| format!("0={a}-({a})")),
        prop::sample::select(vec![
            "\\mathbb{R}",
            "(-\\infty,\\infty)",
            "\\mathbb{C}",
            "\\emptyset",
            "\\{\\}",
            "0=0",
            "1<2",
            "0 \\neq 1",
            "x \\in \\mathbb{R}",
            "\\text{true}",
            "\\text{hello}",
            "\\text{the answer}",
            "?",
            "\\ldots",
            "",
            "\\text{any number}",
            "\\text{undefined}",
            "\\frac{0}{0}",
            "\\frac{1}{0}",
        ])
        .prop_map(str::to_owned),
        term().prop_map(|a| format!("\\int {a} dx")),
        term().prop_map(|a| format!("\\int_0^\\infty {a} dx")),
        term().prop_map(|a| format!("\\lim_{{x\\to 0}} {a}")),
        term().prop_map(|a| format!("\\lim_{{x\\to\\infty}} g({a})")),
        term().prop_map(|a| format!("\\sum_{{n=1}}^{{\\infty}} {a}")),
        term().prop_map(|a| format!("\\frac{{d}}{{dx}} {a}")),
        (3usize..12).prop_map(|n| format!("5{}", "!".repeat(n))),
        (3usize..40).prop_map(|n| format!("{}7{}", "9^{".repeat(n), "}".repeat(n))),
        (60usize..400).prop_map(|n| format!("{}x{}", "\\sqrt{".repeat(n), "}".repeat(n))),
        (5_000usize..9_000).prop_map(|n| "x+".repeat(n) + "1"),
        (8usize..16).prop_map(|n| format!("10^{{{}}}", "9".repeat(n))),
        "[a-z]{4,12} [a-z]{4,12}".prop_map(|words| format!("\\text{{{words}}}")),
    ]
}

/// Responses with an empty answer that are neither wrong nor unparsed.
fn accepted_empty(gold: &str, answer: &str) -> Vec<(Mode, String)> {
    let mut accepted = Vec::new();
    for mode in MODES {
        let verifier = Verifier::new(gold, &options(mode));
        assert!(verifier.is_parsed(), "{gold}");
        // The reference takes a side of an identity for the answer: `5=5` is 5.
        let is_right = |side: &str| verifier.check(&format!("\\boxed{{{side}}}")).is_correct();
        if mode == Mode::Parity && answer.contains('=') && answer.split('=').any(is_right) {
            continue;
        }
        for response in [format!("So the answer is $\\boxed{{{answer}}}$."), format!("\\({answer}\\)")] {
            if !matches!(verifier.check(&response).verdict, Verdict::Wrong | Verdict::Unparsed) {
                accepted.push((mode, response));
            }
        }
    }
    accepted
}

#[test]
fn an_identity_between_the_golds_is_wrong_strictly() {
    for (gold, answer) in
        [("31", "31=31"), ("31", "(15+16)=(15+16)"), ("\\sin 2x", "\\sin(2 \\cdot x)=\\sin(2 \\cdot x)")]
    {
        assert_eq!(
            verdict(gold, &format!("\\({answer}\\)"), Mode::Parity),
            Verdict::Correct,
            "{gold} | {answer}"
        );
        assert_eq!(accepted_empty(gold, answer), [], "{gold} | {answer}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_empty_answer_is_wrong_or_unparsed(gold in gold(), answer in empty()) {
        let accepted = accepted_empty(&gold, &answer);
        prop_assert!(accepted.is_empty(), "{gold} | {answer}: {accepted:?}");
    }

    #[test]
    fn no_text_makes_its_completion_unscorable(
        gold in gold(),
        response in prop_oneof!["\\PC{0,200}", "[0-9.,+*/^()!=<>{}\\\\$a-zA-Z ]{0,200}"],
        letters in "[A-Da-d ,.()]{0,12}",
    ) {
        for mode in MODES {
            let verifier = Verifier::new(&gold, &options(mode));
            for text in [response.clone(), format!("\\boxed{{{response}}}"), format!("${response}$")] {
                let outcome = verifier.check(&text);
                prop_assert!(outcome.verdict != Verdict::Unscorable, "{} | {} | {:?}", gold, text, outcome);
            }
        }
        for compare in [choice::Match::Letter, choice::Match::LetterOrContent] {
            let verifier = choice::Verifier::new("B", &[], compare).unwrap();
            for text in [response.clone(), format!("\\boxed{{{response}}}"), format!("\\boxed{{{letters}}}")] {
                prop_assert!(verifier.check(&text).verdict != Verdict::Unscorable);
            }
        }
    }
}

#[test]
fn the_answer_follows_the_last_closing_tag() {
    let tags = Tags::default();
    for (response, answer) in [
        ("<think>a</think>b", Some("b")),
        ("a</think>b", Some("b")),
        ("<think>a</think>b</think>c", Some("c")),
        ("<think>a<think>b</think>c", Some("c")),
        ("b", Some("b")),
        ("<think>a", None),
        ("b<think>a", None),
        ("<think>a</think>b<think>c", None),
        ("<think>a</think", None),
        ("<think>a</think>", Some("")),
        ("", Some("")),
    ] {
        assert_eq!(tags.answer(response), answer, "{response}");
    }
}

#[test]
fn a_response_to_a_prompt_that_opens_the_thoughts_has_to_close_them() {
    let tags = Tags { opened: true, ..Tags::default() };
    assert_eq!(tags.answer("a</think>b"), Some("b"));
    assert_eq!(tags.answer("b"), None);
}

#[test]
fn tags_that_cannot_be_told_apart_are_refused() {
    assert_eq!(Tags::parse("[THINK],[/THINK]").unwrap().answer("[THINK]a[/THINK]b"), Some("b"));
    for text in ["", "<think>", "<think>,", ",</think>", "---,---", "<<end>>,<end>"] {
        assert!(Tags::parse(text).is_err(), "{text}");
    }
}
