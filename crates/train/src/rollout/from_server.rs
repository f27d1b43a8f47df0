//! Completions from an OpenAI-compatible server, with prompts sent as token ids. The server samples, and the trainer
//! scores the sampled tokens to get `old_logp`. The server's log-probabilities are only used to correct for the
//! difference between the two engines. Each answer is stored in the run folder until a checkpoint makes it
//! unnecessary, so that a resumed run trains on the same completions. A server's samples aren't reproducible across
//! batches or after an update of the weights.

use super::answer::{Answer, Reader, Unusable};
use super::{Draws, Rollouts, check_prompt};
use crate::config::ServerConfig;
use crate::policy::{Policy, Sequence, SequenceScores};
use crate::problem::{Prompt, Task};
use crate::run::folder::ANSWERS;
use anyhow::{Context, bail};
use fgrpo_core::rng::Key;
use fgrpo_eval::failure::{Advised, Remedy};
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::lines::{self, JsonLines};
use fgrpo_eval::io::process_group::ProcessGroup;
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_eval::io::server::sampling::ServerApi;
use fgrpo_eval::io::server::{Failure, Server};
use fgrpo_eval::io::shell::quoted;
use fgrpo_nn::{Completion, Finish};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read, Seek};
use std::ops::ControlFlow::Continue;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Maximum number of attempts to get an answer with a usable sample.
const TRIES: usize = 5;

/// A server that samples for a run.
#[derive(Debug)]
pub struct ServerRollouts {
    config: ServerConfig,
    server: Server,
    /// Name of the model, requested on first use, because stored answers may cover a resumed step.
    model: Option<String>,
    /// Folder of the stored answers.
    folder: PathBuf,
    /// Model names in answers that differ from the requested name.
    other_models: HashSet<String>,
}

impl ServerRollouts {
    /// Sets up a server for the run in the folder `run`, without sending a request.
    ///
    /// # Errors
    /// Bad input: an invalid address, or an API key variable that isn't set.
    pub fn open(config: &ServerConfig, run: &Path) -> anyhow::Result<Self> {
        let server =
            Server::new(&config.url, config.key_env.as_deref(), config.retry()).context("rollout.server")?;
        Ok(Self {
            config: config.clone(),
            server,
            model: config.model.clone(),
            folder: run.join(ANSWERS),
            other_models: HashSet::new(),
        })
    }

