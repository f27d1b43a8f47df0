"""Advantages and focal weights of groups of completions."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, overload

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import Real, flat, integers, numbers, real, whole
from ._estimator import answering
from ._rows import plain

if TYPE_CHECKING:
    from typing_extensions import Unpack

Estimator = Literal[
    "grpo",
    "dr_grpo",
    "rloo",
    "max_rl",
    "pkpo",
    "power",
    "passk_training",
    "grpo_passk",
    "w_reinforce",
    "rs_grpo",
    "dgpo",
    "opo",
    "lite_ppo",
    "reinforce_plus_plus_baseline",
    "gpg",
    "grpo_lead",
    "curve_rl",
    "bbg",
    "cue_grpo",
    "ucpo",
    "gdpo",
    "avspo",
]


class Credit(NamedTuple):
    """The credit of groups of completions.

    advantages: float64, same shape as the rewards, multiplied by the focal weight; 0 where the reward was NaN.
    success_rate: float64 ``(G,)``, the fraction of correct completions; NaN if no completion has a reward, or if rewards
        are graded and the success rate isn't needed.
    focal_weight: float64 ``(G,)``, ``(1 - success_rate)^gamma``.
    group: int64 ``(B,)``, for each completion (in the order of ``advantages.ravel()``) its index into the two arrays above.
    """

    advantages: npt.NDArray[np.float64]
    success_rate: npt.NDArray[np.float64]
    focal_weight: npt.NDArray[np.float64]
    group: npt.NDArray[np.int64]


class Settings(TypedDict, total=False):
    """The settings of :func:`credit`."""

    groups: Iterable[Hashable] | None
    estimator: Estimator | Mapping[str, Any] | Callable[..., Any]
    gamma: float
    eps: float | None
    ddof: int | None
    k: int | None
    correct: float
    wrong: float
    threshold: float | None
    shaping: str | tuple | None
    mean_logp: npt.ArrayLike | None
    lengths: npt.ArrayLike | None
    parts: Sequence[npt.ArrayLike] | None
    weights: Sequence[float] | None
    clusters: npt.ArrayLike | None


def reads_logp(shaping: str | Sequence[Any] | None, estimator: str | Mapping[str, Any] = "grpo") -> bool:
    """Whether a shaping or an estimator needs ``mean_logp``."""
    name = shaping if shaping is None or isinstance(shaping, str) else shaping[0]
    kind = estimator if isinstance(estimator, str) else estimator.get("kind")
    return name not in (None, "ha_dw") or kind == "ucpo"


def credit(
    rewards: npt.ArrayLike,
    *,
    groups: Iterable[Hashable] | None = None,
    estimator: Estimator | Mapping[str, Any] | Callable[..., Any] = "grpo",
    gamma: float = 0.0,
    eps: float | None = None,
    ddof: int | None = None,
    k: int | None = None,
    correct: float = 1.0,
    wrong: float = 0.0,
    threshold: float | None = None,
    shaping: str | tuple | None = None,
    mean_logp: npt.ArrayLike | None = None,
    lengths: npt.ArrayLike | None = None,
    parts: Sequence[npt.ArrayLike] | None = None,
    weights: Sequence[float] | None = None,
    clusters: npt.ArrayLike | None = None,
) -> Credit:
    """Advantages of groups of completions, multiplied by the focal weight ``(1 - success_rate)^gamma`` of their group.

    rewards: ``(G, N)``, one row per group, or ``(B,)`` with ``groups``. NaN means unscorable: the completion is left out of
        its group's statistics and gets advantage 0.
    groups: ``(B,)`` hashable values such as prompt ids. The completions of a group needn't be adjacent.
    estimator: ``grpo`` (reward minus mean, divided by standard deviation + ``eps``, with ``ddof``; 1e-6 and 1), ``dr_grpo`` (reward
        minus mean), ``rloo`` (reward minus the mean of the others), ``max_rl``, ``pkpo`` (optimises pass@``k``, 4 by default) and others; docs/methods.md
        has their formulas. An estimator with settings is a table as in a configuration: ``{"kind": "power", "a": 0.5, "b": -0.5}``.
        ``dgpo``, ``lite_ppo``, ``reinforce_plus_plus_baseline``, ``gpg``, ``gdpo`` and ``curve_rl`` treat all groups of the call as
        one batch. A function of yours is called once for each group. Its arguments may be any of ``rewards``, ``correct``,
        ``lengths`` and ``mean_logp``, each a list over the group's scored completions, and it returns one number for each.
    eps, ddof, k: settings of estimators that have them.
    gamma: exponent of the focal weight; 0 gives the plain estimator, bit for bit.
    correct, wrong: the rewards of correct and wrong completions, from which the success rate is computed.
    threshold: with graded rewards, the lowest reward of a completion that counts as correct.
    shaping: ``"unlikely"`` or ``("unlikely", beta)``: Rewarding the Unlikely; ``"smoothing"`` or
        ``("smoothing", correct, wrong)``: differential smoothing. Both need ``mean_logp``. ``("ha_dw", scale, anchor)``: HA-DW
        with the running success rate ``anchor``; ``"ha_dw"`` uses the success rate of this call.
    mean_logp: same shape as ``rewards``: mean log-probability per token of each completion under the policy that sampled it.
        ``ucpo`` needs it too.
    lengths: same shape as ``rewards``: number of tokens of each completion. ``opo``, ``grpo_lead`` and
        ``reinforce_plus_plus_baseline`` need it.
    parts: separate rewards of each completion, each with the shape of ``rewards``. ``gdpo`` normalises them separately. The
        success rate is still computed from ``rewards``.
    weights: one weight for each of the parts (default: 1).
    clusters: same shape as ``rewards``: a number or string for each completion, equal for similar completions of a group.
        ``cue_grpo`` needs it.

    The completion of a group of one gets advantage 0.

    >>> credit([[1, 0, 0, 0], [1, 1, 1, 0]], gamma=1.0).focal_weight
    array([0.75, 0.25])
    >>> found = credit([1, 0, 1, 1], groups=["a", "a", "b", "b"], estimator="rloo")
    >>> found.advantages
    array([ 1., -1.,  0.,  0.])
    >>> found.success_rate, found.group
    (array([0.5, 1. ]), array([0, 0, 1, 1]))
    >>> credit([[1.0, 0.4]], gamma=0.5)
    Traceback (most recent call last):
    ValueError: group 0: reward of completion 1: expected 1 (correct) or 0 (wrong), found 0.4; for graded rewards, set a \
