//! The engine in the caller's process.
//!
//! One thread owns the policy and does the calls in order. The caller's thread waits without the GIL and looks for signals,
//! so Ctrl-C stops sampling between two tokens, but a pass or an update in progress is finished first. A forked child lacks
//! the engine's thread, so its calls raise an error.

use crate::call::bad;
use fgrpo::args::places;
use fgrpo_core::rng::Key;
use fgrpo_eval::failure::{BadInput, Remedy, exit_code, in_one_line, with_advice};
use fgrpo_eval::io::json;
use fgrpo_nn::{AdamW, DeviceName, Finish, Precision};
use fgrpo_train::config::{ComputeConfig, LoraTable};
use fgrpo_train::device;
use fgrpo_train::language::Language;
use fgrpo_train::language::chat::{ChatOptions, ChatTemplate};
use fgrpo_train::language::stop::{Stop, StopTexts};
use fgrpo_train::policy::{Datum, Loss, Policy, PolicyOptions, Request, Sampling, Sequence};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use serde_json::Value;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Interval at which a waiting caller looks for signals.
const LOOK: Duration = Duration::from_millis(50);

type Job = Box<dyn FnOnce(&mut Policy) + Send>;
type Floats<'py> = PyReadonlyArray1<'py, f32>;
type Ints<'py> = PyReadonlyArray1<'py, i64>;
type F32<'py> = Bound<'py, PyArray1<f32>>;
type I64<'py> = Bound<'py, PyArray1<i64>>;
/// Concatenated tokens, log-probabilities and entropies; each sample's length, text, whether it stopped, cached tokens.
type Sampled<'py> = (I64<'py>, F32<'py>, F32<'py>, Vec<usize>, Vec<String>, Vec<bool>, Vec<usize>);
/// Loss; number of tokens; mean ratio, mean KL divergence from the sampler, and fractions of tokens clipped below and
/// above; largest ratio and largest log-probability difference.
type Sums = (f64, u64, [f64; 4], [f64; 2]);

/// A policy that Python's own loop samples and trains.
#[pyclass(frozen, module = "fgrpo._native")]
pub(crate) struct Engine {
    jobs: Mutex<Sender<Job>>,
    pub(crate) language: Arc<Language>,
    process: u32,
    #[pyo3(get)]
    vocab_size: usize,
    #[pyo3(get)]
    pub(crate) positions: usize,
    #[pyo3(get)]
    parameters: usize,
    #[pyo3(get)]
    trained_parameters: usize,
}

/// Converts an error to a `ValueError` if it is bad input, and to a `RuntimeError` otherwise.
pub(crate) fn raised(error: &anyhow::Error) -> PyErr {
    let line = with_advice(error, |remedy| match remedy {
        Remedy::Resume => "use if_exists=\"resume\"",
        Remedy::Restart => "delete the run and start it again with if_exists=\"restart\"",
        Remedy::AcceptChanges => "use if_exists=\"resume\" with accept_changes=True",
        Remedy::OtherFolder => "choose another folder",
        Remedy::NewPlace => "use if_exists=\"resume\" with its new path",
        Remedy::Uneven => "use `fgrpo compare` with --uneven",
        Remedy::AnyStep => "choose among all evaluations",
    });
    match exit_code(error) {
        2 => bad(line),
        _ => PyRuntimeError::new_err(line),
    }
}

/// Returns the exception for a panic, after which the engine's weights are unknown.
fn ended(panic: &(dyn Any + Send)) -> PyErr {
    PyRuntimeError::new_err(format!("internal error, please report it: {}", crate::call::text_of(panic)))
}

/// Waits for a result without the GIL. `stop` is set when a signal's handler raises, and its exception replaces the result.
fn wait<T: Send>(py: Python<'_>, result: Receiver<T>, stop: &AtomicBool) -> PyResult<T> {
    let result = Mutex::new(result);
    let mut raised = None;
    loop {
        let next = py.detach(|| result.lock().expect("no panic").recv_timeout(LOOK));
        match next {
            Ok(value) => return raised.map_or(Ok(value), Err),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(
                    "the engine has stopped after an internal error; open a new one",
                ));
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Err(error) = py.check_signals() {
                    stop.store(true, Ordering::Relaxed);
                    raised.get_or_insert(error);
                }
            }
        }
    }
}

