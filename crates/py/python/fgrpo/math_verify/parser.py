"""Finds and parses the answer in a string, with the names of math-verify 0.9."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from .._native import MathExtraction, Value
from .errors import TimeoutException

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NormalizationConfig:
    """Normalization of LaTeX. ``equations``: take the last part of a chain ``a = b = c``. The other normalizations are always applied."""

    basic_latex: bool = True
    units: bool = False
    malformed_operators: bool = False
    nits: bool = False
    boxed: Literal["all", "last", "none"] = "all"
    equations: bool = False


@dataclass(frozen=True)
class LatexExtractionConfig:
    """Boxes and LaTeX between delimiters.

    try_extract_without_anchor: whether LaTeX counts if neither "answer" nor a box precedes it. boxed_match_priority: 0 reads boxes
    first, 50 like "final answer is"; with a negative value boxes don't count.
    """

    try_extract_without_anchor: bool = True
    boxed_match_priority: int = 50
    normalization_config: object = field(
        default_factory=lambda: NormalizationConfig(units=True, malformed_operators=True, nits=True)
    )


@dataclass(frozen=True)
class ExprExtractionConfig:
    """Numbers and arithmetic without LaTeX; ``try_extract_without_anchor`` as for LaTeX."""

    try_extract_without_anchor: bool = True


@dataclass(frozen=True)
class StringExtractionConfig:
    """One of these strings, such as the letters of options. With ``lowercase`` the answer is converted to lower case."""

    strings: tuple[str, ...] = ("A", "B", "C", "D")
    try_extract_without_anchor: bool = True
    lowercase: bool = True


ExtractionTarget = LatexExtractionConfig | ExprExtractionConfig | StringExtractionConfig


@functools.lru_cache(maxsize=256)
def _extraction(targets: tuple[tuple, ...]) -> MathExtraction:
    return MathExtraction(list(targets))


def _target(config: ExtractionTarget) -> tuple:
    # Checks attributes instead of types, because the configuration may have math-verify's classes.
    bare = bool(config.try_extract_without_anchor)
    if hasattr(config, "strings"):
        return bare, tuple(config.strings), bool(config.lowercase)
    if hasattr(config, "boxed_match_priority"):
        last = bool(getattr(config.normalization_config, "equations", False))
        return bare, int(config.boxed_match_priority), last
    return (bare,)


def parse(
    pred: str,
    extraction_config: Sequence[ExtractionTarget] = (LatexExtractionConfig(), ExprExtractionConfig()),
    fallback_mode: Literal["no_fallback", "first_match"] = "first_match",
    extraction_mode: Literal["first_match", "any_match"] = "any_match",
    parsing_timeout: int | None = 5,
    raise_on_error: bool = False,
) -> list[Value | str]:
    """Finds the answer in a string. Returns its value, if any candidate can be parsed, and the string of the first candidate.

    extraction_config: the kinds of answers to find. fallback_mode: ``no_fallback`` leaves the string out. extraction_mode:
    ``first_match`` gives up if the first candidate can't be parsed. parsing_timeout: ignored, because the work is bounded.
    raise_on_error: raise ``TimeoutException`` if the answer is too expensive, and ``TypeError`` if ``pred`` isn't a string, instead of
    returning ``[]``.

    >>> parse(r"so it is $\\frac{1}{2}$")
    [Value(1/2), '\\\\frac{1}{2}']
    >>> parse("The answer is B", [StringExtractionConfig()])
    ['b', 'B']
    """
    if isinstance(pred, (int, float)):
        pred = str(pred)
    if not isinstance(pred, str):
        if raise_on_error:
            raise TypeError(f"pred: expected str, found {type(pred)}")
        logger.warning("parse: expected str, found %s; it has no answer", type(pred))
        return []
    extraction = _extraction(tuple(map(_target, extraction_config)))
    value, text, over_budget = extraction.parse(pred, extraction_mode == "first_match")
    if over_budget and raise_on_error:
        raise TimeoutException("the answer is too long or too deeply nested")
    found: list[Value | str] = [] if value is None else [value]
    if text is not None and fallback_mode == "first_match":
        found.append(text)
    return found
