//! Generation by continuous batching over a tree of keys and values.
//!
//! A prompt is computed once and its keys and values are held once, however many samples it gets. Samples that have drawn the same tokens so far are one
//! row of the batch and one run of cached tokens; they part where their draws differ. A finished row's place is taken by the next
//! sample as soon as the bound on cached tokens allows. Nothing is ever aborted for want of room: fewer samples run at once.
//!
//! Every draw is `uniform(prompt, sample, position)`, so that what else ran, in which order and on how many threads does not change a sample.

use std::ops::{ControlFlow, Range};

use crate::cache::{PAGE, Pages, Run};
use crate::decoder::{Decoder, Keep, Workspace};
use crate::error::Error;
use crate::ops::Backend;
use crate::sampler::{Draw, Drawn, Sampling};
use crate::segments::{Batch, Chunk, Piece};

/// A prompt and which of its samples are wanted.
#[derive(Debug, Clone)]
pub struct Prompt<'a> {
    /// Its tokens, at least one.
    pub tokens: &'a [u32],
    /// The samples' indices, which decide their draws.
    pub samples: Range<usize>,
}

/// Why a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// A stop token or the caller's stop condition.
    Stop,
    /// `max_new_tokens` were reached.
    Length,
}

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Index of its prompt in the request.
    pub prompt: usize,
    /// Its index among that prompt's samples.
    pub sample: usize,
    /// What was drawn, the stop token included.
    pub tokens: Vec<u32>,
    /// Log-probability of each token under softmax(logits / temperature), before top-k, top-p and min-p.
    pub logp: Vec<f32>,
    /// Entropy of that distribution at each token.
    pub entropy: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
}

/// The caller's stop condition: sees a completion's tokens so far.
pub type StopFn<'a> = dyn Fn(&[u32]) -> bool + Sync + 'a;
/// The caller's uniform numbers: (prompt, sample, position) to [0, 1).
pub type UniformFn<'a> = dyn Fn(usize, usize, usize) -> f64 + Sync + 'a;

/// Samples of one prompt for one executor.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    pub(crate) prompt: usize,
    pub(crate) tokens: &'a [u32],
    pub(crate) samples: Range<usize>,
}

/// What all jobs share.
pub(crate) struct Request<'a> {
    pub(crate) sampling: &'a Sampling,
    pub(crate) uniform: &'a UniformFn<'a>,
    pub(crate) stop: Option<&'a StopFn<'a>>,
}

/// Pages that one sample of a prompt may need at most, alone.
pub(crate) fn pages_needed(prompt: usize, max_new_tokens: usize) -> usize {
    prompt.div_ceil(PAGE) + future_pages(1, max_new_tokens) + 1
}

/// Bound on the pages that `samples` samples, now one row, will still take for `tokens` more tokens each: their own, and a page cut short at
/// each of the at most `samples - 1` partings, for both sides.
fn future_pages(samples: usize, tokens: usize) -> usize {
    samples * tokens.div_ceil(PAGE) + 2 * (samples - 1)
}

/// A run of generated tokens that some samples share; at the top, a prompt.
#[derive(Default)]
struct Node {
    parent: Option<usize>,
    /// Rows and nodes that stand on it, and the waiting samples of its prompt.
    holders: usize,
    run: Run,
    tokens: Vec<u32>,
    logp: Vec<f32>,
    entropy: Vec<f32>,
    /// Its last entry in the step's list of spans.
    span: usize,
}

/// A row of the batch: samples that agree so far.
struct Leaf {
    node: usize,
    job: usize,
    samples: Vec<usize>,
    /// Tokens drawn.
    drawn: usize,
    /// The last one, whose keys are not stored yet.
    token: u32,
}

/// The prompt whose samples are being admitted.
struct Open<B: Backend> {
    job: usize,
    node: usize,
    next: usize,
    hidden: B::Buffer,
}

struct Scheduler<'a, 'r, B: Backend> {
    jobs: &'a [Job<'a>],
    request: &'a Request<'r>,
    emit: &'a mut dyn FnMut(Completion) -> ControlFlow<()>,
    pages: Pages,
    limit: usize,
    used: usize,
    nodes: Vec<Node>,
    vacant: Vec<usize>,
    leaves: Vec<Leaf>,
    next_job: usize,
    open: Option<Open<B>>,
    cancelled: bool,
}

