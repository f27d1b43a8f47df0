//! The rules of ARCHITECTURE.md that a compiler doesn't check.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(folder) = waiting.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                waiting.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn text_of(folder: &Path) -> String {
    sources(folder).iter().map(|p| std::fs::read_to_string(p).unwrap()).collect()
}

#[test]
fn crates_know_only_whom_the_design_allows() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rules = page.lines().find(|line| line.starts_with("hub -> files ")).expect("a line of dependencies");
    let rules: BTreeMap<&str, &str> =
        rules.split("      ").filter_map(|rule| rule.trim().split_once(" -> ")).collect();
    assert!(rules.len() > 7, "{rules:?}");
    for crate_ in std::fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()) {
        let name = crate_.file_name().unwrap().to_str().unwrap();
        let allowed: Vec<&str> = rules.get(name).map_or(vec![], |names| names.split(", ").collect());
        let manifest: toml::Table =
            std::fs::read_to_string(crate_.join("Cargo.toml")).unwrap().parse().unwrap();
        for dependency in manifest["dependencies"].as_table().unwrap().keys() {
            let ours = match dependency.strip_prefix("fgrpo") {
                Some("") => "cli",
                Some(name) => name.trim_start_matches('-'),
                None => continue,
            };
            let fits =
                allowed.contains(&ours) || allowed == ["all"] && !["cuda", "explore", "py"].contains(&ours);
            assert!(fits, "{name} depends on {dependency}");
        }
    }
}

/// The files below a folder, each with its numbered lines, without comments and unit tests.
fn code(folder: &Path) -> impl Iterator<Item = (String, String)> {
    let files = sources(folder).into_iter().filter(|path| path.file_stem().is_some_and(|s| s != "tests"));
    files.flat_map(|path| {
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines().zip(1..);
        let line = |(line, number): (&str, u32)| {
            (format!("{}:{number}", path.display()), line.split("//").next().unwrap().to_owned())
        };
        code.map(line).collect::<Vec<_>>()
    })
}

fn assert_without(folder: &Path, forbidden: &[&str]) {
    for (place, line) in code(folder) {
        for word in forbidden {
            assert!(!line.contains(word), "{place}: {word}");
        }
    }
}

#[test]
fn core_and_verify_touch_no_file_socket_thread_or_clock() {
    let std = ["std::fs", "std::net", "std::thread", "std::time", "std::process", "std::env", "std::io"];
    for name in ["core", "verify"] {
        let folder = root().join("crates").join(name).join("src");
        assert_without(&folder, &std);
        assert_without(&folder, &["Instant::now", "SystemTime", "rayon::"]);
    }
}

#[test]
fn nothing_prints_by_the_macros_that_panic() {
    // These macros panic if the stream is closed or full; `say!`, `out!` and `outln!` ignore that.
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        assert_without(&entry.unwrap().path().join("src"), &["print!(", "println!(", "dbg!("]);
    }
}

#[test]
fn libraries_name_no_flag_of_the_command_line() {
    // Whole commands and flags of other programs are data. The list of kinds, and the settings that fit a machine, are only
    // printed by the command line.
    let allowed = ["fgrpo ", "llama-gguf", "vLLM", "--set ", "your own ", "cargo test"];
    for name in ["core", "verify", "files", "hub", "eval", "nn", "train", "serve", "paper"] {
        for (place, line) in code(&root().join("crates").join(name).join("src")) {
            let text = line.split('"').skip(1).step_by(2).collect::<Vec<_>>().join(" ");
            let flag = text.split([' ', '`', '(']).find(|word| {
                word.strip_prefix("--").is_some_and(|flag| flag.starts_with(|c: char| c.is_ascii_lowercase()))
            });
            assert!(flag.is_none() || allowed.iter().any(|part| text.contains(part)), "{place}: {flag:?}");
        }
    }
}

#[test]
fn libraries_parse_no_command_line_and_print_nothing() {
    for name in ["hub", "eval", "train", "serve", "paper"] {
        let folder = root().join("crates").join(name);
        let manifest: toml::Table =
            std::fs::read_to_string(folder.join("Cargo.toml")).unwrap().parse().unwrap();
        for dependency in ["clap", "indicatif"] {
            assert!(manifest["dependencies"].get(dependency).is_none(), "{name} depends on {dependency}");
        }
        assert_without(&folder.join("src"), &["stdout()", "stderr()"]);
    }
}

