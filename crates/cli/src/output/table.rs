//! Prints tables of results as aligned text, CSV, Markdown, LaTeX or JSON.

use clap::ValueEnum;
use fgrpo_eval::table::{Cell, Part, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io::IsTerminal;

/// Format in which results are printed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Aligned columns.
    #[default]
    Text,
    /// Comma-separated values with a header.
    Csv,
    /// One JSON value.
    Json,
    /// A Markdown table.
    Markdown,
    /// LaTeX rows in a tabular.
    Latex,
}

/// Flags that select the format of a command's results.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct FormatArgs {
    /// Print one JSON value, with fractions instead of percentages.
    #[arg(long)]
    json: bool,
    /// Output format.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl FormatArgs {
    pub(crate) fn chosen(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Converts a table to text.
pub trait Render {
    /// Returns the table in `format`. As JSON it is an array with an object for each row, all of whose values are strings;
    /// callers that need numbers make the JSON themselves.
    fn render(&self, format: Format) -> String;

    /// Returns a line that explains bold and underlined cells, or an empty string if the table doesn't have such cells.
    fn legend(&self, format: Format, bold: &str, underline: &str) -> String;
}

impl Render for Table {
    fn render(&self, format: Format) -> String {
        match format {
            Format::Text => aligned(self, std::io::stdout().is_terminal()),
            Format::Csv => csv(self),
            Format::Markdown => markdown(self),
            Format::Latex => latex(self),
            Format::Json => objects(self),
        }
    }

    fn legend(&self, format: Format, bold: &str, underline: &str) -> String {
        let has = |mark: fn(&Part) -> bool| self.rows.iter().flatten().flat_map(|c| &c.parts).any(mark);
        let styled = format != Format::Text || std::io::stdout().is_terminal();
        let mut parts = Vec::new();
        if has(|p| p.bold) {
            parts.push(format!("{}: {bold}", if styled { "bold" } else { "*1.0*" }));
        }
        if has(|p| p.underline) {
            parts.push(format!("{}: {underline}", if styled { "underlined" } else { "_1.0_" }));
        }
        parts.join("; ")
    }
}

/// Aligns columns: words to the left, numbers to the right.
fn aligned(table: &Table, styled: bool) -> String {
    const GAP: &str = "  ";
    let length = |text: &str| text.chars().count();
    let mut widths: Vec<usize> = table.header.iter().map(|h| length(h)).collect();
    let visible = |c: &Cell| length(&if styled { unmarked(c) } else { shown(c, false) });
    for row in &table.rows {
        widths.iter_mut().zip(row).for_each(|(width, cell)| *width = (*width).max(visible(cell)));
    }
    let line = |cells: Vec<(String, usize)>| {
        let cell = |(column, (text, used)): (usize, (String, usize))| {
            let space = " ".repeat(widths[column].saturating_sub(used));
            let align_left = table.words || column < table.names;
            if align_left { text + &space } else { space + &text }
        };
        let cells: Vec<String> = cells.into_iter().enumerate().map(cell).collect();
        format!("{}\n", cells.join(GAP).trim_end())
    };
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    let rule = "-".repeat(widths.iter().sum::<usize>() + gaps) + "\n";
    let mut out = line(table.header.iter().map(|h| (h.clone(), length(h))).collect()) + &rule;
    for row in &table.rows {
        out += &line(row.iter().map(|c| (shown(c, styled), visible(c))).collect());
    }
    out
}

/// Formats a cell, with its marks as terminal escapes or as characters.
fn shown(cell: &Cell, styled: bool) -> String {
    let [bold, underline] =
        if styled { [["\x1b[1m", "\x1b[0m"], ["\x1b[4m", "\x1b[0m"]] } else { [["*"; 2], ["_"; 2]] };
    marked(cell, str::to_owned, bold, underline, "/")
}

fn csv(table: &Table) -> String {
    let field = |text: &str| {
        if text.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", text.replace('"', "\"\""))
        } else {
            text.to_owned()
        }
    };
    let line = |cells: &[Cell]| joined(cells, |c| field(&unmarked(c)), ",") + "\n";
    line(&cells(&table.header)) + &table.rows.iter().map(|row| line(row)).collect::<String>()
}

fn markdown(table: &Table) -> String {
    let escape = |text: &str| text.replace('|', "\\|");
    let cell = |c: &Cell| marked(c, escape, ["**", "**"], ["<u>", "</u>"], " / ");
    let line = |cells: &[Cell]| format!("| {} |\n", joined(cells, cell, " | "));
    let rules: Vec<&str> = (0..table.header.len()).map(|i| if i == 0 { "---" } else { "---:" }).collect();
    let rows = table.rows.iter().map(|row| line(row)).collect::<String>();
    format!("{}| {} |\n{rows}", line(&cells(&table.header)), rules.join(" | "))
}

fn latex(table: &Table) -> String {
    let columns = "c".repeat(table.header.len().saturating_sub(1));
    let cell = |c: &Cell| marked(c, escape_latex, ["\\textbf{", "}"], ["\\underline{", "}"], "/");
    let line = |cells: &[Cell]| joined(cells, cell, " & ") + " \\\\\n";
    let mut header = cells(&table.header);
    header.iter_mut().flat_map(|c| &mut c.parts).for_each(|part| part.bold = true);
    let rows = table.rows.iter().map(|row| line(row)).collect::<String>();
    format!(
        "\\begin{{tabular}}{{l{columns}}}\n\\toprule\n{}\\midrule\n{rows}\\bottomrule\n\\end{{tabular}}\n",
        line(&header)
    )
}

