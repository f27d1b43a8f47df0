"""Tests with the real packages, for `scripts/wheel/check --all`. Figures for the record are added to `report`."""

import os
import pathlib
import subprocess
import sys
import typing

import pytest
import typing_extensions

os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    TOKENIZERS_PARALLELISM="false",
    ACCELERATE_USE_CPU="true",
    RAY_USAGE_STATS_ENABLED="0",
    RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
    CI="1",
)
# pydantic takes SkyRL's types on Python 3.11 only so.
typing.TypedDict = typing_extensions.TypedDict
FOLDER = pathlib.Path(__file__).parent
LINES = []


@pytest.fixture(scope="session")
def report():
    """Adds a line to the report at the end."""
    return LINES.append


def pytest_terminal_summary(terminalreporter):
    terminalreporter.section("figures")
    for line in LINES:
        terminalreporter.write_line(line)


@pytest.fixture
def script(tmp_path):
    """Runs a script of this folder in a separate process. Returns its output."""

    def run(name, *arguments, program=(sys.executable,), **environment):
        done = subprocess.run(
            [*program, str(FOLDER / name), *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, **environment, "PYTHONPATH": str(FOLDER)},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
        return done.stdout

    return run
