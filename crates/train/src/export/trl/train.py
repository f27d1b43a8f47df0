"""Trains with TRL {{ version }} on {{ nodes * gpus }} GPUs: `accelerate launch --config_file accelerate.yaml train.py`.

Without a GPU, `python train.py` tries the job with a small model: it samples with Transformers, and computes in f32."""

import os
import pathlib
from importlib.metadata import version

import torch
from datasets import load_dataset
{%- if lora %}
from peft import LoraConfig
{%- endif %}
from trl import GRPOConfig

import fgrpo.trl
from reward import check, rewards

JOB = pathlib.Path(__file__).resolve().parent
GPU = torch.cuda.is_available()
assert version("trl") == "{{ version }}", f"this job was written for TRL {{ version }}; export it again for TRL {version('trl')}"
# Each comment names the key of config.toml.
args = GRPOConfig(
    output_dir=os.environ.get("RUN", str(JOB / "run")),
    use_vllm=GPU, bf16=GPU, use_cpu=not GPU, model_init_kwargs={"dtype": "float32"}, logging_steps=1, report_to="none",
{%- for line in settings %}
    {{ line }}
{%- endfor %}
)
assert args.world_size == {{ nodes * gpus }} or not GPU, f"this job is for {{ nodes * gpus }} GPUs, and there are {args.world_size} processes"
check()
trainer = fgrpo.trl.FGRPOTrainer(
    model=os.environ.get("MODEL", {{ model_literal }}),
    args=args,
    reward_funcs=rewards,
    train_dataset=load_dataset("parquet", data_files=str(JOB / "train.parquet"), split="train"),
{%- for line in trainer_settings %}
    {{ line }}
{%- endfor %}
{%- if lora %}
    peft_config=LoraConfig(
        task_type="CAUSAL_LM",
{%- for line in adapter_settings %}
        {{ line }}
{%- endfor %}
    ),
{%- endif %}
)
if __name__ == "__main__":
    trainer.train()
