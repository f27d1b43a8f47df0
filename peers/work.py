"""Times one PyTorch variant on one workload. Prints a JSON line {workload, variant, seconds: {part: [...]}, cpu: {...}, tokens, peak_gb}.

    python work.py WORKLOAD VARIANT [--repeats 5] [--threads 2]

README.md describes workloads and variants. Every repetition does the whole work. An untimed repetition comes first, to warm up and compile.
"""

import argparse
import json
import resource
import time

import torch
import torch.nn.functional as F

from decoder import Config, Decoder, sample

DENSE = Config(32, 256, 688, 4, 4, 2, 64)
MAZE = Config(32, 256, 1024, 4, 4, 2, 64)
# 46 million parameters.
LANGUAGE = Config(16384, 512, 1536, 12, 8, 4, 64, qkv_bias=False, qk_norm=True)


def number_type(variant):
    return torch.bfloat16 if variant.endswith("bf16") else torch.float32


def adamw(model, lr=1e-4):
    return torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.999), weight_decay=0.01, fused=True)


def apply(model, optimizer):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def train_dense(variant, config=DENSE, rows=64, length=160, micro=None):
    """Runs forward, next-token loss, backward, clipping and AdamW over rows x length tokens; in bf16 by autocast, with the loss in f32."""
    model = Decoder(config, length)
    optimizer = adamw(model)
    forward = torch.compile(model) if variant.startswith("compiled") else model
    bf16 = variant.endswith("bf16")
    micro = micro or rows

    def run(parts):
        tokens = torch.randint(config.vocab_size, (rows, length))
        with parts("whole"):
            for part in tokens.split(micro):
                with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                    logits = model.head(forward(part)[:, :-1]).float()
                loss = F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum")
                (loss / (rows * (length - 1))).backward()
            apply(model, optimizer)

    return run, dict(whole=rows * length)


@torch.no_grad()
def prefill_rows(model, prompts, cache, micro):
    logits = []
    for start in range(0, len(prompts), micro):
        rows = slice(start, start + micro)
        logits.append(model.prefill(prompts[rows], cache, rows))
    return torch.cat(logits)


@torch.no_grad()
def prefill_once(model, prompts, cache, n, micro):
    """Computes logits for each of `n` rows per prompt. A prompt is computed once, and its keys and values are copied to its rows of the cache."""
    count, length = prompts.shape
    once = model.new_cache(count, length)
    logits = prefill_rows(model, prompts, once, micro).repeat_interleave(n, 0)
    for rows, prompt in zip(cache, once):
        for r, p in zip(rows, prompt):
            r[:, :, :length] = p.repeat_interleave(n, 0)
    return logits


@torch.no_grad()
def decode_rows(decode, logits, cache, prompt_length, new_tokens, generator):
    """Decodes all rows together. Returns tokens [B, new] and their log-probabilities."""
    tokens, logp = sample(logits.float(), generator)
    out, logps = [tokens], [logp]
    for i in range(new_tokens - 1):
        tokens, logp = sample(decode(tokens, cache, prompt_length + i).float(), generator)
        out.append(tokens)
        logps.append(logp)
    return torch.stack(out, 1), torch.stack(logps, 1)


def prefill(variant, config=DENSE, rows=256, prompt=96, micro=64):
    """Computes the last token's logits of every row and stores keys and values; in bf16 with weights, keys and values of 16 bits."""
    model = Decoder(config, prompt).to(number_type(variant))
    if variant.startswith("compiled"):
        model.prefill = torch.compile(model.prefill)

    def run(parts):
        prompts = torch.randint(config.vocab_size, (rows, prompt))
        cache = model.new_cache(rows, prompt)
        with parts("whole"):
            prefill_rows(model, prompts, cache, micro)

    return run, dict(whole=rows * prompt)


def decode(variant, config=DENSE, rows=256, prompt=96, new=32, micro=64):
    """Samples `new` tokens per row with a KV cache. Every row has a different prompt, whose prefill isn't timed."""
    model = Decoder(config, prompt + new).to(number_type(variant))
    step = torch.compile(model.decode, dynamic=True) if variant.startswith("compiled") else model.decode
    generator = torch.Generator().manual_seed(0)

    def run(parts):
        prompts = torch.randint(config.vocab_size, (rows, prompt))
        cache = model.new_cache(rows, prompt + new)
        logits = prefill_rows(model, prompts, cache, micro)
        with parts("whole"):
            decode_rows(step, logits, cache, prompt, new, generator)

    # The first token comes from the prompt's logits.
    return run, dict(whole=rows * (new - 1))


def policy_loss(logits, targets, old_logp, advantage, tokens):
    """Computes GRPO's clipped surrogate with dual clip, summed over tokens and divided by the token count of the whole batch, and the mean entropy, a metric."""
    log_probs = torch.log_softmax(logits, -1)
    logp = log_probs.gather(-1, targets[..., None])[..., 0]
    with torch.no_grad():
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
    r = (logp - old_logp).exp()
    a = advantage[:, None]
    loss = torch.maximum(-a * r, -a * r.clamp(0.8, 1.2))
    loss = torch.where(a < 0, torch.minimum(loss, -3.0 * a), loss)
    return loss.sum() / tokens, entropy


