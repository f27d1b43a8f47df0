"""Checks decoder.py against transformers on the golden checkpoints, before anything is timed."""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file

from decoder import Config, Decoder

GOLDEN = pathlib.Path(__file__).parent.parent / "crates/nn/tests/golden"


def load(folder):
    c = json.loads((folder / "config.json").read_text())
    fields = Config.__dataclass_fields__
    rope_theta = c["rope_parameters"]["rope_theta"]
    bias, norm = c["model_type"] == "qwen2", c["model_type"] == "qwen3"
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    sizes = {k: c[k] for k in fields if k in c and k != "head_dim"}
    model = Decoder(Config(**sizes, head_dim=head_dim, qkv_bias=bias, qk_norm=norm, rope_theta=rope_theta), 256)
    w = load_file(folder / "model.safetensors")
    with torch.no_grad():
        model.embed.weight.copy_(w["model.embed_tokens.weight"])
        model.norm.weight.copy_(w["model.norm.weight"])
        if not c["tie_word_embeddings"]:
            model.head.weight.copy_(w["lm_head.weight"])
        for i, layer in enumerate(model.layers):
            get = lambda name: w[f"model.layers.{i}.{name}"]
            layer.input_norm.weight.copy_(get("input_layernorm.weight"))
            layer.post_norm.weight.copy_(get("post_attention_layernorm.weight"))
            layer.qkv.weight.copy_(torch.cat([get(f"self_attn.{x}_proj.weight") for x in "qkv"]))
            layer.o.weight.copy_(get("self_attn.o_proj.weight"))
            layer.gate_up.weight.copy_(torch.cat([get(f"mlp.{x}_proj.weight") for x in ("gate", "up")]))
            layer.down.weight.copy_(get("mlp.down_proj.weight"))
            if bias:
                layer.qkv.bias.copy_(torch.cat([get(f"self_attn.{x}_proj.bias") for x in "qkv"]))
            if norm:
                layer.q_norm.weight.copy_(get("self_attn.q_norm.weight"))
                layer.k_norm.weight.copy_(get("self_attn.k_norm.weight"))
    return model


@torch.no_grad()
def main():
    for case in ("qwen2_tied", "qwen3_ratio_4"):
        model, gold = load(GOLDEN / case), load_file(GOLDEN / case / "expected.safetensors")
        at, row, worst = 0, 0, 0.0
        for _, prompt, completion in gold["shape"].tolist():
            tokens = gold["tokens"][at : at + prompt + completion][None]
            at, row = at + prompt + completion, row + completion
            if not completion:
                continue
            wanted = gold["logits"][row - completion : row]
            whole = model.head(model(tokens))[0, prompt - 1 : -1]
            cache = model.new_cache(1, prompt + completion)
            steps = [model.prefill(tokens[:, :prompt], cache, slice(0, 1))]
            steps += [model.decode(tokens[:, t], cache, t) for t in range(prompt, prompt + completion - 1)]
            last, rest = model.forward_shared(tokens[:, :prompt], tokens[:, prompt:-1], 1)
            shared = model.head(torch.cat((last[:, None], rest), 1))[0]
            for found in (whole, torch.cat(steps), shared):
                worst = max(worst, (found - wanted).abs().max().item())
        print(f"{case}: whole rows, cached decoding and shared prompt within {worst:.1e} of transformers", file=sys.stderr)
        assert worst < 1e-4, worst


if __name__ == "__main__":
    main()
