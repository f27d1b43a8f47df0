//! What to serve and how, and the server's folder: results depend on some of the settings, so the folder keeps them.

use anyhow::Context;
use fgrpo_eval::io::{files, json};
use fgrpo_nn::Device;
use fgrpo_train::config::ComputeConfig;
use fgrpo_train::run::fingerprint::of_checkpoint;
use serde_json::{Map, Value};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the file with the settings that results depend on.
const SETTINGS: &str = "serve.json";

/// What to serve, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base model: a checkpoint folder or a GGUF file.
    pub model: PathBuf,
    /// The name under which clients know it.
    pub name: String,
    /// Where clients find its tokenizer: a hub name or a folder.
    pub tokenizer: String,
    /// The path and the name of a second model, which is only sampled and scored: a teacher.
    pub teacher: Option<(PathBuf, String)>,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The server's folder.
    pub out: PathBuf,
    /// Whether the folder is that of a server that is to be continued.
    pub resume: bool,
    /// A file with the key that clients must show. Without one a key is made in the folder.
    pub key_file: Option<PathBuf>,
    /// Whether all weights are trained, instead of LoRA's factors.
    pub full: bool,
    /// Seed of requests without one.
    pub seed: u64,
    /// Whether each request is sampled by itself, so that its log-probabilities don't depend, by rounding, on what is sampled with it.
    pub repeatable: bool,
    /// Where to compute.
    pub device: Device,
    /// The device by its name and how it computes, which a continued server must have too.
    pub compute: (String, ComputeConfig),
    /// Maximum size of a request's body in bytes.
    pub most_body: usize,
    /// Maximum number of requests that wait for the engine.
    pub most_waiting: usize,
    /// Amount of work after which a model's state is written, so that a restart repeats less.
    pub save_every: Duration,
}

/// Why a server can't start with its settings.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder belongs to an earlier server, which isn't to be resumed.
    #[error("{} holds a server already", .0.display())]
    Exists(PathBuf),
    /// The folder of a server to be resumed holds nothing of a server.
    #[error("{} holds no server: it has no {}", .0.display(), SETTINGS)]
    Missing(PathBuf),
    /// The folder of a new server holds a file.
    #[error("{} holds {}; a new server needs a new or empty folder", .0.display(), .1.display())]
    Stray(PathBuf, PathBuf),
    /// The server of the file had another value of a setting.
    #[error("{}: {}; a server continues only with the settings that it was started with", .0.display(), .1)]
    Changed(PathBuf, String),
    /// The address can't be used.
    #[error("the server can't listen on {0}: {1}")]
    Address(SocketAddr, std::io::Error),
    /// The key's file has no key, for this reason.
    #[error("{}: {}", .0.display(), .1)]
    Key(PathBuf, String),
}

impl Settings {
    /// Makes or opens the server's folder and locks it.
    /// Fails on a folder that is in use, exists without `resume`, or was made with other settings.
    pub(crate) fn prepare(&self) -> anyhow::Result<File> {
        let out = &self.out;
        let path = out.join(SETTINGS);
        match (path.exists(), self.resume) {
            (true, false) => return Err(StartError::Exists(out.clone()).into()),
            (false, true) => return Err(StartError::Missing(out.clone()).into()),
            _ => {}
        }
        // A model that can't be read leaves no folder.
        let own = self.fingerprint()?;
        std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
        let lock = files::lock(out)?;
        files::clear_partial(out);
        if self.resume {
            check_settings(&path, &own)?;
        } else {
            if let Some(file) = files::stray_file(out)? {
                return Err(StartError::Stray(out.clone(), file).into());
            }
            files::write_whole(&path, &serde_json::to_vec_pretty(&own)?)?;
        }
        Ok(lock)
    }

    /// The base model's folder, as adapters name it.
    pub(crate) fn base(&self) -> String {
        let model = std::path::absolute(&self.model).unwrap_or_else(|_| self.model.clone());
        model.to_string_lossy().into_owned()
    }

    /// The settings that results depend on. A server continues only with the same ones.
    fn fingerprint(&self) -> anyhow::Result<Map<String, Value>> {
        let (device, compute) = &self.compute;
        let all = serde_json::json!({
            "model": self.base(),
            "files": of_checkpoint(&self.model)?,
            "name": self.name,
            "teacher": match &self.teacher {
                Some((folder, name)) => serde_json::json!([name, of_checkpoint(folder)?]),
                None => Value::Null,
            },
            "full": self.full,
            "seed": self.seed,
            "repeatable": self.repeatable,
            "device": device,
            "threads": compute.threads(),
            "products": compute.products.to_string(),
            "precision": compute.precision.to_string(),
            "moments": compute.moments.to_string(),
            "exact": compute.exact,
        });
        let Value::Object(all) = all else { unreachable!("an object") };
        Ok(all)
    }
}

/// Checks that a folder's settings are `own`.
fn check_settings(path: &Path, own: &Map<String, Value>) -> anyhow::Result<()> {
    let found: Map<String, Value> = json::read(path)?;
    for (name, wanted) in own {
        let found = found.get(name).unwrap_or(&Value::Null);
        if found != wanted {
            let change = format!("expected {name} {wanted}, found {found}");
            return Err(StartError::Changed(path.to_owned(), change).into());
        }
    }
    Ok(())
}
