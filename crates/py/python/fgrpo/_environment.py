"""An environment with tools, and what it answers to the turns of a model. `fgrpo train` runs this file too, without the package."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Union

if __name__ != "__main__":  # a worker has both files in one
    from ._grader import caller, graded, settled

Message = dict[str, Any]
Factory = Union[Callable[[], Any], Mapping[str, Callable[[], Any]]]
NO_TOOLS = ("reset", "get_reward", "reward")
LARGEST_YIELD = 10_000  # values that are read from a generator


class World:
    """The environment of one episode: made by its factory, begun with a row and a conversation, graded by its own reward and by
    ``rewards``, functions as TRL has them."""

    def __init__(
        self, factory: Factory, row: Mapping[str, Any], messages: Iterable[Message], rewards: Sequence[Callable[..., Any]] = ()
    ) -> None:
        self.row = copy.deepcopy(dict(row))
        # The functions may see the row that the environment has changed, and never the caller's.
        begun = dict(self.row)
        if isinstance(factory, Mapping):
            factory = chosen(factory, begun.pop("environment", None))
        self.environment = factory()
        self.rewards = [(getattr(reward, "__name__", type(reward).__name__), caller(reward)) for reward in rewards]
        members = dict(inspect.getmembers(type(self.environment), inspect.isfunction))  # of the class: properties aren't evaluated
        if "reset" not in members:
            raise TypeError(f"{type(self.environment).__name__} has no method reset")
        self.tools = {name: getattr(self.environment, name) for name in members if name not in NO_TOOLS and not name.startswith("_")}
        own = [name for name in ("get_reward", "reward") if name in members][:1]
        self.own_reward = getattr(self.environment, own[0]) if own else None
        observed = text_of(settled(self.environment.reset(**begun)), "reset")
        self.messages = copy.deepcopy([dict(message) for message in messages])
        if observed is not None:
            if self.messages and self.messages[-1]["role"] == "user":
                content = text_of(self.messages[-1]["content"], "prompt") or ""
                self.messages[-1] = {**self.messages[-1], "content": content + observed}
            else:
                self.messages.append({"role": "user", "content": observed})
        if not any(message["content"] for message in self.messages):
            raise ValueError("the row has no prompt and reset returned no text, so the policy has nothing to answer")
        attribute = getattr(self.environment, "__dict__", {}).get("reward")
        if not self.rewards and self.own_reward is None and not isinstance(attribute, (int, float)):
            raise TypeError(f"{type(self.environment).__name__} has no method get_reward (or reward), and no reward function is given")

    def begun(self) -> dict[str, Any]:
        """The conversation, and the tools: their schemas, and in words for a template that knows none."""
        schemas = [tool_schema(method, name) for name, method in self.tools.items()]
        how = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
        head = f"You can call these tools. To call one, write {how}; its result follows.\n"
        return {"messages": self.messages, "tools": schemas, "offer": head + "\n".join(map(json.dumps, schemas))}

    def turn(self, said: str, template: str, last: bool) -> dict[str, Any]:
        """What follows a turn of the model. Its calls are made unless it is the last."""
        calls = find_calls(said, template)
        if not calls or last:
            return {"called": bool(calls), "results": [], "ways": []}
        results = self.results(calls)
        return {"called": True, "results": results, "ways": ways(said, calls, results)}

    def grade(self, conversation: Sequence[Message]) -> Any:
        """The sum of the environment's own reward and of those of the functions, as in TRL."""
        found: dict[str, Any] = {}
        if self.own_reward is not None or not self.rewards:
            found[type(self.environment).__name__] = self._own(conversation)
        # A template without tools got a system message in front.
        first = len(self.messages) + (conversation[0]["role"] == "system" != self.messages[0]["role"])
        said = conversation[-1]["content"]
        lists = {"prompts": [conversation[:first]], "completions": [conversation[first:]], "environments": [self.environment]}
        question = {"problem": self.row, "completion": said, "answer_text": said, "episode": lists}
        found.update((name, call(question)) for name, call in self.rewards)
        if len(found) == 1:
            return next(iter(found.values()))
        grades = {name: graded(value) for name, value in found.items()}
        scores = {name: grade["score"] for name, grade in grades.items() if "score" in grade}
        if not scores:
            return {"score": None, "reason": "; ".join(grade["unscorable"] for grade in grades.values())}
        return {"score": sum(scores.values()), "rewards": scores}

    def _own(self, conversation: Sequence[Message]) -> Any:
        method = self.own_reward
        if method is None:  # an attribute
            return self.environment.reward
        return settled(method(messages=conversation) if "messages" in inspect.signature(method).parameters else method())

    def results(self, calls: Sequence[Call]) -> list[str]:
        """What the tools answer."""
        return [self._result(call) for call in calls]

    def _result(self, call: Call) -> str:
        if call.wrong is not None:
            return f"error: {call.wrong}"
        if call.name not in self.tools:
            return f"error: found the tool {call.name!r}, wanted one of {', '.join(self.tools)}"
        if call.texts:
            # Qwen3.5 writes every argument as a text; the tool says of which type it is.
            properties = tool_schema(self.tools[call.name])["function"]["parameters"]["properties"]
            call.arguments = {key: _typed(text, properties.get(key, {})) for key, text in (call.arguments or {}).items()}
            call.texts = False
        try:
            answer = text_of(settled(self.tools[call.name](**(call.arguments or {}))), call.name)
            return str(answer).encode("utf-8", "replace").decode()
        except (Exception, SystemExit) as error:
            return f"error: {type(error).__name__}: {error}"


