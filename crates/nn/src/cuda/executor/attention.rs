//! Attention of a pass, and the cache.

use fgrpo_cuda::{Argument, Shape};

use super::super::buffer::Buffer;
use super::super::lists::{Lists, PassItems, Plan, TILE};
use super::super::stream::Purpose;
use super::decoding::parts_kernels;
use super::{Cache, CudaExecutor, FULL, args, kernel, warp_shape};
use crate::engine::Precision;
use crate::executor::{Attention, AttentionOps, Heads};

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

impl CudaExecutor {
    fn attention_arguments(lists: &Lists, plan: &Plan) -> [Argument; 3] {
        [plan.rows, plan.by_query.first, plan.by_query.pieces].map(|list| lists.words.at(list, 0).into())
    }

    /// The same by decoding's kernels, cut where decoding cuts, so that a row gets its bits.
    fn exact_attention(
        &mut self,
        Attention { heads, lists, rows, .. }: Attention<'_, Lists>,
        q: &Buffer,
        kv: &Buffer,
        out: &Buffer,
        lse: &Buffer,
    ) {
        let Heads { queries, keys, size, scale } = heads;
        let (words, plan) = (&lists.words, lists.plan(rows));
        let parts = plan.exact.iter().map(|batch| batch.parts).max().unwrap_or(0);
        self.parts.reserve(&self.stream, FULL, parts * queries * (size + 2), Purpose::Pass);
        for &PassItems { first, rows, items, starts, .. } in &plan.exact {
            let ([_, kernel], shape) = parts_kernels(self.precision, heads, items.place.len);
            let [of, place, ranges, starts] =
                [items.items, items.place, items.ranges, starts].map(|list| words.at(list, 0));
            let (positions, q) = (words.at(plan.positions, first), q.at(first * heads.query_width()));
            let [h, k, e] = [queries, keys, size].map(|n| n as u32);
            let arguments = args![of, place, ranges, positions, starts, q, kv, &self.parts, h, k, e, scale];
            self.stream.launch(kernel, shape, arguments);
            let (out, lse) = (out.at(first * heads.query_width()), lse.at(first * queries));
            self.merge(heads, words, &items, rows, out, Some(lse));
        }
    }
}

impl AttentionOps<Buffer, Cache, Lists> for CudaExecutor {
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
        let Attention { heads: Heads { queries, keys, size, scale }, lists, rows, .. } = of;
        let plan = lists.plan(rows);
        let count = plan.rows.len;
        let [rows, first, pieces] = Self::attention_arguments(lists, plan);
        let sizes = [queries, keys, size, count].map(|n| Argument::U32(n as u32));
        let [heads, key_heads, size_, count_] = sizes;
        if let Some([kernel, ..]) = on_tensor_cores(self.precision, size) {
            let shape = tile_shape(count, queries, 3, size, 0);
            let arguments = args![rows, first, pieces, q, kv, &*out, &*lse, heads, key_heads, count_, scale];
            return self.stream.launch(kernel, shape, arguments);
        }
        self.stream.launch(
            kernel!(self.precision, "attention"),
            warp_shape(count * queries),
            args![rows, first, pieces, q, kv, &*out, &*lse, heads, key_heads, size_, count_, scale],
        );
    }

    fn attention_backward(&mut self, of: Attention<'_, Lists>, from: [&Buffer; 5], to: [&mut Buffer; 2]) {
        let Attention { heads, lists, rows, keys, .. } = of;
        let ([q, kv, out, lse, dout], [dq, dkv]) = (from, to);
        let plan = lists.plan(rows);
        let (count, size) = (plan.rows.len, heads.size);
        self.delta.reserve(&self.stream, FULL, count * heads.queries, Purpose::Pass);
        let each = count * heads.queries;
        self.stream.launch(
            kernel!(self.precision, "attention_delta"),
            warp_shape(each),
            args![out, dout, &self.delta, size as u32, each as u32],
        );
        let scale = heads.scale;
        let [h, k, e] = [heads.queries, heads.keys, size].map(|n| n as u32);
        let [at, first, pieces] = Self::attention_arguments(lists, plan);
        let [first_by_key, pieces_by_key] =
            [plan.by_key.first, plan.by_key.pieces].map(|list| Argument::from(lists.words.at(list, 0)));
        if let Some([_, by_q, by_kv]) = on_tensor_cores(self.precision, size) {
            self.stream.launch(
                by_q,
                tile_shape(count, heads.queries, 4, size, 0),
                args![at, first, pieces, q, kv, lse, &self.delta, dout, &*dq, h, k, count as u32, scale],
            );
            let (first, pieces) = (first_by_key, pieces_by_key);
            // lse, delta and the last key of each query.
            let more = 3 * TILE * 4;
            return self.stream.launch(
                by_kv,
                tile_shape(keys, heads.keys, 4, size, more),
                args![at, first, pieces, q, kv, lse, &self.delta, dout, &*dkv, h, k, keys as u32, scale],
            );
        }
        self.stream.launch(
            kernel!(self.precision, "attention_dq"),
            warp_shape(each),
            args![at, first, pieces, q, kv, lse, &self.delta, dout, &*dq, h, k, e, count as u32, scale],
        );
        let (first, pieces) = (first_by_key, pieces_by_key);
        self.stream.launch(
            kernel!(self.precision, "attention_dkv"),
            warp_shape(keys * heads.keys),
            args![at, first, pieces, q, kv, lse, &self.delta, dout, &*dkv, h, k, e, keys as u32, scale],
        );
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
        if cache.layers.iter().map(|layer| layer.bytes(layer.len())).sum::<usize>() > bytes {
            cache.layers.clear();
        }
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, lists: &Lists, kv: &Buffer) {
        let to = (&cache.layers[layer]).into();
        self.rows(kernel!(self.precision, "scatter"), heads.key_width(), lists, lists.slots, kv.into(), to);
    }
}
