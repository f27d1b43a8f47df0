"""Makes the lora_* folders beside it: adapters as PEFT saves them, on the checkpoints of make.py, and what PyTorch computes with them.

    python crates/nn/tests/golden/make_lora.py        (after make.py; needs peft too, whose version stands in the metadata)

Each case is a folder with `adapter_config.json` and `adapter_model.safetensors` (save_pretrained's output, both factors random) and
`expected.safetensors`: `tokens`, `shape`, `a`, `b`, `c` and the scalar function as in make.py; `logits` of the adapted model and
`merged_logits` after merge_and_unload, both at temperature 1; `grad.NAME` of every factor under its name in the adapter's file; then STEPS
steps of AdamW (settings of make.py) clipped to `max_norm`: `loss`, `grad_norm` and `final.NAME` of every factor.
"""

import shutil

import make
import peft
import torch

CASES = {
    # Some parts of fused products and not others, beside biases.
    "lora_qwen2": ("qwen2_tied", dict(r=3, lora_alpha=8, target_modules=["q_proj", "v_proj", "gate_proj", "down_proj"]), 0.05),
    # Everything, with the other factor.
    "lora_qwen3_rs": ("qwen3_ratio_4", dict(r=4, lora_alpha=2, use_rslora=True, target_modules="all-linear"), None),
}
# Adapters that train more than the layers' matrices: of these `tokens`, `shape` and `logits` alone.
BESIDE = {
    # Whole modules, every norm among them; untied and tied.
    "lora_saved": ("qwen3_ratio_4", dict(r=2, target_modules=["q_proj", "o_proj"], modules_to_save=["embed_tokens", "lm_head", "norm"])),
    "lora_saved_head_of_tied": ("qwen2_tied", dict(r=2, target_modules=["v_proj"], modules_to_save=["lm_head"])),
    "lora_saved_embedding_of_tied": ("qwen2_tied", dict(r=2, target_modules=["v_proj"], modules_to_save=["embed_tokens"])),
    "lora_saved_and_tied": ("qwen2_tied", dict(r=2, target_modules=["v_proj"], modules_to_save=["embed_tokens"], ensure_weight_tying=True)),
    # Factors, beside which PEFT writes the matrices too; untied and tied.
    "lora_head_and_embedding": ("qwen3_ratio_4", dict(r=2, lora_alpha=3, target_modules=["k_proj", "embed_tokens", "lm_head"])),
    "lora_head_of_tied": ("qwen2_tied", dict(r=2, lora_alpha=6, use_rslora=True, target_modules=["lm_head"])),
    "lora_embedding_of_tied": ("qwen2_tied", dict(r=3, target_modules=["up_proj", "embed_tokens"])),
    "lora_tied_to_the_embedding": ("qwen2_tied", dict(r=3, target_modules=["up_proj", "embed_tokens"], ensure_weight_tying=True)),
    # The map from the embedding to the inputs of all layers, among all linear maps.
    "lora_per_layer_projection": ("gemma4_text_shared", dict(r=2, target_modules="all-linear")),
}


def factors(model):
    """Trained parameters under the names of the adapter's file."""
    return {name.replace(".default", ""): p for name, p in model.named_parameters() if p.requires_grad}


def named(prefix, tensors):
    return {f"{prefix}.{name}": t.detach().clone() for name, t in tensors.items()}


def make_case(name, base, settings, max_norm, seed, merges=True):
    folder = make.HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    config = peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, init_lora_weights=False, **settings)
    load = lambda: make.load(make.HERE / base)
    model = peft.get_peft_model(load(), config).eval()
    model.peft_config["default"].base_model_name_or_path = base
    with torch.no_grad():
        for name_, p in factors(model).items():
            p.normal_(0, 0.3 * p.shape[1] ** -0.5)
    model.save_pretrained(folder)

    sequences = make.make_inputs(seed)
    logits, logp, entropy = make.predictions(model, sequences)
    results = dict(logits=logits.detach())
    if merges:
        merged = peft.PeftModel.from_pretrained(load(), folder).merge_and_unload().eval()
        results.update(merged_logits=make.predictions(merged, sequences)[0].detach())
    g = torch.Generator().manual_seed(seed + 1)
    a, b, c = (torch.randn(len(logp), generator=g) * s for s in (2e-3, 4e-3, 1e-3))
    scalar = lambda logp, entropy: (a * logp + c / 2 * logp**2 + b * entropy).sum()
    loss = scalar(logp, entropy)
    loss.backward()
    out = dict(
        tokens=torch.tensor([t for _, p, r in sequences for t in p + r]),
        shape=torch.tensor([[g, len(p), len(r)] for g, p, r in sequences]),
        **results, a=a, b=b, c=c,
        **named("grad", {n: p.grad for n, p in factors(model).items()}),
    )
    optimizer = torch.optim.AdamW(factors(model).values(), **make.ADAMW)
    losses, norms = [], []
    for _ in range(make.STEPS):
        optimizer.zero_grad()
        _, logp, entropy = make.predictions(model, sequences)
        loss = scalar(logp, entropy)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(factors(model).values(), max_norm or float("inf")).item())
        optimizer.step()
        losses.append(loss.item())
    out.update(loss=torch.tensor(losses), grad_norm=torch.tensor(norms), **named("final", factors(model)))
    betas = "{} {}".format(*make.ADAMW["betas"])
    about = make.metadata(
        peft=peft.__version__, base=base, max_norm=str(max_norm),
        adamw=f"{make.ADAMW['lr']} {betas} {make.ADAMW['eps']} {make.ADAMW['weight_decay']}",
    )
    about["script"] = "crates/nn/tests/golden/make_lora.py"
    make.save(out, folder / "expected.safetensors", about)
    (folder / "README.md").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
    print(f"{name}: {sum(p.numel() for p in factors(model).values())} trained, losses {losses}, norms {norms}")


def make_beside(name, base, settings, seed):
    folder = make.HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    config = peft.LoraConfig(task_type="CAUSAL_LM", lora_dropout=0.0, init_lora_weights=False, **settings)
    model = peft.get_peft_model(make.load(make.HERE / base), config).eval()
    model.peft_config["default"].base_model_name_or_path = base
    with torch.no_grad():
        for p in factors(model).values():
            p += torch.randn_like(p) * 0.3
    model.save_pretrained(folder)
    sequences = make.make_inputs(seed)
    # As PEFT reads it again.
    model = peft.PeftModel.from_pretrained(make.load(make.HERE / base), folder).eval()
    out = dict(
        tokens=torch.tensor([t for _, p, r in sequences for t in p + r]),
        shape=torch.tensor([[g, len(p), len(r)] for g, p, r in sequences]),
        logits=make.predictions(model, sequences)[0].detach(),
    )
    about = make.metadata(peft=peft.__version__, base=base)
    about["script"] = "crates/nn/tests/golden/make_lora.py"
    make.save(out, folder / "expected.safetensors", about)
    (folder / "README.md").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
    print(f"{name}: {sum(p.numel() for p in factors(model).values())} trained")


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    for i, (name, (base, settings)) in enumerate(BESIDE.items()):
        make_beside(name, base, settings, 3000 + 10 * i)
    for i, (name, (base, settings, max_norm)) in enumerate(CASES.items()):
        make_case(name, base, settings, max_norm, 2000 + 10 * i)
