//! Generation by continuous batching, with a tree of cached keys and values.
//!
//! A prompt is computed and cached once for all its samples. Samples whose tokens are equal so far share one row of the batch and one sequence in the
//! cache, until their sampled tokens differ. A sample starts as soon as the limit on cached tokens allows, judging by the lengths of earlier
//! completions. If completions turn out longer and the limit is reached, the latest sample is removed and sampled again later.
//!
//! Every random number is `uniform(prompt, sample, position)`, so a sample doesn't depend on other samples, on their order or on the number of
//! threads.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::cache::PAGE;
use crate::decoder::{Decoder, Keep, KeySource, Parameters, Pass, Workspace};
use crate::error::Error;
use crate::executor::{Cache, DecodeChanges, DecodeRow, Executor, Holds, NodeChange, StepTokens};
use crate::sampling::{Draw, Drawn, Sampling};
use crate::segments::{Batch, Chunk};
use crate::tree::{Node, Tree};

/// A prompt with the samples to draw for it.
#[derive(Debug, Clone)]
pub struct Prompt<'a> {
    /// Tokens of the prompt, at least one.
    pub tokens: &'a [u32],
    /// Indices of the samples, which determine their random numbers.
    pub samples: Range<usize>,
}

/// Reason why a completion ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Finish {
    /// A stop token or the caller's stop condition.
    #[default]
    Stop,
    /// `max_new_tokens` was reached.
    Length,
}

/// A sampled completion.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// Index of the prompt in the request.
    pub prompt: usize,
    /// Index of the sample, from [`Prompt::samples`].
    pub sample: usize,
    /// Sampled tokens, including the stop token.
    pub tokens: Vec<u32>,
    /// Log-probability of each token under softmax(logits / temperature), before top-k, top-p and min-p.
    pub logp: Vec<f32>,
    /// Entropy of the same distribution at each token.
    pub entropy: Vec<f32>,
    /// Reason why the completion ended.
    pub finish: Finish,
    /// Number of tokens of the prompt whose keys and values were already in the cache.
    pub cached: usize,
}

/// A prompt that joins a running generation.
#[derive(Debug, Clone)]
pub struct QueuedPrompt {
    /// Id of the prompt, which its completions carry.
    pub prompt: usize,
    /// Tokens of the prompt, at least one.
    pub tokens: Vec<u32>,
    /// Indices of the samples.
    pub samples: Range<usize>,
    /// Maximum length of the completions.
    pub max_new_tokens: usize,
}

/// Source of prompts for a running generation. Its methods are called from several threads.
pub trait PromptQueue: Sync {
    /// Returns the next prompt, or `None` if none is available now.
    fn next(&self) -> Option<QueuedPrompt>;

    /// Returns the uniform random number of a draw, in [0, 1).
    fn uniform(&self, prompt: usize, sample: usize, position: usize) -> f64;

    /// Returns whether a completion ends with its last token.
    fn ended(&self, prompt: usize, tokens: &[u32]) -> bool;
}

/// Stop condition of the caller, called with a completion's tokens so far.
pub type StopFn<'a> = dyn Fn(&[u32]) -> bool + Sync + 'a;
/// Uniform random numbers of the caller: from (prompt, sample, position) to [0, 1).
pub type UniformFn<'a> = dyn Fn(usize, usize, usize) -> f64 + Sync + 'a;

/// Receives completions. It ends generation by returning `Break`.
pub(crate) type DoneFn<'a> = dyn FnMut(Completion) -> ControlFlow<()> + 'a;

/// Samples of a prompt for one executor.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    pub(crate) prompt: usize,
    pub(crate) tokens: Cow<'a, [u32]>,
    pub(crate) samples: Range<usize>,
    /// Maximum length of the completions.
    pub(crate) max_new_tokens: usize,
}

/// Settings of a generation: how tokens are drawn, when a completion ends, and the source of further prompts.
pub(crate) struct GenerationSettings<'a> {
    pub(crate) sampling: &'a Sampling,
    pub(crate) uniform: &'a UniformFn<'a>,
    pub(crate) ended: &'a (dyn Fn(usize, &[u32]) -> bool + Sync),
    pub(crate) queue: Option<JobQueue<'a>>,
}

