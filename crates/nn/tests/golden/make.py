"""Makes the golden files beside it: tiny random checkpoints as transformers saves them, and what PyTorch computes from them.

    python crates/nn/tests/golden/make.py [CASE...]

Needs torch, transformers and safetensors; the versions used stand in each file's metadata. Each case is a folder:

    config.json, model*.safetensors   save_pretrained's output (one case sharded, one in bfloat16)
    expected.safetensors              inputs and results, all in f32, below

Inputs. `tokens` holds all sequences end to end, `shape` a row (group, prompt length, completion length) per sequence; sequences of
a group have the same prompt. A prediction is a completion's token given all before it, in order of sequences.
Results. `logits` [predictions, V] at temperature 1; `logp`, `entropy` of softmax(logits / TEMPERATURE). The scalar function is
sum(a * logp + c / 2 * logp^2 + b * entropy), `grad.NAME` its gradient. Cases with an optimizer: STEPS steps of AdamW on that
function with clipping to `max_norm`; `loss` and `grad_norm` (before clipping) per step and `final.NAME` weights.
"""

import pathlib
import shutil
import sys

import safetensors.torch
import torch
import transformers
from transformers import Gemma3TextConfig, Gemma4TextConfig, GraniteConfig, Lfm2Config, LlamaConfig, Ministral3Config, MistralConfig, Olmo2Config, Olmo3Config, Phi3Config, Qwen2Config, Qwen3Config, Qwen3_5TextConfig, SmolLM3Config

HERE = pathlib.Path(__file__).parent
TEMPERATURE = 0.8
STEPS = 4
ADAMW = dict(lr=1e-2, betas=(0.9, 0.95), eps=1e-6, weight_decay=0.1)
V = 37

COMMON = dict(vocab_size=V, max_position_embeddings=256, attn_implementation="eager")
LLAMA3 = dict(
    rope_type="llama3", rope_theta=1000.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
    original_max_position_embeddings=64,
)
YARN = dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=32)
GEMMA4 = dict(
    sliding_window=7, pad_token_id=None, rope_parameters=dict(
        full_attention=dict(rope_type="proportional", rope_theta=1e4, partial_rotary_factor=0.5),
        sliding_attention=dict(rope_type="default", rope_theta=100.0)), **COMMON)