#[test]
fn what_the_pages_call_a_rule_of_the_design_fails_where_it_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let broken = "//! std::fs\nfn now() { std::time::Instant::now(); } // rayon::\n#[cfg(test)]\nmod tests { use std::fs; }\n";
    std::fs::write(folder.path().join("broken.rs"), broken).unwrap();
    let fails = |word: &'static str| {
        let folder = folder.path().to_owned();
        std::panic::catch_unwind(move || assert_without(&folder, &[word])).is_err()
    };
    assert!(fails("std::time") && fails("Instant::now") && !fails("std::fs") && !fails("rayon::"));
}

/// Whether `text` defines an item of this name.
fn defines(text: &str, name: &str) -> bool {
    ["fn ", "struct ", "enum ", "const ", "mod "].iter().any(|kind| {
        text.split(&format!("{kind}{name}"))
            .skip(1)
            .any(|after| !after.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
    })
}

/// The quoted parts of a cell.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Whether `cargo test -p CRATE [--test FILE] [FILTER]` runs the test `name`.
fn selects(command: &str, name: &str) -> bool {
    let words: Vec<&str> = command.split(' ').collect();
    let (package, rest) = (words[3], &words[4..]);
    let folder = match package.strip_prefix("fgrpo-") {
        Some(name) => root().join("crates").join(name),
        None => root().join("crates/cli"),
    };
    let (file, filter) = match rest {
        ["--test", file, filter @ ..] => (Some(*file), filter),
        filter => (None, filter),
    };
    sources(&folder).iter().any(|path| {
        let module = path.strip_prefix(&folder).unwrap().with_extension("").to_string_lossy().into_owned();
        let module = module.strip_prefix("src/").unwrap_or(&module);
        std::fs::read_to_string(path).unwrap().contains(&format!("fn {name}("))
            && file.is_none_or(|file| module.starts_with(&format!("tests/{file}")))
            && filter.iter().all(|word| format!("{module}::{name}").replace('/', "::").contains(word))
    })
}

#[test]
fn every_row_of_paper_md_names_an_existing_function_and_test() {
    let paper = std::fs::read_to_string(root().join("PAPER.md")).unwrap();
    let folder = |name: &str| root().join("crates").join(name);
    let everything: String =
        ["core", "verify", "eval", "nn", "train", "paper", "cli"].map(|c| text_of(&folder(c))).concat();
    let rows: Vec<&str> = paper.lines().filter(|l| l.starts_with("| ") && l.contains('`')).collect();
    assert!(rows.len() > 10, "PAPER.md has {} rows", rows.len());
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "wanted four columns: {row}");
        let named = |cell: &str| {
            let parts = quoted(cell);
            assert!(!parts.is_empty(), "nothing is named in a cell: {row}");
            parts
        };
        for path in named(cells[2]) {
            let parts: Vec<&str> = path.split("::").collect();
            let source = match parts[0] {
                "fgrpo_core" => "core",
                "fgrpo_verify" => "verify",
                "fgrpo_nn" => "nn",
                "fgrpo_eval" => "eval",
                "fgrpo_train" => "train",
                "fgrpo_paper" => "paper",
                "fgrpo" => "cli",
                other => panic!("{other} is no crate of this project: {row}"),
            };
            let text = text_of(&folder(source).join("src"));
            for part in &parts[1..] {
                let exists = defines(&text, part) || folder(source).join("src").join(part).is_dir();
                assert!(exists, "{part} of {path} does not exist: {row}");
            }
        }
        for test in named(cells[3]) {
            let name = test.rsplit("::").next().unwrap();
            assert!(everything.contains(&format!("fn {name}(")), "test {name} does not exist: {row}");
            if let Some(command) = quoted(cells[4]).iter().find(|c| c.starts_with("cargo test -p ")) {
                assert!(selects(command, name), "`{command}` does not run {name}: {row}");
            }
        }
    }
}

#[test]
fn every_place_in_the_map_of_architecture_md_exists() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = page.split("\n## ").find(|part| part.starts_with("Map\n")).unwrap();
    let places =
        quoted(map).into_iter().filter(|place| place.contains('/') && !place.starts_with("scripts/"));
    let crates = root().join("crates");
    let missing: Vec<String> =
        places.filter(|place| !crates.join(place).exists() && !root().join(place).exists()).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md: {missing:?} are not there");
}