/// Source of further jobs.
#[derive(Clone, Copy)]
pub(crate) struct JobQueue<'a> {
    pub(crate) prompts: &'a dyn PromptQueue,
    /// Number of executors that have jobs.
    pub(crate) working: &'a AtomicUsize,
    /// Maximum number of tokens of a prompt and its completion.
    pub(crate) longest: usize,
    pub(crate) vocabulary: usize,
    /// Whether keys and values are retained in the cache for later generations.
    pub(crate) keep: bool,
}

/// Returns the maximum number of pages that `samples` >= 1 samples of a prompt may need. A node's state counts as `state` pages.
pub(crate) fn pages_needed(state: usize, prompt: usize, samples: usize, max_new_tokens: usize) -> usize {
    prompt.div_ceil(PAGE) + future_pages(state, samples, max_new_tokens) + 1 + 3 * state
}

/// Returns the maximum number of tokens whose keys and values the jobs may need in the cache at the same time.
pub(crate) fn slots_needed(jobs: &[Job<'_>]) -> usize {
    let pages =
        |job: &Job<'_>| pages_needed(0, job.tokens.len(), job.samples.len().max(1), job.max_new_tokens);
    jobs.iter().map(pages).sum::<usize>() * PAGE
}

/// Returns an upper bound on the additional pages of `samples` samples that now share a row, for `tokens` more tokens each: pages of their
/// own tokens, and at each of at most `samples - 1` branchings a partly used page and a state on both sides.
fn future_pages(state: usize, samples: usize, tokens: usize) -> usize {
    samples * tokens.div_ceil(PAGE) + 2 * (samples - 1) * (1 + state)
}

/// Maximum number of queued prompts that one executor takes in advance, so that other executors get some too.
const AHEAD: usize = 8;
/// Maximum number of prompt tokens per decoding step if a prompt continues a cached prefix. Each of these tokens is a row of the step.
const READ: usize = 256;
/// Time for which an executor without work waits before it asks the queue again, while other executors have work.
const IDLE: Duration = Duration::from_millis(1);

/// A row of the batch: samples with the same tokens so far.
struct Leaf {
    node: usize,
    job: usize,
    samples: Vec<usize>,
    /// Sampled tokens. The keys of the last one are not stored yet.
    tokens: Vec<u32>,
    /// Index in the order in which rows were started. Later rows have greater indices.
    admitted: usize,
}

/// The prompt whose samples are currently being admitted.
struct Open<X: Executor> {
    job: usize,
    node: usize,
    next: usize,
    end: usize,
    hidden: X::Buffer,
}

/// Runs passes over prompts and decoding steps, with an executor, its weights and its buffers.
pub(crate) struct StepRunner<'a, X: Executor> {
    pub(crate) decoder: &'a Decoder,
    pub(crate) executor: &'a mut X,
    pub(crate) parameters: Parameters<'a, X>,
    pub(crate) workspace: &'a mut Workspace<X>,
    pub(crate) cache: &'a mut Cache<X::Buffer>,
    pub(crate) lists: &'a mut X::Lists,
    pub(crate) decoding: &'a mut X::Decoding,
    pub(crate) tree: &'a mut Tree,
    pub(crate) chunk_tokens: usize,
}

struct Scheduler<'a, 'r, X: Executor> {
    jobs: Vec<Job<'a>>,
    /// For each job, the number of its prompt's tokens that were already in the cache.
    cached: Vec<usize>,
    /// Maximum number of cache slots (one per token) that the jobs can need.
    most_slots: usize,
    settings: &'a GenerationSettings<'r>,
    emit: &'a mut DoneFn<'a>,
    tree: Tree,
    limit: usize,
    leaves: Vec<Leaf>,
    /// Samples that aren't running: the index of the job, and the indices of the job's samples.
    waiting: VecDeque<(usize, Range<usize>)>,
    open: Option<Open<X>>,
    admissions: usize,
    /// Number of finished completions, and total number of their tokens.
    finished: (usize, usize),
    /// Whether memory has run out. If so, no sample is admitted until a completion ends.
    full: bool,
    /// Whether memory has run out and no sample is running. The next sample may then use the whole cache.
    alone: bool,
    cancelled: bool,
    /// Changes that have not been sent to the executor yet.
    changes: DecodeChanges,
}

