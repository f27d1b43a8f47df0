"""Compares greedy answers of llama.cpp and fgrpo from a .gguf file that `fgrpo merge` wrote.

    pip install xllamacpp
    python peers/llama_cpp.py --fgrpo target/release/fgrpo --model runs/words --data words/held-out.jsonl --dtype f16 q8_0

Both use only the file: its weights, tokenizer, template and end tokens. llama.cpp stores keys and values in 32 bits here, as fgrpo does.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import urllib.request

import xllamacpp


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fgrpo", default="fgrpo", help="the program")
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="rows with a prompt each")
    parser.add_argument("--dtype", nargs="+", default=["f16", "q8_0"])
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=48)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        rows = args.data.read_text().splitlines(keepends=True)[: args.prompts]
        (place / "rows.jsonl").write_text("".join(rows))
        for dtype in args.dtype:
            file = place / f"{dtype}.gguf"
            subprocess.run([args.fgrpo, "merge", "--model", args.model, "--out", file, "--dtype", dtype], check=True)
            command = [args.fgrpo, "generate", "--model", file, place / "rows.jsonl", "--temperature", "0", "--max-tokens", str(args.tokens)]
            lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
            ours = [json.loads(line) for line in lines]
            equal = compared(file, ours, args.tokens)
            print(f"{dtype}: {equal} of {len(ours)} greedy answers equal")


def compared(file, ours, tokens):
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = 1, 2048
    params.use_jinja, params.warmup = True, False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.cpuparams.poll = 0
    server = xllamacpp.Server(params)
    equal = 0
    for row in ours:
        body = {"messages": [{"role": "user", "content": row["prompt"]}], "temperature": 0, "max_tokens": tokens}
        request = urllib.request.Request(
            f"{server.listening_address}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            theirs = json.load(answer)["choices"][0]["message"]["content"]
        if theirs.strip() == row["text"].strip():
            equal += 1
        else:
            print(f"differs:\n  fgrpo     {row['text']!r}\n  llama.cpp {theirs!r}")
    return equal


main()
