//! A table of the paper with what was found here: in the terminal, as Markdown, LaTeX and CSV.

use super::data::{Item, Quantity, number};
use super::made::{Legend, Made, Page};
use super::measured::Estimate;
use fgrpo_eval::table::{self, Part, Table};
use std::rc::Rc;

/// A table beside the paper's.
pub(super) struct Sheet {
    pub(super) item: &'static Item,
    /// Titles of the columns that are shown.
    pub(super) columns: Vec<String>,
    pub(super) lines: Vec<SheetLine>,
    pub(super) effects: Vec<Effect>,
    /// Whether values here measure what the paper's do; if not, only the effects are compared.
    pub(super) same_measure: bool,
    /// What a reader must know.
    pub(super) notes: Vec<String>,
}

/// A row.
pub(super) struct SheetLine {
    /// Its names.
    pub(super) head: Vec<String>,
    /// Its line in the paper's source.
    pub(super) source: u32,
    /// Cells by their parts.
    pub(super) cells: Vec<Vec<Cell>>,
}

/// One value.
#[derive(Default)]
pub(super) struct Cell {
    /// What it is of; none for words.
    pub(super) of: Option<Quantity>,
    /// As the paper prints it.
    pub(super) paper: Part,
    /// As it is printed here; none stays empty.
    pub(super) here: Option<Part>,
    /// The number found here, if it is one.
    pub(super) value: Option<f64>,
    /// Its resamples, if it is of samples.
    pub(super) estimate: Option<Rc<Estimate>>,
    /// Whether it is on other problems than the paper's.
    pub(super) on_others: bool,
}

impl Cell {
    fn interval(&self) -> Option<(f64, f64)> {
        self.estimate.as_ref().map(|e| e.interval())
    }

    /// The paper's number, if both are on the same problems.
    fn number(&self) -> Option<f64> {
        number(&self.paper).filter(|_| !self.on_others && self.of.is_some())
    }

    /// Here minus the paper.
    fn difference(&self) -> Option<f64> {
        Some(self.value? - self.number()?)
    }

    /// Whether the paper's value lies in the interval of the one here, or the words are the same.
    fn agrees(&self) -> Option<bool> {
        let here = self.here.as_ref()?;
        match (self.interval(), self.number()) {
            (Some((low, high)), Some(paper)) => Some(low <= paper && paper <= high),
            (None, _) if self.value.is_none() => Some(here.text == self.paper.text),
            _ => None,
        }
    }
}

/// A difference between two rows, here and in the paper.
pub(super) struct Effect {
    /// Which rows.
    pub(super) what: String,
    /// Benchmark and k.
    pub(super) of: String,
    /// Here, in points, with its 95 % interval.
    pub(super) here: f64,
    pub(super) interval: (f64, f64),
    /// The paper's, if it has both rows.
    pub(super) paper: Option<f64>,
}

impl Effect {
    /// Whether the sign is the paper's.
    fn agrees(&self) -> &'static str {
        let Some(paper) = self.paper else { return "--" };
        match self.interval {
            (low, high) if low <= 0.0 && high >= 0.0 => "open: the interval holds 0",
            // As the paper prints it, with one decimal.
            _ if paper.abs() < 0.05 => "the paper has none",
            (low, _) if (low > 0.0) == (paper > 0.0) => "yes",
            _ => "no",
        }
    }
}

/// Signed, without a negative zero.
pub(super) fn signed(value: f64, digits: usize) -> String {
    let text = format!("{value:+.digits$}");
    if text.trim_start_matches('-').chars().all(|c| "0.".contains(c)) { text.replace('-', "+") } else { text }
}

fn plain(text: impl Into<String>) -> Part {
    Part { text: text.into(), ..Part::default() }
}

