//! Tests that the tables of `docs/configuration.md` are those of the schema. A heading names a table, and for a task
//! also kinds.
//!
//! `FGRPO_WRITE_PAGES=1 cargo test -p fgrpo-train --lib config` writes the page.

use super::super::schema::{forms, kinds as kinds_of};
use super::{Config, minimal};
use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use serde_json::Value;
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../../../docs/configuration.md");
const HEAD: &str = "| key | default | meaning |";

/// A key, its default (a value of TOML in backticks, or a word), and its meaning.
type Row = (String, String, String);

/// Returns the parts of a string in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Merges tables with the same text: returns each text with the kinds of its tables.
fn by_text<'a>(texts: impl Iterator<Item = (String, &'a Value)>) -> Vec<(String, String)> {
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for (text, table) in texts {
        match groups.iter_mut().find(|(known, _)| *known == text) {
            Some((_, kinds)) => kinds.extend(kinds_of(table)),
            None => groups.push((text, kinds_of(table))),
        }
    }
    groups.into_iter().map(|(text, kinds)| (text, listed(kinds))).collect()
}

/// Returns the default of a key, as the text of a cell.
fn default(table: &Value, name: &str) -> String {
    let default = &table["properties"][name]["default"];
    match default.get("kind").unwrap_or(default) {
        Value::Object(_) | Value::Null => {
            let required = table["required"].as_array().is_some_and(|r| r.iter().any(|key| key == name));
            if required { "required" } else { "none" }.to_owned()
        }
        value => format!("`{}`", toml::Value::try_from(value).unwrap()),
    }
}

struct Schema(Value);

impl Schema {
    fn tables<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        forms(&self.0, schema).into_iter().filter(|form| form["properties"].is_object()).collect()
    }

    /// Returns the key of the table that a heading names, and the table's alternatives for the kinds in the heading.
    fn of_heading(&self, heading: &str) -> (String, Vec<&Value>) {
        let mut names = quoted(heading).into_iter();
        let key = names.next().unwrap_or_default().trim_matches(['[', ']']);
        let keys = key.split('.').filter(|key| !key.is_empty());
        let tables = keys.fold(vec![&self.0], |tables, key| self.tables(&tables[0]["properties"][key]));
        let kinds: Vec<&str> = names.collect();
        let named =
            |table: &&Value| kinds.is_empty() || kinds_of(table).iter().any(|kind| kinds.contains(kind));
        let tables: Vec<&Value> = tables.into_iter().filter(named).collect();
        let expected = if kinds.is_empty() { 1 } else { kinds.len() };
        let count = if kinds.is_empty() {
            tables.len()
        } else {
            tables.iter().flat_map(|table| kinds_of(table)).count()
        };
        assert_eq!(count, expected, "{heading}");
        (key.to_owned(), tables)
    }

    /// Returns the description of a key, followed by its allowed words unless the description has them.
    fn meaning(&self, schema: &Value) -> String {
        let description = schema["description"].as_str().unwrap_or_default().replace('\n', " ");
        let forms = forms(&self.0, schema);
        let words = forms.iter().flat_map(|form| {
            form["enum"].as_array().into_iter().flatten().chain([&form["const"]]).filter_map(Value::as_str)
        });
        let words: Vec<&str> = words.collect();
        let described: Vec<&str> =
            quoted(&description).into_iter().map(|word| word.trim_matches('"')).collect();
        if words.iter().all(|word| described.contains(word)) {
            description
        } else {
            format!("{}: {}.", description.trim_end_matches('.'), listed(words))
        }
    }

    /// Returns the row of a key that the kinds `having` have. `all` is the number of kinds of the table.
    fn row(&self, key: String, name: &str, having: &[&Value], all: usize) -> Row {
        let meaning = |table: &&Value| self.meaning(&table["properties"][name]);
        let meanings = by_text(having.iter().map(|table| (meaning(table), *table)));
        let defaults = by_text(having.iter().map(|table| (default(table, name), *table)));
        let of_kinds =
            |(text, kinds): &(String, String)| format!("{kinds}: {}{}", text[..1].to_lowercase(), &text[1..]);
        let mut meaning = match meanings.as_slice() {
            [(one, _)] if having.len() == all => one.clone(),
            several => several.iter().map(of_kinds).collect::<Vec<_>>().join(" "),
        };
        if defaults.len() > 1 {
            let others = defaults[1..].iter().map(|(default, kinds)| format!("{kinds} {default}"));
            meaning += &format!(" Other defaults: {}.", others.collect::<Vec<_>>().join("; "));
        }
        (key, defaults[0].0.clone(), meaning)
    }

    /// Returns the rows of a table with these kinds, without inner tables that have separate headings.
    fn rows(&self, table: &str, kinds: &[&Value], headed: &[String]) -> Vec<Row> {
        let mut names: Vec<&String> = Vec::new();
        for name in kinds.iter().flat_map(|kind| kind["properties"].as_object().unwrap().keys()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut rows = Vec::new();
        for name in names {
            let key = format!("{table}.{name}").trim_start_matches('.').to_owned();
            let having: Vec<&Value> =
                kinds.iter().copied().filter(|kind| !kind["properties"][name].is_null()).collect();
            let schema = &having[0]["properties"][name];
            let (inner, items) = (self.tables(schema), self.tables(&schema["items"]));
            let forms = forms(&self.0, schema).into_iter().filter(|form| form["type"] != "null").count();
            if headed.contains(&key) {
                continue;
            }
            if name == "kind" {
                // For other tables, the kinds are in the row with the table's name.
                let meaning = listed(kinds.iter().flat_map(|table| kinds_of(table)));
                rows.extend((table == "task").then(|| (key, "required".to_owned(), meaning)));
                continue;
            }
            if (inner.len(), forms) != (1, 1) {
                let any = if schema["additionalProperties"].is_object() { ".NAME" } else { "" };
                rows.push(self.row(key.clone() + any, name, &having, kinds.len()));
            }
            rows.extend(self.rows(&key, &[items, inner].concat(), headed));
        }
        rows
    }

    /// Returns the headings of the page with the rows of their tables.
    fn page(&self) -> Vec<(&'static str, Vec<Row>)> {
        let above = |before: &'static str| before.lines().rfind(|line| line.starts_with("##")).unwrap();
        let headings: Vec<&str> = PAGE.match_indices(HEAD).map(|(at, _)| above(&PAGE[..at])).collect();
        let tables: Vec<_> = headings.iter().map(|heading| self.of_heading(heading)).collect();
        let headed: Vec<String> = tables.iter().map(|(table, _)| table.clone()).collect();
        let rows = tables.iter().map(|(table, kinds)| self.rows(table, kinds, &headed));
        headings.into_iter().zip(rows).collect()
    }
}