CASES = {
    # GQA ratio 2, bias, tied.
    "qwen2_tied": Qwen2Config(
        hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e4), **COMMON),
    # Ratio 1, three heads of 10 in a width of 16, untied; sharded.
    "qwen2_odd_heads_sharded": Qwen2Config(
        hidden_size=16, intermediate_size=22, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3, head_dim=10,
        tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1e6), **COMMON),
    # Ratio 4, QK-norm, heads wider than the model, untied.
    "qwen3_ratio_4": Qwen3Config(
        hidden_size=20, intermediate_size=26, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=8,
        tie_word_embeddings=False, rope_parameters=dict(rope_type="default", rope_theta=1e4), **COMMON),
    # QK-norm, tied; saved in bfloat16.
    "qwen3_tied_bf16": Qwen3Config(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e4), **COMMON),
    # Llama-3 scaling with frequencies below, within and above its band, ratio 2, head size not width / heads, tied.
    "llama3_scaled": LlamaConfig(
        hidden_size=24, intermediate_size=18, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=LLAMA3, **COMMON),
    # Linear scaling, ratio 1, untied.
    "llama_linear": LlamaConfig(
        hidden_size=16, intermediate_size=20, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
        tie_word_embeddings=False, rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=2.5), **COMMON),
    # A window much shorter than the sequences, ratio 2, untied.
    "mistral_window": MistralConfig(
        hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=6,
        tie_word_embeddings=False, sliding_window=7, rope_parameters=dict(rope_type="default", rope_theta=1e4), **COMMON),
    # YaRN whose band blends pairs, and its factor of cosines and sines.
    "qwen3_yarn": Qwen3Config(
        hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        tie_word_embeddings=True, rope_parameters=YARN, **COMMON),
    # YaRN without that factor; queries would grow beyond 128 tokens.
    "ministral3": Ministral3Config(
        hidden_size=24, intermediate_size=18, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1, head_dim=8,
        tie_word_embeddings=False, pad_token_id=None, rope_parameters=dict(
            rope_type="yarn", rope_theta=1e4, factor=2.0, original_max_position_embeddings=128, beta_fast=4.0, beta_slow=1.0,
            mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1), **COMMON),
    # No rotary embedding in every second layer, ratio 2, tied.
    "smollm3": SmolLM3Config(
        hidden_size=24, intermediate_size=18, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        no_rope_layer_interval=2, pad_token_id=None, rope_parameters=dict(rope_type="default", rope_theta=1e4), **COMMON),
    # Norms after attention and MLP, and of whole queries and keys; ratio 2, untied. PyTorch would not train a padding token.
    "olmo2": Olmo2Config(
        hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=False, pad_token_id=None, rope_parameters=dict(rope_type="default", rope_theta=1e4), **COMMON),
    # Windows but for every second layer, two bases, four norms by 1 + weight, GELU, scaled embedding and scores; ratio 2, tied.
    "gemma3_text": Gemma3TextConfig(
        hidden_size=24, intermediate_size=18, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        pad_token_id=None, sliding_window=7, sliding_window_pattern=2, query_pre_attn_scalar=10, rope_parameters=dict(
            full_attention=dict(rope_type="linear", rope_theta=1e4, factor=2.0),
            sliding_attention=dict(rope_type="default", rope_theta=100.0)), **COMMON),
    # OLMo 2 with a window in all but the last layer, whose frequencies alone are scaled.
    "olmo3": Olmo3Config(
        hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        layer_types=["sliding_attention", "full_attention"], sliding_window=7, pad_token_id=None, rope_parameters=dict(
            full_attention=dict(YARN), sliding_attention=dict(rope_type="default", rope_theta=1000.0)), **COMMON),
    # Gated DeltaNet after attention with an output gate and rotary embedding of a quarter of each of three heads; six value heads on three key
    # heads. The epsilon damps what a norm of nearly nothing makes of rounding: with 1e-6 PyTorch's gradients move by 5e-5 if weights move by 6e-8.
    "qwen3_5_text": Qwen3_5TextConfig(
        hidden_size=24, intermediate_size=18, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=16,
        layer_types=["full_attention", "linear_attention"], linear_num_key_heads=3, linear_num_value_heads=6,
        linear_key_head_dim=8, linear_value_head_dim=8, rms_norm_eps=1e-3, rope_parameters=dict(
            rope_type="default", rope_theta=1e4, partial_rotary_factor=0.25), **COMMON),
    # Factors of the embedding, the scores, the residual and the logits; ratio 2, tied.
    "granite": GraniteConfig(
        hidden_size=24, intermediate_size=18, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        embedding_multiplier=3.0, attention_multiplier=0.3, residual_multiplier=0.6, logits_scaling=1.7,
        tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e4), **COMMON),
    # Fused matrices, LongRoPE on half of each head, within the original length; ratio 2, untied.
    "phi3": Phi3Config(
        hidden_size=32, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        original_max_position_embeddings=128, pad_token_id=None, tie_word_embeddings=False, rope_parameters=dict(
            rope_type="longrope", rope_theta=1e4, partial_rotary_factor=0.5, short_factor=[1.0, 1.7],
            long_factor=[1.0, 9.0], original_max_position_embeddings=128), **COMMON),
    # Gated short convolutions around attention with norms of each head; a width of the MLP that is rounded up from two thirds; ratio 2, tied.
    "lfm2": Lfm2Config(
        hidden_size=24, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
        layer_types=["conv", "full_attention", "conv"], block_multiple_of=20, pad_token_id=None, rope_parameters=dict(
            rope_type="default", rope_theta=1e4), **COMMON),
    # As the dense model: keys that are values and other heads in the last layer, half of whose pairs rotate; a soft cap; tied.
    "gemma4_text": Gemma4TextConfig(
        hidden_size=24, intermediate_size=18, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"], global_head_dim=12, num_global_key_value_heads=1,
        attention_k_eq_v=True, hidden_size_per_layer_input=0, final_logit_softcapping=4.0, **GEMMA4),
    # As E2B and E4B: the last two layers borrow keys and values and have a wide MLP; per-layer inputs. The epsilon damps rounding, as above.
    "gemma4_text_shared": Gemma4TextConfig(
        hidden_size=24, intermediate_size=10, num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        layer_types=[f"{kind}_attention" for kind in ("sliding", "full", "sliding", "sliding", "full")], global_head_dim=12,
        num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=10, vocab_size_per_layer_input=V,
        final_logit_softcapping=6.0, rms_norm_eps=5e-2, **GEMMA4),
}
OPTIMIZED = {"qwen2_tied": 4.9, "qwen3_ratio_4": None, "olmo2": 2.0, "gemma3_text": 2.0, "qwen3_5_text": 2.0, "granite": 2.0, "phi3": 2.0, "lfm2": 2.0,
             "gemma4_text": 2.0,
             "gemma4_text_shared": 2.0}


def metadata(**more):
    versions = dict(torch=torch.__version__, transformers=transformers.__version__)
    return dict(script="crates/nn/tests/golden/make.py", temperature=str(TEMPERATURE), **versions, **more)


