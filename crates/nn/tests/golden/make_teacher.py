"""Makes teacher_step.safetensors beside it: one optimizer step with a teacher, and the exact reverse KL, by autograd.

    python crates/nn/tests/golden/make_teacher.py        (after make.py: the policy is qwen2_tied/, the teacher qwen3_ratio_4/)

The completions, rewards and log-probabilities at sampling time are those of make_rl.py. Advantage of token t of completion i:
    A = g (A_i + COEF (logp_teacher - old_logp)),  g = (1 - X / N)^gamma, A_i = (R - mean) / (std + 1e-6)
Then GRPO's loss of make_rl.py as a mean over tokens, clip_grad_norm_ and one step of AdamW. Temperature 1.

The exact divergence is sum_v p(v) (log p(v) - log q(v)) of the token after a prompt, with the policy's p and the teacher's q.
Its gradient is what the advantages COEF = 1 give on average over samples.

Tensors: `tokens`, `shape`, `rewards`, `old_logp` as in make_rl.py; `teacher_logp` per completion token; `loss`, `grad_norm`,
`final.NAME`; `prompt`, `kl` and `kl_gradient.NAME`.
"""

import torch

import make
import make_rl

COEF, MAX_NORM = 0.7, 10.0
# With an eps this large, rounding in a gradient near 0 doesn't decide the sign of a step.
ADAMW = {**make_rl.ADAMW, "eps": 1e-3}


def main():
    make.TEMPERATURE = 1.0
    sequences, rewards = make_rl.make_batch(77)
    model, teacher = make.load(make.HERE / "qwen2_tied"), make.load(make.HERE / "qwen3_ratio_4")
    logp = make.predictions(model, sequences)[1]
    old_logp = logp.detach() + 0.1 * torch.randn(len(logp), generator=torch.Generator().manual_seed(79))
    teacher_logp = make.predictions(teacher, sequences)[1].detach()
    a, g = make_rl.advantages(sequences, rewards), torch.zeros(len(sequences))
    for group in {s[0] for s in sequences}:
        at = torch.tensor([s[0] == group for s in sequences])
        g[at] = (1 - rewards[at].mean()) ** make_rl.GAMMA
    per_token = lambda values: torch.cat([values[i].repeat(len(s[2])) for i, s in enumerate(sequences)])
    advantages = per_token(a) + per_token(g) * COEF * (teacher_logp - old_logp)
    loss = make_rl.token_loss("grpo", logp, old_logp, advantages).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    torch.optim.AdamW(model.parameters(), **ADAMW).step()
    prompt = sequences[0][1]
    exact = make.load(make.HERE / "qwen2_tied")
    last = lambda m: torch.log_softmax(m(input_ids=torch.tensor([prompt]), use_cache=False).logits[0, -1], -1)
    p, q = last(exact), last(teacher).detach()
    kl = (p.exp() * (p - q)).sum()
    kl.backward()
    out = dict(
        tokens=torch.tensor([t for _, p, r in sequences for t in p + r]),
        shape=torch.tensor([[g, len(p), len(r)] for g, p, r in sequences]),
        rewards=rewards, old_logp=old_logp, teacher_logp=teacher_logp,
        loss=loss.detach()[None], grad_norm=norm[None], prompt=torch.tensor(prompt), kl=kl.detach()[None],
        **make.named(model, "final", lambda p: p), **make.named(exact, "kl_gradient", lambda p: p.grad),
    )
    about = make.metadata()
    about.update(script="crates/nn/tests/golden/make_teacher.py", temperature="1", teacher_coef=str(COEF))
    about.update(gamma=str(make_rl.GAMMA), max_norm=str(MAX_NORM))
    betas = "{} {}".format(*ADAMW["betas"])
    about["adamw"] = f"{ADAMW['lr']} {betas} {ADAMW['eps']} {ADAMW['weight_decay']}"
    path = make.HERE / "teacher_step.safetensors"
    make.save(out, path, about)
    path.chmod(0o644)
    print(loss.item(), norm.item(), kl.item())


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    main()