#[test]
fn the_tables_of_the_page_are_those_of_the_program() {
    let mut tables = Schema(Config::schema()).page().into_iter();
    let mut page = String::new();
    let mut lines = PAGE.lines().peekable();
    while let Some(line) = lines.next() {
        page += &format!("{line}\n");
        if line == HEAD {
            page += "|---|---|---|\n";
            for (key, default, meaning) in tables.next().unwrap().1 {
                assert!(!meaning.is_empty() && !meaning.contains('|'), "{key}: {meaning}");
                page += &format!("| `{key}` | {default} | {meaning} |\n");
            }
            while lines.next_if(|line| line.starts_with('|')).is_some() {}
        }
    }
    if std::env::var_os("FGRPO_WRITE_PAGES").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md"), page).unwrap();
    } else {
        let old = PAGE.lines().zip(page.lines()).find(|(old, new)| old != new);
        assert!(
            PAGE == page,
            "docs/configuration.md is old: {old:?}; `FGRPO_WRITE_PAGES=1 cargo test -p fgrpo-train --lib config` writes it"
        );
    }
}

/// Returns the values of a table, each with its full key.
fn flat(key: &str, value: &toml::Value) -> Vec<(String, toml::Value)> {
    match value {
        toml::Value::Table(table) => {
            table.iter().flat_map(|(name, value)| flat(&format!("{key}.{name}"), value)).collect()
        }
        toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => {
            list.iter().flat_map(|table| flat(key, table)).collect()
        }
        value => vec![(key[1..].to_owned(), value.clone())],
    }
}

#[test]
fn every_key_of_a_resolved_configuration_is_on_the_page_with_its_default() {
    let schema = Schema(Config::schema());
    let page = schema.page();
    let tables = schema.tables(&schema.0["properties"]["task"]);
    let kinds: Vec<&str> = tables.into_iter().flat_map(kinds_of).collect();
    // An environment is a setting of kind `python`.
    let named =
        |(kind, name, _): &(TaskKind, &str, &str)| *kind == TaskKind::Environment || kinds.contains(name);
    assert!(TaskKind::NAMES.iter().all(named), "{kinds:?}");
    for kind in kinds {
        let mut set = vec!["rollout.server.url=http://a".to_owned(), "eval.full.problems=1".to_owned()];
        // An adapter needs a checkpoint as its base.
        set.extend((kind == "math").then(|| "lora.rank=16".to_owned()));
        let applies = |heading: &str| !heading.contains("[task]") || quoted(heading)[1..].contains(&kind);
        let rows = page.iter().filter(|(heading, _)| applies(heading)).flat_map(|(_, rows)| rows);
        let rows: BTreeMap<&str, &str> = rows.map(|(key, default, _)| (&**key, &**default)).collect();
        let config = Config::parse(&minimal(kind), &set).unwrap();
        let resolved = config.to_toml();
        assert_eq!((config.task.kind(), &Config::parse(&resolved, &[]).unwrap()), (kind, &config));
        for (key, value) in flat("", &toml::Value::Table(resolved.parse().unwrap())) {
            // A part also has the keys of its kind.
            if key.starts_with("task.parts.") && !rows.contains_key(&*key) {
                continue;
            }
            let name = key.strip_suffix(".kind").filter(|table| *table != "task").unwrap_or(&key);
            let default = rows.get(name).unwrap_or_else(|| panic!("no row of {name} for {kind}"));
            if let Some(default) = default.strip_prefix('`').filter(|_| key != "steps") {
                let expected: toml::Table = format!("x = {}", default.trim_end_matches('`')).parse().unwrap();
                assert_eq!(value, expected["x"], "{key} of {kind}");
            }
        }
    }
}