/// Runs `jobs` to their end, or until `emit` breaks. `limit` bounds the pages held at a time; each job fits it alone.
pub(crate) fn generate<B: Backend>(
    decoder: &Decoder,
    b: &mut B,
    store: &B::Store,
    workspace: &mut Workspace<B>,
    cache: &mut B::Cache,
    chunk_tokens: usize,
    jobs: &[Job<'_>],
    limit: usize,
    request: &Request<'_>,
    emit: &mut dyn FnMut(Completion) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut scheduler = Scheduler::<B> {
        jobs,
        request,
        emit,
        pages: Pages::default(),
        limit,
        used: 0,
        nodes: Vec::new(),
        vacant: Vec::new(),
        leaves: Vec::new(),
        next_job: 0,
        open: None,
        cancelled: false,
    };
    let mut step = StepPlan::default();
    let mut drawn = Vec::new();
    while !scheduler.cancelled {
        scheduler.admit(decoder, b, store, workspace, cache, chunk_tokens)?;
        if scheduler.leaves.is_empty() {
            if scheduler.next_job == jobs.len() && scheduler.open.is_none() {
                break;
            }
            // All samples just admitted ended with their first token.
            continue;
        }
        scheduler.plan(&mut step);
        b.grow_cache(cache, scheduler.pages.slots());
        decoder.step(b, store, &step.tokens, &step.positions, cache, &step.slots, &step.pieces, workspace);
        let rows = step.tokens.len();
        b.sample(store, decoder.head(), request.sampling, rows, workspace.hidden(), &step.draws, &mut drawn)?;
        let mut from = 0;
        for leaf in std::mem::take(&mut scheduler.leaves) {
            let to = from + leaf.samples.len();
            scheduler.part(leaf, &drawn[from..to]);
            from = to;
        }
    }
    Ok(())
}

/// One decoding step's operands.
#[derive(Default)]
struct StepPlan {
    tokens: Vec<u32>,
    positions: Vec<u32>,
    slots: Vec<u32>,
    pieces: Vec<Piece>,
    draws: Vec<Draw>,
    /// (node, rows that stand on it).
    spans: Vec<(usize, Range<usize>)>,
}

impl<B: Backend> Scheduler<'_, '_, B> {
    fn node(&mut self, node: Node) -> usize {
        match self.vacant.pop() {
            Some(index) => {
                self.nodes[index] = node;
                index
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() - 1
            }
        }
    }

    /// One holder less; a node without holders gives its pages back.
    fn release(&mut self, mut index: usize) {
        loop {
            let node = &mut self.nodes[index];
            node.holders -= 1;
            if node.holders > 0 {
                return;
            }
            self.used -= node.run.pages.len();
            self.pages.give_back(&mut node.run.pages);
            self.vacant.push(index);
            match node.parent {
                Some(parent) => index = parent,
                None => return,
            }
        }
    }

    fn push_slot(&mut self, node: usize) -> u32 {
        let run = &mut self.nodes[node].run;
        let before = run.pages.len();
        let slot = run.push(&mut self.pages);
        self.used += run.pages.len() - before;
        slot
    }

    /// Pages that are free beyond what the running samples may still need.
    fn room(&self) -> usize {
        let longest = self.request.sampling.max_new_tokens;
        let promised: usize =
            self.leaves.iter().map(|leaf| future_pages(leaf.samples.len(), longest - leaf.drawn)).sum();
        self.limit.saturating_sub(self.used + promised)
    }

    /// Starts as many samples as there is room for, prompts in order.
    fn admit(
        &mut self,
        decoder: &Decoder,
        b: &mut B,
        store: &B::Store,
        workspace: &mut Workspace<B>,
        cache: &mut B::Cache,
        chunk_tokens: usize,
    ) -> Result<(), Error> {
        let longest = self.request.sampling.max_new_tokens;
        // `future_pages(n, longest) + 1` is at most `n * each`, and just that for one sample.
        let each = longest.div_ceil(PAGE) + 2;
        let fitting = |room: usize| if room + 1 >= each { (room + 1) / each } else { 0 };
        let mut drawn = Vec::new();
        let d = decoder.config.hidden_size;
        loop {
            if let Some(mut open) = self.open.take() {
                let job = &self.jobs[open.job];
                let count = fitting(self.room()).min(job.samples.end - open.next);
                if count == 0 {
                    self.open = Some(open);
                    return Ok(());
                }
                let samples = open.next..open.next + count;
                let draws: Vec<Draw> = self.draws(0, open.job, samples.clone());
                b.sample(store, decoder.head(), self.request.sampling, 1, &open.hidden, &draws, &mut drawn)?;
                open.next += count;
                self.start(open.job, open.node, samples, &drawn);
                if open.next == job.samples.end {
                    self.release(open.node);
                } else {
                    self.open = Some(open);
                }
                if self.cancelled {
                    return Ok(());
                }
                continue;
            }
            // Prompts that fit, together up to a pass's tokens.
            let mut batch = Batch::default();
            let mut slots = Vec::new();
            let mut fresh: Vec<(usize, usize, Range<usize>)> = Vec::new();
            let mut room = self.room();
            while let Some(job) = self.jobs.get(self.next_job) {
                if job.samples.is_empty() {
                    self.next_job += 1;
                    continue;
                }
                if !batch.tokens.is_empty() && batch.tokens.len() + job.tokens.len() > chunk_tokens {
                    break;
                }
                let prompt = job.tokens.len().div_ceil(PAGE);
                let count = fitting(room.saturating_sub(prompt)).min(job.samples.len());
                if count == 0 {
                    break;
                }
                room -= (prompt + count * each).min(room);
                let node = self.node(Node { holders: 1, ..Node::default() });
                slots.extend((0..job.tokens.len()).map(|_| self.push_slot(node)));
                batch.push_segment(job.tokens, None);
                batch.predict(batch.tokens.len() - 1, 0);
                fresh.push((self.next_job, node, job.samples.start..job.samples.start + count));
                self.next_job += 1;
                if count < job.samples.len() {
                    break;
                }
            }
            if fresh.is_empty() {
                return Ok(());
            }
            b.grow_cache(cache, self.pages.slots());
            let mut chunk = Chunk::default();
            chunk.lay_out(&batch, batch.families().iter());
            decoder.forward(b, store, &chunk, Keep::Nothing, Some((cache, &slots)), workspace);
            let draws: Vec<Draw> = fresh
                .iter()
                .enumerate()
                .flat_map(|(row, (job, _, samples))| self.draws(row, *job, samples.clone()))
                .collect();
            let head = decoder.head();
            b.sample(
                store,
                head,
                self.request.sampling,
                fresh.len(),
                workspace.hidden(),
                &draws,
                &mut drawn,
            )?;
            let mut from = 0;
            for (row, (job, node, samples)) in fresh.into_iter().enumerate() {
                let to = from + samples.len();
                let next = samples.end;
                self.start(job, node, samples, &drawn[from..to]);
                from = to;
                if next < self.jobs[job].samples.end {
                    let mut hidden = B::Buffer::default();
                    b.reserve(&mut hidden, d);
                    b.gather(d, &[row as u32], workspace.hidden(), &mut hidden);
                    self.open = Some(Open { job, node, next, hidden });
                } else {
                    self.release(node);
                }
            }
            if self.cancelled {
                return Ok(());
            }
        }
    }

    fn draws(&self, row: usize, job: usize, samples: Range<usize>) -> Vec<Draw> {
        let prompt = self.jobs[job].prompt;
        samples.map(|sample| Draw { row, uniform: (self.request.uniform)(prompt, sample, 0) }).collect()
    }

    /// The first draws of samples of a prompt.
    fn start(&mut self, job: usize, node: usize, samples: Range<usize>, drawn: &[Drawn]) {
        self.nodes[node].holders += 1;
        self.part(Leaf { node, job, samples: samples.collect(), drawn: 0, token: 0 }, drawn);
    }

    /// Lays out the next step, giving each row's last token a slot.
    fn plan(&mut self, plan: &mut StepPlan) {
        plan.tokens.clear();
        plan.positions.clear();
        plan.slots.clear();
        plan.draws.clear();
        plan.spans.clear();
        plan.pieces.clear();
        let mut chain = Vec::new();
        for row in 0..self.leaves.len() {
            let (node, job, drawn) = (self.leaves[row].node, self.leaves[row].job, self.leaves[row].drawn);
            let job = &self.jobs[job];
            plan.tokens.push(self.leaves[row].token);
            plan.positions.push((job.tokens.len() + drawn - 1) as u32);
            let slot = self.push_slot(node);
            plan.slots.push(slot);
            plan.draws.extend(
                self.leaves[row]
                    .samples
                    .iter()
                    .map(|&sample| Draw { row, uniform: (self.request.uniform)(job.prompt, sample, drawn) }),
            );
            chain.clear();
            let mut next = Some(node);
            while let Some(node) = next {
                chain.push(node);
                next = self.nodes[node].parent;
            }
            // From the prompt down, so that a row's pieces come in order.
            for &node in chain.iter().rev() {
                let span = self.nodes[node].span;
                match plan.spans.get_mut(span) {
                    Some((owner, rows)) if *owner == node && rows.end == row => rows.end += 1,
                    _ => {
                        self.nodes[node].span = plan.spans.len();
                        plan.spans.push((node, row..row + 1));
                    }
                }
            }
        }
        for (node, rows) in &plan.spans {
            let ranges = self.nodes[*node].run.ranges();
            plan.pieces.extend(ranges.map(|keys| Piece { queries: rows.clone(), keys, causal: false }));
        }
    }

    /// Samples of a row go on with what they drew: together where they drew the same, apart where not.
    fn part(&mut self, leaf: Leaf, drawn: &[Drawn]) {
        let mut parts: Vec<(Drawn, Vec<usize>)> = Vec::new();
        for (&sample, &drawn) in leaf.samples.iter().zip(drawn) {
            match parts.iter_mut().find(|part| part.0.token == drawn.token) {
                Some(part) => part.1.push(sample),
                None => parts.push((drawn, vec![sample])),
            }
        }
        parts.retain(|(drawn, samples)| {
            let finish = self.finish(&leaf, drawn.token);
            if let Some(finish) = finish {
                for &sample in samples {
                    self.complete(&leaf, sample, *drawn, finish);
                }
            }
            finish.is_none()
        });
        let (job, count) = (leaf.job, leaf.drawn + 1);
        // A prompt's own run is never extended: other samples of it may come.
        if parts.len() == 1 && self.nodes[leaf.node].parent.is_some() {
            let (drawn, samples) = parts.pop().expect("there is one");
            let node = &mut self.nodes[leaf.node];
            node.tokens.push(drawn.token);
            node.logp.push(drawn.logp);
            node.entropy.push(drawn.entropy);
            self.leaves.push(Leaf { node: leaf.node, job, samples, drawn: count, token: drawn.token });
            return;
        }
        for (drawn, samples) in parts {
            self.nodes[leaf.node].holders += 1;
            let node = self.node(Node {
                parent: Some(leaf.node),
                holders: 1,
                tokens: vec![drawn.token],
                logp: vec![drawn.logp],
                entropy: vec![drawn.entropy],
                ..Node::default()
            });
            self.leaves.push(Leaf { node, job, samples, drawn: count, token: drawn.token });
        }
        self.release(leaf.node);
    }

    fn finish(&self, leaf: &Leaf, token: u32) -> Option<Finish> {
        if self.request.sampling.stop_tokens.contains(&token) {
            return Some(Finish::Stop);
        }
        if let Some(stop) = self.request.stop {
            let mut tokens = self.gather(leaf.node, |node| &node.tokens);
            tokens.push(token);
            if stop(&tokens) {
                return Some(Finish::Stop);
            }
        }
        (leaf.drawn + 1 == self.request.sampling.max_new_tokens).then_some(Finish::Length)
    }

    /// A list of a row's nodes, from the prompt down.
    fn gather<T: Copy>(&self, node: usize, list: impl Fn(&Node) -> &Vec<T>) -> Vec<T> {
        let mut chain = vec![node];
        while let Some(parent) = self.nodes[chain[chain.len() - 1]].parent {
            chain.push(parent);
        }
        chain.into_iter().rev().flat_map(|node| list(&self.nodes[node]).iter().copied()).collect()
    }

    fn complete(&mut self, leaf: &Leaf, sample: usize, last: Drawn, finish: Finish) {
        if self.cancelled {
            return;
        }
        let mut tokens = self.gather(leaf.node, |node| &node.tokens);
        let mut logp = self.gather(leaf.node, |node| &node.logp);
        let mut entropy = self.gather(leaf.node, |node| &node.entropy);
        tokens.push(last.token);
        logp.push(last.logp);
        entropy.push(last.entropy);
        let prompt = self.jobs[leaf.job].prompt;
        let completion = Completion { prompt, sample, tokens, logp, entropy, finish };
        self.cancelled |= (self.emit)(completion).is_break();
    }
}
