"""Tasks of Harbor in real containers. Needs Docker or Podman, and the static programs of Debian's busybox-static and bash-static: the images
are made of them, without a registry."""

import pathlib
import shutil
import subprocess
import textwrap

import pytest

tomllib = pytest.importorskip("tomllib")

import fgrpo  # noqa: E402
import fgrpo.harbor  # noqa: E402

PROGRAMS = [pathlib.Path("/bin/busybox"), pathlib.Path("/bin/bash-static")]


def works(runtime):
    return shutil.which(runtime) is not None and subprocess.run([runtime, "ps"], capture_output=True).returncode == 0


RUNTIME = next(filter(works, ("docker", "podman")), None)
contained = pytest.mark.skipif(
    RUNTIME is None or not all(map(pathlib.Path.exists, PROGRAMS)), reason="needs Docker or Podman, busybox-static and bash-static"
)
DOCKERFILE = """
    FROM scratch
    COPY busybox /bin/busybox
    COPY bash-static /bin/bash
    RUN ["/bin/busybox", "--install", "/bin"]
    WORKDIR /app
"""
TESTS = """
    ls /logs/verifier
    test "$(cat /app/hello.txt)" = "Hello $WHO" && echo 0.5 > /logs/verifier/reward.txt
    true
"""
SETTINGS = """
    schema_version = "1.3"
    metadata = { difficulty = "easy" }
    environment = { network_mode = "no-network", env = { WHO = "world" }, storage_mb = 100 }
    verifier = { timeout_sec = 5 }
    agent = { timeout_sec = 60 }
"""


def task(folder, tests=TESTS, settings=SETTINGS, dockerfile=DOCKERFILE):
    (folder / "environment").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "instruction.md").write_text("Write hello.txt.")
    (folder / "task.toml").write_text(textwrap.dedent(settings))
    (folder / "environment" / "Dockerfile").write_text(textwrap.dedent(dockerfile))
    (folder / "tests" / "test.sh").write_text(textwrap.dedent(tests))
    for program in PROGRAMS:
        if program.exists():
            shutil.copy(program, folder / "environment")
    return folder


def play(folder, *commands, **settings):
    """An episode of the task in ``folder``, and the answers to these commands."""
    [row] = fgrpo.harbor.rows(folder, RUNTIME)
    turns = iter([[("bash", {"command": command})] for command in commands] + ["Done."])
    environment = fgrpo.harbor.environment(RUNTIME, **settings)
    [[episode]] = fgrpo.play(None, environment, [row], n=1, policy=lambda messages: next(turns))
    return episode, [message["content"] for message in episode.messages if message["role"] == "tool"]


@contained
def test_a_shell_is_the_tool_and_the_tests_give_the_reward(tmp_path):
    folder = task(tmp_path / "hello")
    episode, answers = play(folder, "pwd; ls /tests", "echo Hello $WHO > hello.txt", "seq 10000; exit 3", longest=20)
    assert episode.messages[0]["content"] == "Write hello.txt."
    assert answers[0].startswith("/app\n") and "[exit code 1]" in answers[0], "the tests aren't there yet"
    assert answers[1] == ""
    assert answers[2].startswith("1\n2\n3") and "characters left out" in answers[2] and answers[2].endswith("[exit code 3]")
    assert episode.reward == 0.5
    assert play(folder)[0].reward != play(folder)[0].reward, "no reward is no 0"
    left = subprocess.run([RUNTIME, "ps", "--all", "--quiet", "--filter", "label=fgrpo"], capture_output=True, text=True).stdout
    assert left == "", "no container is left"


@contained
def test_a_policy_that_writes_its_reward_or_its_tests_earns_nothing(tmp_path):
    cheat = "mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo 'echo 1 > /logs/verifier/reward.txt' > /tests/test.sh"
    assert play(task(tmp_path / "cheat"), cheat)[0].reward != 1.0
    link = "mkdir -p /logs/verifier; ln -s /etc/hostname /logs/verifier/reward.json; ln -s /app /tests"
    assert play(task(tmp_path / "link"), link)[0].reward != 1.0


