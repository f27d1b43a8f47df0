"""OpenEnv servers as environments: a game with a custom action, and MCP tools. Needs `openenv` (scripts/wheel/openenv.txt)."""

import contextlib
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

pytest.importorskip("openenv")

import fgrpo  # noqa: E402
import fgrpo.openenv  # noqa: E402

SERVER = """
import sys
import time
import uvicorn
from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State

class Guess(Action):
    '''Guesses a number.'''
    number: int

class Hint(Observation):
    hint: str

class Game(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State(episode_id="game", step_count=0)

    def reset(self, seed=None, episode_id=None, secret=7, **row):
        self.secret = secret
        return Hint(hint=" Guess from 0 to 9.", done=False, reward=None)

    def step(self, action, timeout_s=None, **settings):
        if action.number == 3:
            time.sleep(2)
        if action.number == self.secret:
            return Hint(hint="right", done=True, reward=1.0)
        return Hint(hint="higher" if action.number < self.secret else "lower", done=False, reward=-0.25)

class Tools(MCPEnvironment):
    SUPPORTS_CONCURRENT_SESSIONS = True
    state = State(episode_id="tools", step_count=0)

    def __init__(self):
        mcp = FastMCP("sums")

        @mcp.tool
        def add(a: int, b: int = 0) -> int:
            '''Adds two numbers.'''
            return a + b

        super().__init__(mcp)

    def reset(self, seed=None, episode_id=None, **row):
        return Observation(done=False, reward=None, metadata={"status": "ready"})

    def _step_impl(self, action, timeout_s=None, **settings):
        return Observation(done=False, reward=0.0)

mcp = (Tools, CallToolAction, CallToolObservation)
app = create_app(*(mcp if sys.argv[1] == "tools" else (Game, Guess, Hint)), max_concurrent_envs=64)
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
"""


@contextlib.contextmanager
def started(kind, folder, port=None):
    """Yields the process and the address of a server."""
    program = folder / "server.py"
    program.write_text(SERVER)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = port or free.getsockname()[1]
    process = subprocess.Popen([sys.executable, str(program), kind, str(port)])
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, "the server ended"
                time.sleep(0.1)
        yield process, url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module", params=["game", "tools"])
def server(request, tmp_path_factory):
    """Yields the name and the address of a server."""
    with started(request.param, tmp_path_factory.mktemp("openenv")) as (_, url):
        yield request.param, url


def searches(messages):
    """Guesses 5, then follows the hints, and guesses once more after the game has ended."""
    said = messages[-1]["content"]
    if messages[-1]["role"] == "user":
        return [("guess", {"number": 5})]
    return [("guess", {"number": {"higher": 8, "lower": 7, "right": 7}[said]})] if said in ("higher", "lower", "right") else said


def play(environment, row, policy):
    [[episode]] = fgrpo.play(None, environment, [row], n=1, policy=policy)
    return episode


def test_a_server_is_played_by_its_own_action_or_by_its_tools(server):
    kind, url = server
    environment = fgrpo.openenv.environment(url, tool="guess")
    row = {"prompt": "Play.", "secret": 7}
    if kind == "game":
        episode = play(environment, row, searches)
        assert episode.reward == 1.0 - 2 * 0.25
        assert episode.messages[0]["content"] == "Play. Guess from 0 to 9."
        assert episode.messages[-1]["content"] == "error: RuntimeError: the episode has ended"
        assert play(environment, {**row, "secret": 5}, searches).reward == 1.0, "a column of the row begins the game"
        wrong = play(environment, row, lambda m: [("guess", {"number": "x"})] if m[-1]["role"] == "user" else "Done.")
        assert wrong.messages[2]["content"].startswith("error: ") and wrong.reward == 0.0, "a refused action is no step"
    else:
        script = iter([[("add", {"a": 2, "b": 3})], [("add", {"a": "x"})], [("guess", {"number": 1})], "It is 5."])
        episode = play(environment, row, lambda messages: next(script))
        answers = [m["content"] for m in episode.messages if m["role"] == "tool"]
        assert answers[0] == "5" and "valid integer" in answers[1] and "the tools are add" in answers[2]
        assert episode.reward != episode.reward
        right = fgrpo.play(None, environment, [row], n=1, policy=lambda m: "5", reward=lambda episode, **row: 0.75)
        assert right[0][0].reward == 0.75


@pytest.mark.filterwarnings("ignore:1 of 1 episodes are unscorable")
def test_an_episode_whose_server_is_late_or_dies_has_no_reward(tmp_path):
    with started("game", tmp_path) as (process, url):
        environment = fgrpo.openenv.environment(url, timeout=1.0)
        row = {"prompt": "Play.", "secret": 7}

        def lost(*numbers, between=lambda: None):
            turns = iter(numbers)

            def policy(messages):
                number = next(turns, None)
                if number == 7:
                    between()
                return "Done." if number is None else [("act", {"number": number})]

            return play(environment, row, policy)

        assert lost(5, 7).reward == 0.75
        episode = lost(3, 7)
        assert episode.reward != episode.reward, "a late step"
        assert [m["content"] for m in episode.messages if m["role"] == "tool"] == ["error: TimeoutError: ", "error: RuntimeError: the episode has ended"]
        with contextlib.ExitStack() as servers:

            def restart():
                process.kill()
                process.wait()
                servers.enter_context(started("game", tmp_path, int(url.rpartition(":")[2])))

            episode = lost(5, 7, between=restart)
            assert episode.reward != episode.reward, "the session was lost between two steps"
            assert lost(5, 7).reward == 0.75
        with pytest.raises(OSError):
            environment().reset()


def test_a_server_trains_a_policy_from_a_file(server, bytes_model, tmp_path):
    kind, url = server
    file = tmp_path / "env.py"
    file.write_text(f"import fgrpo.openenv\n\nenvironment = fgrpo.openenv.environment({url!r})\n")
    rows = [{"prompt": f"Row {i}.", "secret": i} for i in range(4)]
    config = {
        "steps": 1,
        "task": {"kind": "python", "environment": f"{file}:environment", "max_turns": 2},
        "model": {"path": str(bytes_model)},
        "rollout": {"prompts": 2, "group_size": 2, "max_new_tokens": 4},
        "eval": {"every": 0},
        "log": {"rollout_share": 1.0},
        "compute": {"threads": 1},
    }
    run = fgrpo.train(config, data=rows, held_out=rows[:1], out=tmp_path / kind)
    assert run.metrics[0]["verdicts"] == {"wrong": 4}, "an untrained policy makes no step, which is worth 0"


def test_an_address_without_a_server_is_an_error():
    with pytest.raises(OSError):
        fgrpo.openenv.environment("http://127.0.0.1:9")


def test_the_reference_is_pinned():
    wanted = (pathlib.Path(__file__).resolve().parents[4] / "scripts/wheel/openenv.txt").read_text()
    import openenv  # noqa: F401
    from importlib.metadata import version

    assert f"openenv=={version('openenv')}" in wanted
