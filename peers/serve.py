"""Compares the sampling throughput of `fgrpo serve` and llama.cpp's server with the same checkpoint, requests and threads.

    pip install xllamacpp
    python peers/serve.py --fgrpo target/release/fgrpo --model models/lm --clients 1 8 32

The checkpoint is a Qwen3 folder with a tokenizer (`fgrpo init --arch qwen3 --tokenizer DIR ...`). Both servers have 32-bit weights. Each client
sends one request to OpenAI's /v1/completions after another, each with a different prompt, at temperature 1. Tokens are counted as in `usage`.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

LLAMA = """
import sys, threading, xllamacpp
path, port, rows, threads = sys.argv[1], *map(int, sys.argv[2:])
params = xllamacpp.CommonParams()
params.model.path = path
params.hostnames, params.port = ["127.0.0.1"], port
params.n_parallel, params.n_ctx = rows, rows * 512
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(params)
threading.Event().wait()
"""


def post(port, key, body):
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def ready(port, key, process):
    for _ in range(600):
        try:
            return post(port, key, {"model": "m", "prompt": "1", "max_tokens": 1})
        except OSError:
            if process.poll() is not None:
                sys.exit("a server ended before it answered")
            time.sleep(0.2)
    sys.exit("a server didn't answer in two minutes")


def throughput(port, key, clients, tokens, requests):
    """Measures completion tokens per second with `clients` concurrent clients."""
    counts = [0] * clients

    def client(i):
        for turn in range(requests):
            prompt = f"Start with {i + 10}. " + "Add 7. Multiply by 2. Take away 3. " * 3 + f"Add {turn}. What is the result?"
            answer = post(port, key, {"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 1.0, "top_p": 1.0, "top_k": 0,
                                      "min_p": 0.0, "seed": turn * clients + i})
            counts[i] += answer["usage"]["completion_tokens"]

    workers = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(counts) / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fgrpo", default="fgrpo", help="the program")
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--requests", type=int, default=2, help="requests of each client")
    parser.add_argument("--rounds", type=int, default=3, help="the servers take turns; medians are shown")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--port", type=int, default=18080)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        subprocess.run([args.fgrpo, "merge", "--model", str(args.model), "--out", str(place / "model.gguf"), "--dtype", "f32"], check=True)
        (place / "key").write_text("tml-peer-key-of-the-benchmark")
        ours = [args.fgrpo, "serve", "--model", str(args.model), "--name", "m", "--listen", f"127.0.0.1:{args.port}", "--out", str(place / "serve"),
                "--key-file", str(place / "key"), "--threads", str(args.threads)]
        theirs = [sys.executable, "-c", LLAMA, str(place / "model.gguf"), str(args.port + 1), str(max(args.clients)), str(args.threads)]
        key = (place / "key").read_text()
        found = {}
        with (place / "log").open("w") as log:
            servers = [(name, port, subprocess.Popen(command, stdout=log, stderr=log)) for name, port, command in
                       [("fgrpo", args.port, ours), ("llama.cpp", args.port + 1, theirs)]]
            try:
                for name, port, process in servers:
                    ready(port, key, process)
                for clients in args.clients:
                    rounds = {name: [] for name, _, _ in servers}
                    for _ in range(args.rounds):
                        for name, port, _ in servers:
                            rounds[name].append(throughput(port, key, clients, args.tokens, args.requests))
                    found[clients] = {name: sorted(values)[len(values) // 2] for name, values in rounds.items()}
            finally:
                for _, _, process in servers:
                    process.kill()
    print("| clients | fgrpo, tokens/s | llama.cpp, tokens/s | ratio |\n| ---: | ---: | ---: | ---: |")
    for clients, speeds in found.items():
        print(f"| {clients} | {speeds['fgrpo']:.0f} | {speeds['llama.cpp']:.0f} | {speeds['fgrpo'] / speeds['llama.cpp']:.2f} |")


if __name__ == "__main__":
    main()