@contained
@pytest.mark.parametrize(
    "tests, reward",
    [
        ("echo '{\"reward\": 0.25, \"style\": 1}' > /logs/verifier/reward.json", 0.25),
        ("echo '{\"score\": true}' > /logs/verifier/reward.json", 1.0),
        ("echo '{\"a\": 1, \"b\": 1}' > /logs/verifier/reward.json", None),
        ("echo nan > /logs/verifier/reward.txt", None),
        ("echo NaN > /logs/verifier/reward.json", None),
        ("echo '{\"reward\": 1, \"note\": \"x\"}' > /logs/verifier/reward.json", None),
        ("echo 1 > /logs/verifier/reward.json", None),
        ("echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 0.25}' > /logs/verifier/reward.json", 0.25),
        ("echo .50 > /logs/verifier/reward.txt", 0.5),
        ("echo +1. > /logs/verifier/reward.txt", 1.0),
        ("#!/bin/bash -e\nfalse\necho 1 > /logs/verifier/reward.txt", None),
        ("#!/bin/awk -f\nBEGIN { print 0.75 > \"/logs/verifier/reward.txt\" }", 0.75),
        ("sleep 60", None),
    ],
)
def test_rewards(tmp_path, tests, reward):
    found = play(task(tmp_path / "task", tests=tests))[0].reward
    assert found == reward if reward is not None else found != found


@contained
def test_a_command_that_hangs_is_killed(tmp_path):
    episode, answers = play(task(tmp_path / "slow"), "echo begun; sleep 60", "sleep 60 & echo Hello world > hello.txt", timeout=1.0)
    assert answers == ["begun\n\n[killed after 1 seconds]", ""] and episode.reward == 0.5


@pytest.mark.parametrize(
    "section, place",
    [
        ('steps = [{ name = "a" }]', "steps"),
        ("environment = { gpus = 1 }", "environment.gpus"),
        ('environment = { os = "windows" }', "environment.os"),
        ('environment = { network_mode = "allowlist" }', "environment.network_mode"),
        ('verifier = { environment_mode = "separate" }', "verifier.environment_mode"),
        ('environment = { env = { KEY = "${FGRPO_NOT_SET}" } }', "FGRPO_NOT_SET"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(tmp_path, section, place):
    with pytest.raises(ValueError, match=place):
        fgrpo.harbor.rows(task(tmp_path / "task", settings=section), "docker")


def test_marks_of_test_data_before_an_instruction_are_not_shown(tmp_path):
    folder = task(tmp_path / "task", settings='environment = { docker_image = "made" }')
    marks = "<!-- harbor-canary GUID 26b5c67b -->\n # Canary 7\n\n"
    for before, wanted in ((marks, "Fix it.\n\n# Canary\n"), ("Say\n" + marks, f"Say\n{marks}Fix it.\n\n# Canary\n")):
        (folder / "instruction.md").write_text(f"{before}Fix it.\n\n# Canary\n")
        assert fgrpo.harbor.rows(folder)[0]["prompt"] == wanted


def test_a_folder_without_tasks_and_a_runtime_that_is_not_installed_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no task"):
        fgrpo.harbor.rows(tmp_path)
    task(tmp_path / "task")
    with pytest.raises(RuntimeError, match="isn't installed"):
        fgrpo.harbor.rows(tmp_path, "no-such-runtime")


@contained
def test_tasks_train_a_policy(bytes_model, tmp_path):
    for name in ("one", "two"):
        made = task(tmp_path / "tasks" / name, tests="echo 0.25 > /logs/verifier/reward.txt")
        (made / "instruction.md").write_text(f"Do task {name}.")
    config = {
        "steps": 1,
        "task": {"kind": "python", "max_turns": 2},
        "model": {"path": str(bytes_model)},
        "rollout": {"prompts": 1, "group_size": 2, "max_new_tokens": 4},
        "eval": {"every": 0},
        "compute": {"threads": 1},
    }
    one, two = fgrpo.harbor.rows(tmp_path / "tasks", RUNTIME)
    environment = fgrpo.harbor.environment(RUNTIME)
    run = fgrpo.train(config, environment=environment, data=[one], held_out=[two], out=tmp_path / "run")
    assert run.metrics[0]["reward_mean"] == 0.25
