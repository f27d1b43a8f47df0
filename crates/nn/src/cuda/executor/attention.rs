//! Attention of a pass, and the cache.

use super::super::lists::{PassItems, Plan, TILE, Tiles};
use super::decoding::{Merged, parts_kernels, window};
use super::{
    Argument, Buffer, Cache, CudaExecutor, FULL, Lists, Precision, Purpose, Shape, args, kernel, warp_shape,
};
use crate::executor::{Attention, AttentionKept, AttentionOps, Heads};

/// The kernels on tensor cores, of attention and of the derivatives by queries and by keys and values, for the precision and the sizes that have them.
fn on_tensor_cores(precision: Precision, size: usize) -> Option<[&'static str; 3]> {
    match (precision, size) {
        (Precision::Bf16, 64) => Some(["attention_bf16_64", "attention_dq_bf16_64", "attention_dkv_bf16_64"]),
        (Precision::Bf16, 128) => {
            Some(["attention_bf16_128", "attention_dq_bf16_128", "attention_dkv_bf16_128"])
        }
        _ => None,
    }
}

/// A block per tile of [`TILE`] rows and head, with `held` tiles of heads of this size and `more` bytes in shared memory. Rows of a tile are 8
/// numbers longer there, so that reading them meets no memory bank twice.
fn tile_shape(rows: usize, heads: usize, held: usize, size: usize, more: usize) -> Shape {
    let shared = (held * TILE * (size + 8) * 2 + more) as u32;
    Shape { grid: [rows.div_ceil(TILE) as u32, heads as u32, 1], threads: 128, shared }
}

/// The plan of an attention kernel.
struct Planned<'a> {
    lists: &'a Lists,
    plan: &'a Plan,
    tiles: &'a Tiles,
    window: Option<usize>,
    heads: Heads,
    /// Rows, of queries or of keys.
    count: usize,
}

/// A kernel's arguments: the plan, buffers and sizes. Kernels on tensor cores are compiled for one head size, which is then left out.
fn kernel_arguments(of: &Planned<'_>, buffers: &[Argument], on_tensor_cores: bool) -> Vec<Argument> {
    let &Planned { lists, plan, tiles, window: latest, heads, count } = of;
    let at = |list| Argument::from(lists.words.at(list, 0));
    let plan = [at(plan.rows), at(tiles.first), at(tiles.pieces), at(lists.positions), window(latest).into()];
    let Heads { queries, keys, size, scale } = heads;
    let size = (!on_tensor_cores).then_some(size);
    let sizes = [Some(queries), Some(keys), size, Some(count)].into_iter().flatten();
    let sizes = sizes.map(Argument::from).chain([scale.into()]);
    plan.into_iter().chain(buffers.iter().copied()).chain(sizes).collect()
}

impl CudaExecutor {
    /// The same by decoding's kernels, cut where decoding cuts, so that a row gets its bits.
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
            let ([_, kernel], shape) = parts_kernels(self.precision, heads, items.place.len);
            let [of, place, ranges, starts] =
                [items.items, items.place, items.ranges, items.starts].map(|list| words.at(list, 0));
            let (positions, q) = (words.at(plan.positions, first), q.at(first * heads.query_width()));
            let (h, k, e) = (queries, keys, size);
            let arguments =
                args![of, place, ranges, positions, starts, window, q, kv, &self.parts, h, k, e, scale];
            self.stream.launch(kernel, shape, arguments);
            let (out, lse) = (out.at(first * heads.query_width()), lse.at(first * queries));
            let of = Merged { words, items: &items, positions, window, rows };
            self.merge(heads, of, out, Some(lse));
        }
    }
}

impl AttentionOps for CudaExecutor {
    fn attention(
        &mut self,
        of: Attention<'_, Lists>,
        q: &Buffer,
        kv: &Buffer,
        out: &mut Buffer,
        lse: &mut Buffer,
    ) {
        if self.exact {
            return self.exact_attention(of, q, kv, out, lse);
        }
        let Attention { heads, lists, rows, window, .. } = of;
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
        of: Attention<'_, Lists>,
        from: AttentionKept<'_, Buffer>,
        dq: &mut Buffer,
        dkv: &mut Buffer,
    ) {
        let Attention { heads, lists, rows, keys, window } = of;
        let AttentionKept { q, kv, out, lse, dout } = from;
        let (plan, on) = (lists.plan(rows), on_tensor_cores(self.precision, heads.size));
        let (count, size) = (plan.rows.len, heads.size);
        let each = count * heads.queries;
        self.delta.reserve(&self.stream, FULL, each, Purpose::Pass);
        self.stream.launch(
            kernel!(self.precision, "attention_delta"),
            warp_shape(each),
            args![out, dout, &self.delta, size, each],
        );
        let arguments = |tiles: &Tiles, to: &Buffer, count: usize| {
            let buffers = args![q, kv, lse, &self.delta, dout, to];
            kernel_arguments(&Planned { lists, plan, tiles, window, heads, count }, buffers, on.is_some())
        };
        // lse, delta, and the first key and the end of those that each query sees.
        let more = 4 * TILE * 4;
        let [(by_q, shape_q), (by_kv, shape_kv)] = match on {
            Some([_, by_q, by_kv]) => [
                (by_q, tile_shape(count, heads.queries, 4, size, 0)),
                (by_kv, tile_shape(keys, heads.keys, 4, size, more)),
            ],
            None => [
                (kernel!(self.precision, "attention_dq"), warp_shape(each)),
                (kernel!(self.precision, "attention_dkv"), warp_shape(keys * heads.keys)),
            ],
        };
        self.stream.launch(by_q, shape_q, &arguments(&plan.by_query, dq, count));
        self.stream.launch(by_kv, shape_kv, &arguments(&plan.by_key, dkv, keys));
    }

    fn grow_cache(&mut self, heads: Heads, layers: usize, cache: &mut Cache, slots: usize, most: usize) {
        assert!(slots <= most, "{slots} slots of at most {most}");
        cache.layers.resize_with(layers, Buffer::default);
        for layer in &mut cache.layers {
            // Made before anything is stored, for all that the request can need: growing would copy, and hold both.
            layer.reserve(&self.stream, self.precision, most * heads.key_width(), Purpose::Cache);
        }
    }

    fn shrink_cache(&mut self, cache: &mut Cache, bytes: usize) {
        let held = cache.layers.iter().chain(&cache.states);
        if held.map(|buffer| buffer.bytes(buffer.len())).sum::<usize>() > bytes {
            *cache = Cache::default();
        }
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, lists: &Lists, kv: &Buffer) {
        let to = (&cache.layers[layer]).into();
        self.rows(kernel!(self.precision, "scatter"), heads.key_width(), lists, lists.slots, kv.into(), to);
    }
}