def chosen(factories: Mapping[str, Callable[[], Any]], name: Any) -> Callable[[], Any]:
    """The factory that a row names in its column ``environment``."""
    if name not in factories:
        raise ValueError(f"environment: expected one of {', '.join(map(repr, factories))}, found {name!r}")
    return factories[name]


def text_of(value: Any, place: str) -> str | None:
    """The text of what a function returned: a text, ``None``, parts of text as TRL has them, or data. What a generator yields is read.
    An object that isn't data is refused: its text would be an address."""
    if hasattr(value, "__aiter__"):
        value = settled(_read_all(value))
    if isinstance(value, Iterator):
        value = list(itertools.islice(value, LARGEST_YIELD))
        if all(isinstance(piece, str) for piece in value):
            return "".join(value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, Mapping) and "type" in part for part in value):
        kinds = {part["type"] for part in value}
        if kinds == {"text"}:
            return "".join(str(part["text"]) for part in value)
        if kinds & {"image", "image_url", "video", "audio"}:
            raise TypeError(f"{place} returned parts of {', '.join(sorted(kinds))}, and the policy reads text alone")
    _check_data(value, place)
    return str(value)


async def _read_all(pieces: Any) -> Iterator[Any]:
    found: list[Any] = []
    async for piece in pieces:
        found.append(piece)
        if len(found) == LARGEST_YIELD:
            break
    return iter(found)


def _check_data(value: Any, place: str, level: int = 0) -> None:
    kind = type(value)
    if isinstance(value, (dict, list, tuple, set, frozenset)) and level < 64:
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_data(item, place, level + 1)
    elif callable(value) or inspect.ismodule(value) or (kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__) or (
        inspect.isawaitable(value) or isinstance(value, Iterator) or hasattr(value, "__aiter__")
    ):
        raise TypeError(f"{place} returned an object of the class {kind.__name__}, which has no text")


def ways(said: str, calls: Sequence[Call], results: Sequence[str]) -> list[list[Message]]:
    """A turn and its answers as messages: as it was said; for templates that take calls as fields alone; for those that know neither
    calls nor tools."""
    message: Message = {"role": "assistant", "content": said}
    answers = [
        {"role": "tool", "name": call.name or "unknown", "tool_call_id": f"{i:09}", "content": result}
        for i, (call, result) in enumerate(zip(calls, results, strict=True))
    ]
    called = [
        {"id": f"{i:09}", "type": "function", "function": {"name": call.name or "unknown", "arguments": call.arguments or {}}}
        for i, call in enumerate(calls)
    ]
    return [
        [message, *answers],
        [{**message, "content": "", "tool_calls": called}, *answers],
        [message, {"role": "user", "content": "\n".join(results)}],
    ]


def _typed(text: str, schema: Mapping[str, Any]) -> Any:
    if schema.get("type") == "string":
        return text
    try:
        return _read(text)
    except ValueError:
        return text


def _read(text: str) -> Any:
    """The value of a JSON text. What JSON's readers don't agree on is refused: a model can write anything."""
    try:
        value = json.loads(text)
    except RecursionError:
        value = float("nan")
    if not _plain(value):
        raise ValueError("it has half a surrogate pair, a number that is not finite, or too many levels")
    return value


def _plain(value: Any, level: int = 0) -> bool:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return level < 64 and all(_plain(item, level + 1) for item in value)
    if isinstance(value, str):
        return not re.search("[\ud800-\udfff]", value)
    return value is None or abs(value) <= sys.float_info.max


_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object", type(None): "null"}


def _schema(hint: Any) -> dict[str, Any]:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        kinds = [_schema(part) for part in parts if part is not type(None)]
        nullable = {"nullable": True} if len(kinds) < len(parts) else {}
        return {**(kinds[0] if len(kinds) == 1 else {"anyOf": kinds}), **nullable}
    if origin is Literal:
        return {"type": _TYPES.get(type(parts[0]), "string"), "enum": list(parts)}
    schema: dict[str, Any] = {"type": _TYPES.get(origin or hint, "string")}
    if origin is list and parts:
        schema["items"] = _schema(parts[0])
    return schema


