//! Pages about samples rather than runs: an evaluation folder, or two models compared.

use super::chart::lines::{Curve, Lines, Stroke};
use super::chart::{Format, Scale, Words, bars};
use super::page::{escape, frame};
use crate::table::Table;
use std::fmt::Write;

/// One model's pass@k on a data set.
pub(crate) struct PassCurve {
    /// Model, or what else tells it apart.
    pub(crate) name: String,
    /// (k, pass@k, low, high), fractions.
    pub(crate) points: Vec<(f64, f64, f64, f64)>,
    /// Success rate of each problem.
    pub(crate) rates: Vec<f64>,
}

/// One data set.
pub(crate) struct Set {
    /// Its name.
    pub(crate) name: String,
    /// A curve per model.
    pub(crate) curves: Vec<PassCurve>,
    /// Sentences under the title.
    pub(crate) notes: Vec<String>,
    /// Tables below the plots.
    pub(crate) tables: Vec<Table>,
}

/// The page. `facts` are what all samples have in common; `source` is where they were read.
pub(crate) fn page(title: &str, facts: &[(String, String)], sets: &[Set], source: &[&str]) -> String {
    let mut about = String::new();
    if !facts.is_empty() {
        about.push_str("<table><tbody>");
        for (name, value) in facts {
            let _ = write!(about, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(value));
        }
        about.push_str("</tbody></table>");
    }
    let titles: Vec<String> = sets.iter().map(|s| escape(&s.name)).collect();
    let anchors: Vec<String> = (0..sets.len()).map(|i| format!("set{i}")).collect();
    let mut sections: Vec<(&str, &str, String)> = vec![("about", "About", about)];
    for ((set, title), anchor) in sets.iter().zip(&titles).zip(&anchors) {
        sections.push((anchor, title, content(set)));
    }
    frame(title, "", &sections, source)
}

fn content(set: &Set) -> String {
    let mut html = String::new();
    for note in &set.notes {
        let _ = write!(html, "<p>{}</p>", escape(note));
    }
    let class = |i: usize| format!("c{}", i % 8);
    let legend: Vec<(String, String, bool)> = match set.curves.as_slice() {
        [_] => Vec::new(),
        many => many.iter().enumerate().map(|(i, c)| (class(i), c.name.clone(), false)).collect(),
    };
    let curves = set
        .curves
        .iter()
        .enumerate()
        .map(|(i, c)| Curve {
            name: c.name.clone(),
            class: class(i),
            stroke: Stroke::Dotted,
            points: c.points.iter().map(|p| (p.0, p.1)).collect(),
            band: c.points.iter().map(|p| (p.0, p.2, p.3)).collect(),
        })
        .collect();
    let words = Words {
        title: "pass@k".to_owned(),
        note: "The chance that one of k samples is correct, mean over problems; shaded: the 95 % interval of the problem bootstrap.".to_owned(),
        x: "k".to_owned(),
        y: "pass@k".to_owned(),
        legend: legend.clone(),
    };
    html.push_str("<div class=\"plots\">");
    html.push_str(
        &Lines { words, curves, x: Scale::Log2, y: Scale::Linear, format: Format::Percent, show: Vec::new() }
            .html(),
    );
    let labels = ["never", "to 25 %", "to 50 %", "to 75 %", "below 100 %", "always"].map(String::from);
    let sets: Vec<bars::Set> = set
        .curves
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let mut shares = vec![0.0; labels.len()];
            for &rate in &c.rates {
                let bin = match rate {
                    r if r <= 0.0 => 0,
                    r if r >= 1.0 => 5,
                    r => (4.0 * r).ceil() as usize,
                };
                shares[bin] += 1.0 / c.rates.len() as f64;
            }
            bars::Set { name: c.name.clone(), class: class(i), shares }
        })
        .collect();
    let words = Words {
        title: "Problems by success rate".to_owned(),
        note:
            "Share of the problems whose samples are correct never, up to a quarter of the time, and so on."
                .to_owned(),
        x: "success rate".to_owned(),
        y: "share of problems".to_owned(),
        legend,
    };
    html.push_str(&bars::html(&words, &labels, &sets));
    html.push_str("</div>");
    for table in &set.tables {
        html.push_str(&table.html(escape));
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_holds_every_set_and_escapes_names() {
        let mut table = Table::new(["k", "a<b"]);
        table.push(["1", "50.0"]);
        let set = Set {
            name: "aime<24>".into(),
            curves: vec![PassCurve {
                name: "m".into(),
                points: vec![(1.0, 0.5, 0.4, 0.6), (2.0, 0.7, 0.6, 0.8)],
                rates: vec![0.0, 0.5, 1.0],
            }],
            notes: vec!["3 problems".into()],
            tables: vec![table],
        };
        let html = page("eval", &[("model".into(), "a&b".into())], &[set], &["folder"]);
        for part in ["aime&lt;24&gt;", "a&amp;b", "<svg", "<th>a&lt;b</th>", "3 problems"] {
            assert!(html.contains(part), "{part} is missing");
        }
        assert!(!html.contains("http://") || html.contains("http://www.w3.org"), "the page needs no network");
    }
}
