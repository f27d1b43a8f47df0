"""F-GRPO for slime.

``--custom-reward-post-process-path fgrpo.slime.post_process_rewards`` multiplies slime's GRPO advantages by the focal
weight; ``--custom-rm-path fgrpo.slime.math_reward`` is the math verifier (mode ``strict``). The environment variables
``FGRPO_FOCAL_GAMMA`` (0.5), ``FGRPO_REWARD_CORRECT`` (1), ``FGRPO_REWARD_WRONG`` (0) and ``FGRPO_REWARD_THRESHOLD`` (none) are settings, and
so are ``args.focal_gamma``, ``args.reward_correct`` and so on if you add these custom arguments.
"""

from __future__ import annotations

import os
from typing import Any

from . import credit
from ._native import FOCAL_GAMMA
from ._verifiers import problem_of

# slime's estimators that compare the rewards of a group, and whether each may divide by the standard deviation.
ESTIMATORS = {"grpo": True, "gspo": True, "cispo": True, "reinforce_plus_plus_baseline": False}


def post_process_rewards(args: Any, samples: list[Any]) -> tuple[list[float], list[float]]:
    """Returns the raw rewards and the focal-weighted advantages of the samples, in order.

    Samples are grouped by ``group_index``. The estimator is slime's: reward minus the group's mean, which ``grpo``, ``gspo`` and ``cispo`` divide
    by the standard deviation with ``--grpo-std-normalization``. Samples with a NaN reward are left out of their group.

    Raises ``ValueError`` if slime itself wouldn't compare the rewards of a group.
    """
    name = getattr(args, "advantage_estimator", "grpo")
    if name not in ESTIMATORS or not getattr(args, "rewards_normalization", True):
        wanted = f"set --advantage-estimator to one of {', '.join(ESTIMATORS)} (found {name}), without --disable-rewards-normalization"
        raise ValueError(f"the focal weight multiplies advantages within a group; {wanted}")

    def setting(name: str, default: float | None) -> float | None:
        value = getattr(args, name, os.environ.get(f"FGRPO_{name.upper()}", default))
        return None if value is None else float(value)

    raw = [sample.get_reward_value(args) for sample in samples]
    found = credit(
        raw,
        groups=[sample.group_index for sample in samples],
        estimator="grpo" if ESTIMATORS[name] and getattr(args, "grpo_std_normalization", True) else "dr_grpo",
        gamma=setting("focal_gamma", FOCAL_GAMMA),
        correct=setting("reward_correct", 1.0),
        wrong=setting("reward_wrong", 0.0),
        threshold=setting("reward_threshold", None),
    )
    return raw, found.advantages.tolist()


async def math_reward(args: Any, sample: Any, **_: Any) -> float:
    """Grades a sample by ``sample.label``: 1 if it is correct, 0 if it is wrong, NaN if the verifier failed."""
    return (1.0, 0.0, 0.0, float("nan"))[problem_of(sample.label).check(sample.response).code]
