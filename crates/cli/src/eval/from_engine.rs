//! Samples from the embedded engine on a checkpoint folder.

use super::generations::{Generation, Generations};
use super::problem_key;
use super::problems::{Problem, Question};
use crate::chat::{ChatOptions, ChatTemplate};
use crate::failure::OrBadInput;
use crate::task::language::answer;
use crate::task::stop::StopTexts;
use crate::{bad_input, interrupt, policy};
use anyhow::Context;
use fgrpo_core::maze::tokens;
use fgrpo_core::rng::Key;
use fgrpo_nn::weights::Checkpoint;
use fgrpo_nn::{Device, Finish, Prompt, Sampling, StopFn};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::ControlFlow;
use std::path::Path;
use tokenizers::Tokenizer;

/// What identifies a checkpoint's weights: names, sizes and, of each weights file, its first bytes and
/// blocks spread over the rest. Cheap for any size; a training step changes every block.
///
/// # Errors
/// Bad input: a folder without weights.
pub fn fingerprint(dir: &Path) -> anyhow::Result<String> {
    fingerprint_of("--model", dir, "config.json")
}

/// The same of an adapter's folder in PEFT's layout.
///
/// # Errors
/// Bad input: a folder without an adapter.
pub fn adapter_fingerprint(dir: &Path) -> anyhow::Result<String> {
    fingerprint_of("--adapter", dir, "adapter_config.json")
}

fn fingerprint_of(flag: &str, dir: &Path, config: &str) -> anyhow::Result<String> {
    const BLOCK: usize = 1 << 16;
    const BLOCKS: u64 = 16;
    let list = std::fs::read_dir(dir)
        .with_context(|| format!("{flag} {}: cannot list", dir.display()))
        .or_bad_input()?;
    let mut files: Vec<_> = list
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "safetensors"))
        .collect();
    files.sort();
    if files.is_empty() {
        bad_input!("{flag} {}: found no .safetensors file in the folder", dir.display());
    }
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    for path in files.iter().chain([&dir.join(config)]) {
        let read = |file: &mut File, block: &mut [u8], at: u64| -> std::io::Result<usize> {
            file.seek(SeekFrom::Start(at))?;
            let mut filled = 0;
            loop {
                match file.read(&mut block[filled..])? {
                    0 => return Ok(filled),
                    n => filled += n,
                }
            }
        };
        let mut file =
            File::open(path).with_context(|| format!("{}: cannot open", path.display())).or_bad_input()?;
        let size = file.metadata().with_context(|| path.display().to_string())?.len();
        hash.update(size.to_le_bytes());
        for i in 0..BLOCKS {
            let at = size / BLOCKS * i;
            let n = read(&mut file, &mut block, at)
                .with_context(|| format!("{}: cannot read", path.display()))?;
            hash.update(&block[..n]);
            if size <= BLOCK as u64 {
                break;
            }
        }
    }
    Ok(hash.finalize().iter().take(12).map(|b| format!("{b:02x}")).collect())
}

/// How the prompts of a data set become tokens.
pub(super) struct Text {
    tokenizer: Tokenizer,
    template: Option<ChatTemplate>,
    options: ChatOptions,
}

impl Text {
    pub(super) fn open(dir: &Path, thinking: Option<bool>) -> anyhow::Result<Self> {
        let path = dir.join("tokenizer.json");
        let tokenizer = match Tokenizer::from_file(&path) {
            Ok(tokenizer) => tokenizer,
            Err(e) => bad_input!("{}: {e}", path.display()),
        };
        let has_template = dir.join("chat_template.jinja").exists()
            || std::fs::read_to_string(dir.join("tokenizer_config.json"))
                .is_ok_and(|t| t.contains("\"chat_template\""));
        let template = if has_template { Some(ChatTemplate::open(dir)?) } else { None };
        let options = ChatOptions { enable_thinking: thinking, ..ChatOptions::default() };
        Ok(Self { tokenizer, template, options })
    }

    pub(super) fn encode(&self, problem: &Problem, system: Option<&str>) -> anyhow::Result<Vec<u32>> {
        let (text, special) = match &self.template {
            Some(template) => {
                // It writes the special tokens itself.
                (template.render(&problem.conversation(system), &self.options)?, false)
            }
            None => (problem.text(system), true),
        };
        match self.tokenizer.encode(text, special) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(e) => bad_input!("the prompt of problem {}: {e}", problem.id),
        }
    }

    /// A completion's text as tokens, without an end token.
    pub(super) fn completion(&self, text: &str) -> anyhow::Result<Vec<u32>> {
        match self.tokenizer.encode(text, false) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(e) => bad_input!("a completion can't be tokenised: {e}"),
        }
    }
}

/// Which samples to make, and how.
pub struct Request<'a> {
    /// The checkpoint's folder.
    pub dir: &'a Path,
    /// A LoRA adapter of it.
    pub adapter: Option<&'a Path>,
    /// Where it runs.
    pub device: Device,
    /// The problems.
    pub problems: &'a [Problem],
    /// System prompt, for conversations.
    pub system: Option<&'a str>,
    /// `enable_thinking` of the chat template.
    pub thinking: Option<bool>,
    /// Samples per problem.
    pub n: u64,
    /// How tokens are drawn; stop tokens are added to it.
    pub sampling: Sampling,
    /// Texts that end a response beside them.
    pub stop: &'a StopTexts,
    /// Seed of the draws.
    pub seed: u64,
}

/// Samples stored at a time.
const BATCH: usize = 64;

