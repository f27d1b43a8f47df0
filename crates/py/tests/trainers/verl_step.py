"""Runs two updates of a tiny policy with verl's engine on the CPU: generate, compute_advantage with fgrpo, ppo_loss, optimizer."""

import copy
import os
from functools import partial

os.environ.update(
    VERL_PLATFORM="cpu", MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1", LOCAL_RANK="0"
)

import torch
import verl_cpu  # noqa: F401: adds the CPU to verl
import numpy as np
from omegaconf import OmegaConf
from tensordict import TensorDict
from tiny import digit_reward, tiny
from transformers import Qwen2ForCausalLM
from verl import DataProto
from verl.trainer.config import CheckpointConfig
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils import tensordict_utils as tu
from verl.workers.config import FSDPActorConfig, FSDPEngineConfig, FSDPOptimizerConfig, HFModelConfig
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

SIZE, TOKENS, PROMPTS = 4, 8, ["1+1=?", "2+3=?"]


def weights(engine):
    full = lambda v: v.full_tensor().clone() if hasattr(v, "full_tensor") else v.clone()
    return {k: full(v) for k, v in engine.module.state_dict().items()}


tiny("tiny-model")
torch.distributed.init_process_group("gloo", rank=0, world_size=1)
model = HFModelConfig(
    path="tiny-model",
    use_remove_padding=False,
    override_config={"attn_implementation": "sdpa"},
    enable_gradient_checkpointing=False,
)
settings = FSDPEngineConfig(
    strategy="fsdp2",
    fsdp_size=1,
    use_torch_compile=False,
    mixed_precision={"param_dtype": "fp32", "reduce_dtype": "fp32"},
    use_dynamic_bsz=False,
    micro_batch_size_per_gpu=8,
    infer_micro_batch_size_per_gpu=8,
    use_remove_padding=False,
)
engine = EngineRegistry.new(
    model_type="language_model",
    backend="fsdp2",
    model_config=model,
    engine_config=settings,
    optimizer_config=FSDPOptimizerConfig(lr=1e-2, total_training_steps=4, clip_grad=1.0),
    checkpoint_config=CheckpointConfig(),
)
engine.initialize()
actor = FSDPActorConfig(
    strategy="fsdp2",
    rollout_n=SIZE,
    ppo_mini_batch_size=8,
    ppo_micro_batch_size_per_gpu=8,
    use_dynamic_bsz=False,
    loss_agg_mode="token-mean",
    entropy_coeff=0.0,
    use_kl_loss=False,
)
config = OmegaConf.create({"norm_adv_by_std_in_grpo": True, "use_kl_in_reward": False, "focal_gamma": 0.5})
before, norms = weights(engine), []
for step in range(2):
    policy = Qwen2ForCausalLM.from_pretrained("tiny-model")
    policy.load_state_dict(weights(engine))
    ids = model.tokenizer([p for p in PROMPTS for _ in range(SIZE)], return_tensors="pt", padding=True)
    width = ids["input_ids"].shape[1]
    torch.manual_seed(step)
    out = policy.generate(**{k: ids[k] for k in ("input_ids", "attention_mask")}, max_new_tokens=TOKENS, do_sample=True, top_k=0, pad_token_id=0)
    out = torch.nn.functional.pad(out, (0, width + TOKENS - out.shape[1]))
    response = out[:, width:]
    ended = (response == 1).long()
    response_mask = (torch.cumsum(ended, 1) - ended == 0).long()
    mask = torch.cat([ids["attention_mask"], response_mask], 1)
    rows = out.shape[0]
    reward = torch.tensor(digit_reward(model.tokenizer.batch_decode(response, skip_special_tokens=True)))
    token_rewards = torch.zeros(rows, TOKENS)
    token_rewards[torch.arange(rows), response_mask.sum(1) - 1] = reward
    uid = np.array([f"p{i // SIZE}" for i in range(rows)], dtype=object)
    data = DataProto.from_dict(
        tensors={"token_level_rewards": token_rewards, "response_mask": response_mask}, non_tensors={"uid": uid}
    )
    advantages = compute_advantage(data, adv_estimator="fgrpo", config=config).batch["advantages"]
    grouped = reward.view(-1, SIZE).double().numpy()
    rate = grouped.mean(1, keepdims=True)
    wanted = (1 - rate) ** 0.5 * (grouped - rate) / (grouped.std(1, ddof=1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(advantages[:, 0].numpy(), wanted.ravel(), atol=1e-6)
    assert (wanted != 0).any(), "no group is active: the step would test nothing"
    td = TensorDict(
        {
            "input_ids": out,
            "attention_mask": mask,
            "position_ids": (mask.cumsum(1) - 1).clamp(min=0),
            "response_mask": response_mask,
            "prompts": ids["input_ids"],
            "responses": response,
            "advantages": advantages,
        },
        batch_size=rows,
    )
    td = left_right_2_no_padding(td)
    tu.assign_non_tensor(
        td,
        use_remove_padding=False,
        temperature=1.0,
        use_dynamic_bsz=False,
        micro_batch_size_per_gpu=8,
        global_batch_size=rows,
        calculate_entropy=True,
    )
    with engine.eval_mode():
        logp = engine.infer_batch(copy.deepcopy(td))["model_output"]["log_probs"]
    td["old_log_probs"] = no_padding_2_padding(logp, td)
    with engine.train_mode():
        metrics = engine.train_batch(td, partial(ppo_loss, actor))["metrics"]
    norms.append(float(metrics["grad_norm"]))
after = weights(engine)
moved = max((after[k] - before[k]).abs().max().item() for k in before)
assert moved > 0 and all(0 < n < 1e3 for n in norms), (moved, norms)
print(f"two updates, gradient norms {norms[0]:.3f} and {norms[1]:.3f}, weights moved by up to {moved:.4f}")
