"""Comparing parsed answers, with the names of math-verify 0.9."""

from __future__ import annotations

import itertools
from typing import Any

from .._native import Value
from .errors import TimeoutException
from .parser import parse


def verify(
    gold: list[Value | str] | Value | str,
    target: list[Value | str] | Value | str,
    float_rounding: int = 6,
    numeric_precision: int = 15,
    strict: bool = True,
    allow_set_relation_comp: bool = False,
    timeout_seconds: int | None = 5,
    raise_on_error: bool = False,
) -> bool:
    """Whether any value of ``target`` equals any value of ``gold``. Both are results of :func:`parse` or items of results.

    float_rounding: number of decimals to which decimal numbers are compared. strict: whether variables must have the same names
    and a set differs from a tuple. allow_set_relation_comp: whether an inequality in ``target`` may equal a set.
    numeric_precision, timeout_seconds: ignored, because values are compared exactly or to enough digits, and the work is bounded.
    raise_on_error: raise ``TimeoutException`` if a comparison is too expensive, instead of returning False.

    SymPy expressions are accepted too. Other types raise ``TypeError``.

    >>> verify(parse("1/2"), parse(r"$\\frac{2}{4}$"))
    True
    """
    golds, targets = (list(map(_item, items if isinstance(items, list) else [items])) for items in (gold, target))
    for one, other in itertools.product(golds, targets):
        if isinstance(one, str) or isinstance(other, str):
            if isinstance(one, str) and isinstance(other, str) and one.strip() and one.strip() == other.strip():
                return True
            continue
        equal = one.equals(other, max(int(float_rounding), 0), bool(strict), bool(allow_set_relation_comp))
        if equal is None and raise_on_error:
            raise TimeoutException("the comparison is too expensive")
        if equal:
            return True
    return False


def _item(item: Any) -> Value | str:
    if isinstance(item, (Value, str)):
        return item
    if type(item).__module__.partition(".")[0] in ("sympy", "latex2sympy2_extended"):
        import sympy

        found = parse(f"${sympy.latex(item)}$", fallback_mode="no_fallback")
        if found:
            return found[0]
    raise TypeError(f"verify: expected what parse returns, found {type(item)}")
