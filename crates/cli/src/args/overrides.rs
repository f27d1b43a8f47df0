//! From flags to values of configuration keys.

use fgrpo_eval::kind::TaskKind;
use fgrpo_eval::names::Named;
use fgrpo_train::config::{Override, TaskConfig};
use serde::Serialize;
use toml::Value;

/// The value that a flag sets at a key, or `None` if the flag isn't given.
pub(crate) fn given<T: Serialize>(flag: &str, key: &str, value: &Option<T>) -> Option<Override> {
    value.as_ref().map(|value| {
        let value = Value::try_from(value).expect("the value of a flag is a value of TOML");
        Override { source: flag.to_owned(), key: key.to_owned(), value }
    })
}

/// Tasks that have a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Has {
    /// Problems from files.
    Text,
    /// Problems from files, of these kinds.
    Kinds(&'static [TaskKind]),
    /// Generated problems whose answers are text.
    Generated,
    /// Mazes.
    Maze,
}

/// A flag that sets a key of `[task]`, or of some parts of a mix. A flag whose key depends on the task has several.
pub(crate) struct OfTask {
    /// The flag, and its key without `task.`.
    pub(crate) given: Option<Override>,
    pub(crate) has: Has,
}

impl OfTask {
    pub(crate) fn new<T: Serialize>(flag: &str, key: &str, value: &Option<T>, has: Has) -> Self {
        Self { given: given(flag, key, value), has }
    }
}

/// Where settings of a task stand: the prefix of their keys, and the task.
pub(crate) struct Place {
    pub(crate) prefix: String,
    pub(crate) kind: Kind,
}

/// A task, as far as it decides which keys there are.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Text(TaskKind),
    Generated,
    Maze,
}

impl Place {
    /// The places of a configuration.
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

/// The values that the flags set at some places.
/// Fails for a flag that sets none, neither here nor with the kinds `beside`, which the same flags are for.
pub(crate) fn of_task(
    flags: &[OfTask],
    places: &[Place],
    beside: &[TaskKind],
) -> anyhow::Result<Vec<Override>> {
    let fits = |flag: &OfTask| {
        let beside = beside.iter().any(|&kind| flag.has.fits(Kind::Text(kind)));
        beside || places.iter().any(|place| flag.has.fits(place.kind))
    };
    let mut all = Vec::new();
    for flag in flags {
        let Some(given) = &flag.given else { continue };
        let same = |other: &&OfTask| other.given.as_ref().is_some_and(|other| other.source == given.source);
        if !flags.iter().filter(same).any(fits) {
            let names =
                |kinds: &[TaskKind]| kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(" or ");
            let wanted = flags.iter().filter(same).map(|flag| match flag.has {
                Has::Text => "problems from files".to_owned(),
                Has::Generated => "generated problems".to_owned(),
                Has::Kinds(kinds) => names(kinds),
                Has::Maze => "mazes".to_owned(),
            });
            bad_input!(
                "{}: changes nothing here; it is for {}",
                given.source,
                wanted.collect::<Vec<_>>().join(" or ")
            );
        }
        let here = places.iter().filter(|place| flag.has.fits(place.kind));
        all.extend(
            here.map(|place| Override { key: format!("{}{}", place.prefix, given.key), ..given.clone() }),
        );
    }
    Ok(all)
}
