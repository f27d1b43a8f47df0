//! Settings of a server, and the server's folder, which stores the settings that results depend on.

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

/// Settings of a server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base model: a checkpoint folder or a GGUF file.
    pub model: PathBuf,
    /// Name of the base model for clients.
    pub name: String,
    /// Hub name or folder of the tokenizer for clients.
    pub tokenizer: String,
    /// The path and the name of a second model, which is only sampled and scored: a teacher.
    pub teacher: Option<(PathBuf, String)>,
    /// Address to listen on. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// Folder of the server.
    pub out: PathBuf,
    /// Whether to continue the server of the folder.
    pub resume: bool,
    /// File with the key that clients must send. If `None`, a key is generated in the folder.
    pub key_file: Option<PathBuf>,
    /// Whether all weights are trained, instead of LoRA's factors.
    pub full: bool,
    /// Seed for requests without a seed.
    pub seed: u64,
    /// Whether each request is sampled alone, so that rounding in its log-probabilities doesn't depend on other
    /// requests.
    pub repeatable: bool,
    /// Device on which to compute.
    pub device: Device,
    /// Name of the device and compute settings, which must not change when a server is continued.
    pub compute: (String, ComputeConfig),
    /// Maximum size of a request body in bytes.
    pub most_body: usize,
    /// Maximum number of requests that wait for the engine.
    pub most_waiting: usize,
    /// Processing time after which a model's state is written, so that a restart repeats less.
    pub save_every: Duration,
}

/// Reason why a server can't start with its settings.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The folder belongs to an earlier server, and `resume` isn't set.
    #[error("{} already contains a server", .0.display())]
    Exists(PathBuf),
    /// `resume` is set, but the folder doesn't contain a server.
    #[error("{} contains no server: there is no {}", .0.display(), SETTINGS)]
    Missing(PathBuf),
    /// The folder of a new server contains a file.
    #[error("{} contains {}; a new server needs a new or empty folder", .0.display(), .1.display())]
    Stray(PathBuf, PathBuf),
    /// A setting differs from the one in the folder's file.
    #[error("{}: {}; a server continues only with the settings that it was started with", .0.display(), .1)]
    Changed(PathBuf, String),
    /// The address can't be used.
    #[error("the server can't listen on {0}: {1}")]
    Address(SocketAddr, std::io::Error),
    /// The key's file doesn't contain a valid key, for the given reason.
    #[error("{}: {}", .0.display(), .1)]
    Key(PathBuf, String),
}

impl Settings {
    /// Creates or opens the server's folder and locks it.
    ///
    /// Returns an error if the folder is in use, contains a server although `resume` isn't set, lacks one although it
    /// is set, contains other files, or was created with other settings.
    pub(crate) fn prepare(&self) -> anyhow::Result<File> {
        let out = &self.out;
        let path = out.join(SETTINGS);
        match (path.exists(), self.resume) {
            (true, false) => return Err(StartError::Exists(out.clone()).into()),
            (false, true) => return Err(StartError::Missing(out.clone()).into()),
            _ => {}
        }
        // Reads the model first, so that an unreadable model doesn't leave a folder.
        let settings = self.fingerprint()?;
        std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
        let lock = files::lock(out)?;
        files::clear_partial(out);
        if self.resume {
            check_settings(&path, &settings)?;
        } else {
            if let Some(file) = files::stray_file(out)? {
                return Err(StartError::Stray(out.clone(), file).into());
            }
            files::write_whole(&path, &serde_json::to_vec_pretty(&settings)?)?;
        }
        Ok(lock)
    }

    /// Returns the absolute path of the base model's folder, which adapters refer to.
    pub(crate) fn base(&self) -> String {
        let model = std::path::absolute(&self.model).unwrap_or_else(|_| self.model.clone());
        model.to_string_lossy().into_owned()
    }

    /// Returns the settings that results depend on. A server continues only with the same settings.
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

/// Checks that the settings in a folder's file are `settings`.
fn check_settings(path: &Path, settings: &Map<String, Value>) -> anyhow::Result<()> {
    let stored: Map<String, Value> = json::read(path)?;
    for (name, value) in settings {
        let stored = stored.get(name).unwrap_or(&Value::Null);
        if stored != value {
            let change = format!("{name} was {stored} and is now {value}");
            return Err(StartError::Changed(path.to_owned(), change).into());
        }
    }
    Ok(())
}
