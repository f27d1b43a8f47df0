"""A training run in this process, with rewards that are Python functions."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import io
import json
import re
import reprlib
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

from . import _native
from ._environment import Factory, answering
from ._grader import caller, reply
from ._rows import dicts, plain

Rows = str | PathLike[str] | Iterable[Mapping[str, Any]] | Any
Reward = Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Run:
    """A run, finished or not.

    path: the run folder, which ``fgrpo report``, ``fgrpo eval --model`` and :class:`Engine` take. metrics: a dict for each step, as in
    ``metrics.jsonl``. evaluations: a dict for each evaluation, as in ``eval.jsonl``. pass_at_k: pass@k of the last evaluation, by k,
    or None if there is no evaluation. report: path of the HTML report.
    """

    path: Path
    metrics: list[dict[str, Any]] = dataclasses.field(repr=False)
    evaluations: list[dict[str, Any]] = dataclasses.field(repr=False)
    pass_at_k: dict[int, float] | None
    report: Path

    def cover(self, *percents: int) -> list[dict[str, Any]]:
        """Computes cover@tau of each evaluation: the fraction of problems for which at least this percentage of the scored samples is
        correct. Returns a dict for each evaluation, with its step and problem set, for ``pandas.DataFrame(run.cover(50, 90))``."""
        rows = []
        for row in self.evaluations:
            scored = row.get("scored_per_problem") or [row["samples"]] * row["problems"]
            counts = [(c, n) for c, n in zip(row["per_problem"], scored, strict=True) if n]
            cover = {f"cover@{p}%": sum(100 * c >= p * n for c, n in counts) / len(counts) for p in percents}
            rows.append({"step": row["step"], "set": row["set"], **cover})
        return rows

    def plot(self) -> Any:
        """Plots reward and active groups by step, and pass@k of the evaluations. Returns a matplotlib ``Figure``."""
        figure = importlib.import_module("matplotlib.figure").Figure(figsize=(11, 3.2), layout="constrained")
        *left, right = figure.subplots(1, 3)
        for axis, key in zip(left, ("reward_mean", "active_fraction"), strict=True):
            axis.plot([row["step"] for row in self.metrics], [row[key] for row in self.metrics])
            axis.set(xlabel="step", title=key)
        for k in self.pass_at_k or ():
            # A full evaluation may have other values of k.
            points = [(row["step"], row["pass_at_k"][str(k)]) for row in self.evaluations if str(k) in row["pass_at_k"]]
            right.plot(*zip(*points, strict=True), "o-", label=f"k = {k}")
            right.legend()
        right.set(xlabel="step", title="pass@k")
        for axis in (*left, right):
            axis.xaxis.get_major_locator().set_params(integer=True)

        def png() -> bytes:
            image = io.BytesIO()
            figure.savefig(image)
            return image.getvalue()

        # With this method a notebook shows the figure even if pyplot wasn't imported.
        figure._repr_png_ = png
        return figure


class _Curves:
    """Curves of a run in a notebook, which are redrawn during training."""

    def __init__(self) -> None:
        importlib.import_module("matplotlib.figure")  # fails before the run begins if matplotlib is missing
        self.tools = importlib.import_module("IPython.display")
        self.handle: Any = None
        self.steps, self.due = 0, 0.0

    def draw(self, run: Run) -> None:
        if len(run.metrics) == self.steps:
            return
        shown = self.tools.Image(run.plot()._repr_png_(), format="png")
        if self.handle is None:
            self.handle = self.tools.display(shown, display_id=True)
        else:
            self.handle.update(shown)
        self.steps, self.due = len(run.metrics), time.monotonic() + 2


def train(
    config: str | PathLike[str] | Mapping[str, Any],
    *,
    reward: Reward | None = None,
    environment: Factory | None = None,
    data: Rows | None = None,
    held_out: Rows | None = None,
    out: str | PathLike[str],
    set: Mapping[str, Any] | None = None,
    on_step: Callable[[dict[str, Any]], Any] | None = None,
    plot: bool = False,
    device: str = "cpu",
    if_exists: Literal["refuse", "resume", "restart"] = "refuse",
    accept_changes: bool = False,
) -> Run:
    """Trains as ``fgrpo train`` does, in this process: the run is the same, bit for bit.

    config: a configuration file, the name of a built-in one, or the configuration as a dict.
    reward: a grading function, as for ``task.grader``. It is called with ``completion`` and the columns that it names, or, like TRL's, with
        ``completions`` and lists. It returns a number, a bool, None (unscorable) or a dict with ``score``. It sets ``task.kind`` to
        ``"python"``. A reward of at least 1 counts as correct (``set={"task.grader.correct_from": 0.5}`` changes the limit). An exception
        makes the completion unscorable; the first one is shown.
    environment: a class that the policy talks to, or a dict of classes, as for :func:`play`. Its ``get_reward()`` grades. If ``reward`` is
        given too, it is called with lists and ``environments``, as TRL does, and added. The key ``task.max_turns`` limits an episode.
    data, held_out: rows (a list of dicts, a pandas DataFrame or a dataset of ``datasets``), or a path or hub name. Rows are written
        next to the run folder, as ``OUT.train.jsonl`` and ``OUT.held-out.jsonl``, so that the run can be resumed.
    out: the run folder.
    set: changes of the configuration by key, such as ``{"steps": 40, "algorithm.focal_gamma": 1.0}``.
    on_step: called with the metrics of each step, in this thread.
    plot: draws the curves of :meth:`Run.plot` into the notebook while it trains. Needs matplotlib.
    if_exists: what to do if the folder has a run: raise an error, resume it with the same bits, or delete it and start over.
    accept_changes: allow a resume with another configuration, function or class, which is an error otherwise.

    Ctrl-C saves the state and raises ``KeyboardInterrupt``; ``if_exists="resume"`` continues.
    """
    folder = Path(fspath(out))
    keys: dict[str, Any] = dict(set or {})
    files: dict[Path, bytes | None] = {}
    for key, name, rows in (("task.data", "train", data), ("task.held_out", "held-out", held_out)):
        if isinstance(rows, (str, PathLike)):
            keys = {key: fspath(rows), **keys}
        elif rows is not None:
            path = folder.with_name(f"{folder.name}.{name}.jsonl")
            files[path] = _lines_of(key, rows)
            keys = {key: fspath(path), **keys}
    answer = None
    for argument, given in (("reward", reward), ("environment", environment)):
        if not (given is None or callable(given) or isinstance(given, Mapping)):
            raise TypeError(f"{argument}: expected a function or class, found {type(given).__name__}")
    if environment is not None:
        rewards = [] if reward is None else [reward]
        answer = _answerer(answering(environment, rewards))
        keys = {"task.kind": "python", "task.environment.in_process": _name(environment, *rewards), **keys}
    elif reward is not None:
        answer = _answerer(caller(reward))
        keys = {"task.kind": "python", "task.grader.in_process": _name(reward), **keys}
    file, settings = (None, _settings("", config)) if isinstance(config, Mapping) else (fspath(config), [])
    # A table in `set` replaces the whole table of the configuration.
    settings += keys.items()
    for key, value in settings:
        if value is None:
            raise TypeError(f"{key}: expected a value, found None; leave the key out instead")
    resumes = "resume changed" if if_exists == "resume" and accept_changes else if_exists
    arguments = (file, json.dumps(settings, default=_json), fspath(folder), resumes, device, answer)
    log, seen = folder / "metrics.jsonl", 0
    if on_step and if_exists != "restart":
        seen = len(_lines(log))
    curves = _Curves() if plot else None
    # With "restart", the log of the old run exists until the new run begins.
    old = log.read_bytes() if if_exists == "restart" and log.exists() else None
    begun = old is None
    result: dict[str, Any] = {}
    ended = threading.Event()
    state = _state(folder / "config.toml")
    before = {path: path.read_bytes() if path.exists() else None for path in files}

    def work() -> None:
        try:
            _write(files)
            result["stopped"] = _native.train(*arguments)
        except BaseException as error:
            result["error"] = error
            # A run that didn't begin leaves the data of an earlier run unchanged.
            if _state(folder / "config.toml") == state:
                _write(before)
        finally:
            ended.set()

    def report() -> None:
        nonlocal begun, seen
        begun = begun or (log.exists() and log.read_bytes() != old)
        if on_step is not None and begun:
            for row in _lines(log, seen):
                seen += 1
                on_step(row)

    threading.Thread(target=work, name="fgrpo-train", daemon=True).start()
    raised: BaseException | None = None
    # Joining the thread instead would end early: before Python 3.13, a join that a signal interrupts marks it as ended.
    while not ended.is_set():
        try:
            ended.wait(0.1)
            if raised or not (on_step or curves):
                continue
            report()
            if curves and begun and time.monotonic() > curves.due:
                curves.draw(_run(folder))
        except BaseException as error:
            if raised is not None:
                raise
            raised = error
            _native.stop_training()
    _restore_handlers()
    # After an exception in `on_step` it isn't called again.
    if raised is None or isinstance(raised, KeyboardInterrupt):
        report()
    if "error" in result:
        raise result["error"]
    if raised is not None or result["stopped"]:
        raise raised or KeyboardInterrupt
    run = _run(folder)
    if curves:
        curves.draw(run)
    return run


def _settings(key: str, value: Any) -> list[tuple[str, Any]]:
    """Returns the values of a table with their full keys."""
    if isinstance(value, Mapping) and value:
        return [pair for name, part in value.items() for pair in _settings(f"{key}.{name}".lstrip("."), part)]
    return [(key, value)]


def _json(value: Any) -> Any:
    return fspath(value) if isinstance(value, PathLike) else plain(value)


def _run(folder: Path) -> Run:
    read = json.loads(_native.read_run(folder))
    evaluations = read["evaluations"]
    pass_at_k = {int(k): value for k, value in evaluations[-1]["pass_at_k"].items()} if evaluations else None
    return Run(folder, read["metrics"], evaluations, pass_at_k, folder / "report.html")


def _lines(path: Path, first: int = 0) -> list[dict[str, Any]]:
    # A last line without a newline is still being written.
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")[first:-1]] if path.exists() else []


def _restore_handlers() -> None:
    """Restores the signal handlers, which a download replaces."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if handler is not None:
                signal.signal(number, handler)


