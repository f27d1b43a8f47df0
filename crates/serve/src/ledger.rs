//! Keeps requests and their results, and the sessions, models and samplers that exist.
//!
//! A repeated request is recognised by its client's idempotency key, or by its slot (the `seq_id` of a model or a
//! sampler). So it runs once, however often it is sent, before and after a kill. A result is stored for an hour. After
//! that, its request has expired.

use crate::catalogue::{Catalogue, LoraRequest, ModelEntry, Registry, Sampler, Served, session_id};
use crate::fields::Refusal;
use crate::journal::{Accepted, Entry, Finished, Journal, Outcome, Refused};
use crate::request::{self, Asked, Incoming, Sample, Work};
use crate::sampled::Sampled;
use crate::storage;
use anyhow::Context;
use fgrpo_eval::io::json;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot};

/// Time for which results are stored.
const KEPT: Duration = Duration::from_secs(3600);
/// Maximum number of bytes of stored results. The oldest results are removed first.
const KEPT_BYTES: usize = 1 << 30;
/// Growth in bytes after which the journal is shortened.
const JOURNAL_BYTES: usize = 256 << 20;

/// A request for the engine's thread.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) work: Work,
    /// Whether the result already exists, so that only the effect on the model is needed.
    pub(crate) finished: bool,
    /// Connection that waits for the samples, if the request isn't in the journal.
    pub(crate) reply: Option<Reply>,
}

/// Answer to a request that isn't in the journal.
pub(crate) type Answer = Result<Sampled, String>;

/// Destination of samples.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) answer: oneshot::Sender<Answer>,
    /// Receives the length so far and the last token of a single sample while it grows.
    pub(crate) pieces: Option<mpsc::UnboundedSender<(usize, u32)>>,
}

struct Held {
    accepted: Accepted,
    state: State,
}

enum State {
    Waiting(Arc<Notify>),
    Done(Outcome),
}

#[derive(Default)]
struct Table {
    catalogue: Catalogue,
    requests: BTreeMap<u64, Held>,
    by_key: HashMap<String, u64>,
    by_slot: HashMap<String, u64>,
    /// Requests with results, in the order of completion.
    done: VecDeque<(u64, Instant)>,
    waiting: usize,
    result_bytes: usize,
    /// Number of bytes that were added to the journal since it was last shortened.
    journal_bytes: usize,
}

/// The ledger. Its methods may be called from any thread.
pub(crate) struct Ledger {
    served: Served,
    table: Arc<Mutex<Table>>,
    journal: Journal,
    jobs: Sender<Job>,
    /// Growth in bytes after which the journal is shortened.
    longest: usize,
}

/// State of a request whose result a client asks for.
pub(crate) enum Found {
    Done(Outcome),
    Waiting(Arc<Notify>),
    /// The request is unknown, or its result has expired.
    Gone,
}

