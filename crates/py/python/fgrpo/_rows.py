"""Conversion of tables to lists of dicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def dicts(place: str, rows: Any) -> list[dict[str, Any]]:
    """Converts a list of dicts, a pandas or polars DataFrame, or a dataset to a list of dicts. Missing values become None."""
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
    """Returns whether a value means "missing": NaN, or NA and NaT of pandas."""
    return isinstance(value, float) and math.isnan(value) or type(value).__name__ in ("NAType", "NaTType")


def plain(value: Any) -> Any:
    """Converts NumPy's numbers and arrays to values for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected strings, numbers, lists and dicts, found {type(value).__name__}")