/// The files of a crate by module path, without tests.
fn modules(source: &Path) -> BTreeMap<Vec<String>, String> {
    let module = |path: PathBuf| {
        let relative = path.strip_prefix(source).unwrap().with_extension("");
        let mut name: Vec<String> =
            relative.components().map(|c| c.as_os_str().to_string_lossy().into()).collect();
        name.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
        let text = std::fs::read_to_string(&path).unwrap();
        let tests = ["#[cfg(test)]\nmod tests {", "#[cfg(test)]\npub(crate) mod tests {"];
        let code = &text[..tests.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len())];
        let code: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap()).collect();
        (name, code.join(" "))
    };
    let is_test = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "tests");
    sources(source).into_iter().filter(|path| !is_test(path)).map(module).collect()
}

/// The paths of a `use` declaration: `a::{b, c::d}` names `a::b` and `a::c::d`.
fn expand(prefix: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        paths.push(format!("{prefix}{}", tree.split(" as ").next().unwrap().trim()));
        return;
    };
    let (mut depth, mut start) = (0, 0);
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    for (i, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&format!("{prefix}{}", head.trim()), inside[start..i].trim(), paths);
                start = i + 1;
            }
            _ => {}
        }
    }
}

/// The modules that a file names.
fn imports(name: &[String], code: &str, modules: &BTreeMap<Vec<String>, String>) -> BTreeSet<Vec<String>> {
    let mut paths = Vec::new();
    for declaration in code.split("use ").skip(1).filter_map(|after| after.split(';').next()) {
        expand("", declaration.trim(), &mut paths);
    }
    // Paths inside the code.
    for (at, _) in ["crate::", "super::"].iter().flat_map(|start| code.match_indices(start)) {
        let end = code[at..].find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        if !code[..at].ends_with(':') {
            paths.push(code[at..end.map_or(code.len(), |end| at + end)].to_owned());
        }
    }
    let mut found = BTreeSet::new();
    for path in paths {
        let mut parts = path.split("::").peekable();
        let mut module = name.to_vec();
        match parts.peek() {
            Some(&"crate") => module.clear(),
            Some(&"super") => {}
            _ => continue,
        }
        for part in parts {
            match part {
                "crate" => {}
                "super" => drop(module.pop()),
                part => module.push(part.to_owned()),
            }
        }
        // Finds the longest part of the path that is a file.
        while !modules.contains_key(&module) && module.pop().is_some() {}
        found.insert(module);
    }
    found
}

#[test]
fn no_two_files_import_each_other() {
    let mut circles = Vec::new();
    for name in ["core", "verify", "files", "eval", "cuda", "nn", "train", "serve", "paper", "cli", "py"] {
        let modules = modules(&root().join("crates").join(name).join("src"));
        let graph: BTreeMap<&Vec<String>, BTreeSet<Vec<String>>> =
            modules.iter().map(|(name, code)| (name, imports(name, code, &modules))).collect();
        for (a, imported) in &graph {
            // A file and the folder of its submodules are one module.
            let circle = |b: &&Vec<String>| *a < b && !b.starts_with(a) && graph[b].contains(*a);
            circles.extend(
                imported
                    .iter()
                    .filter(circle)
                    .map(|b| format!("{name}: {} <-> {}", a.join("::"), b.join("::"))),
            );
        }
    }
    assert!(circles.is_empty(), "these files import each other: {circles:?}");
}

/// The layers of nn from the bottom up: the groups of `mod` lines in its `lib.rs`.
fn layers_of_nn() -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(root().join("crates/nn/src/lib.rs")).unwrap();
    let group = |part: &str| -> Vec<String> {
        let module = |line: &str| line.trim_start_matches("pub ").strip_prefix("mod ").map(str::to_owned);
        part.lines().filter_map(module).map(|line| line.trim_end_matches(';').to_owned()).collect()
    };
    text.split("\n\n").map(group).filter(|group| !group.is_empty()).collect()
}

