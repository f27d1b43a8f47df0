"""Episodes: a policy that talks to an environment and calls its tools."""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import io
import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _native
from ._arrays import whole
from ._engine import Datum, Engine, Sample
from ._environment import Factory, Message, answering, chosen
from ._grader import reply, settled
from ._rows import dicts

Finish = Literal["stop", "length", "turns", "error"]


@dataclasses.dataclass(eq=False)
class Part:
    """A sequence of an episode: tokens int32 ``(T,)``, whether each was sampled, and its log-probability (0 if it wasn't sampled)."""

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]


@dataclasses.dataclass(eq=False)
class Episode:
    """One conversation with an environment.

    tokens, mask, logprobs: ``(T,)``; ``mask`` is true for the tokens that the model sampled. turns: number of the model's turns. reward:
    NaN if the environment or the reward failed. finish: ``"stop"`` (the model answered without a call), ``"length"`` (a turn reached
    ``max_tokens``, or the conversation the model's maximum length), ``"turns"`` (``max_turns`` was reached) or ``"error"``. messages: the
    conversation. parts: several if the template rewrites earlier turns, for example removes thoughts from the history; ``tokens``,
    ``mask`` and ``logprobs`` belong to the last part.
    """

    messages: list[Message] = dataclasses.field(repr=False)
    parts: list[Part] = dataclasses.field(repr=False, default_factory=list)
    turns: int = 0
    reward: float = float("nan")
    finish: Finish = "turns"

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        return self.parts[-1].tokens

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        return self.parts[-1].mask

    @property
    def logprobs(self) -> npt.NDArray[np.float32]:
        return self.parts[-1].logprobs

    def data(self, advantage: float) -> list[Datum]:
        """Returns the data for :meth:`Engine.forward_backward`, with only sampled tokens in the loss. Empty if the episode is unscorable."""
        if np.isnan(self.reward):
            return []
        data = []
        for part in self.parts:
            # The tokens after the last sampled one train nothing, and may exceed the model's maximum length.
            end = 1 + int(np.flatnonzero(part.mask)[-1]) if part.mask.any() else 0
            if end:
                data.append(Datum(tokens=part.tokens[:end], mask=part.mask[:end], logprobs=part.logprobs[:end], advantages=advantage))
        return data


def play(
    engine: Engine | None,
    factory: Factory,
    rows: Iterable[Mapping[str, Any]],
    n: int = 8,
    max_turns: int = 8,
    max_tokens: int = 512,
    *,
    reward: Callable[..., Any] | None = None,
    policy: Callable[..., Any] | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    thinking: bool | None = None,
    seed: int | None = None,
) -> list[list[Episode]]:
    """Plays ``n`` episodes of each row, which are the row's group.

    engine: the policy, or None if ``policy`` is given.
    factory: makes an environment, as TRL's ``environment_factory`` does. With a dict of factories, the column ``environment`` selects one.
        ``reset(**row)`` of the environment returns None or a string, which is appended to the conversation's last user message. Its other
        public methods, except ``get_reward``, ``reward`` and ``feedback()``, are the tools; they need type hints and docstrings. The result
        or exception of a call is the tool's answer; a malformed call is answered with its error. All methods may be ``async``.
    rows: dicts with the conversation in ``prompt`` (a string or messages), unless ``reset`` returns all of it. Every episode gets a copy.
    max_turns: maximum number of the model's turns; the calls of the last one aren't made. max_tokens: maximum length of each turn.
    reward: a function that is called as ``reward(episode, **row)`` and replaces the environment's ``get_reward()`` (or ``reward()``, or
        ``reward(messages)`` with the conversation). If it has an argument ``completions`` or ``environments``, it is called with lists, as
        TRL does, and its result is added to the environment's reward.
    policy: a function that replaces the model, to test an environment. It gets the messages, and returns a string, which ends the episode,
        or a list of calls, each with a name and arguments, such as ``[("add", {"a": 1, "b": 2})]``. Such an episode has no tokens.

    An episode depends only on the seed, the index of its row, its index in the group, and the environment. Only the new tokens of a turn are
    computed, and sampled tokens are never encoded again.
    """
    whole(1, n=n, max_turns=max_turns, max_tokens=max_tokens)
    table = dicts("rows", rows)
    conversations = [_conversation(row, index) for index, row in enumerate(table)]
    if isinstance(factory, Mapping):
        for row in table:
            chosen(factory, row.get("environment"))
    lists = reward is not None and not {"completions", "environments"}.isdisjoint(inspect.signature(reward).parameters)
    answer, own = answering(factory, [] if reward is None else [reward]), None if lists else reward
    if (engine is None) == (policy is None):
        raise TypeError("play: expected an engine, or None and a policy")
    makes = _Game if policy is None else functools.partial(_Trial, policy)
    games = [makes(engine, answer, row, messages, thinking) for row, messages in zip(table, conversations, strict=True) for _ in range(n)]
    if policy is not None:
        for game in games:
            game.play(max_turns)  # type: ignore[union-attr]
    settings = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p}
    for turn in range(max_turns if engine is not None else 0):
        assert engine is not None
        prompts = {i: prompt for i, game in enumerate(games) if (prompt := game.prompt()) is not None}
        if not prompts:
            break
        indices = [(*divmod(i, n), turn) for i in prompts]
        samples = engine.sample(list(prompts.values()), max_tokens=max_tokens, seed=seed, _indices=indices, **settings)  # type: ignore[arg-type]
        for i, group in zip(prompts, samples, strict=True):
            games[i].answer(group[0], last=turn + 1 == max_turns)
    episodes = [game.end(own) for game in games]
    failed = [game.error for game in games if game.error is not None]
    if failed:
        warnings.warn(f"{len(failed)} of {len(games)} episodes are unscorable; the first raised:\n{failed[0]}", stacklevel=2)
    return [episodes[i : i + n] for i in range(0, len(episodes), n)]


