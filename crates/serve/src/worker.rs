//! The engine's thread, which owns the engine and processes the queued requests one after another. Operations on a
//! model run in the order of their `seq_id`, whatever the order of arrival. Sampling requests that wait together are
//! sampled in one batch.
//!
//! Models and samplers take turns in the engine. A model that leaves the engine is stored in host memory. With LoRA,
//! that is the factors and their moments, and a model that enters is merged into the weights again. Without LoRA, it is
//! the whole model with its moments.

use crate::batch;
use crate::catalogue::{LoraRequest, ModelId, Sampler, Source, numbers};
use crate::journal::{Failed, Outcome};
use crate::ledger::{Job, Ledger};
use crate::metrics::{Count, Metrics};
use crate::request::{Op, Work};
use crate::sampled::Sampled;
use crate::sampling::{Group, Queue, Waiting};
use crate::settings::Settings;
use crate::storage::{self, About, Contents, Kind, State};

use anyhow::Context;
use fgrpo_core::rng::Key;
use fgrpo_eval::failure::in_one_line;
use fgrpo_eval::io::interrupt;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{Engine, Error, LoraConfig, TrainingState};
use fgrpo_train::policy::Policy;
use fgrpo_train::run::checkpoint::ADAPTER;
use prost::Message;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time without arriving requests after which a batch that scores tokens starts. Requests can't join such a batch later, as
/// they can join a batch that samples.
const GATHER: Duration = Duration::from_millis(3);
/// Interval at which expired weights are removed.
const SWEEP: Duration = Duration::from_secs(60);
/// Interval at which the idle thread checks for a stop.
const IDLE: Duration = Duration::from_millis(50);

/// Weights that the engine currently has.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Resident {
    Base,
    Live(ModelId),
    Folder(PathBuf),
}

/// Location of a model's weights.
enum Home {
    /// The model is new and hasn't been trained yet.
    Fresh(LoraRequest),
    Folder(PathBuf),
    Memory(TrainingState),
    /// The weights are in the engine.
    Engine,
    /// The model couldn't be created, so weights don't exist.
    Failed,
}

struct Model {
    home: Home,
    /// `seq_id` of the next operation.
    next: u64,
    /// Number of changes so far.
    version: u64,
    /// Operations whose turn hasn't come yet, by `seq_id`.
    waiting: BTreeMap<u64, Job>,
    /// Whether there were gradients since the last update.
    accumulated: bool,
    /// Requests since the last written state, which a restart repeats.
    recent: BTreeSet<u64>,
    /// Processing time of the requests in `recent`.
    busy: Duration,
}

impl Model {
    fn new(home: Home, next: u64, version: u64) -> Self {
        let (waiting, recent) = Default::default();
        Self { home, next, version, waiting, accumulated: false, recent, busy: Duration::ZERO }
    }
}

/// Resources of the engine's thread.
pub(crate) struct Setup {
    pub(crate) policy: Policy,
    /// A second model, whose weights never change.
    pub(crate) teacher: Option<Policy>,
    pub(crate) settings: Settings,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) metrics: Arc<Metrics>,
}

/// The engine's thread.
pub(crate) struct Worker {
    setup: Setup,
    resident: Resident,
    models: BTreeMap<ModelId, Model>,
    samples: VecDeque<Waiting>,
}

/// Converts the result of an engine's operation. A failure of the device ends the server; any other failure is the
/// request's result.
fn outcome<T>(result: anyhow::Result<T>, done: impl FnOnce(T) -> Outcome) -> anyhow::Result<Outcome> {
    match result {
        Ok(value) => Ok(done(value)),
        Err(error) if matches!(error.downcast_ref(), Some(Error::Device { .. })) => Err(error),
        Err(error) => Ok(Outcome::Failed(Failed { message: in_one_line(&error), by_request: false })),
    }
}

fn answer(value: &serde_json::Value) -> Outcome {
    Outcome::Json(serde_json::to_vec(value).expect("JSON"))
}