#[test]
fn modules_of_nn_use_those_of_their_own_and_lower_layers_without_a_circle() {
    let layers = layers_of_nn();
    let layer = |module: &str| layers.iter().position(|layer| layer.iter().any(|m| m == module)).unwrap();
    let modules = modules(&root().join("crates/nn/src"));
    let mut uses: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (name, code) in modules.iter().filter(|(name, _)| !name.is_empty()) {
        let imported = imports(name, code, &modules).into_iter().filter_map(|path| path.first().cloned());
        uses.entry(&name[0]).or_default().extend(imported.filter(|module| *module != name[0]));
    }
    assert!(uses.len() > 20 && uses["engine"].contains("cpu"), "{uses:?}");
    let mut wrong = Vec::new();
    for (module, used) in &uses {
        for other in used {
            let names_a_device =
                ["cpu", "cuda"].contains(&other.as_str()) && layer(module) + 1 < layers.len();
            if layer(other) > layer(module) || names_a_device {
                wrong.push(format!("{module} uses {other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "against the order of the layers: {wrong:?}");
    // Removes modules that use no other remaining module, until only circles are left.
    while let Some(free) =
        uses.iter().find(|(_, used)| used.iter().all(|m| !uses.contains_key(m.as_str()))).map(|(m, _)| *m)
    {
        uses.remove(free);
    }
    assert!(uses.is_empty(), "these modules use each other in a circle: {:?}", uses.keys());
}

/// A pattern's name, its test, and the maximum number of lines with it.
type Rule = (&'static str, fn(&Line) -> bool, usize);

/// Patterns of comments and messages that make readers stop, each with the number of lines that still have it. The counts
/// may only fall: lower a ceiling when you have mended lines. CONTRIBUTING.md has the rules.
const PROSE: [Rule; 7] = [
    (
        "a doc comment opens with What, Which, Whose or Who",
        |line| line.opens_with(&["What", "Which", "Whose", "Who"]),
        0,
    ),
    (
        "a doc comment opens with a pronoun",
        |line| line.opens_with(&["Its", "It", "They", "Those", "The same", "The other", "The others"]),
        1,
    ),
    (
        "half a sentence after a semicolon, such as `; none`",
        |line| line.has("; none |; nothing |; empty |; `None` |; all |; else |; those |; the others "),
        16,
    ),
    (
        "`that of` or `, of some`",
        |line| {
            line.has(" that of |, of some |, of all |, of each |, of one |, of those |, of its |, of their ")
        },
        3,
    ),
    (
        "`where` instead of `if`",
        |line| {
            line.has(" where it | where its | where there | where that | where they | where none | where no ")
        },
        1,
    ),
    (
        "words in a meaning of their own",
        |line| line.has(" a text | texts | at hand | apart | alike | said | told | stands for | stands in "),
        22,
    ),
    (
        "a message of the form `found ..., wanted ...`",
        |line| line.comment.is_none() && line.code.contains("found ") && line.code.contains(", wanted "),
        0,
    ),
];

/// A line of source code. `comment` is the text of a doc comment, with punctuation replaced by spaces except `;`, `,` and `` ` ``.
struct Line {
    code: String,
    comment: Option<String>,
}

impl Line {
    fn new(line: &str) -> Self {
        let line = line.trim_start();
        let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let plain = |c: char| if ".:()\"".contains(c) { ' ' } else { c };
        let comment = comment.map(|text| text.chars().map(plain).collect::<String>() + " ");
        let code = if line.starts_with("//") { String::new() } else { line.to_owned() };
        Self {
            code,
            comment: comment
                .map(|text| text.replace(", ", " , ").replace(" , of", ", of").replace(" ;", ";")),
        }
    }

    fn opens_with(&self, words: &[&str]) -> bool {
        let text = self.comment.as_deref().unwrap_or_default().trim_start();
        words.iter().any(|word| text.strip_prefix(word).is_some_and(|rest| rest.starts_with(' ')))
    }

    /// Whether the comment has one of these phrases, which are separated by `|`.
    fn has(&self, phrases: &str) -> bool {
        let text = self.comment.as_deref().unwrap_or_default();
        phrases.split('|').any(|phrase| text.contains(phrase))
    }
}

#[test]
fn comments_and_messages_get_no_new_private_english() {
    let mut lines: Vec<(String, Line)> = Vec::new();
    for name in std::fs::read_dir(root().join("crates")).unwrap() {
        for path in sources(&name.unwrap().path().join("src")) {
            let text = std::fs::read_to_string(&path).unwrap();
            let shown = path.strip_prefix(root()).unwrap().display().to_string();
            lines.extend(
                text.lines()
                    .zip(1..)
                    .map(|(line, n)| (format!("{shown}:{n}: {}", line.trim()), Line::new(line))),
            );
        }
    }
    let mut wrong = String::new();
    for (rule, matches, ceiling) in PROSE {
        let places: Vec<&str> =
            lines.iter().filter(|(_, line)| matches(line)).map(|(place, _)| place.as_str()).collect();
        if places.len() > ceiling {
            wrong += &format!("{rule}: {} lines, ceiling {ceiling}\n{}\n", places.len(), places.join("\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
