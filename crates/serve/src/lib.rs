//! Serves the Tinker API from one process. Clients train and sample models over HTTP, on one engine with one copy of the
//! base weights.
//!
//! HTTP handlers (`http`) don't do slow work. A request is written to the journal before it is answered (`ledger`,
//! `journal`), and a single thread owns the engine and processes the requests in order (`worker`). So a server that is
//! killed at any moment continues from its folder with the same bits, and its clients only notice a reconnect.

mod batch;
mod catalogue;
mod chat;
mod datum;
mod fields;
mod http;
mod journal;
mod key;
mod ledger;
mod listing;
mod loss;
mod metrics;
mod openai;
mod page;
mod request;
mod sampled;
mod sampling;
mod server;
mod settings;
mod storage;
#[doc(hidden)]
pub mod wire;
mod worker;

use anyhow::Context;
use fgrpo_eval::events::Events;
use fgrpo_eval::io::interrupt;
use fgrpo_nn::Engine;
use fgrpo_train::language::Language;
use fgrpo_train::policy::{self, Bounds, Policy};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
pub use settings::{Settings, StartError};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Maximum number of connections.
const CONNECTIONS: usize = 4096;
/// Time limit for receiving a request's headers.
const HEAD_TIME: Duration = Duration::from_secs(30);

/// Serves until a stop is requested.
///
/// # Errors
/// Returns [`StartError`] if the server can't start with these settings, bad input if the model's folder doesn't contain
/// a model or the server's folder is in use, and otherwise an error from the device or a file system. Accepted requests
/// survive such an error.
pub fn run(settings: &Settings, events: &mut dyn Events) -> anyhow::Result<()> {
    let out = &settings.out;
    let language = Arc::new(Language::read(&settings.model, &[])?);
    let _lock = settings.prepare()?;
    let mut engine = policy::open(&settings.model, None, &settings.device)?;
    settings.compute.1.apply(&mut engine);
    let mut teacher = None;
    if let Some((folder, name)) = &settings.teacher {
        let mut engine = policy::open(folder, None, &settings.device)?;
        settings.compute.1.apply(&mut engine);
        teacher = Some((name.clone(), Policy::new(engine, Arc::new(Language::read(folder, &[])?))));
    }
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
    let bounds = |engine: &Engine| Bounds::of(engine.config());
    let served = catalogue::Served {
        name: settings.name.clone(),
        architecture: engine.config().architecture.class_name().to_owned(),
        full: settings.full,
        bounds: bounds(&engine),
        teacher: teacher.as_ref().map(|(name, teacher)| (name.clone(), bounds(teacher.engine()))),
        folder: out.clone(),
        most_waiting: settings.most_waiting,
        resumed: if settings.resume { storage::since_1970().as_nanos() as u64 } else { 0 },
    };
    let entries = journal::read(out)?;
    let (sender, jobs) = channel();
    let (ledger, replayed) = ledger::Ledger::open(served, journal::Journal::open(out)?, entries, sender)?;
    let ledger = Arc::new(ledger);
    let unfinished = replayed.iter().filter(|job| !job.finished).count();
    if settings.resume {
        events.say(&format!("resumed {}: {unfinished} accepted requests have no result yet", out.display()));
    }
    let metrics = Arc::new(metrics::Metrics::default());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("starting the server's threads")?;
    let address = settings.listen;
    let listener = runtime.block_on(TcpListener::bind(address));
    let listener = listener.map_err(|cause| StartError::Address(address, cause))?;
    let address = listener.local_addr().context("reading the address of the server")?;
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
    let setup = worker::Setup {
        policy: Policy::new(engine, language),
        teacher: teacher.map(|(_, teacher)| teacher),
        settings: settings.clone(),
        ledger: Arc::clone(&ledger),
        metrics,
    };
    let worker = worker::Worker::new(setup);
    let result = worker.run(replayed, jobs);
    // Connections are closed, but their requests are in the journal.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ledger.sync();
    result
}

/// Serves connections, each in a separate task.
async fn serve(listener: TcpListener, routes: axum::Router) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = Arc::clone(&connections).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Possibly too many files are open; some connections may end soon.
                tracing::warn!("can't accept a connection: {error}");
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
            // A client that disconnects isn't a server error.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
            drop(turn);
        });
    }
}
