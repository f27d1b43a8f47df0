//! The pages: no dead link, every page in the summary, commands that the program takes.

use super::command_line::parse;
use super::{fgrpo, file, run};
use fgrpo_train::config::builtin::CONFIGS;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Files of the project below `folder` with one of these extensions that git tracks or would add.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut git = std::process::Command::new("git");
    let output = git.args(["ls-files", "-co", "--exclude-standard"]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let names = String::from_utf8(output.stdout).unwrap();
    let ends = |path: &PathBuf| path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending));
    names.lines().map(|name| folder.join(name)).filter(|path| ends(path) && path.exists()).collect()
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// The lines of a page that are not in a code block, without inline code.
fn prose(page: &str) -> String {
    let mut inside = false;
    let lines = page.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    lines.fold(String::new(), |text, line| {
        text + &line.split('`').step_by(2).collect::<Vec<_>>().join("`") + "\n"
    })
}

/// The anchors of a page that GitHub and mdBook make from its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut inside = false;
    let headings = page.lines().filter(|line| {
        inside ^= line.trim_start().starts_with("```");
        !inside && line.starts_with('#')
    });
    let id = |heading: &str| -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(id).collect()
}

/// The targets of a page's links and images.
fn links(page: &str) -> Vec<String> {
    let page = prose(page);
    let ends = page.split("](").skip(1);
    ends.map(|end| end.split([')', ' ']).next().unwrap().to_owned()).collect()
}

#[test]
fn anchors_are_those_of_github() {
    let page = "# `fgrpo sft`: one\n```sh\n# no heading\n```\n## What fits, and how long?\n";
    assert_eq!(anchors(page), ["fgrpo-sft-one", "what-fits-and-how-long"].map(String::from).into());
    assert_eq!(links("[a](b.md#c) `[d](e)`\n```\n[f](g)\n```\n![h](i.svg)\n"), ["b.md#c", "i.svg"]);
}

