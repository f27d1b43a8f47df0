"""The math verifier (mode ``strict``) for OpenRLHF: set ``--remote_rm_url`` to the path of this file.

``python -c "import fgrpo.openrlhf; print(fgrpo.openrlhf.__file__)"`` prints the path. The reward function doesn't know the groups,
so it can't apply the focal weight.
"""

from __future__ import annotations

import functools
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import fgrpo

# OpenRLHF loads this file by its path, so relative imports don't work.
from fgrpo._native import TRAINING_MODE


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str], **_: Any) -> dict[str, Any]:
    """Grades responses (``queries`` without ``prompts``) by the reference answers ``labels``: 1 or 0, float32 ``(B,)``.

    OpenRLHF can't mark a response as unscorable, so such a response gets 0 and is counted in ``extra_logs``. A response is also
    unscorable if its query doesn't begin with its prompt, for example because OpenRLHF cut the prompt.
    """
    responses = [_response(q, p) for q, p in zip(queries, prompts, strict=True)]
    verdicts = fgrpo.verify_math(labels, [r or "" for r in responses], mode=TRAINING_MODE)
    codes = np.where([r is None for r in responses], 3, verdicts.code)
    if None in responses:
        warnings.warn("fgrpo.openrlhf: queries that don't begin with their prompts get 0", stacklevel=2)
    rewards = torch.tensor(codes == 0, dtype=torch.float32)
    share = lambda code: torch.tensor(codes == code, dtype=torch.float32)  # noqa: E731
    return {
        "rewards": rewards,
        "scores": rewards,
        "extra_logs": {"unparsed": share(2), "unscorable": share(3)},
    }


def _response(query: str, prompt: str) -> str | None:
    # The query is decoded from tokens, and some tokenizers (Qwen's) compose characters.
    for form in (str, functools.partial(unicodedata.normalize, "NFC")):
        if form(query).startswith(form(prompt)):
            return form(query)[len(form(prompt)) :]
    return None
