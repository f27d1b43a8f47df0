//! Our own cases: labelled by hand (strict), adversarial, and random bytes.

use std::time::Instant;

use fgrpo_verify::math::{Memo, Mode, Options, Verifier};
use fgrpo_verify::verdict::Verdict;
use proptest::prelude::*;

fn strict() -> Options {
    Options { mode: Mode::Strict, ..Options::default() }
}

#[test]
fn strict_mode_has_no_known_false_positive() {
    for (gold, pred) in [
        ("1-\\frac{1}{e}", "$1+\\frac{1}{e}$"),
        ("1 - \\frac{1}{\\mathrm{e}}", "$1 + \\frac{1}{\\mathrm{e}}$"),
        ("1-1/e", "$1+1/e$"),
        ("\\frac{1}{2004!}", "$\\frac{1}{2006!}$"),
        ("\\ln(x^2)", "$2\\ln x$"),
        ("\\sqrt{x^2}", "$x$"),
        ("2^{-60}", "$2^{-61}$"),
        ("\\sqrt2\\cdot10^{-16}", "$\\sqrt3\\cdot10^{-16}$"),
        ("10^{-20}", "$2\\cdot10^{-20}$"),
        ("28\\%", "28"),
        ("482", "$482\\%$"),
        ("x=3", "$y=3$"),
        ("\\pi", "3.14"),
        ("x<3", "$x>3$"),
        ("[1,2]", "$(1,2)$"),
        ("(1,2,3)", "$(3,2,1)$"),
    ] {
        let outcome = Verifier::new(gold, &strict()).check(pred);
        assert_eq!(outcome.verdict, Verdict::Wrong, "{gold} and {pred}: {}", outcome.reason);
    }
}

#[test]
fn strict_mode_accepts_what_is_equal() {
    for (gold, pred) in [
        ("\\sqrt{\\frac{1}{n}}", "$\\frac{1}{\\sqrt{n}}$"),
        ("\\sqrt{ab}", "$\\sqrt{a}\\sqrt{b}$"),
        ("\\frac12", "$0.5$"),
        ("50\\%", "$\\frac12$"),
        ("\\sqrt{8}", "$2\\sqrt2$"),
        ("\\sqrt{3+2\\sqrt2}", "$1+\\sqrt2$"),
        ("3+4i", "$4 i+3$"),
        ("x^2-1", "$(x-1)(x+1)$"),
        ("\\sin 2x", "$2\\sin x\\cos x$"),
        ("\\log_2 8", "3"),
        ("x>3", "$2x>6$"),
        ("x<3", "$3>x$"),
        ("\\binom{5}{2}", "10"),
        ("(1,3)\\cup(2,4)", "$(1,4)$"),
        ("3\\pm\\sqrt2", "$3+\\sqrt2, 3-\\sqrt2$"),
        ("\\int_0^1 x^2 dx", "$\\frac13$"),
        ("\\sum_{k=1}^{5}(3k+5)", "70"),
        ("3x^2", "$\\frac{dy}{dx}=3x^2$"),
        ("\\frac{dy}{dx}=xy", "$\\frac{dy}{dx}=yx$"),
        ("\\frac{dy}{dx}=xy", "$xy$"),
        ("2", "$\\int_0^{\\pi}\\sin x\\,dx = 2$"),
        ("\\frac{x^3}{3}+C", "$\\int x^2\\,dx=\\frac{x^3}{3}+C$"),
        ("\\frac12", "$P(X=2)=\\frac24=\\frac12$"),
        ("5", "$\\|v\\|=5$"),
        ("12 \\mathrm{~km} / \\mathrm{h}", "$12\\,\\text{km/h}$"),
        ("9.8 \\mathrm{~m} / \\mathrm{s}^{2}", "\\boxed{9.8}"),
        ("15\\text{ m/s}", "\\boxed{15\\,\\frac{\\text{m}}{\\text{s}}}"),
        ("15\\text{ m/s}", "\\boxed{15m/s}"),
        ("36", "\\boxed{3\\text{ dozen}}"),
        ("\\frac{27}{512}", "\\boxed{\\frac{\\frac{27}{512}}{1}}"),
        ("2013^{4025}", "\\boxed{\\frac{2(2013^{4025})}{2}}"),
    ] {
        let outcome = Verifier::new(gold, &strict()).check(pred);
        assert!(outcome.is_correct(), "{gold} and {pred}: {:?} {}", outcome.verdict, outcome.reason);
    }
}

