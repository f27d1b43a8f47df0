//! Where models and data come from: what the user wrote, turned into a local path. Every `--model` and `--data`, and the
//! paths of every training configuration, go through here before a command works with them.

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

/// The split of data where the user names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// `train`.
    Training,
    /// `test`, or the only split.
    Evaluation,
}

/// What may be loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loading {
    /// Models and data.
    All,
    /// Data; a model only if the cache has it.
    Data,
    /// Nothing but what the cache has.
    Nothing,
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

/// The local path of what stands at `key`. `pinned` is the text of a run's configuration, whose commit is kept.
/// `None` for a hub name whose files aren't here and mustn't be loaded.
fn place(
    key: &str,
    written: &Path,
    (kind, usual): (Kind, Use),
    pinned: Option<&str>,
    load: bool,
) -> anyhow::Result<Option<PathBuf>> {
    let here = match kind {
        Kind::Model => written.exists(),
        Kind::Data => dataset::exists(written),
    };
    let text = written.to_str().filter(|_| !here);
    let name = text.map_or(Ok(None), |text| Name::read(text, kind));
    let mut name = match name {
        Ok(Some(name)) => name,
        Ok(None) => {
            if let Some(name) = text.filter(|_| kind == Kind::Data).and_then(Name::suggestion) {
                bad_input!(
                    "{key}: {}: no such file or folder; on the hub it would be {name}",
                    written.display()
                );
            }
            return Ok(Some(written.to_owned()));
        }
        Err(why) => bad_input!("{key}: {why}"),
    };
    let hub = Hub::from_environment();
    // A revision that the user names stands above the run's commit, unless it is what the run was started with.
    let kept = |commit: &String| {
        let known = || hub.as_ref().ok()?.commit_in_cache(&name);
        name.revision.is_none() || known().as_ref() == Some(commit)
    };
    let commit = pinned.and_then(|text| name.commit_in(text)).filter(kept);
    let cached = commit.is_some() || !load;
    if commit.is_some() {
        name.revision = commit;
    }
    let usual = match usual {
        Use::Training => ("train", false),
        Use::Evaluation => ("test", true),
    };
    let mut bar = Bar { console: Console::new(), file: String::new() };
    let taken = hub.and_then(|hub| {
        match hub.take(&name, usual, cached, &mut bar) {
            Err(Error::Refused(_)) if cached && load => {}
            other => return other,
        }
        hub.take(&name, usual, false, &mut bar)
    });
    let taken = match taken {
        Ok(taken) => taken,
        Err(Error::Refused(_)) if !load => return Ok(None),
        Err(Error::Refused(why)) => bad_input!("{key}: {why}"),
        Err(Error::Stopped(why)) => return Err(Stopped(why).into()),
        Err(Error::Failed(why)) => anyhow::bail!("{key}: {why}"),
    };
    let part =
        taken.part.map_or(String::new(), |(subset, split)| format!(", subset {subset}, split {split},"));
    // Where it lies, once: when it comes.
    let place = match bar.file.is_empty() {
        true => String::new(),
        false => format!(" ({})", taken.path.display()),
    };
    say!("{key}: {}{part} at {}{place}", name.repository, &taken.commit[..7]);
    Ok(Some(taken.path))
}

/// The local path of a model: of a run folder its newest checkpoint, of a hub name the folder in the cache.
pub fn model(key: &str, mut written: PathBuf) -> anyhow::Result<PathBuf> {
    in_place(key, &mut written, (Kind::Model, Use::Training), None, true)?;
    Ok(written)
}

/// [`model`] for a caller with signal handlers of its own, which a download then leaves as they are.
pub fn model_for_library(key: &str, mut written: PathBuf) -> anyhow::Result<PathBuf> {
    of_run(key, &mut written, ("a checkpoint", ""), &["checkpoints"])?;
    let found = place(key, &written, (Kind::Model, Use::Training), None, true)?;
    Ok(found.unwrap_or(written))
}

/// The samples at a path: of a run folder its newest evaluation, in full if it has such.
pub fn samples(mut path: PathBuf) -> anyhow::Result<PathBuf> {
    of_run("samples", &mut path, ("an evaluation", SCORED), &["full-evaluations", "evaluations"])?;
    if !path.exists() && path.extension().is_none() {
        let shown = path.display();
        bad_input!("{shown}: no such file or folder; `fgrpo eval` with --out {shown} makes an evaluation");
    }
    Ok(path)
}

/// The GGUF file of a folder that has one and no other model.
fn only_gguf(folder: &Path) -> Option<PathBuf> {
    let files = folder.read_dir().ok().filter(|_| !folder.join("config.json").exists())?;
    let mut files = files.filter_map(|entry| Some(entry.ok()?.path())).filter(|file| Gguf::is(file));
    files.next().filter(|_| files.next().is_none())
}

