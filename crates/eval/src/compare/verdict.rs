//! A comparison in words.

use super::{Bootstrap, Comparison, LEVEL};
use crate::table::points;

impl Comparison {
    /// The finding in words.
    pub(super) fn in_words(&self, [a, b]: &[String; 2]) -> String {
        let d = self.difference;
        let size = format!("{:.1} points", 100.0 * d.abs());
        let (better, other) = if d >= 0.0 { (b, a) } else { (a, b) };
        let on_these = match (self.p_value, self.holm_p_value) {
            (Some(alone), Some(holm)) if self.significant() => {
                let p = p_text(holm);
                if holm < LEVEL {
                    format!("{better} is better than {other} by {size} on these problems ({p})")
                } else {
                    format!(
                        "{better} is ahead of {other} by {size} on these problems ({}), but not after correction for the number of benchmarks ({p})",
                        p_text(alone)
                    )
                }
            }
            (Some(_), Some(_)) if d == 0.0 => "no difference on these problems".to_owned(),
            (Some(_), Some(holm)) => {
                format!(
                    "no difference shown on these problems: {size} in favour of {better} ({})",
                    p_text(holm)
                )
            }
            _ => format!(
                "{better} is ahead of {other} by {size} on these samples; not tested, because every subsample has this difference"
            ),
        };
        let Bootstrap { p_value: p, interval: (low, high) } = self.bootstrap;
        let interval = format!("{} to {}, {}", points(low), points(high), p_text(p));
        let beyond = if self.problems < 2 {
            "one problem says nothing about others".to_owned()
        } else if self.p_value.is_some() && !self.significant() {
            // The bootstrap takes each problem's samples as they are.
            format!("so none is shown for other problems of the kind either (bootstrap {interval})")
        } else if p < LEVEL {
            format!("it holds for other problems of the kind too (bootstrap {interval})")
        } else {
            format!("whether it holds for other problems of the kind is open (bootstrap {interval})")
        };
        let name = if self.name.is_empty() { String::new() } else { format!("{}, ", self.name) };
        format!("{name}pass@{}: {on_these}; {beyond}", self.k)
    }
}

fn p_text(p: f64) -> String {
    if p < 1e-4 { "p < 0.0001".to_owned() } else { format!("p = {p:.4}") }
}
