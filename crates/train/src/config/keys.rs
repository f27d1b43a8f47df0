//! Error messages about a configuration: the line or the override, the key, and a suggestion.

use super::Config;
use super::schema::{forms, kinds};
use anyhow::Context;
use fgrpo_eval::io::harmless::shortened;
use fgrpo_eval::io::json::{self, Misfit};
use fgrpo_eval::io::objects::Objects;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Segment, Track};
use strsim::damerau_levenshtein;
use toml::Value;
use toml::de::{DeTable, DeValue};

/// Returns the names of other trainers' keys, each with our key.
fn elsewhere() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("elsewhere.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' '))
}

/// A small configuration. Its resolved form has every key that a message may suggest.
const SMALLEST: &str =
    "steps = 1\n[task]\nkind = \"arithmetic\"\n[sft]\nsteps = 1\n[lora]\n[model]\npath = \"model\"\n";

/// Returns the full names of the keys that `name` may mean, most likely first: keys with that name, the key for another
/// trainer's name, or keys with a similar spelling.
pub fn suggestions(name: &str) -> Vec<String> {
    let name = name.trim_start_matches('-').replace('-', "_");
    let known = known();
    let last = |key: &str| key.rsplit('.').next().unwrap_or(key).to_owned();
    let same: Vec<String> = known.iter().filter(|key| last(key) == name || **key == name).cloned().collect();
    let elsewhere = elsewhere().filter(|(other, _)| *other == name).map(|(_, ours)| ours.to_owned());
    let mut all: Vec<String> = if same.is_empty() { elsewhere.collect() } else { same };
    if all.is_empty() {
        all = known.into_iter().filter(|key| may_be_misspelt(&last(key), &name)).collect();
    }
    // RL keys come before those of the supervised stage.
    all.sort_by_key(|key| key.starts_with("sft."));
    all.truncate(3);
    all
}

fn known() -> Vec<String> {
    fn names(prefix: &str, table: &toml::Table, all: &mut Vec<String>) {
        for (key, value) in table {
            let name = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
            match value {
                toml::Value::Table(inner) => {
                    names(&name, inner, all);
                    // A kind may be given by its name alone.
                    all.extend(inner.contains_key("kind").then_some(name));
                }
                _ => all.push(name),
            }
        }
    }
    let config = Config::parse(SMALLEST, &[]).expect("the smallest configuration is valid");
    let mut all = Vec::new();
    names("", &config.to_toml().parse().expect("a configuration is TOML"), &mut all);
    all
}

/// Returns whether one word may be a misspelling of the other.
fn may_be_misspelt(a: &str, b: &str) -> bool {
    let (m, n) = (a.chars().count(), b.chars().count());
    let limit = (m.max(n) / 4).max(1);
    // The distance is at least the difference in length; this avoids comparing very long words.
    m.abs_diff(n) <= limit && damerau_levenshtein(a, b) <= limit
}

/// Maximum number of characters of an unknown key shown in a message.
const SHOWN: usize = 80;

/// A configuration key and the value that replaces the configured one.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// The argument that sets it, for messages: `--set update.lr=1`.
    pub source: String,
    /// The full key, such as `update.lr`.
    pub key: String,
    /// The value.
    pub value: Value,
}