def make_model(config, seed):
    """Weights large enough that attention is not uniform, norms and biases that matter."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    for name, p in model.named_parameters():
        with torch.no_grad():
            if "norm" in name:
                p.uniform_(0.5, 1.5)
                p -= float(config.model_type.startswith(("gemma3", "qwen3_5")) and "linear_attn" not in name)
                if config.model_type == "gemma4_text" and "q_norm" in name:
                    p *= p.shape[0] ** -0.5  # the scores aren't divided by it
            elif name.endswith("A_log"):
                p.uniform_(-3, 0)
            elif "conv1d" in name or "conv.conv" in name:
                p.normal_(0, 0.6)
            elif name.endswith("bias"):
                p.normal_(0, 0.3)
            else:
                p.normal_(0, 0.6 if "embed" in name else 1.2 * p.shape[1] ** -0.5)
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.uniform_(0.5, 1.5)
    return model


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def make_inputs(seed):
    """Two groups whose completions share prefixes, repeat and differ in length; a lone sequence longer than any band of RoPE."""
    g = torch.Generator().manual_seed(seed)
    draw = lambda n: torch.randint(V, (n,), generator=g).tolist()
    prompts, stems = [draw(5), draw(9), draw(70)], [draw(3), draw(2), []]
    tails = [[draw(4), draw(6), [], draw(1)], [draw(7), draw(3), draw(3)], [draw(12)]]
    tails[1][2] = tails[1][1]  # the same completion twice
    sequences = []
    for group, (prompt, stem) in enumerate(zip(prompts, stems)):
        sequences += [(group, prompt, stem + tail) for tail in tails[group]]
    sequences.append((0, prompts[0], draw(5)))  # one more that shares nothing but the prompt
    return sorted(sequences, key=lambda s: s[0])


def predictions(model, sequences):
    """Logits of every completion token, one sequence at a time: no padding, no sharing."""
    rows = []
    for _, prompt, completion in sequences:
        ids = torch.tensor([prompt + completion])
        logits = model(input_ids=ids, use_cache=False).logits[0]
        rows.append(logits[len(prompt) - 1 : -1])
    logits = torch.cat(rows)
    targets = torch.tensor([t for _, _, completion in sequences for t in completion])
    log_probs = torch.log_softmax(logits / TEMPERATURE, -1)
    logp = log_probs.gather(1, targets[:, None])[:, 0]
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    return logits, logp, entropy


def named(model, prefix, what):
    return {f"{prefix}.{name}": what(p).detach().clone() for name, p in model.named_parameters()}


def save(tensors, path, about):
    safetensors.torch.save_file({k: v.contiguous() for k, v in tensors.items()}, path, about)


def make_case(name, config, seed):
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model = make_model(config, seed)
    if name.endswith("bf16"):
        model.bfloat16()
    model.save_pretrained(folder, max_shard_size="9KB" if name.endswith("sharded") else "5GB")
    model = load(folder)

    sequences = make_inputs(seed)
    logits, logp, entropy = predictions(model, sequences)
    g = torch.Generator().manual_seed(seed + 1)
    a, b, c = (torch.randn(len(logp), generator=g) * s for s in (2e-3, 4e-3, 1e-3))
    scalar = lambda logp, entropy: (a * logp + c / 2 * logp**2 + b * entropy).sum()
    loss = scalar(logp, entropy)
    loss.backward()
    out = dict(
        tokens=torch.tensor([t for _, p, r in sequences for t in p + r]),
        shape=torch.tensor([[g, len(p), len(r)] for g, p, r in sequences]),
        logits=logits.detach(), logp=logp.detach(), entropy=entropy.detach(), a=a, b=b, c=c,
        **named(model, "grad", lambda p: p.grad),
    )
    about = metadata(loss=repr(loss.item()))
    if name in OPTIMIZED:
        max_norm = OPTIMIZED[name]
        # With a larger epsilon, an element whose gradient is nearly 0 moves by less than its rounding.
        adamw = ADAMW | (dict(eps=1e-3) if name == "gemma4_text_shared" else {})
        optimizer = torch.optim.AdamW(model.parameters(), **adamw)
        losses, norms = [], []
        for _ in range(STEPS):
            optimizer.zero_grad()
            _, logp, entropy = predictions(model, sequences)
            loss = scalar(logp, entropy)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm or float("inf"))
            optimizer.step()
            losses.append(loss.item())
            norms.append(norm.item())
        fixed = {f"final.{name}": buffer.clone() for name, buffer in model.named_buffers() if name.endswith("layer_scalar")}
        out.update(
            loss=torch.tensor(losses), grad_norm=torch.tensor(norms), **named(model, "final", lambda p: p), **fixed)
        betas = "{} {}".format(*adamw["betas"])
        about.update(adamw=f"{adamw['lr']} {betas} {adamw['eps']} {adamw['weight_decay']}", max_norm=str(max_norm))
    save(out, folder / "expected.safetensors", about)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)
    size = sum(p.numel() for p in model.parameters())
    print(f"{name}: {size} parameters, {len(logp)} predictions, gradient norms {out.get('grad_norm')}")


if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    for i, (name, config) in enumerate(CASES.items()):
        if name in sys.argv[1:] or len(sys.argv) == 1:
            make_case(name, config, 1000 + 10 * i)
