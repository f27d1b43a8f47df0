//! The help of the program itself: its commands in groups, which clap lists in one.

use super::Command;
use clap::Subcommand;
use std::fmt::Write;

/// The groups, with the name of the first command of each.
const GROUPS: [(&str, &str); 6] = [
    ("Train", "train"),
    ("Evaluate", "eval"),
    ("Analyse", "pass-at-k"),
    ("Data", "data"),
    ("Paper", "paper"),
    ("This program", "devices"),
];

/// clap's template with the commands in their groups.
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
    text + "\nOptions:\n{options}\n\n`fgrpo COMMAND --help` has each command's options and examples.\n"
}
