//! The tables of `docs/configuration.md` are the schema's: a heading names a table, and a task's heading its kinds.
//!
//! `FGRPO_WRITE_PAGES=1 cargo test -p fgrpo-train --lib config` writes them.

use super::{Config, minimal};
use serde_json::Value;
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../../../../../docs/configuration.md");
const HEAD: &str = "| key | default | meaning |";

struct Row {
    key: String,
    /// A value of TOML in backticks, or a word.
    default: String,
    meaning: String,
}

/// The parts of a text in backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema[key].as_str().unwrap_or_default()
}

/// The kind that a table is for.
fn kind(table: &Value) -> &str {
    text(&table["properties"]["kind"], "const")
}

struct Schema(Value);

impl Schema {
    /// What a schema allows, with references followed.
    fn forms<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        if let Some(path) = schema["$ref"].as_str() {
            return self.forms(self.0.pointer(&path[1..]).unwrap());
        }
        // A table may have alternatives beside its own keys: the kinds of a part.
        let either = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        match either.and_then(Value::as_array) {
            Some(forms) if schema["properties"].is_null() => {
                forms.iter().flat_map(|form| self.forms(form)).collect()
            }
            _ => vec![schema],
        }
    }

    fn tables<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        self.forms(schema).into_iter().filter(|form| form["properties"].is_object()).collect()
    }

    /// The table or the kinds of a table that a heading names.
    fn of_heading(&self, heading: &str) -> (String, Vec<&Value>) {
        let mut names = quoted(heading).into_iter();
        let key = names.next().unwrap_or_default().trim_matches(['[', ']']);
        let keys = key.split('.').filter(|key| !key.is_empty());
        let tables = keys.fold(vec![&self.0], |tables, key| self.tables(&tables[0]["properties"][key]));
        let kinds: Vec<&str> = names.collect();
        let tables: Vec<&Value> =
            tables.into_iter().filter(|table| kinds.is_empty() || kinds.contains(&kind(table))).collect();
        assert!(!tables.is_empty() && tables.len() == kinds.len().max(1), "{heading}");
        (key.to_owned(), tables)
    }

    /// The default of a key as a cell.
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

    /// The description of a key and the words that it may be, if they aren't in the description.
    fn meaning(&self, schema: &Value) -> String {
        let description = text(schema, "description").replace('\n', " ");
        let words = self.forms(schema).into_iter().flat_map(|form| {
            let one = form["const"].as_str();
            one.into_iter().chain(form["enum"].as_array().into_iter().flatten().filter_map(Value::as_str))
        });
        let words: Vec<&str> = words.collect();
        let said: Vec<&str> = quoted(&description).into_iter().map(|word| word.trim_matches('"')).collect();
        match words.iter().all(|word| said.contains(word)) {
            true => description,
            false => format!("{}: {}.", description.trim_end_matches('.'), listed(words)),
        }
    }

    /// The row of a key that some of `all` kinds of a table have.
    fn row(&self, key: &str, name: &str, having: &[&Value], all: usize) -> Row {
        let default = Self::default(having[0], name);
        let mut meanings: Vec<(String, Vec<&str>)> = Vec::new();
        let mut others: Vec<(String, Vec<&str>)> = Vec::new();
        let add = |groups: &mut Vec<(String, Vec<_>)>, said: String, kind| match groups
            .iter_mut()
            .find(|(known, _)| *known == said)
        {
            Some((_, kinds)) => kinds.push(kind),
            None => groups.push((said, vec![kind])),
        };
        for &table in having {
            add(&mut meanings, self.meaning(&table["properties"][name]), kind(table));
            let own = Self::default(table, name);
            if own != default {
                add(&mut others, own, kind(table));
            }
        }
        let of_kinds = |(said, kinds): (String, Vec<&str>)| {
            format!("{}: {}{}", listed(kinds), said[..1].to_lowercase(), &said[1..])
        };
        let mut meaning = match meanings.as_slice() {
            [(one, _)] if having.len() == all => one.clone(),
            _ => meanings.into_iter().map(of_kinds).collect::<Vec<_>>().join(" "),
        };
        if !others.is_empty() {
            let others: Vec<String> =
                others.into_iter().map(|(default, kinds)| format!("{} {default}", listed(kinds))).collect();
            meaning += &format!(" Other defaults: {}.", others.join("; "));
        }
        Row { key: key.to_owned(), default, meaning }
    }

    /// The rows of a table, or of the kinds of a table, without the tables that have headings.
    fn rows(&self, table: &str, kinds: &[&Value], headed: &[String]) -> Vec<Row> {
        let mut names: Vec<&String> = Vec::new();
        for name in kinds.iter().flat_map(|kind| kind["properties"].as_object().unwrap().keys()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut rows = Vec::new();
        for name in names {
            let key = if table.is_empty() { name.clone() } else { format!("{table}.{name}") };
            let having: Vec<&Value> =
                kinds.iter().copied().filter(|kind| !kind["properties"][name].is_null()).collect();
            let schema = &having[0]["properties"][name];
            if headed.contains(&key) {
                continue;
            }
            if name == "kind" {
                let meaning = listed(kinds.iter().map(|table| kind(table)));
                rows.push(Row { key, default: "required".to_owned(), meaning });
                continue;
            }
            let items = self.tables(&schema["items"]);
            let inner = self.tables(schema);
            let forms = self.forms(schema).into_iter().filter(|form| text(form, "type") != "null").count();
            if inner.len() == 1 && forms == 1 {
                rows.extend(self.rows(&key, &inner, headed));
                continue;
            }
            let shown = if schema["additionalProperties"].is_object() { ".NAME" } else { "" };
            rows.push(self.row(&(key.clone() + shown), name, &having, kinds.len()));
            let mut settings = self.rows(&key, &[items, inner].concat(), headed);
            // A kind stands under the name of the table.
            settings.retain(|row| row.key != format!("{key}.kind"));
            rows.extend(settings);
        }
        rows
    }

    /// The tables of the page by their headings.
    fn page(&self) -> Vec<(&'static str, Vec<Row>)> {
        let mut heading = "";
        let mut headings = Vec::new();
        for line in PAGE.lines() {
            if line.starts_with("##") {
                heading = line;
            }
            if line == HEAD {
                headings.push(heading);
            }
        }
        let tables: Vec<_> = headings.iter().map(|heading| self.of_heading(heading)).collect();
        let headed: Vec<String> = tables.iter().map(|(table, _)| table.clone()).collect();
        let rows = tables.iter().map(|(table, kinds)| self.rows(table, kinds, &headed));
        headings.into_iter().zip(rows).collect()
    }
}

