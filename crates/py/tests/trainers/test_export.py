"""`fgrpo export verl` with verl 0.9.1's configuration, data loader and reward manager."""

import asyncio
import json
import subprocess
import sys

import jobs
import numpy as np
import pytest

verl = pytest.importorskip("verl")

import pyarrow.parquet as pq  # noqa: E402
import torch  # noqa: E402
from jobs import composed  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.ppo.core_algos import get_policy_loss_fn  # noqa: E402
from verl.trainer.ppo.reward import load_reward_manager  # noqa: E402
from verl.utils import hf_tokenizer  # noqa: E402
from verl.utils.config import omega_conf_to_dataclass  # noqa: E402

LOSSES = ("grpo", "dapo", "cispo", "cispo_cap", "gspo", "sapo", "gmpo", "dppo_tv", "dppo_kl", "kl_cov", "clip_cov")
ADVANTAGES = ("dr_grpo", "rloo", "max_rl", "{kind='pkpo', k=4}", "{kind='power', a=0.25}", "{kind='grpo', eps=1e-4, ddof=0}")
VARIANTS = [
    *([f"algorithm.loss={loss}"] for loss in LOSSES),
    ["algorithm.loss={kind='grpo', clip=[0.1, 0.3], dual_clip=0}"],
    *([f"algorithm.aggregation={a}"] for a in ("seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")),
    *(["algorithm.kl_coef=0.01", f"algorithm.kl={kl}"] for kl in ("k1", "k2", "k3")),
    ["algorithm.correction=tis"],
    ["algorithm.correction={kind='tis', cap=3.0, level='sequence'}"],
    ["algorithm.correction={kind='mask', low=0.25, high=4.0}"],
    *([f"algorithm.advantage={a}"] for a in ADVANTAGES),
    ["update.schedule=cosine"],
    ["update.schedule=cosine", "update.warmup_steps=2"],
    ["update.schedule=linear"],
    ["update.eps=1e-6"],
    ["update.low_lr_gamma=0.5"],
    ["update.mini_batch=4"],
    ["lora.rank=8"],
    ["lora.rank=8", "lora.targets=['q_proj', 'v_proj']"],
    ["algorithm.drop_inactive_groups=true"],
    ["algorithm.reward_wrong=-1.0"],
    ["algorithm.overlong={length=32, cache=8}"],
    ["algorithm.truncated=mask"],
    ["algorithm.daro=true"],
    ["algorithm.shaping=unlikely"],
    ["algorithm.schedule=[{key='entropy_coef', to=0.1, over=3}]"],
    ["task.stop=['\\n\\n']"],
    ["task.enable_thinking=false"],
    ["rollout.min_p=0.1"],
    ["rollout.top_p=0.9", "rollout.top_k=20"],
    ["eval.every=0"],
    ["save.keep=2"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model and a configuration."""
    return jobs.sums(tmp_path_factory.mktemp("export"), "What is {i} + {i}? It's \"easy\".")


def export(folder, out, *changes):
    return jobs.variant("verl", folder, out, changes)


def test_verl_knows_every_setting_of_every_variant(folder, tmp_path, report):
    for i, changes in enumerate(VARIANTS):
        config = composed(export(folder, f"job-{i}", *changes), tmp_path / "bin")
        actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
        get_policy_loss_fn(actor.policy_loss.loss_mode)
    report(f"export: verl {verl.__version__} composes {len(VARIANTS)} variants of a job")


def test_the_reward_of_a_job_passes_through_the_reward_manager(folder, tmp_path):
    job = export(folder, "graded", "algorithm.reward_wrong=-1.0")
    config = composed(job, tmp_path / "bin")
    tokenizer = hf_tokenizer(str(folder / "model"))
    row = pq.read_table(job / "train.parquet").to_pylist()[0]
    gold = json.loads(row["reward_model"]["ground_truth"])["gold"]

    def graded(text, truth=row["reward_model"]["ground_truth"]):
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
        columns = {**row, "reward_model": {"style": "rule", "ground_truth": truth}}
        columns = {key: np.array([columns[key]], object) for key in ("data_source", "reward_model", "extra_info")}
        data = DataProto.from_dict({"responses": ids, "attention_mask": torch.ones_like(ids)}, non_tensors=columns)

        async def run():
            return await load_reward_manager(config, tokenizer).run_single(data)

        return asyncio.run(run())

    assert graded(f"so \\boxed{{{gold}}}")["reward_score"] == 1.0
    wrong = graded("\\boxed{-7}")
    assert (wrong["reward_score"], wrong["reward_extra_info"]["acc"]) == (-1.0, 0.0)
    assert graded("no idea")["reward_extra_info"]["acc"] == 0.0
    broken = graded("\\boxed{1}", truth="no JSON")
    assert np.isnan(broken["reward_score"]) and broken["reward_extra_info"]["unscorable"] == 1.0


def test_a_job_whose_grader_lacks_a_file_ends_before_training(folder, tmp_path):
    code = "from rules import same\n\ndef reward(completion, answer, **row):\n    return float(same(completion, answer))\n"
    for name, text in [("grade.py", code), ("rules.py", "def same(a, b):\n    return b in a\n")]:
        (tmp_path / name).write_text(text)
    grader = [f"task={{kind='python', grader='{tmp_path}/grade.py:reward', data='{folder}/sums.jsonl', held_out_share=0.2}}"]
    job = export(folder, "own", *grader)
    start = [sys.executable, "-c", "import reward; reward.check()"]
    assert subprocess.run(start, cwd=job).returncode == 0
    (job / "grader" / "rules.py").unlink()
    ended = subprocess.run(start, cwd=job, capture_output=True, text=True)
    assert ended.returncode == 1 and "none of the first 8 problems can be graded" in ended.stderr and "'rules'" in ended.stderr
