//! Answers that were written and judged by hand, without looking at the rules, as data.

use crate::random::Case;

/// Answers of the first file, of all kinds.
pub(crate) const OF_ALL_KINDS: &str = include_str!("../fixtures/math_by_hand.txt");
/// The rules by the type of an answer, each with answers that are nearly right or written in unusual ways.
pub(crate) const BY_TYPE: &str = include_str!("../fixtures/math_typed.txt");
/// Further rules, each with its siblings.
pub(crate) const BY_RULE: &str = include_str!("pairs.txt");

/// The right and the wrong answers of a file. Its head explains the lines.
pub(crate) fn cases(file: &'static str) -> (Vec<Case>, Vec<Case>) {
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    let mut class = "";
    for line in file.lines() {
        if let Some(name) = line.strip_prefix('[') {
            class = name.trim_end_matches(']');
        }
        let side = match line.split_at_checked(2) {
            Some(("+ ", _)) => &mut right,
            Some(("- ", _)) => &mut wrong,
            _ => continue,
        };
        let (gold, response) = match line[2..].split_once(" ::: ") {
            Some((gold, text)) => (gold, text.replace('⏎', "\n")),
            None => {
                let (gold, answer) = line[2..].split_once(" :: ").unwrap_or_else(|| panic!("{line:?}"));
                (gold, format!("\\boxed{{{answer}}}"))
            }
        };
        side.push(Case { class, gold: gold.to_owned(), response });
    }
    (right, wrong)
}