/// Runs `jobs`, and the jobs from the queue, to the end or until `emit` breaks. At most `limit` cache pages are in use.
/// Each sequence must fit into `limit` pages, and all jobs into `most_slots` cache slots.
pub(crate) fn run<X: Executor>(
    runner: &mut StepRunner<'_, X>,
    jobs: &[Job<'_>],
    limit: usize,
    most_slots: usize,
    settings: &GenerationSettings<'_>,
    emit: &mut DoneFn<'_>,
) -> Result<(), Error> {
    let mut scheduler = Scheduler::<X> {
        most_slots,
        jobs: jobs.to_vec(),
        cached: vec![0; jobs.len()],
        settings,
        emit,
        tree: std::mem::take(runner.tree),
        limit,
        leaves: Vec::new(),
        waiting: (0..jobs.len())
            .map(|job| (job, jobs[job].samples.clone()))
            .filter(|(_, samples)| !samples.is_empty())
            .collect(),
        open: None,
        admissions: 0,
        finished: (0, 0),
        full: false,
        alone: false,
        cancelled: false,
        changes: DecodeChanges::default(),
    };
    let mut drawn = Vec::new();
    while !scheduler.cancelled {
        scheduler.admit(runner)?;
        if scheduler.leaves.is_empty() {
            if scheduler.waiting.is_empty() && scheduler.open.is_none() && !scheduler.wait() {
                break;
            }
            // All samples that were just admitted ended with their first token.
            continue;
        }
        scheduler.make_room();
        if scheduler.leaves.is_empty() {
            continue;
        }
        let mut step = scheduler.plan();
        scheduler.start_step(runner);
        while X::RUNS_AHEAD && scheduler.may_run_ahead() {
            let ahead = scheduler.plan_ahead(&step);
            scheduler.start_step(runner);
            runner.wait_for_tokens(&mut drawn)?;
            let rows_before = scheduler.branch_all(&step, &drawn);
            step = rows_before.into_iter().map(|row| ahead[row]).collect();
        }
        runner.wait_for_tokens(&mut drawn)?;
        scheduler.branch_all(&step, &drawn);
    }
    // The cache is dropped after a cancellation.
    if scheduler.tree.keep && !scheduler.cancelled {
        *runner.tree = scheduler.tree;
    }
    Ok(())
}

impl<X: Executor> StepRunner<'_, X> {
    fn grow_cache(&mut self, tree: &Tree, limit: usize) {
        let layout = &self.decoder.layout;
        self.cache.grow(&mut *self.executor, layout, [tree.slots(), limit], tree.nodes.len());
    }

    /// Runs the forward pass of a step, up to the output of the final norm for each row.
    fn forward_step(&mut self, changes: &DecodeChanges) {
        let StepRunner { decoder, executor, parameters, workspace, cache, decoding, .. } = self;
        executor.begin_step(changes, decoding);
        let pass = Pass::of_step(*parameters, decoding);
        decoder.forward(*executor, &pass, KeySource::Step { decoding, cache }, workspace);
    }

    /// Computes a planned step, and draws its tokens.
    fn step(&mut self, sampling: &Sampling, changes: &DecodeChanges) {
        self.forward_step(changes);
        let StepRunner { decoder, executor, parameters, workspace, decoding, .. } = self;
        let rows = X::step_rows(decoding);
        executor.sample(parameters.weights, decoder.head(), sampling, rows, workspace.hidden(), decoding);
        executor.end_step(decoding);
    }

    /// Computes a planned step without sampling, and returns the output of the final norm for the last row.
    fn read(&mut self, changes: &DecodeChanges) -> Result<X::Buffer, Error> {
        self.forward_step(changes);
        let d = self.decoder.config.hidden_size;
        let StepRunner { executor, workspace, decoding, .. } = self;
        executor.end_step(decoding);
        let mut hidden = X::Buffer::default();
        executor.reserve(&mut hidden, Holds::Activations, d);
        executor.take_row(d, changes.rows.len() - 1, workspace.hidden(), &mut hidden);
        self.wait_for_tokens(&mut Vec::new())?;
        Ok(hidden)
    }

    /// Waits for the oldest unread tokens (of a step, or first tokens of completions), and replaces `drawn` by them.
    fn wait_for_tokens(&mut self, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        self.executor.wait_for_tokens(self.decoding, drawn)
    }

    fn draw(
        &mut self,
        sampling: &Sampling,
        rows: usize,
        hidden: Option<&X::Buffer>,
        draws: &[Draw],
    ) -> Result<Vec<Drawn>, Error> {
        let hidden = hidden.unwrap_or(self.workspace.hidden());
        let mut drawn = Vec::new();
        let (head, decoding) = (self.decoder.head(), &mut *self.decoding);
        self.executor.upload_draws(rows, draws, decoding);
        self.executor.sample(self.parameters.weights, head, sampling, rows, hidden, decoding);
        self.executor.end_step(decoding);
        self.wait_for_tokens(&mut drawn)?;
        Ok(drawn)
    }
}

