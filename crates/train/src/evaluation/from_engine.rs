//! Samples the completions of an evaluation with the embedded engine.

use crate::episode::{self, Episode, Wanted};
use crate::policy::{Policy, Request, Sampling};
use anyhow::Context;
use fgrpo_eval::dataset::Problem;
use fgrpo_eval::events::Events;
use fgrpo_eval::from_server::{Sampled, runs};
use fgrpo_eval::generations::{Generation, Generations};
use fgrpo_eval::io::interrupt;
use fgrpo_eval::plan::Plan;
use fgrpo_eval::problems::{ProblemSet, problem_key};
use fgrpo_nn::{Completion, Finish};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

/// Number of episodes played at a time.
const EPISODES: usize = 512;

/// Number of samples stored at a time.
const BATCH: usize = 64;

/// Generates the plan's samples that are missing in `store`. `max_cached_tokens` limits the policy's cache. Returns a
/// reason if some samples are still missing. Fails if a problem doesn't fit the model, or with an error from the
/// engine.
pub fn generate(
    policy: &mut Policy,
    max_cached_tokens: Option<usize>,
    plan: &Plan,
    store: &mut Generations,
    events: &mut dyn Events,
) -> anyhow::Result<Option<String>> {
    let problems = plan.problems();
    let missing: Vec<(usize, Range<usize>)> = problems
        .iter()
        .enumerate()
        .flat_map(|(at, (p, _))| runs(&store.missing(&p.id, plan.n)).into_iter().map(move |r| (at, r)))
        .map(|(at, (first, count))| (at, first as usize..(first + count) as usize))
        .collect();
    if missing.is_empty() {
        return Ok(None);
    }
    let language = Arc::clone(policy.language());
    let sampling = Sampling { max_cached_tokens, ..Sampling::from(&plan.sampling) };
    let (max_tokens, seed) = (plan.sampling.max_tokens, plan.seed.unwrap_or(0));
    let total = missing.iter().map(|(_, samples)| samples.len()).sum::<usize>() as u64;
    let sets = plan.parts.iter().flat_map(|set| std::iter::repeat_n(set, set.problems.len()));
    let sets: Vec<&ProblemSet> = sets.collect();
    let (mut games, mut requests, mut requested) = (Vec::new(), Vec::new(), Vec::new());
    for (at, samples) in missing {
        let ((problem, prompt), set) = (problems[at], sets[at]);
        let key = problem_key(seed, &problem.id);
        // The environment makes the prompt of an episode.
        if set.grader.environment().is_some() {
            games.push(Wanted { set, problem, samples, key, feedback: false });
            continue;
        }
        let tokens = language
            .prompt(&problem.conversation(prompt.system.as_deref()), prompt.thinking)
            .with_context(|| format!("the prompt of problem {}", problem.id))?;
        policy.check_prompt(&format!("problem {}", problem.id), &tokens)?;
        requests.push(Request { prompt: tokens, samples, max_tokens, stop: None, key });
        requested.push(problem);
    }
    let positions = policy.positions();
    let cut = requests.iter().filter(|request| request.limit(positions) < max_tokens).count();
    if cut > 0 {
        tracing::info!(
            "note: the model's {positions} positions leave less than {max_tokens} tokens for a completion of {cut} of {} prompts",
            requests.len()
        );
    }
    let sampled = Sampled::new(total, events);
    let mut count = 0u64;
    // In batches, so that an interruption loses little.
    let at_a_time = EPISODES.div_ceil(games.iter().map(|game| game.samples.len()).max().unwrap_or(1));
    for games in games.chunks(at_a_time) {
        let Some(played) = episode::play(policy, games, max_tokens, &sampling, &|| !interrupt::requested())?
        else {
            break;
        };
        let mut episodes = Vec::new();
        for (game, episode) in
            games.iter().zip(played).flat_map(|(game, all)| all.into_iter().map(move |e| (game, e)))
        {
            let Episode { completion, text, graded, .. } = episode;
            episodes.push(Generation { graded: Some(graded), ..generation(game.problem, &completion, text) });
        }
        count += store.append(&episodes)? as u64;
        sampled.show(count, 0, events);
    }
    let mut pending: Vec<Generation> = Vec::with_capacity(BATCH);
    let mut keep = |completion: &Completion| -> anyhow::Result<()> {
        let text = language.answer(&completion.tokens).context("decoding a completion")?;
        pending.push(generation(requested[completion.prompt], completion, text));
        if pending.len() >= BATCH {
            count += store.append(&pending)? as u64;
            pending.clear();
            sampled.show(count, 0, events);
        }
        Ok(())
    };
    let mut result = Ok(());
    policy.sample_with(&requests, &sampling, &|_, _| !interrupt::requested(), &mut |completion| {
        // A sample that the interruption may have cut short is generated again later.
        if !interrupt::requested() {
            result = keep(&completion);
        }
        if result.is_err() || interrupt::requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    result?;
    count += store.append(&pending)? as u64;
    store.sync()?;
    sampled.end(count, 0, events);
    Ok((count < total).then(|| "stopped".to_owned()))
}

/// Makes a sample that hasn't been graded.
fn generation(problem: &Problem, completion: &Completion, text: String) -> Generation {
    // The name that servers use for the finish reason.
    let finish = if completion.finish == Finish::Stop { "stop" } else { "length" };
    Generation {
        problem: problem.id.clone(),
        sample: completion.sample as u64,
        text,
        reasoning: None,
        finish: Some(finish.to_owned()),
        tokens: Some(completion.tokens.len() as u64),
        graded: None,
    }
}
