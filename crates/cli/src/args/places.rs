//! Converts what the user wrote for a model or data set (a path, a run folder or a hub name) to a local path. All commands
//! do this to `--model`, `--data` and the paths of a training configuration before they use them.

use crate::output::progress::Console;
use fgrpo_eval::dataset;
use fgrpo_eval::events::Events;
use fgrpo_eval::failure::Stopped;
use fgrpo_eval::io::{files, interrupt};
use fgrpo_eval::samples::SCORED;
use fgrpo_hub::{Error, Hub, Kind, Name, Watch};
use fgrpo_nn::weights::Gguf;
use fgrpo_train::config::{Config, SizeConfig, TaskConfig};
use fgrpo_train::run::checkpoint;
use fgrpo_train::run::folder::CONFIGURATION;
use std::path::{Path, PathBuf};

/// Default split of a data set, used if the user doesn't name one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Split `train`.
    Training,
    /// Split `test`, or the only split.
    Evaluation,
}

/// Files that may be downloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loading {
    /// Models and data.
    All,
    /// Data, and the tokenizer of the model, unless the task has a separate tokenizer.
    Tokenizer,
    /// Data. Models are used only if they are in the cache.
    Data,
    /// Nothing: only files in the cache are used.
    Nothing,
}

impl Loading {
    fn loads(self, kind: Kind) -> bool {
        match kind {
            Kind::Model => matches!(self, Self::All | Self::Tokenizer),
            Kind::Data => self != Self::Nothing,
        }
    }
}

struct Bar {
    console: Console,
    file: String,
}

impl Watch for Bar {
    fn say(&mut self, line: &str) {
        self.console.say(line);
    }

    fn begin(&mut self, file: &str, done: u64, length: u64) {
        file.clone_into(&mut self.file);
        self.console.begin("load", done, length);
    }

    fn progress(&mut self, done: u64) {
        self.console.progress(done, format!("bytes of {}", self.file));
    }

    fn end(&mut self) {
        self.console.end();
    }

    fn stop(&self) -> bool {
        interrupt::requested()
    }
}

/// Returns the local path of the model or data set `written`, which is the value of `key`. `pinned` is the configuration of a
/// resumed run, whose commits stay in use. Returns `None` for a hub name whose files aren't cached and mustn't be downloaded.
fn place(
    key: &str,
    written: &Path,
    kind: Kind,
    usual: Use,
    pinned: Option<&str>,
    loading: Loading,
) -> anyhow::Result<Option<PathBuf>> {
    let load = loading.loads(kind);
    let is_local = match kind {
        Kind::Model => written.exists(),
        Kind::Data => dataset::exists(written),
    };
    let text = written.to_str().filter(|_| !is_local);
    let name = text.map_or(Ok(None), |text| Name::read(text, kind));
    let mut name = match name {
        Ok(Some(name)) => name,
        Ok(None) => {
            if let Some(name) = text.filter(|_| kind == Kind::Data).and_then(Name::suggestion) {
                bad_input!(
                    "{key}: {}: no such file or folder; for the data set on the hub, write {name}",
                    written.display()
                );
            }
            return Ok(Some(written.to_owned()));
        }
        Err(why) => bad_input!("{key}: {why}"),
    };
    let tokenizer = kind == Kind::Model && loading == Loading::Tokenizer;
    let hub = Hub::from_environment().map(|hub| if tokenizer { hub.without_weights() } else { hub });
    let hint = if tokenizer {
        "; the tokenizer of this model is needed: download it on a machine with a network, or name a folder that has tokenizer.json and the chat template with --set task.tokenizer=DIR"
    } else {
        ""
    };
    // A revision that the user names has precedence over the run's commit, unless both are the same commit.
    let applies = |commit: &String| {
        let in_cache = || hub.as_ref().ok()?.commit_in_cache(&name);
        name.revision.is_none() || in_cache().as_ref() == Some(commit)
    };
    let commit = pinned.and_then(|text| name.commit_in(text)).filter(applies);
    let cached = commit.is_some() || !load;
    if commit.is_some() {
        name.revision = commit;
    }
    let usual = match usual {
        Use::Training => ("train", false),
        Use::Evaluation => ("test", true),
    };
    let mut bar = Bar { console: Console::new(), file: String::new() };
    let snapshot = hub.and_then(|hub| {
        match hub.take(&name, usual, cached, &mut bar) {
            Err(Error::Refused(_)) if cached && load => {}
            other => return other,
        }
        hub.take(&name, usual, false, &mut bar)
    });
    let snapshot = match snapshot {
        Ok(snapshot) => snapshot,
        Err(Error::Refused(_)) if !load => return Ok(None),
        Err(Error::Refused(why)) => bad_input!("{key}: {why}{hint}"),
        Err(Error::Stopped(why)) => return Err(Stopped(why).into()),
        Err(Error::Failed(why)) => anyhow::bail!("{key}: {why}{hint}"),
    };
    let part =
        snapshot.part.map_or(String::new(), |(subset, split)| format!(", subset {subset}, split {split},"));
    // The path is shown only after a download.
    let place = if bar.file.is_empty() { String::new() } else { format!(" ({})", snapshot.path.display()) };
    say!("{key}: {}{part} at {}{place}", name.repository, &snapshot.commit[..7]);
    Ok(Some(snapshot.path))
}