impl Engine {
    /// Runs `work` on the engine's thread. If a signal's handler raises, the flag is set, and `work` should stop early.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Policy, &AtomicBool) -> anyhow::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        if std::process::id() != self.process {
            return Err(PyRuntimeError::new_err(
                "this engine was opened before a fork, and its thread is not in this process; open it in the process that uses it",
            ));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let (done, result) = channel();
        let flag = Arc::clone(&stop);
        let job: Job = Box::new(move |policy| {
            let result = catch_unwind(AssertUnwindSafe(|| work(policy, &flag)));
            let panicked = result.is_err();
            // The caller waits for it.
            let _ = done.send(result);
            // The policy may be partly changed, so the thread ends, and later calls report this.
            assert!(!panicked, "the panic above");
        });
        // A failure to send is noticed while waiting, because the job's end of the channel is dropped.
        let _ = self.jobs.lock().expect("no panic").send(job);
        match wait(py, result, &stop)? {
            Ok(value) => value.map_err(|error| raised(&error)),
            Err(panic) => Err(ended(&*panic)),
        }
    }
}

/// Splits concatenated tokens into sequences of these lengths.
fn sequences(tokens: &[i64], lengths: &[i64]) -> PyResult<Vec<Vec<u32>>> {
    let mut rest = tokens;
    let mut all = Vec::with_capacity(lengths.len());
    for (index, &length) in lengths.iter().enumerate() {
        let (sequence, others) = rest.split_at(length as usize);
        let token = |&token: &i64| {
            u32::try_from(token).map_err(|_| {
                bad(format!("sequence {index}: expected ids of at least 0, found token {token}"))
            })
        };
        all.push(sequence.iter().map(token).collect::<PyResult<_>>()?);
        rest = others;
    }
    Ok(all)
}

#[pymethods]
impl Engine {
    #[expect(clippy::too_many_arguments, reason = "the Python half names them")]
    #[new]
    fn open(
        py: Python<'_>,
        model: PathBuf,
        adapter: Option<PathBuf>,
        lora: Option<&str>,
        device: &str,
        threads: usize,
        precision: &str,
        seed: u64,
    ) -> PyResult<Self> {
        let lora: Option<LoraTable> = lora
            .map(|text| json::parse(text.as_bytes()))
            .transpose()
            .map_err(|why| bad(format!("lora: {}", in_one_line(&why.into()))))?;
        let device: DeviceName = device.parse().map_err(|why| bad(format!("device: {why}")))?;
        let precision: Precision = precision.parse().map_err(|why| bad(format!("precision: {why}")))?;
        let compute = ComputeConfig { threads, precision, ..ComputeConfig::default() };
        let (jobs, todo) = channel::<Job>();
        let (done, opened) = channel();
        let open = move || -> anyhow::Result<Policy> {
            let model = places::model_for_library("model", model)?;
            let device = device::named(device, &compute)?;
            Policy::open(&model, &PolicyOptions { device, adapter, lora, seed })
        };
        std::thread::Builder::new()
            .name("fgrpo-engine".to_owned())
            .spawn(move || {
                let opened = catch_unwind(open);
                let (mut policy, about) = match opened {
                    Ok(Ok(policy)) => {
                        let engine = policy.engine();
                        let config = engine.config();
                        let sizes = [
                            config.vocab_size,
                            config.context(),
                            engine.parameters(),
                            engine.trained_parameters(),
                        ];
                        let about = (sizes, Arc::clone(policy.language()));
                        (Some(policy), Ok(Ok(about)))
                    }
                    Ok(Err(error)) => (None, Ok(Err(error))),
                    Err(panic) => (None, Err(panic)),
                };
                let _ = done.send(about);
                if let Some(policy) = &mut policy {
                    todo.iter().for_each(|job| job(policy));
                }
            })
            .map_err(|why| PyRuntimeError::new_err(format!("starting the engine's thread: {why}")))?;
        let opened = wait(py, opened, &AtomicBool::new(false))?.map_err(|panic| ended(&*panic))?;
        let ([vocab_size, positions, parameters, trained_parameters], language) =
            opened.map_err(|error| raised(&error))?;
        let (jobs, process) = (Mutex::new(jobs), std::process::id());
        Ok(Self { jobs, language, process, vocab_size, positions, parameters, trained_parameters })
    }

