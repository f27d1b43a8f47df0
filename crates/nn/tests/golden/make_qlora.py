"""Makes the qlora_* folders beside it: models that transformers saves with bitsandbytes in 4 bits, adapters of PEFT on them, and what PyTorch computes.

    python crates/nn/tests/golden/make_qlora.py        (needs peft, bitsandbytes and accelerate too; versions stand in the metadata; on a CPU)

`NAME_base` is the model (`load_in_4bit`, NF4, values in f32), NAME has the adapter and `expected.safetensors` as make_lora.py writes them, without
`merged_logits`. Widths are multiples of 64, because bitsandbytes 0.50.2 takes wrong scales for others on AVX-512. Its products in bfloat16 for
processors that have them are turned off.
"""

import shutil
import tempfile

import bitsandbytes
import bitsandbytes.nn.modules
import make
import make_lora
import torch
import transformers

COMMON = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    tie_word_embeddings=True, rope_parameters=dict(rope_type="default", rope_theta=1e4), **make.COMMON)
LORA = dict(r=4, lora_alpha=6, target_modules="all-linear")
CASES = {
    # Scales of 8 bits, beside biases.
    "qlora_qwen2": (transformers.Qwen2Config(**COMMON), True, LORA, 4.9),
    # Scales in f32, and matrices without factors.
    "qlora_qwen3_plain": (transformers.Qwen3Config(**COMMON), False, dict(LORA, target_modules=["k_proj", "o_proj", "up_proj"]), None),
    # Fused matrices.
    "qlora_phi3": (transformers.Phi3Config(pad_token_id=None, **COMMON), True, LORA, None),
}


def make_base(folder, config, nested, seed):
    shutil.rmtree(folder, ignore_errors=True)
    model = make.make_model(config, seed)
    four_bits = transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=nested, bnb_4bit_compute_dtype=torch.float32)
    with tempfile.TemporaryDirectory() as plain:
        model.save_pretrained(plain)
        load = transformers.AutoModelForCausalLM.from_pretrained
        load(plain, quantization_config=four_bits, dtype=torch.float32, device_map="cpu").save_pretrained(folder)


def main():
    torch.use_deterministic_algorithms(True)
    bitsandbytes.nn.modules.has_avx512bf16 = lambda: False
    for i, (name, (config, nested, settings, max_norm)) in enumerate(CASES.items()):
        base = make.HERE / f"{name}_base"
        make_base(base, config, nested, 3000 + i)
        make_lora.make_case(name, base.name, settings, max_norm, 3000 + 10 * i, merges=False)
        for path in base.iterdir():
            path.chmod(0o644)
    print(f"bitsandbytes {bitsandbytes.__version__}")


if __name__ == "__main__":
    main()
