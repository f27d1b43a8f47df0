"""Opens a checkpoint folder with transformers and prints its logits: the proof that a folder we wrote is one.

    python open_in_transformers.py FOLDER < sequences.json > logits.json

Input: a JSON list of token lists. Output: {"transformers": version, "logits": [last row's logits of each sequence]}.
"""

import json
import sys

import torch
import transformers

model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
with torch.no_grad():
    rows = [model(input_ids=torch.tensor([ids])).logits[0, -1].tolist() for ids in json.load(sys.stdin)]
json.dump({"transformers": transformers.__version__, "logits": rows}, sys.stdout)