impl Sheet {
    /// All its values.
    pub(super) fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.lines.iter().flat_map(|l| &l.cells).flatten()
    }

    fn is_of_words(&self) -> bool {
        !self.item.trains()
    }

    /// The table in the paper's layout: each row as it is here, as it is in the paper, and the difference. ‡ marks a paper's
    /// value outside the interval found here.
    fn layout(&self) -> Table {
        let whose = !self.is_of_words() || self.cells().any(|c| c.here.is_some());
        let names = self.item.heads.len() + usize::from(whose);
        let heads = self.item.heads.iter().cloned().chain(whose.then(String::new));
        let mut table = Table::new(heads.chain(self.columns.iter().cloned())).named_by(names);
        if self.is_of_words() {
            table = table.of_words();
        }
        let here = |c: &Cell| c.here.clone().unwrap_or_else(|| plain("--"));
        let paper = |c: &Cell| c.paper.clone();
        let difference = |c: &Cell| match c.difference() {
            None => plain("--"),
            Some(d) => {
                let outside = if c.agrees() == Some(false) { "\u{2021}" } else { "" };
                // As many decimals as the paper prints.
                let digits = c.paper.text.split_once('.').map_or(1, |(_, d)| d.len());
                plain(format!("{}{outside}", signed(d, digits)))
            }
        };
        let mut above: &[String] = &[];
        for line in &self.lines {
            let mut push = |name: &str, part: &dyn Fn(&Cell) -> Part, first: bool| {
                // What the row above says of model or category is not said again.
                let head = line.head.iter().enumerate().map(|(i, h)| {
                    let again = i + 1 < line.head.len() && above.get(..=i) == Some(&line.head[..=i]);
                    if first && !again { h.clone() } else { String::new() }
                });
                let mut cells: Vec<table::Cell> = head.map(table::Cell::from).collect();
                cells.extend(whose.then(|| name.into()));
                let values = line.cells.iter().map(|parts| parts.iter().map(part).collect());
                cells.extend(values.map(|parts| table::Cell { parts }));
                table.rows.push(table::Row { cells, shaded: false, rule: first && !self.is_of_words() });
            };
            let cells = || line.cells.iter().flatten();
            let any = cells().any(|c| c.here.is_some());
            let equal = self.is_of_words() && cells().all(|c| c.agrees() == Some(true));
            if any && !equal {
                push("here", &here, true);
            }
            let printed = cells().any(|c| c.paper.text != "--");
            if printed || !any {
                push(if equal { "both" } else { "paper" }, &paper, !any || equal);
            }
            if any && printed && !self.is_of_words() && self.same_measure {
                push("difference", &difference, false);
            }
            above = &line.head;
        }
        table
    }

    /// Every value in a line of its own.
    fn values(&self) -> Table {
        let own =
            ["line", "column", "part", "here", "low", "high", "paper", "difference", "paper_in_interval"];
        let mut table = Table::new(self.item.heads.iter().map(String::as_str).chain(own));
        let full = |v: Option<f64>| v.map_or_else(String::new, |v| format!("{v:.6}"));
        for line in &self.lines {
            for (column, parts) in self.columns.iter().zip(&line.cells) {
                for (i, cell) in parts.iter().enumerate() {
                    let text = cell.here.as_ref().map_or_else(String::new, |h| h.text.clone());
                    let interval = cell.interval();
                    let own = [
                        line.source.to_string(),
                        column.clone(),
                        (i + 1).to_string(),
                        if cell.value.is_some() { full(cell.value) } else { text },
                        full(interval.map(|i| i.0)),
                        full(interval.map(|i| i.1)),
                        cell.paper.text.clone(),
                        full(cell.difference()),
                        cell.agrees().map_or("", |a| if a { "yes" } else { "no" }).to_owned(),
                    ];
                    table.push(line.head.iter().cloned().chain(own));
                }
            }
        }
        table
    }

    fn effects(&self) -> Table {
        let heads = ["effect", "on", "here", "95 % interval", "paper", "same sign"];
        let mut table = Table::new(heads).named_by(2);
        for e in &self.effects {
            table.push([
                e.what.clone(),
                e.of.clone(),
                signed(e.here, 1),
                format!("{} to {}", signed(e.interval.0, 1), signed(e.interval.1, 1)),
                e.paper.map_or_else(|| "--".to_owned(), |p| signed(p, 1)),
                e.agrees().to_owned(),
            ]);
        }
        table
    }

    /// Explains the cells.
    fn legend(&self) -> Legend {
        let source = format!("the paper's source, line {}", self.item.line);
        let count = |wanted| self.cells().filter(|c| c.agrees() == Some(wanted)).count();
        let (same, all) = (count(true), count(true) + count(false));
        let tested = "p < 0.05 by the paired subsampling test";
        let marks = [self.item.marks.bold(), tested, "second best"];
        if self.is_of_words() {
            let here = format!("; {same} of {all} values here are the paper's");
            return Legend { before: source, marks, after: if all > 0 { here } else { String::new() } };
        }
        let ks = self.item.parts.iter().filter_map(|p| p.k).map(|k| format!("pass@{k}"));
        let ks = ks.collect::<Vec<_>>().join("/");
        let parts = self.item.legend.clone().unwrap_or_else(|| format!("{ks} in percent"));
        let after = format!(
            "; of {all} values here with an interval {same} hold the paper's in it, the others have a \u{2021} (the paper prints no intervals of its own)"
        );
        let compared = all > 0 && self.same_measure;
        Legend {
            before: format!("{parts}; {source}"),
            marks,
            after: if compared { after } else { String::new() },
        }
    }

    /// The table as data.
    pub(super) fn made(self) -> Made {
        let page = Page {
            legend: Some(self.legend()),
            effects: self.effects(),
            ..Page::new(self.item.heading(), self.layout())
        };
        let values = vec![(self.item.name.clone(), self.values())];
        let page = Some(Page { notes: self.notes, ..page });
        Made { item: self.item, said: Vec::new(), figures: Vec::new(), values, page }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_is_open_while_its_interval_holds_zero() {
        let effect =
            |interval, paper| Effect { what: String::new(), of: String::new(), here: 1.0, interval, paper };
        assert_eq!(effect((0.5, 2.0), Some(3.0)).agrees(), "yes");
        assert_eq!(effect((0.5, 2.0), Some(-3.0)).agrees(), "no");
        assert_eq!(effect((0.5, 2.0), Some(0.0)).agrees(), "the paper has none");
        assert!(effect((-0.5, 2.0), Some(3.0)).agrees().starts_with("open"));
        assert_eq!(effect((0.5, 2.0), None).agrees(), "--");
        assert_eq!(signed(-0.04, 1), "+0.0");
    }
}
