//! A class of exchangeable actions. The actions that were never drawn share one state, and each drawn action has a slot.

use super::arithmetic::{self, Rates, State, Sums};
use super::binomial::binomial;
use super::setup::Kind;
use super::slots::Slots;
use crate::rng::Stream;

/// Number of draws per untouched action above which one binomial per action is cheaper than one random number per draw.
const DRAWS_PER_ACTION: u64 = 16;

/// Actions with the same starting logit and the same reward.
#[derive(Debug)]
pub(super) struct Class {
    /// Index of the first action of the class.
    pub(super) first: usize,
    pub(super) correct: bool,
    pub(super) size: u32,
    /// State of every action that was never drawn.
    fresh: State,
    /// Number of actions that were never drawn.
    untouched: u64,
    /// Drawn actions whose logits still change.
    moving: Slots,
    /// Actions that aren't computed until they are drawn again ([`Rest`]), in the state of the last step that computed them.
    resting: Slots,
    /// For each resting slot, the step after which the action came to rest.
    since: Vec<u64>,
    gaps: usize,
}

/// Condition under which an action rests until it is drawn again, because its future changes are negligible.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rest {
    /// Bound of the ratio `|m| / s` of an action's [`State`]: an action at or below the bound rests.
    pub(super) limit: f64,
    pub(super) beta1: f64,
    pub(super) beta2: f64,
}

impl Class {
    pub(super) fn new(kind: Kind, first: usize, shift: f64) -> Self {
        let w = arithmetic::exp(kind.logit - shift);
        Self {
            first,
            correct: kind.correct,
            size: kind.size,
            fresh: State { z: kind.logit, m: 0.0, s: 0.0, w },
            untouched: kind.size.into(),
            moving: Slots::default(),
            resting: Slots::default(),
            since: Vec::new(),
            gaps: 0,
        }
    }

    /// Returns the total weights of the moving, resting and untouched actions, to which the numbers of draws are proportional.
    pub(super) fn weights(&self) -> [f64; 3] {
        [self.moving.total(), self.resting.total(), self.untouched as f64 * self.fresh.w]
    }

    pub(super) fn clear_draws(&mut self) {
        self.moving.clear_draws();
    }

    /// Draws `counts` actions from the moving, resting and untouched actions. Every drawn action then has a moving
    /// slot. `step` is the number of steps already taken.
    pub(super) fn draw(
        &mut self,
        counts: [u64; 3],
        step: u64,
        rest: Option<Rest>,
        scratch: &mut Vec<f64>,
        stream: &mut Stream,
    ) {
        self.moving.draw(counts[0], scratch, stream);
        if let (1.., Some(rest)) = (counts[1], rest) {
            self.resting.draw(counts[1], scratch, stream);
            self.wake(step, rest);
            self.resting.clear_draws();
        }
        self.draw_untouched(counts[2], stream);
    }

    fn draw_untouched(&mut self, k: u64, stream: &mut Stream) {
        let (all, start) = (self.untouched, self.moving.len());
        let mut next = (u64::from(self.size) - all) as u32;
        if k > DRAWS_PER_ACTION * all {
            let mut remaining = k;
            for i in 0..all {
                let here = binomial(remaining, 1.0 / (all - i) as f64, stream);
                self.moving.push(self.fresh, next, here as u32);
                next += 1;
                remaining -= here;
            }
            self.untouched = 0;
            return;
        }
        // The first `distinct` of the untouched actions are those already drawn in this step.
        let mut distinct = 0;
        for _ in 0..k {
            let who = stream.below(all);
            if who < distinct {
                self.moving.draw_slot(start + who as usize);
            } else {
                self.moving.push(self.fresh, next, 1);
                next += 1;
                distinct += 1;
            }
        }
        self.untouched -= distinct;
    }

    /// Moves resting actions that were drawn back to the moving ones.
    fn wake(&mut self, step: u64, rest: Rest) {
        for block in 0..self.resting.len().div_ceil(arithmetic::BLOCK) {
            let slots = block * arithmetic::BLOCK..(block + 1) * arithmetic::BLOCK;
            if self.resting.count[slots.clone()].iter().all(|&c| c == 0) {
                continue;
            }
            for i in slots {
                let count = self.resting.count[i];
                if count > 0 {
                    let mut state = self.resting.state(i);
                    let slept = (step - self.since[i]) as f64;
                    state.m *= rest.beta1.powf(slept);
                    state.s *= rest.beta2.powf(slept / 2.0);
                    let member = self.resting.member(i).expect("a gap has no weight");
                    self.moving.push(state, member, count);
                    self.resting.clear(i);
                    self.gaps += 1;
                }
            }
        }
    }

