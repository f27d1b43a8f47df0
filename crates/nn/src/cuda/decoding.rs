//! Decoding state between steps: a step's lists on the device, its draws and their results.

use std::collections::VecDeque;

use fgrpo_cuda::{Memory, Shape, Values, kernels};

use super::launches::row_threads;
use super::lists::{Bucket, DrawLists, Items, Lists};
use super::messages::Messages;
use super::stream::{Purpose, Stream};
use crate::decoding::Step;
use crate::error::Error;
use crate::executor::checks::non_finite;
use crate::executor::{DecodeChanges, StepTokens};
use crate::sampling::{Draw, Drawn};

/// State of an executor between decoding steps.
#[derive(Default)]
pub(crate) struct Decoding {
    pub(super) step: Step,
    pub(super) bucket: Bucket,
    /// Lists of the step, or of the draws for the first tokens of completions.
    pub(super) lists: Lists,
    pub(super) items: Items,
    pub(super) draws: Draws,
    results: Results,
}

/// Draws, and their results on the device.
#[derive(Default)]
pub(super) struct Draws {
    pub(super) lists: DrawLists,
    rows: Vec<usize>,
    /// Tokens, then log-probabilities, then entropies, each with space for `room` values.
    pub(super) results: Option<Memory<u32>>,
    pub(super) room: usize,
}

/// Results that are being transferred to the host.
#[derive(Default)]
struct Results {
    messages: Messages,
    /// Transfers, oldest first. After an error, unread ones stay until the next rollout.
    pending: VecDeque<Pending>,
}

struct Pending {
    message: usize,
    rows: Vec<usize>,
    room: usize,
}

impl Draws {
    fn begin(&mut self, stream: &Stream, lists: DrawLists, draws: &[Draw], room: usize) {
        (self.lists, self.room) = (lists, room);
        self.rows.clear();
        self.rows.extend(draws.iter().map(|draw| draw.row));
        if self.results.as_ref().is_none_or(|results| results.len() < 3 * room) {
            self.results = None;
            self.results = stream.allocate((3 * room).next_power_of_two(), Purpose::Pass);
        }
    }
}

impl Decoding {
    /// Applies changes, builds the next step and transfers its lists, including the lists for recurrent states if
    /// `has_states`.
    pub(super) fn begin(&mut self, stream: &Stream, changes: &DecodeChanges, has_states: bool) {
        if let StepTokens::Known(_) = changes.tokens {
            self.results.pending.clear();
        }
        self.step.begin(changes);
        let lists;
        (self.bucket, self.items, lists) = self.lists.upload_step(stream, &self.step, changes, has_states);
        if let Some(results) = &self.draws.results {
            // Gather tokens that the host has not read, before they are overwritten. The kernel copies 32-bit words without converting them.
            let Lists { words, sampled, tokens, .. } = &self.lists;
            let [x, y] = [results.pointer(0), words.at(*tokens, 0)].map(|words| Values::F32(words.cast()));
            let kernel = kernels::Gather { x, rows: words.at(*sampled, 0), y, width: 1 };
            stream.launch(Shape::of(sampled.len, row_threads(1), 0), kernel);
        }
        self.draws.begin(stream, lists, &changes.draws, self.bucket.draws);
    }

    /// Uploads the draws for the first tokens of completions, which aren't part of a decoding step.
    pub(super) fn begin_draws(&mut self, stream: &Stream, rows: usize, draws: &[Draw]) {
        self.results.pending.clear();
        let lists = self.lists.upload_draws(stream, rows, draws);
        self.draws.begin(stream, lists, draws, draws.len());
    }

    /// Submits the transfer of the results to the host.
    pub(super) fn send_results(&mut self, stream: &Stream) {
        let Draws { rows, results: Some(results), room, .. } = &self.draws else { return };
        let message = self.results.messages.receive(stream, results.at(0), 2 * room + rows.len());
        self.results.pending.push_back(Pending { message, rows: rows.clone(), room: *room });
    }

    /// Waits for the oldest pending results, and replaces the contents of `drawn` by them.
    /// Returns an error if the device has failed, or a row's logits are not finite.
    pub(super) fn read_results(&mut self, stream: &Stream, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        let Results { messages, pending } = &mut self.results;
        match pending.pop_front() {
            Some(results) => results.read(messages, stream, drawn),
            None => stream.check(),
        }
    }
}

impl Pending {
    fn read(self, messages: &Messages, stream: &Stream, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
        let words = messages.read(stream, self.message);
        stream.check()?;
        let (logp, entropy) = (&words[self.room..], &words[2 * self.room..]);
        drawn.clear();
        for (index, &row) in self.rows.iter().enumerate() {
            let [logp, entropy] = [logp[index], entropy[index]].map(f32::from_bits);
            if !(logp.is_finite() && entropy.is_finite()) {
                return Err(non_finite(logp, row));
            }
            drawn.push(Drawn { token: words[index], logp, entropy });
        }
        Ok(())
    }
}