    #[expect(clippy::too_many_arguments, reason = "the Python half names them")]
    fn sample<'py>(
        &self,
        py: Python<'py>,
        tokens: Ints<'py>,
        lengths: Ints<'py>,
        n: usize,
        max_tokens: usize,
        cuts: (f32, f32, usize, f32),
        stop: Vec<String>,
        seed: Option<u64>,
        indices: Option<Vec<[u64; 3]>>,
    ) -> PyResult<Sampled<'py>> {
        let prompts = sequences(tokens.as_slice()?, lengths.as_slice()?)?;
        let stop = StopTexts::new("stop", stop).map_err(|error| raised(&error))?;
        let (temperature, top_p, top_k, min_p) = cuts;
        let sampling = Sampling { temperature, top_p, top_k, min_p, keep_cache: true, ..Sampling::default() };
        let groups = self.call(py, move |policy, interrupted| {
            for (at, prompt) in prompts.iter().enumerate() {
                policy.check_prompt(&format!("prompts[{at}]"), prompt)?;
            }
            let key = seed.map_or_else(|| policy.next_key(), Key::new);
            let stop = Stop { tokens: policy.language().stop_tokens().to_vec(), texts: stop };
            let request = |(at, prompt): (usize, Vec<u32>)| Request {
                prompt,
                samples: 0..n,
                max_tokens,
                stop: Some(stop.clone()),
                key: indices
                    .as_ref()
                    .map_or(key.with(at as u64), |all| all[at].iter().fold(key, |key, &x| key.with(x))),
            };
            let requests: Vec<Request> = prompts.into_iter().enumerate().map(request).collect();
            let groups =
                policy.sample_while(&requests, &sampling, &|| !interrupted.load(Ordering::Relaxed))?;
            let texts = groups.iter().flatten().flatten();
            let texts = texts
                .map(|c| policy.language().answer_until(&stop.texts, &c.tokens))
                .collect::<Result<_, _>>()?;
            Ok((groups, texts))
        })?;
        // Without groups a signal's handler has raised, and `call` has returned its exception.
        let (groups, texts) = (groups.0.unwrap_or_default(), groups.1);
        let all = || groups.iter().flatten();
        Ok((
            all()
                .flat_map(|c| c.tokens.iter().map(|&token| i64::from(token)))
                .collect::<Vec<_>>()
                .into_pyarray(py),
            all().flat_map(|c| c.logp.iter().copied()).collect::<Vec<_>>().into_pyarray(py),
            all().flat_map(|c| c.entropy.iter().copied()).collect::<Vec<_>>().into_pyarray(py),
            all().map(|c| c.tokens.len()).collect(),
            texts,
            all().map(|c| c.finish == Finish::Stop).collect(),
            all().map(|c| c.cached).collect(),
        ))
    }

    fn score<'py>(
        &self,
        py: Python<'py>,
        tokens: Ints<'py>,
        lengths: Ints<'py>,
        temperature: f32,
    ) -> PyResult<(F32<'py>, F32<'py>)> {
        let sequences = sequences(tokens.as_slice()?, lengths.as_slice()?)?;
        let sequences: Vec<Sequence> = sequences.into_iter().map(Sequence::new).collect();
        let scores = self.call(py, move |policy, _| policy.score(&sequences, temperature))?;
        let logp: Vec<f32> = scores.iter().flat_map(|score| score.logp.iter().copied()).collect();
        let entropy: Vec<f32> = scores.iter().flat_map(|score| score.entropy.iter().copied()).collect();
        Ok((logp.into_pyarray(py), entropy.into_pyarray(py)))
    }

    #[expect(clippy::too_many_arguments, reason = "the Python half names them")]
    /// Adds the gradient of a loss. `places` (indices of tokens), `logprobs`, `advantages` and `dlogp` have one value
    /// for each token in the loss, datum after datum; `counts` has the number of these tokens in each datum.
    fn forward_backward<'py>(
        &self,
        py: Python<'py>,
        tokens: Ints<'py>,
        lengths: Ints<'py>,
        places: Ints<'py>,
        counts: Ints<'py>,
        logprobs: Floats<'py>,
        advantages: PyReadonlyArray1<'py, f64>,
        loss: Option<&str>,
        dlogp: Option<Floats<'py>>,
        max_len: usize,
        temperature: f32,
    ) -> PyResult<Sums> {
        let mut data = Vec::new();
        let (mut first, mut derivatives) = (0, Vec::new());
        for (tokens, &count) in
            sequences(tokens.as_slice()?, lengths.as_slice()?)?.into_iter().zip(counts.as_slice()?)
        {
            let range = first..first + count as usize;
            first = range.end;
            if let Some(dlogp) = &dlogp {
                derivatives.push(dlogp.as_slice()?[range.clone()].to_vec());
            }
            let indices: Vec<usize> =
                places.as_slice()?[range.clone()].iter().map(|&place| place as usize).collect();
            data.push(Datum {
                sequences: vec![Sequence::of_indices(tokens, &indices)],
                logprobs: logprobs.as_slice()?[range.clone()].to_vec(),
                advantages: advantages.as_slice()?[range].to_vec(),
                ..Datum::default()
            });
        }
        let loss = match loss {
            None => Loss::Derivatives(derivatives),
            Some("\"cross_entropy\"") => {
                // The mean over tokens.
                let tokens = data.iter().map(Datum::len).sum::<usize>() as f64;
                data.iter_mut().flat_map(|datum| &mut datum.advantages).for_each(|weight| *weight /= tokens);
                Loss::CrossEntropy
            }
            Some(keys) => json::parse(keys.as_bytes())
                .map_err(anyhow::Error::from)
                .and_then(|keys| Loss::policy(keys, max_len))
                .map_err(|error| bad(in_one_line(&error)))?,
        };
        let sums = self.call(py, move |policy, _| {
            let sums = policy.forward_backward(&data, &loss, temperature)?.sums;
            if !sums.loss.is_finite() {
                policy.zero_gradient();
                let words = format!("loss: the loss is {}; the gradient has been reset to 0", sums.loss);
                return Err(BadInput(words).into());
            }
            Ok(sums)
        })?;
        let mean = |sum: f64| if sums.tokens == 0 { 0.0 } else { sum / sums.tokens as f64 };
        let means = [
            mean(sums.ratio),
            mean(sums.kl_to_sampler),
            mean(sums.clipped_low as f64),
            mean(sums.clipped_high as f64),
        ];
        Ok((sums.loss, sums.tokens, means, [sums.ratio_max, sums.logp_difference_max]))
    }

    fn optim_step(
        &self,
        py: Python<'_>,
        lr: f64,
        betas: (f64, f64),
        eps: f64,
        weight_decay: f64,
        max_grad_norm: Option<f64>,
    ) -> PyResult<(f64, bool)> {
        let adamw = AdamW { lr, beta1: betas.0, beta2: betas.1, eps, weight_decay, ..AdamW::default() };
        let report = self.call(py, move |policy, _| policy.step(&adamw, max_grad_norm))?;
        Ok((report.gradient_norm, report.applied))
    }

    fn zero_grad(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |policy, _| {
            policy.zero_gradient();
            Ok(())
        })
    }

    fn save(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        self.call(py, move |policy, _| policy.save(&folder))
    }

    fn save_state(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        self.call(py, move |policy, _| policy.save_state(&folder))
    }

    fn load_state(&self, py: Python<'_>, folder: PathBuf) -> PyResult<()> {
        self.call(py, move |policy, _| policy.load_state(&folder))
    }

    /// Encodes a string as token ids. If `special` is true, the special tokens that the tokenizer adds are included.
    fn encode(&self, text: &str, special: bool) -> PyResult<Vec<u32>> {
        let ids = if special { self.language.plain(text) } else { self.language.encode(text) };
        ids.map_err(|error| raised(&error))
    }

    fn decode(&self, tokens: Vec<u32>, special: bool) -> PyResult<String> {
        self.language.decoded(&tokens, special).map_err(|error| raised(&error))
    }

    /// Renders a conversation as text by the model's template. `messages` and `tools` are JSON.
    fn render(
        &self,
        messages: &str,
        tools: Option<&str>,
        thinking: Option<bool>,
        add_generation_prompt: bool,
    ) -> PyResult<String> {
        let read = |name: &str, text: &str| -> PyResult<Vec<Value>> {
            json::parse(text.as_bytes()).map_err(|why| bad(format!("{name}: {}", in_one_line(&why.into()))))
        };
        let messages = read("messages", messages)?;
        let tools = tools.map(|text| read("tools", text)).transpose()?;
        let Some(template) = self.language.template() else {
            return Err(bad("messages: this model has no chat template; encode a text instead"));
        };
        let options =
            ChatOptions { add_generation_prompt, enable_thinking: thinking, ..ChatOptions::default() };
        template.render_values(&messages, &tools, &options).map_err(|error| raised(&error))
    }

    /// Returns the chat template's source, or `None` for a model without a template.
    #[getter]
    fn template(&self) -> Option<&str> {
        self.language.template().map(ChatTemplate::source)
    }

    #[getter]
    fn stop_tokens(&self) -> Vec<u32> {
        self.language.stop_tokens().to_vec()
    }
}
