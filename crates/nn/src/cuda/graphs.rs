//! Decoding steps as CUDA graphs.
//!
//! A step is hundreds of short launches, and submitting them takes longer than a small model needs to run them. So the stream records a step's work
//! before it submits anything, and compares it with the last step of the same bucket. If all of it is the same (kernels, grids, operands, and
//! arguments with their addresses), one call submits it as a graph. A graph is made when the same work comes for the second time: the first time, buffers
//! grow and libraries load their kernels, which a capture doesn't allow.
//!
//! Because the work itself is compared, nobody has to know what it depends on: buffers that have grown, another cache, other sampling settings or
//! weights at other addresses are other work, for which another graph is made. If a driver refuses to make one, steps go on without.

use std::collections::HashMap;

use super::lists::Bucket;
use super::sequence::Sequence;
use super::stream::Stream;
use crate::backend::GraphCounts;
use crate::error::Error;
use crate::switch;

/// Buckets whose work is kept; beyond them, that of the least recently used one is dropped.
const KEPT: usize = 64;
/// The environment variable that turns graphs off, for measuring and debugging. Results don't depend on it.
const VARIABLE: &str = "FGRPO_CUDA_GRAPHS";
/// The environment variable with which the host waits for every launch, to name one that fails: a graph's can't be told apart.
const SYNC: &str = "FGRPO_CUDA_SYNC";

/// Whether graphs are wanted: the setting of the environment variable.
/// Fails if it is neither `on` nor `off`.
pub(super) fn wanted() -> Result<bool, Error> {
    Ok(switch::is_on(VARIABLE, true)? && !switch::is_on(SYNC, false)?)
}

#[derive(Debug)]
pub(super) struct Graphs {
    wanted: bool,
    /// By bucket: when it was used last (the number of the step), and its work then.
    sequences: HashMap<Bucket, (u64, Sequence)>,
    pub(super) counts: GraphCounts,
}

impl Graphs {
    pub(super) fn new(wanted: bool) -> Graphs {
        Graphs { wanted, sequences: HashMap::new(), counts: GraphCounts::default() }
    }

    /// Turns graphs on or off, and frees those there are.
    pub(super) fn set(&mut self, wanted: bool) {
        (self.wanted, self.counts) = (wanted, GraphCounts::default());
        self.sequences.clear();
    }

    /// Begins a step: from here on the stream records.
    pub(super) fn begin(&mut self, stream: &Stream, bucket: Bucket, ahead: bool) {
        self.counts.steps += 1;
        self.counts.ahead += u64::from(ahead);
        if self.wanted {
            let mut sequence =
                self.sequences.remove(&bucket).map_or_else(Sequence::default, |(_, kept)| kept);
            sequence.begin();
            stream.record_work(sequence);
        }
    }

    pub(super) fn submit(&mut self, stream: &Stream, bucket: Bucket) {
        // Nothing is recorded without graphs, or after a buffer has grown.
        let Some(mut sequence) = stream.recorded_work() else { return };
        self.counts.nodes = self.counts.nodes.max(sequence.nodes().len());
        if sequence.came_before() && sequence.graph.is_none() {
            sequence.graph = stream.capture(sequence.nodes());
            self.counts.captured += u64::from(sequence.graph.is_some());
            if sequence.graph.is_none() {
                self.wanted = false;
                self.sequences.clear();
            }
        }
        match &sequence.graph {
            Some(graph) => {
                stream.replay(graph);
                self.counts.replayed += 1;
            }
            None => stream.submit(sequence.nodes()),
        }
        let oldest = |sequences: &HashMap<Bucket, (u64, Sequence)>| {
            sequences.iter().min_by_key(|(_, (used, _))| *used).map(|(bucket, _)| *bucket)
        };
        if self.sequences.len() == KEPT
            && let Some(bucket) = oldest(&self.sequences)
        {
            self.sequences.remove(&bucket);
        }
        self.sequences.insert(bucket, (self.counts.steps, sequence));
    }
}
