//! The worst case: time of a check on texts designed to be expensive, at 1 kB to 1 MB.
//!
//! `cargo bench -p fgrpo-verify --bench adversarial [-- math|synlogic|ifeval|choice]`
//!
//! Each family of texts is checked against every problem of its kind, in both modes where there are two. A row shows
//! the processor time of the problem that is slowest at 5 kB (the best of three runs if they are short) and the slope
//! `c = max over sizes of (time - 1 ms) / bytes`, in nanoseconds per byte: time is at most 1 ms + c x bytes. A text of
//! fixed length is timed as it is.

use std::hint::black_box;
use std::time::Duration;

use fgrpo_verify::{choice, ifeval, math, synlogic};
use serde_json::{Value, json};

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Length at which the slowest problem is found.
const PROBE: usize = 5_000;
/// Rows printed of each table.
const SHOWN: usize = 24;

type Check<'a> = Box<dyn Fn(&str) + 'a>;

/// The text of the nth term of a sum, product or list.
type Term = fn(usize) -> String;

/// A family: its name, and its text of about this number of bytes.
struct Family {
    name: String,
    text: Box<dyn Fn(usize) -> String>,
}

/// The families in `tests/fixtures/adversarial.json`: units that are repeated, also between a beginning and an end, and
/// texts of fixed length.
fn listed(kind: &str) -> Vec<Family> {
    let listed: Value =
        serde_json::from_str(include_str!("../tests/fixtures/adversarial.json")).expect("a table of texts");
    let of = |form: &str| listed[kind][form].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let framed = |[before, unit, after]: [String; 3]| Family {
        name: format!("{before}{unit}..{after}").escape_debug().to_string(),
        text: Box::new(move |size| format!("{before}{}{after}", unit.repeat(size / unit.len()))),
    };
    let repeated = |unit: &Value| Family {
        name: text(unit).escape_debug().to_string(),
        ..framed([String::new(), text(unit), String::new()])
    };
    let parts = |parts: &Value| framed([text(&parts[0]), text(&parts[1]), text(&parts[2])]);
    let mut families: Vec<Family> = of("repeated").iter().map(repeated).collect();
    families.extend(of("framed").iter().map(parts));
    families.extend(of("fixed").iter().map(|value| fixed(text(value))));
    families
}

fn fixed(text: impl Into<String>) -> Family {
    let text = text.into();
    let name = text.chars().take(44).collect::<String>().escape_debug().to_string();
    Family { name, text: Box::new(move |_| text.clone()) }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result, and the clock exists on every Linux and macOS.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(failed, 0, "no clock of processor time");
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The best of `runs` runs, or of fewer if they take long.
fn time(check: &Check<'_>, text: &str, runs: usize) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..runs {
        let start = processor_time();
        check(black_box(text));
        best = best.min(processor_time() - start);
        if best > Duration::from_millis(20) {
            break;
        }
    }
    best
}

fn table(title: &str, checks: &[(String, Check<'_>)], families: &[Family]) {
    let mut rows = Vec::new();
    for family in families {
        let probe = (family.text)(PROBE);
        let times = checks.iter().map(|(_, check)| time(check, &probe, 1));
        let (slowest, _) = times.enumerate().max_by_key(|(_, time)| *time).expect("at least one problem");
        let (name, check) = &checks[slowest];
        let mut slope = 0.0f64;
        let times = SIZES.map(|size| {
            let text = (family.text)(size);
            let elapsed = time(check, &text, 3);
            slope = slope.max((elapsed.as_secs_f64() * 1e9 - 1e6) / text.len() as f64);
            elapsed
        });
        rows.push((slope, times, &family.name, name));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1[3].cmp(&a.1[3])));
    println!("\n{title}: {} families, {} problems; milliseconds", families.len(), checks.len());
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>8}  text, slowest problem",
        "1 kB", "10 kB", "100 kB", "1 MB", "ns/B"
    );
    for (slope, times, family, problem) in rows.iter().take(SHOWN) {
        for elapsed in times {
            print!("{:>9.3} ", elapsed.as_secs_f64() * 1e3);
        }
        println!("{slope:>8.1}  {family}, {problem}");
    }
}

// ---- mathematics ----