impl<X: Executor> Scheduler<'_, '_, X> {
    /// Adds a token to a node's sequence and returns its slot.
    fn push_slot(&mut self, node: usize) -> u32 {
        self.tree.push_slot(node, self.limit, &mut self.changes.nodes)
    }

    /// Receives the prompts that are available in the queue.
    fn receive(&mut self) {
        let Some(queue) = &self.settings.queue else { return };
        while self.waiting.len() < AHEAD
            && let Some(QueuedPrompt { prompt, tokens, samples, max_new_tokens }) = queue.prompts.next()
        {
            let all = tokens.len() + max_new_tokens;
            assert!(
                !tokens.is_empty() && max_new_tokens > 0 && all <= queue.longest,
                "prompt {prompt}: {all} of {} tokens",
                queue.longest
            );
            let fits = tokens.iter().all(|&token| (token as usize) < queue.vocabulary);
            assert!(fits, "prompt {prompt} has a token outside of the vocabulary of {}", queue.vocabulary);
            self.waiting.push_back((self.jobs.len(), samples.clone()));
            self.jobs.push(Job { prompt, tokens: Cow::Owned(tokens), samples, max_new_tokens });
            self.cached.push(0);
        }
    }

    /// Waits for prompts while another executor has work. Returns whether a prompt has arrived.
    fn wait(&mut self) -> bool {
        let Some(JobQueue { working, .. }) = self.settings.queue else { return false };
        working.fetch_sub(1, Ordering::Relaxed);
        loop {
            self.receive();
            if !self.waiting.is_empty() {
                working.fetch_add(1, Ordering::Relaxed);
                return true;
            }
            if working.load(Ordering::Relaxed) == 0 {
                return false;
            }
            std::thread::sleep(IDLE);
        }
    }

    /// Returns the expected length of a completion that has `drawn` tokens, estimated from finished completions; at first the maximum.
    fn expected(&self, job: usize, drawn: usize) -> usize {
        /// Number of completions of maximum length that the average counts in addition to the finished ones.
        const PRIOR: usize = 4;
        let longest = self.jobs[job].max_new_tokens;
        let (count, tokens) = self.finished;
        let mean = (tokens + PRIOR * longest).div_ceil(count + PRIOR);
        mean.max(drawn + drawn / 4 + 1).min(longest)
    }

    /// Returns the number of free pages beyond the expected need of the running samples.
    fn room(&self) -> usize {
        let future = |leaf: &Leaf| {
            let drawn = leaf.tokens.len();
            let state = self.tree.state_pages;
            future_pages(state, leaf.samples.len(), self.expected(leaf.job, drawn) - drawn)
        };
        self.limit.saturating_sub(self.tree.used + self.leaves.iter().map(future).sum::<usize>())
    }

    /// Returns the number of pages that the next step needs.
    fn new_pages(&self) -> usize {
        self.leaves.iter().map(|leaf| self.tree.new_pages(leaf.node)).sum()
    }

