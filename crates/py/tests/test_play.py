"""Episodes with tools: the trained tokens are those that the model wrote, whatever the template does with them."""

import json
import re
import runpy
import warnings
from typing import Union

import numpy as np
import pytest
from conftest import ROOT
from scripted import HERMES, Scripted, call, give_template

import fgrpo
from fgrpo._environment import World, tool_schema

# Removes the thoughts of earlier turns.
FORGETS = HERMES.replace("{{ m.content }}", "{{ m.content.split('</think>')[-1] }}")
# Supports neither tools nor their answers.
PLAIN = HERMES[HERMES.index("{% for m in messages") :]


class Calculator:
    def reset(self, **row):
        self.seen = []
        return f" Compute {row['a']} + {row['b']}."

    def add(self, a: int, b: int = 0) -> int:
        """Adds two numbers.

        Args:
            a: The first number.
            b: The second number,
                if there is one.

        Returns:
            The sum.
        """
        self.seen.append((a, b))
        return a + b

    def reward(self):
        return float(len(self.seen))

    def _hidden(self):
        raise AssertionError("not a tool")


ROW = {"a": 2, "b": 3, "prompt": "You have a calculator."}


def test_a_tool_is_described_by_its_hints_and_docstring():
    schema = tool_schema(Calculator().add)["function"]
    assert schema["name"] == "add" and schema["description"] == "Adds two numbers."
    assert schema["parameters"]["properties"] == {
        "a": {"type": "integer", "description": "The first number."},
        "b": {"type": "integer", "description": "The second number, if there is one."},
    }
    assert schema["parameters"]["required"] == ["a"]


@pytest.mark.parametrize("template", [HERMES, FORGETS, PLAIN])
@pytest.mark.parametrize("thought", ["", "<think>two and three</think>"])
def test_every_trained_token_was_sampled_and_every_sampled_token_is_trained_once(bytes_model, tmp_path, template, thought):
    give_template(bytes_model, tmp_path, template)
    turns = [thought + call(a=2, b=3), thought + call(a=5), thought + "It is 5."]
    engine = Scripted(tmp_path, lambda i, turn: turns[turn])
    [[episode]] = fgrpo.play(engine, Calculator, [ROW], n=1)
    assert (episode.turns, episode.finish, episode.reward) == (3, "stop", 2.0)
    trained = np.concatenate([part.tokens[part.mask] for part in episode.parts])
    np.testing.assert_array_equal(trained, np.concatenate(engine.said))
    logprobs = np.concatenate([part.logprobs[part.mask] for part in episode.parts])
    np.testing.assert_array_equal(logprobs, np.concatenate([-np.arange(1, t.size + 1, dtype=np.float32) for t in engine.said]))
    # Only the template that removes thoughts starts a new sequence.
    assert len(episode.parts) == (3 if template == FORGETS and thought else 1)
    text = engine.tokenizer.decode(episode.tokens, special=True)
    assert "Compute 2 + 3." in text and "<|im_start|>tool\n5<|im_end|>" in text and "It is 5." in text
    assert sum(datum.places.size for datum in episode.data(1.0)) == trained.size


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (call(a=2, b=3), "5"),
        (call("subtract", a=1), "error: unknown tool 'subtract'; the tools are add"),
        (call(a=2, c=3), "error: TypeError"),
        ("<tool_call>{'name': 'add'}</tool_call>", "error: the call isn't valid JSON"),
        ("<tool_call>[1]</tool_call>", "error: write an object with name"),
        ('<tool_call>{"name": "add", "arguments": 3}</tool_call>', "error: write an object"),
        (call(a=float("nan")), "error: the call isn't valid JSON (a value"),
        ('<tool_call>{"name": "add", "arguments": {"a": 1e999}}</tool_call>', "error: the call isn't valid JSON (it has"),
        ('<tool_call>{"name": "add", "arguments": {"a": "\\ud800"}}</tool_call>', "error: the call isn't valid JSON (it has"),
        (f"<tool_call>{'[' * 100}{']' * 100}</tool_call>", "error: the call isn't valid JSON (it has"),
        (f"<tool_call>{'[' * 1200}", "error: <tool_call> isn't closed by"),
        (f"<tool_call>{'[' * 1200}{']' * 1200}</tool_call>", "error: the call isn't valid JSON (it has"),
        ('<tool_call>{"name": "add"', "error: <tool_call> isn't closed by"),
        (call(a=1) + call(a=2), "1<|im_end|>\n<|im_start|>tool\n2"),
        ('<tool_call>{"name": "_hidden", "arguments": {}}</tool_call>', "error: unknown tool '_hidden'"),
        ('<tool_call>{"name": "reset", "arguments": {}}</tool_call>', "error: unknown tool 'reset'"),
    ],
)
def test_what_a_call_returns_or_lacks_is_the_answer_to_it(bytes_model, said, answer):
    engine = Scripted(bytes_model, lambda i, turn: [said, "Done."][turn])
    [[episode]] = fgrpo.play(engine, Calculator, [ROW], n=1)
    assert f"<|im_start|>tool\n{answer}" in engine.tokenizer.decode(episode.tokens, special=True)
    assert episode.turns == 2