fn math_checks() -> Vec<(String, Check<'static>)> {
    let golds = [
        "42",
        "0.5",
        "\\sqrt{2}+1",
        "x^2+1",
        "\\{1,2,3\\}",
        "(1,2)",
        "x<3",
        "y=2x+1",
        "[0,1)\\cup(2,3)",
        "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}",
        "\\sin x",
    ];
    let mut checks: Vec<(String, Check<'static>)> = Vec::new();
    for gold in golds {
        for mode in [math::Mode::Parity, math::Mode::Strict] {
            let verifier = math::Verifier::new(gold, &math::Options { mode, ..math::Options::default() });
            let check = move |text: &str| {
                black_box(verifier.check(text));
            };
            checks.push((format!("gold {gold} ({mode:?})"), Box::new(check)));
        }
    }
    checks
}

fn math_families() -> Vec<Family> {
    let mut families = listed("math");
    let boxed = |inside: &str| fixed(format!("\\boxed{{{inside}}}"));
    let grown: &[(&str, Term, usize, &str)] = &[
        ("sum of 10,000 ones", |_| "1".to_owned(), 10_000, "+"),
        ("sum of 2,000 integers", |i| i.to_string(), 2_000, "+"),
        ("sum of 600 fractions", |i| format!("\\frac{{1}}{{{i}}}"), 600, "+"),
        ("sum of 250 coprime fractions", |i| format!("\\frac{{1}}{{{}}}", 1_000_003 + 2 * i), 250, "+"),
        ("sum of 700 roots", |i| format!("\\sqrt{{{i}}}"), 700, "+"),
        ("sum of 400 sines", |i| format!("\\sin({i}x)"), 400, "+"),
        ("sum of 400 powers of e", |i| format!("e^{{{i}}}"), 400, "+"),
        ("sum of 1,000 powers of x", |i| format!("x^{{{i}}}"), 1_000, "+"),
        ("product of 600 sums", |i| format!("(x+{i})"), 600, ""),
        ("product of 600 sums of names", |i| format!("(a_{{{i}}}+b)"), 300, ""),
        ("product of 700 roots", |i| format!("\\sqrt{{{i}}}"), 700, ""),
        ("product of 100 large integers", |_| "9".repeat(150), 100, "\\cdot "),
        ("quotient of 800 integers", |i| i.to_string(), 800, "/"),
        ("set of 2,000 integers", |i| i.to_string(), 2_000, ","),
        ("set of 300 roots", |i| format!("\\sqrt{{{i}}}"), 300, ","),
        ("set of 500 sines", |i| format!("\\sin {i}"), 500, ","),
        ("chain of 500 equations", |i| format!("x+{i}"), 500, "="),
        ("chain of 500 inequalities", |i| format!("x+{i}"), 500, "<"),
        ("union of 300 intervals", |i| format!("({i},{})", i + 1), 300, "\\cup "),
        ("rows of a matrix", |i| format!("{i} & 1"), 500, "\\\\"),
        ("800 names", |i| format!("x_{{{i}}}"), 800, "+"),
        ("tower of nested sums", |_| "(1+x)^2".to_owned(), 40, "+"),
    ];
    for &(name, unit, n, separator) in grown {
        let inside = (1..=n).map(unit).collect::<Vec<_>>().join(separator);
        let inside = if name.starts_with("rows") {
            format!("\\begin{{pmatrix}}{inside}\\end{{pmatrix}}")
        } else if name.starts_with("set of 2") {
            format!("\\{{{inside}\\}}")
        } else {
            inside
        };
        families.push(Family { name: name.to_owned(), ..boxed(&inside) });
    }
    families.push(Family {
        name: "boxes in boxes".to_owned(),
        text: Box::new(|size| format!("{}1{}", "\\boxed{".repeat(size / 8), "}".repeat(size / 8))),
    });
    families.push(fixed(format!("\\boxed{{{}1{}}}", "(1+".repeat(45), ")^2".repeat(45))));
    families.push(fixed(format!("\\boxed{{{}x{}}}", "\\sqrt{1+".repeat(20), "}".repeat(20))));
    families.push(fixed(format!("\\boxed{{{}x{}}}", "\\frac{1}{1+".repeat(20), "}".repeat(20))));
    families.push(fixed(format!("\\boxed{{{}x{}}}", "\\sin(".repeat(20), ")".repeat(20))));
    families
}

// ---- SynLogic ----

fn synlogic_checks() -> Vec<(String, Check<'static>)> {
    let mut state = 0_u64;
    let mut random = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z ^ (z >> 31)
    };
    let mut checks: Vec<(String, Check<'static>)> = Vec::new();
    for task in synlogic::Task::ALL {
        let data = match synlogic::generate(task, 2, 0, &mut random) {
            Ok(made) => made.game_data_str(),
            Err(_) => {
                let answer = match task {
                    synlogic::Task::ArcAgi => "[[0, 1], [2, 3]]",
                    synlogic::Task::ZebraPuzzle => r#""{\"House 1\": {\"Name\": \"Eve\"}}""#,
                    _ => "\"[[TEXT]]\"",
                };
                format!(r#"{{"question": "", "answer": {answer}, "difficulty": 1, "metadata": {{}}}}"#)
            }
        };
        for mode in [synlogic::Mode::Parity, synlogic::Mode::Strict] {
            let verifier = synlogic::Verifier::parse(task, &data).expect("a made problem is sound");
            let check = move |text: &str| {
                black_box(verifier.check(text, &synlogic::Options { mode, format_gate: false }));
            };
            checks.push((format!("{task} ({mode:?})"), Box::new(check)));
        }
    }
    checks
}

// ---- IFEval ----

fn ifeval_checks() -> Vec<(String, Check<'static>)> {
    let kinds: Vec<(&str, Value)> = vec![
        ("keywords:existence", json!({"keywords": ["correlated", "experiencing"]})),
        (
            "keywords:frequency",
            json!({"keyword": "(quick|lazy)+ fox", "frequency": 2, "relation": "at least"}),
        ),
        ("keywords:forbidden_words", json!({"forbidden_words": ["can", "ride", "a.*b"]})),
        (
            "keywords:letter_frequency",
            json!({"letter": "e", "let_frequency": 3, "let_relation": "less than"}),
        ),
        ("language:response_language", json!({"language": "de"})),
        ("length_constraints:number_sentences", json!({"num_sentences": 3, "relation": "less than"})),
        ("length_constraints:number_paragraphs", json!({"num_paragraphs": 2})),
        ("length_constraints:number_words", json!({"num_words": 5, "relation": "less than"})),
        (
            "length_constraints:nth_paragraph_first_word",
            json!({"num_paragraphs": 2, "nth_paragraph": 1, "first_word": "xyz"}),
        ),
        ("detectable_content:number_placeholders", json!({"num_placeholders": 1_000_000})),
        ("detectable_content:postscript", json!({"postscript_marker": "P.P.S"})),
        ("detectable_content:postscript", json!({"postscript_marker": "Note:"})),
        ("detectable_format:number_bullet_lists", json!({"num_bullets": 1})),
        ("detectable_format:constrained_response", json!({})),
        ("detectable_format:number_highlighted_sections", json!({"num_highlights": 1_000_000})),
        (
            "detectable_format:multiple_sections",
            json!({"section_spliter": "Section", "num_sections": 1_000_000}),
        ),
        ("detectable_format:json_format", json!({})),
        ("detectable_format:title", json!({})),
        ("combination:two_responses", json!({})),
        ("combination:repeat_prompt", json!({"prompt_to_repeat": "Write a poem"})),
        ("startend:end_checker", json!({"end_phrase": "Is there anything else?"})),
        ("startend:quotation", json!({})),
        (
            "change_case:capital_word_frequency",
            json!({"capital_frequency": 1, "capital_relation": "less than"}),
        ),
        ("change_case:english_capital", json!({})),
        ("change_case:english_lowercase", json!({})),
        ("punctuation:no_comma", json!({})),
    ];
    let mut checks: Vec<(String, Check<'static>)> = Vec::new();
    for (id, kwargs) in kinds {
        let verifier = ifeval::Verifier::new(&[id], &[kwargs]).expect("sound arguments");
        let check = move |text: &str| {
            black_box(verifier.check(text));
        };
        checks.push((id.to_owned(), Box::new(check)));
    }
    checks
}

// ---- multiple choice ----

fn choice_checks() -> Vec<(String, Check<'static>)> {
    let options = ["London", "Paris", "Rome", "A dog"].map(str::to_owned);
    [choice::Match::Letter, choice::Match::LetterOrContent]
        .into_iter()
        .map(|compare| {
            let verifier = choice::Verifier::new("B", &options, compare).expect("a sound problem");
            let check = move |text: &str| {
                black_box(verifier.check(text));
            };
            (format!("{compare:?}"), Box::new(check) as Check<'static>)
        })
        .collect()
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let asked =
        |name: &str| wanted.is_empty() || wanted.iter().any(|word| word == name || word == "adversarial");
    if asked("math") {
        table("mathematics", &math_checks(), &math_families());
    }
    if asked("synlogic") {
        table("SynLogic", &synlogic_checks(), &listed("synlogic"));
    }
    if asked("ifeval") {
        table("IFEval", &ifeval_checks(), &listed("ifeval"));
    }
    if asked("choice") {
        table("multiple choice", &choice_checks(), &listed("choice"));
    }
}
