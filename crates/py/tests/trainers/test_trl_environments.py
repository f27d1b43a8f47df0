"""One class of an environment in TRL's GRPOTrainer (`environment_factory`) and in `fgrpo.play`: the same tools, answers and rewards."""

import json
import pathlib
import sys
from typing import Any, Literal, Optional, Union

import pytest

trl = pytest.importorskip("trl")

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM  # noqa: E402
from transformers.utils import get_json_schema  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from scripted import Scripted, call, give_template  # noqa: E402

import fgrpo  # noqa: E402
from fgrpo._environment import tool_schema  # noqa: E402

QWEN3 = (pathlib.Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
SEEN = []


class Sums:
    """The environment for both."""

    def reset(self, a, **row):
        self.sum, self.log = a, []
        SEEN.append(self)
        return f" Begin with {a}."

    def add(self, b: int) -> int:
        """Adds a number.

        Args:
            b: The number.
        """
        self.sum += b
        self.log.append(("add", b))
        return self.sum

    async def double(self) -> str:
        """Doubles."""
        self.sum *= 2
        self.log.append(("double",))
        return f"now {self.sum}"

    @staticmethod
    def parts() -> list:
        """Parts."""
        return [{"type": "text", "text": "two parts"}]

    @property
    def broken(self):
        raise AssertionError("evaluated")

    async def get_reward(self):
        return float(self.sum)


class Other:
    def reset(self, **row):
        self.log = []
        SEEN.append(self)

    def look(self) -> str:
        """Looks."""
        self.log.append(("look",))
        return "dark"

    def get_reward(self):
        return -1.0


SCRIPT = [call("add", b=2), call("double"), call("add", b="x"), call("get_reward"), call("look"), call("parts"), "Done."]


def in_trl(model, folder, factory, rows, rewards=None):
    """Runs TRL. Returns rewards, calls, and the first answer of a tool."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.chat_template = QWEN3
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    config = Qwen2Config(vocab_size=300, max_position_embeddings=8192, eos_token_id=256, pad_token_id=256, bos_token_id=None, **sizes)
    arguments = trl.GRPOConfig(
        output_dir=str(folder), per_device_train_batch_size=2 * len(rows), num_generations=2, max_completion_length=6000, max_steps=1, report_to=[],
        use_cpu=True, bf16=False, save_strategy="no", gradient_checkpointing=False, disable_tqdm=True, shuffle_dataset=False,
    )

    class Spy(trl.GRPOTrainer):
        turn, found = 0, []

        def _generate_single_turn(self, prompt_ids, *rest, **more):
            turn = tokenizer.encode(SCRIPT[self.turn] + "<|im_end|>", add_special_tokens=False)
            Spy.turn += 1
            return [list(turn) for _ in prompt_ids], None

        def _calculate_rewards(self, inputs, prompts, completions, ids):
            scores = super()._calculate_rewards(inputs, prompts, completions, ids)
            Spy.found = [[row["a"], completion, reward] for row, completion, reward in zip(inputs, completions, scores.nansum(1).tolist(), strict=True)]
            return scores

    data = Dataset.from_list([{**row, "prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows])
    trainer = Spy(
        model=Qwen2ForCausalLM(config), reward_funcs=rewards, args=arguments, train_dataset=data, processing_class=tokenizer, environment_factory=factory
    )
    trainer.train()
    return {a: (reward, [m["content"] for m in completion if m["role"] == "tool"]) for a, completion, reward in Spy.found}


def here(model, folder, factory, rows, rewards=None):
    give_template(model, folder, QWEN3)
    groups = fgrpo.play(Scripted(folder, lambda i, turn: SCRIPT[turn]), factory, rows, n=2, reward=rewards)
    return {row["a"]: (e.reward, [m["content"] for m in e.messages if m["role"] == "tool"]) for row, (e, _) in zip(rows, groups, strict=True)}


class Typed:
    def every(
        self, a: int, b: Optional[str] = None, c: list[int] = [], d: dict[str, int] = {}, e: Literal["x", "y"] = "x", f: tuple[int, str] = (1, "")
    ) -> str:
        """Does it
        in two lines.

        More text.

        Args:
            a: The first
                continued.
            b: The second (choices: ["p", "q"])
            c: Third: with a colon.
            d: Fourth.
            e: Fifth.
            f: Sixth.

        Returns:
            The result: a string.
        """

    def mixed(self, a: Union[int, str], b: Any, c: list[dict[str, float]], d: Literal[1, "x"], e: int | list[str] | None = None) -> None:
        """Mixed.

        Args:
            a: any.
            b: any.
            c: any.
            d: any.
            e: any.
        """

    def alone(self):
        """Alone."""


@pytest.mark.parametrize("name", ["every", "mixed", "alone"])
def test_a_tool_has_the_schema_that_it_has_in_trl(name):
    method = getattr(Typed(), name)
    # With the order of the keys, which the prompt has.
    assert json.dumps(tool_schema(method)) == json.dumps(get_json_schema(method))


def by_log(completions, environments, **columns):
    return [float(len(environment.log)) for environment in environments]


@pytest.mark.parametrize("rewards", [None, by_log])
@pytest.mark.parametrize("several", [False, True])
def test_the_same_class_plays_in_both(bytes_model, tmp_path, several, rewards):
    rows = [{"prompt": "Hello.", "a": 1, "environment": "sums"}, {"prompt": "Hello.", "a": 5, "environment": "other" if several else "sums"}]
    factory = {"sums": Sums, "other": Other} if several else Sums
    found = []
    for play in (in_trl, here):
        SEEN.clear()
        (tmp_path / play.__name__).mkdir()
        answers = play(bytes_model, tmp_path / play.__name__, factory, rows, rewards)
        logs = sorted((type(environment).__name__, environment.log) for environment in SEEN)
        found.append((answers, logs))
    (theirs, their_logs), (ours, our_logs) = found
    assert their_logs == our_logs and len(our_logs) == 4
    assert {a: reward for a, (reward, _) in theirs.items()} == {a: reward for a, (reward, _) in ours.items()}
    # Errors have different texts; answers are equal.
    for a in theirs:
        same = [(one, other) for one, other in zip(theirs[a][1], ours[a][1], strict=True) if "error" not in str(one)]
        assert all(one == other or one == [{"type": "text", "text": other}] for one, other in same) and same
        assert all(str(other).startswith("error") for one, other in zip(theirs[a][1], ours[a][1], strict=True) if "error" in str(one))
