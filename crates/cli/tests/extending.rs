//! The edits of docs/extending.md fit the sources, and the edited sources pass their tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const PAGE: &str = include_str!("../../../docs/extending.md");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of each fenced block and the words after its fence, without the indentation of the fence.
fn blocks() -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let body = lines
            .by_ref()
            .take_while(|l| l.trim() != "```")
            .map(|l| l.get(indent..).unwrap_or_default().to_owned());
        found.push((info.to_owned(), body.collect()));
    }
    found
}

/// Replaces the one place in `text` that has the lines `old`.
fn replace(file: &str, text: &str, old: &[&str], new: &[&str]) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let at: Vec<usize> = (0..lines.len()).filter(|&i| lines[i..].starts_with(old)).collect();
    assert_eq!(
        at.len(),
        1,
        "docs/extending.md: {file} has these lines {} times:\n{}",
        at.len(),
        old.join("\n")
    );
    let edited = [&lines[..at[0]], new, &lines[at[0] + old.len()..]].concat();
    edited.join("\n") + "\n"
}

/// Every file that the page edits or adds, by its path, after all edits.
fn edited() -> BTreeMap<String, String> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for (info, lines) in blocks() {
        // A new file: ```rust crates/...
        if let Some((_, path)) = info.split_once(' ') {
            let new = files.insert(path.to_owned(), lines.join("\n") + "\n").is_none();
            assert!(new && !root().join(path).exists(), "docs/extending.md: {path} is there already");
        }
        if info != "diff" {
            continue;
        }
        let mut file = String::new();
        let (mut old, mut new) = (Vec::new(), Vec::new());
        for line in lines.iter().map(String::as_str).chain(["@@"]) {
            if line == "@@" || line.starts_with("--- ") {
                if !old.is_empty() {
                    let text = files.entry(file.clone()).or_insert_with(|| {
                        std::fs::read_to_string(root().join(&file)).unwrap_or_else(|e| panic!("{file}: {e}"))
                    });
                    *text = replace(&file, text, &old, &new);
                }
                old.clear();
                new.clear();
            }
            if let Some(path) = line.strip_prefix("--- ") {
                path.clone_into(&mut file);
            } else if let Some(added) = line.strip_prefix('+') {
                new.push(added);
            } else if let Some(removed) = line.strip_prefix('-') {
                old.push(removed);
            } else if line != "@@" {
                let both = line.strip_prefix(' ').unwrap_or(line);
                old.push(both);
                new.push(both);
            }
        }
    }
    files
}

#[test]
fn every_edit_of_the_page_fits_the_sources() {
    assert!(edited().len() > 5);
}

#[test]
#[ignore = "compiles everything a second time"]
fn the_edited_sources_pass_their_tests() {
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("extending");
    let _ = std::fs::remove_dir_all(&copy);
    std::fs::create_dir_all(&copy).unwrap();
    let files = Command::new("git").args(["ls-files"]).current_dir(root()).output().unwrap();
    for path in String::from_utf8(files.stdout).unwrap().lines() {
        let to = copy.join(path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(root().join(path), to).unwrap();
    }
    for (path, text) in edited() {
        std::fs::write(copy.join(path), text).unwrap();
    }
    let cargo = |arguments: &[&str]| {
        let status = Command::new(env!("CARGO"))
            .args(arguments)
            // A separate folder: in the folder of these sources, cargo would take the copy's crates for the original ones.
            .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("extending-target"))
            // The page says that the configuration's tables are written by the test.
            .env("FGRPO_WRITE_PAGES", "1")
            .current_dir(&copy)
            .status()
            .unwrap();
        assert!(status.success(), "cargo {}", arguments.join(" "));
    };
    cargo(&["fmt", "--all", "--", "--check"]);
    cargo(&["test", "--workspace", "--locked", "--lib"]);
}