threshold from which a completion counts as correct, or use an estimator that needs none (grpo, dr_grpo, rloo) with focal_gamma = 0
    """
    own = estimator if callable(estimator) else None
    if own is not None:
        for name, value in {"eps": eps, "ddof": ddof, "k": k, "shaping": shaping, "parts": parts}.items():
            if value is not None:
                raise ValueError(f"{name}: not available if the estimator is a function; found {value!r}")
        # The success rates and weights are the same with every estimator.
        estimator = "dr_grpo"
    whole(0, ddof=ddof, k=k)
    real(eps=eps)
    rewards = numbers("rewards", rewards)
    labels: list[Hashable] | None = None
    if groups is None:
        if rewards.ndim != 2:
            raise ValueError(f"rewards: expected (groups, samples), or groups= beside (samples,), found shape {rewards.shape}")
        count = rewards.shape[0]
        group = np.repeat(np.arange(count, dtype=np.int64), rewards.shape[1])
    else:
        if rewards.ndim != 1:
            raise ValueError(f"rewards: expected (samples,) beside groups=, found shape {rewards.shape}")
        group, labels = _numbered(groups)
        count = len(labels)
        if len(group) != len(rewards):
            raise ValueError(f"groups: expected one for each of {len(rewards)} rewards, found {len(group)}")
    logp = None
    if mean_logp is not None:
        logp = numbers("mean_logp", mean_logp)
        if logp.shape != rewards.shape:
            raise ValueError(f"mean_logp: expected the rewards' {rewards.shape}, found shape {logp.shape}")
        if not np.isfinite(logp).all():
            raise ValueError(f"mean_logp: expected finite numbers, found {logp[~np.isfinite(logp)][0]}")
    elif reads_logp(shaping):
        raise ValueError("mean_logp is required: the shaping uses each completion's mean log-probability")
    if lengths is not None:
        lengths = integers("lengths", lengths)
        if lengths.shape != rewards.shape:
            raise ValueError(f"lengths: expected the rewards' {rewards.shape}, found shape {lengths.shape}")
        if lengths.size and lengths.min() < 0:
            raise ValueError(f"lengths: expected numbers of tokens, found {lengths.min()}")
    alike = None
    if clusters is not None:
        names = np.asarray(clusters)
        if names.shape != rewards.shape:
            raise ValueError(f"clusters: expected the rewards' {rewards.shape}, found shape {names.shape}")
        alike = np.unique(names, return_inverse=True)[1].reshape(-1).astype(np.int64)
    each = [numbers("parts", part) for part in parts or ()]
    for part in each:
        if part.shape != rewards.shape:
            raise ValueError(f"parts: expected the rewards' {rewards.shape}, found shape {part.shape}")
    shares = [1.0] * len(each) if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(each):
        raise ValueError(f"weights: expected one for each of {len(each)} parts, found {len(shares)}")
    table = {"kind": estimator} if isinstance(estimator, str) else dict(estimator)
    name, *values = (shaping,) if isinstance(shaping, str) or shaping is None else shaping
    found = _native.credit(
        flat(rewards),
        group,
        count,
        labels,
        json.dumps(table, default=plain),
        gamma,
        eps,
        ddof,
        k,
        correct,
        wrong,
        threshold,
        None if name is None else (name, values),
        None if logp is None else flat(logp),
        None if lengths is None else flat(lengths),
        [(flat(part), share) for part, share in zip(each, shares)],
        alike,
    )
    advantages = found[0]
    if own is not None:
        columns = {"rewards": rewards, "lengths": lengths, "mean_logp": logp}
        columns = {name: np.ravel(column) for name, column in columns.items() if column is not None}
        bar = (correct + wrong) / 2 if threshold is None else _native.lowest_correct(threshold)
        advantages = _own(own, columns, group, found[1], bar)
        advantages *= found[2][group]
    return Credit(advantages.reshape(rewards.shape), found[1], found[2], group)


def _own(
    function: Callable[..., Any],
    columns: dict[str, npt.NDArray[Any]],
    group: npt.NDArray[np.int64],
    rates: npt.NDArray[np.float64],
    bar: float,
) -> npt.NDArray[np.float64]:
    """Calls a function with the scored completions of each group. A completion is correct if its reward is at least ``bar``."""
    call = answering(function)
    advantages = np.zeros(len(group))
    scored = ~np.isnan(columns["rewards"])
    for g, rate in enumerate(rates):
        rows = np.flatnonzero((group == g) & scored)
        if len(rows) > 1:
            given = {name: column[rows].tolist() for name, column in columns.items()}
            # Without a threshold, graded rewards are neither correct nor wrong.
            if not np.isnan(rate):
                given["correct"] = [reward >= bar for reward in given["rewards"]]
            advantages[rows] = call(given)["advantages"]
    return advantages


def _numbered(groups: Iterable[Hashable]) -> tuple[npt.NDArray[np.int64], list[Hashable]]:
    """Returns the group index of each completion, in the order of first appearance, and the list of groups."""
    seen: dict[Hashable, int] = {}
    items = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    try:
        group = np.fromiter((seen.setdefault(_key(g), len(seen)) for g in items), np.int64, len(items))
    except TypeError:
        raise TypeError("groups: expected hashable prompt ids, such as strings or ints") from None
    return group, list(seen)


def _key(label: Any) -> Hashable:
    """Converts a label so that equal labels compare equal. Tensors and arrays are hashed by identity or not at all."""
    if isinstance(label, (str, int)):
        return label
    if hasattr(label, "tolist"):
        label = label.tolist()
        label = tuple(label) if isinstance(label, list) else label
    if isinstance(label, tuple):
        return tuple(map(_key, label))
    if label != label:
        raise ValueError("groups: expected a prompt id for each completion, found nan")
    return label


def advantages(rewards: npt.ArrayLike, **settings: Unpack[Settings]) -> npt.NDArray[np.float64]:
    """The advantages of :func:`credit`, float64, same shape as ``rewards``; takes the same settings.

    >>> advantages([[1, 0]], estimator="dr_grpo")
    array([[ 0.5, -0.5]])
    """
    return credit(rewards, **settings).advantages


@overload
def focal_weight(success_rate: Real, gamma: float) -> float: ...
@overload
def focal_weight(success_rate: npt.ArrayLike, gamma: float) -> npt.NDArray[np.float64]: ...
def focal_weight(success_rate, gamma):
    """Focal weight ``(1 - success_rate)^gamma``, same shape as ``success_rate`` (0 to 1). NaN stays NaN.

    >>> focal_weight([0.0, 0.75, 1.0], gamma=0.5)
    array([1. , 0.5, 0. ])
    """
    rates = numbers("success_rate", success_rate)
    found = _native.focal_weight(flat(rates), gamma).reshape(rates.shape)
    return found if rates.ndim else float(found)
