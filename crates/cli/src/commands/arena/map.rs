//! Map of the `power` estimators: pass@1 and pass@k after training with each pair of exponents `a` and `b`.

use super::catalogue::Method;
use super::standings::{Row, Standings};
use crate::output::table::{Format, Render};
use fgrpo_eval::figure::{Axis, Colour, Figure, Panel, Scale, Tile};
use fgrpo_eval::table::{Table, percent};
use serde_json::{Value, json};

pub(super) struct Grid<'a> {
    pub(super) a: &'a [f64],
    pub(super) b: &'a [f64],
}

impl Grid<'_> {
    /// Returns a method for each pair of exponents, row by row.
    pub(super) fn methods(&self) -> anyhow::Result<Vec<Method>> {
        for (flag, numbers) in [("--a", self.a), ("--b", self.b)] {
            if let Some((_, twice)) = numbers.iter().enumerate().find(|(i, x)| numbers[..*i].contains(x)) {
                bad_input!("{flag}: {twice} is listed twice");
            }
        }
        let method = |(a, b): (f64, f64)| Method {
            name: name(a, b),
            source: "the power family".to_owned(),
            set: vec![format!("algorithm.advantage={{ kind = \"power\", a = {a}, b = {b} }}")],
            own: None,
        };
        Ok(self.pairs().map(method).collect())
    }

    fn pairs(&self) -> impl Iterator<Item = (f64, f64)> {
        self.a.iter().flat_map(|&a| self.b.iter().map(move |&b| (a, b)))
    }

    /// Returns the name of the baseline, the pair with which the others are compared: GRPO's (0.5, 0.5) if the grid has
    /// it, otherwise the first.
    pub(super) fn baseline(&self) -> Option<String> {
        let grpo = self.pairs().find(|&pair| pair == (0.5, 0.5));
        grpo.or_else(|| self.pairs().next()).map(|(a, b)| name(a, b))
    }

    /// Returns each pair's row of `standings`, row by row, or `None` for pairs without a finished run.
    fn places<'s>(&self, standings: &'s Standings) -> Vec<Option<&'s Row>> {
        let find = |(a, b)| standings.rows.iter().find(|row| row.name() == name(a, b));
        self.pairs().map(find).collect()
    }

    /// Returns a JSON object for each pair of exponents: `a`, `b` and the columns of `arena table`.
    pub(super) fn rows(&self, standings: &Standings) -> Vec<Value> {
        let row = |((a, b), row): ((f64, f64), Option<&Row>)| {
            let mut row = row?.0.clone();
            (row["a"], row["b"]) = (json!(a), json!(b));
            Some(row)
        };
        self.pairs().zip(self.places(standings)).filter_map(row).collect()
    }

    /// Prints pass@1 / pass@k in a table with a row for each `a` and a column for each `b`.
    pub(super) fn print(&self, standings: &Standings, format: Format) {
        let header = ["a \\ b".to_owned()].into_iter().chain(self.b.iter().map(ToString::to_string));
        let mut table = Table::new(header);
        let places = self.places(standings);
        for (a, row) in self.a.iter().zip(places.chunks(self.b.len())) {
            let cell = |place: &Option<&Row>| match place {
                Some(row) => format!("{} / {}", percent(row.pass_at(1)), percent(row.pass_at(standings.k))),
                None => "\u{2013}".to_owned(),
            };
            table.push([a.to_string()].into_iter().chain(row.iter().map(cell)));
        }
        if format == Format::Text {
            outln!("{}: pass@1 / pass@{}, percent", standings.task, standings.k);
        }
        out!("{}", table.render(format));
    }

    pub(super) fn figure(&self, standings: &Standings) -> Figure {
        let places = self.places(standings);
        let panel = |k: u64| {
            let values = || places.iter().flatten().map(|row| row.pass_at(k));
            let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
            let tile = |(i, place): (usize, &Option<&Row>)| {
                let pair = (*place)?;
                let (row, column) = ((i / self.b.len()) as f64, (i % self.b.len()) as f64);
                let ([from, to], value) = (pair.interval(k), pair.pass_at(k));
                Some(Tile {
                    x: (column, column + 1.0),
                    y: (row, row + 1.0),
                    colour: Colour::Ordered((value - low) / (high - low).max(1e-9)),
                    opacity: 1.0,
                    title: format!(
                        "{}: {} ({}, {})",
                        pair.name(),
                        percent(value),
                        percent(from),
                        percent(to)
                    ),
                })
            };
            let axis = |label: &str, numbers: &[f64]| {
                let mut axis = Axis::new(label, Scale::Linear, 0.0, numbers.len() as f64);
                axis.bins = numbers.iter().map(ToString::to_string).collect();
                axis
            };
            let title = format!("pass@{k}: {} to {} %", percent(low), percent(high));
            let mut panel = Panel::new(title, axis("b", self.b), axis("a", self.a), Vec::new());
            panel.tiles = places.iter().enumerate().filter_map(tile).collect();
            panel
        };
        Figure { panels: vec![panel(1), panel(standings.k)] }
    }
}

fn name(a: f64, b: f64) -> String {
    format!("power_{a}_{b}")
}