impl Override {
    /// Reads `a.b.c=value`, the value of the argument `name`; error messages begin with that name. The value is read
    /// as TOML if possible, with or without a list's brackets, and otherwise as a string, so `algorithm.loss=dapo`
    /// and `eval.k=1,8` or `eval.k=8` need no quotes. Fails if there is no `=` or no key.
    pub fn parse(name: &str, assignment: &str) -> anyhow::Result<Self> {
        let source = format!("{name} {assignment}").trim_start().to_owned();
        let Some((key, value)) = assignment.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
            bad_input!("{source}: expected KEY=VALUE");
        };
        let value = value.trim();
        // Only one value: a second line would be parsed as another key.
        let parse = |text: &str| text.parse::<Value>().ok();
        let list = || if value.contains(',') { parse(&format!("[{value}]")) } else { None };
        let value = parse(value).or_else(list).unwrap_or_else(|| Value::String(value.to_owned()));
        Ok(Self { source, key: key.trim().to_owned(), value })
    }

    /// Parses several assignments with [`Override::parse`].
    pub fn all(name: &str, assignments: &[String]) -> anyhow::Result<Vec<Self>> {
        assignments.iter().map(|assignment| Self::parse(name, assignment)).collect()
    }

    /// Sets the value in a table and creates missing tables on the way. Fails if a part of the key names a value that
    /// isn't a table.
    fn set(&self, table: &mut toml::Table) -> anyhow::Result<()> {
        let Self { source, key, value } = self;
        let mut parts: Vec<&str> = key.split('.').collect();
        let last = parts.pop().filter(|p| !p.is_empty());
        let Some(last) = last else { bad_input!("{source}: expected KEY=VALUE") };
        let depth = parts.len();
        let whole_list = |left: usize| -> anyhow::Result<()> {
            let list = key.split('.').take(depth - left).collect::<Vec<_>>().join(".");
            bad_input!("{source}: an item of a list has no key of its own; set the whole list: {list}=[...]")
        };
        let mut here = table;
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            let index = parts.peek().unwrap_or(&last).parse::<usize>();
            if index.is_ok() && !here.contains_key(part) {
                return whole_list(parts.len());
            }
            let entry = here.entry(part).or_insert_with(|| Value::Table(toml::Table::new()));
            if entry.as_array().is_some_and(|list| !list.first().is_some_and(Value::is_table)) {
                return whole_list(parts.len());
            }
            let table = match entry {
                Value::Array(list) => {
                    let step = parts.next().unwrap_or(last);
                    let length = list.len();
                    let Some(table) = index.ok().and_then(|i| list.get_mut(i)?.as_table_mut()) else {
                        bad_input!(
                            "{source}: expected {part}.0 to {part}.{}, found `{step}` as the index of a list of {length}",
                            length - 1
                        );
                    };
                    Some(table)
                }
                other => {
                    if key.starts_with("algorithm.") {
                        super::kind::table_of(other);
                    }
                    other.as_table_mut()
                }
            };
            let Some(next) = table else {
                bad_input!("{source}: `{part}` is a value, not a table");
            };
            here = next;
        }
        // An integer is accepted for a float.
        let value = match (here.get(last), value) {
            (Some(Value::Float(_)), Value::Integer(i)) => Value::Float(*i as f64),
            (_, v) => v.clone(),
        };
        here.insert(last.to_owned(), value);
        Ok(())
    }
}