def _lines_of(key: str, rows: Rows) -> bytes:
    """Returns the rows as lines of JSON."""
    lines = []
    for index, row in enumerate(dicts(key, rows)):
        try:
            lines.append(json.dumps(row, ensure_ascii=False, default=plain, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise type(error)(f"{key}: row {index}: {error}") from None
    if not lines:
        raise ValueError(f"{key}: expected at least one row")
    return ("\n".join(lines) + "\n").encode()


def _write(files: Mapping[Path, bytes | None]) -> None:
    """Replaces each file by these bytes, or deletes it if they are None."""
    for path, content in files.items():
        if content is None:
            path.unlink(missing_ok=True)
        elif not (path.exists() and path.read_bytes() == content):
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = path.with_name(f"{path.name}.new")
            whole.write_bytes(content)
            whole.replace(path)


def _state(path: Path) -> tuple[int, int] | None:
    """Returns what differs after a file is written again, or None if there is no file."""
    return (path.stat().st_ino, path.stat().st_mtime_ns) if path.exists() else None


def _name(*given: Any) -> str:
    """Returns a name of the functions with a hash of their code, so that the configuration changes if a function does."""
    functions = [f for one in given for f in (one.values() if isinstance(one, Mapping) else [one])]
    names = "+".join(getattr(function, "__qualname__", type(function).__name__) for function in functions)
    return f"{names}#{hashlib.sha256(repr([_content(function) for function in functions]).encode()).hexdigest()[:12]}"


@reprlib.recursive_repr()
def _content(thing: Any) -> Any:
    """Returns the content of a function or class: its source, or its code if the source is unavailable, as in a notebook, with the
    defaults of its arguments and the values of its closure."""
    if isinstance(thing, functools.partial):
        return [_content(thing.func), [_content(argument) for argument in (*thing.args, *thing.keywords.items())]]
    if isinstance(thing, types.CodeType):
        return [thing.co_code, thing.co_names, [_content(constant) for constant in thing.co_consts]]
    source = None
    if isinstance(thing, (type, types.FunctionType)):
        with contextlib.suppress(OSError, TypeError):
            source = inspect.getsource(thing)
    if isinstance(thing, types.FunctionType):
        cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != types.CellType()]
        return [source or _content(thing.__code__), *map(_content, (thing.__defaults__, thing.__kwdefaults__, cells))]
    if source is not None:
        return source
    if isinstance(thing, property):
        return [_content(part) for part in (thing.fget, thing.fset)]
    if isinstance(thing, (staticmethod, classmethod)):
        return _content(thing.__func__)
    if isinstance(thing, types.MethodType):
        owner = thing.__self__
        return [_content(thing.__func__), _content(owner if isinstance(owner, type) else getattr(owner, "__dict__", owner))]
    if isinstance(thing, type):
        own = {name: value for name, value in vars(thing).items() if name not in ("__dict__", "__weakref__", "__module__", "__firstlineno__")}
        return [[_content(base) for base in thing.__bases__ if base is not object], _content(own)]
    if isinstance(thing, (list, tuple, set, frozenset)):
        return [_content(item) for item in (thing if isinstance(thing, (list, tuple)) else sorted(thing, key=repr))]
    if isinstance(thing, Mapping):
        return [(key, _content(value)) for key, value in thing.items()]
    if callable(thing) and hasattr(thing, "__dict__"):
        return [_content(type(thing)), _content(vars(thing))]
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


def _answerer(call: Callable[[Any], Any]) -> Callable[[str], str]:
    shown = threading.Event()

    class Log:
        def write(self, text: str) -> None:
            if not shown.is_set():
                shown.set()
                sys.stderr.write(f"your function raised an exception, and its completion is unscorable:\n{text}")

    def answer(question: str) -> str:
        return json.dumps(reply(call, json.loads(question), Log()))

    return answer
