"""Unbiased pass@k, the paired test of two models, and suggested group sizes."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import Integer, flat, integers, whole
from ._samples import Samples, samples_of

SamplesLike = Samples | str | os.PathLike | tuple | npt.ArrayLike | Any


@overload
def pass_at_k(n: Integer, c: Integer, k: Integer) -> float: ...
@overload
def pass_at_k(n: npt.ArrayLike, c: npt.ArrayLike, k: npt.ArrayLike) -> npt.NDArray[np.float64]: ...
def pass_at_k(n, c, k):
    """Computes unbiased pass@k of problems, ``1 - C(n-c, k) / C(n, k)``.

    n: number of samples of each problem. c: number of correct samples. k: from 1 to ``n``. The arguments are broadcast. If all are
    scalars, the result is a scalar.

    >>> pass_at_k([8, 8, 8], [0, 1, 8], 4)
    array([0. , 0.5, 1. ])
    >>> pass_at_k(1024, 17, 1)
    0.0166015625
    """
    n, c, k = np.broadcast_arrays(integers("n", n), integers("c", c), integers("k", k))
    found = _native.pass_at_k(flat(n), flat(c), flat(k)).reshape(n.shape)
    return found if n.ndim else float(found)


class Comparison(NamedTuple):
    """Two models' pass@k or cover@tau on one benchmark, or averaged over several, as fractions. Differences are b - a.

    k: the k of pass@k, or None. cover: the tau of cover@tau in percent, or None. p_value, interval: from the paired subsampling
    test, which is about these problems. holm_p_value: corrected for the number of benchmarks. p_bounds: bounds of the exact
    p-value (None with ``monte-carlo``). These four are None if every subsample has the same difference, as with m = n.
    bootstrap_p_value, bootstrap_interval: from the bootstrap over problems, which is about other problems of the kind. gained,
    lost: names of the problems that only b, or only a, solves in any sample. verdict: the result in words.
    """

    benchmark: str
    average_of: list[str]
    k: int | None
    m: int
    problems: int
    a: float
    b: float
    difference: float
    p_value: float | None
    holm_p_value: float | None
    interval: tuple[float, float] | None
    p_bounds: tuple[float, float] | None
    bootstrap_p_value: float
    bootstrap_interval: tuple[float, float]
    gained: list[str]
    lost: list[str]
    verdict: str
    cover: int | None


class Comparisons(list[Comparison]):
    """Result of :func:`compare`: a list that is printed as a table of percentages."""

    def _table(self) -> list[list[str]]:
        def interval(bounds: tuple[float, float] | None) -> str:
            return "-" if bounds is None else f"{100 * bounds[0]:+.1f} to {100 * bounds[1]:+.1f}"

        rows = [["benchmark", "measure", "a", "b", "b - a", "interval", "p", "bootstrap", "p (bootstrap)"]]
        for c in self:
            p = "-" if c.p_value is None else f"{c.p_value:.4f}"
            measure = f"pass@{c.k}" if c.cover is None else f"cover@{c.cover}%"
            values = [f"{100 * c.a:.1f}", f"{100 * c.b:.1f}", f"{100 * c.difference:+.1f}"]
            bootstrap = [interval(c.bootstrap_interval), f"{c.bootstrap_p_value:.4f}"]
            rows.append([c.benchmark or "all", measure, *values, interval(c.interval), p, *bootstrap])
        return rows

    def __repr__(self) -> str:
        rows = self._table()
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)

    def _repr_html_(self) -> str:
        head, *rows = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in self._table()]
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in rows)}</tbody></table>"


def compare(
    a: SamplesLike,
    b: SamplesLike,
    *,
    k: int | Sequence[int] = (1,),
    cover: int | Sequence[int] = (),
    m: int | None = None,
    method: Literal["exact", "monte-carlo"] = "exact",
    level: float = 0.95,
    seed: int = 0,
    iterations: int = 50_000,
    resamples: int = 10_000,
    uneven: bool = False,
) -> Comparisons:
    """Compares models a and b by the paper's paired subsampling test and a bootstrap over problems.

    a, b: samples of the same problems: a result of :func:`read_samples`, a path, ``(n, c)``, a ``(P, N)`` array of 1, 0 and NaN, or a
    data frame. k: one or several values. cover: values of tau in percent, for which cover@tau is compared too: the fraction of problems
    for which at least this percentage of the samples is correct. m: subsample size (default: half of the samples, at most 256; or k if
    k is larger).
    method: ``exact`` (by convolution) or ``monte-carlo`` (``iterations``, as in the paper).
    level: confidence level. seed: seed of the simulation and the bootstrap. uneven: allow problems with different numbers of samples.

    Returns one entry per measure and benchmark, pass@k first, then the averages over benchmarks. The list is printed, and shown in
    notebooks, as a table.

    >>> import numpy as np
    >>> a, b = (np.full(50, 64), np.arange(50)), (np.full(50, 64), np.arange(50) + 8)
    >>> found, = compare(a, b, k=1)
    >>> round(found.difference, 3), found.p_value < 0.01
    (0.125, True)
    """
    a, b = samples_of("a", a), samples_of("b", b)
    for name, side in (("a", a), ("b", b)):
        if len(side) == 0:
            raise ValueError(f"{name}: found no problems")
        planned = side.n + side.unscorable
        if not uneven and (planned != planned[0]).any():
            i = int(np.flatnonzero(planned != planned[0])[0])
            raise ValueError(
                f"{name}: problem {side.problem[0]} has {planned[0]} samples, problem {side.problem[i]} has {planned[i]}; "
                "pass uneven=True to use them as they are"
            )
    if not 0 < level < 1:
        raise ValueError(f"level: expected a number between 0 and 1, found {level}")
    whole(100, 100_000_000, iterations=iterations, resamples=resamples)
    whole(0, m=m, seed=seed)
    ks = np.atleast_1d(integers("k", k)).tolist()
    if not ks:
        raise ValueError("k: expected at least one value")
    whole(1, k=min(ks))
    covers = np.atleast_1d(integers("cover", cover)).tolist()
    for percent in covers:
        whole(1, 100, cover=percent)
    found = _native.compare(_columns(a), _columns(b), ks, covers, m, method, level, iterations, resamples, seed)
    return Comparisons(_comparison(row) for row in json.loads(found))


def _comparison(row: dict[str, Any]) -> Comparison:
    row.update({f"bootstrap_{key}": value for key, value in row["bootstrap"].items()})
    for key in ("interval", "bootstrap_interval", "p_bounds"):
        row[key] = tuple(row[key]) if row.get(key) else None
    lists = {"average_of": [], "gained": [], "lost": [], "k": None, "cover": None, **row}
    return Comparison(*(lists[name] for name in Comparison._fields))


class Plan(NamedTuple):
    """Expected effect of ``S`` group sizes on given problems, ``(S,)`` each, and a suggestion.

    active: fraction of groups with both correct and wrong completions. tail_miss: probability that a group is active and contains
    no completion of the rare tail. missing_share: fraction of the active groups without a completion of the tail. group_size,
    gamma: the suggestion, a rule of thumb, or None if no group is ever active.
    """

    group_sizes: npt.NDArray[np.int64]
    active: npt.NDArray[np.float64]
    tail_miss: npt.NDArray[np.float64]
    missing_share: npt.NDArray[np.float64]
    group_size: int | None
    gamma: float | None


def plan(
    samples: SamplesLike,
    *,
    group_sizes: Sequence[int] = (2, 4, 8, 16, 32, 64, 128),
    tail: float = 0.1,
) -> Plan:
    """Suggests a group size and focal gamma for problems and a model.

    samples: as in :func:`compare`. tail: fraction of a problem's correct mass that counts as its rare tail.

    >>> found = plan(([64] * 3, [4, 16, 32]), group_sizes=(2, 8, 32))
    >>> found.active.round(3), found.group_size, found.gamma
    (array([0.336, 0.777, 0.981]), 32, 0.5)
    """
    samples = samples_of("samples", samples)
    sizes = np.unique(integers("group_sizes", group_sizes))
    if not sizes.size or sizes[0] < 2:
        raise ValueError(f"group_sizes: expected at least 2, found {sizes[0] if sizes.size else 'none'}")
    rows, suggestion = _native.plan(_columns(samples), sizes.tolist(), tail)
    active, miss, share = np.array(rows, np.float64).reshape(-1, 3).T
    group_size, gamma = suggestion or (None, None)
    return Plan(sizes, active, miss, share, group_size, gamma)


class _Columns(NamedTuple):
    """Samples as the extension reads them."""

    benchmark: list[str]
    problem: list[str]
    question: list[str]
    n: list[int]
    c: list[int]
    unscorable: list[int]


def _columns(samples: Samples) -> _Columns:
    return _Columns(
        samples.benchmark, samples.problem, samples.question, samples.n.tolist(), samples.c.tolist(), samples.unscorable.tolist()
    )
