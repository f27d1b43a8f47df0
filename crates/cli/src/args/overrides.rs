//! Converts flags to overrides of configuration keys.

use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_train::config::{Override, TaskConfig};
use serde::Serialize;
use toml::Value;

/// Returns the override that sets `key` to a flag's value, or `None` if the flag isn't given.
pub(crate) fn given<T: Serialize>(flag: &str, key: &str, value: &Option<T>) -> Option<Override> {
    value.as_ref().map(|value| {
        let value = Value::try_from(value).expect("TOML can represent every flag's value");
        Override { source: flag.to_owned(), key: key.to_owned(), value }
    })
}

/// Tasks that have a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Has {
    /// Tasks with problems from files.
    Text,
    /// Tasks with problems of these kinds from files.
    Kinds(&'static [TaskKind]),
    /// Tasks that generate problems with text answers.
    Generated,
    /// The maze task.
    Maze,
}

/// Override of a task key by a flag. A flag whose key depends on the task has several overrides.
pub(crate) struct OfTask {
    /// The override, with a key without `task.`, or `None` if the flag isn't given.
    pub(crate) change: Option<Override>,
    pub(crate) has: Has,
}

impl OfTask {
    pub(crate) fn new<T: Serialize>(flag: &str, key: &str, value: &Option<T>, has: Has) -> Self {
        Self { change: given(flag, key, value), has }
    }
}

/// Location of a task's settings in a configuration: `[task]`, or one part of a mix.
pub(crate) struct Place {
    /// Prefix of the keys, such as `task.`.
    pub(crate) prefix: String,
    pub(crate) kind: Kind,
}

/// Kind of task, which decides the keys that it has.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text(TaskKind),
    Generated,
    Maze,
}

impl Place {
    /// Returns the location of a task's settings, or one location for each part of a mix.
    pub(crate) fn all(task: &TaskConfig) -> Vec<Self> {
        let kind = |task: &TaskConfig| match task {
            TaskConfig::Maze(_) => Kind::Maze,
            TaskConfig::Text(text) => Kind::Text(text.kind()),
            _ => Kind::Generated,
        };
        match task {
            TaskConfig::Mix(mix) => {
                let part = |(i, task)| Self { prefix: format!("task.parts.{i}."), kind: kind(task) };
                mix.parts.iter().map(|part| &part.task).enumerate().map(part).collect()
            }
            one => vec![Self { prefix: "task.".to_owned(), kind: kind(one) }],
        }
    }
}

impl Has {
    fn fits(self, kind: Kind) -> bool {
        match (self, kind) {
            (Self::Text, Kind::Text(_)) | (Self::Generated, Kind::Generated) | (Self::Maze, Kind::Maze) => {
                true
            }
            (Self::Kinds(kinds), Kind::Text(kind)) => kinds.contains(&kind),
            _ => false,
        }
    }
}

/// Returns the overrides that the flags make at `places`. Fails for a flag whose key exists neither there nor in a
/// task of the kinds `beside`, which are the tasks of other evaluations with the same flags.
pub(crate) fn of_task(
    flags: &[OfTask],
    places: &[Place],
    beside: &[TaskKind],
) -> anyhow::Result<Vec<Override>> {
    let fits = |flag: &OfTask| {
        let fits_beside = beside.iter().any(|&kind| flag.has.fits(Kind::Text(kind)));
        fits_beside || places.iter().any(|place| flag.has.fits(place.kind))
    };
    let mut all = Vec::new();
    for flag in flags {
        let Some(change) = &flag.change else { continue };
        let same = |other: &&OfTask| other.change.as_ref().is_some_and(|other| other.source == change.source);
        if !flags.iter().filter(same).any(fits) {
            let names =
                |kinds: &[TaskKind]| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ");
            let tasks = flags.iter().filter(same).map(|flag| match flag.has {
                Has::Text => "problems from files".to_owned(),
                Has::Generated => "generated problems".to_owned(),
                Has::Kinds(kinds) => names(kinds),
                Has::Maze => "mazes".to_owned(),
            });
            bad_input!(
                "{} has no effect here; it is for {}",
                change.source,
                tasks.collect::<Vec<_>>().join(" or ")
            );
        }
        let matching = places.iter().filter(|place| flag.has.fits(place.kind));
        all.extend(
            matching
                .map(|place| Override { key: format!("{}{}", place.prefix, change.key), ..change.clone() }),
        );
    }
    Ok(all)
}
