//! Lists the commands in groups for `fgrpo --help`, because clap doesn't support groups of subcommands.

use super::Command;
use clap::Subcommand;
use std::fmt::Write;

/// Headings of the groups, each with its first command.
const GROUPS: [(&str, &str); 6] = [
    ("Train", "train"),
    ("Evaluate", "eval"),
    ("Analyse", "pass-at-k"),
    ("Data", "data"),
    ("Paper", "paper"),
    ("This program", "devices"),
];

/// Returns a help template for clap that lists the commands in groups.
pub(super) fn template() -> String {
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for command in Command::augment_subcommands(clap::Command::new("fgrpo")).get_subcommands() {
        let name = command.get_name();
        if let Some((heading, _)) = GROUPS.iter().find(|(_, first)| *first == name) {
            let _ = writeln!(text, "\n{heading}:");
        }
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "  {name:<12} {about}");
    }
    text + "\nOptions:\n{options}\n\n`fgrpo COMMAND --help` shows a command's options and examples.\n"
}
