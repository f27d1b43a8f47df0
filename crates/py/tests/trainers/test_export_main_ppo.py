"""A job of `fgrpo export verl` in verl 0.9.1's own `main_ppo` with two workers on a CPU; its weights against fgrpo's engine."""

import json
import os
import pathlib
import subprocess
import sys
from collections import defaultdict

import jobs
import numpy as np
import pytest

pytest.importorskip("verl")

import pyarrow.parquet as pq  # noqa: E402
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import fgrpo  # noqa: E402

# A completion of a random model is almost never right: it is correct here if it has a digit among its first characters.
GRADER = "def reward(completion, answer):\n    return float(any(c.isdigit() for c in completion[:3]))\n"
PROMPTS, GROUP, STEPS, WORKERS = 4, 4, 2, 2
LR, EPS, BETAS, DECAY, TEMPERATURE, ENTROPY, CAP = 0.02, 1e-2, (0.8, 0.95), 0.1, 0.8, 0.01, 6.0
# verl on a CPU: its own settings for flash attention, compiled code and bf16 are off, and it starts as few processes as it can.
CPU = (
    "trainer.device=cpu",
    "ray_kwargs.ray_init.num_cpus=16",
    f"+ray_kwargs.ray_init.num_gpus={WORKERS}",
    "+ray_kwargs.ray_init.include_dashboard=False",
    "+ray_kwargs.ray_init.object_store_memory=200000000",
    "+actor_rollout_ref.model.override_config.attn_implementation=sdpa",
    "actor_rollout_ref.model.use_remove_padding=False",
    "actor_rollout_ref.actor.use_torch_compile=False",
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile=False",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32",
    "+actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=fp32",
    "actor_rollout_ref.rollout.agent.num_workers=1",
    "reward.num_workers=1",
    "data.dataloader_num_workers=0",
    "transfer_queue.backend.SimpleStorage.num_data_storage_units=1",
)


@pytest.fixture
def job(tmp_path):
    jobs.folder(tmp_path, "{i}+{i}=?")
    (tmp_path / "grade.py").write_text(GRADER)
    (tmp_path / "sums.toml").write_text(
        f"steps = {STEPS}\n[task]\nkind = 'python'\ngrader = '{tmp_path}/grade.py:reward'\ndata = '{tmp_path}/sums.jsonl'\n"
        f"held_out_share = 0.1\nmax_prompt_tokens = 16\n[model]\npath = '{tmp_path}/model'\n"
        f"[rollout]\nprompts = {PROMPTS}\ngroup_size = {GROUP}\nmax_new_tokens = 8\ntemperature = {TEMPERATURE}\n"
        f"[algorithm]\nloss = {{kind = 'cispo_cap', cap = {CAP}}}\nfocal_gamma = 0.5\nentropy_coef = {ENTROPY}\n"
        f"[update]\nlr = {LR}\neps = {EPS}\nbetas = {list(BETAS)}\nweight_decay = {DECAY}\nwarmup_steps = 2\nmax_grad_norm = 0.5\n"
        "[eval]\nevery = 1\nsamples = 2\nk = [1, 2]\n[save]\nevery = 1\n"
    )
    done = jobs.export("verl", tmp_path / "job", tmp_path / "sums.toml", "--gpus", WORKERS)
    assert done.returncode == 0, done.stderr
    return tmp_path / "job"


def program(job, *words):
    """Runs a program of the job with the packages of this Python."""
    environment = {
        **os.environ,
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(pathlib.Path(__file__).parent),
        "VERL_USE_EXTERNAL_MODULES": "verl_cpu",
        "VERL_PLATFORM": "cpu",
        "ROLLOUTS": str(job / "rollouts.jsonl"),
        "OMP_NUM_THREADS": "1",
        # Its workers would give way to every other process.
        "RAY_worker_niceness": "0",
        # Ray would start a Python process for each of its 16 processors, before any is needed.
        "RAY_prestart_worker_first_driver": "0",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    for _ in range(5):
        ran = subprocess.run([job / words[0], *words[1:]], env=environment, capture_output=True, text=True, timeout=1500, cwd=job)
        # Ray gives its processes 30 seconds to start, which isn't enough on a busy machine.
        if "timed out during startup" not in ran.stderr:
            break
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-8000:]
    return ran.stdout


def weights_of_verl(job, step):
    """The weights after a step: FSDP cuts each along its first dimension."""
    folder = job / f"run/checkpoints/global_step_{step}/actor"
    parts = [
        torch.load(folder / f"model_world_size_{WORKERS}_rank_{rank}.pt", weights_only=False) for rank in range(WORKERS)
    ]
    return {name: torch.cat([part[name]._local_tensor for part in parts]).float() for name in parts[0]}


def test_two_steps_of_main_ppo_give_the_weights_of_the_engine(job, report):
    program(job, "run.sh", *CPU)
    rows = pq.read_table(job / "train.parquet").to_pylist()
    rollouts = [json.loads(line) for line in (job / "rollouts.jsonl").read_text().splitlines()]
    problems = {row["prompt"][0]["content"]: row["reward_model"]["ground_truth"] for row in rows}
    engine, grader = fgrpo.Engine(job.parent / "model"), fgrpo.Grader(job / "config.toml")
    start = load_file(job.parent / "model" / "model.safetensors")
    for step in range(1, STEPS + 1):
        groups = defaultdict(list)
        for row in rollouts:
            prompt = engine.tokenizer.decode(row["prompt"])
            # Validation asks held-out problems with the same weights.
            if row["steps"] == step - 1 and prompt in problems:
                groups[prompt].append(row)
        asked = [row["prompt"][0]["content"] for row in rows[(step - 1) * PROMPTS : step * PROMPTS]]
        assert sorted(groups) == sorted(asked)
        assert all(len(group) == GROUP for group in groups.values())
        rewards = [
            [grader.grade(problems[prompt], engine.tokenizer.decode(row["tokens"])).reward for row in group]
            for prompt, group in groups.items()
        ]
        credit = fgrpo.credit(rewards, gamma=0.5)
        assert (credit.advantages != 0).any(), "no group is active: the step would test nothing"
        data = [
            fgrpo.Datum(np.array(row["prompt"]), np.array(row["tokens"]), np.array(row["logprobs"], np.float32), advantage)
            for group, advantages in zip(groups.values(), credit.advantages, strict=True)
            for row, advantage in zip(group, advantages, strict=True)
        ]
        loss = {"kind": "cispo_cap", "cap": CAP}
        engine.forward_backward(data, loss=loss, entropy_coef=ENTROPY, temperature=TEMPERATURE)
        engine.optim_step(lr=LR * step / 2, eps=EPS, betas=BETAS, weight_decay=DECAY, max_grad_norm=0.5)
        engine.save(job / f"ours-{step}")
        ours, theirs = load_file(job / f"ours-{step}" / "model.safetensors"), weights_of_verl(job, step)
        moved = max((theirs[name] - start[name]).abs().max().item() for name in start)
        apart = max((ours[name] - theirs[name]).abs().max().item() for name in start)
        report(f"export: step {step} of main_ppo with two workers moved weights by {moved:.1e}, and fgrpo.Engine's differ by {apart:.1e}")
        assert moved > 5e-3 and apart < 1e-4 * moved, (step, moved, apart)

    table = program(job, "back.sh")
    assert "pass@1" in table and (job / f"merged/step-{STEPS}/config.json").exists(), table
