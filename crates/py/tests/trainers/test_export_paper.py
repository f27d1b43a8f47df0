"""Every row of the paper as a job: verl 0.9.1's own configuration files know all its settings.

Runs without torch: `pip install --no-deps verl==0.9.1`, then `hydra-core`, `numpy`, `pytest` and the wheel.
"""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("hydra")

from jobs import composed, export, rows  # noqa: E402

MODELS = ("Qwen2.5-7B", "Qwen3-4B-Base", "Llama-3.2-3B-Instruct", "Qwen3-1.7B")
# Settings of the paper's controls that verl lacks.
LACKING = {"RUL": "algorithm.shaping", "DS-GRPO": "algorithm.shaping", "DARO": "algorithm.daro"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Small data and one tiny model in the place of the paper's."""
    root = tmp_path_factory.mktemp("paper")
    sizes = ("hidden_size=16", "intermediate_size=32", "num_hidden_layers=1")
    changes = ["sft.steps=1", "sft.eval_every=0", "task.train=8", "task.held_out=2", *(f"model.init.{size}" for size in sizes)]
    words = [word for change in changes for word in ("--set", change)]
    run("sft", "arithmetic-quick", "--out", root / "sft", *words)
    (root / "models").mkdir()
    for name in MODELS:
        (root / "models" / name).symlink_to(root / "sft/checkpoints/step-000001")
    rows(root / "data/deepscaler.jsonl", "{i} + {i}?", 300).rename(root / "data/deepscaler.json")
    rows(root / "data/aime25.jsonl", "{i} + {i}?", 4)
    run("data", "synlogic", "--task", "all", "--n", "300", "--out", root / "data/synlogic.parquet")
    return root


def run(*words):
    done = subprocess.run([pathlib.Path(sys.executable).with_name("fgrpo"), *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def paper_rows(table, out):
    """Names of a table's rows, which the refusal of a name without a row lists."""
    listed = export("verl", out, "--paper", table).stderr.strip().split(f"rows of {table}: ")[1]
    return listed.split(", ")


@pytest.mark.parametrize(("table", "count"), [("table-1", 18), ("table-2", 6), ("table-3", 6), ("table-4", 7)])
def test_verl_composes_every_row_of_a_table(root, table, count, tmp_path):
    names = paper_rows(table, tmp_path / "none")
    assert len(names) == count, names
    for i, name in enumerate(names):
        lacking = LACKING.get(name.rsplit("/", 1)[1])
        allow = ["--allow", lacking] if lacking else []
        job = tmp_path / f"job-{i}"
        words = ["--paper", name, "--root", root, "--nodes", 2, *allow]
        done = export("verl", job, *words)
        assert done.returncode == 0, f"{name}: {done.stderr}"
        config = composed(job, tmp_path / "bin")
        assert config.trainer.nnodes == 2 and config.data.train_batch_size == 256, name
        assert config.actor_rollout_ref.actor.ppo_mini_batch_size == 64, name
        assert config.actor_rollout_ref.rollout.n in (2, 4, 8, 16, 32), name
        assert config.algorithm.focal_gamma >= 0, name
