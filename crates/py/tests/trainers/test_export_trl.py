"""`fgrpo export trl` in TRL 1.16: a job's script on a CPU, and its first update compared with fgrpo's engine."""

import subprocess
import sys

import jobs
import numpy as np
import pytest

pytest.importorskip("trl")

import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

import fgrpo  # noqa: E402

# A completion of a random model is almost never right: it is correct here if it has a digit among its first characters.
GRADER = "def reward(completion, answer):\n    return float(any(c.isdigit() for c in completion[:3]))\n"
# Runs the job's script, and stores the data of the first step.
SPY = """
import runpy, sys, torch, fgrpo.trl
base = fgrpo.trl.FGRPOTrainer
class Spy(base):
    steps = []
    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        self.steps.append(({k: v for k, v in out.items() if torch.is_tensor(v)}, [row["extra_info"]["problem"] for row in inputs]))
        if len(self.steps) == 1:
            self.save_model(sys.argv[2] + "/start")
        torch.save(self.steps, sys.argv[2] + "/steps.pt")
        return out
fgrpo.trl.FGRPOTrainer = Spy
sys.path.insert(0, sys.argv[1])
runpy.run_path(sys.argv[1] + "/train.py", run_name="__main__")
"""


@pytest.fixture
def config(tmp_path):
    jobs.folder(tmp_path, "{i}+{i}=?")
    (tmp_path / "grade.py").write_text(GRADER)
    (tmp_path / "sums.toml").write_text(
        f"steps = 3\n[task]\nkind = 'python'\ngrader = '{tmp_path}/grade.py:reward'\ndata = '{tmp_path}/sums.jsonl'\n"
        f"held_out_share = 0.2\nmax_prompt_tokens = 16\n[model]\npath = '{tmp_path}/model'\n"
        "[rollout]\nprompts = 4\ngroup_size = 4\nmax_new_tokens = 8\n[eval]\nsamples = 4\nk = [1, 4]\n"
        "[algorithm]\nadvantage = {kind = 'grpo', eps = 1e-4}\nloss = {kind = 'grpo', clip = [0.2, 0.28]}\n"
        "[update]\nlr = 0.1\neps = 1e-2\nweight_decay = 0.0\n[save]\nevery = 1\n"
    )
    return tmp_path / "sums.toml"


def export(config, out, *words):
    return jobs.export("trl", out, config, "--gpus", 1, *words)


def test_three_steps_of_a_job_ask_our_prompts_and_its_first_update_is_the_engines(config, tmp_path, report):
    job = tmp_path / "job"
    done = export(config, job)
    assert done.returncode == 0, done.stderr
    assert len((job / "train.py").read_text().splitlines()) <= 60
    ran = subprocess.run([sys.executable, "-c", SPY, job, tmp_path], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-6000:]
    steps = torch.load(tmp_path / "steps.pt", weights_only=False)
    assert len(steps) == 3

    import pyarrow.parquet as pq

    rows = pq.read_table(job / "train.parquet").to_pylist()
    listed = [row["extra_info"]["problem"] for row in rows]
    assert [problem for _, step in steps for problem in step[::4]] == listed

    first = {name: column.numpy() for name, column in steps[0][0].items() if column.dim()}
    engine, grader = fgrpo.Engine(tmp_path / "start"), fgrpo.Grader(job / "config.toml")
    drawn = [
        (ids[mask == 1], tokens[kept == 1])
        for ids, mask, tokens, kept in zip(*(first[f"{part}_{kind}"] for part in ("prompt", "completion") for kind in ("ids", "mask")), strict=True)
    ]
    texts = [engine.tokenizer.decode(tokens) for _, tokens in drawn]
    truths = [row["reward_model"]["ground_truth"] for row in rows[:4] for _ in range(4)]
    rewards = [grader.grade(truth, text).reward for truth, text in zip(truths, texts, strict=True)]
    credit = fgrpo.credit(np.reshape(rewards, (4, 4)), estimator={"kind": "grpo", "eps": 1e-4}, gamma=0.5)
    np.testing.assert_allclose(first["advantages"], credit.advantages.ravel(), atol=1e-5)
    assert (first["advantages"] != 0).any()
    scored = engine.score([np.concatenate(one) for one in drawn])
    data = [
        fgrpo.Datum(prompt=prompt, completion=tokens, logprobs=logp[-len(tokens) :], advantage=advantage)
        for (prompt, tokens), (logp, _), advantage in zip(drawn, scored, credit.advantages.ravel(), strict=True)
    ]
    engine.forward_backward(data, loss={"kind": "grpo", "clip": [0.2, 0.28]})
    engine.optim_step(lr=0.1, eps=1e-2, weight_decay=0.0)
    engine.save(tmp_path / "ours")
    ours, theirs, start = (load_file(tmp_path / path / "model.safetensors") for path in ("ours", "job/run/checkpoint-1", "start"))
    moved = max((theirs[name] - start[name]).abs().max().item() for name in start)
    # torch gives the input embedding of the pad token, id 0, no gradient; the engine doesn't treat a pad token specially.
    parts = {name: slice(int("embed_tokens" in name), None) for name in start}
    apart = max((ours[name] - theirs[name])[part].abs().max().item() for name, part in parts.items())
    assert moved > 1e-2 and apart < 1e-5 * moved, (moved, apart)
    report(f"export: TRL's weights after the first update of a job moved by {moved:.1e}, and fgrpo.Engine's differ by {apart:.1e}")


def test_settings_that_trl_lacks_are_refused_together(config, tmp_path):
    lacking = ["algorithm.loss=gmpo", "algorithm.daro=true", "task.stop=['x']", "algorithm.advantage=rloo"]
    words = [word for change in lacking for word in ("--set", change)]
    refused = export(config, tmp_path / "job", *words)
    assert refused.returncode == 2
    for change in lacking:
        assert change.split("=")[0] + ":" in refused.stderr, refused.stderr
    allowed = export(config, tmp_path / "job", *words, "--allow", "all")
    assert allowed.returncode == 0, allowed.stderr
    compile((tmp_path / "job" / "train.py").read_text(), "train.py", "exec")
