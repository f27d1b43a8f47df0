//! The operations of an executor, each declared once. From a declaration the macro [`operations`] generates a trait method, which devices
//! implement, and a method of [`Checked`], which calls the device's method and then checks the results listed after `=>`.
//!
//! In this documentation, the width of a row `x[t]` is the argument `width`, or follows from the weights' span or the sizes of the heads.
//! An operation that "replaces" a buffer ignores its content; an operation "in place" reads it first.

use std::ops::Range;

use super::checks::Checked;
use super::{
    Attention, AttentionInputs, Cache, Counter, DecodeChanges, Gate, Head, HeadInputs, HeadPass, HeadRows,
    Heads, LowRank, Memory, Mixer, Norm, Rotation, StepAttention, Strip, Subset,
};
use crate::error::Error;
use crate::families::Activation;
use crate::layout::{ConvolutionLayout, Linear, Span, Write};
use crate::sampling::{Draw, Drawn, Sampling};

/// Declares a trait of operations and implements it for [`Checked`] and [`Counter`]. The results to check follow `=>`, each with its rows and the names of its
/// columns. Operations with `[on_cpus]` may be missing on a GPU, because
/// [`Config::check_on_gpus`](crate::config::Config::check_on_gpus) refuses the models that need them. Methods of other forms are written out in `declared` for the trait, and in `checked` and `counted` for these two.
macro_rules! operations {
    (
        $(#[$about:meta])* trait $ops:ident {
            $($(#[$doc:meta])* fn $name:ident($me:ident $(, $arg:ident: $type:ty)*) $([$cpus:tt])? $(=> $($out:ident: $columns:expr),+)?;)*
        }
        $(declared { $($declared:tt)* } checked { $($checked:tt)* } counted { $($counted:tt)* })?
    ) => {
        $(#[$about])*
        pub(crate) trait $ops: Memory {
            $(operations!(@method [$($cpus)?] $(#[$doc])* fn $name(&mut $me $(, $arg: $type)*));)*
            $($($declared)*)?
        }

        impl<X: $ops> $ops for Checked<'_, X> {
            $(fn $name(&mut $me $(, $arg: $type)*) {
                $(let columns = $me.layout.map(|_| [$($columns),+]);)?
                $me.inner.$name($($arg),*);
                $(if let Some(columns) = columns {
                    for (columns, x) in columns.into_iter().zip([$(&*$out),+]) {
                        $me.check(columns, x);
                    }
                })?
            })*
            $($($checked)*)?
        }

        #[allow(unused_variables, reason = "a counter computes nothing")]
        impl $ops for Counter {
            $(fn $name(&mut $me $(, $arg: $type)*) {})*
            $($($counted)*)?
        }
    };
    (@method [] $(#[$doc:meta])* fn $name:ident $arguments:tt) => { $(#[$doc])* fn $name $arguments; };
    (@method [on_cpus] $(#[$doc:meta])* fn $name:ident $arguments:tt) => {
        $(#[$doc])*
        #[allow(unused_variables, reason = "a device without the operation")]
        fn $name $arguments {
            unreachable!("check_on_gpus refuses models that need it");
        }
    };
}

operations! {
    /// Row copies, the embedding, rotary embedding, and the MLP's activation.
    trait RowOps {
        /// Copies the predicting rows of `x` to `y`.
        fn gather(self, width: usize, lists: &Self::Lists, x: &Self::Buffer, y: &mut Self::Buffer);

        /// Copies row `row` of `x` to `y`.
        fn take_row(self, width: usize, row: usize, x: &Self::Buffer, y: &mut Self::Buffer);

        /// Adds the rows of `x` to the predicting rows of `y`.
        fn scatter_add(self, width: usize, lists: &Self::Lists, x: &Self::Buffer, y: &mut Self::Buffer);

        /// Computes `y[..len] = 0`.
        fn zero(self, len: usize, y: &mut Self::Buffer);

        /// Computes `y[..len] += x`.
        fn add(self, len: usize, x: &Self::Buffer, y: &mut Self::Buffer);

        /// Moves the rows in `ranges` to the front of `x`, in order. The ranges are ascending.
        fn keep_rows(self, width: usize, ranges: &[Range<usize>], x: &mut Self::Buffer);

        /// Computes `x[t] = table[tokens[t]]`.
        fn embed(self, weights: &Self::Weights, table: Span, width: usize, lists: &Self::Lists, x: &mut Self::Buffer)
            => x: self.tensor(table, self.place.rows, width);

        /// Computes `gradient[table][tokens[t]] += dx[t]`.
        fn embed_backward(self, gradient: &mut Self::Gradient, table: Span, width: usize, lists: &Self::Lists, dx: &Self::Buffer);

        /// Applies the rotary embedding in place, at the positions of `rows`.
        fn rotate(self, rotation: Rotation, heads: HeadRows, lists: &Self::Lists, rows: Subset, x: &mut Self::Buffer)
            => x: self.named(heads.rows, &[("self_attn (rotary embedding)", heads.stride)]);

        /// Computes `y[..len] *= factor`.
        fn scale(self, len: usize, factor: f32, y: &mut Self::Buffer)
            => y: self.named(self.place.rows, &[("model.embed_tokens (scaled)", len / self.place.rows.max(1))]);

        /// Computes `y[..len] *= weights[factor]`.
        fn scale_by(self, weights: &Self::Weights, factor: Span, len: usize, y: &mut Self::Buffer) [on_cpus]
            => y: self.named(self.place.needed, &[("layer_scalar", len / self.place.needed.max(1))]);

        /// Copies `width` columns of `x`, in each of `rows` rows, to columns of `y`.
        fn copy_columns(self, rows: usize, width: usize, from: Strip, x: &Self::Buffer, to: Strip, y: &mut Self::Buffer) [on_cpus];

        /// Computes `act = activation(gate) * up`. A row of `gate_up` is `width` values of the gate, then `width` values of `up`.
        fn gated(self, kind: Activation, rows: usize, width: usize, gate_up: &Self::Buffer, act: &mut Self::Buffer)
            => act: self.named(rows, &[("mlp (activation)", width)]);

        /// Replaces `gate_up` by its derivative, and `dact`, the derivative with respect to `act`, by `act` itself.
        fn gated_backward(self, kind: Activation, rows: usize, width: usize, gate_up: &mut Self::Buffer, dact: &mut Self::Buffer)
            => gate_up: self.named(rows, &[("mlp (activation)", 2 * width)]);
    }
}

operations! {
    /// RMSNorm of rows and of heads.
    trait NormOps {
        /// Computes `y = x / rms(x) * (weight + offset)`. Saves `1 / rms` of each row in `scale`.
        fn rms_norm(self, norm: Norm<'_, Self::Weights>, x: &Self::Buffer, y: &mut Self::Buffer, scale: &mut Self::Buffer)
            => y: self.tensors([norm.weight], norm.rows, "");

        /// Recomputes the result of [`NormOps::rms_norm`] from the saved `scale`.
        fn rms_norm_again(self, norm: Norm<'_, Self::Weights>, x: &Self::Buffer, scale: &Self::Buffer, y: &mut Self::Buffer);

        /// Adds the derivative with respect to `x` to `dx`.
        fn rms_norm_backward(self, norm: Norm<'_, Self::Weights>, gradient: Option<&mut Self::Gradient>, x: &Self::Buffer, scale: &Self::Buffer, dy: &Self::Buffer, dx: &mut Self::Buffer)
            => dx: self.tensors([norm.weight], norm.rows, "");

        /// Applies RMSNorm to each head in place. Saves the heads before the norm in `raw`, one after another, and `1 / rms` of each head in `scale`.
        fn head_norm(self, norm: Norm<'_, Self::Weights>, heads: HeadRows, x: &mut Self::Buffer, raw: &mut Self::Buffer, scale: &mut Self::Buffer)
            => x: self.tensor(norm.weight, heads.rows, heads.stride);

        /// Replaces `dx`, the derivative with respect to the result of [`NormOps::head_norm`], by the derivative with respect to its input.
        fn head_norm_backward(self, norm: Norm<'_, Self::Weights>, gradient: Option<&mut Self::Gradient>, heads: HeadRows, raw: &Self::Buffer, scale: &Self::Buffer, dx: &mut Self::Buffer)
            => dx: self.tensor(norm.weight, heads.rows, heads.stride);
    }
}

operations! {
    /// Linear maps, and LoRA updates: `cpu/executor/linear.rs` and `cuda/executor/linear.rs`.
    trait LinearOps {
        /// Computes maps of `x`, and concatenates their results in the rows of `y`: `y = x Wᵀ + b`, plus `onto` if given, which is another buffer
        /// than `y`.
        fn linear(self, weights: &Self::Weights, linears: &[Linear], rows: usize, x: &Self::Buffer, onto: Option<&Self::Buffer>, y: &mut Self::Buffer)
            => y: self.tensors(linears.iter().map(|linear| linear.weight), rows, if onto.is_some() { " (with the residual)" } else { "" });

        /// Computes `dx = dy W`, or `dx += dy W`, depending on `write`.
        fn linear_backward_input(self, weights: &Self::Weights, linear: Linear, rows: usize, dy: &Self::Buffer, write: Write, dx: &mut Self::Buffer)
            => dx: self.tensor(linear.weight, rows, linear.inputs);

        /// Computes `dW += dyᵀ x` and `db += Σ dy`.
        fn linear_backward_weight(self, gradient: &mut Self::Gradient, linear: Linear, rows: usize, dy: &Self::Buffer, x: &Self::Buffer);

        /// Computes `y += scale · (x Aᵀ) Bᵀ`, for a matrix whose update isn't merged. `y` is the result of the linear map that contains the matrix.
        fn low_rank(self, update: LowRank<'_, Self::Weights>, x: &Self::Buffer, y: &mut Self::Buffer)
            => y: self.tensor(update.adapted.weight, update.rows, update.adapted.stride);

        /// Computes `dx += scale · (dy B) A`, where `dy` is the derivative with respect to the result of the linear map.
        fn low_rank_backward_input(self, update: LowRank<'_, Self::Weights>, dy: &Self::Buffer, dx: &mut Self::Buffer)
            => dx: self.tensor(update.adapted.weight, update.rows, update.adapted.inputs);

        /// Computes `dA += scale · (dy B)ᵀ x` and `dB += scale · dyᵀ (x Aᵀ)`, with `dy` as in [`LinearOps::low_rank_backward_input`].
        fn low_rank_backward(self, update: LowRank<'_, Self::Weights>, gradient: &mut Self::Gradient, dy: &Self::Buffer, x: &Self::Buffer);
    }
}

operations! {
    /// Attention in a pass, and the cache of keys and values.
    trait AttentionOps {
        /// Computes each query's attention to its pieces' keys in `kv`. Saves log-sum-exps, `[queries, H]`, in `lse`.
        fn attention(self, attention: Attention<'_, Self::Lists>, q: &Self::Buffer, kv: &Self::Buffer, out: &mut Self::Buffer, lse: &mut Self::Buffer)
            => out: self.named(self.rows_of(attention.rows), &[("self_attn (attention)", attention.heads.query_width())]);

        /// Replaces `dq` and `dkv` by the derivatives with respect to `q` and `kv`.
        fn attention_backward(self, attention: Attention<'_, Self::Lists>, saved: AttentionInputs<'_, Self::Buffer>, dq: &mut Self::Buffer, dkv: &mut Self::Buffer)
            => dq: self.named(self.rows_of(attention.rows), &[("self_attn (attention, queries)", attention.heads.query_width())]),
               dkv: self.named(attention.keys, &[("self_attn (attention, keys)", attention.heads.key_width() / 2), ("self_attn (attention, values)", attention.heads.key_width() / 2)]);

        /// Stores each row of `kv` in its slot of `layer`.
        fn store_cache(self, heads: Heads, cache: &mut Cache<Self::Buffer>, layer: usize, lists: &Self::Lists, kv: &Self::Buffer);
    }
}

/// Returns the name of a gate in errors.
fn gate_name(kind: Gate) -> &'static str {
    if kind == Gate::Sigmoid { "self_attn (output gate)" } else { "linear_attn (gate)" }
}

operations! {
    /// Gates, and recurrent mixers with their states.
    trait MixerOps {
        /// Splits rows that begin with heads of twice `size`: `first` gets the first halves and the columns after the heads, `second` the second halves.
        fn split_heads(self, heads: HeadRows, x: &Self::Buffer, first: &mut Self::Buffer, second: &mut Self::Buffer);

        /// Joins the halves `first` and `second` of each head in `x`, whose heads have twice the `size` and whose rows have no other columns.
        fn join_heads(self, heads: HeadRows, first: &Self::Buffer, second: &Self::Buffer, x: &mut Self::Buffer);

        /// Computes `y[..len] = kind(gate) * x`.
        fn gate(self, kind: Gate, len: usize, gate: &Self::Buffer, x: &Self::Buffer, y: &mut Self::Buffer)
            => y: self.named(self.place.needed, &[(gate_name(kind), len / self.place.needed.max(1))]);

        /// Replaces `gate` by its derivative, and `dy` by the derivative with respect to `x`. Recomputes `y`.
        fn gate_backward(self, kind: Gate, len: usize, gate: &mut Self::Buffer, x: &Self::Buffer, dy: &mut Self::Buffer, y: &mut Self::Buffer)
            => dy: self.named(self.place.needed, &[(gate_name(kind), len / self.place.needed.max(1))]);

        /// Computes `y = silu(conv(x))` for the first columns of `x`, where `conv` is causal along the paths of the
        /// forest. Stores the latest inputs of each tree in the cache, if given, at the nodes in the lists.
        fn convolve(self, mixer: Mixer<'_, Self::Weights, Self::Lists>, cache: Option<&mut Cache<Self::Buffer>>, x: &Self::Buffer, y: &mut Self::Buffer)
            => y: self.named(self.place.rows, &[("linear_attn.conv1d", mixer.layout.sizes.channels())]);

        /// Replaces the first columns of `dx` by the derivative of those of `x`. Overwrites `dy`.
        fn convolve_backward(self, mixer: Mixer<'_, Self::Weights, Self::Lists>, gradient: Option<&mut Self::Gradient>, x: &Self::Buffer, dy: &mut Self::Buffer, dx: &mut Self::Buffer)
            => dx: self.named(self.place.rows, &[("linear_attn.conv1d", mixer.layout.sizes.input_width())]);

        /// Computes the gated delta rule along the paths of the forest. Inputs are `mixed`, the result of the convolution, and the last columns of
        /// `x`, which are `b` and `a` of each head. Normalises queries and keys in `mixed` in place. Stores the last state of each tree in the cache,
        /// if given, at the nodes in the lists.
        fn delta_rule(self, mixer: Mixer<'_, Self::Weights, Self::Lists>, cache: Option<&mut Cache<Self::Buffer>>, x: &Self::Buffer, mixed: &mut Self::Buffer, out: &mut Self::Buffer)
            => out: self.named(self.rows_of(mixer.rows), &[("linear_attn (gated delta rule)", mixer.layout.sizes.value_width())]);

        /// Replaces `mixed`, the result of the convolution, by its derivative, and the last columns of `dx` by the derivative with respect to `x`.
        fn delta_rule_backward(self, mixer: Mixer<'_, Self::Weights, Self::Lists>, gradient: Option<&mut Self::Gradient>, x: &Self::Buffer, dout: &Self::Buffer, mixed: &mut Self::Buffer, dx: &mut Self::Buffer)
            => mixed: self.named(self.place.rows, &[("linear_attn (gated delta rule)", mixer.layout.sizes.channels())]);

        /// Computes convolution and delta rule for the rows of a decoding step. Updates the rows' states.
        fn step_mixer(self, mixer: Mixer<'_, Self::Weights, Self::Lists>, decoding: &Self::Decoding, cache: &mut Cache<Self::Buffer>, x: &Self::Buffer, mixed: &mut Self::Buffer, out: &mut Self::Buffer)
            => mixed: self.named(self.place.rows, &[("linear_attn.conv1d", mixer.layout.sizes.channels())]),
               out: self.named(self.place.rows, &[("linear_attn (gated delta rule)", mixer.layout.sizes.value_width())]);
    }
}

operations! {
    /// Gated short convolutions. A row of inputs is a gate before the convolution, a gate after it, and the values, each as wide as the result.
    trait ConvolutionOps {
        /// Computes `out = after * conv(before * values)` for the needed rows, along the paths of the forest. Stores the latest inputs of each tree's
        /// convolution in the cache, if given, at the nodes in the lists.
        fn short_convolution(self, mixer: Mixer<'_, Self::Weights, Self::Lists, ConvolutionLayout>, cache: Option<&mut Cache<Self::Buffer>>, x: &Self::Buffer, out: &mut Self::Buffer) [on_cpus]
            => out: self.named(self.rows_of(mixer.rows), &[("conv.conv", mixer.layout.sizes.width)]);

        /// Replaces `dx` by the derivative with respect to `x`.
        fn short_convolution_backward(self, mixer: Mixer<'_, Self::Weights, Self::Lists, ConvolutionLayout>, gradient: Option<&mut Self::Gradient>, x: &Self::Buffer, dout: &Self::Buffer, dx: &mut Self::Buffer) [on_cpus]
            => dx: self.named(self.place.rows, &[("conv.conv", 3 * mixer.layout.sizes.width)]);

        /// Like [`ConvolutionOps::short_convolution`], for the rows of a decoding step. Updates their states.
        fn step_convolution(self, mixer: Mixer<'_, Self::Weights, Self::Lists, ConvolutionLayout>, decoding: &Self::Decoding, cache: &mut Cache<Self::Buffer>, x: &Self::Buffer, out: &mut Self::Buffer) [on_cpus]
            => out: self.named(self.place.rows, &[("conv.conv", mixer.layout.sizes.width)]);
    }
}

operations! {
    /// Operations of the vocabulary head in a pass.
    trait HeadOps {
        /// Writes the log-probability of each pick, and then the entropy of each pick's row, under softmax(logits / temperature) to `scores`. Saves
        /// two values per row in `saved`, and all logits in `logits` if `pass.keeps_logits`.
        fn head(self, pass: HeadPass<'_, Self::Weights, Self::Lists>, x: &Self::Buffer, logits: &mut Self::Buffer, saved: &mut Self::Buffer, scores: &mut Self::Buffer);

        /// Transfers the derivatives of the loss with respect to the scores to the device, in the order of [`HeadOps::head`].
        fn derivatives(self, dlogp: &[f32], dentropy: &[f32], to: &mut Self::Buffer);

        /// Replaces `dx` by the derivative of the head's input, and adds to the head's gradient. Overwrites stored logits.
        fn head_backward(self, pass: HeadPass<'_, Self::Weights, Self::Lists>, gradient: Option<&mut Self::Gradient>, saved: HeadInputs<'_, Self::Buffer>, logits: &mut Self::Buffer, dx: &mut Self::Buffer)
            => dx: self.named(pass.rows, &[("lm_head", pass.head.width)]);

        /// Computes the logits, `[rows, vocabulary]`, without a temperature, and waits for them.
        fn logits(self, weights: &Self::Weights, head: Head, rows: usize, x: &Self::Buffer, logits: &mut Vec<f32>);
    }
    declared {
        /// Returns whether `rows` rows of logits are few enough to be stored between the forward and the backward pass.
        fn keeps_logits(&self, head: Head, rows: usize) -> bool;

        /// Waits for the pass, and reads the results of [`HeadOps::head`].
        fn scores(&mut self, lists: &Self::Lists, scores: &Self::Buffer, logp: &mut [f32], entropy: &mut [f32]) -> Result<(), Error>;
    }
    checked {
        fn keeps_logits(&self, head: Head, rows: usize) -> bool {
            self.inner.keeps_logits(head, rows)
        }

        fn scores(&mut self, lists: &X::Lists, scores: &X::Buffer, logp: &mut [f32], entropy: &mut [f32]) -> Result<(), Error> {
            self.checked()?;
            self.inner.scores(lists, scores, logp, entropy).map_err(|error| self.at_head(error))
        }
    }
    counted {
        fn keeps_logits(&self, _: Head, _: usize) -> bool {
            false
        }

        fn scores(&mut self, _: &(), _: &usize, _: &mut [f32], _: &mut [f32]) -> Result<(), Error> {
            Ok(())
        }
    }
}

operations! {
    /// Decoding steps.
    trait DecodeOps {
        /// Applies the host's changes, builds the next decoding step, and transfers its lists and draws to the device. The step's operations follow,
        /// up to [`DecodeOps::end_step`]; they must not depend on the host.
        fn begin_step(self, changes: &DecodeChanges, decoding: &mut Self::Decoding);

        /// Computes the attention of the step's rows to their sequences in the cache. A row of `qkv` has queries, keys and values as computed by the linear
        /// maps; this operation applies the head norms, if the layer has them, and the rotary embedding. A row's keys and values are stored in its slot before
        /// attention is computed.
        fn step_attention(self, attention: StepAttention<'_, Self::Weights>, decoding: &Self::Decoding, cache: &mut Cache<Self::Buffer>, qkv: &Self::Buffer, out: &mut Self::Buffer)
            => out: self.named(self.place.rows, &[("self_attn (norms, rotary embedding and attention)", attention.heads.query_width())]);

        /// Transfers the draws for the first tokens of completions, from `rows` rows, in the order of their rows.
        fn upload_draws(self, rows: usize, draws: &[Draw], decoding: &mut Self::Decoding);

        /// Samples tokens from rows of `x` with the draws that were transferred last.
        fn sample(self, weights: &Self::Weights, head: Head, sampling: &Sampling, rows: usize, x: &Self::Buffer, decoding: &mut Self::Decoding);

        /// Ends a decoding step, or the draws for the first tokens of completions. The sampled tokens can then be read.
        fn end_step(self, decoding: &mut Self::Decoding);
    }
    declared {
        /// Whether the host may submit a step before it has read the previous step's tokens.
        const RUNS_AHEAD: bool;

        /// Returns the number of rows that the step computes, including padding that a device adds.
        fn step_rows(decoding: &Self::Decoding) -> usize;

        fn step_lists(decoding: &Self::Decoding) -> &Self::Lists;

        /// Waits for sampled tokens and replaces `drawn` by them. Call once per [`DecodeOps::end_step`], in order.
        /// Returns an error if a row's logits are not finite.
        fn wait_for_tokens(&mut self, decoding: &mut Self::Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error>;
    }
    checked {
        const RUNS_AHEAD: bool = X::RUNS_AHEAD;

        fn step_rows(decoding: &X::Decoding) -> usize {
            X::step_rows(decoding)
        }

        fn step_lists(decoding: &X::Decoding) -> &X::Lists {
            X::step_lists(decoding)
        }

        fn wait_for_tokens(&mut self, decoding: &mut X::Decoding, drawn: &mut Vec<Drawn>) -> Result<(), Error> {
            self.checked()?;
            self.inner.wait_for_tokens(decoding, drawn).map_err(|error| self.at_head(error))
        }
    }
    counted {
        const RUNS_AHEAD: bool = false;

        fn step_rows(rows: &usize) -> usize {
            *rows
        }

        fn step_lists(_: &usize) -> &() {
            &()
        }

        fn wait_for_tokens(&mut self, _: &mut usize, _: &mut Vec<Drawn>) -> Result<(), Error> {
            Ok(())
        }
    }
}

/// An executor, which implements all operations.
pub(crate) trait Executor:
    RowOps + NormOps + LinearOps + AttentionOps + MixerOps + ConvolutionOps + HeadOps + DecodeOps
{
}

impl<X: RowOps + NormOps + LinearOps + AttentionOps + MixerOps + ConvolutionOps + HeadOps + DecodeOps>
    Executor for X
{
}
