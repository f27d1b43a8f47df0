//! `fgrpo paper list`: a row for every table and figure, in the terminal or as PAPER.md has it.

use super::data::{Fill, Item, paper};
use super::plan::{Options, Plan, Scale, words};
use fgrpo_eval::table::Table;
use std::fmt::Write;

/// The time of the simulation on two cores, measured; the rest without training takes no time.
const SIMULATION: f64 = 20.0;

/// How long an item without training takes.
pub fn time_without_training(item: &Item) -> String {
    words(if item.fill == Fill::Simulation { SIMULATION } else { 0.0 })
}

/// The list: for each item its title, and what makes it at either scale.
pub fn table(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new(["name", "", ""]).of_words();
    for item in paper().items() {
        table.push([&item.name, "shows", &item.title]);
        if !item.trains() {
            table.push(["", "any", &item.made_by.replace('`', "")]);
            continue;
        }
        for (scale, name) in [(Scale::Laptop, "laptop"), (Scale::Full, "full")] {
            table.push(["", name, &Plan::of(item, scale, options)?.in_words()]);
        }
    }
    Ok(table)
}

/// The part of PAPER.md that this command writes.
pub fn markdown(options: &Options) -> anyhow::Result<String> {
    let mut text = String::from(
        "## Tables and figures\n\nEach is made by `fgrpo paper NAME` and put beside the paper's numbers; `fgrpo paper NAME --dry-run` says how long it takes on your machine, and [docs/paper.md](docs/paper.md) how to use your own results. Written by `fgrpo paper list --markdown`.\n\n|paper|name|shows|made by|laptop|full needs|\n|---|---|---|---|---|---|\n",
    );
    for item in paper().items() {
        let (small, large) = match item.trains() {
            true => {
                let [small, large] = [Scale::Laptop, Scale::Full].map(|s| Plan::of(item, s, options));
                (small?.in_words(), large?.in_words())
            }
            false => ("the same".to_owned(), "nothing more".to_owned()),
        };
        let Item { numbered, name, title, made_by, .. } = item;
        let _ = writeln!(text, "|{numbered}|{name}|{title}|{made_by}|{small}|{large}|");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paper_md_ends_with_what_the_command_prints() {
        let page = include_str!("../../../PAPER.md");
        let options = Options { out: "runs/paper".into(), set: Vec::new(), root: ".".into() };
        let wanted = markdown(&options).unwrap();
        assert!(
            page.ends_with(&wanted),
            "PAPER.md is old; its last section is what `fgrpo paper list --markdown` prints:\n{wanted}"
        );
    }
}
