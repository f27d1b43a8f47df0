//! Samples from the embedded engine.

use crate::episode::{self, Episode, Wanted};
use crate::language::Language;
use crate::rollout::by_limit;
use anyhow::Context;
use fgrpo_core::rng::Key;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::events::Events;
use fgrpo_eval::from_server::{Sampled, runs};
use fgrpo_eval::generations::{Generation, Generations};
use fgrpo_eval::io::interrupt;
use fgrpo_eval::io::server::sampling::RequestSampling;
use fgrpo_eval::plan::Plan;
use fgrpo_eval::problems::{ProblemSet, problem_key};
use fgrpo_nn::{Engine, Finish, Prompt, Sampling, StopFn};
use std::ops::{ControlFlow, Range};

/// A policy in memory.
pub struct Policy<'a> {
    /// The weights.
    pub engine: &'a mut Engine,
    /// Tokenizer, chat template and end tokens.
    pub language: &'a Language,
    /// Maximum number of tokens in the engine's cache; if absent, as many as fit in memory.
    pub max_cached_tokens: Option<usize>,
}

/// Sampling settings for the engine.
pub fn sampling(settings: &RequestSampling) -> Sampling {
    Sampling {
        temperature: settings.temperature as f32,
        top_p: settings.top_p as f32,
        top_k: settings.top_k,
        min_p: settings.min_p as f32,
        max_new_tokens: settings.max_tokens,
        ..Sampling::default()
    }
}

/// Number of episodes played at a time.
const EPISODES: usize = 512;

/// Number of samples stored at a time.
const BATCH: usize = 64;

