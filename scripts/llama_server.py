"""Serves a model folder of fgrpo by llama.cpp's own server, for tests against the real one.

The weights and the tokenizer are written as a GGUF file (32-bit floats), and the server is the one
that the wheel xllamacpp carries: no compiler, no network. Qwen3 folders alone, with a byte-level BPE tokenizer.

    pip install xllamacpp gguf safetensors
    python scripts/llama_server.py runs/base/checkpoints/step-000060 8080

The optional test runs it: FGRPO_LLAMA_PYTHON=python cargo test -p fgrpo --test commands -- --ignored real_llama
"""

import json
import sys
import tempfile
import threading
from pathlib import Path

import gguf
from safetensors.numpy import load_file

# Names in a layer of the folder, and in GGUF.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(folder, path):
    config = json.loads((folder / "config.json").read_text())
    if config["model_type"] != "qwen3":
        sys.exit(f"{folder}: found a model of type {config['model_type']}, wanted qwen3")
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_name("fgrpo")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_tokenizer(writer, folder, config)
    for name, tensor in load_file(folder / "model.safetensors").items():
        stem, _, kind = name.rpartition(".")
        if stem in OUTER:
            ours = f"{OUTER[stem]}.{kind}"
        else:
            _, _, layer, part = stem.split(".", 3)
            ours = f"blk.{layer}.{LAYER[part]}.{kind}"
        writer.add_tensor(ours, tensor.astype("float32"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_tokenizer(writer, folder, config):
    data = json.loads((folder / "tokenizer.json").read_text())
    tokens = [b"[unused %d]" % i for i in range(config["vocab_size"])]
    types = [gguf.TokenType.UNUSED] * config["vocab_size"]
    for text, number in data["model"]["vocab"].items():
        tokens[number], types[number] = text.encode(), gguf.TokenType.NORMAL
    for added in data["added_tokens"]:
        tokens[added["id"]], types[added["id"]] = added["content"].encode(), gguf.TokenType.CONTROL
    merges = [m if isinstance(m, str) else " ".join(m) for m in data["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_pad_token_id(config["pad_token_id"])
    writer.add_add_bos_token(False)
    template = folder / "chat_template.jinja"
    if template.exists():
        writer.add_chat_template(template.read_text())


def main():
    folder, port = Path(sys.argv[1]), int(sys.argv[2])
    import xllamacpp

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "model.gguf"
        write_gguf(folder, path)
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.hostnames, params.port = ["127.0.0.1"], port
        params.n_parallel, params.n_ctx = 4, 4 * 1024
        params.warmup = False
        server = xllamacpp.Server(params)
        print(f"serving {folder} at {server.listening_address}", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
