//! Decoding steps as CUDA graphs.
//!
//! A step consists of hundreds of short launches, and submitting them takes longer than a small model needs to run them. So the stream records a step's
//! work before it submits anything, and compares it with the last step in the same bucket. If everything is the same (kernels, grids, and arguments
//! including addresses), one call submits the step as a graph. A graph is captured when the same work is recorded for the second time, because during
//! the first, buffers grow and libraries load kernels, which a capture doesn't allow.
//!
//! Since the work itself is compared, no code has to know what it depends on: grown buffers, another cache, other sampling settings or moved weights are
//! different work and get another graph. If the driver refuses to capture a graph, steps run without graphs.

use std::collections::HashMap;

use super::lists::Bucket;
use super::stream::{Sequence, Stream};
use crate::backend::GraphCounts;
use crate::error::Error;
use crate::switch;

/// Maximum number of [`Bucket`]s whose work is stored. If there are more, the least recently used one is dropped.
const KEPT: usize = 64;
/// Environment variable that disables graphs, for measuring and debugging. Results don't depend on it.
const VARIABLE: &str = "FGRPO_CUDA_GRAPHS";
/// Environment variable that makes the host wait for every launch, so that a failing one can be named. Launches in a graph can't be distinguished.
const SYNC: &str = "FGRPO_CUDA_SYNC";

/// Returns whether the environment variables allow graphs.
/// Returns an error if one is neither `on` nor `off`.
pub(super) fn enabled() -> Result<bool, Error> {
    Ok(switch::is_on(VARIABLE, true)? && !switch::is_on(SYNC, false)?)
}

#[derive(Debug)]
pub(super) struct Graphs {
    enabled: bool,
    /// For each bucket, the number of the step that used it last, and its work.
    sequences: HashMap<Bucket, (u64, Sequence)>,
    pub(super) counts: GraphCounts,
}

impl Graphs {
    pub(super) fn new(enabled: bool) -> Graphs {
        Graphs { enabled, sequences: HashMap::new(), counts: GraphCounts::default() }
    }

    /// Enables or disables graphs, and frees existing ones.
    pub(super) fn set(&mut self, enabled: bool) {
        (self.enabled, self.counts) = (enabled, GraphCounts::default());
        self.sequences.clear();
    }

    /// Begins a step, and starts recording if graphs are enabled.
    pub(super) fn begin_step(&mut self, stream: &Stream, bucket: Bucket, ahead: bool) {
        self.counts.steps += 1;
        self.counts.ahead += u64::from(ahead);
        if self.enabled {
            let mut sequence =
                self.sequences.remove(&bucket).map_or_else(Sequence::default, |(_, sequence)| sequence);
            sequence.begin();
            stream.begin_recording(sequence);
        }
    }

    /// Ends a step: submits its recorded work, as a graph if the same work came before.
    pub(super) fn end_step(&mut self, stream: &Stream, bucket: Bucket) {
        // Nothing is recorded if graphs are disabled or a buffer has grown.
        let Some(mut sequence) = stream.end_recording() else { return };
        self.counts.nodes = self.counts.nodes.max(sequence.commands().len());
        if sequence.came_before() && sequence.graph.is_none() {
            sequence.graph = stream.capture(sequence.commands());
            self.counts.captured += u64::from(sequence.graph.is_some());
            if sequence.graph.is_none() {
                self.enabled = false;
                self.sequences.clear();
            }
        }
        match &sequence.graph {
            Some(graph) => {
                stream.replay(graph);
                self.counts.replayed += 1;
            }
            None => stream.submit_all(sequence.commands()),
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