def test_calls_in_thoughts_are_not_made_and_a_turn_that_was_cut_ends_the_episode(bytes_model):
    for said, finish in ((f"<think>{call(a=1)}</think>No.", "stop"), (f"<think>{call(a=1)}", "stop"), (call(a=1) + "...", "length")):
        [[episode]] = fgrpo.play(Scripted(bytes_model, lambda i, turn, said=said: said), Calculator, [ROW], n=1)
        assert (episode.turns, episode.finish, episode.reward) == (1, finish, 0.0)
    [[episode]] = fgrpo.play(Scripted(bytes_model, lambda i, turn: call(a=1)), Calculator, [ROW], n=1, max_turns=3)
    assert (episode.turns, episode.finish, episode.reward) == (3, "turns", 2.0)


def test_a_turn_whose_thoughts_the_template_opens_begins_in_them(bytes_model, tmp_path):
    give_template(bytes_model, tmp_path, HERMES.replace("assistant\n{%", "assistant\n<think>\n{%"))
    for said, turns in ((call(a=1), 1), (f"{call(a=1)}</think>No.", 1), (f"so</think>{call(a=1)}", 2)):
        engine = Scripted(tmp_path, lambda i, turn, said=said: [said, "well</think>Done."][turn])
        [[episode]] = fgrpo.play(engine, Calculator, [ROW], n=1)
        assert (episode.turns, episode.finish, len(episode.parts)) == (turns, "stop", 1), said
        assert episode.messages[-1]["content"].startswith("<think>\n")


def test_the_example_of_a_chat_model_demonstrates_what_its_policy_sees():
    folder = ROOT / "examples" / "calculator"
    example = runpy.run_path(str(folder / "calculator.py"))
    system = re.search(r"^system = \'\'\'(.*?)\'\'\'$", (folder / "smollm2-sft.toml").read_text(), re.M | re.S)
    assert system[1] == World(example["Calculator"], {"answer": 1}, [{"role": "user", "content": "1 + 1"}]).begun()["offer"]


def test_arguments_that_are_written_as_texts_get_the_types_of_the_tool(bytes_model, tmp_path):
    class Notes(Calculator):
        def note(self, text: str, times: int = 1, tags: list[str] | None = None) -> str:
            """Repeats a text."""
            return repr((text, times, tags))

        def either(self, x: Union[int, str]) -> str:
            """Repeats a value."""
            return repr(x)

    tagged = HERMES.replace("<tool_call> is how to call.", "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>")
    give_template(bytes_model, tmp_path, tagged)
    wraps = "<tool_call>\n<function={}>\n{}\n</function>\n</tool_call>".format
    parameter = "<parameter={}>\n{}\n</parameter>\n".format
    for said, answer in (
        (wraps("add", parameter("a", "2") + parameter("b", "3")), "5"),
        (wraps("note", parameter("text", "12") + parameter("times", "2") + parameter("tags", '["a"]')), "('12', 2, ['a'])"),
        (wraps("note", parameter("text", "two\nlines")), r"('two\nlines', 1, None)"),
        (wraps("either", parameter("x", "3")), "3"),
        (wraps("either", parameter("x", "[1]")), "'[1]'"),
        (wraps("add", parameter("a", "two")), 'error: a: expected integer, found "two"'),
        (wraps("multiply", ""), "error: unknown tool 'multiply'"),
        ("<tool_call>" + call(a=2), "error: <tool_call> isn't closed by"),
        (call(a=2), "error: the call has no <function=NAME>"),
    ):
        engine = Scripted(tmp_path, lambda i, turn, said=said: [said, "Done."][turn])
        [[episode]] = fgrpo.play(engine, Notes, [ROW], n=1)
        assert f"<|im_start|>tool\n{answer}" in engine.tokenizer.decode(episode.tokens, special=True), said


