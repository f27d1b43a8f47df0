"""Counts of the samples of each problem, read from files of several programs, arrays and data frames."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import integers, numbers
from ._rows import missing
from ._verifiers import Mode, Verdicts

Format = Literal["auto", "fgrpo", "lm-eval", "lighteval", "verl"]


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """Counts of one model's samples of ``P`` problems.

    n: int64 ``(P,)``, graded samples. c: int64 ``(P,)``, correct samples. problem: ``P`` names. benchmark: ``P`` names of data
    sets. unscorable: int64 ``(P,)``, samples whose verifier failed, which ``n`` doesn't include. graded: how the responses of a
    dump were graded. question: ``P`` questions, or prompts that contain them, by which :func:`compare` matches problems in files
    of two programs; empty strings if unknown.

    >>> Samples(n=[4, 4], c=[1, 0])
    Samples(2 problems, n 4, mean c/n 0.125)
    """

    n: npt.NDArray[np.int64]
    c: npt.NDArray[np.int64]
    problem: list[str] = dataclasses.field(default_factory=list)
    benchmark: list[str] = dataclasses.field(default_factory=list)
    unscorable: npt.NDArray[np.int64] = dataclasses.field(default=None)  # type: ignore[assignment]
    graded: str = ""
    question: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        n, c = integers("n", self.n), integers("c", self.c)
        count = len(n) if n.ndim == 1 else -1
        unscorable = np.zeros_like(n) if self.unscorable is None else integers("unscorable", self.unscorable)
        problem = [str(p) for p in self.problem] or [str(i) for i in range(count)]
        benchmark = [str(b) for b in self.benchmark] or [""] * count
        question = [str(q) for q in self.question] or [""] * count
        if not count == c.size == len(problem) == len(benchmark) == unscorable.size == len(question) or c.ndim != 1:
            raise ValueError(
                f"samples: found n of shape {n.shape}, c of shape {c.shape}, {len(problem)} problems, {len(benchmark)} "
                f"benchmarks and unscorable of shape {unscorable.shape}; expected one of each for every problem"
            )
        bad = np.flatnonzero((c < 0) | (c > n) | (unscorable < 0))
        if bad.size:
            i = int(bad[0])
            raise ValueError(f"problem {problem[i]}: expected 0 <= c <= n, found c = {c[i]} and n = {n[i]}")
        names = set(zip(benchmark, problem, strict=True))
        if len(names) < count:
            raise ValueError("samples: a problem appears twice in its benchmark")
        checked = {"n": n, "c": c, "problem": problem, "benchmark": benchmark, "unscorable": unscorable, "question": question}
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return len(self.n)

    def __repr__(self) -> str:
        sizes = np.unique(self.n)
        size = "-" if not sizes.size else f"{sizes[0]}" if sizes.size == 1 else f"{sizes[0]} to {sizes[-1]}"
        scored = self.n > 0
        rate = float((self.c[scored] / self.n[scored]).mean()) if scored.any() else float("nan")
        graded = f"; {self.graded}" if self.graded else ""
        return f"Samples({len(self)} problems, n {size}, mean c/n {rate:.4g}{graded})"


def samples_of(name: str, given: Any) -> Samples:
    """Converts ``given`` to :class:`Samples`: itself, a path, an ``(n, c)`` tuple, a ``(P, N)`` array or a data frame."""
    if isinstance(given, Samples):
        return given
    if isinstance(given, (str, os.PathLike)):
        return read_samples(given)
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(f"{name}: expected (n, c), found a tuple of {len(given)}")
        n, c = np.broadcast_arrays(integers(f"{name}: n", given[0]), integers(f"{name}: c", given[1]))
        return Samples(n, c)
    if hasattr(given, "columns"):
        return _of_frame(name, given)
    scored = numbers(name, given)
    if scored.ndim == 1:
        raise ValueError(f"{name}: expected ({name}_n, {name}_c) for counts of samples and of correct ones, found one number for each problem")
    if scored.ndim != 2:
        raise ValueError(f"{name}: expected (problems, samples), (n, c), a data frame or a path, found shape {scored.shape}")
    _verdicts(name, scored)
    unscorable = np.isnan(scored)
    return Samples((~unscorable).sum(1), (scored == 1).sum(1), unscorable=unscorable.sum(1))


def _verdicts(name: str, given: npt.ArrayLike) -> list[bool | None]:
    """Converts 1, 0 and NaN to bools and None. Raises ``ValueError`` for other numbers."""
    correct = numbers(name, given).reshape(-1)
    bad = correct[~np.isnan(correct) & (correct != 0) & (correct != 1)]
    if bad.size:
        raise ValueError(f"{name}: expected 1 (correct), 0 (wrong) or NaN (unscorable), found {bad[0]}")
    return [None if np.isnan(c) else bool(c) for c in correct]


def _of_frame(name: str, frame: Any) -> Samples:
    """Converts a pandas or polars frame with one row per problem (n and c) or per sample (correct)."""
    columns = {str(c) for c in frame.columns}
    if "problem" not in columns or not ({"n", "c"} <= columns or "correct" in columns):
        raise ValueError(f"{name}: expected the columns problem, n and c, or problem and correct, found {sorted(columns)}")
    column = lambda key: frame[key].to_list()  # noqa: E731  both kinds of frames have it
    problem = column("problem")
    if any(p is None or missing(p) for p in problem):
        raise ValueError(f"{name}: a row has no problem")
    benchmark = column("benchmark") if "benchmark" in columns else [""] * len(frame)
    if {"n", "c"} <= columns:
        unscorable = column("unscorable") if "unscorable" in columns else None
        return Samples(column("n"), column("c"), problem, benchmark, unscorable)
    correct = _verdicts(f"{name}: correct", [np.nan if c is None or missing(c) else c for c in column("correct")])
    return _counted(zip(benchmark, problem, correct, strict=True))


def _counted(rows: Iterable[tuple[str, str, bool | None]]) -> Samples:
    """Counts samples. Each is (benchmark, problem, whether it is correct, or None if it is unscorable)."""
    counts: dict[tuple[str, str], list[int]] = {}
    for benchmark, problem, correct in rows:
        count = counts.setdefault((str(benchmark), str(problem)), [0, 0, 0])
        if correct is None:
            count[2] += 1
        else:
            count[0] += 1
            count[1] += correct
    n, c, unscorable = np.array(list(counts.values()), np.int64).reshape(-1, 3).T
    return Samples(n, c, [key[1] for key in counts], [key[0] for key in counts], unscorable)


def read_samples(
    path: str | os.PathLike[str],
    format: Format = "auto",
    *,
    grade: Callable[[Sequence[str], Sequence[str]], Verdicts] | None = None,
    mode: Mode | None = None,
) -> Samples:
    """Reads the samples of an evaluation and counts them for each problem.

    path: a file, or a folder of files, such as that of ``fgrpo eval``.
    format: ``fgrpo`` (``samples.jsonl`` of ``fgrpo eval``, or lines ``{"problem": ..., "n": ..., "c": ...}``), ``lm-eval``
        (``samples_TASK_DATE.jsonl`` of ``--log_samples``), ``lighteval`` (the parquet files of ``--save-details``; needs
        pyarrow), ``verl`` (the JSON lines of ``trainer.validation_data_dir``). ``auto`` looks at the first line.
        Problems of verl are identified by their prompts, which are the same for every model, those of lm-eval by their ``doc_id``.
    grade: function that grades responses by their reference answers, and returns :class:`Verdicts`, instead of ``mode``.
    mode: mode of the math and SynLogic verifiers.

    The last three formats contain responses. In verl's files of a job from ``fgrpo export`` they have verdicts, which are used.
    The scores of other programs follow other rules or are means over samples, so their responses are graded again, in mode
    ``parity``: as multiple choice for GPQA, by the instructions for IFEval, and as mathematics otherwise. If ``grade`` or ``mode``
    is given, the responses of every dump are graded again, and samples of ``fgrpo eval`` are refused. ``graded`` of the result
    says what was done. A problem of lighteval with several reference answers is refused.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file or folder")
    if format not in ("auto", "fgrpo", "lm-eval", "lighteval", "verl"):
        raise ValueError(f'format: expected "auto", "fgrpo", "lm-eval", "lighteval" or "verl", found {format!r}')
    if grade is not None and mode is not None:
        raise ValueError(f"mode: not available with grade, which grades the responses; found {mode!r}")
    tables = [path] if path.suffix == ".parquet" else sorted(path.rglob("*.parquet")) if path.is_dir() else []
    has_lines = path.is_dir() and any(path.rglob("*.jsonl"))
    if format == "lighteval" or (format == "auto" and tables):
        if format == "auto" and has_lines:
            raise ValueError(f"{path}: the folder has .parquet and .jsonl files, and only one kind can be read; name a file, or set format")
        if not tables:
            raise ValueError(f"{path}: found no .parquet file")
        with tempfile.TemporaryDirectory() as folder:
            root = path if path.is_dir() else path.parent
            _convert(tables, root, Path(folder))
            try:
                samples = _read(Path(folder), "lm-eval", grade, mode)
            except ValueError as error:
                raise ValueError(str(error).replace(folder, str(root))) from None
            return dataclasses.replace(samples, graded=samples.graded.replace(folder, str(root)))
    if path.is_dir() and not has_lines:
        raise ValueError(f"{path}: found no .jsonl and no .parquet file in the folder")
    return _read(path, format, grade, mode)


