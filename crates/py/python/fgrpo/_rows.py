"""Rows of every kind of table, as dicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def dicts(place: str, rows: Any) -> list[dict[str, Any]]:
    """The rows of a list of dicts, a DataFrame of pandas or polars, or a dataset. A missing number (NaN) is None."""
    if hasattr(rows, "to_dicts"):
        rows = rows.to_dicts()
    elif hasattr(rows, "to_dict") and hasattr(rows, "columns"):
        rows = rows.to_dict("records")
    found = []
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"{place}: row {index}: expected a dict, found {type(row).__name__}")
        found.append({name: None if missing(value) else value for name, value in row.items()})
    return found


def missing(value: Any) -> bool:
    """Whether a value stands for a missing one: NaN, or NA and NaT of pandas."""
    return isinstance(value, float) and math.isnan(value) or type(value).__name__ in ("NAType", "NaTType")


def plain(value: Any) -> Any:
    """NumPy's numbers and arrays, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected strings, numbers, lists and dicts, found {type(value).__name__}")
