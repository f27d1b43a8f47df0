"""The engine in this process: sample, score, forward_backward, optim_step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike, fspath
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import booleans, flat, integers, numbers, real, whole
from ._rows import plain

Tokens = Sequence[int] | npt.NDArray[np.integer]


@dataclass(frozen=True, eq=False)
class Sample:
    """One completion of a prompt.

    prompt: int32 ``(P,)``. tokens: int32 ``(T,)``, including the end token. logprobs, entropy: float32 ``(T,)``, of
    ``softmax(logits / temperature)`` before top-k, top-p and min-p. text: the tokens as text, without special tokens, up to the
    end token or stop string. finish: ``"stop"``, or ``"length"`` if the length limit ended it. cached: number of prompt tokens
    that were already in the cache.
    """

    prompt: npt.NDArray[np.int32] = field(repr=False)
    tokens: npt.NDArray[np.int32] = field(repr=False)
    logprobs: npt.NDArray[np.float32] = field(repr=False)
    entropy: npt.NDArray[np.float32] = field(repr=False)
    text: str
    finish: Literal["stop", "length"]
    cached: int


class Datum:
    """One sequence of a loss.

    ``Datum(prompt=..., completion=..., logprobs=..., advantage=...)``: the tokens of ``completion``, ``(T,)``, are in the loss and
    share one advantage. ``logprobs`` is ``(T,)``.

    ``Datum(tokens=..., mask=..., logprobs=..., advantages=...)``, for episodes of several turns: all are ``(T,)``. ``mask`` is true
    for the tokens in the loss, those that the model sampled. ``advantages`` may be a single number.

    ``logprobs`` may be left out for ``"cross_entropy"``, and ``logprobs`` and ``advantages`` for derivatives of your own.

    >>> Datum(prompt=[5, 6], completion=[7, 2], logprobs=[-0.5, -0.1], advantage=1.0)
    Datum(4 tokens, 2 in the loss)
    >>> Datum(tokens=[5, 6, 7, 2], mask=[0, 0, 1, 1], logprobs=[0, 0, -0.5, -0.1], advantages=1.0)
    Datum(4 tokens, 2 in the loss)
    """

    __slots__ = ("advantages", "logprobs", "places", "tokens")

    tokens: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]
    logprobs: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float64]

    def __init__(
        self,
        prompt: Tokens | None = None,
        completion: Tokens | None = None,
        logprobs: npt.ArrayLike | None = None,
        advantage: float | None = None,
        *,
        tokens: Tokens | None = None,
        mask: npt.ArrayLike | None = None,
        advantages: npt.ArrayLike | None = None,
    ) -> None:
        weight: npt.NDArray[np.float64] | None
        if tokens is None and mask is None and advantages is None:
            if prompt is None or completion is None or advantage is None:
                raise TypeError("Datum: expected prompt, completion, logprobs and advantage, or tokens, mask, logprobs and advantages")
            begin, end = _tokens("prompt", prompt), _tokens("completion", completion)
            if not begin.size:
                raise ValueError("prompt: expected at least one token")
            self.tokens = np.concatenate([begin, end])
            self.places = np.arange(begin.size, self.tokens.size, dtype=np.int64)
            counted, weight = np.ones(end.shape, dtype=np.bool_), numbers("advantage", advantage)
            shape, names = end.shape, ("completion", "advantage")
        elif prompt is None and completion is None and advantage is None and tokens is not None and mask is not None:
            self.tokens = _tokens("tokens", tokens)
            chosen = booleans("mask", mask)
            _shape("mask", chosen, self.tokens.shape, "tokens")
            if chosen.size and chosen[0]:
                raise ValueError("mask: the first token can't be in the loss, because nothing predicts it")
            self.places = np.flatnonzero(chosen).astype(np.int64)
            counted, weight = chosen, None if advantages is None else numbers("advantages", advantages)
            shape, names = self.tokens.shape, ("tokens", "advantages")
        else:
            raise TypeError("Datum: expected prompt, completion, logprobs and advantage, or tokens, mask, logprobs and advantages")
        self.logprobs, self.advantages = np.empty(0, np.float32), np.empty(0)
        if logprobs is not None:
            old = numbers("logprobs", logprobs)
            _shape("logprobs", old, shape, names[0])
            self.logprobs = _finite("logprobs", old[counted]).astype(np.float32)
        if weight is not None:
            if weight.ndim:
                _shape(names[1], weight, shape, names[0])
            self.advantages = _finite(names[1], np.ascontiguousarray(np.broadcast_to(weight, shape)[counted]))

    def __repr__(self) -> str:
        return f"Datum({self.tokens.size} tokens, {self.places.size} in the loss)"


class Tokenizer:
    """The model's tokenizer and chat template."""

    def __init__(self, engine: _native.Engine) -> None:
        self._engine = engine

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
    ) -> list[int]:
        """Encodes a conversation with the model's chat template, up to the beginning of the assistant's turn.

        tools: JSON schemas of the functions that the model may call. thinking: the template's switch for thoughts; with None the
        template decides.
        """
        return self.encode(self.render(messages, tools=tools, thinking=thinking))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Renders the conversation as in :meth:`chat`, as text."""
        if isinstance(messages, (str, Mapping)):
            raise TypeError(f"messages: expected a list of messages with role and content, found {type(messages).__name__}")
        offered = json.dumps(list(tools)) if tools else None
        return self._engine.render(json.dumps(list(messages)), offered, thinking, add_generation_prompt)

    @property
    def template(self) -> str | None:
        """Source of the chat template, or None if the model has none."""
        return self._engine.template

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Encodes a string. special: include the tokens that the tokenizer adds, such as a beginning-of-sequence token."""
        return self._engine.encode(text, special)

    def decode(self, tokens: Tokens, *, special: bool = False) -> str:
        """Decodes tokens to a string. special: include special tokens."""
        return self._engine.decode(_tokens("tokens", tokens).tolist(), special)

    @property
    def stop_tokens(self) -> list[int]:
        """The tokens that end a completion."""
        return self._engine.stop_tokens


