"""Trains with SkyRL {{ version }}: `python3 train.py`, on the head of a Ray cluster, or alone on one machine.

Every machine needs this folder at the same path. Any key of SkyRL that you append, KEY=VALUE, replaces the one below."""

import json
import os
import pathlib
import sys
from importlib.metadata import version

import ray
from skyrl.train.config import SkyRLTrainConfig
from skyrl.train.entrypoints.main_base import BasePPOExp
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.utils import initialize_ray, validate_cfg
from torchdata.stateful_dataloader import StatefulDataLoader

import fgrpo.skyrl

JOB = pathlib.Path(__file__).resolve().parent
RUN = os.environ.get("RUN", str(JOB / "run"))
assert version("skyrl") == "{{ version }}", f"this job was written for SkyRL {{ version }}; export it again for SkyRL {version('skyrl')}"
# Each comment names the key of config.toml.
SETTINGS = {
    "trainer.policy.model.path": os.environ.get("MODEL", {{ model_literal }}),
    "data.train_data": [str(JOB / "train.parquet")],
    "data.val_data": [str(JOB / "held-out.parquet")],
    "environment.env_class": "fgrpo",
    "trainer.ckpt_path": RUN + "/checkpoints",
    "trainer.export_path": RUN + "/exports",
    "trainer.project_name": "fgrpo",
    # SkyRL's own default needs an account of Weights & Biases.
    "trainer.logger": "tensorboard",
{%- for line in settings %}
    {{ line }}
{%- endfor %}
}


def configured(arguments):
    """SkyRL's configuration, with the estimator in its registry."""
    fgrpo.skyrl.register(
{%- for line in trainer_settings %}
        {{ line }}
{%- endfor %}
    )
    config = SkyRLTrainConfig.from_cli_overrides([*(f"{key}={json.dumps(value)}" for key, value in SETTINGS.items()), *arguments])
    validate_cfg(config)
    return config


class Trainer(RayPPOTrainer):
{%- if listed %}
    """Asks the prompts in the order of the file, which SkyRL would shuffle."""

    def _build_train_dataloader_and_compute_training_steps(self):
        super()._build_train_dataloader_and_compute_training_steps()
        rows = self.train_dataset
        assert len(rows) == {{ steps * prompts }}, f"SkyRL left out prompts: {len(rows)} of {{ steps * prompts }} are there"
        size = self.cfg.trainer.train_batch_size
        self.train_dataloader = StatefulDataLoader(rows, batch_size=size, collate_fn=rows.collate_fn, drop_last=True)
{%- else %}
    """SkyRL's own, which draws the order of the prompts."""
{%- endif %}


class Experiment(BasePPOExp):
    def get_trainer(self, **parts):
        return Trainer(**parts)


@ray.remote(num_cpus=1)
def train(config):
    sys.path.insert(0, str(JOB))
    from skyrl_gym.envs import register

    register(id="fgrpo", entry_point="reward:Graded")
    Experiment(config).run()


if __name__ == "__main__":
    from reward import check

    check()
    config = configured(sys.argv[1:])
    initialize_ray(config)
    ray.get(train.remote(config))
