"""Environments on OpenEnv servers, for ``fgrpo.train`` and ``fgrpo.play``. Requires the package ``openenv``.

``environment = fgrpo.openenv.environment("http://localhost:8000")`` in ``env.py``, then ``task.environment = "env.py:environment"``.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping
from typing import Any

from openenv.core import GenericEnvClient

from ._environment import tool_method

HIDDEN = {"metadata", "done", "reward"}  # fields of observations that the policy doesn't get


def environment(url: str, tool: str = "act", timeout: float = 60.0) -> type:
    """Returns a class whose instances are sessions of the OpenEnv server at ``url``.

    If the server has MCP tools (``CallToolAction``), the policy gets them. Otherwise it gets one tool, called ``tool``, whose
    arguments are the fields of the server's action. All columns of a row except ``prompt`` are passed to the server's ``reset``. An
    observation with a single field that is a string becomes that string; any other observation becomes JSON.

    The reward of an episode is the sum of the rewards of its steps: 0 if it has no step, unscorable if no step has a reward or the server
    didn't answer a step within ``timeout``. After the step that ends the episode (``done``) every call is answered with an error.

    timeout: maximum time for the server's answer to a message, in seconds.
    Raises ``OSError`` if the server doesn't answer, and ``ValueError`` if a tool is named ``reset``, ``reward`` or ``get_reward``.
    """
    with urllib.request.urlopen(f"{url.rstrip('/')}/schema", timeout=timeout) as answer:
        action = json.load(answer)["action"]
    members: dict[str, Any] = {"_url": url, "_timeout": timeout}
    if "tool_name" in action["properties"]:
        with GenericEnvClient(base_url=url, message_timeout_s=timeout).sync() as client:
            tools = client.step({"type": "list_tools"}).observation["tools"]
        for listed in tools:
            name, schema = listed["name"], listed.get("input_schema") or listed.get("inputSchema")
            members[name] = _tool(name, listed.get("description") or "", schema, {"type": "call_tool", "tool_name": name})
    else:
        fields = {name: field for name, field in action["properties"].items() if name != "metadata"}
        members[tool] = _tool(tool, action.get("description") or "", {**action, "properties": fields}, None)
    return type("OpenEnv", (_Session,), members)


def _tool(name: str, description: str, parameters: Mapping[str, Any], action: Mapping[str, Any] | None) -> Any:
    def call(self: _Session, **arguments: Any) -> str | None:
        return self._step(arguments if action is None else {**action, "arguments": arguments})

    return tool_method(name, " ".join(description.split()), parameters, call)


class _Session:
    _url: str
    _timeout: float

    def reset(self, prompt: Any = None, **row: Any) -> str | None:
        self._rewards: list[float | None] = []  # of each step
        self._done = self._lost = False
        self._session = GenericEnvClient(base_url=self._url, message_timeout_s=self._timeout)
        self._client = self._session.sync()
        self._client.connect()
        observed = self._client.reset(**row).observation
        self._socket = self._session._ws
        return _text(observed)

    def _step(self, action: Mapping[str, Any]) -> str | None:
        if self._done or self._lost:
            raise RuntimeError("the episode has ended")
        try:
            result = self._client.step(dict(action))
        except Exception as error:
            self._lost = not isinstance(error, RuntimeError)  # which is an error message of the server
            raise
        finally:
            # After a failure the client connects again, to another session, in which no episode has begun.
            self._lost |= self._session._ws is not self._socket
        self._done = result.done
        self._rewards.append(result.reward)
        return _text(result.observation)

    def get_reward(self) -> Any:
        self._client.close()
        if self._lost:
            raise ConnectionError("the server didn't answer a step of the episode, or ended its session")
        given = [float(reward) for reward in self._rewards if reward is not None]
        if self._rewards and not given:
            return {"score": None, "reason": "no step of the episode has a reward"}
        return sum(given)

    def __del__(self) -> None:
        if hasattr(self, "_client"):
            self._client.close()


def _text(observation: Mapping[str, Any]) -> str | None:
    fields = {name: value for name, value in observation.items() if name not in HIDDEN and value not in (None, "", [], {})}
    if "tool_name" in fields:  # the answer of an MCP tool
        if "error" in fields:
            raise RuntimeError(fields["error"].get("message", fields["error"]))
        result = fields.get("result")
        fields = {"result": result.get("data", result) if isinstance(result, Mapping) else result}
    if not fields:
        return None
    only = next(iter(fields.values())) if len(fields) == 1 else fields
    return only if isinstance(only, str) else json.dumps(only, ensure_ascii=False)
