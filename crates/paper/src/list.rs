//! Lists every table and figure for `fgrpo paper list`, for the terminal or for PAPER.md.

use super::data::{Fill, Item, paper};
use super::plan::{Options, Plan, Scale, words};
use fgrpo_eval::table::Table;
use std::fmt::Write;

/// Measured time of the simulation on two cores, in seconds. Other items without training take no time.
const SIMULATION: f64 = 20.0;

/// Returns the time that an item without training takes, in words.
pub fn time_without_training(item: &Item) -> String {
    words(if item.fill == Fill::Simulation { SIMULATION } else { 0.0 })
}

/// Describes what an item needs at both scales. Returns `None` if it doesn't need training.
fn needs(item: &'static Item, options: &Options) -> anyhow::Result<Option<[String; 2]>> {
    if !item.trains() {
        return Ok(None);
    }
    let [laptop, full] = [Scale::Laptop, Scale::Full].map(|scale| Plan::of(item, scale, options));
    Ok(Some([laptop?.in_words(), full?.in_words()]))
}

/// Lists each item with its title and what it needs at each scale.
pub fn table(options: &Options) -> anyhow::Result<Table> {
    let mut table = Table::new(["name", "", ""]).of_words();
    for item in paper().items() {
        table.push([&item.name, "shows", &item.title]);
        match needs(item, options)? {
            None => table.push(["", "any", &item.made_by.replace('`', "")]),
            Some([laptop, full]) => {
                table.push(["", "laptop", &laptop]);
                table.push(["", "full", &full]);
            }
        }
    }
    Ok(table)
}

/// Returns the generated part of PAPER.md.
pub fn markdown(options: &Options) -> anyhow::Result<String> {
    let mut text = String::from(
        "## Tables and figures\n\nEach is made by `fgrpo paper NAME` and put beside the paper's numbers; `fgrpo paper NAME --dry-run` says how long it takes on your machine, and [docs/paper.md](docs/paper.md) how to use your own results. Written by `fgrpo paper list --markdown`.\n\n|paper|name|shows|made by|laptop|full needs|\n|---|---|---|---|---|---|\n",
    );
    for item in paper().items() {
        let [laptop, full] =
            needs(item, options)?.unwrap_or_else(|| ["the same", "nothing more"].map(str::to_owned));
        let Item { numbered, name, title, made_by, .. } = item;
        let _ = writeln!(text, "|{numbered}|{name}|{title}|{made_by}|{laptop}|{full}|");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paper_md_ends_with_what_the_command_prints() {
        let options = Options { out: "runs/paper".into(), set: Vec::new(), root: ".".into() };
        let expected = markdown(&options).unwrap();
        let is_there = include_str!("../../../PAPER.md").ends_with(&expected);
        assert!(
            is_there,
            "PAPER.md ends with what `fgrpo paper list --markdown` prints, wanted:\n{expected}"
        );
    }
}