def _read(path: Path, format: Format, grade: Callable[..., Verdicts] | None, mode: Mode | None) -> Samples:
    dump = None if format == "fgrpo" or (grade is None and format == "auto") else _native.read_dump(path)
    found = "none" if dump is None else dump[0]
    if format not in ("auto", "fgrpo", found):
        raise ValueError(f"{path}: expected a dump of {format}, found one of {found}")
    if grade is not None:
        if dump is None:
            raise ValueError(f"grade: the samples of {path} are graded already; `fgrpo eval` into an evaluation's folder grades its responses again")
        benchmark, problem, gold, response = map(list, zip(*dump[1], strict=True))
        correct = (None if code == 3 else bool(code == 0) for code in grade(gold, response).code)
        return _counted(zip(benchmark, problem, correct, strict=True))
    rows, graded = _native.read_samples(path, mode)
    benchmark, problem, question, n, c, unscorable = map(list, zip(*rows, strict=True))
    return Samples(n, c, problem, benchmark, unscorable, graded, question)


def _convert(tables: list[Path], root: Path, folder: Path) -> None:
    """Writes lighteval's files below ``root`` as logs of lm-eval, in the same folders below ``folder``."""
    for table in tables:
        # details_TASK|SHOTS_2026-01-01T00-00-00.000000.parquet. Old versions have a suite before the task.
        name = "|".join(table.stem.removeprefix("details_").split("|")[-2:])
        log = folder / table.parent.relative_to(root) / f"samples_{name}.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as lines:
            for row in _lighteval(table):
                lines.write(json.dumps(row) + "\n")


def _lighteval(path: Path) -> Iterator[dict[str, Any]]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError(f"{path}: reading parquet needs pyarrow: pip install pyarrow") from None
    for number, row in enumerate(pyarrow.parquet.read_table(path).to_pylist()):
        doc = row.get("doc") or row.get("__doc__")
        response = row.get("model_response") or row.get("__model_response__")
        if not doc or not response:
            raise ValueError(f"{path} row {number}: expected the columns doc and model_response, found {sorted(row)}")
        indices = doc["gold_index"] if isinstance(doc["gold_index"], list) else [doc["gold_index"]]
        golds = sorted({str(doc["choices"][i]) for i in indices if i < len(doc["choices"])})
        if len(golds) > 1:
            raise ValueError(f"{path} row {number}: gold_index: expected one reference answer, found {golds}")
        named = {"question": doc.get("query")}
        if isinstance(specific := doc.get("specific"), Mapping) and "kwargs" in specific:
            named |= {"instruction_id_list": specific.get("instructions_id_list"), "kwargs": specific["kwargs"]}
        yield {"doc_id": doc.get("id") or number, "doc": named, "target": "".join(golds), "resps": [response["text"]]}