/// Verdicts of the reference (math-verify 0.9.0) on strings after a single dollar sign, or after the second " is".
#[test]
fn an_announced_formula_is_found_whatever_stands_before_it() {
    for (gold, response) in [
        ("\\sqrt{2}", "Each ticket costs $5 in total. The answer is $\\sqrt{2}$."),
        ("\\sqrt{2}", "Each ticket costs $5 in total. The final answer is $\\sqrt{2}$."),
        ("\\frac{x}{2}", "Price is $x. **Answer:** $\\frac{x}{2}$"),
        ("\\{1,2\\}", "It costs $5. The final answer is $\\{1,2\\}$. I hope it is correct. $7$"),
        ("\\sqrt{3}", "Final answer: the side that is longest is $\\sqrt{3}$. Here $h=2$."),
        (
            "\\frac{1}{2}",
            "The final answer, which is what the question is for, is $\\frac{1}{2}$, where $y=3$.",
        ),
    ] {
        let outcome = Verifier::new(gold, &Options::default()).check(response);
        assert!(outcome.is_correct(), "{gold} and {response}: {:?} {}", outcome.verdict, outcome.reason);
    }
}

/// The strings that the reference (math-verify 0.9.0) prints for values, in every detail.
#[test]
fn a_text_equals_the_printed_value() {
    for (gold, text, equal) in [
        ("-x", "-x", true),
        ("-i", "-i", true),
        ("\\frac{1}{x}", "1/x", true),
        ("2/x", "2/x", true),
        ("\\frac{\\pi}{2}", "\\pi/2", true),
        ("\\frac{\\pi}{2}", "pi/2", true),
        ("-i/2", "-i/2", true),
        ("2*x", "2*x", true),
        ("2\\pi", "2*pi", true),
        ("-\\alpha", "-alpha", true),
        ("\\frac{-3}{x}", "-3/x", true),
        ("2x", "2x", false),
        ("-x/y", "-x/y", false),
        ("-\\frac{x}{2}", "-x/2", false),
        ("-\\pi", "-\\pi", false),
        ("-e", "-e", false),
        ("\\frac{e}{2}", "e/2", false),
        ("-xy", "-xy", false),
    ] {
        let outcome = Verifier::new(gold, &Options::default()).check(&format!("\\boxed{{\\text{{{text}}}}}"));
        assert_eq!(outcome.is_correct(), equal, "{gold} and {text}: {}", outcome.reason);
    }
}

#[test]
fn an_answer_beyond_the_budget_is_wrong_and_never_unscorable() {
    let sum = format!("\\boxed{{{}1}}", "x+".repeat(10_000));
    let nested = format!("\\boxed{{{}1{}}}", "\\sqrt{".repeat(300), "}".repeat(300));
    for response in [
        "\\boxed{5^{5^{5^{5}}}}",
        "\\boxed{5^(5^(5^5))}",
        "the answer is 5^(5^(5^5))",
        "\\boxed{100000000!}",
        "\\boxed{((((20!)!)!)!)!}",
        "\\boxed{\\sum_{k=1}^{100000000} k^2}",
        &sum,
        &nested,
    ] {
        let outcome = Verifier::new("\\frac{1}{3}", &Options::default()).check(response);
        let head: String = response.chars().take(60).collect();
        assert_eq!((outcome.verdict, &*outcome.reason), (Verdict::Wrong, "budget"), "{head}");
    }
}

#[test]
fn megabytes_of_one_character_are_read_without_trouble() {
    let listed: serde_json::Value =
        serde_json::from_str(include_str!("fixtures/adversarial.json")).expect("a table of texts");
    let listed = |form: &str| listed["math"][form].as_array().expect("a list").clone();
    let mut texts = Vec::new();
    for piece in listed("repeated") {
        let piece = piece.as_str().expect("a text");
        texts.push(piece.repeat(100_000 / piece.len()));
        texts.push(format!("\\boxed{{{}}}", piece.repeat(9_000 / piece.len())));
    }
    for frame in listed("framed") {
        let [before, piece, after] = [0, 1, 2].map(|at| frame[at].as_str().expect("a text"));
        texts.push(format!("{before}{}{after}", piece.repeat(9_000 / piece.len())));
    }
    // Nested boxes were once opened one by one, each by a search of the whole string.
    texts.push(format!("{}1{}", "\\boxed{".repeat(2_000), "}".repeat(2_000)));
    let modes = [Options::default(), strict()];
    let golds = ["\\frac{1}{2}", "x^2+1", "(1,2)\\cup(3,4)", "x<3"];
    let golds: Vec<Verifier> =
        golds.iter().flat_map(|gold| modes.iter().map(move |options| Verifier::new(gold, options))).collect();
    for text in &texts {
        for verifier in &golds {
            let start = Instant::now();
            verifier.check(text);
            // Linear time takes a fraction of a second.
            let time = start.elapsed();
            assert!(time.as_secs() < 4, "{:?}... takes {time:?}", text.chars().take(24).collect::<String>());
        }
        for options in &modes {
            Verifier::new(text, options).check("\\boxed{1}");
        }
    }
}