    /// Removes samples, the latest first, until there are enough pages for the next step.
    fn make_room(&mut self) {
        while self.tree.used + self.new_pages() > self.limit {
            self.full = true;
            if let Some(open) = self.open.take() {
                self.waiting.push_front((open.job, open.next..open.end));
                self.tree.release(open.node);
                continue;
            }
            let latest = (0..self.leaves.len()).max_by_key(|&index| (self.leaves[index].admitted, index));
            let leaf = self.leaves.remove(latest.expect("pages are used by rows or by the open prompt"));
            // Samples that share a row may hold partly used pages. The last sample restarts alone, which always fits.
            let alone = self.leaves.is_empty();
            let runs = leaf.samples.chunk_by(|a, b| !alone && a + 1 == *b);
            for run in runs.collect::<Vec<_>>().into_iter().rev() {
                self.waiting.push_front((leaf.job, run[0]..run[run.len() - 1] + 1));
            }
            self.tree.release(leaf.node);
        }
        self.alone = self.full && self.leaves.is_empty();
        self.full &= !self.leaves.is_empty();
    }

    /// Returns the expected number of pages of a sample that starts. For `n` samples, `n` times this value is at least
    /// `future_pages(n, expected) + 1` plus the pages of a state, with equality for one sample without states.
    fn pages_each(&self, job: usize) -> usize {
        self.expected(job, 0).div_ceil(PAGE) + 2 * (1 + self.tree.state_pages)
    }

    /// Returns the number of pages of a job's prompt, including the pages that its recurrent state counts as.
    fn prompt_pages(&self, job: usize) -> usize {
        self.jobs[job].tokens.len().div_ceil(PAGE) + self.tree.state_pages
    }

    /// Returns the number of samples of a job that fit in `room` pages.
    fn fitting(&self, job: usize, room: usize) -> usize {
        let pages = self.pages_each(job);
        if room + 1 >= pages { (room + 1) / pages } else { 0 }
    }

    /// Returns the number of samples of the next prompt that can start now.
    fn startable(&self) -> usize {
        match (&self.open, self.waiting.front()) {
            _ if self.full => 0,
            (Some(open), _) => self.fitting(open.job, self.room()).min(open.end - open.next),
            (None, Some((job, samples))) => {
                let room = self.room().saturating_sub(self.prompt_pages(*job));
                self.fitting(*job, room).min(samples.len())
            }
            (None, None) => 0,
        }
    }

