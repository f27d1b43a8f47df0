"""Compares llama.cpp and fgrpo on .gguf files that `fgrpo merge` writes.

    pip install xllamacpp
    python peers/llama_cpp.py --fgrpo target/release/fgrpo --model runs/words --data words/held-out.jsonl --dtype f16 q8_0

compares greedy answers of one model. Both programs use only the file: its weights, tokenizer, template and end tokens.

    pip install xllamacpp torch transformers
    python peers/llama_cpp.py --fgrpo target/release/fgrpo --families

compares every family, on a small checkpoint of each with random weights that transformers saves (all families, or those that are named): the log-probability of
every token of 8 sequences, from f32, and greedy answers to 100 prompts, from f16. llama.cpp rounds activations to f16 if the weights are f16. It stores keys and
values in 32 bits here, as fgrpo does. With `--fixtures FOLDER` it writes a smaller file of each family, and llama.cpp's log-probabilities, for the tests of
crates/nn/tests/golden_gguf.rs.
"""

import argparse
import importlib.util
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import urllib.request

import xllamacpp

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "crates/nn/tests/golden/make.py"
# Printable ASCII, in the alphabet of byte-level BPE; a token each.
LETTERS = [chr(c) if c > 32 else "\u0120" for c in range(32, 127)]
SPECIAL = [f"<|{name}|>" for name in ("endoftext", "user", "assistant")]
TEMPLATE = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fgrpo", default="fgrpo", help="the program")
    parser.add_argument("--model")
    parser.add_argument("--data", type=pathlib.Path, help="rows with a prompt each")
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--fixtures", type=pathlib.Path)
    parser.add_argument("--dtype", nargs="+", default=["f16", "q8_0"])
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=48)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        if args.fixtures:
            fixtures(args, place)
            return
        if args.families is not None:
            families(args, place)
            return
        rows = args.data.read_text().splitlines(keepends=True)[: args.prompts]
        for dtype in args.dtype:
            equal, count = greedy(args, args.model, rows, place / f"{dtype}.gguf")
            print(f"{dtype}: {equal} of {count} greedy answers equal")


def configurations(width=96, inner=160, heads=6, head=32):
    """Small configurations of every family, with the forms that llama.cpp computes differently or that its files store differently."""
    import transformers as t

    plain = lambda theta=1e4: dict(rope_type="default", rope_theta=theta)
    yarn = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=64)
    size = dict(hidden_size=width, intermediate_size=inner, num_hidden_layers=4, num_attention_heads=heads, num_key_value_heads=2)
    wide = size | dict(head_dim=head)
    pairs = width // heads // 4
    kinds = lambda last, other, every, layers: [last if (i + 1) % every == 0 else other for i in range(layers)]
    window = lambda every, layers: kinds("full_attention", "sliding_attention", every, layers)
    gemma4 = dict(
        sliding_window=16, pad_token_id=None, final_logit_softcapping=9.0, rope_parameters=dict(
            full_attention=dict(rope_type="proportional", rope_theta=1e4, partial_rotary_factor=0.25), sliding_attention=plain(100.0)))
    return {
        "llama": t.LlamaConfig(**wide, rope_parameters=dict(
            rope_type="llama3", rope_theta=1e3, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)),
        "qwen2": t.Qwen2Config(**size, rope_parameters=plain(), tie_word_embeddings=True),
        "qwen3": t.Qwen3Config(**wide, rope_parameters=plain()),
        "qwen3 (YaRN)": t.Qwen3Config(**wide, rope_parameters=yarn | dict(attention_factor=1.3)),
        "granite": t.GraniteConfig(
            **size, embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.6, logits_scaling=1.7, rope_parameters=plain()),
        "gemma3_text": t.Gemma3TextConfig(
            **wide, query_pre_attn_scalar=head, sliding_window=16, layer_types=window(2, 4), rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e4, factor=2.0), sliding_attention=plain(100.0))),
        "mistral": t.MistralConfig(**wide, sliding_window=None, rope_parameters=plain()),
        "ministral3": t.Ministral3Config(**wide, rope_parameters=yarn | dict(
            original_max_position_embeddings=128, beta_fast=4.0, beta_slow=1.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)),
        "olmo2": t.Olmo2Config(**size, rope_parameters=plain()),
        "olmo3": t.Olmo3Config(**size, sliding_window=16, layer_types=window(4, 4), rope_parameters=dict(
            full_attention=yarn, sliding_attention=plain())),
        "smollm3": t.SmolLM3Config(**size, rope_parameters=plain(), tie_word_embeddings=True),
        "phi3": t.Phi3Config(**size, original_max_position_embeddings=256, rope_parameters=plain()),
        "phi3 (LongRoPE)": t.Phi3Config(
            **size, original_max_position_embeddings=512, rope_parameters=dict(
                rope_type="longrope", rope_theta=1e4, partial_rotary_factor=0.5, short_factor=[1.2, 1.3, 1.7, 2.0][:pairs],
                long_factor=[1.0, 3.0, 9.0, 9.0][:pairs],
                original_max_position_embeddings=512)),
        "lfm2": t.Lfm2Config(**size, layer_types=kinds("full_attention", "conv", 2, 4), block_auto_adjust_ff_dim=False, rope_parameters=plain()),
        "qwen3_5_text": t.Qwen3_5TextConfig(
            **wide, layer_types=kinds("full_attention", "linear_attention", 2, 4), linear_num_key_heads=3, linear_num_value_heads=6,
            linear_key_head_dim=head // 2, linear_value_head_dim=head // 2, rope_parameters=plain() | dict(partial_rotary_factor=0.25)),
        "gemma4_text (dense)": t.Gemma4TextConfig(
            **wide, layer_types=window(4, 4), global_head_dim=2 * head, num_global_key_value_heads=1, attention_k_eq_v=True,
            hidden_size_per_layer_input=0, **gemma4),
        "gemma4_text (E2B)": t.Gemma4TextConfig(
            **wide | dict(num_hidden_layers=8), layer_types=window(4, 8), global_head_dim=2 * head, num_kv_shared_layers=4, use_double_wide_mlp=True,
            hidden_size_per_layer_input=head, vocab_size_per_layer_input=len(LETTERS + SPECIAL), **gemma4),
    }


