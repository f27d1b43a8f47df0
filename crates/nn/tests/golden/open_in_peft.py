"""Opens an adapter with PEFT on transformers' model, and makes another one: the proof that adapters we wrote are PEFT's, and the reverse.

    python open_in_peft.py MODEL ADAPTER OTHER < sequences.json > logits.json

Input: a JSON list of token lists. OTHER becomes the folder of an adapter of all linear maps with random factors, as PEFT saves it. Output: {"peft": version,
"base", "ours", "theirs"}: the logits of all rows of all sequences without an adapter, with ADAPTER, and with OTHER.
"""

import json
import sys

import peft
import torch
import transformers

model, adapter, other = sys.argv[1:]
sequences = json.load(sys.stdin)


def load():
    config = transformers.AutoConfig.from_pretrained(model)
    auto = transformers.AutoModelForImageTextToText if hasattr(config, "vision_config") else transformers.AutoModelForCausalLM
    return auto.from_pretrained(model, dtype=torch.float32).eval()


def logits(policy):
    with torch.no_grad():
        return [row for ids in sequences for row in policy(input_ids=torch.tensor([ids])).logits[0].tolist()]


out = {"peft": peft.__version__, "base": logits(load()), "ours": logits(peft.PeftModel.from_pretrained(load(), adapter))}
torch.manual_seed(1)
settings = peft.LoraConfig(task_type="CAUSAL_LM", r=3, lora_alpha=6, target_modules="all-linear", init_lora_weights=False)
theirs = peft.get_peft_model(load(), settings).eval()
theirs.save_pretrained(other)
out["theirs"] = logits(theirs)
json.dump(out, sys.stdout)
