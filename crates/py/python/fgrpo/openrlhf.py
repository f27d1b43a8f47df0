"""The math verifier (strict) for OpenRLHF: ``--remote_rm_url`` with the path of this file.

``python -c "import fgrpo.openrlhf; print(fgrpo.openrlhf.__file__)"`` prints it. The reward function sees no groups, so it can't
apply the focal weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import fgrpo

# OpenRLHF loads this file by its path, where no relative import works.
from fgrpo._native import TRAINING_MODE


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str], **_: Any) -> dict[str, Any]:
    """Rewards of responses (``queries`` without ``prompts``) by their reference answers ``labels``: 1 or 0, float32 ``(B,)``.

    OpenRLHF can't mark a response as unscorable: such a response gets 0 and is counted in ``extra_logs``.
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
