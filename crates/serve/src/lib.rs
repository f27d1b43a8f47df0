//! The Tinker API in one process: clients train and sample a model by HTTP, over one engine and one copy of its weights.
//!
//! HTTP handlers are thin (`http`). A request is written to the journal before it is answered (`ledger`, `journal`); one thread owns the engine and
//! does the requests in order (`worker`). So a server that is killed at any moment continues from its folder with the same bits, and its clients
//! notice a reconnect.

mod batch;
mod datum;
mod http;
mod journal;
mod key;
mod ledger;
mod loss;
mod metrics;
mod openai;
mod page;
mod request;
mod sampling;
mod server;
mod storage;
#[doc(hidden)]
pub mod wire;
mod worker;

use anyhow::Context;
use fgrpo_eval::bad_input;
use fgrpo_eval::events::Events;
use fgrpo_eval::failure::OrBadInput;
use fgrpo_eval::io::{files, interrupt, json};
use fgrpo_files as input;
use fgrpo_nn::Device;
use fgrpo_train::config::ComputeConfig;
use fgrpo_train::language::Language;
use fgrpo_train::policy;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Name of the file with the settings that results depend on.
const SETTINGS: &str = "serve.json";
/// Most connections at the same time.
const CONNECTIONS: usize = 4096;
/// How long a request's head may take to arrive.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// What to serve, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The base model's checkpoint folder.
    pub model: PathBuf,
    /// The name under which clients know it.
    pub name: String,
    /// Where clients find its tokenizer: a hub name or a folder.
    pub tokenizer: String,
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
    /// Seed of what requests without a seed draw.
    pub seed: u64,
    /// Whether each request is sampled by itself, so that its log-probabilities don't depend, by rounding, on what is sampled with it.
    pub repeatable: bool,
    /// Where to compute.
    pub device: Device,
    /// The device by its name and how it computes, which a continued server must have too.
    pub compute: (String, ComputeConfig),
    /// Most bytes of a request's body.
    pub most_body: usize,
    /// Most requests that wait for the engine.
    pub most_waiting: usize,
    /// Work after which a model's state is written, so that a restart has less to do again.
    pub save_every: Duration,
}

/// What results depend on: a server continues only with the same.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fingerprint {
    model: PathBuf,
    /// Names and sizes of the model's files, and what its small ones say.
    files: String,
    name: String,
    full: bool,
    seed: u64,
    repeatable: bool,
    device: String,
    threads: usize,
    products: String,
    precision: String,
    moments: String,
}

impl Fingerprint {
    fn of(settings: &Settings) -> anyhow::Result<Self> {
        let (device, compute) = &settings.compute;
        Ok(Self {
            files: files_of(&settings.model)?,
            model: std::path::absolute(&settings.model).unwrap_or_else(|_| settings.model.clone()),
            name: settings.name.clone(),
            full: settings.full,
            seed: settings.seed,
            repeatable: settings.repeatable,
            device: device.clone(),
            threads: compute.threads(),
            products: compute.products.to_string(),
            precision: compute.precision.to_string(),
            moments: compute.moments.to_string(),
        })
    }

    /// Checks that a folder's settings are these.
    fn check(&self, path: &Path) -> anyhow::Result<()> {
        let bytes = input::read(path, input::SETTINGS)
            .with_context(|| format!("reading {}", path.display()))
            .or_bad_input()?;
        let found: Self = json::parse(&bytes).with_context(|| path.display().to_string()).or_bad_input()?;
        let (found, wanted) = (serde_json::to_value(&found)?, serde_json::to_value(self)?);
        for (name, value) in found.as_object().expect("a struct") {
            if wanted[name] != *value {
                bad_input!(
                    "{}: found {name} {value}, wanted {} as now given: a server continues only with the settings that it was started with",
                    path.display(),
                    wanted[name]
                );
            }
        }
        Ok(())
    }
}

