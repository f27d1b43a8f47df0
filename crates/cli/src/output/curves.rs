//! Tables of pass@k: their columns and rows.

use fgrpo_core::stats::measure::Measure;
use fgrpo_eval::estimate::Curve;
use fgrpo_eval::pass_at_k::Report;
use fgrpo_eval::table::{Table, percent};

/// Makes a table of pass@k without rows. Columns: the row's name, its problems, each k, and each value of cover@tau.
pub(crate) fn header<'a>(
    first: &str,
    prefix: &str,
    ks: impl IntoIterator<Item = &'a u64>,
    percents: &[u64],
) -> Table {
    let ks = ks.into_iter().map(|k| format!("{prefix}{k}"));
    let covers = percents.iter().map(|&percent| Measure::Cover(percent).to_string());
    Table::new([first.to_owned(), "problems".to_owned()].into_iter().chain(ks).chain(covers))
}

/// Makes the row of a report: pass@k, and cover@tau if it was requested.
pub(crate) fn row_with_cover(name: String, report: &Report, intervals: bool) -> Vec<String> {
    let mut cells = row(name, &report.all, intervals);
    let covers = report.cover.iter().flat_map(|cover| cover.points.values());
    cells.extend(covers.map(|m| cell(m.value, intervals.then_some(m.interval))));
    cells
}

/// Makes a row of a [`header`] table: pass@k in percent, with or without intervals.
pub(crate) fn row(name: String, curve: &Curve, intervals: bool) -> Vec<String> {
    let cells = curve.points.values().map(|m| cell(m.value, intervals.then_some(m.interval)));
    [name, curve.problems().to_string()].into_iter().chain(cells).collect()
}

/// Makes a cell: a fraction in percent, with its interval if there is one.
pub(crate) fn cell(value: f64, interval: Option<[f64; 2]>) -> String {
    match interval {
        Some([low, high]) => format!("{} [{}, {}]", percent(value), percent(low), percent(high)),
        None => percent(value),
    }
}