def checkpoint(folder, config, make):
    """Saves a random model with a tokenizer of single characters."""
    vocabulary = {text: i for i, text in enumerate(LETTERS + SPECIAL)}
    config.vocab_size, config.max_position_embeddings = len(vocabulary), 512
    config.bos_token_id = config.eos_token_id = vocabulary[SPECIAL[0]]
    config.pad_token_id = None
    make(config, 1).save_pretrained(folder)
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    added = [dict(id=vocabulary[text], content=text, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True) for text in SPECIAL]
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None, fuse_unk=False, byte_fallback=False,
                 ignore_merges=False, vocab=vocabulary, merges=[])
    tokenizer = dict(version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=None, pre_tokenizer=byte_level, post_processor=None,
                     decoder=byte_level, model=model)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = dict(tokenizer_class="PreTrainedTokenizerFast", eos_token=SPECIAL[0], chat_template=TEMPLATE)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def maker():
    """The function that draws the weights of the golden checkpoints."""
    spec = importlib.util.spec_from_file_location("make", GOLDEN)
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    return make.make_model


def fixtures(args, place):
    import numpy as np
    import safetensors.numpy

    make, draw, out = maker(), random.Random(0), {}
    for name, config in configurations(width=16, inner=24, heads=4, head=8).items():
        if name in ("llama", "qwen2", "qwen3"):
            continue  # files of the package gguf test them
        name = name.replace(" ", "_").strip(")").replace("(", "").lower()
        checkpoint(place / name, config, make)
        # llama.cpp applies rules for Phi-3's tokens if the model is called so, and the file's name becomes the model's.
        file = place / name / "model.gguf"
        merge(args, place / name, file, "f32")
        shutil.copy(file, args.fixtures / f"{name}.gguf")
        tokens, server = draw.choices(range(len(LETTERS)), k=24), Server(file)
        out[f"{name}.tokens"] = np.array(tokens)
        out[f"{name}.logp"] = np.array([server.log_probabilities(tokens[: at + 1]) for at in range(len(tokens))], np.float32)
    about = dict(script="peers/llama_cpp.py", xllamacpp=xllamacpp.__version__)
    safetensors.numpy.save_file(out, args.fixtures / "expected.safetensors", about)


