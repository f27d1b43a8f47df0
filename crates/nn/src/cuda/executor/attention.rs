//! Attention of a pass, forward and backward.

use fgrpo_cuda::{Argument, Shape};

use super::super::buffer::Buffer;
use super::super::lists::{Lists, Plan};
use super::super::stream::Purpose;
use super::{CudaExecutor, FULL, args, kernel, warp_shape};
use crate::engine::Precision;
use crate::executor::{Heads, Rows};

impl CudaExecutor {
    fn attention_arguments(lists: &Lists, plan: &Plan) -> [Argument; 3] {
        [plan.rows, plan.by_query.first, plan.by_query.pieces].map(|list| lists.words.at(list, 0).into())
    }

    pub(super) fn attention(
        &mut self,
        heads: Heads,
        lists: &Lists,
        rows: Rows,
        q: &Buffer,
        kv: &Buffer,
        out: &mut Buffer,
        lse: &mut Buffer,
    ) {
        let Heads { queries, keys, size } = heads;
        let plan = lists.plan(rows);
        let count = plan.rows.len;
        let [rows, first, pieces] = Self::attention_arguments(lists, plan);
        let sizes = [queries, keys, size, count].map(|n| Argument::U32(n as u32));
        let [heads, key_heads, size_, count_] = sizes;
        let scale = 1.0 / (size as f32).sqrt();
        let on_tensor_cores = match (self.precision, size) {
            (Precision::Bf16, 64) => Some("attention_bf16_64"),
            (Precision::Bf16, 128) => Some("attention_bf16_128"),
            _ => None,
        };
        if let Some(kernel) = on_tensor_cores {
            let grid = [plan.by_query.first.len as u32 - 1, queries as u32, 1];
            let shape = Shape { grid, threads: 128, shared: 3 * 64 * (size as u32 + 8) * 2 };
            let arguments = args![rows, first, pieces, q, kv, &*out, &*lse, heads, key_heads, count_, scale];
            return self.stream.launch(kernel, shape, arguments);
        }
        self.stream.launch(
            kernel!(self.precision, "attention"),
            warp_shape(count * queries),
            args![rows, first, pieces, q, kv, &*out, &*lse, heads, key_heads, size_, count_, scale],
        );
    }

    pub(super) fn attention_backward(
        &mut self,
        heads: Heads,
        lists: &Lists,
        rows: Rows,
        keys: usize,
        q: &Buffer,
        kv: &Buffer,
        out: &Buffer,
        lse: &Buffer,
        dout: &Buffer,
        dq: &mut Buffer,
        dkv: &mut Buffer,
    ) {
        let plan = *lists.plan(rows);
        let (count, size) = (plan.rows.len, heads.size);
        self.delta.reserve(&self.stream, FULL, count * heads.queries, Purpose::Pass);
        let each = count * heads.queries;
        self.stream.launch(
            kernel!(self.precision, "attention_delta"),
            warp_shape(each),
            args![out, dout, &self.delta, size as u32, each as u32],
        );
        let scale = 1.0 / (size as f32).sqrt();
        let [h, k, e] = [heads.queries, heads.keys, size].map(|n| n as u32);
        let [at, first, pieces] = Self::attention_arguments(lists, &plan);
        self.stream.launch(
            kernel!(self.precision, "attention_dq"),
            warp_shape(each),
            args![at, first, pieces, q, kv, lse, &self.delta, dout, &*dq, h, k, e, count as u32, scale],
        );
        let [first, pieces] =
            [plan.by_key.first, plan.by_key.pieces].map(|list| Argument::from(lists.words.at(list, 0)));
        self.stream.launch(
            kernel!(self.precision, "attention_dkv"),
            warp_shape(keys * heads.keys),
            args![at, first, pieces, q, kv, lse, &self.delta, dout, &*dkv, h, k, e, keys as u32, scale],
        );
    }
}