    /// Puts actions to rest whose future changes are negligible. `step` is the number of steps already taken.
    pub(super) fn rest(&mut self, step: u64, rest: Rest) {
        if self.gaps > 64 + self.resting.len() / 2 {
            let mut since = Vec::with_capacity(self.since.len() - self.gaps);
            self.resting.retain(|i, _, _| {
                since.push(self.since[i]);
                true
            });
            self.since = since;
            self.gaps = 0;
        }
        // Compacting the arrays costs as much as several steps, so enough actions must come to rest.
        if self.moving.still(rest.limit) < self.moving.len() / 16 {
            return;
        }
        let Self { moving, resting, since, .. } = self;
        let mut any = false;
        moving.retain(|_, s, member| {
            let rests = s.m.abs() <= rest.limit * s.s;
            if rests {
                any = true;
                resting.push(s, member, 0);
                since.push(step);
            }
            !rests
        });
        if any {
            resting.sum_blocks();
        }
    }

    /// Returns the sum over this step's draws of the drawn action's weight.
    pub(super) fn drawn_weight(&self) -> f64 {
        arithmetic::drawn_weight(&self.moving.w, &self.moving.count)
    }

    pub(super) fn update<const PROBABILITY: bool, const ADAM: bool>(&mut self, r: &Rates) {
        arithmetic::update::<PROBABILITY, ADAM>(self.moving.arrays(), r);
        if PROBABILITY || r.decay != 1.0 {
            self.fresh = self.fresh.step::<PROBABILITY, ADAM, true>(0.0, r);
        }
    }

    /// Returns the largest logit, or the first logit that isn't finite.
    pub(super) fn top_logit(&self) -> f64 {
        let slots =
            |s: &Slots| (0..s.len()).filter(|&i| s.member(i).is_some()).map(|i| s.z[i]).collect::<Vec<_>>();
        let fresh = (self.untouched > 0).then_some(self.fresh.z);
        let all = fresh.into_iter().chain(slots(&self.moving)).chain(slots(&self.resting));
        all.reduce(|a, b| if !a.is_finite() || a > b { a } else { b }).unwrap_or(f64::MIN)
    }

    pub(super) fn reweigh(&mut self, shift: f64) {
        self.fresh.w = arithmetic::exp(self.fresh.z - shift);
        for slots in [&mut self.moving, &mut self.resting] {
            slots.reweigh(|z| arithmetic::exp(z - shift));
        }
    }

    /// Returns the metrics' sums over all actions of the class. `start` is the weight below which an action has lost mass.
    pub(super) fn sums(&self, shift: f64, start: f64) -> Sums {
        let State { z, w, .. } = self.fresh;
        let untouched = self.untouched as f64;
        let mut all = Sums {
            weight: untouched * w,
            energy: if w > 0.0 { untouched * (w * (z - shift)) } else { 0.0 },
            lost: untouched * (start - w).max(0.0),
        };
        for slots in [&self.moving, &self.resting] {
            let s = arithmetic::sums(&slots.z, &slots.w, shift, start);
            all.weight += s.weight;
            all.energy += s.energy;
            all.lost += s.lost;
        }
        all
    }

    pub(super) fn for_each_draw(&self, mut visit: impl FnMut(usize, u32)) {
        for i in 0..self.moving.len() {
            if let (Some(member), count @ 1..) = (self.moving.member(i), self.moving.count[i]) {
                visit(self.first + member as usize, count);
            }
        }
    }

    pub(super) fn write_logits(&self, logits: &mut [f64]) {
        let members = &mut logits[self.first..self.first + self.size as usize];
        members.fill(self.fresh.z);
        for slots in [&self.moving, &self.resting] {
            for i in 0..slots.len() {
                if let Some(member) = slots.member(i) {
                    members[member as usize] = slots.z[i];
                }
            }
        }
    }

    /// Returns the number of slots that a step processes.
    pub(super) fn moving(&self) -> usize {
        self.moving.len()
    }
}