impl Worker {
    pub(crate) fn new(setup: Setup) -> Self {
        Self { setup, resident: Resident::Base, models: BTreeMap::new(), samples: VecDeque::new() }
    }

    /// Runs until a stop is requested or the queue is closed. `replayed` are the journal's requests.
    ///
    /// Returns an error if the device fails or a file can't be written. The next start then processes the accepted
    /// requests.
    pub(crate) fn run(mut self, replayed: Vec<Job>, jobs: Receiver<Job>) -> anyhow::Result<()> {
        for job in replayed {
            self.take(job)?;
        }
        let jobs = Mutex::new(jobs);
        let mut swept: Option<Instant> = None;
        let arrived = |wait: Duration| jobs.lock().expect("no panic").recv_timeout(wait);
        while !interrupt::requested() {
            if let Some(failure) = self.setup.ledger.failure() {
                anyhow::bail!("{failure}");
            }
            if swept.is_none_or(|at| at.elapsed() > SWEEP) {
                storage::sweep(&self.setup.ledger.served().folder)?;
                swept = Some(Instant::now());
            }
            while let Ok(job) = arrived(Duration::ZERO) {
                self.take(job)?;
            }
            match self.next() {
                Some(Next::Sample) => {
                    while Group::of(&self.samples[0].sample).scored
                        && let Ok(job) = arrived(GATHER)
                    {
                        self.take(job)?;
                    }
                    self.sample(&jobs)?;
                }
                Some(Next::Train(model)) => self.train(&model)?,
                None => match arrived(IDLE) {
                    Ok(job) => self.take(job)?,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                },
            }
        }
        self.finish()
    }

    /// Writes the states that can be written, so that the next start repeats less.
    fn finish(mut self) -> anyhow::Result<()> {
        let open = |(_, model): &(&ModelId, &Model)| !model.recent.is_empty() && !model.accumulated;
        let models: Vec<ModelId> = self.models.iter().filter(open).map(|(id, _)| id.clone()).collect();
        models.iter().try_for_each(|model| self.save_state(model))
    }

    /// Adds a request to the queue of its model, or to the waiting sampling requests.
    fn take(&mut self, job: Job) -> anyhow::Result<()> {
        let Job { number, work, finished, reply } = job;
        match work {
            Work::Sample(_) if finished => {}
            Work::Session(_) | Work::Sampler(_) => unreachable!("the ledger does them"),
            Work::Sample(sample) => self.samples.push_back(Waiting { number, sample, reply }),
            Work::Train { ref model, seq, .. } => {
                let model = self.model(model)?;
                if seq >= model.next {
                    model.waiting.insert(seq, Job { number, work, finished, reply });
                } else if !finished {
                    let next = model.next;
                    let message = format!("seq_id: expected {next} or a later one, found {seq}");
                    self.done(number, finished, Outcome::refused(message), None);
                }
            }
            Work::Create { model, lora, .. } => {
                if !self.known(&model)? {
                    let mut entry = Model::new(Home::Fresh(lora), 1, 0);
                    entry.recent.insert(number);
                    self.models.insert(model.clone(), entry);
                }
                let result = json!({"model_id": model, "type": "create_model"});
                self.done(number, finished, answer(&result), None);
            }
            Work::CreateFrom { model, path, optimizer, .. } => {
                let result = if self.known(&model)? {
                    answer(&json!({"model_id": model, "path": path, "type": "load_weights"}))
                } else {
                    self.create_from(number, &model, &path, optimizer)?
                };
                self.done(number, finished, result, None);
                if self.models.contains_key(&model) {
                    self.describe(&model);
                    self.save_state(&model)?;
                }
            }
        }
        Ok(())
    }

    /// Returns whether a model exists. Opens a model that an earlier server wrote.
    fn known(&mut self, id: &str) -> anyhow::Result<bool> {
        if self.models.contains_key(id) {
            return Ok(true);
        }
        let root = &self.setup.ledger.served().folder;
        let Some((folder, State { next, version, .. })) = storage::newest_state(root, id)? else {
            return Ok(false);
        };
        self.models.insert(id.to_owned(), Model::new(Home::Folder(folder), next, version));
        Ok(true)
    }