#[test]
fn a_bare_number_longer_than_any_answer_is_wrong() {
    let verifier = Verifier::new("42", &Options::default());
    for text in ["7".repeat(20_000), format!("1{}", "+1".repeat(20_000)), format!("0.{}", "3".repeat(20_000))]
    {
        assert_eq!(verifier.check(&text).verdict, Verdict::Wrong, "{}..", &text[..20]);
        // The text after it is still the answer.
        assert_eq!(verifier.check(&format!("{text} so it is 42")).verdict, Verdict::Correct);
    }
}

#[test]
fn a_memo_changes_no_outcome() {
    for gold in ["\\frac{1}{2}", "0.5", "\\sin 2x", "50\\%", "5", "i"] {
        let verifier = Verifier::new(gold, &Options::default());
        let mut memo = Memo::new();
        // Twice, and similar strings with different meanings.
        for response in [
            "\\boxed{0.5}",
            "\\boxed{1}",
            "it is 7",
            "\\boxed{?} 7",
            "\\boxed{?} 0.5",
            "",
            "it is 50%",
            "it is 50",
            "$50$%",
            "$50$",
            "2(3)",
            "$2(3)$",
            "$2 \\sin x \\cos x$",
            "\\boxed{2\\sin x\\cos{x}}",
            "$i$",
            "$I$",
        ]
        .repeat(2)
        {
            assert_eq!(
                verifier.check_with(response, &mut memo),
                verifier.check(response),
                "{gold}: {response}"
            );
        }
        assert!(!memo.is_empty());
    }
}

#[test]
fn a_memo_is_bounded() {
    let verifier = Verifier::new("x+1", &Options::default());
    let mut memo = Memo::new();
    for n in 0..1000 {
        verifier.check_with(&format!("$x+{n}$"), &mut memo);
        verifier.check_with(&format!("$x{}$", format!("+{n}").repeat(100)), &mut memo);
    }
    assert_eq!(memo.len(), 64);
}

#[test]
fn problems_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Verifier>();
}

/// Pieces that exercise the parsers deeply when combined at random.
fn piece() -> impl Strategy<Value = String> {
    let pieces: Vec<&'static str> = vec![
        "\\frac",
        "\\sqrt",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "^",
        "_",
        "1",
        "23",
        "0",
        ".5",
        "x",
        "i",
        "e",
        "d",
        "+",
        "-",
        "*",
        "/",
        "=",
        "<",
        "\\le ",
        ",",
        ";",
        "|",
        "!",
        "\\%",
        "\\pm ",
        "\\sin ",
        "\\log",
        "\\ln ",
        "\\pi",
        "\\infty",
        "\\cup",
        "\\{",
        "\\}",
        "\\text{a b}",
        "\\boxed{",
        "$",
        "\\(",
        "\\)",
        "\\[",
        "\\]",
        "and",
        " or ",
        " ",
        "\n",
        "\\begin{pmatrix}",
        "\\end{pmatrix}",
        "&",
        "\\\\",
        "\\int",
        "\\sum_{k=1}^{3}",
        "answer: ",
        "final answer is ",
        ". I hope",
        "%",
        "^\\circ",
        "\\approx ",
        "\\in ",
        "\\mod ",
        "\\binom",
        "é",
        "\0",
        "cm",
        "1,000",
        // The patterns that strict mode searches, next to characters of several bytes.
        "not ",
        " than ",
        "é 😀",
        "**",
        "<answer>",
        "</answer>",
        "####",
        "√(",
        "∛",
        "°",
        "²",
        "₃",
        "'",
        ".",
        "..",
        "...",
        "\\ldots",
        "\\overline{3}",
        "\\text{",
        "\\textcolor{red}{",
        "\\begin{cases}",
        "\\end{cases}",
        "\\left\\{\\begin{array}{l}",
        "\\right.",
        "\\quad ",
        "\\pmod{",
        " million ",
        "three ",
        " base two",
        " per hour",
        "km/h",
        "E5",
        "\u{a0}",
        "\\,000",
        "\\in \\mathbb{Z}",
        "\\cup",
        "\\neq ",
        "\\infty",
    ];
    prop_oneof![
        9 => prop::sample::select(pieces).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_a_reading_or_a_comparison_panic(
        gold in prop::collection::vec(piece(), 0..24).prop_map(|pieces| pieces.concat()),
        response in prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat()),
    ) {
        for options in [Options::default(), strict()] {
            let verifier = Verifier::new(&gold, &options);
            let first = verifier.check(&response);
            prop_assert_eq!(verifier.check(&response), first);
            verifier.check(&format!("\\boxed{{{response}}}"));
        }
    }

    #[test]
    fn an_answer_equals_itself(answer in prop::collection::vec(piece(), 1..24).prop_map(|pieces| pieces.concat())) {
        let verifier = Verifier::new(&answer, &Options::default());
        let outcome = verifier.check(&format!("\\boxed{{{answer}}}"));
        prop_assert!(outcome.verdict != Verdict::Wrong || !verifier.is_parsed(), "{}", answer);
    }
}

