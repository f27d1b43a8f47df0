"""Environments of `verifiers` 0.3 have the same tools and rewards in `fgrpo.play` as in that package's rollouts."""

import asyncio

import pytest

pytest.importorskip("verifiers.legacy")

import verifiers.legacy as vf  # noqa: E402
from datasets import Dataset  # noqa: E402
from verifiers.legacy.types import AssistantMessage, State, ToolMessage  # noqa: E402

import fgrpo  # noqa: E402
import fgrpo.verifiers  # noqa: E402


def add(a: int, b: int = 0) -> int:
    """Adds two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return a + b


async def right(completion, answer, **others) -> float:
    return float(completion[-1].content == answer)


def calls(completion) -> float:
    return sum(len(message.tool_calls or []) for message in completion if message.role == "assistant")


def fails(completion, info) -> float:
    if completion[-1].content == "fail":
        raise KeyError("planned")
    return float(info["bonus"])


def unused(completion) -> float:
    raise AssertionError("a function of weight 0 was called")


ROWS = [{"question": "2 + 3?", "answer": "5", "info": {"bonus": 1}}, {"question": "4 + 4?", "answer": "8", "info": {"bonus": 0}}]


def made(kind, **settings):
    rubric = vf.RubricGroup([vf.Rubric(funcs=[right, calls], weights=[1.0, 0.25]), vf.Rubric(funcs=[fails, unused], weights=[0.5, 0.0])])
    return kind(dataset=Dataset.from_list(ROWS), rubric=rubric, system_prompt="Be brief.", **settings)


def test_tools_and_rewards_are_those_of_the_environment():
    env = made(vf.ToolEnv, tools=[add])
    rows = fgrpo.verifiers.rows(env)
    environment = fgrpo.verifiers.environment(env)

    def policy(messages):
        return [("add", {"a": 2, "b": 3})] if messages[-1]["role"] == "user" else messages[-1]["content"]

    episodes = [group[0] for group in fgrpo.play(None, environment, rows, n=1, policy=policy)]
    assert [episode.reward for episode in episodes] == [1.0 + 0.25 + 0.5, 0.25]
    assert [m["role"] for m in episodes[0].messages] == ["system", "user", "assistant", "tool", "assistant"]
    # The package's own functions of its own messages.
    state = State(input=rows[0], task=rows[0], trajectory=[], error=None)
    state["prompt"] = rows[0]["prompt"]
    call = {"id": "add", "name": "add", "arguments": '{"a": 2, "b": 3}'}
    said = [AssistantMessage(content="", tool_calls=[call]), ToolMessage(content="5", tool_call_id="add"), AssistantMessage(content="5")]
    state["completion"] = said
    asyncio.run(vf.Rubric(funcs=[right, calls, fails], weights=[1.0, 0.25, 0.5]).score_rollout(state))
    assert state["reward"] == episodes[0].reward


def test_the_error_of_a_tool_is_written_by_the_environment():
    env = made(vf.ToolEnv, tools=[add], error_formatter=lambda error: f"Sorry: {type(error).__name__}")
    said = iter([[("add", {"a": "x", "b": 3})], "?"])
    [[episode]] = fgrpo.play(None, fgrpo.verifiers.environment(env), fgrpo.verifiers.rows(env)[:1], n=1, policy=lambda messages: next(said))
    assert [m["content"] for m in episode.messages if m["role"] == "tool"] == ["Sorry: TypeError"]


def test_a_reward_function_that_fails_makes_the_episode_unscorable():
    env = made(vf.SingleTurnEnv)
    with pytest.warns(UserWarning, match="planned"):
        [[episode]] = fgrpo.play(None, fgrpo.verifiers.environment(env), fgrpo.verifiers.rows(env)[:1], n=1, policy=lambda m: "fail")
    assert episode.reward != episode.reward


def test_environments_that_cannot_be_played_are_refused():
    class Own(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **settings):
            return []

    with pytest.raises(TypeError, match="Own answers turns in its own way"):
        fgrpo.verifiers.environment(made(Own))

    def of_groups(completions) -> list:
        return [0.0] * len(completions)

    group = vf.SingleTurnEnv(dataset=Dataset.from_list(ROWS), rubric=vf.Rubric(funcs=[of_groups]))
    with pytest.raises(TypeError, match="reward for whole groups"):
        fgrpo.verifiers.environment(group)

    def get_reward() -> float:
        """A tool."""
        return 1.0

    with pytest.raises(ValueError, match="'get_reward'"):
        fgrpo.verifiers.environment(made(vf.ToolEnv, tools=[get_reward]))
