"""Our verifier with math-verify's names: change ``from math_verify import ...`` to ``from fgrpo.math_verify import ...``.

The verdicts are math-verify 0.9's (docs/parity.md has the differences). Calls work in every thread and process, need no
signals and no time limits, and results of :func:`parse` can be pickled. For code that can't be edited, call
:func:`install` before it imports math_verify.

>>> gold, answer = parse("$\\\\frac{1}{2}$"), parse("The answer is 0.5")
>>> gold, verify(gold, answer)
([Value(1/2), '\\\\frac{1}{2}'], True)
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
import warnings

from .._native import Value
from . import errors, grader, metric, parser
from .errors import TimeoutException
from .grader import verify
from .metric import math_metric
from .parser import (
    ExprExtractionConfig,
    ExtractionTarget,
    LatexExtractionConfig,
    NormalizationConfig,
    StringExtractionConfig,
    parse,
)

#: Second name in math-verify.
LatexNormalizationConfig = NormalizationConfig

__all__ = [
    "ExprExtractionConfig",
    "ExtractionTarget",
    "LatexExtractionConfig",
    "LatexNormalizationConfig",
    "NormalizationConfig",
    "StringExtractionConfig",
    "TimeoutException",
    "Value",
    "install",
    "math_metric",
    "parse",
    "verify",
]


def install() -> None:
    """Makes ``import math_verify`` find this module, in this process.

    Modules that have already imported names from math-verify keep them, so call this function first. If latex2sympy2_extended
    isn't installed, its ``NormalizationConfig`` is provided too.
    """
    this = sys.modules[__name__]
    if sys.modules.get("math_verify", this) is not this:
        message = "math_verify is already imported; modules that have taken names from it keep them"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    for name, module in (("", this), (".parser", parser), (".grader", grader), (".metric", metric), (".errors", errors)):
        sys.modules["math_verify" + name] = module
    if "latex2sympy2_extended" in sys.modules or importlib.util.find_spec("latex2sympy2_extended"):
        return
    for name in ("", ".latex2sympy2", ".math_normalization"):
        stand_in = types.ModuleType("latex2sympy2_extended" + name)
        stand_in.NormalizationConfig = NormalizationConfig  # type: ignore[attr-defined]
        stand_in.__spec__ = importlib.machinery.ModuleSpec(stand_in.__name__, None, is_package=not name)
        stand_in.__path__ = []  # type: ignore[attr-defined]
        sys.modules[stand_in.__name__] = stand_in
