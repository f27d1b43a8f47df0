//! The vocabulary head of a pass.

use super::super::buffer::Buffer;
use super::super::head;
use super::super::lists::Lists;
use super::super::product::View;
use super::super::weights::Weights;
use super::{CpuExecutor, part, part_mut};
use crate::error::Error;
use crate::executor::checks::check_scores;
use crate::executor::{Head, HeadKept, HeadOps, HeadPass};
use crate::layout::Write;

impl CpuExecutor {
    fn inputs<'a>(&'a self, of: &HeadPass<'a, Weights, Lists>, x: &'a [f32]) -> head::Inputs<'a> {
        let HeadPass { weights, head, temperature, rows, lists, .. } = *of;
        let (team, products, weight) = (&self.team, self.products, part(weights, head.weight));
        head::Inputs { team, products, weight, head, temperature, rows, x, picks: &lists.picks }
    }
}

impl HeadOps for CpuExecutor {
    fn keeps_logits(&self, head: Head, rows: usize) -> bool {
        rows * head.vocabulary <= head::KEPT
    }

    fn head(
        &mut self,
        of: HeadPass<'_, Weights, Lists>,
        x: &Buffer,
        logits: &mut Buffer,
        saved: &mut Buffer,
        scores: &mut Buffer,
    ) {
        let kept = of.kept.then_some(&mut logits[..]);
        let scores = &mut scores[..2 * of.lists.picks.len()];
        let mut scratch = std::mem::take(&mut self.head);
        head::forward(self.inputs(&of, x), kept, saved, scores, &mut scratch);
        self.head = scratch;
    }

    fn scores(
        &mut self,
        lists: &Lists,
        scores: &Buffer,
        logp: &mut [f32],
        entropy: &mut [f32],
    ) -> Result<(), Error> {
        let count = lists.picks.len();
        logp.copy_from_slice(&scores[..count]);
        entropy.copy_from_slice(&scores[count..2 * count]);
        check_scores(logp, entropy, lists.picks.iter().map(|pick| pick.slot))
    }

    fn derivatives(&mut self, dlogp: &[f32], dentropy: &[f32], to: &mut Buffer) {
        to[..dlogp.len()].copy_from_slice(dlogp);
        to[dlogp.len()..dlogp.len() + dentropy.len()].copy_from_slice(dentropy);
    }

    fn head_backward(
        &mut self,
        of: HeadPass<'_, Weights, Lists>,
        gradient: Option<&mut [f32]>,
        HeadKept { x, saved, derivatives }: HeadKept<'_, Buffer>,
        logits: &mut Buffer,
        dx: &mut Buffer,
    ) {
        let gradient = gradient.map(|gradient| part_mut(gradient, of.head.weight));
        let derivatives = &derivatives[..2 * of.lists.picks.len()];
        let kept = of.kept.then_some(&mut logits[..]);
        let mut scratch = std::mem::take(&mut self.head);
        head::backward(self.inputs(&of, x), gradient, kept, saved, derivatives, dx, &mut scratch);
        self.head = scratch;
    }

    fn logits(&mut self, weights: &Weights, head: Head, rows: usize, x: &Buffer, logits: &mut Vec<f32>) {
        let (v, d) = (head.vocabulary, head.width);
        if logits.len() < rows * v {
            logits.resize(rows * v, 0.0);
        }
        let (x, w) = (View::rows(0, d).of(x), View::rows(head.weight.offset, d).transposed().of(weights));
        self.product([rows, v, d], x, w, View::rows(0, v).to(Write::Replace, logits));
    }
}
