"""Environments with tools, and their answers to the turns of a model. `fgrpo train` also runs this file, without the package."""

from __future__ import annotations

import copy
import hashlib
import inspect
import itertools
import json
import re
import threading
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Union

if __name__ != "__main__":  # in a worker process both files are one script
    from ._grader import caller, graded, settled

Message = dict[str, Any]
Factory = Union[Callable[[], Any], Mapping[str, Callable[[], Any]]]
NO_TOOLS = ("reset", "get_reward", "reward")
LOOKING_BACK = ("messages", "completion")  # arguments of methods that are called after the last turn
LARGEST_YIELD = 10_000  # maximum number of values that are read from a generator


class World:
    """The environment of one episode. It is made by ``factory``, starts with a row and a conversation, and is graded by its reward
    method and by ``rewards``, functions with TRL's signature."""

    def __init__(
        self, factory: Factory, row: Mapping[str, Any], messages: Iterable[Message], rewards: Sequence[Callable[..., Any]] = ()
    ) -> None:
        self.row = copy.deepcopy(dict(row))
        # Reward functions see the environment's changes of the row. The caller's row never changes.
        begun = dict(self.row)
        if isinstance(factory, Mapping):
            factory = chosen(factory, begun.pop("environment", None))
        self.environment = factory()
        self.rewards = [(getattr(reward, "__name__", type(reward).__name__), caller(reward)) for reward in rewards]
        members = dict(inspect.getmembers(type(self.environment), inspect.isfunction))  # of the class, so that properties aren't evaluated
        if "reset" not in members:
            raise TypeError(f"{type(self.environment).__name__} has no method reset")
        self.tools = {name: getattr(self.environment, name) for name in members if name not in NO_TOOLS and not name.startswith("_")}
        # A method `feedback` with other arguments is a tool.
        remarks = "feedback" in self.tools and set(inspect.signature(self.tools["feedback"]).parameters) <= set(LOOKING_BACK)
        self.own_feedback = self.tools.pop("feedback") if remarks else None
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
        attribute = inspect.getattr_static(self.environment, "reward", None)
        if not self.rewards and self.own_reward is None and not isinstance(attribute, typing.SupportsFloat):
            raise TypeError(f"{type(self.environment).__name__} has no method get_reward (or reward), and no reward function is given")

    def begun(self) -> dict[str, Any]:
        """Returns the conversation, the schemas of the tools, a description of the tools for templates without tools, and ``start``, a hash
        that is the same in another environment with the same conversation and tools."""
        schemas = [tool_schema(method, name) for name, method in self.tools.items()]
        how = '<tool_call>{"name": ..., "arguments": {...}}</tool_call>'
        head = f"You can call these tools. To call one, write {how}; its result follows.\n"
        # The schema of the result is in Transformers' form of a tool, but of no use for a call.
        called = ({key: value for key, value in schema["function"].items() if key != "return"} for schema in schemas)
        offer = head + "\n".join(json.dumps({"type": "function", "function": function}) for function in called)
        start = hashlib.sha256(repr([self.messages, schemas]).encode()).hexdigest()
        return {"messages": self.messages, "tools": schemas, "offer": offer, "feedback": self.own_feedback is not None, "start": start}

    def grade(self, conversation: Sequence[Message]) -> Any:
        """Grades the episode: the sum of the environment's reward and the functions' rewards, as in TRL."""
        found: dict[str, Any] = {}
        first = self._first(conversation)
        if self.own_reward is not None:
            found[type(self.environment).__name__] = self._look_back(self.own_reward, conversation)
        elif not self.rewards:
            found[type(self.environment).__name__] = self.environment.reward  # an attribute
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

    def feedback(self, conversation: Sequence[Message]) -> str:
        """Returns what the environment says about the episode, for ``teacher.hint``."""
        name = type(self.environment).__name__
        if self.own_feedback is None:
            raise TypeError(f"{name} has no method feedback(self), which {{feedback}} in teacher.hint requires")
        said = self._look_back(self.own_feedback, conversation)
        if not isinstance(said, str):
            raise TypeError(f"{name}.feedback returned {said!r}; it must return a string, which may be empty")
        return said.encode("utf-8", "replace").decode()

    def _first(self, conversation: Sequence[Message]) -> int:
        # If the template has no tools, the conversation starts with an added system message.
        return len(self.messages) + (conversation[0]["role"] == "system" != self.messages[0]["role"])

    def _look_back(self, method: Callable[..., Any], conversation: Sequence[Message]) -> Any:
        values = dict(zip(LOOKING_BACK, (conversation, conversation[self._first(conversation) :]), strict=True))
        asked = inspect.signature(method).parameters
        return settled(method(**{name: value for name, value in values.items() if name in asked}))

    def results(self, calls: Sequence[Mapping[str, Any]]) -> list[str]:
        """Returns the tools' answers to calls. A call has a name, arguments as JSON, and a description of its error, if any."""
        return [self._result(**call) for call in calls]

    def _result(self, name: str | None, arguments: str, wrong: str | None) -> str:
        if name is not None and name not in self.tools:
            return f"error: unknown tool {name!r}; the tools are {', '.join(self.tools)}"
        if wrong is not None or name is None:
            return f"error: {wrong}"
        try:
            answer = text_of(settled(self.tools[name](**json.loads(arguments))), name)
            return str(answer).encode("utf-8", "replace").decode()
        except BaseException as error:
            # Ctrl-C reaches only the main thread of the user's process, not a worker process or the thread of a run.
            if isinstance(error, KeyboardInterrupt) and __name__ != "__main__" and threading.current_thread() is threading.main_thread():
                raise
            return f"error: {type(error).__name__}: {error}"