/// Parses TOML with overrides into a typed table. `elsewhere` suggests full names for a key that is unknown in its
/// table. Fails on an unknown key or an invalid value; the message names its line, or its override.
pub fn typed<T: DeserializeOwned>(
    text: &str,
    overrides: &[Override],
    elsewhere: fn(&str) -> Vec<String>,
) -> anyhow::Result<T> {
    let lines = DeTable::parse(text).or_else(|e| bad_input!("{}", e.to_string().trim_end()))?;
    let without = |omitted: Option<usize>| -> anyhow::Result<Result<T, Vec<Refusal>>> {
        let mut table: toml::Table = text.parse()?;
        for (_, change) in overrides.iter().enumerate().filter(|(i, _)| Some(*i) != omitted) {
            change.set(&mut table)?;
        }
        Ok(Refusal::read_all(Value::Table(table)))
    };
    let refusals = match without(None)? {
        Ok(config) => return Ok(config),
        Err(refusals) => refusals,
    };
    // A list of one value may be written without brackets.
    let alone = |change: &Override| refusals.iter().any(|refusal| refusal.wants_list(change));
    if let Some(at) = overrides.iter().position(alone) {
        let mut overrides = overrides.to_vec();
        overrides[at].value = Value::Array(vec![overrides[at].value.clone()]);
        return typed(text, &overrides, elsewhere);
    }
    // An override is the cause if the error disappears without it.
    let others: Vec<_> = (0..overrides.len()).map(|i| without(Some(i))).collect();
    let lines = lines.into_inner();
    let messages: Vec<String> = refusals
        .iter()
        .map(|refusal| {
            let is_cause = |other: &anyhow::Result<Result<T, Vec<Refusal>>>| match other {
                Ok(Err(refusals)) => !refusals.contains(refusal),
                _ => true,
            };
            match others.iter().position(is_cause) {
                Some(cause) => {
                    format!("{}: {}", overrides[cause].source, refusal.explained(false, elsewhere))
                }
                None => refusal.line(text, &lines) + &refusal.explained(true, elsewhere),
            }
        })
        .collect();
    match messages.as_slice() {
        [message] => bad_input!("{message}"),
        all => bad_input!("{} keys are unknown:\n  {}", all.len(), all.join("\n  ")),
    }
}

/// Applies overrides to a typed table, with the errors of [`typed`].
pub fn overridden<T: DeserializeOwned + Serialize>(table: &T, overrides: &[Override]) -> anyhow::Result<T> {
    typed(&toml::to_string(table).context("settings as TOML")?, overrides, suggestions)
}

/// Reason why serde rejects a table.
#[derive(Debug, PartialEq)]
struct Refusal {
    /// The keys and indices that lead to the wrong value, the unknown key, or the table that lacks a key.
    path: Vec<String>,
    value: Option<Value>,
    message: String,
}

fn part<'a>(value: &'a Value, step: &str) -> Option<&'a Value> {
    match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        other => other.get(step),
    }
}

impl Refusal {
    /// Reads a value, or returns every unknown key, or else the first other error.
    fn read_all<T: DeserializeOwned>(mut whole: Value) -> Result<T, Vec<Self>> {
        let mut all = Vec::new();
        loop {
            match Self::read::<T>(&whole) {
                Ok(read) if all.is_empty() => return Ok(read),
                Err(refusal) if refusal.is_unknown_key() && remove(&mut whole, &refusal.path) => {
                    all.push(refusal)
                }
                Err(refusal) if all.is_empty() => return Err(vec![refusal]),
                // Another error may only be a consequence of a misspelt key.
                _ => return Err(all),
            }
        }
    }

    /// Returns whether the path leads to an unknown key.
    fn is_unknown_key(&self) -> bool {
        names_key(&self.path, &self.message)
    }

    /// Returns whether the key of an override takes a list, and the override gives a number or a string.
    fn wants_list(&self, change: &Override) -> bool {
        let is_one = !change.value.is_array() && !change.value.is_table();
        is_one && self.message.contains(", expected a sequence") && self.path.join(".") == change.key
    }

    /// Reads a value, or returns why it is rejected.
    fn read<T: DeserializeOwned>(whole: &Value) -> Result<T, Self> {
        let (message, track) = match read::<T>(whole.clone()) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let step = |segment: &Segment| match segment {
            Segment::Seq { index } => Some(index.to_string()),
            Segment::Map { key } => Some(key.clone()),
            Segment::Enum { .. } | Segment::Unknown => None,
        };
        let mut path: Vec<String> = track.path().iter().filter_map(step).collect();
        let mut cause = path.iter().try_fold(whole, |value, step| part(value, step));
        // A table with a kind is read as a whole, so serde doesn't name the wrong key in it. Each key is read alone to find it.
        while let Some(value) = cause
            && !message.starts_with("missing field")
            && !names_key(&path, &message)
        {
            let mut steps: Vec<String> = match value {
                Value::Table(table) if !message.contains(": map, ") => table.keys().cloned().collect(),
                Value::Array(list) if !message.contains(": sequence, ") => {
                    (0..list.len()).map(|i| i.to_string()).collect()
                }
                _ => break,
            };
            // With a wrong kind every other key looks wrong.
            steps.sort_by_key(|step| step != "kind");
            let is_wrong =
                |step: &&String| read::<T>(alone(whole, &path, step)).is_err_and(|error| error.0 == message);
            let Some(step) = steps.iter().find(is_wrong) else { break };
            cause = part(value, step);
            path.push(step.clone());
        }
        Err(Self { value: cause.cloned(), path, message })
    }

