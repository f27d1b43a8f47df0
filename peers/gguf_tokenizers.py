"""Compares the tokens of a .gguf file's tokenizer with llama.cpp, for each supported pre-tokenizer, and with transformers or SentencePiece if they read the file.

    pip install xllamacpp gguf transformers sentencepiece
    python peers/gguf_tokenizers.py --fgrpo target/release/fgrpo
    python peers/gguf_tokenizers.py --golden crates/cli/tests/golden/gemma4_tokens.json    # needs only xllamacpp, gguf and tokenizers

All vocabularies are trained here, on the project's pages. Gemma 4's has characters instead of bytes, and runs of newlines that no merge makes. llama.cpp splits a run
that is longer than any of these tokens into single newlines; fgrpo takes the longest tokens, as Gemma's own tokenizer does, so the strings for that file have no such runs. The byte-level one is trained on whole lines, so that its merges cross the positions at which a
pre-tokenizer splits, and is written once for each pre-tokenizer's name. `fgrpo merge` writes the tokenizer.json that is compared. transformers always splits words as GPT-2
does, so it is compared for that file only, and only if PyTorch is installed, which it needs to read a .gguf file. Qwen2's tokenizer composes characters first (NFC) and
llama.cpp doesn't, so the strings for that file are composed before.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import pathlib
import random
import re
import subprocess
import tempfile
import unicodedata
import urllib.request

import numpy as np
import xllamacpp
from gguf import GGUFWriter, TokenType
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
SCRIPTS = [(0x20, 0x7E), (0xA0, 0x17F), (0x370, 0x4FF), (0x5D0, 0x64A), (0x900, 0x97F), (0x3040, 0x30FF), (0x4E00, 0x4EFF), (0xAC00, 0xACFF), (0x1F300, 0x1F64F)]
EDGES = ["\n", "\n\n", " \n", "\r\n", "\t", "  ", "   ", "\u00a0", "\u3000", "'s", "'RE", "don't", "1234567", "3.14", "٣٤", "½", "e\u0301", "ﬁ", "👩\u200d🚀", "_", "__init__", "://", "...", "<", "\\frac{1}{2}", "\u2581"]
GEMMA_4 = ["<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|tool_call>", "<tool_call|>", '<|"|>']
NEWLINES = 8  # length of the longest run of newlines that is a token


def texts(count):
    """Joins at random: parts of pages and code, characters of many scripts, and characters that split words."""
    draw = random.Random(0)
    pages = [path.read_text() for folder, kind in [("docs", "*.md"), ("peers", "*.py")] for path in sorted((ROOT / folder).glob(kind))]
    letters = [[c for c in map(chr, range(a, b + 1)) if unicodedata.category(c) != "Cn"] for a, b in SCRIPTS]

    def piece():
        kind = draw.random()
        if kind < 0.4:
            page = draw.choice(pages)
            start = draw.randrange(len(page))
            return page[start : start + draw.randint(1, 120)]
        if kind < 0.7:
            return "".join(draw.choices(draw.choice(letters), k=draw.randint(1, 12)))
        return draw.choice(EDGES)

    return ["".join(piece() for _ in range(draw.randint(1, 5))) for _ in range(count)]


def write(path, pre, tokens, kinds, merges=None, scores=None):
    """Writes a model of one layer and width 32 with this tokenizer. The special tokens are those of Gemma 4 or unk, bos, eos."""
    ids = {"unk": 3, "bos": 2, "eos": 1} if pre == "gemma4" else {"unk": 0, "bos": 1, "eos": 2}
    rng = np.random.default_rng(0)
    writer = GGUFWriter(path, "llama")
    for add, value in [("block_count", 1), ("context_length", 65536), ("embedding_length", 32), ("feed_forward_length", 32), ("head_count", 2),
                       ("head_count_kv", 2), ("layer_norm_rms_eps", 1e-5), ("vocab_size", len(tokens)), ("rope_dimension_count", 16)]:
        getattr(writer, f"add_{add}")(value)
    writer.add_tokenizer_model(pre if pre == "gemma4" else "gpt2" if merges else "llama")
    if pre != "gemma4":
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    for name, id in ids.items():
        getattr(writer, f"add_{name}_token_id")(id)
    if merges:
        writer.add_token_merges(merges)
    else:
        writer.add_token_scores(scores)
    matrix = lambda *shape: rng.normal(0, 0.1, shape).astype(np.float32)
    for name, tensor in [("token_embd", matrix(len(tokens), 32)), ("output_norm", np.ones(32, np.float32)), ("blk.0.attn_norm", np.ones(32, np.float32)),
                         ("blk.0.ffn_norm", np.ones(32, np.float32)), *((f"blk.0.{part}", matrix(32, 32)) for part in
                         ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"])]:
        writer.add_tensor(f"{name}.weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class LlamaCpp:
    def __init__(self, path):
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.hostnames, params.port = ["127.0.0.1"], 0
        params.n_parallel, params.n_ctx, params.warmup = 1, 512, False
        params.cpuparams.poll = 0
        self.server = xllamacpp.Server(params)

    def __call__(self, text):
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        request = urllib.request.Request(f"{self.server.listening_address}/tokenize", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)["tokens"]


def byte_level(pages):
    """Trains a byte-level BPE without a pre-tokenizer. Returns its tokens, their types and the merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    special = [f"<{name}>" for name in ("unk", "s", "/s")]
    trainer = trainers.BpeTrainer(vocab_size=4000, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train([str(page) for page in pages], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    kinds = [TokenType.CONTROL if token in special else TokenType.NORMAL for token in tokens]
    return tokens, kinds, [" ".join(merge) for merge in model["merges"]]


def gemma_4(pages, size):
    """Trains a BPE of characters, as Gemma 4 has. Returns its tokens, their types and the merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    trainer = trainers.BpeTrainer(vocab_size=size, limit_alphabet=90, max_token_length=8, show_progress=False)
    tokenizer.train([str(page) for page in pages], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    learned = ["\n" * n for n in range(1, NEWLINES + 1)] + [token for token in sorted(model["vocab"], key=model["vocab"].get) if token != "\n"]
    tokens = [*GEMMA_4, *(f"<0x{byte:02X}>" for byte in range(256)), *learned]
    # llama.cpp's converter gives the type user-defined to the tokens that it shows in answers.
    special = [TokenType.USER_DEFINED if "tool" in token or '"' in token else TokenType.CONTROL for token in GEMMA_4]
    kinds = special + [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(learned)
    return tokens, kinds, [" ".join(merge) for merge in model["merges"]]


def without_long_runs(text):
    return re.sub("\n+", lambda run: run[0][:NEWLINES], text)


def golden(path, pages):
    """Writes a small tokenizer of Gemma 4's kind with llama.cpp's tokens of some strings."""
    tokens, kinds, merges = gemma_4(pages, 300)
    with tempfile.TemporaryDirectory() as place:
        file = pathlib.Path(place) / "gemma4.gguf"
        write(file, "gemma4", tokens, kinds, merges=merges)
        tokenize = LlamaCpp(file)
        marks = ["<|turn>user\nHello   you<turn|>\n", '<|tool_call>call:add{a:<|"|>2<|"|>}<tool_call|>', "<0x41>", " \n \n", "\n" * NEWLINES, "x\n\n\ny", ""]
        strings = [without_long_runs(text) for text in marks + EDGES + texts(40)]
        made_by = {"script": "peers/gguf_tokenizers.py --golden", **{name: importlib.metadata.version(name) for name in ("xllamacpp", "gguf", "tokenizers")}}
        data = {"made_by": made_by, "tokens": tokens, "kinds": [int(kind) for kind in kinds], "merges": merges}
        pathlib.Path(path).write_text(json.dumps({**data, "strings": [[text, tokenize(text)] for text in strings]}, ensure_ascii=False) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fgrpo", default="fgrpo", help="the program")
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--show", type=int, default=3, help="texts to show that differ")
    parser.add_argument("--golden", help="writes a file with llama.cpp's tokens for the tests, and nothing else")
    args = parser.parse_args()
    if args.golden:
        return golden(args.golden, sorted((ROOT / "docs").glob("*.md")))
    import sentencepiece
    import transformers

    samples = texts(args.texts)
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        pages = sorted((ROOT / "docs").glob("*.md"))
        tokens, kinds, merges = byte_level(pages)
        cases = []
        for pre in ["gpt-2", "smollm", "llama-bpe", "qwen2", "tekken", "smaug-bpe", "default", "deepseek-r1-qwen", "pixtral", "qwen35", "gpt-4o", "dbrx", "refact", "lfm2"]:
            write(place / f"{pre}.gguf", pre, tokens, kinds, merges=merges)
            cases.append((pre, None))
        characters, types, pairs = gemma_4(pages, 4000)
        write(place / "gemma4.gguf", "gemma4", characters, types, merges=pairs)
        cases.append(("gemma4", None))
        if importlib.util.find_spec("torch"):
            reference = transformers.AutoTokenizer.from_pretrained(place, gguf_file="gpt-2.gguf")
            cases.append(("gpt-2", lambda text: reference(text, add_special_tokens=False)["input_ids"]))

        sentencepiece.SentencePieceTrainer.train(
            input=",".join(map(str, pages)), model_prefix=str(place / "sp"), vocab_size=3000, model_type="bpe", byte_fallback=True, character_coverage=0.999,
            normalization_rule_name="identity", remove_extra_whitespaces=False, split_digits=True, allow_whitespace_only_pieces=True, minloglevel=2,
        )
        sp = sentencepiece.SentencePieceProcessor(model_file=str(place / "sp.model"))
        ids = range(sp.get_piece_size())
        kind = lambda i: TokenType.UNKNOWN if sp.is_unknown(i) else TokenType.CONTROL if sp.is_control(i) else TokenType.BYTE if sp.is_byte(i) else TokenType.NORMAL
        write(place / "llama.gguf", "default", [sp.id_to_piece(i) for i in ids], [kind(i) for i in ids], scores=[sp.get_score(i) for i in ids])
        cases += [("llama", None), ("llama", sp.encode)]

        for name, other in cases:
            composed = [unicodedata.normalize("NFC", text) if "qwen" in name else text for text in samples]
            composed = [without_long_runs(text) if name == "gemma4" else text for text in composed]
            out = place / f"{name}-folder"
            if not out.exists():
                subprocess.run([args.fgrpo, "merge", "--model", place / f"{name}.gguf", "--out", out], check=True, stdout=subprocess.DEVNULL)
            ours = Tokenizer.from_file(str(out / "tokenizer.json"))
            by = "llama.cpp" if other is None else "sentencepiece" if name == "llama" else "transformers"
            other = other or LlamaCpp(place / f"{name}.gguf")
            different = [(text, a, b) for text in composed if (a := ours.encode(text, add_special_tokens=False).ids) != (b := other(text))]
            print(f"{name}, {by}: {len(samples) - len(different)} of {len(samples)} texts have equal tokens", flush=True)
            for text, a, b in different[: args.show]:
                print(f"  {text!r}\n    fgrpo {[ours.id_to_token(i) for i in a]}\n    {by} {[ours.id_to_token(i) for i in b]}")


main()