mod golds {
    use fgrpo_verify::math::gold::{gold, gold_in, of_solution};
    use serde_json::json;

    #[test]
    fn a_gold_is_what_data_sets_mean_by_it() {
        for (text, wanted) in [
            ("Natalia sold 48/2 = <<48/2=24>>24 clips.\n#### 72", "72"),
            ("#### 72", "72"),
            ("####72\n", "72"),
            ("so it costs\n#### $1,234.50", "1234.50"),
            ("#### -10", "-10"),
            ("#### -$10", "-10"),
            ("#### 2,125,000", "2125000"),
            ("#### 5.", "5"),
            ("#### 073", "73"),
            ("#### .5", ".5"),
            ("#### 1, 2", "1, 2"),
            ("#### 12,34", "12,34"),
            ("#### \\frac{1}{2}", "\\frac{1}{2}"),
            ("#### 18 dollars", "18 dollars"),
            ("#### Step 1\nAdd them.", "#### Step 1\nAdd them."),
            ("x ####", "x ####"),
            ("1,234", "1,234"),
            ("First \\boxed{1}, and then we find $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
            ("\\boxed{1} and \\boxed{2}", "\\boxed{1} and \\boxed{2}"),
            (
                "\\boxed{\\text{the red one}} or \\boxed{\\text{no}}",
                "\\boxed{\\text{the red one}} or \\boxed{\\text{no}}",
            ),
            ("we never close the \\boxed{3", "we never close the \\boxed{3"),
            (" $x+1$ ", "x+1"),
            ("$1$ or $2$", "$1$ or $2$"),
            ("073", "73"),
            ("27.0", "27.0"),
            ("000", "0"),
            ("27.5", "27.5"),
            ("[\"1\", \"02\"]", "1, 2"),
            ("['x', '$y$']", "x, y"),
            ("[1, 2]", "[1, 2]"),
            ("['x']]", "['x']]"),
            ("", ""),
        ] {
            assert_eq!(gold(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn a_gold_may_be_a_number_or_a_list() {
        for (value, wanted) in [
            (json!(72), "72"),
            (json!(27.0), "27"),
            (json!(0.5), "0.5"),
            (json!(["1", 2, 3.0]), "1, 2, 3"),
            (json!("#### 72"), "72"),
            (json!(true), "true"),
            (json!(1e30), "1000000000000000000000000000000"),
            (json!(2.5e-7), "0.00000025"),
            (json!({"value": "3", "unit": null}), "3"),
            (json!([{"text": "\\frac{1}{2}"}, 2]), "\\frac{1}{2}, 2"),
        ] {
            assert_eq!(gold_in(&value).as_deref(), Ok(wanted));
        }
        for (value, words) in [
            (json!({"value": "3", "unit": "cm"}), "found an object of 2 fields (value, unit)"),
            (json!({"value": {"a": 1, "b": 2}}), "found an object of 2 fields (a, b)"),
            (json!(null), "expected a string, a number or a list, found null"),
            (json!(["1", {}]), "found an object of 0 fields ()"),
            (json!([]), "found []"),
        ] {
            assert!(gold_in(&value).unwrap_err().contains(words), "{value}");
        }
    }

    #[test]
    fn a_solution_without_a_box_may_end_in_hashes() {
        assert_eq!(of_solution("so \\boxed{3}\n#### 4").as_deref(), Some("3"));
        assert_eq!(of_solution("two and two\n#### 04").as_deref(), Some("4"));
        assert_eq!(of_solution("two and two are 4"), None);
    }
}

mod parsed {
    use fgrpo_verify::math::parsed::{Answer, Target, Value, Words, parse};

    const BOTH: [Target; 2] = [Target::Latex { bare: true, boxes: 50, last: false }, Target::Plain(true)];

    fn value(text: &str) -> Value {
        match parse(text, &BOTH, false).value {
            Some(Answer::Value(value)) => *value,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn values_show_what_was_read_and_are_restored_from_their_parts() {
        for (text, wanted) in [
            ("$\\frac{1}{2}$", "1/2"),
            ("the answer is 1,234.50%", "1234.5%"),
            ("1 + 2*3", "1 + 2*3"),
            ("\\boxed{-x^2+3x-1}", "-x**2 + 3*x - 1"),
            ("\\boxed{\\frac{x+1}{y}}", "(x + 1)/y"),
            ("\\boxed{2\\sqrt{3}}", "2*3**(1/2)"),
            ("\\boxed{x=1} and \\boxed{x=2}", "{x = 1, x = 2}"),
            ("$(1,2]$", "(1, 2]"),
            ("$\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}$", "Matrix([[1, 2], [3, 4]])"),
            ("$x < -3$", "x < -3"),
            ("$\\sin(2\\pi)$", "sin(2*pi)"),
            ("$3$, $4$ and $5\\%$", "{3, 4, 5%}"),
        ] {
            let value = value(text);
            assert_eq!(value.to_string(), wanted, "{text}: {value:?}");
            let (notation, parts) = value.parts();
            assert_eq!(Value::restored(notation, parts).as_ref(), Some(&value), "{text}");
        }
        assert_eq!(Value::restored("number", &[]), None);
    }

    #[test]
    fn targets_say_what_counts() {
        let shown = |text: &str, targets: &[Target], first_only| {
            let parsed = parse(text, targets, first_only);
            let value = parsed.value.map(|answer| match answer {
                Answer::Value(value) => value.to_string(),
                Answer::Word(word) => word,
            });
            (value, parsed.text)
        };
        let some = |value: &str, text: &str| (Some(value.to_owned()), Some(text.to_owned()));
        let anchored = [Target::Latex { bare: false, boxes: 0, last: true }];
        assert_eq!(shown("$5$", &anchored, false), (None, None));
        assert_eq!(shown("answer: $5$", &anchored, false), some("5", "5"));
        assert_eq!(shown("\\boxed{5}", &anchored, false), some("5", "5"));
        assert_eq!(shown("\\boxed{a = b = 5}", &anchored, false), some("5", "5"));
        assert_eq!(shown("\\boxed{a = 5}", &anchored, false).0.as_deref(), Some("a = 5"));
        assert_eq!(shown("\\boxed{a = b = 5}", &BOTH, false).0.as_deref(), Some("a = b & b = 5"));
        let unboxed = [Target::Latex { bare: true, boxes: -1, last: false }];
        assert_eq!(shown("\\boxed{5}", &unboxed, false), (None, None));
        assert_eq!(shown("5", &[Target::Plain(false)], false), (None, None));
        assert_eq!(shown("the answer is 5", &[Target::Plain(false)], false), some("5", "5"));
        // Only the first candidate.
        let broken = "\\boxed{\\frac{} and} after $5$";
        assert_eq!(shown(broken, &BOTH, false).0.as_deref(), Some("5"));
        assert_eq!(shown(broken, &BOTH, true).0, None);
        let letters = ["A", "B"].map(str::to_owned);
        let words = |bare| [Target::Words(Words::new(&letters, bare, true).unwrap())];
        // A word at the beginning of the string comes first, as in math-verify.
        assert_eq!(shown("A or maybe **B**.", &words(true), false), some("a", "A"));
        assert_eq!(shown("maybe **B**.", &words(true), false), some("b", "B"));
        assert_eq!(shown("The answer is A, not B", &words(true), false), some("a", "A"));
        assert_eq!(shown("BAD", &words(true), false), (None, None));
        assert_eq!(shown("B", &words(false), false), (None, None));
    }
}
