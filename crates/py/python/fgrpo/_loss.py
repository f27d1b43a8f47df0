"""Policy losses in closed form."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import booleans, flat, numbers, real, whole


def policy_loss(
    logp: npt.ArrayLike,
    old_logp: npt.ArrayLike,
    advantages: npt.ArrayLike,
    mask: npt.ArrayLike,
    *,
    loss: Literal["grpo", "dapo", "cispo", "gspo", "sapo", "gmpo", "dppo_tv", "dppo_kl", "kl_cov", "clip_cov"],
    aggregation: Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"],
    clip_low: float | None = None,
    clip_high: float | None = None,
    dual_clip: float | Literal["default"] | None = "default",
    absolute_cap: bool = False,
    tau: tuple[float, float] | None = None,
    max_len: int | None = None,
) -> tuple[float, npt.NDArray[np.float64]]:
    """Computes the policy loss of a mini-batch, and its derivative with respect to ``logp``, float64 ``(B, T)``.

    logp, old_logp: ``(B, T)``, log-probabilities of the sampled tokens under the policy that is updated, and under the policy
        that sampled them.
    advantages: ``(B,)``, one per completion (``credit(...).advantages``).
    mask: ``(B, T)``, whether each token is in the loss. The means of the loss are over these tokens.
    loss: ``grpo`` (PPO's clip, 0.2 and 0.2), ``dapo`` (0.2 and 0.28), ``cispo`` (weights in [0, 6]), ``gspo`` (3e-4 and 4e-4),
        ``sapo``, ``gmpo`` (0.4 and 0.4, of the ratio's logarithm), ``dppo_tv`` and ``dppo_kl`` (thresholds 0.15 and 0.05),
        ``kl_cov``, ``clip_cov`` (their mini-batch is the data of this call).
    clip_low, clip_high: distances from 1, or thresholds, that replace these defaults.
    tau: the temperatures of ``sapo`` for positive and for other advantages (1 and 1.05).
    dual_clip: if the advantage ``A`` is negative, the loss of ``grpo`` and ``dapo`` is at most ``-A * dual_clip`` (3). None
        turns this bound off.
    absolute_cap: the weight of ``cispo`` is at most ``clip_high`` (6.0) and has no lower bound, like TRL's ``epsilon_high``.
    aggregation: ``seq-mean-token-sum-norm`` divides by ``max_len`` (Dr. GRPO).

    The derivative treats stop-gradients as constants, as autograd does.

    >>> import numpy as np
    >>> old = np.log([[0.5, 0.5], [0.5, 0.25]])
    >>> value, slope = policy_loss(old, old, [1.0, -1.0], [[1, 1], [1, 0]], loss="grpo", aggregation="token-mean")
    >>> round(value, 4)
    -0.3333
    >>> slope.round(4)
    array([[-0.3333, -0.3333],
           [ 0.3333,  0.    ]])
    """
    whole(1, max_len=max_len)
    dual: Any = None if dual_clip == "default" else dual_clip or 0.0
    real(clip_low=clip_low, clip_high=clip_high, dual_clip=dual, tau=tau)
    logp, old_logp = numbers("logp", logp), numbers("old_logp", old_logp)
    mask, advantages = booleans("mask", mask), numbers("advantages", advantages)
    if logp.ndim != 2:
        raise ValueError(f"logp: expected (completions, tokens), found shape {logp.shape}")
    for name, array in (("old_logp", old_logp), ("mask", mask)):
        if array.shape != logp.shape:
            raise ValueError(f"{name}: expected logp's {logp.shape}, found shape {array.shape}")
    if advantages.shape != logp.shape[:1]:
        raise ValueError(f"advantages: expected shape {logp.shape[:1]}, one for each completion, found {advantages.shape}")
    for name, array in (("logp", logp[mask]), ("old_logp", old_logp[mask]), ("advantages", advantages)):
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: expected finite numbers where the mask is 1, found {array[~np.isfinite(array)][0]}")
    return _native.policy_loss(
        np.ascontiguousarray(logp),
        np.ascontiguousarray(old_logp),
        flat(advantages),
        np.ascontiguousarray(mask),
        loss,
        aggregation,
        clip_low,
        clip_high,
        dual,
        absolute_cap,
        tau,
        max_len,
    )
