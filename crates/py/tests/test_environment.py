"""Environments as in TRL 1.16, with `reset`, tools and `get_reward`, sync or async, in `fgrpo.play` and `fgrpo.train`."""

import asyncio
import concurrent.futures
import copy
import json
import math
import sys

import numpy as np
import pytest
from scripted import Scripted, call

import fgrpo

ROW = {"a": 2, "b": 3, "prompt": "You have a calculator."}


class Calculator:
    def reset(self, **row):
        self.called = 0

    def add(self, a: int, b: int = 0) -> int:
        """Adds two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        self.called += 1
        return a + b

    def get_reward(self) -> float:
        return 0.25 * self.called


def played(model, environment, script, rows=(ROW,), n=1, **settings):
    """Returns the only episode, and its text."""
    engine = Scripted(model, lambda i, turn: script[turn])
    groups = fgrpo.play(engine, environment, list(rows), n=n, **settings)
    return groups[0][0], engine.tokenizer.decode(groups[0][0].tokens, special=True)


def test_get_reward_gives_the_reward_and_is_no_tool(bytes_model):
    episode, text = played(bytes_model, Calculator, [call(a=2, b=3), call("get_reward"), "It is 5."])
    assert episode.reward == 0.25
    assert '"name": "add"' in text and '{"name": "get_reward", "description' not in text and '{"name": "reset", "description' not in text
    assert "error: unknown tool 'get_reward'; the tools are add" in text


def test_reward_may_ask_for_what_follows_the_prompt(bytes_model):
    class Said:
        def reset(self, **row):
            pass

        add = Calculator.add
        called = 0

        def reward(self, completion):
            return float([message["role"] for message in completion] == ["assistant", "tool", "assistant"])

    assert played(bytes_model, Said, [call(a=2, b=3), "It is 5."])[0].reward == 1.0


def test_async_methods_are_awaited_with_one_loop_for_the_whole_episode(bytes_model):
    class Waiting:
        async def reset(self, a, **row):
            self.lock, self.loop = asyncio.Lock(), asyncio.get_running_loop()
            await asyncio.sleep(0)
            return f" Begin with {a}."

        async def add(self, a: int, b: int) -> int:
            """Adds."""
            async with self.lock:
                assert asyncio.get_running_loop() is self.loop
                return a + b

        async def leave(self) -> None:
            """Ends."""
            sys.exit(3)

        async def get_reward(self):
            return 0.5

    script = [call(a=2, b=3), call("leave"), call(a=4, b=4), "Done."]
    episode, text = played(bytes_model, Waiting, script)
    assert episode.reward == 0.5 and "Begin with 2." in text
    assert "tool\n5<" in text and "error: SystemExit: 3" in text and "tool\n8<" in text and "coroutine" not in text

    async def in_a_notebook():
        return played(bytes_model, Waiting, script)[0].reward

    assert asyncio.run(in_a_notebook()) == 0.5


@pytest.mark.filterwarnings("ignore:coroutine 'sleep' was never awaited")
def test_only_data_becomes_text_for_the_model(bytes_model):
    class Board:
        pass

    class Odd(Calculator):
        def pieces(self):
            """Yields."""
            yield "one "
            yield "two"

        async def later(self):
            """Yields later."""
            yield 1
            yield 2

        def board(self):
            """Shows."""
            return [Board()]

        def tool(self):
            """A function."""
            return self.add

        def coroutine(self):
            """Forgets to await."""
            return [asyncio.sleep(0)]

        def leave(self):
            """Ends."""
            sys.exit(0)

        def parts(self):
            """Parts."""
            return [{"type": "text", "text": "three "}, {"type": "text", "text": "four"}]

        def picture(self):
            """A picture."""
            return [{"type": "image", "image": "x"}]

        def table(self):
            """A table."""
            return {"a": [1, None, (2.5, True)]}

        def nothing(self):
            """Nothing."""

        @staticmethod
        def fixed(a: int) -> int:
            """Static."""
            return a + 1

    wanted = {
        "pieces": "one two",
        "later": "[1, 2]",
        "board": "error: TypeError: board returned an object of the class Board",
        "tool": "error: TypeError: tool returned an object of the class method",
        "coroutine": "error: TypeError: coroutine returned an object of the class coroutine",
        "leave": "error: SystemExit: 0",
        "parts": "three four",
        "picture": "error: TypeError: picture returned parts of image",
        "table": "{'a': [1, None, (2.5, True)]}",
        "nothing": "None",
    }
    for name, answer in wanted.items():
        _, text = played(bytes_model, Odd, [call(name), "Done."])
        assert f"tool\n{answer}" in text and " at 0x" not in text, (name, text[-300:])
    assert "tool\n8<" in played(bytes_model, Odd, [call("fixed", a=7), "Done."])[1]


@pytest.mark.filterwarnings("ignore:1 of 1 episodes are unscorable")
def test_rewards_of_all_kinds_are_read_alike_in_play_and_in_train(bytes_model):
    async def later():
        return 0.5

    for given, wanted in ((True, 1.0), ({"score": 1}, 1.0), ({"reward": 0.5, "rewards": {"x": 1}}, 0.5), (None, math.nan), (later, 0.5), ("1", math.nan), (math.inf, math.nan)):

        class Graded(Calculator):
            def get_reward(self, given=given):
                return given() if callable(given) else given

        episode, _ = played(bytes_model, Graded, ["Done."])
        assert episode.reward == wanted or math.isnan(wanted) and math.isnan(episode.reward), given
        if given is not later:
            episode, _ = played(bytes_model, Calculator, ["Done."], reward=lambda episode, given=given, **row: given)
            assert episode.reward == wanted or math.isnan(wanted) and math.isnan(episode.reward), given


def test_reward_stays_as_an_alias_and_may_be_an_attribute(bytes_model):
    class Alias(Calculator):
        get_reward = None

        def reward(self, messages):
            return float(len(messages))

    episode, text = played(bytes_model, Alias, [call(a=1), "Done."])
    assert episode.reward == 4.0 and '"name": "reward"' not in text

    class Attribute:
        def reset(self, **row):
            self.reward = 0.0

        def win(self):
            """Wins."""
            self.reward = 1.0
            return "won"

    assert played(bytes_model, Attribute, [call("win"), "Done."])[0].reward == 1.0

    def by_attribute(completions, environments, a, **columns):
        assert completions[0][-1]["content"] == "Done." and a == [2]
        return [2 * environment.reward for environment in environments]

    assert played(bytes_model, Attribute, [call("win"), "Done."], reward=by_attribute)[0].reward == 2.0

    class OfTheClass(Attribute):
        reward = np.float32(0.25)

        def reset(self, **row):
            pass

    assert played(bytes_model, OfTheClass, ["Done."])[0].reward == 0.25
    assert played(bytes_model, OfTheClass, [call("win"), "Done."])[0].reward == 1.0

    def beside(completions, **columns):
        return [10.0 for _ in completions]

    assert played(bytes_model, Calculator, [call(a=1), "Done."], reward=beside)[0].reward == 10.25


def test_properties_are_not_evaluated_before_reset(bytes_model):
    class Lazy(Calculator):
        @property
        def size(self):
            return len(self.row)

        def reset(self, **row):
            self.row = row
            super().reset()
            return f" {self.size} columns."

    assert " 3 columns." in played(bytes_model, Lazy, ["Done."])[1]


def test_every_episode_gets_a_copy_of_its_row(bytes_model):
    class Appends:
        def reset(self, board, prompt, **row):
            board.append(1)
            prompt[0]["content"] = "changed"
            self.board = board

        def get_reward(self):
            return float(len(self.board))

    row = {"prompt": [{"role": "user", "content": "Look."}], "board": [0]}
    before = copy.deepcopy(row)
    engine = Scripted(bytes_model, lambda i, turn: "Done.")
    [group] = fgrpo.play(engine, Appends, [row], n=3)
    assert [episode.reward for episode in group] == [2.0] * 3 and row == before
    assert all(episode.messages[0]["content"] == "Look." for episode in group)


def test_a_dict_of_factories_is_chosen_from_by_the_column_environment(bytes_model):
    class Other:
        def reset(self, prompt, **row):
            assert not row, row  # `environment` selects the class and isn't passed to it
            return " Other."

        def look(self):
            """Looks."""
            return "dark"

        def get_reward(self):
            return 7.0

    both = {"sums": Calculator, "other": Other}
    rows = [{**ROW, "environment": "sums"}, {"prompt": "Hello.", "environment": "other"}]
    engine = Scripted(bytes_model, lambda i, turn: [call("look"), "Done."][turn])
    [[first], [second]] = fgrpo.play(engine, both, rows, n=1)
    texts = [engine.tokenizer.decode(episode.tokens, special=True) for episode in (first, second)]
    assert "error: unknown tool 'look'; the tools are add" in texts[0] and "tool\ndark" in texts[1] and '"name": "add"' not in texts[1]
    assert (first.reward, second.reward) == (0.0, 7.0)
    for row in (ROW, {**ROW, "environment": "maze"}):
        with pytest.raises(ValueError, match="environment: expected one of 'sums', 'other', found"):
            fgrpo.play(engine, both, [row])


OWN_DATA = '''
import random

class Guess:
    """Brings its own problems, as TRL plays it without a train_dataset."""

    def reset(self, **row):
        self.number = random.randint(1, 9)
        return f"Guess {self.number}."

    async def look(self) -> int:
        """Looks."""
        return self.number

    async def get_reward(self):
        return 0.5

def shorter(completions, environments, **columns):
    return [float(len(turns[-1]["content"]) < 3) + 0 * environment.number for turns, environment in zip(completions, environments)]

BOTH = {"guess": Guess, "other": Guess}
'''


def settings_of(model):
    return {
        "steps": 1,
        "model": {"path": str(model)},
        "rollout": {"prompts": 2, "group_size": 2, "max_new_tokens": 6},
        "eval": {"every": 0},
        "log": {"rollout_share": 1.0},
        "compute": {"threads": 1},
    }


def rewards_of(folder):
    return [json.loads(line)["reward"] for line in (folder / "rollouts.jsonl").read_text().splitlines()]


def test_fgrpo_train_plays_the_same_contract(bytes_model, tmp_path):
    namespace = {}
    exec(OWN_DATA, namespace)
    rows = [{"prompt": f"Row {i}.", "environment": ["guess", "other"][i % 2]} for i in range(4)]
    run = fgrpo.train(settings_of(bytes_model), environment=namespace["BOTH"], data=rows, held_out=rows[:1], out=tmp_path / "both")
    assert run.metrics[0]["verdicts"].get("unscorable", 0) == 0 and rewards_of(run.path) == [0.5] * 4
    run = fgrpo.train(
        settings_of(bytes_model), environment=namespace["Guess"], reward=namespace["shorter"], data=rows, held_out=rows[:1], out=tmp_path / "summed"
    )
    assert set(rewards_of(run.path)) <= {0.5, 1.5}


def test_an_environment_with_its_own_data_needs_none(bytes_model, command, tmp_path):
    namespace = {}
    exec(OWN_DATA, namespace)
    run = fgrpo.train(settings_of(bytes_model), environment=namespace["Guess"], out=tmp_path / "run")
    assert rewards_of(run.path) == [0.5] * 4
    (tmp_path / "guess.py").write_text(OWN_DATA)
    config = {**settings_of(bytes_model), "task": {"kind": "python", "environment": f"{tmp_path / 'guess.py'}:Guess"}}
    (tmp_path / "run.json").write_text(json.dumps(config))
    run = fgrpo.train(config, out=tmp_path / "command")
    assert rewards_of(run.path) == [0.5] * 4
    engine = Scripted(bytes_model, lambda i, turn: "Done.")
    [[episode]] = fgrpo.play(engine, namespace["Guess"], [{}], n=1)
    assert episode.reward == 0.5 and episode.messages[0]["content"].startswith("Guess ")


def test_an_interrupt_that_a_tool_raises_is_its_answer_unless_it_may_be_ctrl_c(ctrl_c):
    class Stops(Calculator):
        def stop(self):
            """Raises what Ctrl-C raises."""
            raise KeyboardInterrupt

        def press(self):
            """Presses Ctrl-C."""
            ctrl_c()

    def plays(tool):
        return fgrpo.play(None, Stops, [ROW], n=1, policy=lambda messages: [(tool, {})] if messages[-1]["role"] == "user" else "Done.")

    # Only the main thread gets Ctrl-C.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        [[episode]] = threads.submit(plays, "stop").result()
    assert episode.messages[2]["content"] == "error: KeyboardInterrupt: "
    with pytest.raises(KeyboardInterrupt):
        plays("press")


def test_an_answer_longer_than_the_positions_ends_its_episode_and_trains_nothing(bytes_model):
    class Long(Calculator):
        def look(self) -> str:
            """Looks."""
            return "x" * 5000

    engine = Scripted(bytes_model, lambda i, turn: call("look"))
    [[episode]] = fgrpo.play(engine, Long, [ROW], n=1)
    assert (episode.finish, episode.turns) == ("length", 1) and episode.tokens.size > 5000
    [datum] = episode.data(1.0)
    assert engine.forward_backward([datum])["tokens"] == episode.mask.sum() == len(engine.said[0])


def teaching(model):
    teacher = {"hint": " It said: {feedback}", "rewards": False}
    return {**settings_of(model), "teacher": teacher, "algorithm": {"teacher_coef": 1.0, "focal_gamma": 0.0}}


def test_the_feedback_of_an_environment_is_the_hint_of_the_teacher(bytes_model, tmp_path):
    class Remarks(Calculator):
        async def feedback(self, completion):
            return f"{self.called} calls, {len(completion)} messages \ud800"

    class Reward(Remarks):
        get_reward = None

    def reward(completions, environments, **columns):
        return [1.0 for _ in completions]

    rows = [{**ROW, "a": i} for i in range(4)]
    run = fgrpo.train(teaching(bytes_model), environment=Remarks, data=rows, held_out=rows[:1], out=tmp_path / "own")
    assert run.metrics[0]["teacher_kl"] != 0 and run.metrics[0]["verdicts"].get("unscorable", 0) == 0
    remarks = [json.loads(line)["feedback"] for line in (run.path / "rollouts.jsonl").read_text().splitlines()]
    assert len(remarks) == 4 and all(remark.endswith("1 messages ?") for remark in remarks), remarks
    # With a reward function as in TRL.
    run = fgrpo.train(teaching(bytes_model), environment=Reward, reward=reward, data=rows, held_out=rows[:1], out=tmp_path / "trl")
    assert run.metrics[0]["teacher_kl"] != 0 and rewards_of(run.path) == [1.0] * 4
    # Without a teacher, nobody asks.
    run = fgrpo.train(settings_of(bytes_model), environment=Remarks, data=rows, held_out=rows[:1], out=tmp_path / "alone")
    assert "feedback" not in (run.path / "rollouts.jsonl").read_text()


def test_feedback_is_a_tool_only_with_other_arguments_and_its_failure_is_no_hint(bytes_model, tmp_path):
    class Asks(Calculator):
        def feedback(self, text: str) -> str:
            """Sends a text."""
            return text + "!"

    class Remarks(Calculator):
        def feedback(self, messages) -> str:
            raise ValueError("on purpose")

    _, text = played(bytes_model, Asks, [call("feedback", text="Hi"), "Done."])
    assert '"name": "feedback"' in text and "tool\nHi!" in text
    _, text = played(bytes_model, Remarks, [call("feedback"), "Done."])
    assert '"name": "feedback", "d' not in text and "error: unknown tool 'feedback'; the tools are add" in text
    kinds = {"with": Remarks, "without": Asks}
    mixed = {name: [{"prompt": f"{name} {i}", "environment": name} for i in range(5)] for name in kinds}
    rows = {"data": mixed["with"] + mixed["without"], "held_out": mixed["with"][:1]}
    with pytest.raises(ValueError, match=r"requires an environment with a method feedback\(self\), but the environment of row"):
        fgrpo.train(teaching(bytes_model), environment=kinds, out=tmp_path / "never", **rows)
    rows["data"] = mixed["with"]
    with pytest.raises(RuntimeError, match="no completion could be graded"):
        fgrpo.train(teaching(bytes_model), environment=kinds, out=tmp_path / "raises", **rows)
    assert json.loads((tmp_path / "raises" / "metrics.jsonl").read_text())["reasons"] == {"raised ValueError: on purpose": 4}


class Frame:
    """A table with the interface of pandas."""

    columns = ("prompt", "a")

    def __init__(self, rows):
        self.rows = rows

    def to_dict(self, orient):
        assert orient == "records"
        return self.rows


class PolarsFrame:
    columns = ("prompt", "a")

    def __init__(self, rows):
        self.to_dicts, self.to_dict = lambda: rows, lambda *, as_series=True: {}


def test_tables_are_read_and_a_missing_value_is_none(bytes_model, tmp_path):
    class Missing:
        def reset(self, a, **row):
            self.a = a

        def get_reward(self):
            return 1.0 if self.a is None else float(self.a == float("inf"))

    for table in (Frame, PolarsFrame, list):
        engine = Scripted(bytes_model, lambda i, turn: "Done.")
        rows = [{"prompt": "Hello.", "a": a} for a in (float("nan"), float("inf"), 3)]
        assert [group[0].reward for group in fgrpo.play(engine, Missing, table(rows), n=1)] == [1.0, 1.0, 0.0]
    with pytest.raises(TypeError, match="rows: row 0: prompt: expected a text or messages, found 3"):
        fgrpo.play(engine, Missing, [{"prompt": 3}])
    with pytest.raises(ValueError, match="task.data: row 1: .*JSON"):
        fgrpo.train(settings_of(bytes_model), environment=Missing, data=Frame(rows), out=tmp_path / "never")
    run = fgrpo.train(settings_of(bytes_model), environment=Missing, data=PolarsFrame(rows[:1]), held_out=rows[2:], out=tmp_path / "run")
    assert rewards_of(run.path) == [1.0] * 4


def test_a_changed_class_of_a_notebook_is_not_resumed_unless_that_is_accepted(bytes_model, tmp_path):
    def defined(reward):
        namespace = {"__name__": "notebook"}
        exec(f"class Cell:\n    def reset(self, **row): pass\n    def get_reward(self): return {reward}\n", namespace)
        return namespace["Cell"]

    rows = [{"prompt": f"Row {i}."} for i in range(4)]
    begin = {"data": rows, "held_out": rows[:1], "out": tmp_path / "run"}
    settings = {**settings_of(bytes_model), "save": {"every": 1}}
    fgrpo.train(settings, environment=defined(0.5), **begin)
    again = {**begin, "set": {"steps": 2}, "if_exists": "resume"}
    with pytest.raises(ValueError, match="environment"):
        fgrpo.train(settings, environment=defined(0.25), **again)
    run = fgrpo.train(settings, environment=defined(0.25), accept_changes=True, **again)
    assert rewards_of(run.path) == [0.5] * 4 + [0.25] * 4


def test_functions_without_source_are_told_apart_by_what_they_do():
    import functools

    from fgrpo._train import _name

    def made(code):
        namespace = {}
        exec(code, namespace)
        return namespace["f"]

    class Weighs:
        def __init__(self, weight):
            self.weight = weight

        def __call__(self, completion):
            return self.weight

    def scaled(completion, scale):
        return scale

    pairs = [
        (made("def f(completion): return 1"), made("def f(completion): return 2")),
        (Weighs(1), Weighs(2)),
        (functools.partial(scaled, scale=1), functools.partial(scaled, scale=2)),
        (made("class f:\n    size = 1"), made("class f:\n    size = 2")),
        (made("class f:\n    @property\n    def size(self): return 1"), made("class f:\n    @property\n    def size(self): return 2")),
    ]
    for one, other in pairs:
        assert _name(one) != _name(other) and _name(one) == _name(one)
    assert _name(Weighs(1)) == _name(Weighs(1)) and _name(made("def f(): return 1")) == _name(made("def f(): return 1"))


def test_a_top_k_of_minus_one_keeps_all_tokens(bytes_model):
    engine = fgrpo.Engine(bytes_model, threads=1)
    one, other = (engine.sample([[65, 66]], max_tokens=4, seed=1, top_k=top_k)[0][0].tokens.tolist() for top_k in (0, -1))
    assert one == other
    with pytest.raises(ValueError, match="top_k: expected at least -1, found -2"):
        engine.sample([[65]], top_k=-2)


def test_an_environment_is_tried_with_a_function_in_place_of_a_model(bytes_model, command, tmp_path):
    def policy(messages):
        if messages[-1]["role"] == "user":
            return [("add", {"a": 2, "b": 3}), ("add", {"a": "x"}), ("get_reward", {})]
        return messages[-3]["content"]

    [[one, other]] = fgrpo.play(None, Calculator, [ROW], n=2, policy=policy)
    assert (one.reward, one.turns, one.finish, one.parts) == (0.5, 2, "stop", []) and other.messages == one.messages
    assert [message["content"] for message in one.messages if message["role"] == "tool"] == [
        "5",
        "error: TypeError: can only concatenate str (not \"int\") to str",
        "error: unknown tool 'get_reward'; the tools are add",
    ]
    assert one.messages[-1] == {"role": "assistant", "content": "5"}
    [[cut]] = fgrpo.play(None, Calculator, [ROW], n=1, max_turns=1, policy=lambda messages: [("add", {"a": 1})])
    assert (cut.turns, cut.finish, cut.reward) == (1, "turns", 0.0)
    functions = {"policy": policy, "reward": lambda completions, environments, **columns: [float(len(completions[0]))]}
    assert fgrpo.play(None, Calculator, [ROW], n=1, **functions)[0][0].reward == 5.5
    for engine, function in ((None, None), (object(), policy)):
        with pytest.raises(TypeError, match="expected an engine, or None and a policy"):
            fgrpo.play(engine, Calculator, [ROW], policy=function)


def test_data_show_prints_the_first_prompt_with_the_tools_and_the_text_of_reset(bytes_model, command, tmp_path):
    (tmp_path / "guess.py").write_text(OWN_DATA)
    (tmp_path / "run.toml").write_text(f'steps = 1\n[task]\nkind = "python"\nenvironment = "{tmp_path}/guess.py:Guess"\n[model]\npath = "{bytes_model}"\n')
    shown = command("data", "show", tmp_path / "run.toml", "--limit", "1")
    assert shown.returncode == 0 and '"name": "look"' in shown.stdout and "Guess " in shown.stdout, shown.stdout + shown.stderr


def test_fgrpo_verify_plays_scripted_calls(command, tmp_path):
    (tmp_path / "sums.py").write_text(
        "class Sums:\n"
        "    def reset(self, goal, **row):\n        self.goal, self.sum = goal, 0\n        return 'Begin.'\n"
        "    def stop(self):\n        'Stops.'\n        raise KeyboardInterrupt\n"
        "    async def add(self, a: int) -> int:\n        'Adds.'\n        self.sum += a\n        return self.sum\n"
        "    def reward(self, messages):\n        return self.sum == self.goal and messages[-1]['content'] == str(self.sum)\n"
    )
    calls = [{"name": "add", "arguments": {"a": 2}}, {"name": "add", "arguments": {"a": 3}}, {"name": "reward"}, {"name": "stop"}]
    rows = [{"goal": 5, "calls": calls, "response": "5"}, {"goal": 5, "calls": calls[:1], "response": "5"}, {"goal": 0, "response": "0"}, {"response": ""}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command("verify", "environment", tmp_path / "rows.jsonl", "--grader", f"{tmp_path}/sums.py:Sums")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["verdict"] for line in lines] == ["correct", "wrong", "correct", "unscorable"], done.stdout + done.stderr
    assert lines[0]["printed"] == "add: 2\nadd: 5\nreward: error: unknown tool 'reward'; the tools are add, stop\nstop: error: KeyboardInterrupt: \n"
    assert "reset() missing 1 required positional argument: 'goal'" in lines[3]["reason"]