#[test]
fn no_page_has_a_dead_link() {
    let mut seen = 0;
    let mut dead = Vec::new();
    for page in files(&root(), &["md"]) {
        let folder = page.parent().unwrap();
        for link in
            links(&text(&page)).into_iter().filter(|l| !l.contains("://") && !l.starts_with("mailto:"))
        {
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() { page.clone() } else { folder.join(path) };
            // The site only has the files of docs/.
            let outside = folder == root().join("docs") && path.starts_with("../");
            let missing = outside || !target.exists();
            if missing || !anchor.is_empty() && !anchors(&text(&target)).contains(anchor) {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} links found");
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

#[test]
fn every_page_that_a_file_names_exists() {
    let mut missing = Vec::new();
    for path in files(&root(), &["rs", "py", "toml", "sh", "md", "yml"]) {
        let text = text(&path);
        for (at, _) in text.match_indices("docs/") {
            let name: String =
                text[at..].chars().take_while(|c| c.is_alphanumeric() || "-_./".contains(*c)).collect();
            let Some((name, _)) = name.split_once(".md") else { continue };
            let before = text[..at].chars().next_back();
            let ours = before.is_none_or(|c| !c.is_alphanumeric() && c != '-' && c != '_');
            if ours && !root().join(format!("{name}.md")).exists() {
                missing.push(format!("{}: {name}.md", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "pages that don't exist:\n{}", missing.join("\n"));
}

#[test]
fn the_summary_lists_every_page() {
    let listed: BTreeSet<String> = links(&text(&root().join("docs/SUMMARY.md"))).into_iter().collect();
    let pages = files(&root().join("docs"), &["md"]);
    let pages: BTreeSet<String> = pages
        .iter()
        .map(|p| p.strip_prefix(root().join("docs")).unwrap().to_string_lossy().into_owned())
        .filter(|name| name != "SUMMARY.md")
        .collect();
    assert_eq!(listed, pages);
}

/// The commands at the beginning of a line in a page's shell blocks, each joined into one line.
fn commands(page: &str) -> Vec<String> {
    let text = page.replace("\\\n", " ");
    let blocks = text.split("```sh\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned());
    let blocks: Vec<String> = blocks.collect();
    let lines = blocks.iter().flat_map(|block| block.lines()).map(|line| line.trim());
    let lines = lines.map(|line| line.replace("cargo run --release -- ", "fgrpo "));
    let lines = lines.filter(|line| line.starts_with("fgrpo "));
    // Removes the comment after a command and the redirection of its output. A server runs in the background.
    let command = |line: String| {
        let line = line.split(" #").next().unwrap().split(" > ").next().unwrap();
        line.trim_end_matches('&').to_owned()
    };
    lines.map(command).collect()
}

/// Messages of a command in a folder without its input.
const LACKS: [&str; 14] = [
    "o such file",
    "no folder",
    "no such folder",
    "cannot open",
    "cannot list",
    "config.toml is missing",
    "HF_HUB_OFFLINE",
    "has no samples",
    "has no finished run",
    "prompts.jsonl is missing",
    "is neither a folder with config.json",
    "names no run",
    "Connection refused",
    "found \"URL\"",
];

/// Runs all commands of the pages: long ones as a dry run, and those that need a user's files up to the missing file.
#[test]
fn every_command_of_the_pages_runs_or_lacks_its_input() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["configs", "examples"] {
        std::os::unix::fs::symlink(root().join(name), folder.path().join(name)).unwrap();
    }
    let program = Path::new(env!("CARGO_BIN_EXE_fgrpo")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    let pages = files(&root().join("docs"), &["md"]);
    // The edits of that page add code that its commands use.
    let pages = pages.into_iter().filter(|p| !p.ends_with("extending.md"));
    for page in pages.chain([root().join("README.md")]) {
        write_named_blocks(&text(&page), folder.path());
        for command in commands(&text(&page)) {
            let words: Vec<&str> = command.split_whitespace().collect();
            let lasts = match words[1..] {
                ["train" | "sft" | "sweep", ..] | ["arena", "run", ..] => true,
                ["paper", "list", ..] => false,
                ["paper", ..] => !command.contains("--from"),
                _ => false,
            };
            let more = match words[1] {
                _ if lasts && (command.contains("arithmetic-quick") || command.contains("laptop")) => {
                    " --dry-run --set task.train=64"
                }
                _ if lasts && !command.contains("--dry-run") => " --dry-run",
                "data" if command.contains("arithmetic-quick") => " --set task.train=64",
                "simulate" => " --set steps=1 --set seeds=[0]",
                _ => "",
            };
            if !seen.insert(command.clone()) {
                continue;
            }
            // One trains without a dry run, and the other has a test of its own.
            if words[1..].starts_with(&["arena", "map"]) || command.starts_with("fgrpo devices --check") {
                parse(&command).unwrap();
                continue;
            }
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &format!("{command}{more}")]).current_dir(folder.path());
            shell.env("PATH", &path).env("HOME", folder.path()).env("HF_HOME", folder.path());
            shell.envs([("HF_HUB_OFFLINE", "1"), ("seed", "1"), ("s", "1"), ("g", "0"), ("prompts", "8")]);
            let output = shell.stdin(std::process::Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            let built_in = CONFIGS.iter().any(|(name, _)| said.contains(&format!("error: {name}: ")));
            let lacks = LACKS.iter().any(|words| said.contains(words)) && !built_in;
            if !output.status.success() && !lacks {
                wrong.push(format!("{}: {command}{more}: {said}", page.display()));
            }
        }
    }
    assert!(seen.len() > 150, "only {} commands found", seen.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Writes the blocks of a page whose first line is `# NAME.py` or `# NAME.toml` into files of these names.
fn write_named_blocks(page: &str, folder: &Path) {
    for kind in ["python", "toml"] {
        for block in page.split(&format!("```{kind}\n# ")).skip(1) {
            let block = block.split("```").next().unwrap();
            let name = block.split_whitespace().next().unwrap().trim_end_matches([':', ',', ';']);
            if name.ends_with(".py") || name.ends_with(".toml") {
                file(folder, name, &format!("# {block}"));
            }
        }
    }
}

#[test]
fn the_program_takes_every_configuration_of_the_pages() {
    let mut seen = 0;
    let folder = tempfile::tempdir().unwrap();
    let pages = files(&root().join("docs"), &["md"]);
    for page in pages.into_iter().chain([root().join("README.md")]) {
        let text = text(&page);
        let blocks = text.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap());
        for block in blocks.filter(|b| b.contains("[task]") && b.contains("[model]")) {
            seen += 1;
            let config = file(folder.path(), "page.toml", block);
            // Neither files nor network: the dry run reports what is missing.
            let mut command = fgrpo();
            command.current_dir(folder.path()).env("HF_HUB_OFFLINE", "1").env("HF_HOME", folder.path());
            let (_, said, code) = run(command.args(["train", "--dry-run"]).arg(config));
            assert_eq!(code, 0, "{}: {said}\n{block}", page.display());
        }
    }
    assert!(seen >= 4, "only {seen} configurations found");
}

#[cfg(target_os = "linux")]
#[test]
fn the_lines_that_the_pages_pipe_into_the_program_are_graded() {
    let folder = tempfile::tempdir().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_fgrpo")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let mut seen = 0;
    for page in files(&root().join("docs"), &["md"]) {
        let text = text(&page);
        write_named_blocks(&text, folder.path());
        for line in
            text.lines().filter(|line| line.starts_with("printf '") && line.contains("| fgrpo verify "))
        {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", line]).current_dir(folder.path()).env("PATH", &path);
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            let graded = said.contains("\"verdict\":\"") && !said.contains("unscorable");
            assert!(output.status.success() && graded, "{}: {line}: {output:?}", page.display());
            seen += 1;
        }
    }
    assert!(seen >= 5, "only {seen} lines found");
}

/// Adds a command with its options, as in docs/commands.md, and then its subcommands.
fn described(command: &clap::Command, name: &str, page: &mut String) {
    let inner: Vec<_> = command.get_subcommands().filter(|c| c.get_name() != "help").collect();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    if inner.is_empty() {
        page.push_str(&format!("\n## {name}\n\n{about}.\n\n| argument | meaning |\n|---|---|\n"));
    }
    let own = |a: &&clap::Arg| !["help", "version"].contains(&a.get_id().as_str());
    for arg in command.get_arguments().filter(|a| inner.is_empty() && !a.is_hide_set() && own(a)) {
        let values: Vec<&str> =
            arg.get_value_names().unwrap_or_default().iter().map(|v| v.as_str()).collect();
        let values = if arg.get_action().takes_values() { values.join(" ") } else { String::new() };
        let flags = [arg.get_short().map(|s| format!("-{s}")), arg.get_long().map(|l| format!("--{l}"))];
        let flags: Vec<String> = flags.into_iter().flatten().collect();
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
        let default: Vec<_> = arg.get_default_values().iter().map(|v| v.to_string_lossy()).collect();
        let default = match default.is_empty() || !arg.get_action().takes_values() {
            true => String::new(),
            false => format!(" (default {})", default.join(" ")),
        };
        let argument = format!("{} {values}", flags.join(", ")).trim().replace('|', "\\|");
        page.push_str(&format!("| `{argument}` | {}{default} |\n", help.replace('\n', " ")));
    }
    inner.into_iter().for_each(|c| described(c, &format!("{name} {}", c.get_name()), page));
}

/// `FGRPO_WRITE_PAGES=1 cargo test -p fgrpo --test commands usage::pages` writes the page.
#[test]
fn the_page_of_commands_is_what_the_program_has() {
    let mut program = <fgrpo::args::Cli as clap::CommandFactory>::command().term_width(100);
    let overview = program.render_help().to_string();
    let mut page = format!(
        "# Commands\n\nThis page is generated from the program. `fgrpo COMMAND --help` adds the possible values and \
         examples. Data goes to\nstdout, progress and logs to stderr; [errors](errors.md) has the exit codes.\n\n\
         ```text\n{}\n```\n",
        overview.trim_end()
    );
    program = program.disable_help_subcommand(true);
    // A flag of a command holds for those inside it.
    program.build();
    described(&program, "fgrpo", &mut page);
    let path = root().join("docs/commands.md");
    if std::env::var_os("FGRPO_WRITE_PAGES").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    assert_eq!(text(&path), page, "docs/commands.md is old: see this test's comment");
}
