//! Attention in a pass, and the cache.

use super::super::attention::{self, Inputs, Keys, Plan};
use super::{Buffer, Cache, CpuExecutor, Lists, Shared};
use crate::executor::{Attention, AttentionInputs, AttentionOps, Heads};

impl<'a> Attention<'a, Lists> {
    fn plan(&self) -> Plan<'a> {
        let (plan, positions) = (self.lists.plan(self.rows), self.lists.positions(self.rows));
        Plan { queries: plan.rows.len(), positions, pieces: &plan.pieces, window: self.window }
    }
}

impl CpuExecutor {
    /// Computes attention of queries to keys. Each thread computes a range of queries.
    pub(super) fn attend(
        &self,
        heads: Heads,
        plan: Plan<'_>,
        q: &[f32],
        keys: Keys<'_>,
        out: &mut [f32],
        lse: &mut [f32],
    ) {
        let (width, h) = (heads.query_width(), heads.queries);
        let work = plan.queries * width * 64;
        let parts = self.team.size().min(work / (1 << 15)).max(1);
        let parts = attention::balanced(plan.pieces, plan.queries, parts, false);
        self.team.run_rows(&parts, [(out, width), (lse, h)], |part, range, [out, lse]| {
            let scratch = &mut self.scratch(part).attention;
            attention::forward(Inputs { heads, query_range: range, plan, q, keys }, out, lse, scratch);
        });
    }
}

impl AttentionOps for CpuExecutor {
    fn attention(
        &mut self,
        attention: Attention<'_, Lists>,
        q: &Buffer,
        kv: &Buffer,
        out: &mut Buffer,
        lse: &mut Buffer,
    ) {
        let heads = attention.heads;
        let keys = Keys { data: kv, stride: heads.key_width(), values: heads.keys * heads.size };
        self.attend(heads, attention.plan(), q, keys, out, lse);
    }

    fn attention_backward(
        &mut self,
        attention: Attention<'_, Lists>,
        saved: AttentionInputs<'_, Buffer>,
        dq: &mut Buffer,
        dkv: &mut Buffer,
    ) {
        let (plan, Attention { heads, keys, .. }) = (attention.plan(), attention);
        let AttentionInputs { q, kv, out, lse, dout } = saved;
        let (queries, width, stride) = (plan.queries, heads.query_width(), heads.key_width());
        let mut delta = std::mem::take(&mut self.delta);
        delta.reserve(queries * heads.queries);
        self.rows(queries, width, [(&mut delta, heads.queries)], |range, [delta]| {
            let at = range.start * width..range.end * width;
            attention::deltas(heads, &out[at.clone()], &dout[at], delta);
        });
        let source = Keys { data: kv, stride, values: heads.keys * heads.size };
        let attention = attention::Backward { heads, plan, q, keys: source, lse, delta: &delta, dout };
        if self.team.size() == 1 {
            let scratch = &mut self.scratch(0).attention;
            attention::backward(&attention, 0..queries, 0..keys, Some(dq), Some(dkv), scratch);
        } else {
            // Scores are computed twice: first each thread sums the derivatives of its queries, and then those of its keys.
            let parts = attention::balanced(plan.pieces, queries, self.team.size(), false);
            self.team.run_rows(&parts, [(dq, width)], |part, range, [dq]| {
                let scratch = &mut self.scratch(part).attention;
                attention::backward(&attention, range, 0..keys, Some(dq), None, scratch);
            });
            let parts = attention::balanced(plan.pieces, keys, self.team.size(), true);
            self.team.run_rows(&parts, [(dkv, stride)], |part, range, [dkv]| {
                let scratch = &mut self.scratch(part).attention;
                attention::backward(&attention, 0..queries, range, None, Some(dkv), scratch);
            });
        }
        self.delta = delta;
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, lists: &Lists, kv: &Buffer) {
        let width = heads.key_width();
        let cache = Shared::new(&mut cache.layers[layer]);
        self.rows(lists.slots.len(), width, [], |range, []| {
            for row in range {
                let at = lists.slots[row] as usize * width;
                // SAFETY: each slot belongs to one row.
                unsafe { cache.part(at..at + width) }.copy_from_slice(&kv[row * width..][..width]);
            }
        });
    }
}
