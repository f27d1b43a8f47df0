"""F-GRPO for rLLM: an advantage estimator for its registry.

In the script that starts the training, before it starts::

    import fgrpo.rllm
    fgrpo.rllm.register(gamma=0.5)

Then set ``rllm.algorithm.adv_estimator=fgrpo``, or use the name in ``traj_group_adv_estimator_map`` for one role.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from . import credit
from ._native import FOCAL_GAMMA

try:
    from rllm.trainer.algorithms.advantage import register_rllm_adv_estimator
except ImportError:  # older versions of rLLM
    from rllm.experimental.common.advantage import register_rllm_adv_estimator


def register(name: str = "fgrpo", *, gamma: float = FOCAL_GAMMA, **settings: Any) -> None:
    """Registers the estimator ``name``, with the settings of :func:`fgrpo.credit`, such as ``estimator``.

    rLLM calls the estimator with a list of arrays, the rewards of each group of trajectories. It returns advantages and returns of the
    same shapes. A NaN reward is unscorable. Its trajectory gets advantage 0, and so does the trajectory of a group of one.
    """

    @register_rllm_adv_estimator(name)
    def fgrpo(rewards: list[np.ndarray], algorithm_config: Any = None, **_: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
        sizes = [len(group) for group in rewards]
        if not sizes:
            return [], []
        groups = np.repeat(np.arange(len(sizes)), sizes)
        found = credit(np.concatenate(rewards), groups=groups, gamma=gamma, **settings).advantages
        advantages = np.split(found, np.cumsum(sizes)[:-1])
        return advantages, advantages
