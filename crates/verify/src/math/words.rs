//! Numbers in words, up to millions, and tables of words.

use std::sync::LazyLock;

use crate::forms;

/// The words of a section of the data file, split once.
pub(crate) type Words = LazyLock<Vec<&'static str>>;

/// Returns a section of the data file of typed answers.
pub(crate) fn section(name: &str) -> &'static str {
    forms::section(include_str!("../../data/answers.txt"), name)
}

/// Returns the words of a section of the data file.
pub(crate) fn listed(name: &str) -> Vec<&'static str> {
    section(name).split_whitespace().collect()
}

/// Words that multiply the number before them, each with the factor in LaTeX.
pub(crate) const SCALES: &[(&str, &str)] = &[
    ("hundred", "\\cdot 10^{2}"),
    ("thousand", "\\cdot 10^{3}"),
    ("million", "\\cdot 10^{6}"),
    ("billion", "\\cdot 10^{9}"),
    ("trillion", "\\cdot 10^{12}"),
    ("dozen", "\\cdot 12"),
    ("score", "\\cdot 20"),
];

/// Numbers from zero to nineteen in words, indexed by their value.
pub(crate) const NUMBERS: &[&str] = &[
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
];

/// Tens as words, from twenty on.
pub(crate) const TENS: &[&str] =
    &["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"];

/// Returns a base written as digits or as a word.
pub(crate) fn base(text: &str) -> Option<u32> {
    let name = text.trim().trim_matches(['(', ')']).to_ascii_lowercase();
    let name =
        name.strip_prefix("\\text{").and_then(|inside| inside.strip_suffix('}')).unwrap_or(&name).trim();
    let written =
        spoken(name).filter(|(_, rest)| rest.is_empty()).and_then(|(value, _)| value.try_into().ok());
    written.or_else(|| name.parse().ok()).filter(|base| (2..=36).contains(base))
}

/// Returns the value of a number in words, such as `thirty-two`.
pub(crate) fn number_in_words(text: &str) -> Option<u64> {
    spoken(&text.trim().to_ascii_lowercase()).filter(|(_, rest)| rest.is_empty()).map(|(number, _)| number)
}

/// Whether words are the number that digits write.
pub(crate) fn spells(words: &str, digits: &str) -> bool {
    number_in_words(words).is_some_and(|number| number.to_string() == digits)
}

/// Returns whether a word changes the number before it: a word in [`SCALES`], `squared`, `cubed` or `factorial`.
pub(crate) fn is_scale(word: &str) -> bool {
    SCALES.iter().any(|(scale, _)| *scale == word.trim_end_matches('s'))
        || matches!(word, "squared" | "cubed" | "factorial")
}

/// Returns the number of an ordinal such as `fifth` or `twenty-fourths`, but not of `first` and `second`.
pub(crate) fn ordinal(word: &str) -> Option<u64> {
    if let Some((tens, last)) = word.rsplit_once('-') {
        return Some(number_in_words(tens)? + ordinal(last)?);
    }
    let stem = match word.strip_suffix('s').unwrap_or(word) {
        "third" => return Some(3),
        "hundredth" => return Some(100),
        "thousandth" => return Some(1_000),
        "millionth" => return Some(1_000_000),
        word => word.strip_suffix("th")?,
    };
    number_in_words(&match stem {
        "fif" => "five".into(),
        "twelf" => "twelve".into(),
        "eigh" | "nin" => format!("{stem}{}", if stem == "nin" { "e" } else { "t" }),
        _ => stem.strip_suffix("ie").map_or(stem.to_owned(), |tens| format!("{tens}y")),
    })
}

/// Reads a number in words below a thousand million. Returns the number and the rest of the text.
pub(crate) fn spoken(text: &str) -> Option<(u64, &str)> {
    /// Kind of the last word. A small one is below twenty.
    #[derive(PartialEq)]
    enum Last {
        Start,
        Small,
        Tens,
        Scale,
    }
    let (mut total, mut group, mut least) = (0u64, 0u64, u64::MAX);
    let mut last = Last::Start;
    let mut rest = text;
    loop {
        let after_and = rest.strip_prefix("and ").filter(|_| last == Last::Scale);
        let words = after_and.unwrap_or(rest);
        let length = words.find([' ', '-']).unwrap_or(words.len());
        let word = &words[..length];
        let small = NUMBERS.iter().position(|known| *known == word).map(|at| at as u64);
        let tens = TENS.iter().position(|known| *known == word).map(|at| 10 * (at as u64 + 2));
        let opens = matches!(last, Last::Start | Last::Scale);
        last = match (small, tens, word) {
            (Some(value), ..) if opens || last == Last::Tens && (1..10).contains(&value) => {
                group += value;
                Last::Small
            }
            (_, Some(value), _) if opens => {
                group += value;
                Last::Tens
            }
            (.., "hundred") if last == Last::Small && (1..20).contains(&group) => {
                group *= 100;
                Last::Scale
            }
            (.., "thousand" | "million")
                if group > 0
                    && after_and.is_none()
                    && least > if word == "million" { 1_000_000 } else { 1_000 } =>
            {
                least = if word == "million" { 1_000_000 } else { 1_000 };
                total += group * least;
                group = 0;
                Last::Scale
            }
            _ => break,
        };
        rest = words[length..].trim_start_matches([' ', '-']);
    }
    (last != Last::Start).then_some((total + group, rest))
}
