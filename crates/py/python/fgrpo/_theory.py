"""The paper's theory of finite groups, and its categorical simulation."""

from __future__ import annotations

from typing import NamedTuple, overload

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import Integer, Real, flat, integers, numbers, whole


@overload
def tail_miss(mu: Real, tau: Real, n: Integer) -> float: ...
@overload
def tail_miss(mu: npt.ArrayLike, tau: npt.ArrayLike, n: npt.ArrayLike) -> npt.NDArray[np.float64]: ...
def tail_miss(mu, tau, n):
    """Probability that a group of ``n`` is active (has correct and wrong completions) but contains no completion of a rare
    subset of the correct ones, ``(1 - tau)^n - (mu - tau)^n - (1 - mu)^n``.

    mu: probability of a correct completion. tau: probability of the rare subset, at most ``mu``. The arguments are broadcast.

    >>> tail_miss(0.5, 0.1, [2, 8]).round(4)
    array([0.4   , 0.4259])
    """
    mu, tau, n = np.broadcast_arrays(numbers("mu", mu), numbers("tau", tau), integers("n", n))
    return _shaped(_native.tail_miss(flat(mu), flat(tau), flat(n)), mu.shape)


@overload
def active(mu: Real, n: Integer) -> float: ...
@overload
def active(mu: npt.ArrayLike, n: npt.ArrayLike) -> npt.NDArray[np.float64]: ...
def active(mu, n):
    """Probability that a group of ``n`` has both correct and wrong completions, ``1 - mu^n - (1 - mu)^n``. The
    arguments are broadcast.

    >>> active(0.5, 2)
    0.5
    """
    mu, n = np.broadcast_arrays(numbers("mu", mu), integers("n", n))
    return _shaped(_native.active(flat(mu), flat(n)), mu.shape)


class Peak(NamedTuple):
    """The group size at which a tail miss is most likely, and the probability of a tail miss at that size."""

    n: int
    tail_miss: float


def peak(mu: float, tau: float) -> Peak:
    """The group size that maximises :func:`tail_miss`; the smaller one if two are equal.

    >>> peak(0.5, 0.1).n
    4
    """
    return Peak(*_native.peak(mu, tau))


def low_lr(gamma: float) -> float:
    """Learning-rate multiplier of the low-LR control: the average factor by which the focal weight scales advantages.

    >>> low_lr(1.0)
    0.5
    """
    return _native.low_lr(gamma)


class Trajectory(NamedTuple):
    """A simulated policy during training, ``(R,)`` each: before the first step, every ``record_every`` steps, and at the end.

    step: int64. correct_mass: float64, total probability of the correct actions. retained: float64, 1 minus the fraction of the
    initial correct mass that correct actions have lost. entropy: float64, in nats.
    """

    step: npt.NDArray[np.int64]
    correct_mass: npt.NDArray[np.float64]
    retained: npt.NDArray[np.float64]
    entropy: npt.NDArray[np.float64]


def simulate(
    *,
    group_size: int,
    gamma: float = 0.0,
    steps: int = 500,
    seed: int = 0,
    record_every: int = 10,
    actions: int = 128_000,
    correct: int = 10_000,
    anchors: int = 1,
    lr: float = 1e-2,
) -> Trajectory:
    """Trains the paper's categorical policy: a softmax over ``actions`` actions, of which ``correct`` are correct; ``anchors`` of
    these are likelier from the start.

    Runs that differ only in ``gamma`` share their random numbers.

    >>> run = simulate(group_size=8, steps=20, actions=1000, correct=100)
    >>> run.step, run.correct_mass.shape
    (array([ 0, 10, 20]), (3,))
    """
    whole(0, group_size=group_size, steps=steps, seed=seed, actions=actions, correct=correct, anchors=anchors)
    whole(1, record_every=record_every)
    found = _native.simulate(group_size, gamma, steps, seed, record_every, actions, correct, anchors, lr)
    return Trajectory(**found)


def _shaped(values: npt.NDArray[np.float64], shape: tuple[int, ...]) -> npt.NDArray[np.float64] | float:
    return values.reshape(shape) if shape else float(values[0])
