"""Compares log-probabilities in f32, ours and PyTorch's, with PyTorch in float64, on answers of a chat model.

    .venv/bin/python peers/exactness.py --fgrpo target/release/fgrpo --model FOLDER
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

PROMPTS = ["2+3", "Tell me about the history of Rome.", "Ann has 32 apples and Dev has 39. How many do they have together?"]


def logp(model, tokens):
    with torch.no_grad():
        of_all = model(torch.tensor([tokens])).logits.double().log_softmax(-1)[0]
    return of_all[torch.arange(len(tokens) - 1), torch.tensor(tokens[1:])].numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fgrpo", default="fgrpo")
    parser.add_argument("--model", required=True, help="a Hugging Face folder")
    parser.add_argument("--tokens", type=int, default=160)
    args = parser.parse_args()
    torch.manual_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    single, double = (AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype) for dtype in (torch.float32, torch.float64))
    asked = [tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True, return_dict=False) for text in PROMPTS]
    answers = [single.generate(torch.tensor([ids]), do_sample=True, max_new_tokens=args.tokens)[0].tolist() for ids in asked]
    with tempfile.TemporaryDirectory() as folder:
        lines = pathlib.Path(folder) / "tokens.jsonl"
        lines.write_text("".join(json.dumps({"tokens": tokens}) + "\n" for tokens in answers))
        scored = subprocess.run([args.fgrpo, "score", "--model", args.model, str(lines)], check=True, capture_output=True, text=True)
    ours = [json.loads(line)["logp"] for line in scored.stdout.splitlines()]
    exact = [logp(double, tokens) for tokens in answers]
    print(f"{sum(map(len, exact))} tokens | root mean square | largest")
    for name, found in {"fgrpo": ours, "PyTorch": [logp(single, tokens) for tokens in answers]}.items():
        off = np.concatenate([np.abs(np.array(a) - b) for a, b in zip(found, exact, strict=True)])
        print(f"{name} | {np.sqrt(np.mean(off**2)):.1e} | {off.max():.1e}")


if __name__ == "__main__":
    main()