def families(args, place):
    make = maker()
    draw = random.Random(0)
    text = lambda length: "".join(draw.choices([chr(c) for c in range(32, 127)], k=length))
    rows = [json.dumps({"prompt": text(draw.randint(8, 40)).strip()}) + "\n" for _ in range(args.prompts)]
    sequences = [draw.choices(range(len(LETTERS)), k=64) for _ in range(8)]
    print(f"| family | largest difference of {8 * 63} log-probabilities, f32 |" + "".join(f" greedy answers equal, {dtype} |" for dtype in args.dtype))
    print("|---|---|" + "---|" * len(args.dtype))
    for name, config in configurations().items():
        if args.families and name.split()[0] not in args.families:
            continue
        folder = place / name.replace(" ", "-")
        checkpoint(folder, config, make)
        try:
            worst = log_probabilities(args, folder, sequences)
            equal = [greedy(args, folder, rows, folder / f"{dtype}.gguf") for dtype in args.dtype]
            print(f"| {name} | {worst:.1e} |" + "".join(f" {part} of {count} |" for part, count in equal), flush=True)
        except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
            print(f"| {name} | {error} | |", flush=True)


def merge(args, model, file, dtype):
    subprocess.run([args.fgrpo, "merge", "--model", model, "--out", file, "--dtype", dtype], check=True, stdout=subprocess.DEVNULL)


def log_probabilities(args, model, sequences):
    """Largest difference between llama.cpp and fgrpo, which reads the same file and the checkpoint that it was made from."""
    file = model / "scored.gguf"
    merge(args, model, file, "f32")
    (model / "tokens.jsonl").write_text("".join(json.dumps({"tokens": tokens}) + "\n" for tokens in sequences))
    server, worst = Server(file), 0.0
    score = lambda model: subprocess.run([args.fgrpo, "score", "--model", model, folder / "tokens.jsonl"], check=True, stdout=subprocess.PIPE, text=True)
    folder = model
    ours = [[json.loads(line)["logp"] for line in score(place).stdout.splitlines()] for place in (file, folder)]
    for tokens, of_file, of_folder in zip(sequences, *ours):
        for at in range(1, len(tokens)):
            theirs = server.log_probabilities(tokens[:at])[tokens[at]]
            worst = max(worst, abs(theirs - of_file[at - 1]), abs(theirs - of_folder[at - 1]))
    return worst


class Server:
    """llama.cpp's server in this process."""

    def __init__(self, file, small=True):
        params = xllamacpp.CommonParams()
        params.model.path = str(file)
        params.hostnames, params.port = ["127.0.0.1"], 0
        # LongRoPE's other factors apply to a context beyond the original one.
        params.n_parallel, params.n_ctx = 1, 512 if small else 2048
        params.use_jinja, params.warmup = True, False
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        if small:
            # It would round queries to f16.
            params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.cpuparams.poll = 0
        self.server = xllamacpp.Server(params)

    def post(self, path, body):
        request = urllib.request.Request(f"{self.server.listening_address}{path}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def log_probabilities(self, prompt):
        """Log-probability of every token after a prompt."""
        count = len(LETTERS + SPECIAL)
        body = {"prompt": prompt, "n_predict": 1, "n_probs": count, "temperature": 0, "cache_prompt": False}
        listed = self.post("/completion", body)["completion_probabilities"][0]["top_logprobs"]
        values = {entry["id"]: entry["logprob"] for entry in listed}
        return [values[token] for token in range(count)]


def greedy(args, model, rows, file):
    """Number of greedy answers that are equal, and of all."""
    merge(args, model, file, file.stem)
    prompts = file.with_suffix(".jsonl")
    prompts.write_text("".join(rows))
    command = [args.fgrpo, "generate", "--model", file, prompts, "--temperature", "0", "--max-tokens", str(args.tokens)]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    server, equal = Server(file, small=args.families is not None), 0
    for row in map(json.loads, lines):
        body = {"messages": [{"role": "user", "content": row["prompt"]}], "temperature": 0, "max_tokens": args.tokens}
        theirs = server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        if theirs.strip() == row["text"].strip():
            equal += 1
        else:
            print(f"differs:\n  fgrpo     {row['text']!r}\n  llama.cpp {theirs!r}", file=sys.stderr)
    return equal, len(lines)


main()