    fn model(&mut self, id: &str) -> anyhow::Result<&mut Model> {
        if !self.known(id)? {
            self.models.insert(id.to_owned(), Model::new(Home::Failed, 1, 0));
        }
        Ok(self.models.get_mut(id).expect("it was put there"))
    }

    fn done(&self, number: u64, finished: bool, outcome: Outcome, sampler: Option<Sampler>) {
        if !finished {
            self.setup.ledger.finish(number, outcome, sampler);
        }
    }

    /// Chooses the next request, which is the earliest accepted request that can be processed.
    fn next(&self) -> Option<Next> {
        let ready = |(id, model): (&ModelId, &Model)| {
            let (&seq, job) = model.waiting.first_key_value()?;
            let passed = |seq| {
                self.setup.ledger.with(|registry| registry.model(id).is_ok_and(|entry| entry.passed(seq)))
            };
            (model.next..seq).all(passed).then(|| (job.number, Next::Train(id.clone())))
        };
        let sample = self.samples.front().map(|first| (first.number, Next::Sample));
        self.models
            .iter()
            .filter_map(ready)
            .chain(sample)
            .min_by_key(|(number, _)| *number)
            .map(|(_, next)| next)
    }

    /// Loads weights into the engine.
    fn enter(&mut self, target: Resident) -> anyhow::Result<()> {
        if self.resident == target {
            return Ok(());
        }
        let engine = self.setup.policy.engine_mut();
        if let Resident::Live(model) = &self.resident
            && let Some(model) = self.models.get_mut(model)
            && matches!(model.home, Home::Engine)
        {
            model.home = Home::Memory(engine.training_state());
        }
        self.setup.metrics.add(Count::Swaps, 1);
        match &target {
            Resident::Folder(folder) => storage::read(folder, engine, false)?,
            Resident::Base => base(engine, self.setup.settings.full, &self.setup.settings.model)?,
            Resident::Live(id) => {
                let model = self.models.get_mut(id).context("the model doesn't exist")?;
                match std::mem::replace(&mut model.home, Home::Engine) {
                    Home::Memory(state) => engine.set_training_state(&state)?,
                    Home::Folder(folder) => storage::read(&folder, engine, true)?,
                    Home::Fresh(lora) => {
                        base(engine, self.setup.settings.full, &self.setup.settings.model)?;
                        if !self.setup.settings.full {
                            let config = lora.config().map_err(anyhow::Error::msg)?;
                            let mut draws = adapter_key(self.setup.settings.seed, lora.seed, id).stream();
                            engine.adapt(&config, &mut || draws.uniform())?;
                        }
                        engine.zero_gradient();
                        engine.load_optimizer(0, &[], &mut |_, _| Ok(()))?;
                    }
                    Home::Engine => {
                        anyhow::bail!("internal error: {id} is loaded already; please report this")
                    }
                    Home::Failed => anyhow::bail!("{id} has no weights"),
                }
            }
        }
        self.resident = target;
        Ok(())
    }