    fn line(&self, text: &str, table: &DeTable<'_>) -> String {
        let (mut here, mut start) = (&DeValue::Table(table.clone()), None);
        for step in &self.path {
            let inner = match here {
                DeValue::Table(table) => {
                    table.get_key_value(step.as_str()).map(|(key, v)| (key.span().start, v))
                }
                DeValue::Array(list) => {
                    step.parse().ok().and_then(|i: usize| list.get(i)).map(|v| (v.span().start, v))
                }
                _ => None,
            };
            let Some((at, value)) = inner else { break };
            (here, start) = (value.get_ref(), Some(at));
        }
        start.map_or_else(String::new, |at| format!("line {}: ", text[..at].matches('\n').count() + 1))
    }

    /// Returns the error message with a suggestion, and the path of the key if no override names it.
    fn explained(&self, with_path: bool, elsewhere: fn(&str) -> Vec<String>) -> String {
        let name = json::quoted(&self.message).next().unwrap_or_default();
        if self.message.starts_with("unknown field") {
            return self.unknown_key(name, elsewhere);
        }
        let place = self.path.iter().fold(String::new(), |place, step| match step.parse::<usize>() {
            Ok(index) => format!("{place}[{index}]"),
            Err(_) if place.is_empty() => shortened(step, SHOWN),
            Err(_) => format!("{place}.{}", shortened(step, SHOWN)),
        });
        let place = if with_path && !place.is_empty() { format!("{place}: ") } else { String::new() };
        if self.message.starts_with("missing field") {
            return format!("{place}the key `{name}` is missing and has no default");
        }
        let serde = ["invalid ", "unknown variant", "expected "];
        if self.message.contains(", found ") || !serde.iter().any(|start| self.message.starts_with(start)) {
            return format!("{place}{}", self.message);
        }
        let value = self.value.as_ref().map(|value| match value {
            Value::String(text) => shortened(&format!("{text:?}"), SHOWN),
            Value::Array(list) => format!("a list of {}", list.len()),
            Value::Table(_) => "a table".to_owned(),
            number => number.to_string(),
        });
        let misfit = Misfit::of(String::new(), value, &self.message);
        let end =
            if self.message.starts_with("unknown variant") { nearest(&self.message) } else { String::new() };
        // TOML's numbers have a sign.
        let reason = misfit.reason.replace("an object", "a table").replace("2^64 - 1", "2^63 - 1");
        format!("{place}{reason}{end}")
    }

