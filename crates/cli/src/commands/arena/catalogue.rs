//! The arena's methods: built-in ones, and the user's.

use super::task;
use anyhow::Context;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::files::write_whole;
use fgrpo_train::config::{Config, unknown_name};
use fgrpo_train::estimator::Estimator;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A method: changes to a task's configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Method {
    pub(super) name: String,
    pub(super) source: String,
    pub(super) set: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) own: Option<Own>,
}

/// A method-specific parameter, with the values that tuning tries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Own {
    pub(super) key: String,
    pub(super) values: [String; 3],
}

impl Method {
    /// Returns the configuration `task` with the changes in `set`, followed by this method's changes. Methods are changes of GRPO,
    /// so the task's focal weight doesn't count.
    pub(super) fn config(&self, task: &str, set: &[String], seed: u64) -> anyhow::Result<Config> {
        let mut all = vec!["algorithm.focal_gamma=0".to_owned()];
        all.extend(set.iter().cloned());
        all.extend(self.set.iter().cloned());
        all.push(format!("seed={seed}"));
        Config::parse(task, &all).map_err(|e| e.context(format!("method {}", self.name)))
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    method: Vec<Method>,
}

const BUILT_IN: &str = include_str!("methods.toml");

/// Returns the path of the user's methods file.
fn own_file() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    match folder {
        Some(folder) => Ok(folder.join("fgrpo/arena.toml")),
        None => bad_input!("neither XDG_CONFIG_HOME nor HOME is set, so there is no folder for your methods"),
    }
}

fn read(text: &str) -> anyhow::Result<Vec<Method>> {
    let file: File = toml::from_str(text)?;
    Ok(file.method)
}

fn own() -> anyhow::Result<Vec<Method>> {
    let Ok(path) = own_file() else { return Ok(Vec::new()) };
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fgrpo_files::read_to_string(&path, fgrpo_files::SETTINGS)?;
    read(&text).or_bad_input().with_context(|| path.display().to_string())
}

fn built_in() -> Vec<Method> {
    read(BUILT_IN).expect("the built-in methods are a file of methods")
}

/// Returns all methods: first the built-in ones, then the user's.
pub(super) fn catalogue() -> anyhow::Result<Vec<Method>> {
    let mut all = built_in();
    all.extend(own()?);
    Ok(all)
}

/// Returns the methods with these names, in this order, preceded by the baseline if `names` lacks it. Without names,
/// returns all methods.
pub(super) fn chosen(names: &[String], baseline: &str) -> anyhow::Result<Vec<Method>> {
    let all = catalogue()?;
    let find = |flag: &str, name: &str| match all.iter().find(|m| m.name == name) {
        Some(method) => Ok(method.clone()),
        None => {
            let names: Vec<&str> = all.iter().map(|m| m.name.as_str()).collect();
            bad_input!("{flag}: {}", unknown_name(name, &names))
        }
    };
    let compared_with = find("--baseline", baseline)?;
    if names.is_empty() {
        return Ok(all);
    }
    let mut methods: Vec<Method> = Vec::new();
    for name in names {
        let method = find("--methods", name)?;
        if methods.contains(&method) {
            bad_input!("--methods: {name} is listed twice");
        }
        methods.push(method);
    }
    if !methods.contains(&compared_with) {
        say!("{baseline} is trained too, because the others are compared with it");
        methods.insert(0, compared_with);
    }
    Ok(methods)
}

/// Adds a method to the user's file and returns the file's path.
pub(super) fn add(method: Method, replace: bool) -> anyhow::Result<PathBuf> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-+.".contains(c);
    let name = &method.name;
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        bad_input!(
            "arena add: expected a name of lower-case letters, digits, -, + and . that begins with a letter, found {name:?}"
        );
    }
    if built_in().iter().any(|m| m.name == *name) {
        bad_input!("arena add: {name} is a built-in method; choose another name");
    }
    Estimator::of(&method.config(&task::text("maze")?, &[], 1)?)?;
    let path = own_file()?;
    let mut file = File { method: own()? };
    match file.method.iter_mut().find(|m| m.name == *name) {
        Some(_) if !replace => {
            bad_input!("arena add: {name} is already in {}; use another name, or --replace", path.display())
        }
        Some(existing) => *existing = method,
        None => file.method.push(method),
    }
    let folder = path.parent().expect("the file is in a folder");
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    write_whole(&path, toml::to_string(&file)?.as_bytes())?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_built_in_method_is_a_configuration_of_every_task_and_differs_from_the_others() {
        for task in ["maze", "arithmetic", "puzzles"] {
            let text = task::text(task).unwrap();
            let mut seen = HashSet::new();
            for method in built_in() {
                let config = method.config(&text, &[], 1).unwrap();
                assert!(seen.insert(config.to_toml()), "{} is another method's configuration", method.name);
                let Some(parameter) = &method.own else { continue };
                for value in &parameter.values {
                    let mut tuned = method.clone();
                    tuned.set.push(format!("{}={value}", parameter.key));
                    tuned.config(&text, &[], 1).unwrap_or_else(|e| panic!("{}, {value}: {e:#}", method.name));
                }
            }
        }
    }
}
