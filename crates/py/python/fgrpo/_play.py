"""Episodes: a policy that talks to an environment and calls its tools."""

from __future__ import annotations

import dataclasses
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ._engine import Datum, Engine, Sample
from ._environment import Message, World, find_calls, ways

Finish = Literal["stop", "length", "turns", "error"]


@dataclasses.dataclass(eq=False)
class Part:
    """A sequence of an episode: tokens int32 ``(T,)``, whether each was sampled, and the log-probabilities of those (else 0)."""

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]


@dataclasses.dataclass(eq=False)
class Episode:
    """One conversation with an environment.

    tokens, mask, logprobs: ``(T,)``; ``mask`` is true for the tokens that the model sampled. turns: of the model. reward: NaN if the
    environment or the reward failed. finish: ``"stop"`` (the model answered without a call), ``"length"`` (a turn or the model's
    positions ended), ``"turns"`` or ``"error"``. messages: the conversation. parts: more than one if the template rewrites earlier
    turns, as when it cuts thoughts from the history; ``tokens``, ``mask`` and ``logprobs`` are the last one's.
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
        """The episode for :meth:`Engine.forward_backward`: every trained token is one that was sampled. Nothing of an unscorable one."""
        if np.isnan(self.reward):
            return []
        return [
            Datum(tokens=part.tokens, mask=part.mask, logprobs=part.logprobs, advantages=advantage) for part in self.parts if part.mask.any()
        ]


def play(
    engine: Engine,
    factory: Callable[[], Any],
    rows: Iterable[Mapping[str, Any]],
    n: int = 8,
    max_turns: int = 8,
    max_tokens: int = 512,
    *,
    reward: Callable[..., float] | None = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    thinking: bool | None = None,
    seed: int | None = None,
) -> list[list[Episode]]:
    """Plays ``n`` episodes of each row; they are the row's group.

    factory: makes an environment, as TRL's ``environment_factory``. Its ``reset(**row)`` returns a text, which is appended to the
        conversation's last user message, or nothing. Its other public methods, with type hints and docstrings, are the tools; what a call
        returns or raises is the tool's answer, and so is what is wrong with a malformed call.
    rows: each with the conversation in ``prompt`` (a text or messages) unless ``reset`` gives all of it.
    max_turns: of the model. max_tokens: of each turn.
    reward: called as ``reward(episode, **row)``; without it the environment's ``reward()``, or ``reward(messages)`` of the conversation.

    An episode follows from the seed, its row's and its own index, and the environment. A turn has only its new tokens computed, and
    nothing that was sampled is encoded again.
    """
    for name, number in (("n", n), ("max_turns", max_turns), ("max_tokens", max_tokens)):
        if number < 1:
            raise ValueError(f"{name}: found {number}, wanted at least 1")
    table = rows.to_dict("records") if hasattr(rows, "to_dict") and hasattr(rows, "columns") else list(rows)
    games = [_Game(engine, factory, row, index, thinking) for index, row in enumerate(table) for _ in range(n)]
    settings = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "min_p": min_p}
    for turn in range(max_turns):
        active = [i for i, game in enumerate(games) if game.prompt is not None]
        if not active:
            break
        prompts = [games[i].prompt for i in active]
        indices = [i * max_turns + turn for i in active]
        samples = engine.sample(prompts, max_tokens=max_tokens, seed=seed, _indices=indices, **settings)  # type: ignore[arg-type]
        for i, group in zip(active, samples, strict=True):
            games[i].answer(group[0], last=turn + 1 == max_turns)
    for game in games:
        game.grade(reward)
    failed = [game.error for game in games if game.error is not None]
    if failed:
        warnings.warn(f"{len(failed)} of {len(games)} episodes are unscorable; the first raised:\n{failed[0]}", stacklevel=2)
    episodes = [game.episode for game in games]
    return [episodes[i : i + n] for i in range(0, len(episodes), n)]


class _Game:
    """An episode that is being played."""

    def __init__(self, engine: Engine, factory: Callable[[], Any], row: Mapping[str, Any], index: int, thinking: bool | None) -> None:
        self.engine, self.row, self.thinking = engine, row, thinking
        self.error: str | None = None
        self.prompt: npt.NDArray[np.int32] | None = None
        self.text = ""
        messages = _conversation(row, index)
        self.episode = Episode(messages)
        try:
            self.world = World(factory, row, messages)
        except Exception:
            self.fail()
            return
        if not messages:
            raise ValueError(f"rows[{index}]: found no prompt, and no text from reset; wanted one of them")
        self.schemas = self.world.schemas
        template = engine.tokenizer.template or ""
        if self.schemas and "tools" not in template:
            # A template that knows no tools has them in its system message, or in the first message if it knows none of those either.
            offer, self.schemas = self.world.offer, []
            if messages[0]["role"] != "system":
                try:
                    self.render([{"role": "system", "content": offer}, *messages])
                    messages.insert(0, {"role": "system", "content": ""})
                except ValueError:
                    pass
            messages[0] = {**messages[0], "content": f"{messages[0]['content']}\n\n{offer}".strip()}
        self.begin(self.render(messages))

    def render(self, messages: Sequence[Message]) -> str:
        return self.engine.tokenizer.render(messages, tools=self.schemas, thinking=self.thinking)

    def begin(self, text: str) -> None:
        """Starts a sequence with a conversation of which nothing is trained."""
        tokens = np.array(self.engine.tokenizer.encode(text), dtype=np.int32)
        self.episode.parts.append(Part(tokens, np.zeros(tokens.size, np.bool_), np.zeros(tokens.size, np.float32)))
        self.text = text
        self.ask()

    def ask(self) -> None:
        self.prompt = self.episode.tokens
        if self.prompt.size >= self.engine.positions:
            self.end("length")

    def append(self, tokens: npt.NDArray[Any], sampled: bool, logprobs: npt.NDArray[np.float32]) -> None:
        part = self.episode.parts[-1]
        part.tokens = np.concatenate([part.tokens, tokens.astype(np.int32)])
        part.mask = np.concatenate([part.mask, np.full(tokens.size, sampled)])
        part.logprobs = np.concatenate([part.logprobs, logprobs])

    def end(self, finish: Finish) -> None:
        self.prompt, self.episode.finish = None, finish

    def fail(self) -> None:
        self.error = traceback.format_exc()
        self.end("error")

    def answer(self, sample: Sample, last: bool) -> None:
        """Takes the model's turn, and answers its calls."""
        tokenizer, episode = self.engine.tokenizer, self.episode
        self.append(sample.tokens, True, sample.logprobs)
        episode.turns += 1
        ended = sample.tokens.size > 0 and int(sample.tokens[-1]) in tokenizer.stop_tokens
        said = tokenizer.decode(sample.tokens[: -1 if ended else None], special=True)
        # Where the template opens the thoughts, the turn begins in them: no call in them is made.
        _, mark, space = self.text.rpartition("<think>")
        if mark and not space.strip():
            said = mark + space + said
        self.text += tokenizer.decode(sample.tokens, special=True)
        calls = find_calls(said, tokenizer.template or "") if sample.finish == "stop" else []
        if not calls or last:
            episode.messages.append({"role": "assistant", "content": said})
            self.end("length" if sample.finish == "length" else "turns" if calls else "stop")
            return
        try:
            results = self.world.results(calls)
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            self.fail()
            return
        forms = ways(said, calls, results)
        for way in forms:
            try:
                text = self.render([*episode.messages, *way])
                break
            except ValueError:
                if way is forms[-1]:
                    raise
        episode.messages += way
        if not text.startswith(self.text):
            self.begin(text)
            return
        tokens = np.array(tokenizer.encode(text[len(self.text) :]), dtype=np.int32)
        self.append(tokens, False, np.zeros(tokens.size, np.float32))
        self.text = text
        self.ask()

    def grade(self, reward: Callable[..., float] | None) -> None:
        if self.error is not None:
            return
        try:
            found = reward(self.episode, **self.row) if reward is not None else self.world.reward(self.episode.messages)
            self.episode.reward = float("nan") if found is None else float(found)
        except Exception:
            self.error = traceback.format_exc()


def _conversation(row: Mapping[str, Any], index: int) -> list[Message]:
    if not isinstance(row, Mapping):
        raise TypeError(f"rows[{index}]: found {type(row).__name__}, wanted a dict")
    prompt = row.get("prompt")
    if prompt is None:
        return []
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [dict(message) for message in prompt]