    /// Performs the next operation of a model.
    fn train(&mut self, id: &str) -> anyhow::Result<()> {
        let model = self.models.get_mut(id).expect("its turn has come");
        let (seq, job) = model.waiting.pop_first().expect("its turn has come");
        let version = model.version;
        let state = State { next: seq, version, optimizer_step: 0, request: job.number };
        model.next = seq + 1;
        let Job { number, work: Work::Train { op, .. }, finished, .. } = job else {
            unreachable!("an operation on a model")
        };
        model.recent.insert(number);
        if finished && !op.changes() {
            return Ok(());
        }
        if matches!(model.home, Home::Failed) {
            self.done(number, finished, Outcome::refused(format!("{id} couldn't be created")), None);
            return Ok(());
        }
        let started = Instant::now();
        let (mut sampler, mut save) = (None, false);
        let (loads, changes) = (matches!(op, Op::Load { .. }), op.changes());
        self.enter(Resident::Live(id.to_owned()))?;
        let setup = &mut self.setup;
        let root = setup.ledger.served().folder.clone();
        let contents = Contents {
            root: &root,
            base: setup.settings.base(),
            language: &Arc::clone(setup.policy.language()),
        };
        let policy = &mut setup.policy;
        let model = self.models.get_mut(id).expect("it is there");
        let result = match op {
            Op::Pass(pass) => {
                setup.metrics.add(Count::TrainedTokens, pass.sequences.iter().map(|s| s.tokens.len()).sum());
                model.accumulated |= !pass.forward_only;
                outcome(batch::run(&pass, policy), |output| Outcome::Protobuf(output.encode_to_vec()))?
            }
            Op::Update { adamw, max_norm } => {
                model.accumulated = false;
                setup.metrics.add(Count::Updates, 1);
                let report = policy.engine_mut().update(&adamw, max_norm).map_err(anyhow::Error::from);
                if report.as_ref().is_ok_and(|report| report.applied) {
                    model.version = version + 1;
                }
                outcome(report, |report| {
                    if report.applied {
                        return answer(
                            &json!({"metrics": {"grad_norm": report.gradient_norm}, "type": "optim_step"}),
                        );
                    }
                    Outcome::refused(format!(
                        "the gradient's norm is {}, so the weights weren't changed and the gradient was reset to 0",
                        report.gradient_norm
                    ))
                })?
            }
            Op::Save { kind, name, overwrite, ttl, user_metadata } => {
                let saved = storage::now();
                let about = About { saved, expires: ttl.map(|ttl| saved.saturating_add(ttl)), user_metadata };
                storage::sweep(&root)?;
                match contents.save((id, kind, &name), policy.engine(), state, overwrite, &about)? {
                    Some(path) => {
                        let checkpoint = kind == Kind::Checkpoint;
                        let kind = if checkpoint { "save_weights" } else { "save_weights_for_sampler" };
                        answer(&json!({"path": path, "type": kind}))
                    }
                    None => Outcome::refused(format!(
                        "path: {name:?} already exists; choose another name, or set overwrite"
                    )),
                }
            }
            Op::Snapshot { sampler: name } => {
                contents.version(id, policy.engine(), state)?;
                let source = Source::Version { model: id.to_owned(), version };
                sampler = Some(Sampler { id: name.clone(), source, seq: Some(seq) });
                answer(&json!({"sampling_session_id": name, "type": "save_weights_for_sampler"}))
            }
            Op::Load { path, optimizer } => match readable(&root, &path, optimizer, policy.engine().lora()) {
                Err(why) => Outcome::refused(why),
                Ok(folder) => {
                    storage::read(&folder, policy.engine_mut(), optimizer)?;
                    (model.version, model.accumulated) = (version + 1, false);
                    save = true;
                    answer(&json!({"path": path, "model_id": id, "type": "load_weights"}))
                }
            },
        };
        model.busy += started.elapsed();
        setup.metrics.add_time(Count::TrainTime, started.elapsed());
        save |= !model.accumulated && changes && model.busy >= setup.settings.save_every;
        self.done(number, finished, result, sampler);
        if save || loads {
            self.save_state(id)?;
        }
        Ok(())
    }

    /// Creates a model from saved weights.
    fn create_from(&mut self, number: u64, id: &str, path: &str, optimizer: bool) -> anyhow::Result<Outcome> {
        let root = self.setup.ledger.served().folder.clone();
        let folder = match readable(&root, path, optimizer, None) {
            Ok(folder) => folder,
            Err(why) => return Ok(Outcome::refused(why)),
        };
        if folder.join(ADAPTER).is_dir() == self.setup.settings.full {
            let (saved, expected) = if self.setup.settings.full {
                ("an adapter", "all weights")
            } else {
                ("all weights", "an adapter")
            };
            return Ok(Outcome::refused(format!("{path} has {saved}, but this server trains {expected}")));
        }
        self.enter(Resident::Base)?;
        storage::read(&folder, self.setup.policy.engine_mut(), optimizer)?;
        let mut model = Model::new(Home::Engine, 1, 0);
        model.recent.insert(number);
        self.models.insert(id.to_owned(), model);
        self.resident = Resident::Live(id.to_owned());
        Ok(answer(&json!({"model_id": id, "path": path, "type": "load_weights"})))
    }

