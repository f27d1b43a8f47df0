"""Makes gguf/: tiny GGUF files, and what transformers computes from them.

    python crates/nn/tests/golden/make_gguf.py

Needs torch, transformers, safetensors and gguf; the versions used stand in expected.safetensors' metadata.

    llama.gguf               every number type that is read, q and k with their rows interleaved
    qwen2.gguf, qwen3.gguf   biases, norms of heads, tied and untied heads
    expected.safetensors     source: numbers; blocks.TYPE: bytes of blocks, for the older types the source's; values.TYPE: their values; MODEL.tokens; MODEL.logits
                             [tokens, V] of transformers reading MODEL.gguf, in f32

The package writes the older types; blocks of the types with K are random bits with scales that give small numbers.
"""

import pathlib
import shutil
from importlib.metadata import version

import numpy as np
import safetensors.torch
import torch
import transformers
from gguf import GGMLQuantizationType as T
from gguf import GGUFWriter, quants
from gguf.constants import GGML_QUANT_SIZES

HERE = pathlib.Path(__file__).parent / "gguf"
V = 37
OLDER = [T.F32, T.F16, T.BF16, T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1]
# Where a block keeps its scales in half precision.
SCALES = {T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208]}
rng = np.random.default_rng(51)


def random_blocks(kind, count):
    """Random bits; the scales of blocks are small."""
    data = rng.integers(0, 256, (count, GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    for at in SCALES[kind]:
        small = rng.uniform(1e-5, 5e-5, (count, 1)).astype(np.float16)
        data[:, at : at + 2] = small.view(np.uint8)
    return data


def encoded(shape, kind, spread):
    """Bytes of a tensor with random values: [rows, bytes of a row]."""
    if kind in SCALES:
        per_row = shape[1] // GGML_QUANT_SIZES[kind][0]
        return random_blocks(kind, shape[0] * per_row).reshape(shape[0], -1)
    values = rng.normal(0, spread, shape).astype(np.float32)
    return quants.quantize(values, kind)


def write(name, tensors, family, eps, base, heads, kv, head, hidden, inner, layers):
    writer = GGUFWriter(HERE / f"{name}.gguf", family)
    writer.add_block_count(layers)
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv)
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(base)
    writer.add_layer_norm_rms_eps(eps)
    writer.add_vocab_size(V)
    writer.add_eos_token_id(3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([chr(65 + i) for i in range(V)])
    writer.add_token_types([1] * V)
    writer.add_token_merges(["A B"])
    for tensor, (data, kind) in tensors.items():
        writer.add_tensor(tensor, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def model(name, family, kinds, heads, kv, head, hidden, inner, tied, eps, base):
    """Tensors of a model whose layers have these types, in the order q, k, v, o, gate, up, down."""
    tensors = {"token_embd.weight": (encoded((V, hidden), kinds[0], 0.6), kinds[0])}
    norm = lambda n: (rng.uniform(0.5, 1.5, n).astype(np.float32), T.F32)
    for i, layer in enumerate(kinds[1]):
        shapes = dict(
            attn_q=(heads * head, hidden), attn_k=(kv * head, hidden), attn_v=(kv * head, hidden), attn_output=(hidden, heads * head),
            ffn_gate=(inner, hidden), ffn_up=(inner, hidden), ffn_down=(hidden, inner))
        for (module, shape), kind in zip(shapes.items(), layer):
            tensors[f"blk.{i}.{module}.weight"] = (encoded(shape, kind, 1.2 * shape[1] ** -0.5), kind)
            if family == "qwen2" and module in ("attn_q", "attn_k", "attn_v"):
                tensors[f"blk.{i}.{module}.bias"] = (rng.normal(0, 0.3, shape[0]).astype(np.float32), T.F32)
        tensors[f"blk.{i}.attn_norm.weight"] = norm(hidden)
        tensors[f"blk.{i}.ffn_norm.weight"] = norm(hidden)
        if family == "qwen3":
            tensors[f"blk.{i}.attn_q_norm.weight"] = norm(head)
            tensors[f"blk.{i}.attn_k_norm.weight"] = norm(head)
    tensors["output_norm.weight"] = norm(hidden)
    if not tied:
        tensors["output.weight"] = (encoded((V, hidden), T.Q8_0, hidden**-0.5), T.Q8_0)
    write(name, tensors, family, eps, base, heads, kv, head, hidden, inner, len(kinds[1]))


def main():
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    # Numbers of several sizes, zeros, equal ones, halves between codes.
    source = [rng.normal(0, 10.0**e, 32) for e in (-3, 0, 3)] + [np.zeros(32), np.full(32, -1.5), np.append(np.arange(31) / 2, 127)]
    source = np.concatenate(source).astype(np.float32)
    out = {"source": torch.from_numpy(source)}
    for kind in [*OLDER, *SCALES]:
        block = GGML_QUANT_SIZES[kind][0]
        if kind in SCALES:
            data = random_blocks(kind, 2)
        else:
            data = quants.quantize(source, kind)
        values = quants.dequantize(data.reshape(-1, data.shape[-1]), kind).reshape(-1)
        assert len(values) % block == 0
        out[f"blocks.{kind.name}"] = torch.from_numpy(data.reshape(-1).view(np.uint8).copy())
        out[f"values.{kind.name}"] = torch.from_numpy(values.astype(np.float32).copy())
    layers = [[T.Q6_K, T.Q4_K, T.Q5_K, T.Q5_0, T.Q4_K, T.Q5_K, T.Q4_1], [T.Q4_0, T.Q5_1, T.BF16, T.Q8_0, T.Q5_0, T.Q4_1, T.F16]]
    model("llama", "llama", (T.Q8_0, layers), heads=4, kv=2, head=8, hidden=256, inner=32, tied=True, eps=1e-5, base=1e4)
    model("qwen2", "qwen2", (T.F16, [[T.F32] * 7]), heads=4, kv=2, head=8, hidden=32, inner=32, tied=True, eps=1e-6, base=1e6)
    model("qwen3", "qwen3", (T.BF16, [[T.Q8_0] * 7]), heads=2, kv=1, head=32, hidden=32, inner=64, tied=False, eps=1e-6, base=1e6)
    heads = dict(llama=8, qwen2=8, qwen3=32)
    for name in ("llama", "qwen2", "qwen3"):
        config = transformers.AutoConfig.from_pretrained(HERE, gguf_file=f"{name}.gguf")
        config.head_dim = heads[name]  # transformers does not read it for qwen3
        loaded = transformers.AutoModelForCausalLM.from_pretrained(
            HERE, gguf_file=f"{name}.gguf", config=config, dtype=torch.float32, attn_implementation="eager").eval()
        tokens = torch.from_numpy(rng.integers(0, V, 24))
        with torch.no_grad():
            out[f"{name}.logits"] = loaded(input_ids=tokens[None]).logits[0].clone()
        out[f"{name}.tokens"] = tokens
        print(name, out[f"{name}.logits"].std())
    about = {package: version(package) for package in ("torch", "transformers", "gguf")}
    about["script"] = "crates/nn/tests/golden/make_gguf.py"
    safetensors.torch.save_file(out, HERE / "expected.safetensors", about)


main()
