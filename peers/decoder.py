"""A decoder in PyTorch as an experienced user would write it for a CPU: fused projections, SDPA with grouped heads, a preallocated KV cache.

It computes the same as Hugging Face's Qwen2, Qwen3 and Llama (see check.py). Shapes: B rows, T tokens, H heads, K KV heads, E head size.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Config:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    qkv_bias: bool = True
    qk_norm: bool = False
    tie_word_embeddings: bool = True
    rope_theta: float = 1e6
    rms_norm_eps: float = 1e-6


class Layer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        q, kv = c.num_attention_heads * c.head_dim, c.num_key_value_heads * c.head_dim
        self.input_norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.qkv = nn.Linear(c.hidden_size, q + 2 * kv, bias=c.qkv_bias)
        self.o = nn.Linear(q, c.hidden_size, bias=False)
        self.post_norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.gate_up = nn.Linear(c.hidden_size, 2 * c.intermediate_size, bias=False)
        self.down = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)
        if c.qk_norm:
            self.q_norm = nn.RMSNorm(c.head_dim, c.rms_norm_eps)
            self.k_norm = nn.RMSNorm(c.head_dim, c.rms_norm_eps)

    def project(self, x, rope):
        """Computes rotated queries [B, H, T, E], and rotated keys and values [B, K, T, E]."""
        c = self.c
        b, t, _ = x.shape
        qkv = self.qkv(self.input_norm(x)).view(b, t, -1, c.head_dim)
        q, k, v = qkv.split([c.num_attention_heads, c.num_key_value_heads, c.num_key_value_heads], 2)
        if c.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        return rotate(q, rope).transpose(1, 2), rotate(k, rope).transpose(1, 2), v.transpose(1, 2)

    def finish(self, x, attended):
        """Computes the residual stream after this layer; `attended` [B, H, T, E]."""
        b, h, t, e = attended.shape
        x = x + self.o(attended.transpose(1, 2).reshape(b, t, h * e))
        gate, up = self.gate_up(self.post_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)

    def forward(self, x, rope):
        q, k, v = self.project(x, rope)
        return self.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))


def rotate(x, rope):
    """x [B, T, heads, E]; rope: cosines and sines [T, E]."""
    cos, sin = rope
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos[:, None] + turned * sin[:, None]


class Decoder(nn.Module):
    def __init__(self, c: Config, max_positions: int, std: float = 0.02):
        super().__init__()
        self.c = c
        self.embed = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = nn.RMSNorm(c.hidden_size, c.rms_norm_eps)
        self.head = nn.Linear(c.hidden_size, c.vocab_size, bias=False)
        if c.tie_word_embeddings:
            self.head.weight = self.embed.weight
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, 0.0, std)
        for layer in self.layers:
            if c.qkv_bias:
                nn.init.zeros_(layer.qkv.bias)
        frequency = c.rope_theta ** -(torch.arange(0, c.head_dim, 2) / c.head_dim)
        angle = torch.arange(max_positions)[:, None] * frequency
        angle = torch.cat((angle, angle), -1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def rope(self, start, stop):
        kind = self.embed.weight.dtype
        return self.cos[start:stop].to(kind), self.sin[start:stop].to(kind)

    def forward(self, tokens):
        """Computes normalised hidden states [B, T, D] of whole rows."""
        x, rope = self.embed(tokens), self.rope(0, tokens.shape[1])
        for layer in self.layers:
            x = layer(x, rope)
        return self.norm(x)

    def prefill(self, tokens, cache, rows):
        """Fills the first positions of `rows` in the cache. Returns the last token's logits [B, V]."""
        t = tokens.shape[1]
        x, rope = self.embed(tokens), self.rope(0, t)
        for layer, (keys, values) in zip(self.layers, cache):
            q, k, v = layer.project(x, rope)
            keys[rows, :, :t], values[rows, :, :t] = k, v
            x = layer.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
        return self.head(self.norm(x[:, -1]))

    def decode(self, tokens, cache, at: int):
        """Runs one token per row at position `at`. Returns logits [B, V]."""
        x, rope = self.embed(tokens)[:, None], self.rope(at, at + 1)
        for layer, (keys, values) in zip(self.layers, cache):
            q, k, v = layer.project(x, rope)
            keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
            attended = F.scaled_dot_product_attention(q, keys[:, :, : at + 1], values[:, :, : at + 1], enable_gqa=True)
            x = layer.finish(x, attended)
        return self.head(self.norm(x[:, 0]))

    def new_cache(self, rows, positions):
        c = self.c
        shape = (rows, c.num_key_value_heads, positions, c.head_dim)
        kind = self.embed.weight.dtype
        return [(torch.empty(shape, dtype=kind), torch.empty(shape, dtype=kind)) for _ in self.layers]

    def forward_shared(self, prompts, completions, n):
        """Computes hidden states of the prompts' last tokens [P, D] and of completions [P * n, T, D]. Each prompt is computed once.

        The prompt's keys and values are expanded over its `n` completions, so autograd sums their gradients.
        """
        tp, tc = prompts.shape[1], completions.shape[1]
        x, y = self.embed(prompts), self.embed(completions)
        rope_x, rope_y = self.rope(0, tp), self.rope(tp, tp + tc)
        mask = torch.ones(tc, tp + tc, dtype=torch.bool).tril(tp)
        for layer in self.layers:
            q, k, v = layer.project(x, rope_x)
            x = layer.finish(x, F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
            q, own_k, own_v = layer.project(y, rope_y)
            k = torch.cat((k.repeat_interleave(n, 0), own_k), 2)
            v = torch.cat((v.repeat_interleave(n, 0), own_v), 2)
            y = layer.finish(y, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True))
        return self.norm(x[:, -1]), self.norm(y)


def sample(logits, generator):
    """Draws tokens from softmax(logits). Returns them with their log-probabilities."""
    logp = torch.log_softmax(logits, -1)
    tokens = torch.multinomial(logp.exp(), 1, generator=generator)
    return tokens[:, 0], logp.gather(1, tokens)[:, 0]
