//! Attention in a pass, and the cache.

use fgrpo_cuda::Pointer;
use fgrpo_cuda::kernels::{self, Variant};

use super::super::lists::{PassItems, Plan, TILE, Tiles};
use super::decoding::{Merged, parts_variant, window};
use super::{Buffer, Cache, CudaExecutor, FULL, Lists, Precision, Purpose, Shape, warp_shape};
use crate::executor::{Attention, AttentionInputs, AttentionOps, Heads};

/// Returns the variant of the kernels for attention and its derivatives. Kernels for one head size use tensor cores.
fn variant(precision: Precision, size: usize) -> Variant {
    match (precision, size) {
        (Precision::Bf16, 64) => Variant::Size64,
        (Precision::Bf16, 128) => Variant::Size128,
        _ => Variant::General,
    }
}

/// Returns the launch shape with one block per head and tile of [`TILE`] rows. Shared memory holds `tiles` tiles of heads of `size` values, with
/// rows padded by 8 values to avoid bank conflicts, and `extra` bytes.
fn tile_shape(rows: usize, heads: usize, tiles: usize, size: usize, extra: usize) -> Shape {
    let shared = (tiles * TILE * (size + 8) * 2 + extra) as u32;
    Shape { grid: [rows.div_ceil(TILE) as u32, heads as u32, 1], threads: 128, shared }
}

/// Returns the addresses of four lists: the plan's rows, each tile's first piece, the pieces, and all positions.
fn plan_at(
    lists: &Lists,
    plan: &Plan,
    tiles: &Tiles,
) -> (Pointer<u32>, Pointer<u32>, Pointer<[u32; 4]>, Pointer<u32>) {
    let at = |list| lists.words.at(list, 0);
    (at(plan.rows), at(tiles.first), at(tiles.pieces).cast(), at(lists.positions))
}

impl CudaExecutor {
    /// Computes attention with the kernels and key ranges of decoding, so that a row gets the same bits as in decoding.
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
            let (variant, shape) = parts_variant(self.precision, heads, items.first_part.len);
            let positions = words.at(plan.positions, first);
            let kernel = kernels::AttentionParts {
                variant,
                items: words.at(items.items, 0).cast(),
                place: words.at(items.first_part, 0),
                ranges: words.at(items.ranges, 0),
                positions,
                starts: words.at(items.starts, 0),
                window,
                q: q.at(first * heads.query_width()),
                kv: kv.at(0),
                parts: self.parts.full(0),
                heads: queries,
                key_heads: keys,
                size,
                scale,
            };
            self.stream.launch(shape, kernel);
            let (out, lse) = (out.at(first * heads.query_width()), lse.full(first * queries));
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
        let Attention {
            heads: Heads { queries: heads, keys, size, scale }, lists, rows, window: latest, ..
        } = attention;
        let (plan, variant) = (lists.plan(rows), variant(self.precision, size));
        let queries = plan.rows.len;
        let (rows, tile_first, pieces, positions) = plan_at(lists, plan, &plan.by_query);
        let shape = match variant {
            Variant::General => warp_shape(queries * heads),
            _ => tile_shape(queries, heads, 3, size, 0),
        };
        let kernel = kernels::Attention {
            variant,
            rows,
            tile_first,
            pieces,
            positions,
            window: window(latest),
            q: q.at(0),
            kv: kv.at(0),
            out: out.at(0),
            lse: lse.full(0),
            heads,
            key_heads: keys,
            size,
            queries,
            scale,
        };
        self.stream.launch(shape, kernel);
    }

    fn attention_backward(
        &mut self,
        attention: Attention<'_, Lists>,
        saved: AttentionInputs<'_, Buffer>,
        dq: &mut Buffer,
        dkv: &mut Buffer,
    ) {
        let Attention { heads, lists, rows, keys, window: latest } = attention;
        let Heads { queries: heads, keys: key_heads, size, scale } = heads;
        let (plan, variant, window) = (lists.plan(rows), variant(self.precision, size), window(latest));
        let (queries, count) = (plan.rows.len, plan.rows.len * heads);
        self.delta.reserve(&self.stream, FULL, count, Purpose::Pass);
        let AttentionInputs { q, kv, out, lse, dout } = saved;
        let (q, kv, out, dout, lse) = (q.at(0), kv.at(0), out.at(0), dout.at(0), lse.full(0));
        let delta = self.delta.full(0);
        self.stream.launch(warp_shape(count), kernels::AttentionDelta { out, dout, delta, size, count });
        // lse, delta, and the first and end key that each query sees.
        let more = 4 * TILE * 4;
        let [shape_q, shape_kv] = match variant {
            Variant::General => [warp_shape(count), warp_shape(keys * key_heads)],
            _ => [tile_shape(queries, heads, 4, size, 0), tile_shape(keys, key_heads, 4, size, more)],
        };
        let (rows, tile_first, pieces, positions) = plan_at(lists, plan, &plan.by_query);
        let kernel = kernels::AttentionDq {
            variant,
            rows,
            tile_first,
            pieces,
            positions,
            window,
            q,
            kv,
            lse,
            delta,
            dout,
            dq: dq.at(0),
            heads,
            key_heads,
            size,
            queries,
            scale,
        };
        self.stream.launch(shape_q, kernel);
        let (rows, tile_first, pieces, positions) = plan_at(lists, plan, &plan.by_key);
        let kernel = kernels::AttentionDkv {
            variant,
            rows,
            tile_first,
            pieces,
            positions,
            window,
            q,
            kv,
            lse,
            delta,
            dout,
            dkv: dkv.at(0),
            heads,
            key_heads,
            size,
            keys,
            scale,
        };
        self.stream.launch(shape_kv, kernel);
    }

    fn store_cache(&mut self, heads: Heads, cache: &mut Cache, layer: usize, lists: &Lists, kv: &Buffer) {
        let (width, x, y) = (heads.key_width(), kv.at(0), cache.layers[layer].at(0));
        self.rows(width, lists, lists.slots, |rows| kernels::Scatter { x, rows, y, width });
    }
}