    fn unknown_key(&self, unknown: &str, elsewhere: fn(&str) -> Vec<String>) -> String {
        if unknown.ends_with("_penalty") {
            return format!(
                "unknown key `{unknown}`: a sampler with a penalty is not the policy that is trained, so its ratios are wrong; use algorithm.overlong or a grader against repetitions"
            );
        }
        let table = self.path[..self.path.len().saturating_sub(1)].join(".");
        let kinds = kinds_with(&table, unknown);
        if !kinds.is_empty() {
            let kinds = kinds.join("\" or \"");
            return format!(
                "unknown key `{unknown}` for this {table}; it belongs to {table}.kind = \"{kinds}\""
            );
        }
        if ["output_dir", "default_local_dir"].contains(&unknown) {
            return format!(
                "unknown key `{unknown}`: the run's folder is an argument of the command, not a key"
            );
        }
        let known: Vec<&str> = json::quoted(&self.message).skip(1).collect();
        let mut suggested: Vec<String> = match closest(unknown, known.iter().copied()) {
            Some(key) => vec![key.to_owned()],
            None => elsewhere(unknown),
        };
        // A table of another trainer, such as `actor_rollout_ref.rollout.n`.
        let (mut unknown, mut inner) = (unknown.to_owned(), self.value.as_ref().and_then(Value::as_table));
        while let Some((name, value)) =
            inner.filter(|_| suggested.is_empty()).and_then(|table| table.iter().next())
        {
            unknown = format!("{unknown}.{name}");
            inner = value.as_table();
            suggested = if inner.is_none() { elsewhere(name) } else { Vec::new() };
        }
        let unknown = shortened(&unknown, SHOWN);
        if suggested.is_empty() {
            format!("unknown key `{unknown}`; expected one of {}", known.join(", "))
        } else {
            format!("unknown key `{unknown}`; did you mean `{}`?", suggested.join("` or `"))
        }
    }
}

/// Reads a value, or returns serde's message and the path of the error. All types are read through this one
/// deserializer, which keeps the program small.
fn read<T: DeserializeOwned>(value: Value) -> Result<T, (String, Track)> {
    let mut track = Track::new();
    T::deserialize(Objects(serde_path_to_error::Deserializer::new(value, &mut track)))
        .map_err(|error| (error.message().trim_end().to_owned(), track))
}

/// Returns whether the path ends with the unknown key that serde's message names.
fn names_key(path: &[String], message: &str) -> bool {
    message.starts_with("unknown field") && path.last().map(String::as_str) == json::quoted(message).next()
}

/// Returns the value at the path.
fn inside<'a>(whole: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(whole, |value, step| match value {
        Value::Array(list) => list.get_mut(step.parse::<usize>().ok()?),
        other => other.get_mut(step),
    })
}

/// Removes the value at the path, and returns whether there was one.
fn remove(whole: &mut Value, path: &[String]) -> bool {
    let Some((last, outer)) = path.split_last() else { return false };
    inside(whole, outer).and_then(|value| value.as_table_mut()?.remove(last)).is_some()
}

/// Returns a copy of the value in which the table or list at `path` has only the item `step`, and the table's kind.
fn alone(whole: &Value, path: &[String], step: &str) -> Value {
    let mut only = whole.clone();
    match inside(&mut only, path) {
        Some(Value::Table(table)) => table.retain(|key, _| key == step || key == "kind"),
        Some(Value::Array(list)) => {
            *list = step.parse().into_iter().map(|i: usize| list[i].clone()).collect()
        }
        _ => {}
    }
    only
}

/// Returns the kinds of a table that have this key.
fn kinds_with(table: &str, key: &str) -> Vec<String> {
    let schema = Config::schema();
    let table = if table.starts_with("task.parts.") { "task" } else { table };
    let tables = table.split('.').fold(vec![&schema], |tables, step| {
        tables.iter().flat_map(|table| forms(&schema, &table["properties"][step])).collect()
    });
    let having = tables.into_iter().filter(|table| !table["properties"][key].is_null());
    having.flat_map(kinds).map(str::to_owned).collect()
}

/// Returns the known name that was probably meant by an unknown one.
fn closest<'a>(unknown: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known.filter(|name| may_be_misspelt(name, unknown)).min_by_key(|name| damerau_levenshtein(name, unknown))
}

/// Says that a name is none of the `known` ones, and which of these was probably meant.
pub fn unknown_name(name: &str, known: &[&str]) -> String {
    let meant = closest(name, known.iter().copied());
    let meant = meant.map_or_else(String::new, |meant| format!("; did you mean {meant}?"));
    format!("expected one of {}, found {name}{meant}", known.join(", "))
}

