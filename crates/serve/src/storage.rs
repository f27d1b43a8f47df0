//! Stores weights on disk: the states from which a restart continues, and weights that clients save.
//!
//! ```text
//! DIR/models/MODEL/state-NNNNNNNN      state before operation N: weights, optimizer
//! DIR/models/MODEL/versions/N          weights after N changes, for sampling
//! DIR/models/MODEL/weights/NAME        a checkpoint of a client, with optimizer
//! DIR/models/MODEL/sampler_weights/NAME
//! ```
//!
//! With LoRA, a folder contains an `adapter` in PEFT's layout. Otherwise, it is a Hugging Face checkpoint. A folder is
//! either complete or absent.

use anyhow::Context;
use fgrpo_eval::io::files::{self, Existing, publish, remove_folder, sync_folder, write_whole};
use fgrpo_eval::io::json;
use fgrpo_nn::Engine;
use fgrpo_train::language::Language;
use fgrpo_train::run::checkpoint::{OPTIMIZER, read_optimizer, reload_policy, write_optimizer, write_policy};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const STATE: &str = "state.json";
const ABOUT: &str = "about.json";
const SCHEME: &str = "tinker://";
/// Maximum number of stored versions of a model, from which clients can sample.
const VERSIONS: usize = 16;
/// Maximum number of stored states of a model.
const STATES: usize = 2;

/// Contents of `state.json` in a weights folder: the model's progress, and the request that wrote the folder.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    /// `seq_id` of the model's next operation.
    pub(crate) next: u64,
    /// Number of changes of the model so far.
    pub(crate) version: u64,
    /// Number of optimizer updates so far.
    pub(crate) optimizer_step: u64,
    /// Sequence number of the request that wrote the folder.
    pub(crate) request: u64,
}

/// Description of weights that a client saved, for listings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    /// Time of saving, in seconds since 1970.
    pub(crate) saved: u64,
    /// Time of expiry in seconds since 1970, or `None` if the weights don't expire.
    pub(crate) expires: Option<u64>,
    /// Metadata from the client.
    pub(crate) user_metadata: Option<Value>,
}

/// Returns the time since 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the current time in seconds since 1970.
pub(crate) fn now() -> u64 {
    since_1970().as_secs()
}

/// Kind of saved weights. The API's paths contain its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Weights with the optimizer's state.
    Checkpoint,
    /// Weights for sampling.
    Sampler,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Checkpoint, Self::Sampler];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Checkpoint => "weights",
            Self::Sampler => "sampler_weights",
        }
    }
}

fn model_folder(root: &Path, model: &str) -> PathBuf {
    root.join("models").join(model.replace(':', "-"))
}

/// Returns the path of saved weights in the API.
pub(crate) fn path_of(model: &str, kind: Kind, name: &str) -> String {
    format!("{SCHEME}{model}/{}/{name}", kind.name())
}

/// Returns the folder and kind of the weights with this path of the API, or `None` if they don't exist or have expired.
pub(crate) fn saved(root: &Path, path: &str) -> Option<(PathBuf, Kind)> {
    let parts: Vec<&str> = path.strip_prefix(SCHEME)?.split('/').collect();
    let &[model, kind, name] = &parts[..] else { return None };
    let kind = Kind::ALL.into_iter().find(|other| other.name() == kind)?;
    let fine = |text: &str| {
        !text.is_empty()
            && !text.starts_with('.')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c))
    };
    let folder = model_folder(root, model).join(kind.name()).join(name);
    (fine(model) && fine(name) && folder.is_dir() && about(&folder).is_none_or(|about| !about.expired()))
        .then_some((folder, kind))
}

impl About {
    fn expired(&self) -> bool {
        self.expires.is_some_and(|at| at <= now())
    }
}

/// Reads the description of saved weights. Returns `None` if it can't be read.
pub(crate) fn about(folder: &Path) -> Option<About> {
    json::read(&folder.join(ABOUT)).ok()
}

/// Changes the expiry of saved weights.
pub(crate) fn set_expiry(folder: &Path, expires: Option<u64>) -> anyhow::Result<()> {
    let path = folder.join(ABOUT);
    let about = About { expires, ..json::read(&path)? };
    write_whole(&path, &serde_json::to_vec_pretty(&about)?)
}

/// Removes expired weights. Must be called on the engine's thread, which reads them.
pub(crate) fn sweep(root: &Path) -> anyhow::Result<()> {
    for (model, kind, name) in all_names(root) {
        let folder = model_folder(root, &model).join(kind.name()).join(name);
        if about(&folder).is_some_and(|about| about.expired()) {
            remove_folder(&folder)?;
        }
    }
    Ok(())
}

/// Lists the model, kind and name of all weights that clients have saved, sorted by name.
fn all_names(root: &Path) -> Vec<(String, Kind, String)> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    let mut all = Vec::new();
    for model in names(&root.join("models")) {
        for kind in Kind::ALL {
            // The folder's name is the model's id with dashes in place of colons.
            let id = model.replace("-train-", ":train:");
            let saved = names(&root.join("models").join(&model).join(kind.name()));
            all.extend(saved.into_iter().map(|name| (id.clone(), kind, name)));
        }
    }
    all
}