/// Returns the local path of a model: for a run folder, its newest checkpoint, and for a hub name, the cached folder.
pub fn model(key: &str, mut written: PathBuf) -> anyhow::Result<PathBuf> {
    make_local(key, &mut written, Kind::Model, Use::Training, None, Loading::All)?;
    Ok(written)
}

/// Like [`model`], but doesn't install signal handlers during a download.
pub fn model_for_library(key: &str, mut written: PathBuf) -> anyhow::Result<PathBuf> {
    of_run(key, &mut written, "a checkpoint", "", &["checkpoints"])?;
    Ok(place(key, &written, Kind::Model, Use::Training, None, Loading::All)?.unwrap_or(written))
}

/// Returns the path of samples. For a run folder, this is its newest full evaluation, or else its newest evaluation.
pub fn samples(mut path: PathBuf) -> anyhow::Result<PathBuf> {
    of_run("samples", &mut path, "an evaluation", SCORED, &["full-evaluations", "evaluations"])?;
    if !path.exists() && path.extension().is_none() {
        let place = path.display();
        bad_input!("{place}: no such file or folder; `fgrpo eval --out {place}` writes an evaluation there");
    }
    Ok(path)
}

/// Returns the GGUF file of a folder, if the folder has exactly one and no other model.
fn only_gguf(folder: &Path) -> Option<PathBuf> {
    let files = folder.read_dir().ok().filter(|_| !folder.join("config.json").exists())?;
    let mut files = files.filter_map(|entry| Some(entry.ok()?.path())).filter(|file| Gguf::is(file));
    files.next().filter(|_| files.next().is_none())
}

/// Replaces a run folder by its newest step that contains `file`, in the first of `folders` with such a step. (If a run was
/// stopped during an evaluation, that step's folder lacks the file.) For a missing step folder, the error lists the steps
/// that exist.
fn of_run(key: &str, path: &mut PathBuf, content: &str, file: &str, folders: &[&str]) -> anyhow::Result<()> {
    if path.join(CONFIGURATION).is_file() && path.join("checkpoints").is_dir() {
        for folder in folders {
            let steps = checkpoint::list(&path.join(folder))?;
            if let Some((_, newest)) = steps.into_iter().rfind(|(_, step)| step.join(file).exists()) {
                say!("{key}: {} of the run {}", newest.display(), path.display());
                *path = newest;
                return Ok(());
            }
        }
        bad_input!("{key}: the run {} doesn't have {content} yet", path.display());
    }
    if !path.exists()
        && let (Some(folder), Some(name)) = (path.parent(), path.file_name())
        && name.to_string_lossy().starts_with("step-")
    {
        let steps = checkpoint::list(folder)?;
        let names: Vec<_> = steps.iter().filter_map(|(_, path)| path.file_name()?.to_str()).collect();
        if !names.is_empty() {
            bad_input!("{key}: {}: no such step; existing steps: {}", path.display(), names.join(", "));
        }
    }
    Ok(())
}

/// Returns the local path of data to evaluate on.
pub fn data(key: &str, mut written: PathBuf) -> anyhow::Result<PathBuf> {
    make_local(key, &mut written, Kind::Data, Use::Evaluation, None, Loading::All)?;
    Ok(written)
}

/// Returns the value of `key` in the configuration `text` if it is a checkpoint inside the run folder `run`. A resumed run
/// continues to use this checkpoint.
fn checkpoint_in(text: &str, key: &str, run: &Path) -> Option<PathBuf> {
    let table = toml::Value::Table(text.parse().ok()?);
    let value = key.split('.').try_fold(&table, |value, part| value.get(part))?;
    Some(PathBuf::from(value.as_str()?)).filter(|path| path != run && path.starts_with(run))
}

/// Replaces `path` by a local path, as [`of_run`] and [`place`] describe. Returns whether its files exist locally.
fn make_local(
    key: &str,
    path: &mut PathBuf,
    kind: Kind,
    usual: Use,
    pinned: Option<&str>,
    loading: Loading,
) -> anyhow::Result<bool> {
    if matches!(kind, Kind::Model) {
        match pinned.and_then(|text| checkpoint_in(text, key, path)) {
            Some(checkpoint) => *path = checkpoint,
            None => {
                of_run(key, path, "a checkpoint", "", &["checkpoints"])?;
                if let Some(file) = only_gguf(path) {
                    say!("{key}: {}", file.display());
                    *path = file;
                }
            }
        }
    }
    // Ctrl-C ends a download cleanly.
    if loading.loads(kind) && !path.exists() {
        interrupt::listen();
    }
    let Some(local) = place(key, path, kind, usual, pinned, loading)? else { return Ok(false) };
    *path = local;
    Ok(true)
}

