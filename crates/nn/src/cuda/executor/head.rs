//! The vocabulary head: logits, log-probabilities, entropies and their derivatives.

use fgrpo_cuda::kernels::{self, Variant};

use super::{
    Buffer, CudaExecutor, FULL, LOGITS, Lists, Precision, Product, Purpose, Shape, THREADS, Weights, Write,
    row_shape, row_threads,
};
use crate::error::Error;
use crate::executor::checks::check_scores;
use crate::executor::{Head, HeadInputs, HeadOps, HeadPass};

impl CudaExecutor {
    /// Returns the number of rows whose logits are sampled from at a time.
    pub(super) fn logit_rows(&self, head: Head, rows: usize) -> usize {
        (LOGITS / head.vocabulary).clamp(1, rows.max(1))
    }

    /// Computes the logits of rows `first..first + m` of `x`.
    pub(super) fn logits_of(
        &self,
        weights: &Weights,
        head: Head,
        first: usize,
        m: usize,
        x: &Buffer,
        to: &mut Buffer,
    ) {
        let Head { weight, vocabulary: v, width: d, .. } = head;
        to.reserve(&self.stream, FULL, m * v, Purpose::Pass);
        let (x, w) = (x.rows(first * d, d), weights.rows(weight.offset, d).transposed());
        let product = Product::new([m, v, d], x, w, to.rows(0, v), self.full_numbers());
        self.add_product(Product { exact: self.exact, ..product }, Write::Replace);
    }

    /// Returns the number of rows of a pass whose logits are computed at a time.
    fn pass_rows(&self, head: Head, rows: usize) -> usize {
        (self.pass_logits / head.vocabulary).clamp(1, rows.max(1))
    }
}

impl HeadOps for CudaExecutor {
    fn keeps_logits(&self, head: Head, rows: usize) -> bool {
        rows * head.vocabulary <= self.pass_logits
    }

    fn head(
        &mut self,
        pass: HeadPass<'_, Weights, Lists>,
        x: &Buffer,
        logits: &mut Buffer,
        saved: &mut Buffer,
        scores: &mut Buffer,
    ) {
        let HeadPass { weights, head, temperature, rows, lists, keeps_logits } = pass;
        let (v, factor) = (head.vocabulary, 1.0 / temperature);
        let picks = lists.pick_rows.len;
        let chunk = if keeps_logits { rows.max(1) } else { self.pass_rows(head, rows) };
        let first_picks = lists.words.host(lists.pick_first);
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            self.logits_of(weights, head, first, m, x, logits);
            let (logits, rows, vocabulary) = (logits.full(0), saved.full(2 * first), v);
            let kernel = kernels::HeadScores { logits, saved: rows, vocabulary, factor };
            self.stream.launch(row_shape(m, v), kernel);
            let [from, to] = [first_picks[first], first_picks[first + m]].map(|pick| pick as usize);
            let [pick_rows, pick_tokens] =
                [lists.pick_rows, lists.pick_tokens].map(|list| lists.words.at(list, from));
            let [logp, entropy] = [from, picks + from].map(|at| scores.full(at));
            let kernel = kernels::HeadPicks {
                logits,
                saved: saved.full(0),
                pick_rows,
                pick_tokens,
                logp,
                entropy,
                picks: to - from,
                first,
                vocabulary,
                factor,
            };
            self.stream.launch(Shape::covering(to - from, THREADS), kernel);
        }
    }

    fn scores(
        &mut self,
        lists: &Lists,
        scores: &Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        let count = lists.pick_rows.len;
        let mut values = vec![0.0; 2 * count];
        scores.read(&self.stream, 0, &mut values);
        self.stream.check()?;
        logp.copy_from_slice(&values[..count]);
        entropy.copy_from_slice(&values[count..]);
        check_scores(logp, entropy, lists.words.host(lists.pick_rows).iter().copied())
    }

    fn derivatives(&mut self, dlogp: &[f32], dentropy: &[f32], to: &mut Buffer) {
        to.write(&self.stream, 0, dlogp);
        to.write(&self.stream, dlogp.len(), dentropy);
    }

    /// Derivatives overwrite the logits in place. In bf16 they take half of a row, and the stride of rows is the same as in f32.
    fn head_backward(
        &mut self,
        pass: HeadPass<'_, Weights, Lists>,
        mut gradient: Option<&mut Buffer>,
        HeadInputs { x, saved, derivatives }: HeadInputs<'_, Buffer>,
        logits: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let HeadPass { weights, head, temperature, rows, lists, keeps_logits } = pass;
        let Head { weight, vocabulary: v, width: d, .. } = head;
        let factor = 1.0 / temperature;
        let picks = lists.pick_rows.len;
        let chunk = if keeps_logits { rows.max(1) } else { self.pass_rows(head, rows) };
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            if !keeps_logits {
                self.logits_of(weights, head, first, m, x, logits);
            }
            let (pick_first, pick_tokens) =
                (lists.words.at(lists.pick_first, first), lists.words.at(lists.pick_tokens, 0));
            let [dlogp, dentropy] = [0, picks].map(|at| derivatives.full(at));
            let kernel = kernels::HeadBackward {
                variant: if self.precision == Precision::F32 { Variant::F32 } else { Variant::Bf16 },
                logits: logits.full(0),
                saved: saved.full(2 * first),
                pick_first,
                pick_tokens,
                dlogp,
                dentropy,
                vocabulary: v,
                factor,
            };
            self.stream.launch(Shape::of(m, row_threads(v), 0), kernel);
            let dz = logits.rows(0, v * FULL.bytes() / self.precision.bytes());
            let w = weights.rows(weight.offset, d);
            self.product([m, d, v], dz, w, dx.rows(first * d, d), 1.0, Write::Replace);
            if let Some(gradient) = &mut gradient {
                let (x, dw) = (x.rows(first * d, d), gradient.rows(weight.offset, d));
                self.product_full([v, d, m], dz.transposed(), x, dw);
            }
        }
    }

    fn logits(&mut self, weights: &Weights, head: Head, rows: usize, x: &Buffer, logits: &mut Vec<f32>) {
        let v = head.vocabulary;
        logits.resize(logits.len().max(rows * v), 0.0);
        let chunk = self.logit_rows(head, rows);
        let mut scratch = std::mem::take(&mut self.logits);
        for first in (0..rows).step_by(chunk) {
            let m = chunk.min(rows - first);
            self.logits_of(weights, head, first, m, x, &mut scratch);
            scratch.read(&self.stream, 0, &mut logits[first * v..(first + m) * v]);
        }
        self.logits = scratch;
    }
}