/// A hash of the names and sizes of a model's files, and of the content of those that are small.
fn files_of(model: &Path) -> anyhow::Result<String> {
    const SMALL: u64 = 1 << 20;
    let context = || format!("reading {}", model.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(model).with_context(context).or_bad_input()? {
        let path = entry.with_context(context)?.path();
        let kind = path.extension().and_then(|extension| extension.to_str());
        if kind.is_some_and(|kind| ["json", "safetensors"].contains(&kind)) {
            files.push(path);
        }
    }
    files.sort();
    let mut hash = Sha256::new();
    for path in files {
        let length = std::fs::metadata(&path).with_context(context)?.len();
        hash.update(format!("{}\0{length}\0", path.file_name().unwrap_or_default().to_string_lossy()));
        if length <= SMALL {
            hash.update(input::read(&path, SMALL).with_context(context)?);
        }
    }
    Ok(hash.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Serves until a stop is requested.
///
/// # Errors
/// Bad input: a folder that isn't a model's, an address that can't be used, a server's folder that is in use, exists without `resume`, or was made with
/// other settings. Otherwise what the device or a file system reports; nothing that was accepted is lost then.
pub fn run(settings: &Settings, events: &mut dyn Events) -> anyhow::Result<()> {
    let out = &settings.out;
    let _lock = prepare(settings)?;
    let language = Arc::new(Language::read(&settings.model, &[])?);
    let mut engine = policy::open(&settings.model, None, &settings.device)?;
    settings.compute.1.apply(&mut engine);
    let key_path = out.join(key::FILE);
    let key = match &settings.key_file {
        Some(file) => key::Key::read(file)?,
        None if key_path.exists() => key::Key::read(&key_path)?,
        None => {
            let key = key::Key::make(&key_path)?;
            events.say(&format!("key: {} (also in {})", key.text(), key_path.display()));
            key
        }
    };
    let config = engine.config();
    let served = ledger::Served {
        name: settings.name.clone(),
        architecture: config.architecture.class_name().to_owned(),
        full: settings.full,
        bounds: datum::Bounds { vocab_size: config.vocab_size, positions: config.max_position_embeddings },
        folder: out.clone(),
        most_waiting: settings.most_waiting,
    };
    let entries = journal::read(out)?;
    let (sender, jobs) = channel();
    let (ledger, replayed) = ledger::Ledger::open(served, journal::Journal::open(out)?, entries, sender)?;
    let ledger = Arc::new(ledger);
    let again = replayed.iter().filter(|job| !job.finished).count();
    if settings.resume {
        events.say(&format!("resumed {}: {again} accepted requests have no result yet", out.display()));
    }
    let metrics = Arc::new(metrics::Metrics::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the server's threads")?;
    let listener = runtime
        .block_on(TcpListener::bind(settings.listen))
        .with_context(|| format!("--listen {}", settings.listen))
        .or_bad_input()?;
    let address = listener.local_addr().context("the address of the server")?;
    let server = Arc::new(server::Server {
        ledger: Arc::clone(&ledger),
        key,
        language: Arc::clone(&language),
        metrics: Arc::clone(&metrics),
        tokenizer: settings.tokenizer.clone(),
        most_body: settings.most_body,
        reading: Semaphore::new(server::READING),
    });
    runtime.spawn(serve(listener, http::routes(server)));
    events.say(&format!("serving {} at http://{address}", settings.name));
    let worker = worker::Worker::new(worker::Setup {
        engine,
        language,
        model: settings.model.clone(),
        base: std::path::absolute(&settings.model)
            .unwrap_or_else(|_| settings.model.clone())
            .to_string_lossy()
            .into_owned(),
        full: settings.full,
        seed: settings.seed,
        repeatable: settings.repeatable,
        save_every: settings.save_every,
        ledger: Arc::clone(&ledger),
        metrics,
    });
    let worked = worker.run(replayed, &jobs);
    // Connections end where they are; what they asked for is in the journal.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ledger.sync();
    worked
}

/// Makes or opens the server's folder and locks it.
fn prepare(settings: &Settings) -> anyhow::Result<std::fs::File> {
    let out = &settings.out;
    let path = out.join(SETTINGS);
    match (path.exists(), settings.resume) {
        (true, false) => {
            bad_input!("--out: {} holds a server already; continue it with --resume", out.display())
        }
        (false, true) => {
            bad_input!("--resume: found no {SETTINGS} in {}, wanted the folder of a server", out.display())
        }
        _ => {}
    }
    std::fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
    let lock = files::lock(out)?;
    files::clear_partial(out);
    let own = Fingerprint::of(settings)?;
    if settings.resume {
        own.check(&path)?;
    } else {
        if let Some(stray) = files::stray_file(out)? {
            bad_input!("--out: found {} in {}, wanted a new or empty folder", stray.display(), out.display());
        }
        files::write_whole(&path, &serde_json::to_vec_pretty(&own)?)?;
    }
    Ok(lock)
}

/// Serves connections, each in a task of its own.
async fn serve(listener: TcpListener, routes: axum::Router) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = Arc::clone(&connections).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // No more open files, for example: those that are open may end soon.
                tracing::warn!("accepting a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if interrupt::requested() {
            return;
        }
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(routes.clone());
        tokio::spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
            // A client that leaves is no error of the server.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(turn);
        });
    }
}