    /// Samples completions of each prompt and scores them with `policy`. Returns `None` if interrupted, after storing
    /// the answers received so far.
    ///
    /// # Errors
    /// The server can't be reached, rejects the request, or answers in an unsupported format.
    pub fn sample(
        &mut self,
        policy: &mut Policy,
        task: &Task,
        prompts: Vec<Prompt>,
        draws: &Draws,
        (step, key): (u64, Key),
    ) -> anyhow::Result<Option<Vec<Rollouts>>> {
        let group_size = draws.group_size;
        let bodies: Vec<Map<String, Value>> = prompts
            .iter()
            .zip(super::keys(&prompts, key))
            .flat_map(|(p, key)| (0..group_size).map(move |i| (p, key.with(i as u64))))
            .map(|(p, key)| self.body(p, draws, policy, key))
            .collect::<anyhow::Result<_>>()?;
        let names: Vec<String> = bodies.iter().map(fingerprint).collect();
        let path = self.folder.join(format!("step-{step:06}.jsonl"));
        let mut answers: HashMap<String, Answer> =
            lines::read::<Answer>(&path)?.into_iter().map(|a| (a.request.clone(), a)).collect();
        let reader = Reader::new(
            &task.language,
            self.config.api,
            task.language.stop_tokens(),
            draws.sampling.max_tokens,
        );
        let mut problem = String::new();
        for round in 0..=TRIES {
            let mut lacking: Vec<usize> =
                (0..bodies.len()).filter(|&i| !answers.contains_key(&names[i])).collect();
            // Identical requests share one answer.
            lacking.sort_by_key(|&i| (&names[i], i));
            lacking.dedup_by_key(|&mut i| &names[i]);
            lacking.sort_unstable();
            if lacking.is_empty() {
                break;
            }
            if round == TRIES {
                bail!(
                    "{}: {} samples are still missing after {TRIES} answers each; the last problem: {problem}",
                    self.server.base(),
                    lacking.len()
                );
            }
            let model = self.model()?;
            // Doesn't create the run folder, which may have been moved.
            match std::fs::create_dir(&self.folder) {
                Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                    Err(e).with_context(|| format!("creating {}", self.folder.display()))?;
                }
                _ => {}
            }
            let mut stored = JsonLines::append(&path)?;
            let requests: Vec<Value> = lacking
                .iter()
                .map(|&i| {
                    let mut body = bodies[i].clone();
                    body.insert("model".into(), json!(model));
                    Value::Object(body)
                })
                .collect();
            let request = move |at: usize| ("completions".to_owned(), requests[at].clone());
            let mut stopped = false;
            let server = self.server.clone();
            server.post_all(lacking.len(), request, self.config.concurrency, |at, answer| {
                let i = lacking[at];
                let answer = match answer {
                    Ok(answer) => answer,
                    Err(Failure::Stopped) => {
                        stopped = true;
                        return Ok(Continue(()));
                    }
                    Err(failure @ Failure::Refused { .. }) => {
                        bad_input!("rollout.server: the server rejects the request: {failure}")
                    }
                    Err(failure) => return Err(saved(format!("rollout.server: {failure}"))),
                };
                self.notice_model(&model, &answer);
                match reader.read(&names[i], &prompts[i / group_size].tokens, &answer) {
                    Ok(answer) => {
                        stored.push(&answer)?;
                        answers.insert(names[i].clone(), answer);
                    }
                    Err(Unusable::Transient(message)) => problem = server.shown(&message),
                    Err(Unusable::Form(message)) => {
                        bad_input!("rollout.server: {}: {}", server.base(), server.shown(&message))
                    }
                }
                Ok(Continue(()))
            })?;
            if stopped || (interrupt::requested() && names.iter().any(|n| !answers.contains_key(n))) {
                return Ok(None);
            }
        }
        let samples = |p: usize| -> Vec<&Answer> {
            (0..group_size).map(|i| &answers[&names[p * group_size + i]]).collect()
        };
        let answers: Vec<Vec<&Answer>> = (0..prompts.len()).map(samples).collect();
        scored(policy, prompts, &answers, draws.sampling.temperature as f32).map(Some)
    }

    /// Deletes the stored answers up to `step`, because a resume doesn't need them any more.
    ///
    /// # Errors
    /// An I/O error that names the file.
    pub fn forget(&self, step: u64) -> anyhow::Result<()> {
        let Ok(files) = std::fs::read_dir(&self.folder) else { return Ok(()) };
        for file in files {
            let path = file.with_context(|| format!("reading {}", self.folder.display()))?.path();
            let stored =
                path.file_stem().and_then(|s| s.to_str()?.strip_prefix("step-")?.parse::<u64>().ok());
            if stored.is_some_and(|stored| stored <= step) {
                std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Runs `on_checkpoint` for a new checkpoint and waits until the command ends or the run is interrupted. A resume
    /// runs the command again.
    ///
    /// # Errors
    /// The command can't be run, or its exit code isn't 0.
    pub fn notify(&self, checkpoint: &Path) -> anyhow::Result<()> {
        let Some(command) = &self.config.on_checkpoint else { return Ok(()) };
        let folder = std::path::absolute(checkpoint).unwrap_or_else(|_| checkpoint.to_owned());
        let command = command.replace("{checkpoint}", &quoted(&folder.to_string_lossy()));
        // The command's output is shown only if it fails.
        let context = || format!("rollout.server.on_checkpoint: {command}");
        let mut stderr = tempfile::tempfile().with_context(context)?;
        let mut shell = Command::new("sh");
        shell.args(["-c", &command]).stdin(Stdio::null()).stdout(Stdio::null());
        shell.stderr(stderr.try_clone().with_context(context)?);
        let ended = ProcessGroup::spawn(&mut shell).and_then(ProcessGroup::wait).with_context(context)?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            let mut output = Vec::new();
            stderr.rewind().and_then(|()| stderr.read_to_end(&mut output)).with_context(context)?;
            let output = String::from_utf8_lossy(&output);
            let last: Vec<&str> = output.trim().lines().rev().take(5).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join(" | ");
            return Err(saved(format!(
                "rollout.server.on_checkpoint: `{command}` ended with {status}: {last}"
            )));
        }
        Ok(())
    }

    fn model(&mut self) -> anyhow::Result<String> {
        if let Some(model) = &self.model {
            return Ok(model.clone());
        }
        let models = self.server.models().context("rollout.server")?;
        let [only] = models.as_slice() else {
            bad_input!(
                "rollout.server.model: set the name of the model; the server lists {}",
                if models.is_empty() {
                    "no models".to_owned()
                } else {
                    self.server.shown(&models.join(", "))
                }
            );
        };
        self.model = Some(only.clone());
        Ok(only.clone())
    }

    /// Warns once about each model name in answers that differs from the requested one.
    fn notice_model(&mut self, requested: &str, answer: &Value) {
        if let Some(other) = answer["model"].as_str().filter(|m| *m != requested)
            && self.other_models.insert(other.to_owned())
        {
            tracing::warn!(
                "rollout.server: the requested model is {requested}, but the server answers as {}: make sure that it serves the policy being trained",
                self.server.shown(other)
            );
        }
    }

    /// Returns the request for one sample, without the model name.
    fn body(
        &self,
        prompt: &Prompt,
        draws: &Draws,
        policy: &Policy,
        key: Key,
    ) -> anyhow::Result<Map<String, Value>> {
        let api = self.config.api;
        check_prompt(policy, prompt)?;
        let max_tokens = draws.sampling.max_tokens.min(policy.positions() - prompt.tokens.len());
        let drawing = RequestSampling { max_tokens, ..draws.sampling };
        let mut body = drawing.fields(Some(api));
        let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
        set("prompt", json!(prompt.tokens));
        // Some servers store seeds as signed 32-bit integers.
        set("seed", json!(key.bits(0) >> 33));
        set("logprobs", json!(1));
        set("n", json!(1));
        match api {
            ServerApi::Openai => {}
            ServerApi::LlamaCpp => {
                set("n_probs", json!(1));
            }
            ServerApi::Vllm | ServerApi::Sglang => {
                set("stop_token_ids", json!(policy.language().stop_tokens()));
                set("skip_special_tokens", json!(false));
                set("return_token_ids", json!(true));
                let name = if api == ServerApi::Vllm { "return_tokens_as_token_ids" } else { "no_stop_trim" };
                set(name, json!(true));
            }
        }
        Ok(body)
    }
}

fn fingerprint(body: &Map<String, Value>) -> String {
    let text = serde_json::to_vec(body).expect("a map of strings and numbers");
    Sha256::digest(text)[..12].iter().map(|b| format!("{b:02x}")).collect()
}

/// Computes the trainer's log-probabilities of the tokens that the server sampled.
fn scored(
    policy: &mut Policy,
    prompts: Vec<Prompt>,
    answers: &[Vec<&Answer>],
    temperature: f32,
) -> anyhow::Result<Vec<Rollouts>> {
    let pairs =
        prompts.iter().zip(answers).flat_map(|(prompt, answers)| answers.iter().map(move |a| (prompt, a)));
    let sequences: Vec<Sequence> =
        pairs.map(|(prompt, answer)| Sequence::completion(&prompt.tokens, &answer.tokens)).collect();
    let mut scores = policy.score(&sequences, temperature)?.into_iter();
    let rollouts = prompts.into_iter().zip(answers).enumerate().map(|(at, (prompt, answers))| {
        let mut completions = Vec::with_capacity(answers.len());
        let mut sampler_logp = Vec::with_capacity(answers.len());
        for (sample, (answer, SequenceScores { logp, entropy })) in
            answers.iter().zip(&mut scores).enumerate()
        {
            // For an end token that the server left out, use the trainer's log-probability.
            let server = answer.logp.iter().zip(&logp);
            sampler_logp.push(server.map(|(s, &trainer)| s.map_or(trainer, |logp| logp as f32)).collect());
            completions.push(Completion {
                prompt: at,
                sample,
                tokens: answer.tokens.clone(),
                logp,
                entropy,
                finish: if answer.truncated { Finish::Length } else { Finish::Stop },
                cached: 0,
            });
        }
        Rollouts { sampler_logp: Some(sampler_logp), ..Rollouts::new(prompt, completions) }
    });
    Ok(rollouts.collect())
}

/// Returns an error that adds to `text` how to resume the run.
fn saved(text: String) -> anyhow::Error {
    Advised { text: text + ". The state is saved", bad_input: false, remedies: &[Remedy::Resume] }.into()
}
