//! Attention in a pass, and the cache.

use super::super::lists::{PassItems, Plan, TILE, Tiles};
use super::decoding::{Merged, parts_kernels, window};
use super::{
    Argument, Buffer, Cache, CudaExecutor, FULL, Lists, Precision, Purpose, Shape, args, kernel, warp_shape,
};
use crate::executor::{Attention, AttentionInputs, AttentionOps, Heads};

/// Tensor core kernels for attention, and for its derivatives with respect to queries and to keys and values, if this precision and head size have them.
fn on_tensor_cores(precision: Precision, size: usize) -> Option<[&'static str; 3]> {
    match (precision, size) {
        (Precision::Bf16, 64) => Some(["attention_bf16_64", "attention_dq_bf16_64", "attention_dkv_bf16_64"]),
        (Precision::Bf16, 128) => {
            Some(["attention_bf16_128", "attention_dq_bf16_128", "attention_dkv_bf16_128"])
        }
        _ => None,
    }
}

/// One block per head and tile of [`TILE`] rows, with `tiles` tiles of heads of this size and `extra` bytes in shared memory. In shared memory, rows are
/// padded by 8 values to avoid bank conflicts.
fn tile_shape(rows: usize, heads: usize, tiles: usize, size: usize, extra: usize) -> Shape {
    let shared = (tiles * TILE * (size + 8) * 2 + extra) as u32;
    Shape { grid: [rows.div_ceil(TILE) as u32, heads as u32, 1], threads: 128, shared }
}

/// Plan and sizes of an attention kernel.
struct Planned<'a> {
    lists: &'a Lists,
    plan: &'a Plan,
    tiles: &'a Tiles,
    window: Option<usize>,
    heads: Heads,
    /// Number of queries, or of keys.
    count: usize,
}

/// Arguments of an attention kernel: the plan, buffers and sizes. Tensor core kernels are compiled for one head size, which is omitted.
fn kernel_arguments(planned: &Planned<'_>, buffers: &[Argument], on_tensor_cores: bool) -> Vec<Argument> {
    let &Planned { lists, plan, tiles, window: latest, heads, count } = planned;
    let at = |list| Argument::from(lists.words.at(list, 0));
    let plan = [at(plan.rows), at(tiles.first), at(tiles.pieces), at(lists.positions), window(latest).into()];
    let Heads { queries, keys, size, scale } = heads;
    let size = (!on_tensor_cores).then_some(size);
    let sizes = [Some(queries), Some(keys), size, Some(count)].into_iter().flatten();
    let sizes = sizes.map(Argument::from).chain([scale.into()]);
    plan.into_iter().chain(buffers.iter().copied()).chain(sizes).collect()
}

impl CudaExecutor {
    /// Attention with decoding's kernels and boundaries, so that a row gets the same bits as in decoding.
    fn exact_attention(
        &mut self,
        Attention { heads, lists, rows, window: latest, .. }: Attention<'_, Lists>,
        q: &Buffer,
        kv: &Buffer,
        out: &Buffer,
        lse: &Buffer,
    ) {
        let Heads { queries, keys, size, scale } = heads;
        let (words, plan, window) = (&lists.words, lists.plan(rows), window(latest));
        let parts = plan.exact.iter().map(|batch| batch.parts).max().unwrap_or(0);
        self.parts.reserve(&self.stream, FULL, parts * queries * (size + 2), Purpose::Pass);
        for &PassItems { first, rows, items, .. } in &plan.exact {
            let ([_, kernel], shape) = parts_kernels(self.precision, heads, items.first_part.len);
            let [list, first_part, ranges, starts] =
                [items.items, items.first_part, items.ranges, items.starts].map(|list| words.at(list, 0));
            let (positions, q) = (words.at(plan.positions, first), q.at(first * heads.query_width()));
            let to = &self.parts;
            let arguments = args![
                list, first_part, ranges, positions, starts, window, q, kv, to, queries, keys, size, scale
            ];
            self.stream.launch(kernel, shape, arguments);
            let (out, lse) = (out.at(first * heads.query_width()), lse.at(first * queries));
            let merged = Merged { words, items: &items, positions, window, rows };
            self.merge(heads, merged, out, Some(lse));
        }
    }
}

