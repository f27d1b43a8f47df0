//! Our own cases: labelled by hand (strict), adversarial, and random bytes.

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
        ("\\sqrt{\\frac{1}{n}}", "$\\frac{1}{\\sqrt{n}}$"),
        ("\\sqrt{ab}", "$\\sqrt{a}\\sqrt{b}$"),
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

/// What the reference (math-verify 0.9.0) says of texts that stand after a lone dollar sign, or after the second " is".
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

/// As the reference (math-verify 0.9.0) prints values, in every detail.
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
    // Boxes in boxes were opened one by one, each by a search of the whole.
    texts.push(format!("{}1{}", "\\boxed{".repeat(2_000), "}".repeat(2_000)));
    let modes = [Options::default(), strict()];
    let golds = ["\\frac{1}{2}", "x^2+1", "(1,2)\\cup(3,4)", "x<3"];
    let golds: Vec<Verifier> =
        golds.iter().flat_map(|gold| modes.iter().map(move |options| Verifier::new(gold, options))).collect();
    for text in &texts {
        for verifier in &golds {
            verifier.check(text);
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
        // What stands behind it is the answer all the same.
        assert_eq!(verifier.check(&format!("{text} so it is 42")).verdict, Verdict::Correct);
    }
}

#[test]
fn a_memo_changes_no_outcome() {
    for gold in ["\\frac{1}{2}", "0.5", "\\sin 2x", "50\\%", "5", "i"] {
        let verifier = Verifier::new(gold, &Options::default());
        let mut memo = Memo::new();
        // Twice, and texts that are alike but mean different things.
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
        // What strict mode looks for, next to characters of several bytes.
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
