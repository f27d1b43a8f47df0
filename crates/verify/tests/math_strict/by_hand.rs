//! Answers that were written and judged by hand, without a look at the rules, as data.

use crate::random::Case;

/// The right and the wrong ones. The file's head says how a line is read.
pub(crate) fn cases() -> (Vec<Case>, Vec<Case>) {
    let (mut right, mut wrong) = (Vec::new(), Vec::new());
    let mut class = "";
    for line in include_str!("../fixtures/math_by_hand.txt").lines() {
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
