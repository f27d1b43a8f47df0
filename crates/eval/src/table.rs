//! Result tables as data, with numbers formatted as in the paper. The caller renders them.

use serde::Serialize;

/// One entry of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Parts of the cell with separate marks, printed with `/` between them.
    pub parts: Vec<Part>,
}

/// A string with the marks of the paper's tables.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The text.
    pub text: String,
    /// Whether the part is bold, which marks the better value of a pair or the best value of a column.
    pub bold: bool,
    /// Whether the part is underlined, which marks statistical significance.
    pub underline: bool,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { parts: vec![Part { text: text.into(), ..Part::default() }] }
    }
}

/// A table with a header line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Table {
    /// Names of the columns.
    pub header: Vec<String>,
    /// Rows of cells. The first `names` cells of a row name it.
    pub rows: Vec<Vec<Cell>>,
    /// Number of columns that name a row. The columns after them contain numbers.
    pub names: usize,
    /// Whether all cells contain words, not numbers.
    pub words: bool,
}

impl Table {
    /// Creates a table with this header and without rows.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), names: 1, ..Self::default() }
    }

    /// Sets the number of columns that name a row.
    pub fn named_by(self, names: usize) -> Self {
        Self { names, ..self }
    }

    /// Marks all cells as words, which are aligned to the left.
    pub fn of_words(self) -> Self {
        Self { words: true, ..self }
    }

    /// Adds a plain row.
    pub fn push<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Adds empty cells to the rows that are shorter than the header.
    pub fn fill(&mut self) {
        let width = self.header.len();
        self.rows.iter_mut().for_each(|row| row.resize_with(width.max(row.len()), || "".into()));
    }
}

/// Formats a fraction as a percentage with one decimal, as in the paper.
pub fn percent(fraction: f64) -> String {
    let text = format!("{:.1}", 100.0 * fraction);
    if text == "-0.0" { "0.0".to_owned() } else { text }
}

/// Formats a difference of fractions in percentage points, with its sign.
pub fn points(difference: f64) -> String {
    let text = format!("{:+.1}", 100.0 * difference);
    if text == "-0.0" { "+0.0".to_owned() } else { text }
}

/// Formats a bound of an interval of differences like [`points`], but with more digits if it would round to 0, because
/// readers check whether the interval contains 0.
pub fn bound(difference: f64) -> String {
    let percent = 100.0 * difference;
    if percent == 0.0 || percent.abs() >= 0.05 { points(difference) } else { format!("{percent:+.3}") }
}

/// Formats a p-value with this number of decimals. A value that would round to 0 is shown as, for example, `<0.001`.
pub fn p_value(p: f64, digits: usize) -> String {
    let smallest = 0.1f64.powi(digits as i32);
    if p < smallest { format!("<{smallest:.digits$}") } else { format!("{p:.digits$}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_beside_zero_shows_its_side() {
        assert_eq!([0.0, 0.0002, -0.0003, 0.0105].map(bound), ["+0.0", "+0.020", "-0.030", "+1.1"]);
    }

    #[test]
    fn percentages_never_print_a_negative_zero() {
        assert_eq!(
            (percent(-0.0001), points(-0.0001), points(0.062)),
            ("0.0".into(), "+0.0".into(), "+6.2".into())
        );
    }
}
