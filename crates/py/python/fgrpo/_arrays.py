"""Conversion of arguments to arrays of the right type and shape."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import numpy.typing as npt

#: Types of scalars. Functions that get only scalars return a scalar.
Integer = int | np.integer
Real = float | np.floating | Integer


def whole(least: int, most: int = 2**64 - 1, **arguments: Any) -> None:
    """Raises an error that names the argument unless each is an integer from ``least`` to ``most``, or None."""
    for name, value in arguments.items():
        if value is None:
            continue
        try:
            number = operator.index(value)
        except TypeError:
            raise TypeError(f"{name}: expected an integer, found {value!r}") from None
        if number < least:
            raise ValueError(f"{name}: expected at least {least}, found {number}")
        if number > most:
            raise ValueError(f"{name}: expected at most {most}, found {number}")


def real(**arguments: Any) -> None:
    """Raises an error that names the argument unless each is a finite number, or None."""
    for name, value in arguments.items():
        if value is not None and not np.isfinite(numbers(name, value)).all():
            raise ValueError(f"{name}: expected a finite number, found {value}")


def numbers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Converts ``values`` to float64. Raises ``TypeError`` unless they are numbers or bools."""
    return _checked(name, values, "biuf", "numbers").astype(np.float64, copy=False)


def integers(name: str, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Converts ``values`` to int64. Raises ``TypeError`` unless they are integers."""
    array = _checked(name, values, "iu", "integers")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise ValueError(f"{name}: expected integers below 2^63, found {array.max()}")
    return array.astype(np.int64, copy=False)


def booleans(name: str, values: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Converts ``values`` to bools: 0 is False, 1 is True. Raises ``ValueError`` for other numbers."""
    array = _checked(name, values, "biuf", "bools, or 0 and 1")
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        raise ValueError(f"{name}: expected bools, or 0 and 1, found {array[~np.isin(array, (0, 1))][0]}")
    return array.astype(np.bool_, copy=False)


def _checked(name: str, values: npt.ArrayLike, kinds: str, expected: str) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask; use .filled(np.nan)")
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: the rows differ in length") from None
    except (TypeError, RuntimeError) as error:  # of tensors
        raise TypeError(f"{name}: {error}") from None
    if array.size == 0 and not hasattr(values, "dtype"):
        return array.astype(np.int64)  # an empty list has no type
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name}: expected {expected}, found dtype {array.dtype}")
    return array


def flat(array: np.ndarray) -> np.ndarray:
    """Makes the array contiguous and one-dimensional, as the extension requires."""
    return np.ascontiguousarray(array).reshape(-1)