def chosen(factories: Mapping[str, Callable[[], Any]], name: Any) -> Callable[[], Any]:
    """Returns the factory that a row names in its column ``environment``."""
    if name not in factories:
        raise ValueError(f"environment: expected one of {', '.join(map(repr, factories))}, found {name!r}")
    return factories[name]


def text_of(value: Any, place: str) -> str | None:
    """Converts the result of a function to a string: a string, ``None``, a list of text parts as in TRL, or data. A generator is read.
    Raises ``TypeError`` for other objects, because their string would be an address."""
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


_TYPES = {
    str: "string", int: "integer", float: "number", bool: "boolean", list: "array", tuple: "array", dict: "object", type(None): "null"
}  # fmt: skip


def _schema(hint: Any) -> dict[str, Any]:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if origin in (typing.Union, types.UnionType):
        schemas = [_schema(part) for part in parts if part is not type(None)]
        kinds = [schema.get("type") for schema in schemas]
        whole = {"type": sorted(kinds)} if all(isinstance(kind, str) for kind in kinds) else {"anyOf": schemas}
        return {**(schemas[0] if len(schemas) == 1 else whole), **({"nullable": True} if len(schemas) < len(parts) else {})}
    if origin is Literal:
        kinds = list(dict.fromkeys(_TYPES.get(type(part), "string") for part in parts))
        return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(parts)}
    schema: dict[str, Any] = {"type": _TYPES.get(origin or hint, "object")}
    if origin is list and parts:
        schema["items"] = _schema(parts[0])
    elif origin is tuple and parts and ... not in parts:
        schema["prefixItems"] = [_schema(part) for part in parts]
    elif origin is dict and parts:
        schema["additionalProperties"] = _schema(parts[1])
    return schema


def tool_schema(function: Callable[..., Any], called: str | None = None) -> dict[str, Any]:
    """Returns the JSON schema of a tool: its attribute ``json_schema``, or else that of ``get_json_schema`` in Transformers, from type
    hints and the docstring with its sections ``Args:`` and ``Returns:``. Unlike there, an argument may lack a hint or a description."""
    if hasattr(function, "json_schema"):
        return function.json_schema
    text = inspect.getdoc(function) or ""
    sections = re.split(r"(?:^|\s)\s*(Args|Returns|Raises|Yields):", text)
    section = dict(zip(sections[1::2], sections[2::2], strict=True))
    said: dict[str, str] = {}
    for line in section.get("Args", "").splitlines():
        found = re.match(r"\s*(\w+)\s*(?:\([^)]*\))?:\s*(.*)", line)
        if found:
            said[found[1]] = found[2].strip()
        elif said and line.strip():
            said[list(said)[-1]] += " " + line.strip()
    hints = typing.get_type_hints(function)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        schema, description = _schema(hints.get(name, str)), said.get(name, "")
        if choices := re.search(r"\(choices:\s*(.*?)\)\s*$", description, re.IGNORECASE):
            schema["enum"] = [choice.strip() for choice in json.loads(choices[1])]
            description = description[: choices.start()].strip()
        properties[name] = {**schema, "description": description}
        if parameter.default is parameter.empty:
            required.append(name)
    parameters = {"type": "object", "properties": properties, **({"required": required} if required else {})}
    name = called or getattr(function, "__name__", type(function).__name__)
    described: dict[str, Any] = {"name": name, "description": sections[0].strip(), "parameters": parameters}
    if "return" in hints:
        described["return"] = _schema(hints["return"])
        if "Returns" in section:
            described["return"]["description"] = section["Returns"].strip()
    return {"type": "function", "function": described}


def tool_method(name: str, description: str, parameters: Mapping[str, Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method for the class of an environment: a tool with a given schema, which calls ``call(environment, **arguments)``.

    Raises ``ValueError`` for a name that a policy can't call.
    """
    if name in NO_TOOLS or name.startswith("_"):
        raise ValueError(f"a policy can't call a tool named {name!r}; rename it")

    def method(self: Any, **arguments: Any) -> Any:
        return call(self, **arguments)

    function = {"name": name, "description": description, "parameters": parameters}
    method.json_schema = {"type": "function", "function": function}  # type: ignore[attr-defined]
    return method


def answering(factory: Factory, rewards: Sequence[Callable[..., Any]] = ()) -> Callable[[Mapping[str, Any]], Any]:
    """Returns a function that answers questions about episodes. An environment lives from the beginning of its episode to the reward. If
    it is lost, for example because a turn hung and the process was killed, the turns so far are played again. An error is raised if the
    first messages, the tools or the answers differ."""
    live: dict[str, tuple[World, int]] = {}

    def world(question: Mapping[str, Any]) -> World:
        history = question.get("history", [])
        found, turns = live.pop(question["episode"], (None, -1))
        if found is None or turns != len(history) or question["ask"] == "begin":
            found = World(factory, question["problem"], question["messages"], rewards)
            same = question["ask"] == "begin" or found.begun()["start"] == question["start"]
            if not same or any(found.results(turn["calls"]) != turn["results"] for turn in history):
                raise RuntimeError("its environment was lost, and a new one differs because it depends on more than the row")
        return found

    def answer(question: Mapping[str, Any]) -> Any:
        played = world(question)  # stored again below, unless this question ends the episode
        if question["ask"] == "reward":
            grade = graded(played.grade(question["conversation"]))
            if question.get("feedback") and "score" in grade:
                grade["feedback"] = played.feedback(question["conversation"])
            return grade
        if question["ask"] == "begin":
            live[question["episode"]] = played, 0
            return played.begun()
        results = played.results(question["calls"])
        live[question["episode"]] = played, len(question["history"]) + 1
        return {"results": results}

    return answer