/// Lists the path, kind and folder of all weights that clients have saved and that haven't expired, sorted by name.
pub(crate) fn all_saved(root: &Path) -> Vec<(String, Kind, PathBuf)> {
    let place = |(model, kind, name): (String, Kind, String)| {
        let path = path_of(&model, kind, &name);
        saved(root, &path).map(|(folder, kind)| (path, kind, folder))
    };
    all_names(root).into_iter().filter_map(place).collect()
}

/// Writes folders of weights.
pub(crate) struct Contents<'a> {
    pub(crate) root: &'a Path,
    /// Folder of the base model, for an adapter's settings.
    pub(crate) base: String,
    pub(crate) language: &'a Language,
}

impl Contents<'_> {
    fn write(
        &self,
        parent: &Path,
        name: &str,
        engine: &Engine,
        state: State,
        optimizer: bool,
        about: Option<&About>,
    ) -> anyhow::Result<PathBuf> {
        std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        let updates = engine.optimizer_state();
        let state = State { optimizer_step: updates.step, ..state };
        let folder = publish(parent, name, Existing::Replace, |dir| {
            write_policy(dir, engine, &self.base, false)?;
            if engine.lora().is_none() {
                self.language.write(dir)?;
            }
            if optimizer {
                write_optimizer(&dir.join(OPTIMIZER), &updates)?;
            }
            if let Some(about) = about {
                write_whole(&dir.join(ABOUT), &serde_json::to_vec_pretty(about)?)?;
            }
            write_whole(&dir.join(STATE), &serde_json::to_vec_pretty(&state)?)
        })?;
        // The parent folders may be new, so they are synced too.
        for above in parent.ancestors().take_while(|above| above.starts_with(self.root)) {
            sync_folder(above)?;
        }
        Ok(folder)
    }

    /// Writes the state from which a restart continues, and removes old states.
    pub(crate) fn state(&self, model: &str, engine: &Engine, state: State) -> anyhow::Result<()> {
        let folder = model_folder(self.root, model);
        self.write(&folder, &format!("{PREFIX}{:08}", state.next), engine, state, true, None)?;
        for (_, old) in numbered(&folder, PREFIX)?.iter().rev().skip(STATES) {
            remove_folder(old)?;
        }
        Ok(())
    }

    /// Writes a version for sampling unless it exists, and removes old versions.
    pub(crate) fn version(&self, model: &str, engine: &Engine, state: State) -> anyhow::Result<()> {
        let folder = model_folder(self.root, model).join("versions");
        let name = state.version.to_string();
        if !folder.join(&name).is_dir() {
            self.write(&folder, &name, engine, state, false, None)?;
        }
        for (_, old) in numbered(&folder, "")?.iter().rev().skip(VERSIONS) {
            remove_folder(old)?;
        }
        Ok(())
    }

    /// Saves weights under a client's name. Returns their path in the API, or `None` if the name is taken.
    pub(crate) fn save(
        &self,
        (model, kind, name): (&str, Kind, &str),
        engine: &Engine,
        state: State,
        overwrite: bool,
        about: &About,
    ) -> anyhow::Result<Option<String>> {
        let folder = model_folder(self.root, model).join(kind.name());
        let target = folder.join(name);
        // After a kill, a repeated request may find the folder that it wrote itself.
        if saved(self.root, &path_of(model, kind, name)).is_some()
            && !overwrite
            && read_state(&target)?.request != state.request
        {
            return Ok(None);
        }
        self.write(&folder, name, engine, state, kind == Kind::Checkpoint, Some(about))?;
        Ok(Some(path_of(model, kind, name)))
    }
}

const PREFIX: &str = "state-";

fn numbered(folder: &Path, prefix: &str) -> anyhow::Result<Vec<(u64, PathBuf)>> {
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        if let Some(number) =
            entry.file_name().to_str().and_then(|name| name.strip_prefix(prefix)?.parse().ok())
        {
            folders.push((number, entry.path()));
        }
    }
    folders.sort();
    Ok(folders)
}

/// Reads the [`State`] in a folder of weights.
pub(crate) fn read_state(folder: &Path) -> anyhow::Result<State> {
    let path = folder.join(STATE);
    let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    json::parse(&bytes).with_context(|| path.display().to_string())
}

/// Finds the folder and description of a model's newest state, if there is one.
pub(crate) fn newest_state(root: &Path, model: &str) -> anyhow::Result<Option<(PathBuf, State)>> {
    let folder = model_folder(root, model);
    if !folder.is_dir() {
        return Ok(None);
    }
    files::clear_partial(&folder);
    match numbered(&folder, PREFIX)?.pop() {
        None => Ok(None),
        Some((_, newest)) => Ok(Some((newest.clone(), read_state(&newest)?))),
    }
}

/// Returns the folder of a version of a model.
pub(crate) fn version_folder(root: &Path, model: &str, version: u64) -> PathBuf {
    model_folder(root, model).join("versions").join(version.to_string())
}

/// Reads a folder's weights into the engine, with the optimizer's state if `optimizer`. The gradient is reset to 0.
///
/// Returns an error if the folder is damaged or belongs to another model. The engine's weights are then undefined.
pub(crate) fn read(folder: &Path, engine: &mut Engine, optimizer: bool) -> anyhow::Result<()> {
    reload_policy(folder, engine)?;
    if optimizer {
        read_optimizer(&folder.join(OPTIMIZER), engine, read_state(folder)?.optimizer_step)?;
    }
    Ok(())
}