/// Generates what `store` lacks. Returns whether everything asked for is there now.
///
/// # Errors
/// A checkpoint that can't be opened, and what the engine reports.
pub fn generate(request: Request<'_>, store: &mut Generations) -> anyhow::Result<bool> {
    let wanted: Vec<(usize, std::ops::Range<u64>)> = request
        .problems
        .iter()
        .enumerate()
        .flat_map(|(at, p)| {
            super::from_server::runs(&store.missing(&p.id, request.n)).into_iter().map(move |r| (at, r))
        })
        .map(|(at, (first, count))| (at, first..first + count))
        .collect();
    if wanted.is_empty() {
        return Ok(true);
    }
    let checkpoint = Checkpoint::open(request.dir).or_bad_input()?;
    let mut engine = policy::open(request.dir, request.adapter, &request.device)?;
    let mazes = request.problems.iter().all(|p| matches!(p.question, Question::Maze(_)));
    let text = if mazes { None } else { Some(Text::open(request.dir, request.thinking)?) };
    let mut sampling = request.sampling.clone();
    sampling.stop_tokens = if mazes {
        tokens::STOP.to_vec()
    } else {
        // The generation settings know more end tokens than the configuration.
        let more = checkpoint.generation().and_then(|g| g.eos_token_id.clone()).filter(|t| !t.is_empty());
        more.unwrap_or_else(|| engine.config().eos_token_id.clone())
    };
    let mut encoded: Vec<Vec<u32>> = Vec::with_capacity(request.problems.len());
    let room = engine.config().max_position_embeddings;
    for problem in request.problems {
        let ids = match (&problem.question, &text) {
            (Question::Data(_), Some(text)) => text.encode(problem, request.system)?,
            (Question::Maze(maze), _) => tokens::prompt(maze),
            (Question::Data(_), None) => unreachable!("a tokenizer is opened for every data set"),
        };
        let vocabulary = engine.config().vocab_size;
        if ids.is_empty() || ids.iter().any(|&t| t as usize >= vocabulary) {
            bad_input!(
                "--model: the prompt of problem {} doesn't fit the model's vocabulary of {vocabulary}",
                problem.id
            );
        }
        if ids.len() >= room {
            bad_input!(
                "--data: problem {} has {} prompt tokens, wanted fewer than the model's {room} positions",
                problem.id,
                ids.len()
            );
        }
        encoded.push(ids);
    }
    // A response ends where the model's positions do; prompts of one limit are sampled together.
    let mut limits: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, (at, _)) in wanted.iter().enumerate() {
        let limit = request.sampling.max_new_tokens.min(room - encoded[*at].len());
        limits.entry(limit).or_default().push(i);
    }
    let cut = limits.range(..request.sampling.max_new_tokens).map(|(_, all)| all.len()).sum::<usize>();
    if cut > 0 {
        eprintln!(
            "note: the model has {room} positions, which leaves less than --max-tokens {} to {cut} of {} prompts",
            request.sampling.max_new_tokens,
            wanted.len()
        );
    }
    let total: u64 = wanted.iter().map(|(_, r)| r.end - r.start).sum();
    let mut progress = super::from_server::Progress::new(total);
    let mut pending: Vec<Generation> = Vec::with_capacity(BATCH);
    let mut stored = 0u64;
    let mut failure = None;
    for (limit, members) in limits.into_iter().rev() {
        if failure.is_some() || interrupt::asked() {
            break;
        }
        sampling.max_new_tokens = limit;
        let prompts: Vec<Prompt<'_>> = members
            .iter()
            .map(|&i| &wanted[i])
            .map(|(at, r)| Prompt { tokens: &encoded[*at], samples: r.start as usize..r.end as usize })
            .collect();
        let problems: Vec<&Problem> = members.iter().map(|&i| &request.problems[wanted[i].0]).collect();
        let keys: Vec<Key> = problems.iter().map(|p| problem_key(request.seed, &p.id)).collect();
        let ended = |tokens: &[u32]| text.as_ref().is_some_and(|t| request.stop.ended(&t.tokenizer, tokens));
        let stop: Option<&StopFn<'_>> = if request.stop.is_empty() { None } else { Some(&ended) };
        engine.generate(
            &prompts,
            &sampling,
            &|prompt, sample, position| keys[prompt].with(sample as u64).uniform(position as u64),
            stop,
            &mut |completion| {
                let problem = problems[completion.prompt];
                let ended = completion.finish == Finish::Stop;
                let decoded = match &text {
                    None => Ok(tokens::spell(&completion.tokens)),
                    Some(text) => answer(&text.tokenizer, &completion.tokens, request.stop),
                };
                match decoded {
                    Ok(decoded) => pending.push(Generation {
                        problem: problem.id.clone(),
                        sample: completion.sample as u64,
                        text: decoded,
                        reasoning: None,
                        finish: Some(if ended { "stop" } else { "length" }.to_owned()),
                        tokens: Some(completion.tokens.len() as u64),
                    }),
                    Err(e) => failure = Some(e.context("a completion can't be decoded")),
                }
                if pending.len() >= BATCH {
                    match store.append(&pending) {
                        Ok(new) => stored += new as u64,
                        Err(e) => failure = Some(e),
                    }
                    pending.clear();
                    progress.show(stored, 0);
                }
                if failure.is_some() || interrupt::asked() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            },
        )?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    stored += store.append(&pending)? as u64;
    store.sync()?;
    progress.end(stored, 0);
    Ok(stored == total)
}