/// Generates the plan's samples that are missing in `store`. Returns why some are still missing.
/// Fails on problems that don't fit the model, and errors from the engine.
pub fn generate(
    policy: Policy<'_>,
    plan: &Plan,
    store: &mut Generations,
    events: &mut dyn Events,
) -> anyhow::Result<Option<String>> {
    let problems = plan.problems();
    let wanted: Vec<(usize, Range<u64>)> = problems
        .iter()
        .enumerate()
        .flat_map(|(at, (p, _))| runs(&store.missing(&p.id, plan.n)).into_iter().map(move |r| (at, r)))
        .map(|(at, (first, count))| (at, first..first + count))
        .collect();
    if wanted.is_empty() {
        return Ok(None);
    }
    let Policy { engine, language, max_cached_tokens } = policy;
    // The same end tokens as in training.
    let stop_tokens = language.stop_tokens().to_vec();
    let mut sampling = Sampling { stop_tokens, max_cached_tokens, ..sampling(&plan.sampling) };
    let (longest, seed) = (plan.sampling.max_tokens, plan.seed.unwrap_or(0));
    let total: u64 = wanted.iter().map(|(_, r)| r.end - r.start).sum();
    let set_of = plan.parts.iter().flat_map(|set| std::iter::repeat_n(set, set.problems.len()));
    let set_of: Vec<&ProblemSet> = set_of.collect();
    let (played, wanted): (Vec<_>, Vec<_>) =
        wanted.into_iter().partition(|(at, _)| set_of[*at].grader.environment().is_some());
    let mut encoded: Vec<Vec<u32>> = Vec::with_capacity(problems.len());
    let room = engine.config().context();
    for ((problem, prompt), set) in problems.iter().zip(&set_of) {
        // An episode begins with what its environment says.
        if set.grader.environment().is_some() {
            encoded.push(Vec::new());
            continue;
        }
        let ids = language
            .prompt(&problem.conversation(prompt.system.as_deref()), prompt.thinking)
            .with_context(|| format!("the prompt of problem {}", problem.id))?;
        let vocabulary = engine.config().vocab_size;
        if ids.is_empty() || ids.iter().any(|&t| t as usize >= vocabulary) {
            bad_input!(
                "the prompt of problem {} doesn't fit the model's vocabulary of {vocabulary}",
                problem.id
            );
        }
        encoded.push(ids);
    }
    // A response can't exceed the model's positions.
    let lengths = wanted.iter().map(|(at, _)| (problems[*at].0.id.as_str(), encoded[*at].len()));
    let limits = by_limit(lengths, longest, room)?;
    let cut = limits.range(..longest).map(|(_, all)| all.len()).sum::<usize>();
    if cut > 0 {
        tracing::info!(
            "note: the model has {room} positions, which leaves fewer than the {longest} tokens asked for to {cut} of {} prompts",
            wanted.len()
        );
    }
    let sampled = Sampled::new(total, events);
    let mut stored = 0u64;
    // Some at a time, so that an interruption loses little.
    let at_a_time =
        EPISODES.div_ceil(played.iter().map(|(_, r)| r.end - r.start).max().unwrap_or(1) as usize);
    for some in played.chunks(at_a_time) {
        let game = |(at, samples): &(usize, Range<u64>)| {
            let (set, problem) = (set_of[*at], problems[*at].0);
            let samples = samples.start as usize..samples.end as usize;
            Wanted { set, problem, samples, key: problem_key(seed, &problem.id) }
        };
        let games: Vec<Wanted<'_>> = some.iter().map(game).collect();
        let Some(ended) = episode::play(engine, language, &games, &sampling, &|| !interrupt::requested())?
        else {
            break;
        };
        let generation = |(game, episode): (&Wanted<'_>, Episode)| Generation {
            problem: game.problem.id.clone(),
            sample: episode.completion.sample as u64,
            text: episode.text,
            reasoning: None,
            finish: Some(reason(episode.completion.finish)),
            tokens: Some(episode.completion.tokens.len() as u64),
            graded: Some(episode.graded),
        };
        let each = games.iter().zip(ended);
        let episodes: Vec<Generation> = each
            .flat_map(|(game, episodes)| episodes.into_iter().map(move |episode| generation((game, episode))))
            .collect();
        stored += store.append(&episodes)? as u64;
        sampled.show(stored, 0, events);
    }
    let mut pending: Vec<Generation> = Vec::with_capacity(BATCH);
    let mut failure = None;
    for (limit, members) in limits.into_iter().rev() {
        if failure.is_some() || interrupt::requested() {
            break;
        }
        sampling.max_new_tokens = limit;
        let prompts: Vec<Prompt<'_>> = members
            .iter()
            .map(|&i| &wanted[i])
            .map(|(at, r)| Prompt { tokens: &encoded[*at], samples: r.start as usize..r.end as usize })
            .collect();
        let asked: Vec<&Problem> = members.iter().map(|&i| problems[wanted[i].0].0).collect();
        let keys: Vec<Key> = asked.iter().map(|p| problem_key(seed, &p.id)).collect();
        let stop: &StopFn<'_> = &|tokens| interrupt::requested() || language.ended(tokens);
        engine.generate(
            &prompts,
            &sampling,
            &|prompt, sample, position| keys[prompt].with(sample as u64).uniform(position as u64),
            Some(stop),
            &mut |completion| {
                // This sample may be cut short by the stop; it will be generated again.
                if interrupt::requested() {
                    return ControlFlow::Break(());
                }
                let problem = asked[completion.prompt];
                match language.answer(&completion.tokens) {
                    Ok(decoded) => pending.push(Generation {
                        problem: problem.id.clone(),
                        sample: completion.sample as u64,
                        text: decoded,
                        reasoning: None,
                        finish: Some(reason(completion.finish)),
                        tokens: Some(completion.tokens.len() as u64),
                        graded: None,
                    }),
                    Err(e) => failure = Some(e.context("a completion can't be decoded")),
                }
                if pending.len() >= BATCH {
                    match store.append(&pending) {
                        Ok(new) => stored += new as u64,
                        Err(e) => failure = Some(e),
                    }
                    pending.clear();
                    sampled.show(stored, 0, events);
                }
                if failure.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )?;
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    stored += store.append(&pending)? as u64;
    store.sync()?;
    sampled.end(stored, 0, events);
    Ok((stored < total).then(|| "stopped".to_owned()))
}

/// The finish reason as servers name it.
fn reason(finish: Finish) -> String {
    if finish == Finish::Stop { "stop" } else { "length" }.to_owned()
}