fn flatten(prefix: &str, table: &toml::Table, found: &mut BTreeMap<String, toml::Value>) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            toml::Value::Table(inner) => {
                flatten(&name, inner, found);
                // A kind with its settings is listed under its name.
                if prefix == "algorithm"
                    && let Some(kind) = found.remove(&format!("{name}.kind"))
                {
                    found.insert(name, kind);
                }
            }
            // The other keys of a part are those of its kind.
            toml::Value::Array(parts) if parts.iter().any(toml::Value::is_table) => {
                for (own, value) in parts.iter().filter_map(toml::Value::as_table).flatten() {
                    if ["name", "weight"].contains(&own.as_str()) {
                        found.insert(format!("{name}.{own}"), value.clone());
                    }
                }
            }
            value => {
                found.insert(name, value.clone());
            }
        }
    }
}

fn resolved(text: &str, overrides: &[String]) -> BTreeMap<String, toml::Value> {
    let config = Config::parse(text, overrides).unwrap();
    let mut found = BTreeMap::new();
    flatten("", &config.to_toml().parse().unwrap(), &mut found);
    found
}

#[test]
fn the_tables_of_the_page_are_those_of_the_program() {
    let mut tables = Schema(Config::schema()).page().into_iter();
    let mut page = String::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        page += &format!("{line}\n");
        if line != HEAD {
            continue;
        }
        page += "|---|---|---|\n";
        for Row { key, default, meaning } in tables.next().unwrap().1 {
            assert!(!meaning.is_empty() && !meaning.contains('|'), "{key}: {meaning}");
            page += &format!("| `{key}` | {default} | {} |\n", meaning.trim());
        }
        let after = lines.by_ref().find(|line| !line.starts_with('|'));
        after.into_iter().for_each(|line| page += &format!("{line}\n"));
    }
    if std::env::var_os("FGRPO_WRITE_PAGES").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        std::fs::write(path, page).unwrap();
    } else {
        let command = "FGRPO_WRITE_PAGES=1 cargo test -p fgrpo-train --lib config";
        let old = PAGE.lines().zip(page.lines()).find(|(old, new)| old != new);
        assert!(PAGE == page, "docs/configuration.md is old, `{command}` writes it: {old:?}");
    }
}

#[test]
fn every_key_of_a_resolved_configuration_is_on_the_page_with_its_default() {
    let schema = Schema(Config::schema());
    let page = schema.page();
    for kind in schema.tables(&schema.0["properties"]["task"]).into_iter().map(kind) {
        let mut set = vec!["rollout.server.url=http://a".to_owned(), "eval.full.problems=1".to_owned()];
        // An adapter needs a checkpoint as its base.
        set.extend((kind == "math").then(|| "lora.rank=16".to_owned()));
        let own = |heading: &str| !heading.contains("[task]") || quoted(heading)[1..].contains(&kind);
        let rows = page.iter().filter(|(heading, _)| own(heading)).flat_map(|(_, rows)| rows);
        let rows: BTreeMap<&str, &str> = rows.map(|row| (row.key.as_str(), row.default.as_str())).collect();
        for (key, value) in resolved(&minimal(kind), &set) {
            let default = rows.get(key.as_str()).unwrap_or_else(|| panic!("no row of {key} for {kind}"));
            if let Some(default) = default.strip_prefix('`').filter(|_| key != "steps") {
                let wanted: toml::Table = format!("x = {}", default.trim_end_matches('`')).parse().unwrap();
                assert_eq!(value, wanted["x"], "{key} of {kind}");
            }
        }
    }
}