def tool_schema(function: Callable[..., Any], called: str | None = None) -> dict[str, Any]:
    """The JSON schema of a tool: types from the hints, texts from the docstring and its section ``Args:``."""
    text = inspect.getdoc(function) or ""
    head, _, rest = text.partition("Args:")
    said: dict[str, str] = {}
    for line in re.split(r"\n\s*(?:Returns|Raises|Yields):", rest)[0].splitlines():
        found = re.match(r"\s*(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line)
        if found:
            said[found[1]] = found[2]
        elif said and line.strip():
            said[list(said)[-1]] += " " + line.strip()
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        properties[name] = {**_schema(hints.get(name, str)), "description": said.get(name, "")}
        if parameter.default is parameter.empty:
            required.append(name)
    described = " ".join(re.split(r"\n\s*(?:Returns|Raises|Yields):", head)[0].split())
    name = called or getattr(function, "__name__", type(function).__name__)
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": described, "parameters": parameters}}


@dataclasses.dataclass
class Call:
    """A call that the model wrote, or what is wrong with it."""

    name: str | None = None
    arguments: dict[str, Any] | None = None
    wrong: str | None = None
    texts: bool = False  # whether the arguments are texts that have no types yet


def find_calls(text: str, template: str) -> list[Call]:
    """The calls in a turn, in the format of the model's template; none of them in its thoughts."""
    if "<think>" in text.rpartition("</think>")[2]:
        return []
    text = text.rpartition("</think>")[2]
    if "[TOOL_CALLS]" in template:
        _, mark, rest = text.partition("[TOOL_CALLS]")
        if not mark:
            return []
        named = re.findall(r"\s*([\w.-]+)\s*\[ARGS\](.*?)(?=\[TOOL_CALLS\]|\Z)", rest, re.S)
        if named:
            return [_call(f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}')[0] for name, arguments in named]
        return _call(rest)
    if "<tool_call>" not in template and ("python_tag" in template or '"parameters":' in template):
        body = text.replace("<|python_tag|>", "").strip()
        return _call(body) if body.startswith(("{", "[")) else []
    calls = []
    read = _tagged if "<function=" in template else _call
    for piece in text.split("<tool_call>")[1:]:
        body, closed, _ = piece.partition("</tool_call>")
        calls += read(body) if closed else [Call(wrong="found <tool_call> without </tool_call>")]
    return calls


def _call(body: str) -> list[Call]:
    try:
        found = _read(body)
    except ValueError as error:
        return [Call(wrong=f"found a call that is not JSON ({error}), wanted an object with name and arguments")]
    calls = []
    for item in found if isinstance(found, list) else [found]:
        inner = item.get("function", item) if isinstance(item, dict) else None
        name = inner.get("name") if isinstance(inner, dict) else None
        arguments = inner.get("arguments", inner.get("parameters", {})) if isinstance(inner, dict) else None
        if isinstance(arguments, str):
            try:
                arguments = _read(arguments)
            except ValueError:
                arguments = None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            calls.append(Call(name if isinstance(name, str) else None, wrong="wanted an object with name (a text) and arguments (an object)"))
        else:
            calls.append(Call(name, arguments))
    return calls


def _tagged(body: str) -> list[Call]:
    """A call of Qwen3.5: ``<function=NAME>``, and ``<parameter=KEY>`` around each value."""
    found = re.fullmatch(r"\s*<function=([^>\n]+)>(.*?)</function>\s*", body, re.S)
    if found is None:
        return [Call(wrong="found a call without <function=NAME> and </function>, wanted both")]
    parameters = re.findall(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", found[2], re.S)
    return [Call(found[1], dict(parameters), texts=True)]


def answering(factory: Factory, rewards: Sequence[Callable[..., Any]] = ()) -> Callable[[Mapping[str, Any]], Any]:
    """What answers the questions about episodes. An environment lives from its episode's beginning to its reward. Where it is gone, as after
    a turn that hung and was killed, the turns so far are played again, and must be answered as they were."""
    live: dict[str, tuple[World, int]] = {}

    def world(question: Mapping[str, Any]) -> World:
        history = question.get("history", [])
        found, turns = live.pop(question["episode"], (None, -1))
        if found is None or turns != len(history) or question["ask"] == "begin":
            found = World(factory, question["problem"], question["messages"], rewards)
            for turn in history:
                if found.results(find_calls(turn["said"], question["template"])) != turn["results"]:
                    raise RuntimeError("the environment answered the same turns otherwise than before: it depends on more than its row")
        return found

    def answer(question: Mapping[str, Any]) -> Any:
        played = world(question)  # it goes back below, unless this question ends the episode
        if question["ask"] == "reward":
            return played.grade(question["conversation"])
        if question["ask"] == "begin":
            live[question["episode"]] = played, 0
            return played.begun()
        turned = played.turn(question["said"], question["template"], question["last"])
        live[question["episode"]] = played, len(question["history"]) + bool(turned["ways"])
        return turned

    return answer
