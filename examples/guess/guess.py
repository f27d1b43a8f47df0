"""A game for a policy with one tool: find a number between two others with seven guesses.

    python examples/guess/guess.py guess        # writes tokenizer, games and demonstrations into the folder guess
    fgrpo sft examples/guess/sft.toml --out runs/guess-sft
    fgrpo train examples/guess/guess.toml --out runs/guess
"""

import json
import random
import sys
from pathlib import Path

LARGEST, GUESSES = 99, 7


class Guess:
    """The environment: one game."""

    def reset(self, low: int, high: int, number: int, **row) -> None:
        self.low, self.high, self.number = low, high, number
        self.left, self.found = GUESSES, False

    def guess(self, number: int) -> str:
        """Guesses the number.

        Args:
            number: The guess.
        """
        if self.left == 0:
            return "No guess is left."
        self.left -= 1
        if number == self.number:
            self.found = True
            return "You found it."
        if self.low <= number < self.number:
            self.low = number + 1
        if self.number < number <= self.high:
            self.high = number - 1
        return f"It is from {self.low} to {self.high}."

    def reward(self) -> float:
        return float(self.found)


def call(number: int) -> str:
    return f'<tool_call>{{"name": "guess", "arguments": {{"number": {number}}}}}</tool_call>'


def legal(completion: str, **row) -> bool:
    """Grades a demonstrated turn: a call, or the end."""
    return completion.startswith("<tool_call>") or completion == "Done."


def new_game(draw: random.Random) -> dict:
    low = draw.randint(1, 36)
    high = low + draw.randint(40, 63)
    return {"prompt": f"It is from {low} to {high}.", "low": low, "high": high, "number": draw.randint(low, high)}


def demonstrations(game: dict, draw: random.Random):
    """The turns of a player who mostly guesses near the lower end of what is left."""
    played = Guess()
    played.reset(**game)
    messages = [{"role": "user", "content": game["prompt"]}]
    while not played.found and played.left:
        near = min(played.low + draw.randrange(8), played.high)
        number = near if draw.random() < 0.8 else draw.randint(played.low, played.high)
        yield {"prompt": list(messages), "solution": call(number)}
        messages += [{"role": "assistant", "content": call(number)}, {"role": "tool", "content": played.guess(number)}]
    yield {"prompt": list(messages), "solution": "Done."}


def write_tokenizer(folder: Path) -> None:
    """A tokenizer of the words of this game; other text is bytes."""
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}
    special = ["<|end|>", "<|user|>", "<|assistant|>", "<|tool|>"]
    begin, end = call(0).split("0")
    words = [begin, end, "It is from ", " to ", "You found it.", "No guess is left.", "Done."]
    words += [str(number) for number in range(LARGEST + 1)]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        {"id": 256 + i, "content": text, "special": text in special, **flags} for i, text in enumerate(special + words)
    ]
    model = {"type": "BPE", "vocab": {letter: byte for byte, letter in letters.items()}, "merges": []}
    unused = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    tokenizer = {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": bytewise,
        "decoder": bytewise,
        "model": model,
        **unused,
    }
    # The tools need no words here: this policy knows only this game.
    template = (
        "{% if tools %}{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>", "chat_template": template}))


def main(out: str) -> None:
    folder, draw = Path(out), random.Random(0)
    (folder / "tokenizer").mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder / "tokenizer")

    def write(name, rows):
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    games = {json.dumps(game): game for game in (new_game(draw) for _ in range(2300))}
    games = list(games.values())
    write("held-out.jsonl", games[:128])
    write("games.jsonl", games[128:2128])
    turns = (turn for _ in range(4000) for turn in demonstrations(new_game(draw), draw))
    write("turns.jsonl", {json.dumps(turn["prompt"]): turn for turn in turns}.values())


if __name__ == "__main__":
    main(*sys.argv[1:])