    /// Starts as many samples as fit, in the order of prompts.
    fn admit(&mut self, runner: &mut StepRunner<'_, X>) -> Result<(), Error> {
        let d = runner.decoder.config.hidden_size;
        loop {
            self.receive();
            let count = self.startable();
            if count == 0 {
                return Ok(());
            }
            if let Some(mut open) = self.open.take() {
                let samples = open.next..open.next + count;
                let draws: Vec<Draw> = self.draws(0, open.job, samples.clone());
                let drawn = runner.draw(self.settings.sampling, 1, Some(&open.hidden), &draws)?;
                open.next += count;
                self.start(open.job, open.node, samples, &drawn);
                if open.next == open.end {
                    self.tree.release(open.node);
                } else {
                    self.open = Some(open);
                }
                if self.cancelled {
                    return Ok(());
                }
                continue;
            }
            if std::mem::take(&mut self.alone) {
                self.tree.evict_all();
            } else if self.continue_prompt(runner)? {
                continue;
            }
            // Prompts that fit, up to the number of tokens of a pass.
            let mut batch = Batch::default();
            let mut slots = Vec::new();
            // (job, node, samples to start, end of those to start later)
            let mut fresh: Vec<(usize, usize, Range<usize>, usize)> = Vec::new();
            let mut room = self.room();
            while let Some((index, samples)) = self.waiting.front().cloned() {
                let job = &self.jobs[index];
                if !batch.tokens.is_empty() && batch.tokens.len() + job.tokens.len() > runner.chunk_tokens {
                    break;
                }
                let prompt = self.prompt_pages(index);
                let count = self.fitting(index, room.saturating_sub(prompt)).min(samples.len());
                // A prompt that continues one of the prompts in `fresh` has to be computed after it.
                if count == 0 || !fresh.is_empty() && self.find_prefix(index).is_some() {
                    break;
                }
                room -= (prompt + count * self.pages_each(index)).min(room);
                let job = &self.jobs[index];
                let node = self.tree.prompt(None, &job.tokens);
                let stored = job.tokens.len();
                self.changes.nodes.push(NodeChange::Begin { node, parent: None, stored });
                slots.extend((0..stored).map(|_| self.push_slot(node)));
                let job = &self.jobs[index];
                batch.push_segment(&job.tokens, None);
                batch.predict(batch.tokens.len() - 1, 0);
                fresh.push((index, node, samples.start..samples.start + count, samples.end));
                self.waiting.pop_front();
                if count < samples.len() {
                    break;
                }
            }
            runner.grow_cache(&self.tree, self.most_slots);
            let mut chunk = Chunk::default();
            chunk.lay_out(&batch, batch.prompt_trees().iter());
            chunk.nodes.extend(fresh.iter().map(|(_, node, ..)| node));
            let StepRunner { decoder, executor, parameters, lists, cache, workspace, .. } = &mut *runner;
            executor.upload(&chunk, &slots, lists);
            let pass = Pass::new(*parameters, &chunk, lists, Keep::Nothing);
            decoder.forward(*executor, &pass, KeySource::Batch(Some(&mut **cache)), workspace);
            let draws: Vec<Draw> = fresh
                .iter()
                .enumerate()
                .flat_map(|(row, (job, _, samples, _))| self.draws(row, *job, samples.clone()))
                .collect();
            let drawn = runner.draw(self.settings.sampling, fresh.len(), None, &draws)?;
            let mut from = 0;
            for (row, (job, node, samples, end)) in fresh.into_iter().enumerate() {
                let to = from + samples.len();
                let next = samples.end;
                self.start(job, node, samples, &drawn[from..to]);
                from = to;
                if next < end {
                    let mut hidden = X::Buffer::default();
                    runner.executor.reserve(&mut hidden, Holds::Activations, d);
                    runner.executor.take_row(d, row, runner.workspace.hidden(), &mut hidden);
                    self.open = Some(Open { job, node, next, end, hidden });
                } else {
                    self.tree.release(node);
                }
            }
            if self.cancelled {
                return Ok(());
            }
        }
    }

    /// Returns the node that a job's prompt continues, and the number of the prompt's cached tokens. Returns `None`
    /// if a pass over the whole prompt is faster than decoding its other tokens, or if its pages don't fit.
    fn find_prefix(&mut self, job: usize) -> Option<(usize, usize)> {
        let tokens = &self.jobs[job].tokens;
        let (node, cached) = self.tree.find_prefix(tokens, &mut self.changes.nodes)?;
        // Each node may have a partly used last page, and a state.
        let tokens = tokens.len();
        let nodes = self.tree.path(node).len() * (1 + self.tree.state_pages);
        let pages = self.prompt_pages(job) + nodes + self.pages_each(job);
        (4 * cached >= tokens - cached && pages <= self.room()).then_some((node, cached))
    }

    /// Computes the next prompt if it continues a cached sequence. Returns whether it did, so that samples can start.
    fn continue_prompt(&mut self, runner: &mut StepRunner<'_, X>) -> Result<bool, Error> {
        let Some((job, samples)) = self.waiting.front().cloned() else { return Ok(false) };
        let Some((parent, cached)) = self.find_prefix(job) else { return Ok(false) };
        self.waiting.pop_front();
        let tokens = self.jobs[job].tokens[cached..].to_vec();
        let node = self.tree.prompt(Some(parent), &tokens);
        let mut hidden = X::Buffer::default();
        let rows = runner.chunk_tokens.min(READ);
        for (index, part) in tokens.chunks(rows).enumerate() {
            let first = index * rows;
            // A row attends to the tokens before it: each has a temporary node on the same pages, which ends with the row's token.
            let mut pages = Vec::new();
            for _ in part {
                self.tree.push_slot(node, self.limit, &mut pages);
            }
            let run = &self.tree.nodes[node].run;
            for index in 0..part.len() {
                let row = self.tree.nodes.len() + index;
                let stored = first + index;
                self.changes.nodes.push(NodeChange::Begin { node: row, parent: Some(parent), stored });
                let pages = &run.pages[..(stored + 1).div_ceil(PAGE)];
                self.changes.nodes.extend(pages.iter().map(|&page| NodeChange::Page { node: row, page }));
                let position = (cached + stored) as u32;
                let states = [if stored == 0 { parent } else { node }, node];
                self.changes.rows.push(DecodeRow { node: row, position, states });
            }
            self.changes.tokens = StepTokens::Known(part.to_vec());
            runner.grow_cache(&self.tree, self.most_slots);
            hidden = runner.read(&self.changes)?;
            self.changes.clear();
        }
        self.tree.begin(node, &mut self.changes.nodes);
        self.cached[job] = cached;
        self.open = Some(Open { job, node, next: samples.start, end: samples.end, hidden });
        Ok(true)
    }

