"""F-GRPO for verl: the advantage estimator ``fgrpo`` and the reward function ``compute_score``.

verl 0.9 and later imports this module by itself if the wheel is installed, so you only set
``algorithm.adv_estimator=fgrpo``. For older versions set ``VERL_USE_EXTERNAL_MODULES=fgrpo.verl``. The keys with their defaults,
all under ``+algorithm.``:

``focal_gamma`` (0.5), ``focal_estimator`` (``grpo``, or ``dr_grpo`` with ``norm_adv_by_std_in_grpo=False``; any other of
``fgrpo.credit`` works too, with settings as a table: ``{kind: power, a: 0.5, b: 0.5}``), ``focal_k`` (for ``pkpo``),
``reward_correct`` (1.0), ``reward_wrong`` (0.0), ``reward_threshold`` (none), ``focal_shaping`` (none; ``ha_dw``, or ``unlikely`` and
``smoothing``, which, like the estimator ``ucpo``, need a version of verl that passes ``batch`` to estimators).
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from . import credit, verify_choice
from ._credit import reads_logp
from ._native import FOCAL_GAMMA, TRAINING_MODE
from ._verifiers import Gold, Mode, problem_of

try:
    import torch
    from verl.trainer.ppo.core_algos import register_adv_est
except Exception as error:
    # verl logs the failure of a plug-in only at debug level.
    warnings.warn(f"fgrpo.verl: the estimator fgrpo isn't registered: {error}", RuntimeWarning, stacklevel=2)
    raise


#: Our keys of ``algorithm``.
KEYS = (
    "focal_gamma",
    "focal_estimator",
    "focal_k",
    "focal_shaping",
    "reward_correct",
    "reward_wrong",
    "reward_threshold",
)


@register_adv_est("fgrpo")
def fgrpo(
    token_level_rewards: torch.Tensor,
    response_mask: torch.Tensor,
    index: np.ndarray | None = None,
    config: Any = None,
    batch: Any = None,
    **_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes focal-weighted group advantages.

    token_level_rewards, response_mask: ``(B, T)``. index: ``(B,)``, the prompt of each row. Returns advantages and returns, which
    are equal, ``(B, T)``. A row with a NaN reward is unscorable: it is left out of its group and gets 0. The row of a group of one
    gets 0 too.
    """

    def setting(name: str, default: Any) -> Any:
        value = default if config is None else config.get(name, default)
        return default if value is None else value

    if config is not None:
        _refuse(config, KEYS, "algorithm.", lambda key: key.startswith(("focal", "fgrpo", "reward_")))
    gamma = float(setting("focal_gamma", FOCAL_GAMMA))
    if index is None:
        raise ValueError("fgrpo: the batch has no uid, which says what rows are of one prompt")
    if gamma > 0 and setting("use_kl_in_reward", False):
        raise ValueError(
            "fgrpo: algorithm.use_kl_in_reward=True takes the KL penalty from the rewards before the success rate is counted; "
            "set it to False (actor_rollout_ref.actor.use_kl_loss=True has the penalty in the loss) or focal_gamma to 0"
        )
    estimator = setting("focal_estimator", "grpo" if setting("norm_adv_by_std_in_grpo", True) else "dr_grpo")
    shaping = setting("focal_shaping", None)
    with torch.no_grad():
        scores = token_level_rewards.sum(dim=-1)
        try:
            found = credit(
                scores.double().cpu().numpy(),
                groups=index,
                estimator=estimator if isinstance(estimator, str) else dict(estimator),
                gamma=gamma,
                k=setting("focal_k", None),
                correct=float(setting("reward_correct", 1.0)),
                wrong=float(setting("reward_wrong", 0.0)),
                threshold=setting("reward_threshold", None),
                shaping=shaping,
                mean_logp=_mean_logp(batch, response_mask) if reads_logp(shaping, estimator) else None,
                lengths=response_mask.sum(dim=-1).long().cpu().numpy(),
            )
        except ValueError as error:
            raise ValueError(
                f"fgrpo: {error} (algorithm.reward_correct, reward_wrong and reward_threshold say what counts as correct)"
            ) from None
        advantages = torch.as_tensor(found.advantages, dtype=scores.dtype, device=scores.device)
        advantages = advantages.unsqueeze(-1) * response_mask
    return advantages, advantages


def _mean_logp(batch: Any, response_mask: torch.Tensor) -> np.ndarray:
    if batch is None or "old_log_probs" not in batch.keys():
        raise ValueError("focal_shaping and the estimator ucpo need old_log_probs, which this version of verl doesn't pass to estimators")
    mask = response_mask.to(torch.float64)
    total = (batch["old_log_probs"].double() * mask).sum(dim=-1)
    return (total / mask.sum(dim=-1).clamp(min=1)).cpu().numpy()


def _refuse(keys: Iterable[str], known: Iterable[str], where: str, ours: Callable[[str], bool]) -> None:
    """Raises ``ValueError`` for an unknown key that is ``ours`` or nearly equal to a known one."""
    for key in keys:
        if key in known:
            continue
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.8)
        if ours(key) or near:
            meant = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
            raise ValueError(f"fgrpo: {where}{key}: unknown key; {meant}")


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Gold,
    extra_info: dict | None = None,
    *,
    verifier: str = "math",
    mode: Mode = TRAINING_MODE,
    accept_unfinished: bool = False,
    correct: float = 1.0,
    wrong: float = 0.0,
    unscorable: float = 0.0,
    **others: Any,
) -> dict[str, float]:
    """Grades one response, for ``reward.custom_reward_function.path=pkg://fgrpo.verl`` and ``.name=compute_score``.

    Set the keywords by ``+reward.custom_reward_function.reward_kwargs.KEY=VALUE``. ``verifier``: ``math`` or ``choice``
    (``ground_truth`` is the answer or the letter). ``mode``: ``strict`` or ``parity`` (math-verify's verdicts).
    ``accept_unfinished``: as in ``verify_math``. ``unscorable``: the reward if the verifier failed; ``nan`` is for the estimator
    ``fgrpo``, which leaves such a row out of its group. Any other estimator would spread the NaN, so the default is 0. ``acc``,
    ``unparsed`` and ``unscorable`` in the result are 0 or 1 and appear in verl's metrics. verl passes other keywords too; one that
    is nearly equal to one of ours is an error.
    """
    _refuse(others, ("verifier", "mode", "accept_unfinished", "correct", "wrong", "unscorable"), "reward_kwargs.", lambda key: False)
    if verifier == "math":
        code = problem_of(ground_truth, mode, accept_unfinished).check(solution_str).code
    elif verifier == "choice":
        code = int(verify_choice(str(ground_truth), [solution_str], threads=1).code[0])
    else:
        raise ValueError(f'verifier: expected "math" or "choice", found {verifier!r}')
    score = (correct, wrong, wrong, unscorable)[code]
    return {"score": float(score), "acc": float(code == 0), "unparsed": float(code == 2), "unscorable": float(code == 3)}
