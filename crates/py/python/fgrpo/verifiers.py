"""Environments of the package ``verifiers`` for ``fgrpo.train`` and ``fgrpo.play``, and the math verifier (mode ``strict``) as a reward
for ``verifiers`` and prime-rl.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from ._environment import Message, tool_method
from ._verifiers import problem_of


async def math_reward(task: Any, trace: Any) -> float:
    """Grades the last reply by the reference answer ``task.answer``: 1 or 0.

    Configure it by its import path: ``rewards = {"math": {"fn": "fgrpo.verifiers:math_reward", "weight": 1.0}}``. A reward function
    doesn't know the groups, so it can't apply the focal weight. Raises ``RuntimeError`` if the verifier failed, which ``verifiers``
    records as an error of the task and not as a score.
    """
    verdict = problem_of(task.answer).check(trace.last_reply)
    if verdict.verdict == "unscorable":
        raise RuntimeError(f"the answer can't be judged: {verdict.reason}")
    return float(verdict.correct)


def rows(env: Any, held_out: bool = False) -> list[dict[str, Any]]:
    """Returns the rows of an environment of ``verifiers`` 0.3. ``prompt`` has the conversation that begins an episode.

    held_out: return the rows of the evaluation data set.
    """
    return [dict(row) for row in (env.get_eval_dataset() if held_out else env.get_dataset())]


def environment(env: Any) -> type:
    """Returns a class that plays a ``SingleTurnEnv`` or ``ToolEnv`` of ``verifiers`` 0.3 (``vf.load_environment(...)``) on its :func:`rows`.

    The policy gets the environment's tools. The maximum number of turns is that of ``fgrpo.play`` or the configuration, not the environment's. The reward of an episode is the weighted sum of the rubric's reward functions. If one raises
    an exception, the episode is unscorable; ``verifiers`` counts it as 0. Functions with weight 0 aren't called.

    Raises ``TypeError`` for an environment that answers turns itself, and for a rubric with rewards of whole groups. Raises
    ``ImportError`` for ``verifiers`` 0.4, which removed these environments.
    """
    try:
        from verifiers.legacy import SingleTurnEnv, ToolEnv
    except ModuleNotFoundError as error:
        raise ImportError('fgrpo.verifiers.environment needs ToolEnv of verifiers 0.3: pip install "verifiers<0.4"') from error

    played = (SingleTurnEnv.env_response, ToolEnv.env_response)
    if not isinstance(env, (SingleTurnEnv, ToolEnv)) or type(env).env_response not in played:
        raise TypeError(f"{type(env).__name__} answers turns in its own way; expected a SingleTurnEnv or ToolEnv")
    if env.rubric.has_group_rewards:
        raise TypeError(f"{type(env).__name__} has a reward for whole groups; an environment rewards each episode alone")
    members: dict[str, Any] = {"_env": env}
    for tool in getattr(env, "tool_defs", None) or []:
        members[tool.name] = tool_method(tool.name, tool.description, tool.parameters, _caller(env, tool.name))
    return type(type(env).__name__, (_Rollout,), members)


def _caller(env: Any, name: str) -> Any:
    async def call(self: _Rollout, **arguments: Any) -> Any:
        try:
            return (await env.call_tool(name, arguments, name)).content
        except Exception as error:
            return env.error_formatter(error)

    return call


class _Rollout:
    _env: Any

    def reset(self, **row: Any) -> None:
        self._row = row

    async def reward(self, completion: Sequence[Message]) -> float:
        from verifiers.legacy.types import State
        from verifiers.legacy.utils.message_utils import normalize_messages

        state = State(input=self._row, task=self._row, trajectory=[], error=None, is_completed=True, is_truncated=False)
        state["prompt"] = normalize_messages(self._row["prompt"], field_name="prompt")
        said = [{**m, "tool_call_id": m["name"]} if m["role"] == "tool" else m for m in completion]
        state["completion"] = normalize_messages(said, field_name="completion")
        total = 0.0
        for rubric in getattr(self._env.rubric, "rubrics", [self._env.rubric]):
            objects = rubric.score_objects(state)
            for function, weight in zip(rubric.funcs, rubric.weights):
                if weight:
                    wanted = inspect.signature(function).parameters
                    takes_all = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
                    value = function(**{name: o for name, o in objects.items() if takes_all or name in wanted})
                    total += weight * float(await value if inspect.isawaitable(value) else value)
        return total
