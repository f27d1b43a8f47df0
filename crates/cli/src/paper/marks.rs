//! Which values of a table are marked: the best one bold, the second best with a dagger, as the paper's captions say.

use super::numbers::{Asked, Measure, Printed};

/// The mark of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Mark {
    /// Best.
    pub(super) bold: bool,
    /// Second best.
    pub(super) dagger: bool,
}

/// The marks of values, given as what they are of and as they are printed. Values that print alike are equal. A value that is
/// missing is `None` and takes no part. Values that are all equal stay plain; a dagger needs three to compare.
pub(super) fn marks(table: &Printed, values: &[(Asked, Option<String>)]) -> Vec<Mark> {
    let marking = table.marks;
    let number = |text: &Option<String>| text.as_ref().and_then(|t| t.parse::<f64>().ok());
    let mark = |(asked, text): &(Asked, Option<String>)| {
        let Some(own) = number(text).filter(|_| !marking.is_none()) else { return Mark::default() };
        let mut all: Vec<f64> = values
            .iter()
            .filter(|(other, _)| marking.compares(asked, other))
            .filter_map(|v| number(&v.1))
            .collect();
        let count = all.len();
        all.sort_by(f64::total_cmp);
        // A smaller increase of the NLL is the better one.
        if asked.measure != Measure::Nll {
            all.reverse();
        }
        all.dedup();
        Mark {
            bold: all.len() > 1 && all.first() == Some(&own),
            dagger: marking.second && count > 2 && all.get(1) == Some(&own),
        }
    };
    values.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::super::numbers::{NUMBERS, printed};
    use super::*;

    /// The paper's values of a table by these rules and as it prints them, where the two differ.
    fn differing(table: &Printed) -> Vec<String> {
        let mut values = Vec::new();
        let mut shown = Vec::new();
        for row in &table.rows {
            for (column, cell) in table.columns.iter().zip(&row.cells) {
                for (asked, part) in table.asked(row, column).into_iter().zip(printed(cell)) {
                    values.push((asked, Some(part.text.clone())));
                    shown.push((row, column, part));
                }
            }
        }
        let by_rule = marks(table, &values);
        let differs =
            by_rule.iter().zip(&shown).filter(|(m, (_, _, p))| (m.bold, m.dagger) != (p.bold, p.dagger));
        differs
            .map(|(m, (row, column, part))| {
                format!("{} {} {} {}: {m:?}", table.number, row.head.join(" "), column.title, part.text)
            })
            .collect()
    }

    #[test]
    fn the_rules_mark_the_papers_values_as_the_paper_does() {
        let all: Vec<String> =
            NUMBERS.tables.iter().filter(|t| !t.is_of_words()).flat_map(differing).collect();
        assert_eq!(all, Vec::<String>::new());
    }
}
