"""Answer verifiers: mathematics, multiple choice, IFEval, SynLogic."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import whole
from ._native import REFERENCE_MODE, TRAINING_MODE

#: A reference answer: a string, a number, or a list of these.
Gold = str | float | Sequence[str | float]

Mode = Literal["parity", "strict"]
_T = TypeVar("_T")

#: The verdicts in the order of their codes.
VERDICTS = ("correct", "wrong", "unparsed", "unscorable")


class Verdicts(NamedTuple):
    """The verdicts on ``B`` responses.

    code: uint8 ``(B,)``, indices into ``VERDICTS``: 0 correct, 1 wrong, 2 unparsed (no answer could be read; counts as
        wrong), 3 unscorable (the reference answer can't be parsed or is too expensive, or the verifier failed).
    reason: ``B`` short codes such as ``exact`` or ``budget``.
    """

    code: npt.NDArray[np.uint8]
    reason: list[str]

    @property
    def correct(self) -> npt.NDArray[np.bool_]:
        """bool ``(B,)``: whether each response is correct."""
        return self.code == 0

    def rewards(
        self, correct: float = 1.0, wrong: float = 0.0, unscorable: float = float("nan")
    ) -> npt.NDArray[np.float64]:
        """Converts the verdicts to rewards, float64 ``(B,)``. The default for unscorable responses is NaN, which
        :func:`fgrpo.credit` leaves out."""
        return np.array([correct, wrong, wrong, unscorable], np.float64)[self.code]


class Verdict(NamedTuple):
    """The verdict on one response: its code, an index into ``VERDICTS``, and the reason."""

    code: int
    reason: str

    @property
    def verdict(self) -> str:
        """``correct``, ``wrong``, ``unparsed`` or ``unscorable``."""
        return VERDICTS[self.code]

    @property
    def correct(self) -> bool:
        """Whether the response is correct."""
        return self.code == 0


class Grade(NamedTuple):
    """The grade of one response.

    verdict: one of ``VERDICTS``. reason: a short code such as ``exact``. reward: the score if the grader gives one, else the
        configuration's ``reward_correct`` or ``reward_wrong``; NaN for an unscorable response.
    """

    verdict: str
    reason: str
    reward: float

    @property
    def correct(self) -> bool:
        """Whether the response is correct."""
        return self.verdict == "correct"


class Grader(_native.Grader):
    """Graders of a training configuration, for every kind of task with a data set, and for each part of a mix.

    config: a configuration file, or the name of a built-in one. folder: the folder to which paths in the configuration are
        relative. The default is the file's folder if the configuration is that of a job from ``fgrpo export``, and the current
        folder otherwise. overrides: assignments such as ``"task.verifier.mode=parity"``.

    Raises ``ValueError`` if the configuration is invalid, the task has no data set, or a grading program can't be started.

    >>> grader = Grader("math.toml")  # doctest: +SKIP
    >>> grader.grade({"problem": "What is 1/2?", "answer": "1/2"}, r"\\boxed{0.5}").reward  # doctest: +SKIP
    1.0
    """

    def __new__(cls, config: str | os.PathLike[str], *, folder: str | os.PathLike[str] | None = None, overrides: Sequence[str] = ()) -> Grader:
        if folder is None:
            beside = os.path.dirname(os.fspath(config))
            folder = beside if os.path.isfile(os.path.join(beside, "job.json")) else "."
        return super().__new__(cls, os.fspath(config), os.fspath(folder), list(overrides))

    def grade(self, truth: str | Mapping[str, Any], response: str, *, part: str | None = None) -> Grade:
        """Grades a response.

        truth: a row of the data set, or the ``ground_truth`` of an exported job. part: name of the part of a mix.

        Raises ``ValueError`` if the part is unknown or the row has no answer, but never because of the response.
        """
        is_row = not isinstance(truth, str)
        return Grade(*super().grade(json.dumps(truth) if is_row else truth, is_row, response, part))


class MathProblem(_native.MathProblem):
    """A math reference answer that is parsed once, for any number of responses. It can be used from any thread.

    gold: the reference answer as in data sets: LaTeX or plain, a worked answer that ends in a box or in ``#### 72``, a number, or
        a list.
    mode: ``parity``: the verdict of math-verify 0.9.0, including its quirks; ``strict``: the mathematically correct one.
    accept_unfinished: in mode ``strict``, accept an unevaluated expression, such as ``12+17`` for 29.
    reasoning: ``strip``: grade the text after the thoughts; a response whose thoughts don't end has no answer. ``keep``: grade the
        whole response. ``OPEN,CLOSE``: as ``strip``, with these tags instead of ``<think>`` and ``</think>``. The default is
        ``keep`` in mode ``parity`` and ``strip`` in mode ``strict``.

    >>> MathProblem("1/2").check(r"I get \\boxed{0.5}")
    Verdict(code=0, reason='exact')
    """

    def check(self, response: str) -> Verdict:
        """Grades one response."""
        return Verdict(*super().check(response))


@functools.lru_cache(maxsize=65536)
def _known_problem(gold: Gold, mode: Mode, accept_unfinished: bool) -> MathProblem:
    return MathProblem(gold, mode=mode, accept_unfinished=accept_unfinished)


def problem_of(gold: Gold, mode: Mode = TRAINING_MODE, accept_unfinished: bool = False) -> MathProblem:
    """Returns the problem of a reference answer, cached, for plug-ins that grade one response at a time."""
    make = _known_problem if isinstance(gold, str) else _known_problem.__wrapped__
    return make(gold, mode, accept_unfinished)


def verify_math(
    golds: str | Sequence[Gold],
    responses: Sequence[str],
    *,
    mode: Mode = REFERENCE_MODE,
    accept_unfinished: bool = False,
    reasoning: str | None = None,
    threads: int | None = None,
) -> Verdicts:
    """Grades answers to math problems.

    golds: a reference answer per response (as for :class:`MathProblem`), or one string for all.
    responses: ``B`` completions. An answer is found in boxes, after "the answer is", in LaTeX and in plain numbers.
    mode: ``parity``: the verdict of math-verify 0.9.0, including its quirks; ``strict``: the mathematically correct one.
    accept_unfinished: in mode ``strict``, accept an unevaluated expression, such as ``12+17`` for 29.
    reasoning: handling of thoughts, as for :class:`MathProblem`.
    threads: maximum number of threads (default: one per core); they end with the call.

    Works in any thread and needs no time limit, because its work on any string is bounded.

    >>> verify_math(["1/2", "x+1", "3"], [r"\\boxed{0.5}", r"\\boxed{x}", "no idea"])
    Verdicts(code=array([0, 1, 2], dtype=uint8), reason=['exact', 'exact', 'none'])
    """
    whole(1, threads=threads)
    golds, responses = _each(golds, responses), _list("responses", responses)
    return Verdicts(*_native.verify_math(golds, responses, mode, accept_unfinished, reasoning, threads))


def verify_choice(
    golds: str | Sequence[str],
    responses: Sequence[str],
    *,
    options: Sequence[Sequence[str]] | None = None,
    match: Literal["letter", "letter-or-content"] = "letter",
    reasoning: str | None = None,
    threads: int | None = None,
) -> Verdicts:
    """Grades answers to multiple-choice questions.

    golds: the letter of the correct option per response, or one letter for all.
    options: the options as shown, per response. Without them only letters are recognised.
    match: ``letter``: the last box contains only the letter; ``letter-or-content``: also ``B.``, ``option B`` or the words of the
        option.
    reasoning: handling of thoughts, as for :class:`MathProblem`; the default is ``strip``.

    >>> verify_choice("B", [r"\\boxed{B}", r"\\boxed{A}"]).correct
    array([ True, False])
    """
    whole(1, threads=threads)
    options = None if options is None else [list(o) for o in options]
    responses = _list("responses", responses)
    return Verdicts(*_native.verify_choice(_each(golds, responses), responses, options, match, reasoning, threads))


def verify_ifeval(
    instructions: Sequence[Sequence[str]],
    arguments: Sequence[Sequence[Mapping | None]],
    responses: Sequence[str],
    *,
    reasoning: str | None = None,
    threads: int | None = None,
) -> Verdicts:
    """Grades whether responses follow all instructions of their prompt, by the strict rules of IFEval.

    instructions: the names of the instructions per response (``instruction_id_list``).
    arguments: the arguments of each instruction per response (``kwargs``).
    reasoning: handling of thoughts, as for :class:`MathProblem`; the default is ``strip``.

    >>> verify_ifeval([["punctuation:no_comma"]] * 2, [[{}]] * 2, ["No comma here.", "One, here."]).correct
    array([ True, False])
    """
    whole(1, threads=threads)
    arguments = [json.dumps([dict(a or {}) for a in given]) for given in arguments]
    instructions = [list(names) for names in instructions]
    if len(instructions) != len(arguments):
        raise ValueError(f"instructions and arguments differ in length: {len(instructions)} and {len(arguments)}")
    responses = _list("responses", responses)
    return Verdicts(*_native.verify_ifeval(instructions, arguments, responses, reasoning, threads))


def verify_synlogic(
    tasks: str | Sequence[str],
    game_data: Sequence[str],
    responses: Sequence[str],
    *,
    mode: Mode = REFERENCE_MODE,
    format_gate: bool = False,
    reasoning: str | None = None,
    threads: int | None = None,
) -> Verdicts:
    """Grades answers to SynLogic's puzzles.

    tasks: the name of the task per response, or one name for all.
    game_data: the problem's ``game_data_str`` per response.
    format_gate: require ``<think>...</think>...<answer>...</answer>``. Without it the whole response is the answer.
    reasoning: handling of thoughts, as for :class:`MathProblem`.

    If a problem can't be parsed, its responses are unscorable, with the reason.

    >>> verify_synlogic("sudoku", ["{}"], ["x"]).reason[0][:18]
    'bad_input: sudoku:'
    """
    whole(1, threads=threads)
    tasks, game_data, responses = _each(tasks, responses), _list("game_data", game_data), _list("responses", responses)
    return Verdicts(*_native.verify_synlogic(tasks, game_data, responses, mode, format_gate, reasoning, threads))


def _list(name: str, items: Sequence[str]) -> Sequence[str]:
    if isinstance(items, str):
        raise TypeError(f"{name}: expected a sequence of strings, found a string")
    return items if hasattr(items, "__len__") else list(items)


def _each(golds: str | Sequence[_T], responses: Sequence[str]) -> Sequence[str | _T]:
    return [golds] * len(responses) if isinstance(golds, str) else _list("golds", golds)
