import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest
from conftest import ROOT


def test_the_command_answers_as_the_program_does(command):
    done = command("--version")
    assert (done.returncode, done.stdout.split()[0], done.stderr) == (0, "fgrpo", "")
    done = command("verify", "math", "-", input='{"gold": "1/2", "response": "\\\\boxed{0.5}"}\n')
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (0, "correct")
    done = subprocess.run([sys.executable, "-m", "fgrpo", "theory", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("Evaluate the paper's formulas")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["fly"], 2, "unrecognized subcommand 'fly'"),
        (["verify", "math", "nowhere.jsonl"], 2, "error: nowhere.jsonl"),
        (["train", "nowhere.toml"], 2, "nowhere.toml"),
    ],
)
def test_exit_codes_are_the_programs(command, arguments, code, words):
    done = command(*arguments)
    assert done.returncode == code and words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_ends_the_command_quietly(command, tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"gold": "B", "response": "\\\\boxed{B}"}\n' * 200_000)
    with subprocess.Popen(
        [str(command.program), "verify", "choice", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=60) == 0, process.stderr.read()


SMALL = [
    "sft.steps=10", "eval.every=0", "task.held_out=8", "eval.samples=8", "eval.k=[1,8]", "rollout.prompts=8",
]  # fmt: skip


@pytest.fixture
def start(command):
    """Starts a maze run in a separate terminal, which sends Ctrl-C. After a failed test the run is killed."""
    started = []

    def run(out, *more):
        flags = [flag for value in [*SMALL, *more] for flag in ("--set", value)]
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(out.parent)
            os.execv(command.program, ["fgrpo", "train", str(ROOT / "configs/maze-quick.toml"), "--out", str(out), *flags])
        started.append(pid)
        return pid, terminal

    yield run
    for pid in started:
        try:
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        except ChildProcessError:  # the test has already waited for the process
            pass


def wait_for_lines(path):
    deadline = time.monotonic() + 120
    while not path.exists() or not path.stat().st_size:
        assert time.monotonic() < deadline, "no step was taken"
        time.sleep(0.05)


def drain(terminal):
    text = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            return text.decode(errors="replace")
        if not piece:
            return text.decode(errors="replace")
        text += piece


def test_ctrl_c_stops_a_run_that_can_be_resumed(start, tmp_path):
    out = tmp_path / "run"
    pid, terminal = start(out, "steps=100000")
    wait_for_lines(out / "metrics.jsonl")
    os.write(terminal, b"\x03")
    text = drain(terminal)
    status = os.waitpid(pid, 0)[1]
    assert os.waitstatus_to_exitcode(status) == 1, text
    assert "state saved" in text and "--resume" in text and "Traceback" not in text
    assert any((out / "checkpoints").iterdir())


def test_two_ctrl_c_end_a_run_at_once(start, tmp_path):
    out = tmp_path / "run"
    pid, terminal = start(out, "steps=100000", "sft.steps=100000")
    wait_for_lines(out / "sft.jsonl")
    os.write(terminal, b"\x03")
    time.sleep(0.05)
    os.write(terminal, b"\x03")
    text = drain(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (1, 130), text
    assert "Traceback" not in text


def test_termination_is_heard(start, tmp_path):
    out = tmp_path / "run"
    pid, terminal = start(out, "steps=100000")
    wait_for_lines(out / "metrics.jsonl")
    os.kill(pid, signal.SIGTERM)
    text = drain(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1, text
    assert "state saved" in text
