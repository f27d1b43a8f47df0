"""F-GRPO for Python: group-relative advantages with the focal weight, answer verifiers, pass@k and statistical tests.

The functions run the same Rust code as the command ``fgrpo``, which this package also installs. They take and return NumPy
arrays and release the GIL. Except for the engine and ``train``, they start threads only within a call, so a process may fork
afterwards. Errors are ``ValueError`` or ``TypeError`` and name the argument, the expected value and the one found.

Shapes: ``G`` groups (one per prompt), ``N`` completions per group, ``B`` completions in total, ``T`` tokens, ``P``
problems of an evaluation.

========================  ==================================================================================
advantages                credit, advantages, focal_weight, Credit
losses                    policy_loss
the engine                Engine, Datum, Sample, play, Episode, train, Run
verifiers                 verify_math, verify_choice, verify_ifeval, verify_synlogic, Verdicts, MathProblem,
                          Grader, Grade
statistics                pass_at_k, compare, Comparison, Comparisons, plan, Plan
samples                   read_samples, Samples
theory                    tail_miss, active, peak, Peak, low_lr, simulate, Trajectory
plug-ins (import by name) fgrpo.verl, fgrpo.trl, fgrpo.slime, fgrpo.openrlhf, fgrpo.verifiers, fgrpo.lm_eval
replaces math-verify      fgrpo.math_verify (import by name)
========================  ==================================================================================

>>> import fgrpo
>>> found = fgrpo.credit([[1, 1, 1, 0], [1, 0, 0, 0]], estimator="dr_grpo", gamma=1.0)
>>> found.success_rate
array([0.75, 0.25])
>>> found.advantages
array([[ 0.0625,  0.0625,  0.0625, -0.1875],
       [ 0.5625, -0.1875, -0.1875, -0.1875]])
>>> fgrpo.verify_math(["1/2"], [r"so the answer is \\boxed{0.5}"]).correct
array([ True])
"""

import importlib

from ._native import __version__

_PLACES = {
    "_credit": ("credit", "advantages", "focal_weight", "Credit"),
    "_engine": ("Engine", "Datum", "Sample"),
    "_loss": ("policy_loss",),
    "_play": ("play", "Episode"),
    "_verifiers": (
        "verify_math",
        "verify_choice",
        "verify_ifeval",
        "verify_synlogic",
        "Verdicts",
        "VERDICTS",
        "MathProblem",
        "Grader",
        "Grade",
    ),
    "_statistics": ("pass_at_k", "compare", "Comparison", "Comparisons", "plan", "Plan"),
    "_samples": ("read_samples", "Samples"),
    "_train": ("train", "Run"),
    "_theory": ("tail_miss", "active", "peak", "Peak", "low_lr", "simulate", "Trajectory"),
}
_PLACE = {name: module for module, names in _PLACES.items() for name in names}

__all__ = ["__version__", *_PLACE]


# Importing NumPy takes longer than starting the command, so it is imported with the first name that needs it.
def __getattr__(name):
    if name not in _PLACE:
        raise AttributeError(f"module 'fgrpo' has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_PLACE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