/// Replaces the hub names in a training configuration by local paths, which contain the commits. If `resumed` is the folder of
/// an earlier run, that run's commits stay in use. The sizes of a model that isn't downloaded come from a table of common
/// models.
pub fn configuration(config: &mut Config, resumed: Option<&Path>, loading: Loading) -> anyhow::Result<()> {
    let pinned = resumed.and_then(|run| std::fs::read_to_string(run.join(CONFIGURATION)).ok());
    let pinned = pinned.as_deref();
    let only_all = if loading == Loading::All { Loading::All } else { Loading::Nothing };
    let of_model = if config.task.tokenizer().is_some() { only_all } else { loading };
    if let Some(path) = &mut config.model.path {
        let is_local = make_local("model.path", path, Kind::Model, Use::Training, pinned, of_model)?;
        if !is_local && config.model.size.is_none() {
            let name = path.to_str().and_then(|text| Name::read(text, Kind::Model).ok()?);
            if let Some(size) = name.and_then(|name| fgrpo_hub::sizes(&name.repository)) {
                say!("{}: using the model's published sizes, because it isn't downloaded", path.display());
                config.model.size = Some(serde_json::from_value::<SizeConfig>(size)?);
            }
        }
    }
    if let Some(path) = config.teacher.as_mut().and_then(|teacher| teacher.path.as_mut()) {
        make_local("teacher.path", path, Kind::Model, Use::Training, pinned, only_all)?;
    }
    task(&mut config.task, pinned, loading)
}

fn task(task_: &mut TaskConfig, pinned: Option<&str>, loading: Loading) -> anyhow::Result<()> {
    let tokenizer = |path: &mut Option<PathBuf>| {
        path.iter_mut().try_for_each(|path| {
            make_local("task.tokenizer", path, Kind::Model, Use::Training, pinned, loading).map(drop)
        })
    };
    if let TaskConfig::Mix(mix) = task_ {
        tokenizer(&mut mix.tokenizer)?;
        return mix.parts.iter_mut().try_for_each(|part| task(&mut part.task, pinned, loading));
    }
    let TaskConfig::Text(text) = task_ else { return Ok(()) };
    if !text.owns_data() {
        make_local("task.data", &mut text.data, Kind::Data, Use::Training, pinned, loading)?;
    }
    if let Some(path) = &mut text.held_out {
        make_local("task.held_out", path, Kind::Data, Use::Evaluation, pinned, loading)?;
    }
    tokenizer(&mut text.tokenizer)
}

/// Splits the path of a model that is about to be written into folder and name. Fails if `out` exists. `what` ("folder" or
/// "folder or file") is for the message.
pub(crate) fn new_place<'a>(out: &'a Path, what: &str) -> anyhow::Result<(&'a Path, &'a str)> {
    if out.exists() {
        bad_input!("--out: {} exists already; choose another {what}", out.display());
    }
    let Some(name) = out.file_name() else {
        bad_input!("--out: expected the name of a {what}, found {}", out.display())
    };
    let Some(name) = name.to_str() else { bad_input!("--out: expected a name in UTF-8, found {name:?}") };
    Ok((files::parent(out), name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_of_usual_models_give_their_published_parameter_counts() {
        for (name, published) in [
            ("Qwen/Qwen2.5-0.5B", 494_032_768),
            ("Qwen/Qwen2.5-Math-1.5B", 1_543_714_304),
            ("Qwen/Qwen2.5-3B-Instruct", 3_085_938_688),
            ("Qwen/Qwen2.5-7B", 7_615_616_512),
            ("Qwen/Qwen3-0.6B", 596_049_920),
            ("Qwen/Qwen3-1.7B", 1_720_574_976),
            ("Qwen/Qwen3-4B-Base", 4_022_468_096),
            ("Qwen/Qwen3-8B", 8_190_735_360),
            ("Qwen/Qwen3.5-0.8B", 752_393_024),
            ("Qwen/Qwen3.5-2B-Base", 1_881_825_088),
            ("Qwen/Qwen3.5-4B", 4_205_751_296),
            ("meta-llama/Llama-3.2-1B", 1_235_814_400),
            ("meta-llama/Llama-3.2-3B-Instruct", 3_212_749_824),
            ("meta-llama/Llama-3.1-8B", 8_030_261_248),
        ] {
            let size: SizeConfig = serde_json::from_value(fgrpo_hub::sizes(name).unwrap()).unwrap();
            assert_eq!(size.config().parameters(), published, "{name}");
        }
    }
}
