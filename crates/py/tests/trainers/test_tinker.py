"""The Tinker client and its cookbook with `fgrpo serve`: their loops, unmodified, and that of the page."""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

tinker = pytest.importorskip("tinker")
pytest.importorskip("tinker_cookbook")

import torch  # noqa: E402
from tinker import types  # noqa: E402
from tinker_cookbook.recipes import rl_loop  # noqa: E402

import fgrpo  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[4]
# A name for which the cookbook has a renderer; here it is a folder.
NAME = "Qwen/Qwen3-4B-Instruct-2507"
SUFFIX = " Provide a numerical answer without units, written inside \\boxed{}."


@pytest.fixture(scope="module")
def folder(command, tmp_path_factory):
    """A folder with a model of random weights, its tokenizer, and small data sets under the names that the recipes load."""
    folder = tmp_path_factory.mktemp("tinker")
    sets = "task.train=8 task.held_out=2 sft.steps=1 sft.eval_every=0 model.init.hidden_size=16 model.init.num_hidden_layers=1"
    flags = [word for setting in sets.split() for word in ("--set", setting)]
    made = command("sft", ROOT / "configs/arithmetic-quick.toml", "--out", folder / "tokenizer", *flags)
    assert made.returncode == 0, made.stderr
    sizes = "--arch qwen3 --context 1024 --hidden-size 64 --intermediate-size 192 --layers 2 --heads 4 --kv-heads 2".split()
    tokenizer = folder / "tokenizer/checkpoints/step-000001"
    made = command("init", *sizes, "--tokenizer", tokenizer, "--out", folder / NAME)
    assert made.returncode == 0, made.stderr
    turns = [
        {"role": "user", "content": "How many r's are in strawberry?" + SUFFIX},
        {
            "role": "assistant",
            "content": "Let's spell the word out and number all the letters: 1) s 2) t 3) r 4) a 5) w 6) b 7) e 8) r 9) r 10) y. "
            "We have r's at positions 3, 8, and 9. \\boxed{3}",
        },
    ]

    def data_set(name, config, row):
        place = folder / name
        place.mkdir(parents=True)
        for split in ("train", "test"):
            with open(place / f"{split}.jsonl", "w") as file:
                for i in range(6400):
                    file.write(json.dumps(row(f"{i % 4}+{i // 4 % 4}?", i % 4 + i // 4 % 4)) + "\n")
        files = "".join(f"\n  - split: {split}\n    path: {split}.jsonl" for split in ("train", "test"))
        (place / "README.md").write_text(f"---\nconfigs:\n- config_name: {config}\n  data_files:{files}\n---\n")

    data_set("openai/gsm8k", "main", lambda question, answer: {"question": question, "answer": f"so #### {answer}"})
    data_set(
        "HuggingFaceH4/no_robots",
        "default",
        lambda question, answer: {
            "messages": [
                *turns,
                {"role": "user", "content": question + SUFFIX},
                {"role": "assistant", "content": f"\\boxed{{{answer}}}"},
            ]
        },
    )
    return folder


@contextlib.contextmanager
def served(command, folder, *flags, model=NAME, name=NAME, out="serve", port=0):
    """Runs a server. Yields its process and the environment variables of a client."""
    arguments = ["serve", "--model", model, "--name", name, "--listen", f"127.0.0.1:{port}", "--out", out, "--threads", "2", *flags]
    process = subprocess.Popen([str(command.program), *arguments], cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        said = ""
        while " at http://" not in said:
            line = process.stderr.readline()
            assert line, f"the server has ended: {said}"
            said += line
        url = re.search(r" at (http://\S+)", said).group(1)
        key = (folder / out / "key").read_text().strip()
        yield process, {"TINKER_BASE_URL": url, "TINKER_API_KEY": key, "HF_HUB_OFFLINE": "1"}
    finally:
        process.terminate()
        process.communicate(timeout=60)


def recipe(folder, environment, name, *settings):
    arguments = [sys.executable, "-m", f"tinker_cookbook.recipes.{name}", f"model_name={NAME}", *settings]
    done = subprocess.run(arguments, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]


def metrics(folder, name):
    return [json.loads(line) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]


def test_the_cookbooks_own_loops_learn(command, folder):
    with served(command, folder, "--full", out="sl") as (_, environment):
        recipe(
            folder,
            environment,
            "sl_loop",
            "batch_size=32",
            "learning_rate=3e-3",
            "max_steps=150",
            "save_every=40",
            f"log_path={folder / 'sl-run'}",
        )
    losses = [step["train_mean_nll"] for step in metrics(folder, "sl-run")]
    assert len(losses) == 150 and losses[0] > 5 and losses[-1] < 0.1, losses

    # The fitted model, under a name that has a renderer.
    start = folder / "rl" / NAME
    start.parent.mkdir(parents=True)
    os.symlink(folder / "sl/models/session-1-train-0/sampler_weights/final", start)
    os.symlink(folder / "openai", folder / "rl/openai")
    with served(command, folder / "rl") as (_, environment):
        settings = "batch_size=32 group_size=16 learning_rate=1e-3 lora_rank=16 max_steps=40 max_tokens=16".split()
        # From 0.6 on the loss is a setting.
        if "loss_fn" in rl_loop.Config.__annotations__:
            settings.append("loss_fn=importance_sampling")
        recipe(folder / "rl", environment, "rl_loop", *settings, f"log_path={folder / 'rl-run'}")
    rewards = [step["reward/total"] for step in metrics(folder, "rl-run")]
    assert len(rewards) == 40
    # The first step's 512 completions come from the untrained adapter; most of the gain can come in a few steps.
    assert sum(rewards[-10:]) > 1.3 * 10 * rewards[0], rewards


def test_a_client_notices_a_killed_server_as_a_reconnect(command, folder, monkeypatch):
    datum = types.Datum(
        model_input=types.ModelInput.from_ints([5, 6, 7, 8]),
        loss_fn_inputs={"target_tokens": [6, 7, 8, 9], "weights": [1.0] * 4},
    )
    adam = types.AdamParams(learning_rate=1e-2)

    def client_of(environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        service = tinker.ServiceClient()
        return service.create_lora_training_client(base_model=NAME, rank=4, seed=1).result()

    def step(client):
        # Submitted together, as the cookbook does.
        futures = [client.forward_backward([datum], "cross_entropy"), client.optim_step(adam)]
        return [future.result(timeout=120) for future in futures]

    with served(command, folder, out="whole") as (_, environment):
        client = client_of(environment)
        whole = [step(client)[0].metrics for _ in range(6)]
    with served(command, folder, out="killed") as (process, environment):
        client = client_of(environment)
        found = [step(client)[0].metrics for _ in range(3)]
        port = environment["TINKER_BASE_URL"].rsplit(":", 1)[1]
        process.kill()
        process.wait()
    # Sent while no server is listening.
    futures = client.forward_backward([datum], "cross_entropy"), client.optim_step(adam)
    time.sleep(1)
    with served(command, folder, "--resume", out="killed", port=port):
        found.append(futures[0].result(timeout=120).metrics)
        futures[1].result(timeout=120)
        found += [step(client)[0].metrics for _ in range(2)]
    assert found == whole


def test_a_loss_of_ones_own_has_the_gradient_of_the_same_loss_here(command, folder, monkeypatch):
    """Compares `forward_backward_custom` with PPO's formula in PyTorch with the loss `ppo`."""
    tokens, n = [5, 6, 7, 8, 9, 10], 5
    old, advantages = torch.full((n,), -5.5), torch.tensor([1.0, -1.0, 2.0, -2.0, 0.5])
    inputs = {"target_tokens": tokens[1:], "logprobs": old.tolist(), "advantages": advantages.tolist()}
    datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)

    def ppo(data, logprobs):
        ratio = torch.exp(logprobs[0] - old)
        loss = -torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).sum()
        return loss, {"mean_ratio": ratio.mean().item()}

    with served(command, folder, out="custom") as (_, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        service = tinker.ServiceClient()
        norms, losses = [], []
        for custom in (False, True):
            client = service.create_lora_training_client(base_model=NAME, rank=4, seed=1).result()
            for _ in range(2):
                if custom:
                    losses.append(client.forward_backward_custom([datum], ppo).result().metrics)
                else:
                    losses.append(client.forward_backward([datum], "ppo").result().metrics)
                update = client.optim_step(types.AdamParams(learning_rate=1e-2, grad_clip_norm=1.0)).result()
                norms.append(update.metrics["grad_norm"])
    assert norms[0] > 0
    assert norms[2:] == pytest.approx(norms[:2], rel=1e-5)


def test_the_clients_lists_and_a_teacher(command, folder, monkeypatch):
    tokens = [5, 6, 7, 8, 9, 10]
    inputs = {"target_tokens": tokens[1:], "weights": [1.0] * 5}
    datum = types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=inputs)
    whole = types.ModelInput.from_ints(tokens)
    with served(command, folder, "--teacher", NAME, "--teacher-name", "teacher", out="lists") as (_, environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        service = tinker.ServiceClient()
        client = service.create_lora_training_client(base_model=NAME, rank=4, seed=1, user_metadata={"who": "me"}).result()
        teacher = service.create_sampling_client(base_model="teacher").result()
        before = teacher.compute_logprobs(whole).result()
        # A student that starts as a copy of its teacher moves away from it.
        scored = client.forward([datum], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].to_torch()
        assert before[1:] == pytest.approx(scored.tolist(), abs=1e-4)
        for _ in range(3):
            client.forward_backward([datum], "cross_entropy").result()
            client.optim_step(types.AdamParams(learning_rate=1e-2)).result()
        assert teacher.compute_logprobs(whole).result() == before
        moved = client.forward([datum], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].to_torch()
        assert moved.sum() > scored.sum() + 0.1

        state = client.save_state("state").result().path
        sampler = client.save_weights_for_sampler("sampler", ttl_seconds=7200).result().path
        rest = service.create_rest_client()
        run = rest.list_training_runs(limit=5).result().training_runs[0]
        assert (run.training_run_id, run.is_lora, run.lora_rank, run.user_metadata) == (client.model_id, True, 4, {"who": "me"})
        listed = {c.tinker_path: c for c in rest.list_checkpoints(client.model_id).result().checkpoints}
        assert set(listed) == {state, sampler}
        assert listed[state].expires_at is None and (listed[sampler].expires_at - listed[sampler].time).total_seconds() == 7200
        rest.set_checkpoint_ttl_from_tinker_path(sampler, None).result()
        rest.delete_checkpoint_from_tinker_path(state).result()
        left = rest.list_user_checkpoints().result().checkpoints
        assert [(c.tinker_path, c.expires_at) for c in left] == [(sampler, None)]
        assert rest.get_training_run_by_tinker_path(sampler).result().base_model == NAME
        session = client.model_id.split(":")[0]
        assert rest.get_session(session).result().training_run_ids == [client.model_id]
        assert rest.list_sessions().result().sessions == [session]


def test_the_pages_loop_runs_and_learns(command, folder, tmp_path):
    page = (ROOT / "docs/serve.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    loop = next(block for block in blocks if "forward_backward" in block)
    (tmp_path / "loop.py").write_text(loop)
    model = tmp_path / "base"
    sets = "sft.steps=300 sft.eval_every=0 task.held_out=8 task.most_operations=2 task.largest=20"
    sets += " model.init.hidden_size=64 model.init.intermediate_size=192 model.init.num_hidden_layers=2"
    flags = [word for setting in sets.split() for word in ("--set", setting)]
    config = ROOT / "configs/arithmetic-quick.toml"
    made = command("sft", config, "--out", model, *flags, timeout=900)
    assert made.returncode == 0, made.stderr
    data = command("data", "arithmetic", config, "--limit", "2000", "--out", tmp_path / "problems.jsonl", *flags[6:10])
    assert data.returncode == 0, data.stderr
    # The same few problems in each step: what a small model learns within a minute.
    rows = (tmp_path / "problems.jsonl").read_text().splitlines()[:16]
    (tmp_path / "problems.jsonl").write_text("\n".join(rows * 80) + "\n")
    checkpoint = sorted((model / "checkpoints").glob("step-*"))[-1]
    with served(command, tmp_path, model=str(checkpoint), name="base") as (_, environment):
        arguments = [sys.executable, "loop.py", str(checkpoint), "problems.jsonl", "40"]
        done = subprocess.run(arguments, cwd=tmp_path, env={**os.environ, **environment}, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    rewards = [float(reward) for reward in re.findall(r"reward ([\d.]+)", done.stdout)]
    assert len(rewards) == 40
    assert sum(rewards[-10:]) > 1.5 * sum(rewards[:10]), rewards
    assert "tinker://session-1:train:0/sampler_weights/final" in done.stdout


def test_the_pages_lines_for_recipes_give_the_papers_advantages(tmp_path):
    page = (ROOT / "docs/serve.md").read_text()
    lines = next(block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "compute_advantages" in block)
    (tmp_path / "lines.py").write_text(
        lines
        + """
class Group:
    def __init__(self, rewards):
        self.rewards = rewards

    def get_total_rewards(self):
        return self.rewards


found = train.compute_advantages([Group([1.0, 0.0, 0.0, 1.0]), Group([1.0, 1.0, 1.0]), Group([0.0, 1.0, 0.0, 0.0])])
weights = [0.5**0.5, 0.0, 0.75**0.5]
wanted = [[0.5, -0.5, -0.5, 0.5], [0.0] * 3, [-0.25, 0.75, -0.25, -0.25]]
for advantages, weight, centred in zip(found, weights, wanted):
    assert torch.allclose(advantages, weight * torch.tensor(centred)), (advantages, weight, centred)
from tinker_cookbook.recipes.math_rl.math_grading import grade_answer_math_verify
import math_verify
assert math_verify.__name__ == "fgrpo.math_verify" or "fgrpo" in math_verify.verify.__module__
assert grade_answer_math_verify("\\\\frac{1}{2}", "0.5") and not grade_answer_math_verify("0.6", "0.5")
"""
    )
    done = subprocess.run([sys.executable, "lines.py"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert fgrpo.__name__ == "fgrpo"
