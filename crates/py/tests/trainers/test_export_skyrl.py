"""`fgrpo export skyrl` with SkyRL 0.3.0's own configuration, data loader, environments and registry. No training: it needs GPUs."""

import importlib.util
import sys

import jobs
import pytest

pytest.importorskip("skyrl")

import pyarrow.parquet as pq  # noqa: E402
import torch  # noqa: E402
from skyrl.backends.skyrl_train.utils.off_policy_correction_utils import apply_off_policy_correction  # noqa: E402
from skyrl.backends.skyrl_train.utils.ppo_utils import AdvantageEstimatorRegistry  # noqa: E402
from skyrl.train.dataset import PromptDataset  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

VARIANTS = [
    *([f"algorithm.loss={loss}"] for loss in ("grpo", "dapo", "cispo", "cispo_cap", "gspo", "sapo", "gmpo", "dppo_tv", "kl_cov")),
    ["algorithm.loss={kind='grpo', clip=[0.1, 0.3], dual_clip=0}"],
    *([f"algorithm.aggregation={a}"] for a in ("seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")),
    *(["algorithm.kl_coef=0.01", f"algorithm.kl={kl}"] for kl in ("k1", "k2", "k3")),
    ["algorithm.correction=tis"],
    ["algorithm.correction={kind='tis', cap=3.0, level='sequence'}"],
    ["algorithm.correction={kind='mask', low=0.25, high=4.0}"],
    ["algorithm.correction={kind='mask', low=0.25, high=4.0, level='sequence'}"],
    *([f"algorithm.advantage={a}"] for a in ("dr_grpo", "rloo", "{kind='pkpo', k=4}", "gdpo")),
    *([f"update.schedule={schedule}", "update.warmup_steps=2"] for schedule in ("constant", "linear", "cosine")),
    ["update.mini_batch=4", "update.epochs=2"],
    ["algorithm.entropy_coef=0.01"],
    ["lora.rank=8", "lora.targets=['q_proj', 'v_proj']"],
    ["algorithm.truncated=mask", "task.stop=['\\n\\n']"],
    ["task.enable_thinking=false", "rollout.min_p=0.1", "rollout.top_k=20"],
    ["algorithm.drop_inactive_groups=true", "algorithm.overlong={length=32, cache=8}", "algorithm.daro=true"],
    ["eval.every=0", "save.keep=2"],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return jobs.sums(tmp_path_factory.mktemp("skyrl"), "{i}+{i}=?")


def export(folder, out, *changes):
    return jobs.variant("skyrl", folder, out, changes)


def imported(job, name):
    """A program of the job as a module."""
    # The registry refuses a second function of the same name.
    AdvantageEstimatorRegistry._functions.pop("fgrpo", None)
    spec = importlib.util.spec_from_file_location(name, job / f"{name}.py")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_skyrl_knows_every_setting_of_every_variant(folder, report):
    for i, changes in enumerate(VARIANTS):
        job = imported(export(folder, f"job-{i}", *changes), "train")
        config = job.configured(["trainer.print_example_interval=0"])
        assert config.trainer.print_example_interval == 0 and config.trainer.train_batch_size == 8
        assert config.trainer.algorithm.advantage_estimator == "fgrpo"
    AdvantageEstimatorRegistry._functions.pop("fgrpo")
    with pytest.raises(ValueError, match="Invalid fields"):
        job.configured(["trainer.unknown=1"])
    report(f"export: SkyRL 0.3.0 knows the settings of {len(VARIANTS)} variants of a job")


@pytest.mark.parametrize(("level", "wanted"), [("token", [0, 0.5, 2, 0]), ("sequence", [0.5] * 4)])
def test_a_mask_keeps_the_weights_within_its_bounds(folder, level, wanted):
    job = imported(export(folder, f"mask-{level}", f"algorithm.correction={{kind='mask', low=0.3, high=3.0, level='{level}'}}"), "train")
    weights = torch.tensor([[0.25, 0.5, 2.0, 4.0]]) if level == "token" else torch.tensor([[0.5, 1.0, 2.0, 0.5]])
    one, settings = torch.ones(1, 4), job.configured([]).trainer.algorithm.off_policy_correction
    loss, mask, _ = apply_off_policy_correction(one, weights.log(), 0 * one, one, settings)
    assert (loss * mask)[0].tolist() == pytest.approx(wanted)


def test_skyrl_asks_the_prompts_in_the_order_of_the_file_and_its_environment_grades(folder):
    place = export(folder, "asked")
    job = imported(place, "train")
    config = job.configured(["data.dataloader.num_workers=0"])
    trainer = job.Trainer.__new__(job.Trainer)
    trainer.cfg = config
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    trainer.train_dataset = PromptDataset(config.data.train_data, tokenizer, config.trainer.max_prompt_length, num_workers=1)
    trainer._build_train_dataloader_and_compute_training_steps()
    asked = [row for batch in trainer.train_dataloader for row in batch]
    rows = pq.read_table(place / "train.parquet").to_pylist()
    assert trainer.total_training_steps == 3
    assert [row["env_extras"]["extra_info"]["problem"] for row in asked] == [row["extra_info"]["problem"] for row in rows]

    grading = imported(place, "reward")
    for answer, reward in ((int(asked[0]["prompt"][0]["content"].split("+")[0]) * 2, 1.0), (-7, 0.0)):
        step = grading.Graded({}, asked[0]["env_extras"]).step(f"\\boxed{{{answer}}}")
        assert (step["reward"], step["done"]) == (reward, True)
