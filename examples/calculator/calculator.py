"""A policy with one tool: it adds three numbers, two at a time.

    python examples/calculator/calculator.py calculator     # tokenizer, problems and demonstrations, in the folder calculator
    fgrpo sft examples/calculator/sft.toml --out runs/calculator-sft
    fgrpo train examples/calculator/calculator.toml --out runs/calculator
"""

import json
import random
import sys
from pathlib import Path

LARGEST = 20


class Calculator:
    """The environment of one problem."""

    def reset(self, answer: int, **row) -> None:
        self.answer = answer

    def add(self, a: int, b: int) -> int:
        """Adds two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        return a + b

    def reward(self, messages: list) -> float:
        return float(messages[-1]["content"] == f"It is {self.answer}.")


def call(a: int, b: int) -> str:
    return f'<tool_call>{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}</tool_call>'


def complete(completion: str, **row) -> bool:
    """Grades a demonstrated turn: a call or an answer."""
    return completion.endswith(("</tool_call>", "."))


def problem(draw: random.Random) -> dict:
    a, b, c = (draw.randint(0, LARGEST) for _ in range(3))
    return {"prompt": f"{a} + {b} + {c}", "answer": a + b + c}


def demonstrations(asked: dict, draw: random.Random):
    """Yields the turns of a player who often guesses instead of calling the tool."""
    a, b, c = map(int, asked["prompt"].split(" + "))
    messages = [{"role": "user", "content": asked["prompt"]}]
    for pair in ((a, b), (a + b, c)):
        if draw.random() < 0.6:
            yield {"prompt": list(messages), "solution": f"It is {draw.randint(0, 3 * LARGEST)}."}
            return
        yield {"prompt": list(messages), "solution": call(*pair)}
        messages += [{"role": "assistant", "content": call(*pair)}, {"role": "tool", "content": str(sum(pair))}]
    yield {"prompt": list(messages), "solution": f"It is {a + b + c}."}


def write_tokenizer(folder: Path) -> None:
    """Writes a tokenizer with a token for every number. Other characters are encoded as bytes."""
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|tool|>"]
    words = [*call(-1, -1).split("-1"), " + ", "It is "] + [str(number) for number in range(3 * LARGEST + 1)]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokens = enumerate(special + words, start=256)
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": text, "special": text in special, **flags} for i, text in tokens],
        "pre_tokenizer": bytewise,
        "decoder": bytewise,
        "model": {"type": "BPE", "vocab": {letter: byte for byte, letter in letters.items()}, "merges": []},
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor")),
    }
    # The policy has only this tool, so the prompt doesn't describe it.
    template = (
        "{% if tools %}{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    # Otherwise transformers would use the class of the model's family, which adds tokens.
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>", "pad_token": "<|end|>", "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def main(out: str) -> None:
    folder, draw = Path(out), random.Random(0)
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder / "tokenizer")

    def write(name, rows):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    problems = list({row["prompt"]: row for row in (problem(draw) for _ in range(14000))}.values())
    write("held-out.jsonl", problems[:128])
    write("problems.jsonl", problems[128:2128])
    write("turns.jsonl", (turn for row in problems[2128:] for turn in demonstrations(row, draw)))


if __name__ == "__main__":
    main(*sys.argv[1:])
