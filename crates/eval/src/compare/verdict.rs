//! Describes a comparison in words.

use super::{Bootstrap, Comparison, LEVEL};
use crate::table::{bound, p_value};

impl Comparison {
    /// Describes the result in words, with `a` and `b` as the models' names.
    pub(super) fn in_words(&self, [a, b]: &[String; 2]) -> String {
        let d = self.difference;
        let better = if d >= 0.0 { b } else { a };
        let ahead = format!("{better} +{:.1} points", 100.0 * d.abs());
        let on_these = match (self.p_value, self.holm_p_value) {
            (Some(_), Some(_)) if d == 0.0 => "no difference".to_owned(),
            (Some(alone), Some(holm)) if self.significant() && holm >= LEVEL => format!(
                "{ahead} ({}), not significant after correction for the number of benchmarks ({})",
                p_text(alone),
                p_text(holm)
            ),
            (Some(_), Some(holm)) if self.significant() => format!("{ahead}, significant ({})", p_text(holm)),
            (Some(_), Some(holm)) => format!("{ahead}, not significant ({})", p_text(holm)),
            _ => format!("{ahead} on these samples, not tested: every subsample has this difference"),
        };
        let Bootstrap { p_value: p, interval: (low, high) } = self.bootstrap;
        // Interval of the better model's lead, which the text before it states.
        let (low, high) = if d >= 0.0 { (low, high) } else { (-high, -low) };
        let interval = format!("{} to {}, {}", bound(low), bound(high), p_text(p));
        let has_test = self.p_value.is_some();
        let beyond = if self.one {
            let unit = if self.clusters.is_some() { "cluster of problems" } else { "problem" };
            format!("one {unit} says nothing about others")
        } else if p < LEVEL && has_test && !self.significant() {
            // A small m makes the test weak; few problems make the bootstrap overconfident.
            format!(
                "on other problems of the kind it is uncertain: the test finds no difference, the bootstrap finds one ({interval})"
            )
        } else if p < LEVEL {
            format!("it holds for other problems of the kind too (bootstrap {interval})")
        } else {
            format!("a difference on other problems of the kind isn't shown (bootstrap {interval})")
        };
        let name = if self.name.is_empty() { String::new() } else { format!("{}, ", self.name) };
        format!("{name}{}: {on_these}; {beyond}", self.measure)
    }
}

fn p_text(p: f64) -> String {
    let text = p_value(p, 4);
    if let Some(bound) = text.strip_prefix('<') { format!("p < {bound}") } else { format!("p = {text}") }
}