class Engine:
    """A policy in this process, with its optimizer.

    model: a model folder, a run folder, a name of the Hugging Face hub or a ``.gguf`` file.
    adapter: a LoRA adapter in PEFT's format.
    lora: settings of new LoRA factors, as in the configuration's table ``[lora]``, such as ``{"rank": 16}``. Without them all weights
        are trained.
    device: ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. threads: number of CPU threads; 0 means one per core. precision: ``"f32"`` or, on a
        GPU, ``"bf16"``.
    seed: of new factors, and of samples that are drawn without a seed.

    Calls from several threads run one after another. Other Python threads run during a call, and Ctrl-C stops sampling. An
    engine can't be used after a fork.
    """

    def __init__(
        self,
        model: str | PathLike[str],
        *,
        adapter: str | PathLike[str] | None = None,
        lora: Mapping[str, Any] | None = None,
        device: str = "cpu",
        threads: int = 0,
        precision: Literal["f32", "bf16"] = "f32",
        seed: int = 0,
    ) -> None:
        whole(0, threads=threads, seed=seed)
        settings = None if lora is None else json.dumps(dict(lora), default=plain)
        path = None if adapter is None else fspath(adapter)
        self._engine = _native.Engine(fspath(model), path, settings, device, threads, precision, seed)
        self.tokenizer = Tokenizer(self._engine)

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary; token ids are smaller."""
        return self._engine.vocab_size

    @property
    def positions(self) -> int:
        """Maximum number of tokens of a sequence."""
        return self._engine.positions

    @property
    def parameters(self) -> int:
        """Number of parameters."""
        return self._engine.parameters

    @property
    def trained_parameters(self) -> int:
        """Number of parameters that updates change."""
        return self._engine.trained_parameters

    def sample(
        self,
        prompts: Sequence[Tokens],
        n: int = 1,
        *,
        max_tokens: int = 256,
        temperature: float = 1.0,
        top_p: float = 1.0,
        top_k: int = 0,
        min_p: float = 0.0,
        stop: str | Sequence[str] | None = None,
        seed: int | None = None,
        _indices: list[tuple[int, int, int]] | None = None,
    ) -> list[list[Sample]]:
        """Samples ``n`` completions of each prompt. A prompt is computed once for all of them.

        A sample depends only on the weights, the seed, the index of its prompt and its index. Without a seed, each call draws different
        samples, which depend on the engine's seed and the number of calls before. If a prompt begins with an earlier prompt and its
        completion, only the rest is computed, until the weights change.

        max_tokens: maximum length of a completion; the model's maximum sequence length may end it earlier. top_k: 0 or -1 keeps all
        tokens. stop: strings that end a completion, besides the model's end tokens.
        """
        rows = [_tokens(f"prompts[{i}]", prompt) for i, prompt in enumerate(_sequences("prompts", prompts))]
        whole(1, n=n, max_tokens=max_tokens)
        whole(-1, top_k=top_k)
        whole(0, seed=seed)
        texts = [stop] if isinstance(stop, str) else list(stop or ())
        if not rows:
            return []
        found = self._engine.sample(*_packed(rows), n, max_tokens, (temperature, top_p, max(top_k, 0), min_p), texts, seed, _indices)
        tokens, logp, entropy, lengths, answers, stopped, cached = found
        samples, first = [], 0
        for i, length in enumerate(lengths):
            own = slice(first, first + length)
            first += length
            samples.append(
                Sample(
                    rows[i // n].astype(np.int32),
                    tokens[own].astype(np.int32),
                    logp[own],
                    entropy[own],
                    answers[i],
                    "stop" if stopped[i] else "length",
                    cached[i],
                )
            )
        return [samples[i : i + n] for i in range(0, len(samples), n)]

    def extend(self, sample: Sample, tokens: Tokens) -> npt.NDArray[np.int32]:
        """Returns the prompt that continues a sample with other tokens, such as an environment's answer. The sampled tokens are not
        encoded again."""
        return np.concatenate([sample.prompt, sample.tokens, _tokens("tokens", tokens).astype(np.int32)])

    def score(
        self, sequences: Sequence[Tokens], *, temperature: float = 1.0
    ) -> list[tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
        """Computes log-probability and entropy of every token of each sequence except the first: two float32 ``(T - 1,)``.

        ``logp[t]`` belongs to ``tokens[t + 1]``. A common beginning of sequences is computed once.
        """
        rows = [_tokens(f"sequences[{i}]", tokens) for i, tokens in enumerate(_sequences("sequences", sequences))]
        if not rows:
            return []
        logp, entropy = self._engine.score(*_packed(rows), temperature)
        ends = np.cumsum([row.size - 1 for row in rows])[:-1]
        return list(zip(np.split(logp, ends), np.split(entropy, ends), strict=True))

    def forward_backward(
        self,
        data: Sequence[Datum],
        loss: str | Mapping[str, Any] = "grpo",
        *,
        aggregation: str | None = None,
        max_len: int | None = None,
        entropy_coef: float = 0.0,
        dlogp: Sequence[npt.ArrayLike] | None = None,
        temperature: float = 1.0,
    ) -> dict[str, float]:
        """Adds the gradient of a loss over ``data`` to the accumulated gradient. Returns metrics of the loss.

        loss: a name or a table as in the configuration's ``algorithm.loss``, such as ``"dapo"`` or ``{"kind": "grpo", "clip": [0.1, 0.1]}``, or
            ``"cross_entropy"``: the mean of ``-advantage * logp``, without the settings below.
        aggregation: as ``algorithm.aggregation``, by default that of the loss's authors, with means over the data of this call.
            ``"seq-mean-token-sum-norm"`` divides by ``max_len`` (Dr. GRPO).
        dlogp: for a loss of your own, which replaces ``loss``: its derivative with respect to the log-probability of every token in it,
            one array ``(T,)`` for each datum. A negative derivative makes its token more likely. With log-probabilities from
            :meth:`score`, ``dlogp=[-d.advantages / total * np.exp(new - d.logprobs) for ...]`` is GRPO's loss without clipping, as a mean
            over ``total`` tokens.
        temperature: the temperature at which the samples were drawn.

        Metrics: ``loss``, ``tokens``, ``ratio`` (mean of ``exp(logp - logprobs)``), ``ratio_max``, ``clipped_low``, ``clipped_high``
        (fractions), ``kl_to_sampler`` (mean of ``logprobs - logp``), ``logp_difference_max``. With ``dlogp`` the loss and its clipping are
        unknown, so these three metrics are missing. If a datum has no ``logprobs``, the metrics that compare with them are missing. Data
        from earlier weights are allowed; the metrics show how far the weights have moved.
        """
        chosen = list(data)
        for i, datum in enumerate(chosen):
            if not isinstance(datum, Datum):
                raise TypeError(f"data[{i}]: expected fgrpo.Datum, found {type(datum).__name__}")
        if not chosen:
            raise ValueError("data: expected at least one datum")
        whole(1, max_len=max_len)
        real(entropy_coef=entropy_coef)
        if aggregation == "seq-mean-token-sum-norm" and max_len is None:
            raise ValueError(f"max_len: expected at least 1, because {aggregation!r} divides by it, found None")
        needed: tuple[str, ...] = ("logprobs", "advantages")
        if dlogp is not None or loss == "cross_entropy":
            needed = () if dlogp is not None else ("advantages",)
            is_set = {"aggregation": aggregation not in (None, "token-mean"), "max_len": max_len is not None, "entropy_coef": entropy_coef != 0}
            is_set["loss"] = dlogp is not None and loss != "grpo"
            for name in filter(is_set.__getitem__, is_set):
                raise ValueError(f"{name}: not available with {'dlogp' if dlogp is not None else repr(loss)}")
        for i, datum in enumerate(chosen):
            for name in needed:
                if getattr(datum, name).size < datum.places.size:
                    raise ValueError(f"data[{i}]: the loss {loss!r} needs the datum's {name}")
        keys: str | None = _loss(loss, aggregation, entropy_coef)
        slopes = None
        if dlogp is not None:
            rows = [_finite(f"dlogp[{i}]", numbers(f"dlogp[{i}]", row)) for i, row in enumerate(dlogp)]
            if len(rows) != len(chosen):
                raise ValueError(f"dlogp: expected {len(chosen)} arrays, one for each datum, found {len(rows)}")
            for i, (row, datum) in enumerate(zip(rows, chosen, strict=True)):
                _shape(f"dlogp[{i}]", row, datum.places.shape, "the tokens in the loss")
            keys, slopes = None, flat(np.concatenate(rows)).astype(np.float32)
        value, tokens, means, largest = self._engine.forward_backward(
            *_packed([datum.tokens for datum in chosen]),
            np.concatenate([datum.places for datum in chosen]),
            np.array([datum.places.size for datum in chosen], dtype=np.int64),
            np.concatenate([_or_zeros(datum.logprobs, datum) for datum in chosen]),
            np.concatenate([_or_zeros(datum.advantages, datum) for datum in chosen]),
            keys,
            slopes,
            max_len or 1,
            temperature,
        )
        names = ("loss", "tokens", "ratio", "kl_to_sampler", "clipped_low", "clipped_high", "ratio_max", "logp_difference_max")
        metrics = dict(zip(names, (value, tokens, *means, *largest), strict=True))
        unknown: tuple[str, ...] = () if dlogp is None else ("loss", "clipped_low", "clipped_high")
        if any(datum.logprobs.size < datum.places.size for datum in chosen):
            unknown += ("ratio", "ratio_max", "kl_to_sampler", "logp_difference_max")
        return {name: metric for name, metric in metrics.items() if name not in unknown}

    def optim_step(
        self,
        lr: float,
        *,
        max_grad_norm: float | None = 1.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> dict[str, Any]:
        """Runs one AdamW update with the accumulated gradient, and resets the gradient to 0.

        Returns ``grad_norm`` (before clipping) and ``skipped``, which is true if the gradient wasn't finite, so that the weights didn't
        change.
        """
        for name, number in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay), ("max_grad_norm", max_grad_norm)):
            if number is not None and not (np.isfinite(number) and number >= 0):
                raise ValueError(f"{name}: expected a finite number of at least 0, found {number}")
        norm, applied = self._engine.optim_step(lr, betas, eps, weight_decay, max_grad_norm)
        return {"grad_norm": norm, "skipped": not applied}

    def zero_grad(self) -> None:
        """Resets the accumulated gradient to 0."""
        self._engine.zero_grad()

    def save(self, folder: str | PathLike[str]) -> None:
        """Writes the policy as a Hugging Face folder. With LoRA the folder has the merged weights, and the adapter in ``adapter``."""
        self._engine.save(fspath(folder))

    def save_state(self, folder: str | PathLike[str]) -> None:
        """Writes weights, optimizer and the number of sampling calls, from which :meth:`load_state` continues with the same bits.

        Raises ``ValueError`` if there is an accumulated gradient that no update has used.
        """
        self._engine.save_state(fspath(folder))

    def load_state(self, folder: str | PathLike[str]) -> None:
        """Loads a state that :meth:`save_state` wrote. The engine must have the same model and LoRA settings."""
        self._engine.load_state(fspath(folder))


def _loss(loss: str | Mapping[str, Any], aggregation: str | None, entropy_coef: float) -> str:
    if loss == "cross_entropy":
        return json.dumps(loss)
    keys: dict[str, Any] = {"loss": loss if isinstance(loss, str) else dict(loss), "entropy_coef": entropy_coef}
    if aggregation is not None:
        keys["aggregation"] = aggregation
    return json.dumps(keys, default=plain)


def _or_zeros(values: npt.NDArray[Any], datum: Datum) -> npt.NDArray[Any]:
    return values if values.size else np.zeros(datum.places.size, values.dtype)


def _tokens(name: str, tokens: Tokens) -> npt.NDArray[np.int64]:
    array = integers(name, tokens)
    if array.ndim != 1:
        raise ValueError(f"{name}: expected one dimension, found shape {array.shape}")
    return array


def _sequences(name: str, rows: Sequence[Tokens]) -> Sequence[Tokens]:
    first = rows if isinstance(rows, str) else rows[0] if len(rows) else ()
    if isinstance(first, str):
        raise TypeError(f"{name}: expected token ids, found text; use tokenizer.chat([{{'role': 'user', 'content': text}}]) or tokenizer.encode(text)")
    if isinstance(first, Datum):
        raise TypeError(f"{name}: expected token ids, found fgrpo.Datum; use [datum.tokens for datum in data]")
    if np.ndim(first) == 0:
        raise TypeError(f"{name}: expected a list of sequences of token ids, found one sequence")
    return rows


def _packed(rows: Sequence[npt.NDArray[np.int64]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.concatenate(rows), np.array([row.size for row in rows], dtype=np.int64)


def _shape(name: str, array: np.ndarray, shape: tuple[int, ...], like: str) -> None:
    if array.shape != shape:
        raise ValueError(f"{name}: expected shape {shape}, as {like} has, found {array.shape}")


def _finite(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if not np.isfinite(array).all():
        raise ValueError(f"{name}: expected finite numbers, found {array[~np.isfinite(array)][0]}")
    return array
