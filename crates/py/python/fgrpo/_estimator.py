"""Calls a function that estimates advantages. `fgrpo` also runs this file without the package, followed by `_grader.py`."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any


def answering(function: Callable[..., Any]) -> Callable[[dict[str, Any]], dict[str, list[float]]]:
    """Returns a function that calls ``function`` with the values of a group that it names as arguments."""
    parameters = inspect.signature(function).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def call(group: dict[str, Any]) -> dict[str, list[float]]:
        known = {name: value for name, value in group.items() if name not in ("ask", "id")}
        result = function(**{name: value for name, value in known.items() if every or name in parameters})
        if not hasattr(result, "__len__") or len(result) != len(known["rewards"]):
            raise ValueError(f"expected one advantage for each of {len(known['rewards'])} rewards, returned {result!r}")
        advantages = [float(advantage) for advantage in result]
        if not all(map(math.isfinite, advantages)):
            raise ValueError(f"expected finite numbers, returned {advantages}")
        return {"advantages": advantages}

    return call