def rl_step(variant, config=MAZE, prompts=8, n=8, prompt=310, new=32, micro=32):
    """Runs rollout and update of one on-policy step. Variants:

    separate         every row is prefilled and trained separately, without prefix sharing
    shared-prefill   each prompt is prefilled once and its cache copied to its n rows; training is row by row
    shared           as shared-prefill, and the update computes each prompt once and expands its keys and values
    """
    model = Decoder(config, prompt + new)
    optimizer = adamw(model)
    generator = torch.Generator().manual_seed(0)
    rows = prompts * n

    def rollout(x):
        cache = model.new_cache(rows, prompt + new)
        if variant == "separate":
            logits = prefill_rows(model, x.repeat_interleave(n, 0), cache, micro)
        else:
            logits = prefill_once(model, x, cache, n, micro)
        return decode_rows(model.decode, logits, cache, prompt, new, generator)

    def update_rows(x, completions, old_logp, advantage):
        whole = torch.cat((x.repeat_interleave(n, 0), completions), 1)
        for at in torch.arange(rows).split(micro):
            hidden = model(whole[at, :-1])[:, prompt - 1 :]
            loss, _ = policy_loss(model.head(hidden), completions[at], old_logp[at], advantage[at], rows * new)
            loss.backward()
        apply(model, optimizer)

    def update_shared(x, completions, old_logp, advantage):
        groups = max(1, 2 * micro // n)
        for at in torch.arange(prompts).split(groups):
            mine = torch.cat([torch.arange(p * n, p * n + n) for p in at.tolist()])
            last, rest = model.forward_shared(x[at], completions[mine][:, :-1], n)
            hidden = torch.cat((last.repeat_interleave(n, 0)[:, None], rest), 1)
            loss, _ = policy_loss(model.head(hidden), completions[mine], old_logp[mine], advantage[mine], rows * new)
            loss.backward()
        apply(model, optimizer)

    update = update_shared if variant == "shared" else update_rows

    def run(parts):
        x = torch.randint(config.vocab_size, (prompts, prompt))
        start = now()
        with parts("rollout"):
            completions, old_logp = rollout(x)
        # The time of rewards is negligible, and their values don't affect the time.
        reward = (torch.arange(rows) % 3 == 0).float().view(prompts, n)
        advantage = ((reward - reward.mean(1, True)) / (reward.std(1, keepdim=True) + 1e-6)).flatten()
        with parts("update"):
            update(x, completions, old_logp, advantage)
        parts.add("whole", start)

    return run, dict(whole=rows * (prompt + new))


DENSE_VARIANTS = ("eager", "compiled", "eager bf16", "compiled bf16")
MAZE_VARIANTS = ("separate", "shared-prefill", "shared")
WORKLOADS = {
    "train": (train_dense, {}, DENSE_VARIANTS),
    "prefill": (prefill, {}, DENSE_VARIANTS),
    "decode": (decode, {}, DENSE_VARIANTS),
    "maze-8": (rl_step, dict(n=8), MAZE_VARIANTS),
    # Two of the eight prompts, because all of them take PyTorch minutes, and its time is proportional to the number of rows.
    "maze-128": (rl_step, dict(n=128, prompts=2), MAZE_VARIANTS),
    "lm-train": (train_dense, dict(config=LANGUAGE, rows=8, length=256), DENSE_VARIANTS),
    "lm-prefill": (prefill, dict(config=LANGUAGE, rows=16, prompt=256, micro=16), DENSE_VARIANTS),
    "lm-decode": (decode, dict(config=LANGUAGE, rows=64, prompt=64, new=32, micro=16), DENSE_VARIANTS),
}


class Parts:
    """Seconds of each named part of a repetition: wall-clock time, and processor time of all threads."""

    def __init__(self):
        self.seconds, self.cpu = {}, {}

    def __call__(self, name):
        self.name = name
        return self

    def __enter__(self):
        self.start = now()

    def __exit__(self, *_):
        self.add(self.name, self.start)

    def add(self, name, start):
        """Records the end of a part that began at `start`."""
        seconds, cpu = now()
        self.seconds.setdefault(name, []).append(seconds - start[0])
        self.cpu.setdefault(name, []).append(cpu - start[1])


def now():
    return time.perf_counter(), time.process_time()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("workload", choices=WORKLOADS)
    p.add_argument("variant")
    p.add_argument("--repeats", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--micro", type=int, help="rows per forward pass; the default is the fastest we found")
    args = p.parse_args()
    make, settings, variants = WORKLOADS[args.workload]
    if args.variant not in variants:
        p.error(f"variants of {args.workload}: {', '.join(variants)}")
    if args.micro:
        settings = dict(settings, micro=args.micro)
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    run, tokens = make(args.variant, **settings)
    run(Parts())
    parts = Parts()
    for _ in range(args.repeats):
        run(parts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    about = dict(workload=args.workload, variant=args.variant, seconds=parts.seconds, cpu=parts.cpu, tokens=tokens["whole"])
    print(json.dumps(dict(about, peak_gb=round(peak, 2), torch=torch.__version__, threads=args.threads)))


if __name__ == "__main__":
    main()
