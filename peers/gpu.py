"""Times decoding and an RL step of a 0.6B model in PyTorch on a GPU, for comparison with the cases of the same names of `step_time`. Prints a JSON line for each case.

    python gpu.py [--repeats 3] [--device cuda] [--small] [CASE...]

bf16 is used where our engine uses it: sampling has weights, keys and values in 16 bits; training uses autocast over f32 weights. PyTorch runs eagerly, with a preallocated
KV cache, and during sampling computes a prompt once for all its completions. `--small` uses a small model, to test this program on a CPU.
"""

import argparse
import copy
import json
import time

import torch

from decoder import Config, Decoder
from work import adamw, apply, decode_rows, policy_loss, prefill_once, prefill_rows

QWEN = Config(151_936, 1024, 3072, 28, 16, 8, 128, qkv_bias=False, qk_norm=True)
SMALL = Config(512, 64, 128, 2, 4, 2, 16, qkv_bias=False, qk_norm=True)


def now(device):
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def decode(config, device, rows=256, prompt=100, new=128, micro=64):
    """Decodes `new` tokens after each of `rows` prompts. The first isn't counted, because it comes from the prompt's logits."""
    model = Decoder(config, prompt + new).to(torch.bfloat16)
    generator = torch.Generator(device).manual_seed(0)

    def run():
        prompts = torch.randint(config.vocab_size, (rows, prompt))
        cache = model.new_cache(rows, prompt + new)
        logits = prefill_rows(model, prompts, cache, micro)
        start = now(device)
        decode_rows(model.decode, logits, cache, prompt, new, generator)
        return {"whole": now(device) - start}

    return run, rows * (new - 1)


def step(config, device, prompts=8, n=8, prompt=128, new=256, micro=16):
    """Runs rollout and update with `n` completions for each of `prompts` prompts."""
    model = Decoder(config, prompt + new)
    sampler = copy.deepcopy(model).to(torch.bfloat16)
    optimizer = adamw(model)
    generator = torch.Generator(device).manual_seed(0)
    rows = prompts * n

    @torch.no_grad()
    def rollout(x):
        for own, trained in zip(sampler.parameters(), model.parameters()):
            own.copy_(trained)
        cache = sampler.new_cache(rows, prompt + new)
        logits = prefill_once(sampler, x, cache, n, micro)
        return decode_rows(sampler.decode, logits, cache, prompt, new, generator)

    def update(x, completions, old_logp, advantage):
        whole = torch.cat((x.repeat_interleave(n, 0), completions), 1)
        for at in torch.arange(rows).split(micro):
            with torch.autocast(device, torch.bfloat16):
                logits = model.head(model(whole[at, :-1])[:, prompt - 1 :]).float()
            loss, _ = policy_loss(logits, completions[at], old_logp[at], advantage[at], rows * new)
            loss.backward()
        apply(model, optimizer)

    def run():
        x = torch.randint(config.vocab_size, (prompts, prompt))
        start = now(device)
        completions, old_logp = rollout(x)
        sampled = now(device)
        advantage = torch.where(torch.arange(rows) % 4 == 0, 1.5, -0.5)
        update(x, completions, old_logp, advantage)
        end = now(device)
        return {"whole": end - start, "rollout": sampled - start, "update": end - sampled}

    return run, rows * (prompt + new)


CASES = {"qwen3-0.6b-decode": decode, "qwen3-0.6b-step": step}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--device", default="cuda")
    p.add_argument("--small", action="store_true")
    args = p.parse_args()
    torch.set_default_device(args.device)
    torch.manual_seed(0)
    for case in args.cases or CASES:
        run, tokens = CASES[case](SMALL if args.small else QWEN, args.device)
        # Once to warm up.
        times = [run() for _ in range(args.repeats + 1)][1:]
        ms = {f"{part}_ms".replace("whole_", ""): 1e3 * sorted(t[part] for t in times)[len(times) // 2] for part in times[0]}
        print(json.dumps({"engine": "pytorch", "version": torch.__version__, "case": case, "tokens": tokens} | ms), flush=True)


if __name__ == "__main__":
    main()
