"""Tasks of Harbor as environments of ``fgrpo.train`` and ``fgrpo.play``: one container an episode, a shell as the tool, the task's tests
as the reward. Needs Docker or Podman, and Python 3.11.

``fgrpo.train(config, environment=fgrpo.harbor.environment(), data=fgrpo.harbor.rows("tasks"), out="runs/x")``
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import re
import subprocess
import tempfile
import time
import tomllib
import weakref
from collections.abc import Callable, Mapping
from typing import Any

# The keys of task.toml that are read, and those that don't change an episode. Any other key must be off.
READ = {
    "environment": ("docker_image", "build_timeout_sec", "cpus", "memory_mb", "network_mode", "allow_internet", "env", "workdir", "os"),
    "agent": ("timeout_sec", "user"),
    "verifier": ("timeout_sec", "user", "env", "environment_mode"),
}
WITHOUT_EFFECT = ("schema_version", "version", "task", "metadata", "solution", "source", "artifacts", "storage_mb")
ONLY = {"os": "linux", "environment_mode": "shared"}
TESTS = "/tests/test.sh"
# Files of the reward, with the function that reads each. The first one that exists counts.
REWARDS: dict[str, Callable[[str], Any]] = {"/logs/verifier/reward.json": json.loads, "/logs/verifier/reward.txt": lambda text: {"reward": float(text)}}
# Lines at the beginning of an instruction that mark test data for filters, and empty lines. Harbor doesn't show them either.
CANARY = re.compile(r"\A([^\S\n]*(<!--.*canary.*-->|#.*canary.*)[^\S\n]*(\n|\Z))*([^\S\n]*\n)*", re.IGNORECASE)


def rows(folder: str | os.PathLike[str], runtime: str = "docker") -> list[dict[str, Any]]:
    """Returns one row per task under ``folder``: its instruction as the prompt, its path, and its image (built).

    runtime: the command, ``docker`` or ``podman``.
    Raises ``ValueError`` for a task with steps, several containers, a separate verifier or another setting that isn't supported,
    ``RuntimeError`` if an image can't be built.
    """
    tasks = sorted(path.parent for path in pathlib.Path(folder).rglob("task.toml"))
    if not tasks:
        raise ValueError(f"{folder} contains no task (a folder with task.toml)")
    return [
        {"prompt": CANARY.sub("", (task / "instruction.md").read_text()), "task": str(task.resolve()), "image": _image(task, runtime)}
        for task in tasks
    ]


def environment(runtime: str = "docker", timeout: float = 60.0, longest: int = 10_000) -> type:
    """Returns the class that plays the :func:`rows`. Its tool ``bash`` runs a command in the task's container.

    The reward of an episode is ``reward`` (or the only value) of the tests' ``reward.json``, or without this file the number in ``reward.txt``.
    The episode is unscorable if they write none, if a value isn't a finite number, or if they run longer than the task allows.

    runtime: the command, ``docker`` or ``podman``. timeout: seconds until a command of the policy is killed.
    longest: maximum number of characters of an output; a longer one loses its middle.
    """
    return type("Harbor", (_Container,), {"_runtime": runtime, "_timeout": timeout, "_longest": longest})


class _Container:
    _runtime: str
    _timeout: float
    _longest: int

    def reset(self, task: str, image: str, prompt: Any = None, **row: Any) -> None:
        self._task = pathlib.Path(task)
        settings = _settings(self._task)
        self._verifier, self._agent = settings["verifier"], settings["agent"]
        seconds = self._agent.get("timeout_sec") or 3600.0
        self._deadline = time.monotonic() + seconds
        options = _options(settings["environment"])
        # A container that nobody removes, because this process was killed, ends by itself.
        life = str(math.ceil(seconds + self._verifier.get("timeout_sec", 600.0) + 60))
        name = _run([self._runtime, "run", "--detach", "--rm", "--init", "--label", "fgrpo", *options, image, "sleep", life])
        self._container = name.stdout.split()[-1]
        remove = [self._runtime, "rm", "--force", "--volumes", self._container]
        self._remove = weakref.finalize(self, subprocess.run, remove, capture_output=True)

    def bash(self, command: str) -> str:
        """Runs a command in a shell and returns its output.

        Args:
            command: The command, for bash.
        """
        seconds = min(self._timeout, self._deadline - time.monotonic())
        if seconds <= 0:
            raise TimeoutError("the time of the task is over")
        result = self._shell(["timeout", "-s", "KILL", f"{seconds:.3f}", "bash", "-c", command], seconds + 10, self._agent)
        output = result.stdout
        if len(output) > self._longest:
            half = self._longest // 2
            output = f"{output[:half]}\n[{len(output) - 2 * half} characters left out]\n{output[-half:]}"
        if result.returncode == 137:
            return f"{output}\n[killed after {seconds:.0f} seconds]"
        return output if result.returncode == 0 else f"{output}\n[exit code {result.returncode}]"

    def get_reward(self) -> Any:
        try:
            root = {"user": 0}
            prepared = self._shell(["sh", "-c", f"rm -rf {' '.join(REWARDS)} /tests && mkdir -p /logs/verifier"], 60, root)
            if prepared.returncode != 0:
                raise RuntimeError(f"the container can't be prepared for the tests: {prepared.stdout}")
            _run([self._runtime, "cp", f"{self._task / 'tests'}", f"{self._container}:/tests"])
            self._shell(["chmod", "+x", TESTS], 60, root)
            # A script without a first line `#!` is run by bash.
            tests = self._shell(["bash", "-c", TESTS], self._verifier.get("timeout_sec", 600.0), self._verifier)
            for path, read in REWARDS.items():
                if (text := self._read(path)) is not None:
                    return _reward(text, read)
            return {"score": None, "reason": f"the tests wrote no reward (exit code {tests.returncode}): {tests.stdout[-500:]}"}
        except subprocess.TimeoutExpired as expired:
            return {"score": None, "reason": f"the tests took longer than {expired.timeout:g} seconds"}
        finally:
            self._remove()

    def _shell(self, command: list[str], timeout: float, settings: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
        user = ["--user", str(settings["user"])] if settings.get("user") is not None else []
        variables = _variables(settings.get("env", {}))
        whole = [self._runtime, "exec", *user, *variables, self._container, *command]
        return subprocess.run(whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout)

    def _read(self, path: str) -> str | None:
        with tempfile.TemporaryDirectory() as folder:
            copy = pathlib.Path(folder) / "reward"
            copied = subprocess.run([self._runtime, "cp", f"{self._container}:{path}", str(copy)], capture_output=True)
            # A link would be read on this machine.
            return copy.read_text(errors="replace") if copied.returncode == 0 and copy.is_file() and not copy.is_symlink() else None


def _reward(text: str, read: Callable[[str], Any]) -> Any:
    try:
        values = read(text)
        # Harbor refuses all values if one of them isn't a finite number.
        if isinstance(values, dict) and all(isinstance(value, (int, float)) and math.isfinite(value) for value in values.values()):
            return float(next(iter(values.values())) if len(values) == 1 else values["reward"])
    except (ValueError, KeyError, OverflowError):
        pass
    return {"score": None, "reason": f"the tests wrote {text[:100]!r}, which has no finite reward"}


def _settings(task: pathlib.Path) -> dict[str, Any]:
    """Returns the sections of ``task.toml``. Raises ``ValueError`` if the task needs a feature that isn't supported."""
    text = tomllib.loads((task / "task.toml").read_text())
    sections = {name: text.pop(name, {}) for name in READ}
    for section, values in {"": text, **sections}.items():
        for key, value in values.items():
            place = f"{task}/task.toml: {section}.{key}" if section else f"{task}/task.toml: {key}"
            if key in ONLY and str(value).lower() != ONLY[key]:
                raise ValueError(f"{place} = {value!r} isn't supported; only {ONLY[key]!r} is")
            if value and key not in READ.get(section, ()) and key not in WITHOUT_EFFECT:
                raise ValueError(f"{place} isn't supported")
    for name in ("docker-compose.yaml", "docker-compose.yml"):
        if (task / "environment" / name).exists():
            raise ValueError(f"{task}/environment/{name}: a task of several containers isn't supported")
    if not (task / "tests" / "test.sh").exists():
        raise ValueError(f"{task} has no tests/test.sh")
    return sections