/// Turns a run folder into the newest step in the first of the folders that has one with this file: a run that was stopped
/// within an evaluation has one without. A step that is missing is answered with those that exist.
fn of_run(
    key: &str,
    path: &mut PathBuf,
    (wanted, file): (&str, &str),
    folders: &[&str],
) -> anyhow::Result<()> {
    if path.join(CONFIGURATION).is_file() && path.join("checkpoints").is_dir() {
        for folder in folders {
            let steps = checkpoint::list(&path.join(folder))?;
            if let Some((_, newest)) = steps.into_iter().rfind(|(_, step)| step.join(file).exists()) {
                say!("{key}: {} of the run {}", newest.display(), path.display());
                *path = newest;
                return Ok(());
            }
        }
        bad_input!("{key}: {}: found a run without {wanted} yet", path.display());
    }
    if !path.exists()
        && let (Some(folder), Some(name)) = (path.parent(), path.file_name())
        && name.to_string_lossy().starts_with("step-")
    {
        let steps = checkpoint::list(folder)?;
        let names: Vec<_> = steps.iter().filter_map(|(_, path)| path.file_name()?.to_str()).collect();
        if !names.is_empty() {
            bad_input!("{key}: {}: found no such step, there are {}", path.display(), names.join(", "));
        }
    }
    Ok(())
}

/// The local path of data to evaluate on.
pub fn data(key: &str, mut written: PathBuf) -> anyhow::Result<PathBuf> {
    in_place(key, &mut written, (Kind::Data, Use::Evaluation), None, true)?;
    Ok(written)
}

/// The checkpoint of the run folder `run` that the configuration `text` has at `key`: a run that is resumed keeps it.
fn checkpoint_in(text: &str, key: &str, run: &Path) -> Option<PathBuf> {
    let table = toml::Value::Table(text.parse().ok()?);
    let value = key.split('.').try_fold(&table, |value, part| value.get(part))?;
    Some(PathBuf::from(value.as_str()?)).filter(|path| path != run && path.starts_with(run))
}

/// A run folder's newest checkpoint, and [`place`], in its place; whether it is there.
fn in_place(
    key: &str,
    path: &mut PathBuf,
    kind: (Kind, Use),
    pinned: Option<&str>,
    load: bool,
) -> anyhow::Result<bool> {
    if matches!(kind.0, Kind::Model) {
        match pinned.and_then(|text| checkpoint_in(text, key, path)) {
            Some(kept) => *path = kept,
            None => {
                of_run(key, path, ("a checkpoint", ""), &["checkpoints"])?;
                if let Some(file) = only_gguf(path) {
                    say!("{key}: {}", file.display());
                    *path = file;
                }
            }
        }
    }
    // Ctrl-C ends a download in order.
    if load && !path.exists() {
        interrupt::listen();
    }
    let found = place(key, path, kind, pinned, load)?;
    let there = found.is_some();
    if let Some(found) = found {
        *path = found;
    }
    Ok(there)
}

/// Turns the names in a training configuration into local paths, which contain their commits. A run that is resumed,
/// in the folder `resumed`, keeps its commits. A model that isn't loaded gets its sizes from the table of usual models.
pub fn configuration(config: &mut Config, resumed: Option<&Path>, loading: Loading) -> anyhow::Result<()> {
    let pinned = resumed.and_then(|run| std::fs::read_to_string(run.join(CONFIGURATION)).ok());
    let pinned = pinned.as_deref();
    if let Some(path) = &mut config.model.path {
        let of_model = (Kind::Model, Use::Training);
        let there = in_place("model.path", path, of_model, pinned, loading == Loading::All)?;
        if !there && config.model.size.is_none() {
            let name = path.to_str().and_then(|text| Name::read(text, Kind::Model).ok()?);
            if let Some(size) = name.and_then(|name| fgrpo_hub::sizes(&name.repository)) {
                say!("{}: the sizes are those of the table of usual models", path.display());
                config.model.size = Some(serde_json::from_value::<SizeConfig>(size)?);
            }
        }
    }
    task(&mut config.task, pinned, loading)
}

fn task(task_: &mut TaskConfig, pinned: Option<&str>, loading: Loading) -> anyhow::Result<()> {
    let tokenizer = |path: &mut Option<PathBuf>| {
        path.iter_mut().try_for_each(|path| {
            let load = loading == Loading::All;
            in_place("task.tokenizer", path, (Kind::Model, Use::Training), pinned, load).map(drop)
        })
    };
    if let TaskConfig::Mix(mix) = task_ {
        tokenizer(&mut mix.tokenizer)?;
        return mix.parts.iter_mut().try_for_each(|part| task(&mut part.task, pinned, loading));
    }
    let TaskConfig::Text(text) = task_ else { return Ok(()) };
    let load = loading != Loading::Nothing;
    if !text.owns_data() {
        in_place("task.data", &mut text.data, (Kind::Data, Use::Training), pinned, load)?;
    }
    if let Some(path) = &mut text.held_out {
        in_place("task.held_out", path, (Kind::Data, Use::Evaluation), pinned, load)?;
    }
    tokenizer(&mut text.tokenizer)
}

/// The folder and the name of a model that is to be written, which must be new. `what` is what its name may be of.
pub(crate) fn new_place<'a>(out: &'a Path, what: &str) -> anyhow::Result<(&'a Path, &'a str)> {
    if out.exists() {
        bad_input!("--out: {} exists already, wanted a new {what}", out.display());
    }
    let Some(name) = out.file_name() else {
        bad_input!("--out: found {}, wanted the name of a {what}", out.display())
    };
    let Some(name) = name.to_str() else { bad_input!("--out: found {name:?}, wanted a name in UTF-8") };
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
