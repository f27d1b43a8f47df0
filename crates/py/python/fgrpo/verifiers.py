"""The math verifier for environments of ``verifiers`` and prime-rl, by import path.

``rewards = {"math": {"fn": "fgrpo.verifiers:math_reward", "weight": 1.0}}``. A reward function sees no groups, so it can't
apply the focal weight.
"""

from __future__ import annotations

import functools
from typing import Any

from . import MathProblem


@functools.lru_cache(maxsize=65536)
def _problem(gold: str) -> MathProblem:
    return MathProblem(gold)


async def math_reward(task: Any, trace: Any) -> float:
    """1 if the last reply has the answer of the task (``task.answer``), 0 if not.

    Raises ``RuntimeError`` if the verifier failed; ``verifiers`` records it as the task's error and not as a score.
    """
    verdict = _problem(str(task.answer)).check(trace.last_reply)
    if verdict.verdict == "unscorable":
        raise RuntimeError(f"the answer can't be judged: {verdict.reason}")
    return float(verdict.correct)
