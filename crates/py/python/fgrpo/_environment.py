"""An environment with tools, and what it answers to the turns of a model. `fgrpo train` runs this file too, without the package."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

Message = dict[str, Any]


class World:
    """The environment of one episode: made by ``factory``, begun with a row and a conversation."""

    def __init__(self, factory: Callable[[], Any], row: Mapping[str, Any], messages: list[Message]) -> None:
        self.environment = factory()
        self.tools = {name: method for name, method in _methods(self.environment)}
        observed = self.environment.reset(**row)
        self.messages = messages
        if observed is not None:
            if messages and messages[-1]["role"] == "user":
                messages[-1] = {**messages[-1], "content": messages[-1]["content"] + str(observed)}
            else:
                messages.append({"role": "user", "content": str(observed)})

    def begun(self) -> dict[str, Any]:
        """The conversation, and the tools: their schemas, and in words for a template that knows none."""
        schemas = [tool_schema(method) for method in self.tools.values()]
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

    def reward(self, messages: list[Message]) -> Any:
        """Its ``reward()``, which may ask for the conversation as ``messages``."""
        method = self.environment.reward
        return method(messages=messages) if "messages" in inspect.signature(method).parameters else method()

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
            return str(self.tools[call.name](**(call.arguments or {}))).encode("utf-8", "replace").decode()
        except Exception as error:
            return f"error: {type(error).__name__}: {error}"


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


def _methods(environment: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, method in inspect.getmembers(environment, inspect.ismethod):
        if not name.startswith("_") and name not in ("reset", "reward"):
            yield name, method


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


def tool_schema(function: Callable[..., Any]) -> dict[str, Any]:
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
        properties[name] = {**_schema(hints.get(name, str)), "description": said.get(name, "")}
        if parameter.default is parameter.empty:
            required.append(name)
    described = " ".join(re.split(r"\n\s*(?:Returns|Raises|Yields):", head)[0].split())
    name = getattr(function, "__name__", type(function).__name__)
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


def answering(factory: Callable[[], Any]) -> Callable[[Mapping[str, Any]], Any]:
    """What answers the questions about episodes. An environment lives from its episode's beginning to its reward. Where it is gone, as after
    a turn that hung and was killed, the turns so far are played again, and must be answered as they were."""
    live: dict[str, tuple[World, int]] = {}

    def world(question: Mapping[str, Any]) -> World:
        history = question.get("history", [])
        found, turns = live.pop(question["episode"], (None, -1))
        if found is None or turns != len(history) or question["ask"] == "begin":
            found = World(factory, question["problem"], [dict(message) for message in question["messages"]])
            for turn in history:
                if found.results(find_calls(turn["said"], question["template"])) != turn["results"]:
                    raise RuntimeError("the environment answered the same turns otherwise than before: it depends on more than its row")
        return found

    def answer(question: Mapping[str, Any]) -> Any:
        played = world(question)  # it goes back below, unless this question ends the episode
        if question["ask"] == "reward":
            return played.reward(question["conversation"])
        if question["ask"] == "begin":
            if not callable(getattr(played.environment, "reward", None)):
                raise TypeError(f"{type(played.environment).__name__} has no method reward")
            live[question["episode"]] = played, 0
            return played.begun()
        turned = played.turn(question["said"], question["template"], question["last"])
        live[question["episode"]] = played, len(question["history"]) + bool(turned["ways"])
        return turned

    return answer