class _Game:
    """An episode that is being played, by the same Rust code and the same answers as in ``fgrpo train``."""

    def __init__(
        self,
        engine: Engine | None,
        answer: Callable[[Mapping[str, Any]], Any],
        row: Mapping[str, Any],
        messages: list[Message],
        thinking: bool | None,
    ) -> None:
        self.answerer, self.row = answer, row
        self.error: str | None = None
        self.history: list[dict[str, Any]] = []
        self.episode = Episode(messages)
        self.begun: dict[str, Any] = {}
        self.begun = self.ask("begin", messages=messages)
        self.native: _native.Episode | None = None
        if self.error is None and engine is not None:
            self.native = _native.Episode(engine._engine, json.dumps(self.begun), thinking)

    def ask(self, question: str, **more: Any) -> Any:
        """Returns the answer to a question about the episode. The traceback of an exception is stored in ``error``."""
        log = io.StringIO()
        about = {"ask": question, "episode": id(self), "problem": self.row, "history": self.history, "start": self.begun.get("start")}
        said = reply(self.answerer, {"messages": self.episode.messages, **about, **more}, log)
        if "unscorable" in said and log.tell():
            self.error = log.getvalue()
        return said

    def prompt(self) -> list[int] | None:
        return None if self.native is None or self.error is not None else self.native.prompt()

    def answer(self, sample: Sample, last: bool) -> None:
        """Adds the model's turn to the episode, and answers its calls."""
        assert self.native is not None
        heard = self.native.hear(sample.tokens.tolist(), sample.logprobs.tolist(), sample.finish == "length", last)
        if heard is None:
            return
        calls = json.loads(heard)
        answered = self.ask("turn", calls=calls)
        if self.error is None:
            self.history.append({"calls": calls, **answered})
            self.native.go_on(answered["results"])

    def end(self, reward: Callable[..., Any] | None) -> Episode:
        """Ends the episode and grades it."""
        episode, conversation = self.episode, self.finish()
        if self.error is not None:
            episode.finish = "error"
            return episode
        if reward is None:
            said = self.ask("reward", conversation=conversation)
        episode.messages = conversation
        if reward is not None:
            log = io.StringIO()
            said = reply(lambda _: settled(reward(episode, **copy.deepcopy(dict(self.row)))), {}, log)
            self.error = log.getvalue() or None
        episode.reward = said.get("score", float("nan"))
        return episode

    def finish(self) -> list[Message]:
        """Adds the tokens to the episode. Returns the conversation."""
        if self.native is None:
            return self.episode.messages
        messages, self.episode.turns, self.episode.finish, parts, logp = self.native.end()
        logprobs = iter(logp)
        for tokens, places in parts:
            part = Part(np.array(tokens, np.int32), np.zeros(len(tokens), np.bool_), np.zeros(len(tokens), np.float32))
            part.mask[places], part.logprobs[places] = True, list(itertools.islice(logprobs, len(places)))
            self.episode.parts.append(part)
        return list(json.loads(messages))


class _Trial(_Game):
    """An episode in which a function replaces the model."""

    def __init__(self, policy: Callable[..., Any], *about: Any) -> None:
        super().__init__(*about)
        self.policy = policy
        self.messages: list[Message] = list(self.begun.get("messages", []))

    def play(self, max_turns: int) -> None:
        while self.error is None:
            self.episode.turns += 1
            said = self.policy(copy.deepcopy(self.messages))
            if isinstance(said, str):
                self.messages.append({"role": "assistant", "content": said})
                self.episode.finish = "stop"
                return
            calls = [{"name": name, "arguments": json.dumps(arguments), "wrong": None} for name, arguments in said]
            fields = [{"type": "function", "function": {"name": name, "arguments": arguments}} for name, arguments in said]
            self.messages.append({"role": "assistant", "content": "", "tool_calls": fields})
            if self.episode.turns == max_turns:
                return
            answered = self.ask("turn", calls=calls)
            if self.error is None:
                self.history.append({"calls": calls, **answered})
                results = zip(said, answered["results"], strict=True)
                self.messages += [{"role": "tool", "name": name, "content": result} for (name, _), result in results]

    def finish(self) -> list[Message]:
        return self.messages


def _conversation(row: Mapping[str, Any], index: int) -> list[Message]:
    prompt = row.get("prompt")
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    if not isinstance(prompt, Iterable) or not all(isinstance(message, Mapping) for message in prompt):
        raise TypeError(f"rows: row {index}: prompt: expected a text or messages, found {prompt!r}")
    return [dict(message) for message in prompt]