impl AttentionOps for CudaExecutor {
    fn attention(
        &mut self,
        attention: Attention<'_, Lists>,
        q: &Buffer,
        kv: &Buffer,
        out: &mut Buffer,
        lse: &mut Buffer,
    ) {
        if self.exact {
            return self.exact_attention(attention, q, kv, out, lse);
        }
        let Attention { heads, lists, rows, window, .. } = attention;
        let (plan, on) = (lists.plan(rows), on_tensor_cores(self.precision, heads.size));
        let (count, buffers) = (plan.rows.len, args![q, kv, &*out, &*lse]);
        let planned = Planned { lists, plan, tiles: &plan.by_query, window, heads, count };
        let arguments = kernel_arguments(&planned, buffers, on.is_some());
        let (kernel, shape) = match on {
            Some([kernel, ..]) => (kernel, tile_shape(count, heads.queries, 3, heads.size, 0)),
            None => (kernel!(self.precision, "attention"), warp_shape(count * heads.queries)),
        };
        self.stream.launch(kernel, shape, &arguments);
    }

    fn attention_backward(
        &mut self,
        attention: Attention<'_, Lists>,
        saved: AttentionInputs<'_, Buffer>,
        dq: &mut Buffer,
        dkv: &mut Buffer,
    ) {
        let Attention { heads, lists, rows, keys, window } = attention;
        let AttentionInputs { q, kv, out, lse, dout } = saved;
        let (plan, on) = (lists.plan(rows), on_tensor_cores(self.precision, heads.size));
        let (count, size) = (plan.rows.len, heads.size);
        let pairs = count * heads.queries;
        self.delta.reserve(&self.stream, FULL, pairs, Purpose::Pass);
        self.stream.launch(
            kernel!(self.precision, "attention_delta"),
            warp_shape(pairs),
            args![out, dout, &self.delta, size, pairs],
        );
        let arguments = |tiles: &Tiles, to: &Buffer, count: usize| {
            let buffers = args![q, kv, lse, &self.delta, dout, to];
            kernel_arguments(&Planned { lists, plan, tiles, window, heads, count }, buffers, on.is_some())
        };
        // lse, delta, and the first and end key that each query sees.
        let more = 4 * TILE * 4;
        let [(by_q, shape_q), (by_kv, shape_kv)] = match on {
            Some([_, by_q, by_kv]) => [
                (by_q, tile_shape(count, heads.queries, 4, size, 0)),
                (by_kv, tile_shape(keys, heads.keys, 4, size, more)),
            ],
            None => [
                (kernel!(self.precision, "attention_dq"), warp_shape(pairs)),
                (kernel!(self.precision, "attention_dkv"), warp_shape(keys * heads.keys)),
            ],
        };
        self.stream.launch(by_q, shape_q, &arguments(&plan.by_query, dq, count));
        self.stream.launch(by_kv, shape_kv, &arguments(&plan.by_key, dkv, keys));
    }

    fn grow_cache(&mut self, heads: Heads, layers: usize, cache: &mut Cache, slots: usize, limit: usize) {
        assert!(slots <= limit, "{slots} slots of at most {limit}");
        cache.layers.resize_with(layers, Buffer::default);
        for layer in &mut cache.layers {
            // Allocated at its maximum size before anything is stored: growing would copy, and would need memory for both.
            layer.reserve(&self.stream, self.precision, limit * heads.key_width(), Purpose::Cache);
        }
    }

    fn shrink_cache(&mut self, cache: &mut Cache, bytes: usize) {
        let buffers = cache.layers.iter().chain(&cache.states);
        if buffers.map(|buffer| buffer.bytes(buffer.len())).sum::<usize>() > bytes {
            *cache = Cache::default();
        }
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, lists: &Lists, kv: &Buffer) {
        let to = (&cache.layers[layer]).into();
        self.rows(kernel!(self.precision, "scatter"), heads.key_width(), lists, lists.slots, kv.into(), to);
    }
}
