"""F-GRPO for SkyRL: an advantage estimator for its registry.

In the script that starts the training, before it starts::

    import fgrpo.skyrl
    fgrpo.skyrl.register(gamma=0.5)

Then set ``trainer.algorithm.advantage_estimator=fgrpo``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator

from . import credit
from ._native import FOCAL_GAMMA


def register(name: str = "fgrpo", *, gamma: float = FOCAL_GAMMA, **settings: Any) -> None:
    """Registers the estimator ``name``, with the settings of :func:`fgrpo.credit`, such as ``estimator``.

    SkyRL calls the estimator with ``token_level_rewards`` and ``response_mask``, ``(B, T)``, and ``index``, the prompt of each row.
    A row with a NaN reward is unscorable: it is left out of its group and gets 0. The row of a group of one gets 0 too.
    """

    @register_advantage_estimator(name)
    def fgrpo(
        token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: np.ndarray, **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            scores = token_level_rewards.sum(dim=-1)
            lengths = response_mask.sum(dim=-1).long().cpu().numpy()
            rewards = scores.double().cpu().numpy()
            found = credit(rewards, groups=index, gamma=gamma, lengths=lengths, **settings).advantages
            advantages = torch.as_tensor(found, dtype=scores.dtype, device=scores.device).unsqueeze(-1) * response_mask
        return advantages, advantages
