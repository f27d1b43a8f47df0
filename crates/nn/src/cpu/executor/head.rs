//! The vocabulary head of a pass.

use super::super::buffer::Buffer;
use super::super::head;
use super::super::lists::Lists;
use super::super::product::View;
use super::super::weights::Weights;
use super::{CpuExecutor, part, part_mut};
use crate::error::Error;
use crate::executor::{Head, HeadOps};
use crate::layout::Write;

impl HeadOps for CpuExecutor {
    fn keeps_logits(&self, head: Head, rows: usize) -> bool {
        rows * head.vocabulary <= head::KEPT
    }

    fn head(
        &mut self,
        weights: &Weights,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Buffer,
        lists: &Lists,
        kept: bool,
        logits: &mut Buffer,
        saved: &mut Buffer,
        scores: &mut Buffer,
    ) {
        let (weight, picks) = (part(weights, head.weight), &lists.picks);
        let scores = &mut scores[..2 * picks.len()];
        let (team, products, scratch) = (&self.team, self.products, &mut self.head);
        let kept = kept.then_some(&mut logits[..]);
        head::forward(
            team,
            products,
            weight,
            head,
            temperature,
            rows,
            x,
            picks,
            kept,
            saved,
            scores,
            scratch,
        );
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
        for (index, pick) in lists.picks.iter().enumerate() {
            for found in [logp[index], entropy[index]] {
                if !found.is_finite() {
                    return Err(head::non_finite(found, pick.slot as usize));
                }
            }
        }
        Ok(())
    }

    fn derivatives(&mut self, dlogp: &[f32], dentropy: &[f32], to: &mut Buffer) {
        to[..dlogp.len()].copy_from_slice(dlogp);
        to[dlogp.len()..dlogp.len() + dentropy.len()].copy_from_slice(dentropy);
    }

    fn head_backward(
        &mut self,
        weights: &Weights,
        gradient: Option<&mut [f32]>,
        head: Head,
        temperature: f32,
        rows: usize,
        x: &Buffer,
        lists: &Lists,
        kept: bool,
        logits: &mut Buffer,
        saved: &Buffer,
        derivatives: &Buffer,
        dx: &mut Buffer,
    ) {
        let (weight, picks) = (part(weights, head.weight), &lists.picks);
        let gradient = gradient.map(|gradient| part_mut(gradient, head.weight));
        let derivatives = &derivatives[..2 * picks.len()];
        head::backward(
            &self.team,
            self.products,
            weight,
            gradient,
            head,
            temperature,
            rows,
            x,
            picks,
            kept.then_some(&mut logits[..]),
            saved,
            derivatives,
            dx,
            &mut self.head,
        );
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