    fn draws(&self, row: usize, job: usize, samples: Range<usize>) -> Vec<Draw> {
        let prompt = self.jobs[job].prompt;
        samples.map(|sample| Draw { row, uniform: (self.settings.uniform)(prompt, sample, 0) }).collect()
    }

    /// Starts samples of a prompt with their first tokens, which are in `drawn`.
    fn start(&mut self, job: usize, node: usize, samples: Range<usize>, drawn: &[Drawn]) {
        self.tree.hold(node);
        self.admissions += 1;
        let admitted = self.admissions;
        self.branch(Leaf { node, job, samples: samples.collect(), tokens: Vec::new(), admitted }, drawn);
    }

    /// Plans the next step of all rows, whose last tokens have been read. Returns each row's first draw.
    fn plan(&mut self) -> Vec<usize> {
        let last = |leaf: &Leaf| *leaf.tokens.last().expect("a row has drawn a token");
        self.changes.tokens = StepTokens::Known(self.leaves.iter().map(last).collect());
        self.plan_rows(0)
    }

    /// Plans the step after the running one. `step` has each row's first draw in the running step; returns the next.
    fn plan_ahead(&mut self, step: &[usize]) -> Vec<usize> {
        self.changes.tokens = StepTokens::Sampled(step.iter().map(|&draw| draw as u32).collect());
        self.plan_rows(1)
    }

    /// Records the executor's changes for a step, with a slot for each row's input token. `unread` tokens of each row have not been read yet.
    fn plan_rows(&mut self, unread: usize) -> Vec<usize> {
        let mut first_draws = Vec::with_capacity(self.leaves.len());
        for index in 0..self.leaves.len() {
            let Leaf { node, job, ref tokens, .. } = self.leaves[index];
            let drawn = tokens.len() + unread;
            let Node { parent, ref run, .. } = self.tree.nodes[node];
            let states = [parent.filter(|_| run.len == 0).unwrap_or(node), node];
            self.push_slot(node);
            let job = &self.jobs[job];
            let position = (job.tokens.len() + drawn - 1) as u32;
            self.changes.rows.push(DecodeRow { node, position, states });
            first_draws.push(self.changes.draws.len());
            self.changes.draws.extend(self.leaves[index].samples.iter().map(|&sample| Draw {
                row: index,
                uniform: (self.settings.uniform)(job.prompt, sample, drawn),
            }));
        }
        first_draws
    }

    /// Starts the planned step.
    fn start_step(&mut self, runner: &mut StepRunner<'_, X>) {
        runner.grow_cache(&self.tree, self.most_slots);
        runner.step(self.settings.sampling, &self.changes);
        self.changes.clear();
    }

    /// Returns whether the next step can be planned before the running step's tokens are read. Each row must have one sample, which then
    /// continues or ends; if it ends, its row of the next step is wasted. A sample must not reach its maximum length, slots must be
    /// available, and a waiting sample must not be able to start.
    fn may_run_ahead(&mut self) -> bool {
        self.receive();
        let continues = |leaf: &Leaf| {
            leaf.samples.len() == 1 && leaf.tokens.len() + 1 < self.jobs[leaf.job].max_new_tokens
        };
        !self.cancelled
            && !self.leaves.is_empty()
            && self.leaves.iter().all(continues)
            && self.tree.used + self.new_pages() <= self.limit
            && self.startable() == 0
            // A step ahead may store a state after a token that the cached node doesn't have.
            && !(self.tree.keep && self.tree.state_pages > 0)
    }

