"""Verifiers of answers: mathematics, multiple choice, IFEval, SynLogic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from . import _native

#: The verdicts in the order of their codes.
VERDICTS = ("correct", "wrong", "unparsed", "unscorable")


class Verdicts(NamedTuple):
    """What a verifier says of ``B`` responses.

    code: uint8 ``(B,)``, places in ``VERDICTS``: 0 correct, 1 wrong, 2 unparsed (no answer could be read; counts as
        wrong), 3 unscorable (the gold can't be read or is too expensive by itself, or the verifier failed: never a score).
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
        """float64 ``(B,)``. NaN, the default of unscorable responses, is what :func:`fgrpo.credit` leaves out."""
        return np.array([correct, wrong, wrong, unscorable], np.float64)[self.code]


class Verdict(NamedTuple):
    """What a verifier says of one response: its code, a place in ``VERDICTS``, and the reason."""

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


class MathProblem(_native.MathProblem):
    """A reference answer of mathematics, read once, for any number of responses and from any thread.

    gold: the reference answer, LaTeX or plain, without a box.
    mode: ``parity``: what math-verify 0.9.0 says, quirks included; ``strict``: what is mathematically right.

    >>> MathProblem("1/2").check(r"I get \\boxed{0.5}")
    Verdict(code=0, reason='exact')
    """

    def check(self, response: str) -> Verdict:
        """The verdict on one response."""
        return Verdict(*super().check(response))


def verify_math(
    golds: str | Sequence[str],
    responses: Sequence[str],
    *,
    mode: Literal["parity", "strict"] = "parity",
    threads: int | None = None,
) -> Verdicts:
    """Judge answers to problems of mathematics.

    golds: a reference answer for each response, or one for all.
    responses: ``B`` completions; the answer is looked for in boxes, after "the answer is", in LaTeX and plain numbers.
    mode: ``parity``: what math-verify 0.9.0 says, quirks included; ``strict``: what is mathematically right.
    threads: at most so many (default: one for each processor); they end with the call.

    Works in any thread, has bounded work for any text and needs no time limit.

    >>> verify_math(["1/2", "x+1", "3"], [r"\\boxed{0.5}", r"\\boxed{x}", "no idea"])
    Verdicts(code=array([0, 1, 2], dtype=uint8), reason=['exact', 'exact', 'none'])
    """
    return Verdicts(*_native.verify_math(_each(golds, responses), _list("responses", responses), mode, threads))


def verify_choice(
    golds: str | Sequence[str],
    responses: Sequence[str],
    *,
    options: Sequence[Sequence[str]] | None = None,
    match: Literal["letter", "letter-or-content"] = "letter",
    threads: int | None = None,
) -> Verdicts:
    """Judge answers to questions of multiple choice.

    golds: the letter of the correct option for each response, or one for all.
    options: for each response the options as shown; without them only letters can be recognised.
    match: ``letter``: the last box holds the letter and nothing else; ``letter-or-content``: also ``B.``, ``option B`` or the
        option's own words.

    >>> verify_choice("B", [r"\\boxed{B}", r"\\boxed{A}"]).correct
    array([ True, False])
    """
    options = None if options is None else [list(o) for o in options]
    return Verdicts(*_native.verify_choice(_each(golds, responses), _list("responses", responses), options, match, threads))


def verify_ifeval(
    instructions: Sequence[Sequence[str]],
    arguments: Sequence[Sequence[Mapping | None]],
    responses: Sequence[str],
    *,
    threads: int | None = None,
) -> Verdicts:
    """Judge whether responses follow all of their prompt's instructions, strictly, as IFEval's own checkers do.

    instructions: for each response the names (``instruction_id_list``).
    arguments: for each response the arguments of each instruction (``kwargs``).

    >>> verify_ifeval([["punctuation:no_comma"]] * 2, [[{}]] * 2, ["No comma here.", "One, here."]).correct
    array([ True, False])
    """
    arguments = [json.dumps([dict(a or {}) for a in given]) for given in arguments]
    instructions = [list(names) for names in instructions]
    if len(instructions) != len(arguments):
        raise ValueError(f"instructions and arguments: found {len(instructions)} and {len(arguments)}, wanted as many")
    return Verdicts(*_native.verify_ifeval(instructions, arguments, _list("responses", responses), threads))


def verify_synlogic(
    tasks: str | Sequence[str],
    game_data: Sequence[str],
    responses: Sequence[str],
    *,
    mode: Literal["parity", "strict"] = "parity",
    format_gate: bool = False,
    threads: int | None = None,
) -> Verdicts:
    """Judge answers to SynLogic's puzzles.

    tasks: for each response the task's name, or one for all.
    game_data: for each response the problem's ``game_data_str``.
    format_gate: demand ``<think>...</think>...<answer>...</answer>``; without it the response is the answer.

    A problem that can't be read makes its responses unscorable, with the reason.

    >>> verify_synlogic("sudoku", ["{}"], ["x"]).reason[0][:18]
    'bad_input: sudoku:'
    """
    tasks, game_data = _each(tasks, responses), _list("game_data", game_data)
    return Verdicts(*_native.verify_synlogic(tasks, game_data, _list("responses", responses), mode, format_gate, threads))


def _list(name: str, items: Sequence[str]) -> Sequence[str]:
    if isinstance(items, str):
        raise TypeError(f"{name}: found a string, wanted a sequence of them")
    return items if hasattr(items, "__len__") else list(items)


def _each(golds: str | Sequence[str], responses: Sequence[str]) -> Sequence[str]:
    return [golds] * len(responses) if isinstance(golds, str) else _list("golds", golds)
