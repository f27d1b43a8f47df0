#!/usr/bin/env bash
# Trains with verl {{ version }}. Every machine of the cluster needs this folder at the same path, verl, and the package fgrpo.
#
#   MODEL=/models/Qwen2.5-7B NODES=2 GPUS=8 ./run.sh     on the head of a Ray cluster, or alone on one machine
#   ./run.sh trainer.total_training_steps=2              any key of verl; it replaces the one below
set -euo pipefail
JOB=$(cd "$(dirname "$0")" && pwd)
MODEL=${MODEL:-{{ model }}}
NODES=${NODES:-{{ nodes }}}
GPUS=${GPUS:-{{ gpus }}}
RUN=${RUN:-$JOB/run}
export TOKENIZERS_PARALLELISM=false
python3 - "$JOB" <<'PYTHON'
import sys
from importlib.metadata import version

import fgrpo.verl

installed = version("verl")
assert installed == "{{ version }}", f"this job was written for verl {{ version }}, and verl {installed} is installed; export the job again"
sys.path.insert(0, sys.argv[1])
import reward

# verl goes on if nothing can be graded.
reward.check()
PYTHON

# Each comment names the key of config.toml.
settings=(
    actor_rollout_ref.model.path="$MODEL"
    data.train_files="$JOB/train.parquet"
    data.val_files="$JOB/held-out.parquet"
    reward.custom_reward_function.path="$JOB/reward.py"
    reward.custom_reward_function.name=compute_score
    trainer.nnodes="$NODES"
    trainer.n_gpus_per_node="$GPUS"
    trainer.default_local_dir="$RUN/checkpoints"
    trainer.validation_data_dir="$RUN/validation"
    trainer.project_name=fgrpo
    # verl's own default needs an account of Weights & Biases.
    'trainer.logger=["console","tensorboard"]'
{%- for line in settings %}
    {{ line }}
{%- endfor %}
)
exec python3 -m verl.trainer.main_ppo "${settings[@]}" "$@"