def _options(settings: Mapping[str, Any]) -> list[str]:
    """Returns the options of ``docker run`` for the section ``[environment]``."""
    network = settings.get("network_mode") or ("public" if settings.get("allow_internet", True) else "no-network")
    if network not in ("public", "no-network"):
        raise ValueError(f"environment.network_mode = {network!r} isn't supported; expected 'public' or 'no-network'")
    options = ["--network", "none"] if network == "no-network" else []
    if settings.get("cpus"):
        options += ["--cpus", str(settings["cpus"])]
    if settings.get("memory_mb"):
        options += ["--memory", f"{settings['memory_mb']}m"]
    if settings.get("workdir"):
        options += ["--workdir", settings["workdir"]]
    return options + _variables(settings.get("env", {}))


def _variables(env: Mapping[str, str]) -> list[str]:
    """Returns environment variables as options. ``${NAME}`` and ``${NAME:-default}`` are read from this process."""

    def value(found: re.Match[str]) -> str:
        name, default = found.groups()
        if name not in os.environ and default is None:
            raise ValueError(f"task.toml reads the environment variable {name}, which isn't set")
        return os.environ.get(name, default)

    filled = {name: re.sub(r"\$\{(\w+)(?::-([^}]*))?\}", value, text) for name, text in env.items()}
    return [part for name, text in filled.items() for part in ("--env", f"{name}={text}")]


def _image(task: pathlib.Path, runtime: str) -> str:
    settings = _settings(task)["environment"]
    _options(settings)
    if "docker_image" in settings:
        return str(settings["docker_image"])
    build = [runtime, "build", "--quiet", str(task / "environment")]
    return _run(build, settings.get("build_timeout_sec", 600.0)).stdout.split()[-1]


def _run(command: list[str], timeout: float = 600.0) -> subprocess.CompletedProcess[str]:
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout)
    except FileNotFoundError:
        raise RuntimeError(f"the command {command[0]} isn't installed; name another with runtime=") from None
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {(result.stderr or result.stdout).strip()[-2000:]}")
    return result
