# Interface of the extension module, for the modules of the package. Users import names from `fgrpo`.
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Literal

from typing_extensions import Self

import numpy as np
import numpy.typing as npt

from ._verifiers import Gold, Mode

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_Singles = npt.NDArray[np.float32]
_Codes = npt.NDArray[np.uint8]

__version__: str
FOCAL_GAMMA: float
REFERENCE_MODE: Mode
TRAINING_MODE: Mode

def run_command(argv: list[str]) -> int: ...
def credit(
    rewards: _Floats,
    group: _Ints,
    groups: int,
    labels: list | None,
    estimator: str,
    gamma: float,
    eps: float | None,
    ddof: int | None,
    k: int | None,
    correct: float,
    wrong: float,
    threshold: float | None,
    shaping: tuple[str, list[float]] | None,
    mean_logp: _Floats | None,
    lengths: _Ints | None,
    parts: list[tuple[_Floats, float]],
    clusters: _Ints | None,
) -> tuple[_Floats, _Floats, _Floats]: ...
def lowest_correct(threshold: float) -> float: ...
def focal_weight(success_rate: _Floats, gamma: float) -> _Floats: ...
def policy_loss(
    logp: _Floats,
    old_logp: _Floats,
    advantages: _Floats,
    mask: npt.NDArray[np.bool_],
    loss: str,
    aggregation: str,
    clip_low: float | None,
    clip_high: float | None,
    dual_clip: float | None,
    absolute_cap: bool,
    tau: tuple[float, float] | None,
    max_len: int | None,
) -> tuple[float, _Floats]: ...
def train(
    file: str | None,
    settings: str,
    out: str,
    if_exists: str,
    device: str,
    answer: Callable[[str], str] | None,
) -> bool: ...
def read_run(folder: PathLike[str]) -> str: ...
def stop_training() -> None: ...

class Engine:
    vocab_size: int
    positions: int
    parameters: int
    trained_parameters: int
    stop_tokens: list[int]
    template: str | None

    def __init__(
        self,
        model: str,
        adapter: str | None,
        lora: str | None,
        device: str,
        threads: int,
        precision: str,
        seed: int,
    ) -> None: ...
    def sample(
        self,
        tokens: _Ints,
        lengths: _Ints,
        n: int,
        max_tokens: int,
        cuts: tuple[float, float, int, float],
        stop: list[str],
        seed: int | None,
        indices: list[tuple[int, int, int]] | None,
    ) -> tuple[_Ints, _Singles, _Singles, list[int], list[str], list[bool], list[int]]: ...
    def score(self, tokens: _Ints, lengths: _Ints, temperature: float) -> tuple[_Singles, _Singles]: ...
    def forward_backward(
        self,
        tokens: _Ints,
        lengths: _Ints,
        places: _Ints,
        counts: _Ints,
        logprobs: _Singles,
        advantages: _Floats,
        loss: str | None,
        dlogp: _Singles | None,
        max_len: int,
        temperature: float,
    ) -> tuple[float, int, list[float], list[float]]: ...
    def optim_step(
        self,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        max_grad_norm: float | None,
    ) -> tuple[float, bool]: ...
    def zero_grad(self) -> None: ...
    def save(self, folder: str) -> None: ...
    def save_state(self, folder: str) -> None: ...
    def load_state(self, folder: str) -> None: ...
    def encode(self, text: str, special: bool) -> list[int]: ...
    def decode(self, tokens: list[int], special: bool) -> str: ...
    def render(self, messages: str, tools: str | None, thinking: bool | None, add_generation_prompt: bool) -> str: ...

def verify_math(
    golds: Sequence[Gold],
    responses: Sequence[str],
    mode: str,
    accept_unfinished: bool,
    reasoning: str | None,
    threads: int | None,
) -> tuple[_Codes, list[str]]: ...
def verify_choice(
    golds: Sequence[str],
    responses: Sequence[str],
    options: list[list[str]] | None,
    match: str,
    reasoning: str | None,
    threads: int | None,
) -> tuple[_Codes, list[str]]: ...
def verify_ifeval(
    instructions: list[list[str]],
    arguments: list[str],
    responses: Sequence[str],
    reasoning: str | None,
    threads: int | None,
) -> tuple[_Codes, list[str]]: ...
def verify_synlogic(
    tasks: Sequence[str],
    game_data: Sequence[str],
    responses: Sequence[str],
    mode: str,
    format_gate: bool,
    reasoning: str | None,
    threads: int | None,
) -> tuple[_Codes, list[str]]: ...

class Episode:
    def __init__(self, engine: Engine, begun: str, thinking: bool | None) -> None: ...
    def prompt(self) -> list[int] | None: ...
    def hear(self, tokens: list[int], logp: list[float], cut: bool, last: bool) -> str | None: ...
    def go_on(self, results: list[str]) -> None: ...
    def end(self) -> tuple[str, int, Literal["stop", "length", "turns"], list[tuple[list[int], list[int]]], list[float]]: ...

class Grader:
    @property
    def parts(self) -> list[str]: ...
    def __new__(cls, config: str, folder: str, overrides: list[str]) -> Self: ...
    def described(self, part: str | None = None) -> str: ...
    def grade(self, truth: str, is_row: bool, response: str, part: str | None) -> tuple[str, str, float]: ...

class MathProblem:
    def __new__(
        cls, gold: Gold, *, mode: Mode = ..., accept_unfinished: bool = False, reasoning: str | None = None
    ) -> Self: ...
    def check(self, response: str) -> tuple[int, str]: ...

class MathExtraction:
    def __new__(cls, targets: list[tuple]) -> Self: ...
    def parse(self, text: str, first_only: bool) -> tuple[Value | str | None, str | None, bool]: ...

class Value:
    def __new__(cls, notation: str, parts: list[tuple[str, bool]]) -> Self: ...
    def equals(self, answer: Value, precision: int, strict: bool, allow_set_relation_comp: bool) -> bool | None: ...

def pass_at_k(n: _Ints, c: _Ints, k: _Ints) -> _Floats: ...
def compare(
    a: Any,
    b: Any,
    ks: list[int],
    cover: list[int],
    m: int | None,
    method: str,
    level: float,
    iterations: int,
    resamples: int,
    seed: int,
) -> str: ...
def plan(
    samples: Any, group_sizes: list[int], tail: float
) -> tuple[list[tuple[float, float, float]], tuple[int, float] | None]: ...
def read_dump(path: str | PathLike[str]) -> tuple[str, list[tuple[str, str, str, str]]] | None: ...
def read_samples(path: str | PathLike[str], mode: str | None) -> tuple[list[tuple[str, str, str, int, int, int]], str]: ...
def tail_miss(mu: _Floats, tau: _Floats, n: _Ints) -> _Floats: ...
def active(mu: _Floats, n: _Ints) -> _Floats: ...
def peak(mu: float, tau: float) -> tuple[int, float]: ...
def low_lr(gamma: float) -> float: ...
def simulate(
    group_size: int,
    gamma: float,
    steps: int,
    seed: int,
    record_every: int,
    actions: int,
    correct: int,
    anchors: int,
    lr: float,
) -> dict[str, Any]: ...