/// Reason why a request isn't accepted.
#[derive(Debug)]
pub(crate) enum Rejection {
    Refused(Refusal),
    /// Too many requests are waiting.
    Busy,
    /// The journal can't be written.
    Stopped,
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Returns the id that clients use for request `number`.
pub(crate) fn request_id(number: u64) -> String {
    format!("request-{number}")
}

/// Returns the sequence number in a request's id.
pub(crate) fn request_number(id: &str) -> Option<u64> {
    id.strip_prefix("request-")?.parse().ok()
}

impl Ledger {
    /// Opens a ledger with the requests of a journal. Returns the requests that the engine has to process, in order.
    ///
    /// Returns an error if a record is invalid.
    pub(crate) fn open(
        served: Served,
        journal: Journal,
        entries: Vec<Entry>,
        jobs: Sender<Job>,
    ) -> anyhow::Result<(Self, Vec<Job>)> {
        let mut table = Table::default();
        let mut work = BTreeMap::new();
        for entry in entries {
            match entry {
                Entry::Catalogue(bytes) => {
                    table.catalogue = json::parse(&bytes).context("journal: catalogue")?
                }
                Entry::Accepted(accepted) => {
                    let number = accepted.number;
                    table.journal_bytes += accepted.body.as_ref().map_or(0, Vec::len);
                    if let Some(task) = table.replay(&served, &accepted)? {
                        work.insert(number, task);
                    }
                    table.hold(accepted.without_body());
                }
                Entry::Finished(Finished { number, outcome, sampler }) => {
                    if let Some(sampler) = sampler {
                        let sampler: Sampler = json::parse(&sampler).context("journal: sampler")?;
                        table.catalogue.samplers.insert(sampler.id.clone(), sampler);
                    }
                    table.finish(number, outcome.context("journal: a result without content")?);
                }
                Entry::Refused(Refused { model, seq }) => drop(table.refuse(&model, seq)),
            }
        }
        let job = |(number, work)| {
            let finished = matches!(table.requests.get(&number), Some(Held { state: State::Done(_), .. }));
            Job { number, work, finished, reply: None }
        };
        let work: Vec<Job> = work.into_iter().map(job).collect();
        let table = Arc::new(Mutex::new(table));
        Ok((Self { served, table, journal, jobs, longest: JOURNAL_BYTES }, work))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn served(&self) -> &Served {
        &self.served
    }

    /// Returns the number of requests that wait or are being processed.
    pub(crate) fn waiting(&self) -> usize {
        self.table().waiting
    }

    /// Returns the number of bytes of stored results.
    pub(crate) fn result_bytes(&self) -> usize {
        self.table().result_bytes
    }

    /// Returns the error that stopped the journal, if any. After an error, requests aren't accepted.
    pub(crate) fn failure(&self) -> Option<String> {
        self.journal.failure()
    }

    /// Waits until all records so far are on disk. Returns whether that succeeded.
    pub(crate) fn sync(&self) -> bool {
        self.journal.sync()
    }

    /// Accepts a request, or finds an earlier request that it repeats. Returns its sequence number when its record is on
    /// disk.
    ///
    /// A rejected request is recorded with its `seq_id`, so that the model's next requests can be accepted.
    pub(crate) async fn accept(&self, key: Option<&str>, incoming: Incoming) -> Result<u64, Rejection> {
        let (done, synced) = oneshot::channel();
        let reported = Box::new(move || {
            let _ = done.send(());
        });
        let number = self.record(key.filter(|key| !key.is_empty()), incoming, reported)?;
        synced.await.map_err(|_| Rejection::Stopped)?;
        Ok(number?)
    }

    /// Writes a request or its rejection to the journal, unless the request is known. Calls `synced` when the record is
    /// on disk.
    fn record(
        &self,
        key: Option<&str>,
        incoming: Incoming,
        synced: Box<dyn FnOnce() + Send>,
    ) -> Result<Result<u64, Refusal>, Rejection> {
        let place = incoming.place();
        let Incoming { endpoint, body, digest, content, saved } = incoming;
        let mut table = self.table();
        if let Some(number) = table.repeated(&table.by_key, key, "X-Idempotency-Key", &digest)? {
            self.journal.synced(synced);
            return Ok(Ok(number));
        }
        let request = content
            .and_then(|content| content.read(endpoint, Registry { saved, ..table.registry(&self.served) }));
        let Asked { work, slot } = match request {
            Ok(request) => request,
            Err(refusal) => {
                let place = place.filter(|(model, seq)| table.refuse(model, *seq));
                let Some((model, seq)) = place else { return Err(refusal.into()) };
                self.journal.append(Entry::Refused(Refused { model, seq }), Some(synced));
                return Ok(Err(refusal));
            }
        };
        if let Some(number) = table.repeated(&table.by_slot, slot.as_deref(), "seq_id", &digest)? {
            table.by_key.extend(key.map(|key| (key.to_owned(), number)));
            self.journal.synced(synced);
            return Ok(Ok(number));
        }
        if table.waiting >= self.served.most_waiting {
            return Err(Rejection::Busy);
        }
        let time = storage::now();
        let answer = table.register(&work, self.served.full, time);
        table.catalogue.requests += 1;
        let number = table.catalogue.requests;
        table.journal_bytes += body.len();
        let (endpoint, key) = (endpoint.to_owned(), key.map(str::to_owned));
        let accepted = Accepted { number, endpoint, key, slot, digest, body: Some(body), time };
        table.hold(accepted.without_body());
        match answer {
            Some(answer) => {
                table.finish(number, answer.clone());
                self.journal.append(Entry::Accepted(accepted), None);
                let finished = Finished { number, outcome: Some(answer), sampler: None };
                self.journal.append(Entry::Finished(finished), Some(synced));
            }
            None => {
                let job = Job { number, work, finished: false, reply: None };
                let jobs = self.jobs.clone();
                let send = move || {
                    // If the engine's thread has ended, the next start processes the request.
                    let _ = jobs.send(job);
                    synced();
                };
                self.journal.append(Entry::Accepted(accepted), Some(Box::new(send)));
            }
        }
        Ok(Ok(number))
    }

    /// Requests samples without a record in the journal. The numbers of such requests start again when the server is
    /// continued, so the time of its start distinguishes samples without a seed.
    pub(crate) fn ask(
        &self,
        mut sample: Sample,
        pieces: Option<mpsc::UnboundedSender<(usize, u32)>>,
    ) -> Result<oneshot::Receiver<Answer>, Rejection> {
        let (answer, receiver) = oneshot::channel();
        let number = {
            let mut table = self.table();
            if table.waiting >= self.served.most_waiting {
                return Err(Rejection::Busy);
            }
            table.catalogue.requests += 1;
            table.waiting += 1;
            table.catalogue.requests
        };
        sample.place = Some(vec![0, self.served.resumed, number]);
        let job = Job {
            number,
            work: Work::Sample(sample),
            finished: false,
            reply: Some(Reply { answer, pieces }),
        };
        self.jobs.send(job).map_err(|_| Rejection::Stopped)?;
        Ok(receiver)
    }

    /// Answers a request that isn't in the journal.
    pub(crate) fn answer(&self, reply: Reply, answer: Answer) {
        self.table().waiting -= 1;
        // The client may have disconnected.
        let _ = reply.answer.send(answer);
    }

    /// Records a result, which clients get when it is on disk. `sampler` is the sampler that the request created, if any.
    pub(crate) fn finish(&self, number: u64, outcome: Outcome, sampler: Option<Sampler>) {
        let bytes = sampler.as_ref().map(|sampler| serde_json::to_vec(sampler).expect("strings"));
        let record = Finished { number, outcome: Some(outcome.clone()), sampler: bytes };
        let table = Arc::clone(&self.table);
        let deliver = move || {
            let mut table = table.lock().unwrap_or_else(|e| e.into_inner());
            if let Some(sampler) = sampler {
                table.catalogue.samplers.insert(sampler.id.clone(), sampler);
            }
            table.journal_bytes += outcome.bytes();
            table.finish(number, outcome);
            table.expire();
        };
        self.journal.append(Entry::Finished(record), Some(Box::new(deliver)));
    }

    /// Records the LoRA settings of a model that was created from a checkpoint.
    pub(crate) fn describe(&self, model: &str, lora: Option<LoraRequest>) {
        if let Some(entry) = self.table().catalogue.models.get_mut(model) {
            entry.lora = lora;
        }
    }

    /// Returns the state of a request: its result, or a notification to wait for.
    pub(crate) fn find(&self, number: u64) -> Found {
        match self.table().requests.get(&number).map(|request| &request.state) {
            Some(State::Done(outcome)) => Found::Done(outcome.clone()),
            Some(State::Waiting(notify)) => Found::Waiting(Arc::clone(notify)),
            None => Found::Gone,
        }
    }

    /// Calls `read` with the existing objects.
    pub(crate) fn with<T>(&self, read: impl FnOnce(Registry<'_>) -> T) -> T {
        read(self.table().registry(&self.served))
    }

    /// Shortens the journal if it is long. `needed` has the requests that a restart repeats. Must be called on the engine's
    /// thread, because the call waits for the disk.
    pub(crate) fn shorten(&self, needed: BTreeSet<u64>) -> anyhow::Result<()> {
        if self.table().journal_bytes < self.longest {
            return Ok(());
        }
        // Results that are on disk have been delivered.
        anyhow::ensure!(self.journal.sync(), "the journal can't be written");
        {
            let mut table = self.table();
            let catalogue = Entry::Catalogue(serde_json::to_vec(&table.catalogue)?);
            let waits = |request: &Held| matches!(request.state, State::Waiting(_));
            let waiting: BTreeMap<u64, bool> =
                table.requests.iter().map(|(number, request)| (*number, waits(request))).collect();
            let shorten = move |entries: Vec<Entry>| {
                // A request that a restart repeats may have expired for clients.
                let is_held = |number: &u64| waiting.contains_key(number) || needed.contains(number);
                let rest = entries.into_iter().filter_map(|entry| match entry {
                    // The catalogue contains the effects of these records.
                    Entry::Catalogue(_) | Entry::Refused(_) => None,
                    Entry::Finished(finished) => {
                        is_held(&finished.number).then_some(Entry::Finished(finished))
                    }
                    Entry::Accepted(accepted) => {
                        let number = accepted.number;
                        let whole = needed.contains(&number) || waiting.get(&number) == Some(&true);
                        let short = || accepted.without_body();
                        is_held(&number)
                            .then(|| Entry::Accepted(if whole { accepted.clone() } else { short() }))
                    }
                });
                std::iter::once(catalogue).chain(rest).collect()
            };
            // The lock is held, so that the catalogue matches the records so far.
            self.journal.shorten(Box::new(shorten));
            table.journal_bytes = 0;
        }
        anyhow::ensure!(self.journal.sync(), "the journal can't be written");
        Ok(())
    }
}

impl Table {
    /// Looks up the earlier request with the value `name` of the field `field`, and returns its sequence number.
    ///
    /// Returns an error if the earlier request was a different one.
    fn repeated(
        &self,
        map: &HashMap<String, u64>,
        name: Option<&str>,
        field: &str,
        digest: &[u8],
    ) -> Result<Option<u64>, Refusal> {
        let Some((name, &number)) = name.and_then(|name| map.get_key_value(name)) else { return Ok(None) };
        match self.requests.get(&number) {
            Some(request) if request.accepted.digest != digest => {
                Err(Refusal::Bad(format!("{field}: {name:?} was already used by another request")))
            }
            _ => Ok(Some(number)),
        }
    }

    fn registry<'a>(&'a self, served: &'a Served) -> Registry<'a> {
        Registry { served, catalogue: &self.catalogue, replayed: false, saved: false }
    }

    /// Records the objects that a request creates, accepted at `time`. Returns the result unless it needs the engine.
    fn register(&mut self, work: &Work, full: bool, time: u64) -> Option<Outcome> {
        let catalogue = &mut self.catalogue;
        let answer = match work {
            Work::Session(about) => {
                catalogue.sessions.push(about.clone());
                let warning = (!full).then_some(
                    "This server's LoRA adapts the attention and MLP matrices. train_unembed is accepted, but the vocabulary head isn't trained.",
                );
                let id = session_id(catalogue.sessions.len() as u64);
                json!({"session_id": id, "warning_message": warning, "type": "create_session"})
            }
            Work::Sampler(sampler) => {
                catalogue.samplers.insert(sampler.id.clone(), sampler.clone());
                json!({"sampling_session_id": sampler.id, "type": "create_sampling_session"})
            }
            Work::Create { model, user_metadata, .. } | Work::CreateFrom { model, user_metadata, .. } => {
                let lora = if let Work::Create { lora, .. } = work { Some(lora.clone()) } else { None };
                let entry = ModelEntry {
                    lora,
                    user_metadata: user_metadata.clone(),
                    last_request: time,
                    ..ModelEntry::default()
                };
                catalogue.models.insert(model.clone(), entry);
                return None;
            }
            Work::Train { model, seq, .. } => {
                let entry = catalogue.models.entry(model.clone()).or_default();
                entry.last_request = time;
                entry.last_seq = entry.last_seq.max(*seq);
                entry.refused.remove(seq);
                return None;
            }
            Work::Sample(_) => return None,
        };
        Some(Outcome::Json(answer.to_string().into_bytes()))
    }

    /// Applies an accepted request of the journal to the catalogue, as when it was accepted. Returns the request's work if
    /// the engine is needed for it.
    fn replay(&mut self, served: &Served, accepted: &Accepted) -> anyhow::Result<Option<Work>> {
        self.catalogue.requests = self.catalogue.requests.max(accepted.number);
        let Some(body) = accepted.body.clone() else { return Ok(None) };
        let context = || format!("journal: request {}", accepted.number);
        let endpoint = request::endpoints().find(|name| *name == accepted.endpoint);
        let endpoint =
            endpoint.with_context(|| format!("{}: unknown endpoint {:?}", context(), accepted.endpoint))?;
        let registry = Registry { replayed: true, ..self.registry(served) };
        let content = Incoming::new(endpoint, body, served).content;
        let request = content.and_then(|content| content.read(endpoint, registry));
        let Asked { work, .. } = request.map_err(|refusal| match refusal {
            Refusal::Bad(why) | Refusal::Unknown(why) => anyhow::anyhow!("{}: {why}", context()),
        })?;
        Ok(self.register(&work, served.full, accepted.time).is_none().then_some(work))
    }

    /// Records the slot of a rejected request. Returns whether the slot was new.
    fn refuse(&mut self, model: &str, seq: u64) -> bool {
        let has_slot = self.by_slot.contains_key(&request::train_slot(model, seq));
        let entry = self.catalogue.models.get_mut(model);
        entry.is_some_and(|entry| !has_slot && entry.refused.insert(seq))
    }

    fn hold(&mut self, accepted: Accepted) {
        let number = accepted.number;
        for (map, name) in [(&mut self.by_key, &accepted.key), (&mut self.by_slot, &accepted.slot)] {
            map.extend(name.clone().map(|name| (name, number)));
        }
        self.requests.insert(number, Held { accepted, state: State::Waiting(Arc::default()) });
        self.waiting += 1;
    }

    fn finish(&mut self, number: u64, outcome: Outcome) {
        let Some(request) = self.requests.get_mut(&number) else { return };
        let bytes = outcome.bytes();
        let done = State::Done(outcome);
        if let State::Waiting(notify) = std::mem::replace(&mut request.state, done) {
            self.done.push_back((number, Instant::now()));
            self.result_bytes += bytes;
            self.waiting -= 1;
            notify.notify_waiters();
        }
    }

    /// Removes requests whose results are too old or exceed the size limit.
    fn expire(&mut self) {
        while let Some(&(number, at)) = self.done.front()
            && (at.elapsed() > KEPT || self.result_bytes > KEPT_BYTES)
        {
            self.done.pop_front();
            if let Some(Held { accepted, state: State::Done(outcome) }) = self.requests.remove(&number) {
                self.result_bytes -= outcome.bytes();
                accepted.key.map(|key| self.by_key.remove(&key));
                accepted.slot.map(|slot| self.by_slot.remove(&slot));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Source;
    use crate::journal;
    use fgrpo_train::policy::Bounds;
    use std::path::Path;
    use std::sync::mpsc::{Receiver, channel};

    fn open(folder: &Path) -> (Ledger, Vec<Job>, Receiver<Job>) {
        let served = Served {
            name: "base".into(),
            architecture: "Qwen3ForCausalLM".into(),
            full: false,
            bounds: Bounds { vocab_size: 10, positions: 20 },
            teacher: None,
            folder: folder.into(),
            most_waiting: 100,
            resumed: 0,
        };
        let entries = journal::read(folder).unwrap();
        let (sender, receiver) = channel();
        let (ledger, work) = Ledger::open(served, Journal::open(folder).unwrap(), entries, sender).unwrap();
        (ledger, work, receiver)
    }

    fn wait<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    fn accept(ledger: &Ledger, endpoint: &str, key: &str, body: &serde_json::Value) -> u64 {
        let endpoint = request::endpoints().find(|name| *name == endpoint).unwrap();
        let incoming = Incoming::new(endpoint, body.to_string().into_bytes(), ledger.served());
        wait(ledger.accept(Some(key), incoming)).unwrap()
    }

    fn step(seq: u64) -> serde_json::Value {
        serde_json::json!({"model_id": "session-1:train:0", "seq_id": seq, "adam_params": {}})
    }

    /// Creates a session and a model in it. Returns the body and the sequence number of the model's request.
    fn create(ledger: &Ledger) -> (serde_json::Value, u64) {
        accept(ledger, "create_session", "s", &serde_json::json!({}));
        let body = serde_json::json!({
            "session_id": "session-1", "model_seq_id": 0, "base_model": "base", "lora_config": {"rank": 2},
        });
        let number = accept(ledger, "create_model", "c", &body);
        (body, number)
    }

    #[test]
    fn a_shortened_journal_has_all_that_a_restart_needs() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ledger, work, _jobs) = open(folder.path());
        assert!(work.is_empty());
        let (create, model) = create(&ledger);
        let numbers: Vec<u64> = std::iter::once(model)
            .chain((1..=4).map(|seq| accept(&ledger, "optim_step", &format!("k{seq}"), &step(seq))))
            .collect();
        let sampler = Sampler { id: "session-1:sample:3".into(), source: Source::Base, seq: None };
        for (i, &number) in numbers[..4].iter().enumerate() {
            let sampler = (i == 3).then(|| sampler.clone());
            ledger.finish(number, Outcome::Json(format!("{{\"result\": {i}}}").into_bytes()), sampler);
        }
        assert!(ledger.sync());
        // The model's state contains steps 1 and 2; step 3 was processed since, and step 4 waits.
        ledger.longest = 1;
        ledger.shorten([numbers[3]].into()).unwrap();
        let entries = journal::read(folder.path()).unwrap().into_iter().filter_map(|entry| match entry {
            Entry::Accepted(accepted) => Some((accepted.number, accepted.body.is_some())),
            _ => None,
        });
        let has_body: BTreeMap<u64, bool> = entries.collect();
        assert_eq!(
            numbers.iter().map(|number| has_body[number]).collect::<Vec<_>>(),
            [false, false, false, true, true]
        );
        // Records after the shortening are there too.
        let last = accept(&ledger, "optim_step", "k5", &step(5));
        let catalogue = ledger.with(|registry| registry.catalogue.clone());
        drop(ledger);
        let (ledger, work, _jobs) = open(folder.path());
        assert_eq!(ledger.with(|registry| registry.catalogue.clone()), catalogue);
        let again: Vec<(u64, bool)> = work.iter().map(|job| (job.number, job.finished)).collect();
        assert_eq!(again, [(numbers[3], true), (numbers[4], false), (last, false)]);
        for (i, &number) in numbers[..4].iter().enumerate() {
            let Found::Done(Outcome::Json(bytes)) = ledger.find(number) else {
                panic!("the result of {number} is gone")
            };
            assert_eq!(bytes, format!("{{\"result\": {i}}}").into_bytes());
        }
        assert!(matches!(ledger.find(numbers[4]), Found::Waiting(_)));
        assert!(ledger.with(|registry| registry.sampler("session-1:sample:3").is_ok()));
        // Repetitions are recognised by key and by slot.
        assert_eq!(accept(&ledger, "optim_step", "k1", &step(1)), numbers[1]);
        assert_eq!(accept(&ledger, "optim_step", "other", &step(2)), numbers[2]);
        assert_eq!(accept(&ledger, "create_model", "", &create), numbers[0]);
    }

    #[test]
    fn results_and_requests_arrive_while_the_journal_is_shortened() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ledger, _, _jobs) = open(folder.path());
        let (_, model) = create(&ledger);
        ledger.longest = 0;
        let done = |number| ledger.finish(number, Outcome::Json(b"{}".to_vec()), None);
        let numbers: Vec<u64> = std::thread::scope(|scope| {
            let shortening = scope.spawn(|| {
                (0..20).for_each(|_| ledger.shorten([model].into()).unwrap());
            });
            let mut numbers = vec![model];
            while !shortening.is_finished() {
                let seq = numbers.len() as u64;
                numbers.push(accept(&ledger, "optim_step", &format!("k{seq}"), &step(seq)));
                done(numbers[numbers.len() - 1]);
            }
            numbers
        });
        done(model);
        drop(ledger);
        let (ledger, work, _jobs) = open(folder.path());
        assert!(numbers.iter().all(|&number| matches!(ledger.find(number), Found::Done(_))));
        assert!(work.iter().all(|job| job.finished));
    }

    #[test]
    fn a_shortened_journal_has_what_a_restart_needs_and_clients_no_longer_do() {
        let folder = tempfile::tempdir().unwrap();
        let (mut ledger, _, _jobs) = open(folder.path());
        let (_, model) = create(&ledger);
        ledger.finish(model, Outcome::Json(b"{}".to_vec()), None);
        assert!(ledger.sync());
        // Simulates that the result has expired after an hour.
        ledger.table().requests.remove(&model);
        ledger.longest = 1;
        ledger.shorten([model].into()).unwrap();
        drop(ledger);
        let (_, work, _jobs) = open(folder.path());
        assert_eq!(work.iter().map(|job| (job.number, job.finished)).collect::<Vec<_>>(), [(model, true)]);
    }
}
