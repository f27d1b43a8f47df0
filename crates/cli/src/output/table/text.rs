//! A table for people to read: aligned columns. Where a terminal is too narrow for it, a table of numbers continues below with its
//! next columns, and a table of words wraps its cells.

use super::marked;
use fgrpo_eval::table::{Cell, Part, Table};
use std::collections::HashSet;

const GAP: usize = 2;
/// A wrapped column of words is at least this wide.
const NARROWEST: usize = 10;

fn length(text: &str) -> usize {
    text.chars().count()
}

/// What a table takes with columns of these widths.
fn total(widths: impl ExactSizeIterator<Item = usize>) -> usize {
    let gaps = GAP * widths.len().saturating_sub(1);
    widths.sum::<usize>() + gaps
}

/// A cell with its marks as escapes of a terminal, or as characters.
fn shown(cell: &Cell, styled: bool) -> String {
    if !styled {
        return marked(cell, str::to_owned, ["*"; 2], ["_"; 2], "/");
    }
    let part = |Part { text, bold, underline }: &Part| match (bold, underline) {
        (false, false) => text.clone(),
        (true, false) => format!("\x1b[1m{text}\x1b[0m"),
        (false, true) => format!("\x1b[4m{text}\x1b[0m"),
        (true, true) => format!("\x1b[1;4m{text}\x1b[0m"),
    };
    cell.parts.iter().map(part).collect::<Vec<_>>().join("/")
}

/// The columns that a cell takes.
fn visible(cell: &Cell, styled: bool) -> usize {
    if !styled {
        return length(&shown(cell, false));
    }
    let parts: usize = cell.parts.iter().map(|p| length(&p.text)).sum();
    parts + cell.parts.len().saturating_sub(1)
}

/// The lines of a text with at most `width` characters each; words that are longer are cut.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut word: Vec<char> = word.chars().collect();
        while let Some(line) = lines.last_mut() {
            let space = usize::from(!line.is_empty());
            if length(line) + space + word.len() <= width {
                if space > 0 {
                    line.push(' ');
                }
                line.extend(word);
                break;
            }
            if line.is_empty() {
                line.extend(word.drain(..width));
            }
            lines.push(String::new());
        }
    }
    lines
}

/// The table in lines of at most `width` characters, where that is given.
pub(super) fn aligned(table: &Table, styled: bool, width: Option<usize>) -> String {
    let mut widths: Vec<usize> = table.header.iter().map(|h| length(h)).collect();
    for row in &table.rows {
        for (w, cell) in widths.iter_mut().zip(row) {
            *w = (*w).max(visible(cell, styled));
        }
    }
    match width {
        Some(width) if total(widths.iter().copied()) > width && table.words => wrapped(table, &widths, width),
        Some(width) if total(widths.iter().copied()) > width => {
            let blocks = blocks(table, &widths, width).into_iter();
            blocks.map(|columns| block(table, &columns, &widths, styled)).collect::<Vec<_>>().join("\n")
        }
        _ => block(table, &(0..widths.len()).collect::<Vec<_>>(), &widths, styled),
    }
}

/// How many of the first columns tell the rows apart, at least those that name them; an empty name is that of the row
/// above. If all columns are needed, or there is no room beside them, only those that name a row.
fn identifying(table: &Table, widths: &[usize], width: usize) -> usize {
    let named = table.names.min(widths.len());
    let mut seen: Vec<Vec<String>> = Vec::new();
    for row in &table.rows {
        let mut cells: Vec<String> = row.iter().map(|cell| shown(cell, false)).collect();
        if let Some(above) = seen.last() {
            for (cell, above) in cells.iter_mut().zip(above).take(named).take_while(|(c, _)| c.is_empty()) {
                cell.clone_from(above);
            }
        }
        seen.push(cells);
    }
    let distinct = |columns: &usize| {
        let leading = seen.iter().map(|cells| &cells[..cells.len().min(*columns)]);
        leading.collect::<HashSet<_>>().len() == seen.len()
    };
    let fits = |columns: &usize| {
        let next = widths[*columns..].iter().max().unwrap_or(&0);
        total(widths[..*columns].iter().copied()) + GAP + next <= width
    };
    (named..widths.len()).find(distinct).filter(fits).unwrap_or(named)
}

/// Which columns stand side by side: those that identify a row in every block, and of the others as many as fit.
fn blocks(table: &Table, widths: &[usize], width: usize) -> Vec<Vec<usize>> {
    let names: Vec<usize> = (0..identifying(table, widths, width)).collect();
    let mut blocks = vec![names.clone()];
    for column in names.len()..widths.len() {
        let Some(block) = blocks.last_mut() else { break };
        let with = block.iter().chain([&column]).map(|&c| widths[c]).collect::<Vec<_>>();
        if block.len() > names.len() && total(with.into_iter()) > width {
            blocks.push(names.iter().copied().chain([column]).collect());
        } else {
            block.push(column);
        }
    }
    blocks
}

fn is_left(table: &Table, column: usize) -> bool {
    table.words || column < table.names
}