fn objects(table: &Table) -> String {
    let values = |row: &Vec<Cell>| row.iter().map(|c| unmarked(c).into()).collect::<Vec<Value>>();
    let object = |row| table.header.iter().cloned().zip(values(row)).collect();
    let rows: Vec<Map<String, Value>> = table.rows.iter().map(object).collect();
    json!(rows).to_string() + "\n"
}

fn cells(header: &[String]) -> Vec<Cell> {
    header.iter().map(|h| h.as_str().into()).collect()
}

fn joined(cells: &[Cell], cell: impl Fn(&Cell) -> String, between: &str) -> String {
    cells.iter().map(cell).collect::<Vec<_>>().join(between)
}

/// Formats a cell, with the given marks around bold and underlined parts and `between` as the separator of parts.
fn marked(
    cell: &Cell,
    escape: fn(&str) -> String,
    [bold, bold_end]: [&str; 2],
    [underline, underline_end]: [&str; 2],
    between: &str,
) -> String {
    let part = |part: &Part| {
        let mut text = escape(&part.text);
        if part.bold {
            text = format!("{bold}{text}{bold_end}");
        }
        if part.underline {
            text = format!("{underline}{text}{underline_end}");
        }
        text
    };
    cell.parts.iter().map(part).collect::<Vec<_>>().join(between)
}

fn unmarked(cell: &Cell) -> String {
    marked(cell, str::to_owned, [""; 2], [""; 2], "/")
}

fn escape_latex(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // A combining accent follows its letter.
        let accented = match (c, chars.peek()) {
            ('\u{c2}', _) => Some(('A', "hat")),
            (_, Some('\u{302}')) => Some((c, "hat")),
            (_, Some('\u{304}')) => Some((c, "bar")),
            _ => None,
        };
        if let Some((letter, accent)) = accented {
            chars.next_if(|next| matches!(next, '\u{302}' | '\u{304}'));
            let letter = symbol(letter).map_or_else(|| letter.to_string(), |name| format!("\\{name}"));
            out += &format!("$\\{accent}{{{letter}}}$");
            continue;
        }
        match c {
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => {
                out.push('\\');
                out.push(c);
            }
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '\u{2212}' => out.push_str("$-$"),
            c => match symbol(c) {
                Some(name) => out += &format!("$\\{name}$"),
                None => out.push(c),
            },
        }
    }
    out
}

/// Returns the LaTeX name of a mathematical symbol.
fn symbol(c: char) -> Option<&'static str> {
    Some(match c {
        '\u{394}' => "Delta",
        '\u{3a9}' => "Omega",
        '\u{3b3}' => "gamma",
        '\u{3b5}' => "varepsilon",
        '\u{3b7}' => "eta",
        '\u{3b8}' => "theta",
        '\u{3bc}' => "mu",
        '\u{3c0}' => "pi",
        '\u{3c1}' => "rho",
        '\u{3c3}' => "sigma",
        '\u{3c4}' => "tau",
        '\u{b7}' => "cdot",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_and_accents_have_latex_commands() {
        for (text, expected) in [
            ("\u{3bc}\u{302}_pos", "$\\hat{\\mu}$\\_pos"),
            ("(R - R\u{304})/\u{3c3}", "(R - $\\bar{R}$)/$\\sigma$"),
            ("\u{c2}_i", "$\\hat{A}$\\_i"),
            ("a \u{b7} 5 %", "a $\\cdot$ 5 \\%"),
        ] {
            assert_eq!(escape_latex(text), expected);
        }
    }

    fn marked() -> Table {
        let mut table = Table::new(["Method", "AIME_24"]);
        table.push(["GRPO", "15.0/37.7"]);
        let part = |text: &str, bold, underline| Part { text: text.into(), bold, underline };
        let cell = Cell { parts: vec![part("15.9", true, true), part("46.2", true, false)] };
        table.rows.push(vec!["F-GRPO".into(), cell]);
        table
    }

    #[test]
    fn latex_rows_carry_the_papers_marks() {
        let text = marked().render(Format::Latex);
        assert!(text.contains("F-GRPO & \\underline{\\textbf{15.9}}/\\textbf{46.2} \\\\"), "{text}");
        assert!(text.contains("\\textbf{AIME\\_24}"), "{text}");
    }

    #[test]
    fn csv_quotes_what_needs_it_and_drops_marks() {
        let mut table = marked();
        table.push(["a,\"b\"", "1"]);
        assert_eq!(csv(&table), "Method,AIME_24\nGRPO,15.0/37.7\nF-GRPO,15.9/46.2\n\"a,\"\"b\"\"\",1\n");
    }

    #[test]
    fn text_columns_line_up_with_and_without_colour() {
        let plain = aligned(&marked(), false);
        let lines: Vec<&str> = plain.lines().collect();
        assert_eq!(lines[0].chars().count(), lines[2].chars().count(), "{plain}");
        assert!(plain.contains("_*15.9*_/*46.2*"), "{plain}");
        let colour = aligned(&marked(), true);
        assert!(colour.contains("\x1b[4m\x1b[1m15.9\x1b[0m\x1b[0m/"), "{colour}");
    }

    #[test]
    fn markdown_escapes_bars() {
        let mut table = Table::new(["a|b"]);
        table.push(["c|d"]);
        assert_eq!(markdown(&table), "| a\\|b |\n| --- |\n| c\\|d |\n");
    }
}
