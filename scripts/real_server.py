"""Tests `fgrpo eval` with a real server: `transformers serve` on a randomly initialised checkpoint.

Makes a small Qwen2 checkpoint with a tokenizer and a chat template, serves it and evaluates it. The evaluation and the server
are each killed once (SIGKILL). Checks that every sample is stored exactly once and that the table can be made again. Needs torch, transformers 5 with its serving extra (fastapi, uvicorn, openai), and a built fgrpo; no network.

    python scripts/real_server.py target/release/fgrpo [problems] [samples]
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

BINARY = sys.argv[1] if len(sys.argv) > 1 else "target/release/fgrpo"
PROBLEMS = int(sys.argv[2]) if len(sys.argv) > 2 else 6
SAMPLES = int(sys.argv[3]) if len(sys.argv) > 3 else 16
PORT = 18734

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_checkpoint(folder):
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(["What is 1 plus 2? So it is \\boxed{3}."] * 10, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    fast.save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(fast), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id,
        bos_token_id=None, tie_word_embeddings=False,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)


def serve(model, log):
    environment = dict(os.environ, HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    command = [
        sys.executable, "-m", "transformers.cli.transformers", "serve", str(model), "--port", str(PORT), "--device", "cpu",
        "--host", "127.0.0.1",
    ]
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    for _ in range(600):
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2).read()
            return server
        except OSError:
            time.sleep(0.5)
    raise SystemExit("the server doesn't come up")


def stop(server):
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        model, data, out = folder / "model", folder / "sums.jsonl", folder / "out"
        make_checkpoint(model)
        rows = [
            {
                "Question": f"What is {a} plus {a + 4}?", "Correct Answer": str(2 * a + 4),
                **{f"Incorrect Answer {i}": str(2 * a + 4 + i) for i in (1, 2, 3)},
            }
            for a in range(PROBLEMS)
        ]
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))
        command = [
            BINARY, "eval", "--server", f"http://127.0.0.1:{PORT}", "--model", str(model), "--data", str(data), "--task", "choice",
            "--server-api", "openai", "-n", str(SAMPLES), "--max-tokens", "8", "--concurrency", "4", "--per-request", "4",
            "--timeout", "60", "--retry-wait", "0.2", "--out", str(out), "-k", "1,4",
        ]
        store = out / "generations.jsonl"
        total = PROBLEMS * SAMPLES
        with open(folder / "server.log", "w") as log:
            server = serve(model, log)
            try:
                first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
                while lines(store) < total // 4 and first.poll() is None:
                    time.sleep(0.02)
                first.send_signal(signal.SIGKILL)
                first.wait()
                print(f"killed fgrpo at {lines(store)} of {total} samples")
                second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
                while lines(store) < total // 2 and second.poll() is None:
                    time.sleep(0.02)
                stop(server)
                print(f"killed the server at {lines(store)} of {total} samples")
                time.sleep(1)
                server = serve(model, log)
                table, _ = second.communicate(timeout=600)
            finally:
                stop(server)
        if second.returncode not in (0, 2):
            print((folder / "server.log").read_text()[-3000:])
        # 2 is accepted too, because all responses of this untrained model may be empty. The samples are still counted.
        assert second.returncode in (0, 2), second.returncode
        keys = [(row["problem"], row["sample"]) for row in map(json.loads, store.read_text().splitlines())]
        assert len(keys) == total == len(set(keys)), (len(keys), len(set(keys)), total)
        texts = {row["text"] for row in map(json.loads, store.read_text().splitlines())}
        # No sample is missing, so this needs no server.
        again = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        assert again.stdout == table and again.returncode == second.returncode
        print(table, end="")
        print(f"{total} samples, none lost, none doubled; {len(texts)} different texts; exit code {second.returncode}")


if __name__ == "__main__":
    main()
