"""Serves a .gguf file with llama.cpp's server, for tests with the real program.

The wheel xllamacpp contains the server, so neither a compiler nor the network is needed.

    pip install xllamacpp
    fgrpo merge --model runs/base --out base.gguf --dtype f32
    python scripts/llama_server.py base.gguf 8080

The optional test runs it: FGRPO_LLAMA_PYTHON=python cargo test -p fgrpo --test commands -- --ignored real_llama
"""

import sys
import threading

import xllamacpp

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames, params.port = ["127.0.0.1"], int(sys.argv[2])
params.n_parallel, params.n_ctx = 4, 4 * 1024
params.warmup = False
server = xllamacpp.Server(params)
print(f"serving {sys.argv[1]} at {server.listening_address}", flush=True)
threading.Event().wait()