def test_an_environment_that_raises_makes_its_episode_unscorable_and_is_shown_once(bytes_model):
    class Broken(Calculator):
        def reset(self, **row):
            if row["a"] == 1:
                raise OSError("no board")
            return super().reset(**row)

    rows = [{"a": a, "b": 3, "prompt": "Hello."} for a in (1, 2)]
    engine = Scripted(bytes_model, lambda i, turn: "No.")
    with pytest.warns(UserWarning, match="2 of 4 episodes are unscorable(.|\n)*no board"):
        groups = fgrpo.play(engine, Broken, rows, n=2)
    assert [[episode.finish for episode in group] for group in groups] == [["error"] * 2, ["stop"] * 2]
    assert np.isnan(groups[0][0].reward) and groups[1][0].reward == 0
    assert groups[0][0].data(0.0) == [] and len(groups[1][0].data(0.0)) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [[episode]] = fgrpo.play(Scripted(bytes_model, lambda i, turn: "4"), Calculator, [ROW], 1, reward=lambda episode, a, **row: a + episode.turns)
    assert episode.reward == 3


def test_an_episode_does_not_depend_on_the_number_of_others_or_of_turns(bytes_model):
    class Silent:
        def reset(self, **row):
            pass

        def get_reward(self):
            return 0.0

    engine = fgrpo.Engine(bytes_model, threads=1)

    def drawn(**settings):
        groups = fgrpo.play(engine, Silent, [{"prompt": "x"}, {"prompt": "y"}], max_tokens=6, seed=7, **settings)
        return [[episode.tokens.tolist() for episode in group[:2]] for group in groups]

    assert drawn(n=2, max_turns=8) == drawn(n=4, max_turns=8) == drawn(n=2, max_turns=4)


def test_episodes_follow_from_their_seed_and_train_the_model(bytes_model):
    engine = fgrpo.Engine(bytes_model, threads=1)
    settings = {"n": 3, "max_turns": 2, "max_tokens": 12, "reward": lambda episode, **row: float(episode.tokens[-1] % 2), "seed": 4}
    groups, again = (fgrpo.play(engine, Calculator, [ROW, ROW], **settings) for _ in range(2))
    for one, other in zip(groups[0] + groups[1], again[0] + again[1], strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)


ODD = '''
class Odd:
    """Rewards answers of an odd length."""

    def reset(self, a, **row):
        return f" Say {a}."

    def reward(self, messages):
        return float(len(messages[-1]["content"]) % 2)
'''


def test_a_run_with_an_environment_is_that_of_the_command_bit_for_bit(bytes_model, command, tmp_path):
    (tmp_path / "odd.py").write_text(ODD)
    namespace = {}
    exec(ODD, namespace)
    rows = [{"prompt": "Listen.", "a": a} for a in range(6)]
    common = {
        "steps": 2,
        "seed": 3,
        "model": {"path": str(bytes_model)},
        "rollout": {"prompts": 2, "group_size": 4, "max_new_tokens": 6},
        "update": {"lr": 1e-2},
        "eval": {"every": 2, "samples": 2, "k": [1, 2]},
        "compute": {"threads": 1},
    }
    out = tmp_path / "here"
    run = fgrpo.train(common, environment=namespace["Odd"], data=rows, held_out=rows[:2], out=out)
    assert run.metrics[-1]["turns_mean"] == 1.0 and set(run.pass_at_k) == {1, 2}
    data = {"data": f"{out}.train.jsonl", "held_out": f"{out}.held-out.jsonl"}
    task = {"kind": "python", "environment": f"{tmp_path / 'odd.py'}:Odd", **data}
    elsewhere = tmp_path / "there"
    (tmp_path / "run.toml").write_text(toml({**common, "task": task}))
    done = command("train", tmp_path / "run.toml", "--out", elsewhere)
    assert done.returncode == 0, done.stderr
    weights = [folder / "checkpoints" / "step-000002" / "model.safetensors" for folder in (out, elsewhere)]
    assert weights[0].read_bytes() == weights[1].read_bytes() != (bytes_model / "model.safetensors").read_bytes()
    with pytest.raises(TypeError, match="environment: expected .*found int"):
        fgrpo.train(common, environment=3, data=rows, out=tmp_path / "never")


def toml(table):
    """Writes a table of tables as TOML. JSON's values are valid in TOML."""
    plain = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict)]
    tables = [f"[{key}]\n{toml(value)}" for key, value in table.items() if isinstance(value, dict)]
    return "\n".join(plain + tables)