/// Suggests a known value for an unknown one, as the end of a message that lists the known values.
fn nearest(message: &str) -> String {
    let mut quoted = json::quoted(message);
    let best = quoted.next().and_then(|unknown| closest(unknown, quoted));
    best.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::parse;
    use fgrpo_core::advantage::Advantage;

    fn error(text: &str, set: &[&str]) -> String {
        format!("{:#}", parse(text, set).unwrap_err())
    }

    #[test]
    fn a_key_of_another_kind_leads_to_that_kind() {
        let text =
            "steps = 1\n[task]\nkind = \"maze\"\n[algorithm]\nfocal_gamma = 0.5\n[model]\npath = \"m\"\n";
        assert_eq!(
            error(text, &["algorithm.advantage.k=3"]),
            "algorithm.advantage.k=3: unknown key `k` for this algorithm.advantage; it belongs to algorithm.advantage.kind = \"pkpo\" or \"passk_training\" or \"bbg\""
        );
        let remedy = ["algorithm.advantage.kind=pkpo", "algorithm.advantage.k=3"];
        assert_eq!(parse(text, &remedy).unwrap().algorithm.advantage, Advantage::Pkpo { k: 3 });
        for (set, wanted) in [
            ("algorithm.loss.cap=3", "algorithm.loss.kind = \"cispo_cap\""),
            ("algorithm.shaping.beta=0.5", "algorithm.shaping.kind = \"unlikely\""),
            ("algorithm.correction.low=0.5", "algorithm.correction.kind = \"mask\""),
            ("task.vocab_size=400", "task.kind = \"arithmetic\""),
            ("task.data=x.jsonl", "task.kind = \"math\" or \""),
        ] {
            assert!(error(text, &[set]).contains(wanted), "{}", error(text, &[set]));
        }
        // These kinds have no keys of their own, as kinds of other tables.
        let set = ["algorithm.advantage=rloo", "algorithm.advantage.k=3"];
        assert!(error(text, &set).contains("algorithm.advantage.kind = \"pkpo\""), "{}", error(text, &set));
        let file = text.replace("[algorithm]", "[algorithm]\nloss = { kind = \"cispo\", dual_clip = 3 }");
        assert!(
            error(&file, &[]).starts_with("line 5: unknown key `dual_clip` for this algorithm.loss; it belongs to algorithm.loss.kind = \"grpo\" or \"dapo\""),
            "{}",
            error(&file, &[])
        );
    }

    #[test]
    fn other_trainers_names_lead_to_keys_of_the_page() {
        let page = include_str!("../../../../docs/configuration.md");
        for (theirs, ours) in elsewhere() {
            assert!(page.contains(&format!("| `{ours}` |")), "{ours}");
            assert!(!suggestions(theirs).is_empty(), "{theirs}");
        }
        assert_eq!(suggestions("--lr"), ["update.lr", "sft.lr"]);
        assert_eq!(suggestions("num-generations"), ["rollout.group_size"]);
        assert_eq!(suggestions("loss_type"), ["algorithm.aggregation", "algorithm.loss"]);
        assert_eq!(suggestions("focal_gama"), ["algorithm.focal_gamma"]);
        assert_eq!(suggestions("mask_truncated_completions"), ["algorithm.truncated"]);
        assert!(suggestions("colour").is_empty());
    }

    #[test]
    fn an_unknown_key_is_named_with_its_own_line_and_the_nearest_key() {
        let text = "steps = 1\n\n[task]\nkind = \"maze\"\n[algorithm]\n# focal_gama is no key\nfocal_gama = 0.5\n[model]\npath = \"m\"\n";
        let of_verl =
            "steps = 1\n[task]\nkind = \"maze\"\n[model]\npath = \"m\"\n[actor_rollout_ref.rollout]\nn = 4\n";
        assert!(
            error(of_verl, &[]).contains("`actor_rollout_ref.rollout.n`; did you mean `rollout.group_size`?")
        );
        let of_trl = "steps = 1\noutput_dir = \"x\"\n[task]\nkind = \"maze\"\n[model]\npath = \"m\"\n";
        assert!(error(of_trl, &[]).contains("`output_dir`: the run's folder is an argument"));
        let several = "stepps = 1\n[task]\nkind = \"maze\"\nheldout = 3\n[model]\npath = \"m\"\n[rollout]\nnum_generations = 4\n";
        assert_eq!(
            error(several, &["learning_rate=1"]),
            "4 keys are unknown:\n  learning_rate=1: unknown key `learning_rate`; did you mean `update.lr`?\n  \
             line 8: unknown key `num_generations`; did you mean `rollout.group_size`?\n  \
             line 1: unknown key `stepps`; did you mean `steps`?\n  \
             line 4: unknown key `heldout`; did you mean `held_out`?"
        );
        let good = &text.replace("\nfocal_gama", "\nfocal_gamma");
        let with = |key: &str, more: &str| good.replace(key, &format!("{key}\n{more}"));
        let wanted = "line 7: unknown key `focal_gama`; did you mean `focal_gamma`?";
        for list in ["eval.k=4", "eval.k=[4]"] {
            assert_eq!(parse(good, &[list]).unwrap().eval.k, [4], "{list}");
        }
        for (text, set, wanted) in [
            (text, &[][..], wanted),
            (text, &["update.lr=1e-5"], wanted),
            (
                good,
                &["steps=2", "algorithm.focal_gama=1"],
                "algorithm.focal_gama=1: unknown key `focal_gama`; did you mean `focal_gamma`?",
            ),
            (good, &["lr=1"], "lr=1: unknown key `lr`; did you mean `update.lr` or `sft.lr`?"),
            (good, &["update.lr=fast"], "update.lr=fast: expected a number, found \"fast\""),
            (good, &["update=[1]"], "update=[1]: expected a table, found a list of 1"),
            (good, &["update.betas.0=0.5"], "set the whole list: update.betas=[...]"),
            (good, &["eval.k=[1]", "eval.k.0=2"], "eval.k.0=2: an item of a list has no key of its own"),
            (good, &["task.k.0=2"], "set the whole list: task.k=[...]"),
            (good, &["seed=18446744073709551615"], "from 0 to 2^63 - 1, found \"18446744073709551615\""),
            (good, &["eval.k=one"], "eval.k=one: expected a whole number"),
            (good, &["update.betas=0.5"], "update.betas=0.5: expected 2 numbers"),
            (good, &["rollout.repetition_penalty=1.1"], "not the policy that is trained"),
            (
                &good.replace("steps = 1", "steps = \"two\""),
                &["update.lr=1e-5"],
                "line 1: steps: expected a whole number from 0 to 2^63 - 1, found \"two\"",
            ),
            (
                &with("[algorithm]", "loss = { kind = \"dapo\", clip = \"x\" }"),
                &[],
                "algorithm.loss.clip: expected a list, found \"x\"",
            ),
            (&with("[algorithm]", "loss = \"dappo\""), &[], "did you mean `dapo`?"),
            // In a table that is read as a whole because it has a kind.
            (
                &with("kind = \"maze\"", "size = 9\nseed = nan"),
                &[],
                "line 6: task.seed: expected a whole number from 0 to 2^63 - 1, found nan",
            ),
            // A wrong kind is named before the keys beside it.
            (
                &good.replace("kind = \"maze\"", "kind = \"exact\"\ndata = \"x.jsonl\""),
                &[],
                "line 4: task.kind: expected one of",
            ),
            (
                &with("kind = \"maze\"", "heldout = 5"),
                &[],
                "line 5: unknown key `heldout`; did you mean `held_out`?",
            ),
        ] {
            assert!(error(text, set).contains(wanted), "{set:?}: {}", error(text, set));
        }
    }
}
