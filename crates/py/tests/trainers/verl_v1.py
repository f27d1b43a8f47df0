"""Runs the advantage step of verl 0.9.1's V1 trainer with a real local Ray and TransferQueue, without a GPU."""

import numpy as np
import ray
import torch
import transfer_queue as tq
from hydra import compose, initialize_config_module
from tensordict import NonTensorStack, TensorDict
from verl.trainer.ppo.v1 import get_trainer_cls

REWARDS = np.array([[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 0, np.nan, 0]], float)

with initialize_config_module("verl.trainer.config", version_base=None):
    config = compose(
        "ppo_trainer",
        overrides=[
            "algorithm.adv_estimator=fgrpo",
            "+algorithm.focal_gamma=0.5",
            "transfer_queue.enable=true",
            "actor_rollout_ref.rollout.n=4",
        ],
    )
for attempt in range(5):
    try:
        ray.init(num_cpus=16, include_dashboard=False, logging_level="ERROR")
        break
    except Exception as error:
        # Ray gives its processes 30 seconds to start, which isn't enough on a busy machine.
        if attempt == 4 or "timed out" not in str(error):
            raise
        ray.shutdown()
tq.init(config.transfer_queue)
rng = np.random.default_rng(0)
keys, uids, masks, scores, logps = [], [], [], [], []
for g, group in enumerate(REWARDS):
    for i, reward in enumerate(group):
        length = int(rng.integers(2, 6))
        keys.append(f"u{g}_{i}_0")
        uids.append(f"u{g}")
        masks.append(torch.ones(length))
        scores.append(torch.cat([torch.zeros(length - 1), torch.tensor([reward], dtype=torch.float32)]))
        logps.append(-torch.rand(length))
nested = lambda rows: torch.nested.as_nested_tensor(rows, layout=torch.jagged)
fields = TensorDict(
    {
        "uid": NonTensorStack(*uids),
        "response_mask": nested(masks),
        "rm_scores": nested(scores),
        "old_log_probs": nested(logps),
        "rollout_log_probs": nested(logps),
    },
    batch_size=len(keys),
)
batch = tq.kv_batch_put(keys=keys, partition_id="train", fields=fields, tags=[{} for _ in keys])
trainer_class = get_trainer_cls("sync")
trainer = trainer_class.__new__(trainer_class)
trainer.config = config
trainer._compute_advantage(batch, {})
stored = tq.kv_batch_get(keys=keys, partition_id="train", select_fields=["advantages"])["advantages"]
found = np.array([row[0].item() for row in stored.unbind()]).reshape(REWARDS.shape)
mean, deviation = np.nanmean(REWARDS, 1, keepdims=True), np.nanstd(REWARDS, 1, ddof=1, keepdims=True)
wanted = np.nan_to_num((1 - mean) ** 0.5 * (REWARDS - mean) / (deviation + 1e-6))
difference = np.abs(found - wanted).max()
assert difference < 1e-6, (found, wanted)
tq.close()
ray.shutdown()
print(f"_compute_advantage differs from the formula by at most {difference:.1e}, an unscorable row among them")