    /// Reports the LoRA settings of a model that was created from a checkpoint to the ledger.
    fn describe(&self, id: &str) {
        let settings = match &self.models[id].home {
            Home::Folder(folder) => LoraConfig::read(&folder.join(ADAPTER)).ok().map(|(config, _)| config),
            _ => self.setup.policy.engine().lora().cloned(),
        };
        self.setup.ledger.describe(id, settings.as_ref().map(LoraRequest::of));
    }

    /// Writes the state of a model without a gradient, from which a restart continues.
    fn save_state(&mut self, id: &str) -> anyhow::Result<()> {
        if self.models[id].recent.is_empty() || matches!(self.models[id].home, Home::Failed) {
            return Ok(());
        }
        // The results that the state contains must be on disk.
        if !self.setup.ledger.sync() {
            anyhow::bail!(
                "{}",
                self.setup.ledger.failure().unwrap_or_else(|| "the journal is closed".into())
            );
        }
        self.enter(Resident::Live(id.to_owned()))?;
        let root = self.setup.ledger.served().folder.clone();
        let contents = Contents {
            root: &root,
            base: self.setup.settings.base(),
            language: self.setup.policy.language(),
        };
        let model = self.models.get_mut(id).expect("it is there");
        let state = State { next: model.next, version: model.version, optimizer_step: 0, request: 0 };
        contents.state(id, self.setup.policy.engine(), state)?;
        model.recent.clear();
        model.busy = Duration::ZERO;
        self.setup.ledger.shorten(self.models.values().flat_map(|model| &model.recent).copied().collect())
    }

    /// Samples for the first waiting request and all requests that can be sampled with it, including those that arrive
    /// meanwhile.
    fn sample(&mut self, jobs: &Mutex<Receiver<Job>>) -> anyhow::Result<()> {
        // Requests of clients that have disconnected are dropped.
        self.samples.retain_mut(|waiting| {
            let is_abandoned = waiting.is_abandoned();
            if is_abandoned && let Some(reply) = waiting.reply.take() {
                self.setup.ledger.answer(reply, Err(String::new()));
            }
            !is_abandoned
        });
        let Some(Waiting { sample: first, number, .. }) = self.samples.front() else { return Ok(()) };
        let (group, source, number) = (Group::of(first), first.sampler.clone(), *number);
        let alone = self.setup.settings.repeatable;
        let fits = |waiting: &Waiting| {
            if alone {
                waiting.number == number
            } else {
                waiting.sample.sampler == source && Group::of(&waiting.sample) == group
            }
        };
        let (batch, rest): (VecDeque<_>, VecDeque<_>) = self.samples.drain(..).partition(fits);
        self.samples = rest;
        let resident = match self.place(&source) {
            Ok(resident) => resident,
            Err(why) => {
                let Setup { ledger, .. } = &self.setup;
                batch
                    .into_iter()
                    .for_each(|waiting| answer_sample(ledger, waiting, Err(Outcome::refused(why.clone()))));
                return Ok(());
            }
        };
        let started = Instant::now();
        if let Some(resident) = resident {
            self.enter(resident)?;
        }
        // Requests may not join while another request waits for its turn.
        let open = !alone && self.next().is_none();
        let Setup { policy, teacher, settings, ledger, metrics } = &mut self.setup;
        let policy = match (&source, teacher) {
            (Source::Teacher, Some(teacher)) => teacher,
            _ => policy,
        };
        let (bounds, key) = (ledger.served().bounds_of(&source), Key::new(settings.seed));
        let queue = Queue::new(batch, jobs, Arc::clone(policy.language()), metrics, bounds, key, open);
        let (rest, result) = queue.run(policy, !alone, |waiting, sampled| {
            let tokens = sampled.sequences.iter().map(|sequence| sequence.tokens.len()).sum();
            metrics.add(Count::SampledTokens, tokens);
            metrics.add(Count::PromptTokens, waiting.sample.prompt.len());
            metrics.add(Count::ReusedPromptTokens, sampled.cached);
            answer_sample(ledger, waiting, Ok(sampled));
        });
        metrics.add_time(Count::SampleTime, started.elapsed());
        match result {
            Ok(()) => self.samples.extend(rest.waiting),
            Err(error) => {
                let failed = outcome::<()>(Err(error), |()| unreachable!("an error"))?;
                rest.waiting
                    .into_iter()
                    .for_each(|waiting| answer_sample(ledger, waiting, Err(failed.clone())));
            }
        }
        rest.others.into_iter().try_for_each(|job| self.take(job))
    }

