"""Makes rl_step.safetensors beside it: one optimizer step of GRPO, DAPO and CISPO with the focal weight, from the published formulas.

    python crates/nn/tests/golden/make_rl.py        (after make.py: it starts from the checkpoint in qwen2_tied/)

Formulas, autograd doing the rest. r = exp(logp - old_logp), mean over all completion tokens of the batch:
    GRPO   max(-A r, -A clip(r, 0.8, 1.2)), and for A < 0 at most -3 A          (PPO clip with the dual clip, c = 3)
    DAPO   the same with clip(r, 0.8, 1.28)                                      (Clip-Higher)
    CISPO  -stop_gradient(clip(r, 0, 6)) A logp
    A      (1 - X / N)^gamma (R - mean) / (std + 1e-6), std with N - 1, gamma = 0.5, X correct of N    (F-GRPO's focal weight)
Then clip_grad_norm_ to 0.1 and one step of AdamW. Rewards are 0 or 1. `old_logp` is the model's own log-probability
plus noise, so that ratios fall on both sides of every bound. Temperature 1.

Tensors: `tokens`, `shape` as in make.py, `rewards` per sequence, `advantages` per sequence, `old_logp` per completion token; then
`loss.M`, `grad_norm.M` (before clipping), `clipped.M` (tokens whose gradient is cut off) and `final.M.NAME` for M in grpo, dapo, cispo.
"""

import torch

import make

ADAMW = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
GAMMA, MAX_NORM = 0.5, 0.1


def make_batch(seed):
    g = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randint(make.V, (n,), generator=g).tolist()
    sequences, rewards = [], []
    for group, wins in enumerate([[1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 0]]):
        prompt, stem = draw(6 + 3 * group), draw(2)
        for i, win in enumerate(wins):
            sequences.append((group, prompt, stem * (i % 2) + draw(3 + 2 * i)))
            rewards.append(float(win))
    return sequences, torch.tensor(rewards)


def advantages(sequences, rewards):
    out = torch.zeros_like(rewards)
    for group in {g for g, _, _ in sequences}:
        at = torch.tensor([g == group for g, _, _ in sequences])
        r = rewards[at]
        weight = (1 - r.mean()) ** GAMMA
        out[at] = weight * (r - r.mean()) / (r.std(correction=1) + 1e-6)
    return out


def token_loss(method, logp, old_logp, a):
    r = (logp - old_logp).exp()
    if method == "cispo":
        return -r.clamp(0.0, 6.0).detach() * a * logp
    high = 1.28 if method == "dapo" else 1.2
    loss = torch.maximum(-a * r, -a * r.clamp(0.8, high))
    return torch.where(a < 0, torch.minimum(loss, -3.0 * a), loss)


def main():
    sequences, rewards = make_batch(77)
    a = advantages(sequences, rewards)
    per_token = torch.cat([a[i].repeat(len(s[2])) for i, s in enumerate(sequences)])
    make.TEMPERATURE = 1.0
    model = make.load(make.HERE / "qwen2_tied")
    logp = make.predictions(model, sequences)[1].detach()
    old_logp = logp + 0.5 * torch.randn(len(logp), generator=torch.Generator().manual_seed(78))
    old_logp[3] -= 2.0  # ratios beyond 6 and beyond the dual clip
    old_logp[10] -= 2.5
    out = dict(
        tokens=torch.tensor([t for _, p, r in sequences for t in p + r]),
        shape=torch.tensor([[g, len(p), len(r)] for g, p, r in sequences]),
        rewards=rewards, advantages=a, old_logp=old_logp,
    )
    for method in ("grpo", "dapo", "cispo"):
        model = make.load(make.HERE / "qwen2_tied")
        logp = make.predictions(model, sequences)[1]
        logp.retain_grad()
        loss = token_loss(method, logp, old_logp, per_token).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
        torch.optim.AdamW(model.parameters(), **ADAMW).step()
        cut = ((logp.grad == 0) & (per_token != 0)).sum()
        out.update({f"loss.{method}": loss.detach()[None], f"grad_norm.{method}": norm[None], f"clipped.{method}": cut[None]})
        out.update(make.named(model, f"final.{method}", lambda p: p))
        print(method, loss.item(), norm.item(), cut.item(), "of", len(logp))
    about = make.metadata()
    about.update(script="crates/nn/tests/golden/make_rl.py", temperature="1", gamma=str(GAMMA), max_norm=str(MAX_NORM))
    betas = "{} {}".format(*ADAMW["betas"])
    about["adamw"] = f"{ADAMW['lr']} {betas} {ADAMW['eps']} {ADAMW['weight_decay']}"
    path = make.HERE / "rl_step.safetensors"
    make.save(out, path, about)
    path.chmod(0o644)


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    main()
