"""The math verifier (mode ``strict``) for OpenRLHF: set ``--remote_rm_url`` to the path of this file.

``python -c "import fgrpo.openrlhf; print(fgrpo.openrlhf.__file__)"`` prints the path. The reward function doesn't know the groups,
so it can't apply the focal weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import fgrpo

# OpenRLHF loads this file by its path, so relative imports don't work.
from fgrpo._native import TRAINING_MODE


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str], **_: Any) -> dict[str, Any]:
    """Grades responses (``queries`` without ``prompts``) by the reference answers ``labels``: 1 or 0, float32 ``(B,)``.

    OpenRLHF can't mark a response as unscorable, so such a response gets 0 and is counted in ``extra_logs``.
    """
    responses = [q.removeprefix(p) for q, p in zip(queries, prompts, strict=True)]
    verdicts = fgrpo.verify_math(labels, responses, mode=TRAINING_MODE)
    rewards = torch.tensor(verdicts.rewards(unscorable=0.0), dtype=torch.float32)
    share = lambda code: torch.tensor(verdicts.code == code, dtype=torch.float32)  # noqa: E731
    return {
        "rewards": rewards,
        "scores": rewards,
        "extra_logs": {"unparsed": share(2), "unscorable": share(3)},
    }