    /// Returns the weights that the engine needs for a sampler, or `None` for the teacher, which has a separate engine.
    fn place(&mut self, source: &Source) -> Result<Option<Resident>, String> {
        let root = &self.setup.ledger.served().folder;
        match source {
            Source::Base => Ok(Some(Resident::Base)),
            Source::Teacher if self.setup.teacher.is_some() => Ok(None),
            Source::Teacher => Err("this server no longer has a teacher".into()),
            Source::Version { model, version } => {
                if self.models.get(model).is_some_and(|live| live.version == *version) {
                    return Ok(Some(Resident::Live(model.clone())));
                }
                let folder = storage::version_folder(root, model, *version);
                if folder.is_dir() {
                    return Ok(Some(Resident::Folder(folder)));
                }
                Err(format!(
                    "the weights of {model} after {version} changes are no longer stored; save them under a name with save_weights_for_sampler"
                ))
            }
            Source::Saved(path) => storage::saved(root, path)
                .map(|(folder, _)| Some(Resident::Folder(folder)))
                .ok_or_else(|| format!("{path} no longer exists")),
        }
    }
}

/// Sends the result of a sampling request.
fn answer_sample(ledger: &Ledger, waiting: Waiting, result: Result<Sampled, Outcome>) {
    match waiting.reply {
        Some(reply) => {
            let answer = result.map_err(|outcome| match outcome {
                Outcome::Failed(failed) => failed.message,
                _ => unreachable!("a failure"),
            });
            ledger.answer(reply, answer);
        }
        None => {
            let outcome = result.map_or_else(|failed| failed, |sampled| Outcome::Protobuf(sampled.encode()));
            ledger.finish(waiting.number, outcome, None);
        }
    }
}

enum Next {
    Sample,
    Train(ModelId),
}

/// Loads the base model's weights.
fn base(engine: &mut Engine, full: bool, folder: &std::path::Path) -> anyhow::Result<()> {
    engine.remove_adapters();
    if full {
        engine.reload(&Checkpoint::open(folder)?)?;
    }
    Ok(())
}

/// Returns the random key of a new adapter's initial weights.
fn adapter_key(server: u64, seed: Option<u64>, model: &str) -> Key {
    match seed {
        Some(seed) => Key::new(seed).with(9),
        None => numbers(model).fold(Key::new(server).with(10), Key::with),
    }
}

/// Returns the folder of the weights that are saved under a path of the API. Returns an error if they don't exist or
/// can't be loaded into a model with these LoRA settings.
fn readable(
    root: &std::path::Path,
    path: &str,
    optimizer: bool,
    lora: Option<&LoraConfig>,
) -> Result<PathBuf, String> {
    let Some((folder, kind)) = storage::saved(root, path) else {
        return Err(format!("path: {path} doesn't exist"));
    };
    if optimizer && kind == Kind::Sampler {
        return Err(format!("optimizer: {path} has no optimizer state; use a path of save_weights"));
    }
    if let Some(expected) = lora {
        let saved = LoraConfig::read(&folder.join(ADAPTER))
            .map(|(config, _)| config)
            .map_err(|error| error.to_string())?;
        if saved != *expected {
            return Err(format!("{path}: expected the model's {expected:?}, found {saved:?}"));
        }
    }
    Ok(folder)
}