    /// Continues the samples of all rows with the tokens drawn in a step. `step` has each row's first draw. Returns,
    /// for each new row, the index of the old row that it continues.
    fn branch_all(&mut self, step: &[usize], drawn: &[Drawn]) -> Vec<usize> {
        let mut rows_before = Vec::with_capacity(step.len());
        for (row, leaf) in std::mem::take(&mut self.leaves).into_iter().enumerate() {
            let draws = step[row]..step[row] + leaf.samples.len();
            self.branch(leaf, &drawn[draws]);
            rows_before.resize(self.leaves.len(), row);
        }
        rows_before
    }

    /// Continues the samples of a row with their drawn tokens: in one row if all tokens are equal, otherwise in separate rows.
    fn branch(&mut self, mut leaf: Leaf, drawn: &[Drawn]) {
        let mut parts: Vec<(Drawn, Vec<usize>)> = Vec::new();
        for (&sample, &drawn) in leaf.samples.iter().zip(drawn) {
            match parts.iter_mut().find(|part| part.0.token == drawn.token) {
                Some(part) => part.1.push(sample),
                None => parts.push((drawn, vec![sample])),
            }
        }
        parts.retain(|(drawn, samples)| {
            leaf.tokens.push(drawn.token);
            let finish = self.finish(leaf.job, &leaf.tokens);
            if let Some(finish) = finish {
                for &sample in samples {
                    self.complete(&leaf, sample, *drawn, finish);
                }
            }
            leaf.tokens.pop();
            finish.is_none()
        });
        let (job, admitted) = (leaf.job, leaf.admitted);
        // A prompt's node is never extended, because other samples of the prompt may follow.
        if parts.len() == 1 && !self.tree.is_prompt(leaf.node) {
            let (drawn, samples) = parts.pop().expect("there is one");
            self.tree.extend(leaf.node, drawn.token, drawn.logp, drawn.entropy);
            leaf.tokens.push(drawn.token);
            leaf.samples = samples;
            self.leaves.push(leaf);
            return;
        }
        for (drawn, samples) in parts {
            let node = self.tree.sampled(leaf.node, drawn.token, drawn.logp, drawn.entropy);
            self.tree.begin(node, &mut self.changes.nodes);
            let mut tokens = Vec::with_capacity(leaf.tokens.len() + 1);
            tokens.extend_from_slice(&leaf.tokens);
            tokens.push(drawn.token);
            self.leaves.push(Leaf { node, job, samples, tokens, admitted });
        }
        self.tree.release(leaf.node);
    }

    /// Returns why a completion ends with its last token, or `None` if it continues.
    fn finish(&self, job: usize, tokens: &[u32]) -> Option<Finish> {
        let Job { prompt, max_new_tokens, .. } = self.jobs[job];
        let stopped = tokens.last().is_some_and(|token| self.settings.sampling.stop_tokens.contains(token))
            || (self.settings.ended)(prompt, tokens);
        if stopped { Some(Finish::Stop) } else { (tokens.len() == max_new_tokens).then_some(Finish::Length) }
    }

    fn complete(&mut self, leaf: &Leaf, sample: usize, last: Drawn, finish: Finish) {
        if self.cancelled {
            return;
        }
        let tokens = leaf.tokens.clone();
        self.finished = (self.finished.0 + 1, self.finished.1 + tokens.len());
        self.full = false;
        let path = self.tree.path(leaf.node).into_iter().map(|node| &self.tree.nodes[node]);
        let scores = path.flat_map(|node| node.logp.iter().zip(&node.entropy));
        let (mut logp, mut entropy): (Vec<f32>, Vec<f32>) = scores.unzip();
        logp.push(last.logp);
        entropy.push(last.entropy);
        let (prompt, cached) = (self.jobs[leaf.job].prompt, self.cached[leaf.job]);
        let completion = Completion { prompt, sample, tokens, logp, entropy, finish, cached };
        self.cancelled |= (self.emit)(completion).is_break();
    }
}