/// These columns, each cell in one line.
fn block(table: &Table, columns: &[usize], widths: &[usize], styled: bool) -> String {
    let line = |cell: &dyn Fn(usize) -> (String, usize)| {
        let mut text = String::new();
        for (i, &column) in columns.iter().enumerate() {
            let (cell, used) = cell(column);
            let space = " ".repeat(widths[column].saturating_sub(used));
            text += if i == 0 { "" } else { "  " };
            text += &if is_left(table, column) { cell + &space } else { space + &cell };
        }
        text.truncate(text.trim_end().len());
        text + "\n"
    };
    let rule = "-".repeat(total(columns.iter().map(|&c| widths[c]))) + "\n";
    let mut out = line(&|c| (table.header[c].clone(), length(&table.header[c]))) + &rule;
    let of = |cell: &Cell| (shown(cell, styled), visible(cell, styled));
    for row in &table.rows {
        out += &line(&|c| row.get(c).map_or_else(Default::default, of));
    }
    out
}

/// All columns, with cells wrapped over several lines; an empty line above each row with a name.
fn wrapped(table: &Table, widths: &[usize], width: usize) -> String {
    let most = widths.iter().copied().max().unwrap_or(NARROWEST).max(NARROWEST);
    let fits = |&cap: &usize| total(widths.iter().map(|w| (*w).min(cap))) <= width;
    let cap = (NARROWEST..=most).rev().find(fits).unwrap_or(NARROWEST);
    let widths: Vec<usize> = widths.iter().map(|w| (*w).min(cap)).collect();
    let lines = |cells: &[String]| {
        let wrapped: Vec<Vec<String>> = cells.iter().zip(&widths).map(|(c, &w)| wrap(c, w)).collect();
        let mut text = String::new();
        for i in 0..wrapped.iter().map(Vec::len).max().unwrap_or(0) {
            let part = |(cell, &w): (&Vec<String>, &usize)| format!("{:<w$}", cell.get(i).map_or("", |s| s));
            let parts: Vec<String> = wrapped.iter().zip(&widths).map(part).collect();
            text += parts.join("  ").trim_end();
            text.push('\n');
        }
        text
    };
    let rule = "-".repeat(total(widths.iter().copied())) + "\n";
    let mut out = lines(&table.header) + &rule;
    for (i, row) in table.rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|c| shown(c, false)).collect();
        // A row without a name of its own goes on with the one above.
        if i > 0 && cells.first().is_some_and(|name| !name.is_empty()) {
            out.push('\n');
        }
        out += &lines(&cells);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_gets_further_columns_below_and_no_line_is_longer() {
        let mut table = Table::new(["Model", "Method", "AIME24", "AIME25"]).named_by(2);
        table.push(["Qwen2.5-7B", "GRPO", "15.0/37.7", "6.7/40.8"]);
        table.push(["", "F-GRPO", "15.9/46.2", "10.1/52.6"]);
        let text = aligned(&table, false, Some(30));
        assert_eq!(
            text,
            "Model       Method     AIME24\n-----------------------------\nQwen2.5-7B  GRPO    15.0/37.7\n            F-GRPO  15.9/46.2\n\n\
             Model       Method     AIME25\n-----------------------------\nQwen2.5-7B  GRPO     6.7/40.8\n            F-GRPO  10.1/52.6\n"
        );
        assert!(aligned(&table, false, None).lines().next().unwrap().ends_with("AIME24     AIME25"));
    }

    #[test]
    fn rows_of_one_name_are_told_apart_in_every_block() {
        let mut table = Table::new(["benchmark", "k", "first", "second"]);
        table.push(["aime", "1", "10.0", "11.0"]);
        table.push(["aime", "8", "20.0", "21.0"]);
        assert_eq!(
            aligned(&table, false, Some(20)),
            "benchmark  k  first\n-------------------\naime       1   10.0\naime       8   20.0\n\n\
             benchmark  k  second\n--------------------\naime       1    11.0\naime       8    21.0\n"
        );
        // No room for both columns beside another.
        assert!(
            aligned(&table, false, Some(17)).starts_with("benchmark  k\n"),
            "{}",
            aligned(&table, false, Some(17))
        );
        let mut equal = Table::new(["name", "a", "b"]);
        equal.push(["x", "1", "2"]);
        equal.push(["x", "1", "2"]);
        assert!(
            aligned(&equal, false, Some(8)).starts_with("name  a\n"),
            "{}",
            aligned(&equal, false, Some(8))
        );
    }

    #[test]
    fn a_table_of_words_wraps_its_cells() {
        let mut table = Table::new(["a", "b"]).of_words();
        table.push(["one two three", "averyveryverylongword end"]);
        table.push(["x", "y"]);
        let text = aligned(&table, false, Some(24));
        assert!(text.lines().all(|l| length(l) <= 24), "{text}");
        assert_eq!(
            text,
            "a            b\n------------------------\none two      averyveryve\nthree        rylongword\n             end\n\nx            y\n"
        );
    }
}
