"""verl 0.9.1: its advantage and loss functions, reward managers, engine and a step of its trainer."""

import asyncio
import copy
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import pytest

verl = pytest.importorskip("verl")

import torch  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from tiny import tiny  # noqa: E402
from verl import DataProto  # noqa: E402
from verl.trainer.ppo import core_algos  # noqa: E402
from verl.trainer.ppo.ray_trainer import compute_advantage  # noqa: E402

import fgrpo  # noqa: E402

BASE = {"gamma": 1.0, "lam": 1.0, "norm_adv_by_std_in_grpo": True, "use_kl_in_reward": False}


def batch(groups=40, size=8, tokens=12, graded=False, seed=0):
    """Makes a batch of prompts of different difficulty, with shuffled rows and rewards on the last token."""
    rng = np.random.default_rng(seed)
    count = groups * size
    uid = np.repeat(np.array([f"prompt-{g}" for g in range(groups)], dtype=object), size)
    rng.shuffle(uid)
    rate = {u: rng.random() for u in set(uid)}
    rewards = rng.normal(size=count) if graded else np.array([rng.random() < rate[u] for u in uid], float)
    length = rng.integers(1, tokens + 1, count)
    mask = torch.tensor(np.arange(tokens)[None] < length[:, None]).float()
    token_rewards = torch.zeros(count, tokens)
    token_rewards[torch.arange(count), torch.tensor(length) - 1] = torch.tensor(rewards, dtype=torch.float32)
    return DataProto.from_dict(
        tensors={"token_level_rewards": token_rewards, "response_mask": mask}, non_tensors={"uid": uid}
    )


def advantages(data, estimator, **settings):
    config = OmegaConf.create({**BASE, **settings})
    found = compute_advantage(
        copy.deepcopy(data), estimator, config=config, norm_adv_by_std_in_grpo=config.norm_adv_by_std_in_grpo
    )
    return found.batch["advantages"]


def test_a_bare_import_of_verl_finds_the_estimator(report):
    code = (
        "import time; t = time.time(); import verl; t = time.time() - t\n"
        "from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY as known\n"
        "assert 'fgrpo' in known, sorted(known); print(verl.__version__, round(t, 1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    version, seconds = done.stdout.split()[-2:]
    report(f"verl {version}: `import verl` alone registers the estimator fgrpo ({seconds} s)")


@pytest.mark.parametrize("graded", [False, True], ids=["binary", "graded"])
@pytest.mark.parametrize(
    ("theirs", "settings", "ours"),
    [
        ("grpo", {}, {}),
        ("grpo", {"norm_adv_by_std_in_grpo": False}, {}),
        ("grpo_vectorized", {}, {}),
        ("rloo", {}, {"focal_estimator": "rloo"}),
        ("rloo_vectorized", {}, {"focal_estimator": "rloo"}),
    ],
    ids=["grpo", "dr_grpo", "grpo_vectorized", "rloo", "rloo_vectorized"],
)
def test_gamma_zero_is_verls_own_estimator(theirs, settings, ours, graded, report):
    data = batch(graded=graded)
    wanted = advantages(data, theirs, **settings)
    found = advantages(data, "fgrpo", focal_gamma=0.0, **settings, **ours)
    difference = (found - wanted).abs().max().item()
    name = "dr_grpo" if settings else theirs
    report(f"verl {name}, {'graded' if graded else 'binary'} rewards: largest difference {difference:.1e}")
    assert difference < 1e-6


def test_the_focal_weight_multiplies_verls_grpo(report):
    data = batch()
    rewards, uid = data.batch["token_level_rewards"].sum(-1).numpy(), data.non_tensor_batch["uid"]
    rate = np.array([rewards[uid == u].mean() for u in uid])
    wanted = advantages(data, "grpo") * torch.tensor((1 - rate) ** 0.5).float()[:, None]
    difference = (advantages(data, "fgrpo", focal_gamma=0.5) - wanted).abs().max().item()
    report(f"verl fgrpo at gamma 0.5 and (1 - rate)^0.5 times its grpo: largest difference {difference:.1e}")
    assert difference < 1e-6


def test_unscorable_rows_leave_their_group():
    data = batch(groups=3, size=4)
    uid = data.non_tensor_batch["uid"]
    row = 5
    mates = np.flatnonzero(uid == uid[row])
    data.batch["token_level_rewards"][row] = float("nan")
    found = advantages(data, "fgrpo", focal_gamma=0.0)
    assert torch.isfinite(found).all() and (found[row] == 0).all()
    rest = mates[mates != row]
    rewards = data.batch["token_level_rewards"].sum(-1)[rest].double().numpy()
    wanted = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-6)
    np.testing.assert_allclose(found[rest].max(dim=1).values + found[rest].min(dim=1).values, wanted, atol=1e-6)


def test_a_group_of_one_gets_nothing():
    found = advantages(batch(groups=5, size=1), "fgrpo")
    assert (found == 0).all()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"use_kl_in_reward": True}, "use_kl_in_reward=True"),
        ({"focal_estimator": "gae"}, "estimator: expected"),
        ({"focal_gamma": -1.0}, "gamma: expected"),
        ({"focal_shaping": "unlikely"}, "old_log_probs"),
        ({"focal_gama": 1}, "algorithm.focal_gama: unknown key; did you mean focal_gamma?"),
        ({"fgrpo_mode": "strict"}, "algorithm.fgrpo_mode: unknown key; expected one of focal_gamma, "),
        ({"reward_treshold": 0.5}, "did you mean reward_threshold?"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        advantages(batch(), "fgrpo", **settings)


def test_graded_rewards_need_a_threshold():
    data = batch(graded=True)
    with pytest.raises(ValueError, match="group 'prompt-.*algorithm.reward_correct"):
        advantages(data, "fgrpo")
    found = advantages(data, "fgrpo", reward_threshold=0.0, focal_gamma=1.0)
    assert torch.isfinite(found).all()


def test_shaping_works_where_verl_hands_the_batch_on():
    from fgrpo.verl import fgrpo as estimator

    rewards = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    mask = torch.ones(3, 2)
    logp = torch.tensor([[-1.0, -1.0], [-2.0, -2.0], [-1.0, -3.0]])
    config = OmegaConf.create({"focal_gamma": 0.0, "focal_estimator": "dr_grpo", "focal_shaping": "unlikely"})
    found, _ = estimator(rewards, mask, index=["p"] * 3, config=config, batch={"old_log_probs": logp})
    wanted = fgrpo.advantages([[1, 1, 0]], estimator="dr_grpo", shaping="unlikely", mean_logp=[[-1, -2, -2]])
    np.testing.assert_allclose(found[:, 0], wanted[0], atol=1e-7)
    # HA-DW reads no log-probabilities.
    config.focal_shaping = "ha_dw"
    found, _ = estimator(rewards, mask, index=["p"] * 3, config=config)
    wanted = fgrpo.advantages([[1, 1, 0]], estimator="dr_grpo", shaping="ha_dw")
    np.testing.assert_allclose(found[:, 0], wanted[0], atol=1e-7)


def actor(**settings):
    from verl.workers.config import FSDPActorConfig

    return FSDPActorConfig(
        strategy="fsdp2", rollout_n=4, ppo_mini_batch_size=8, ppo_micro_batch_size_per_gpu=8, use_dynamic_bsz=False, **settings
    )


@pytest.mark.parametrize(
    "mode", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
)
@pytest.mark.parametrize(
    ("loss", "theirs", "settings"),
    [
        ("grpo", "vanilla", {}),
        ("dapo", "vanilla", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}),
        ("cispo", "cispo", {"clip_ratio_low": 1.0, "clip_ratio_high": 5.0}),
        ("gspo", "gspo", {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}),
    ],
)
def test_losses_and_gradients_are_verls(loss, theirs, settings, mode, report):
    rng = np.random.default_rng(2)
    rows, tokens = 8, 16
    mask = np.arange(tokens)[None] < rng.integers(1, tokens + 1, rows)[:, None]
    old = -rng.random((rows, tokens)) * 3
    logp = torch.tensor(old + rng.normal(0, 0.5, old.shape), requires_grad=True)
    own = rng.normal(size=rows)
    function = core_algos.get_policy_loss_fn(theirs)
    value, _ = function(
        old_log_prob=torch.tensor(old),
        log_prob=logp,
        advantages=torch.tensor(own)[:, None].expand(rows, tokens),
        response_mask=torch.tensor(mask).double(),
        loss_agg_mode=mode,
        config=actor(**settings),
    )
    value.backward()
    norm = {"max_len": tokens} if mode == "seq-mean-token-sum-norm" else {}
    found, slope = fgrpo.policy_loss(logp.detach(), old, own, mask, loss=loss, aggregation=mode, **norm)
    difference = max(abs(found - value.item()), np.abs(slope - logp.grad.numpy()).max())
    report(f"verl {theirs} as {loss}, {mode}: loss and gradient differ by at most {difference:.1e}")
    assert difference < 1e-7


def reward_manager(name, **settings):
    from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
    from verl.trainer.ppo.reward import get_custom_reward_fn

    function = {"path": "pkg://fgrpo.verl", "name": "compute_score", "reward_kwargs": settings}
    config = OmegaConf.create({"reward": {"custom_reward_function": function}})
    return get_reward_manager_cls(name)(
        config=config, tokenizer=tiny()[1], compute_score=get_custom_reward_fn(config)
    )


@pytest.mark.parametrize("name", ["naive", "dapo"])
def test_both_reward_managers_take_the_reward_function(name):
    async def scores():
        manager, found = reward_manager(name), []
        for text in ("so \\boxed{7}", "\\boxed{8}", "so \\boxed{}"):
            ids = manager.tokenizer(text, return_tensors="pt")["input_ids"]
            data = DataProto.from_dict(
                tensors={"responses": ids, "attention_mask": torch.ones_like(ids)},
                non_tensors={
                    "data_source": np.array(["x"], object),
                    "reward_model": np.array([{"ground_truth": "7"}], object),
                    "extra_info": np.array([{}], object),
                },
            )
            found.append(await manager.run_single(data))
        return found

    correct, wrong, unparsed = asyncio.run(scores())
    assert (correct["reward_score"], wrong["reward_score"], unparsed["reward_score"]) == (1, 0, 0)
    assert correct["reward_extra_info"] == {"score": 1, "acc": 1, "unparsed": 0, "unscorable": 0}
    assert unparsed["reward_extra_info"]["unparsed"] == 1


def test_the_reward_function_can_mark_failures_for_the_estimator():
    from fgrpo.verl import compute_score

    plain, marked = compute_score("d", "\\boxed{9}", ""), compute_score("d", "\\boxed{9}", "", unscorable=float("nan"))
    assert plain["unscorable"] == 1 and plain["score"] == 0 and plain["acc"] == 0
    assert np.isnan(marked["score"]) and marked["acc"] == 0
    # No response can make itself unscorable.
    endless = "\\boxed{" + "(" * 3000 + "x" + ")" * 3000 + "}"
    assert compute_score("d", endless, "9", unscorable=float("nan"))["score"] == 0
    assert compute_score("d", r"\boxed{B}", "B", verifier="choice", correct=2.0)["score"] == 2
    assert compute_score("d", r"\boxed{72}", "48 + 24 = 72.\n#### 72")["score"] == 1
    assert compute_score("d", r"\boxed{1, 2}", np.array(["1", "2"], object))["score"] == 1
    off = ("d", r"\boxed{35}", r"35\%")
    assert compute_score(*off)["score"] == 0 and compute_score(*off, mode="parity")["score"] == 1
    assert compute_score("d", r"\boxed{7}", "7", reward_router_address=None)["score"] == 1
    with pytest.raises(ValueError, match="reward_kwargs.verifer: unknown key; did you mean verifier?"):
        compute_score("d", "", "B", verifer="choice")
    with pytest.raises(ValueError, match="verifier: expected .*found 'x'"):
        compute_score("d", "", "B", verifier="x")


def documented_overrides():
    """Returns the overrides in the blocks of docs/verl.md."""
    page = pathlib.Path(__file__).parents[4].joinpath("docs/verl.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.M | re.S)
    return [b.replace("\\\n", " ").split() for b in blocks if "=" in b]


def test_verls_configuration_takes_the_documented_command_lines():
    from hydra import compose, initialize_config_module

    grpo, dapo, cispo, rewards = documented_overrides()
    for lines in ([grpo], [grpo, dapo], [grpo, cispo]):
        overrides = [word for line in [*lines, rewards] for word in line]
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=overrides)
        assert config.algorithm.adv_estimator == "fgrpo" and config.algorithm.focal_gamma == 0.5
        assert np.isnan(config.reward.custom_reward_function.reward_kwargs.unscorable)
        actor = config.actor_rollout_ref.actor
        assert actor.clip_ratio_c == 3.0 and actor.loss_agg_mode == "token-mean"
    assert actor.policy_loss.loss_mode == "cispo" and (actor.clip_ratio_low, actor.clip_ratio_high) == (1.0, 5.0)


def test_speed_of_a_large_batch(report):
    data = batch(groups=1024, size=8, tokens=64)
    cases = [("verl grpo", "grpo", {}), ("verl grpo_vectorized", "grpo_vectorized", {}), ("fgrpo", "fgrpo", {"focal_gamma": 0.5})]
    times = {name: [] for name, _, _ in cases}
    for _ in range(5):
        for name, estimator, settings in cases:
            mine, config = copy.deepcopy(data), OmegaConf.create({**BASE, **settings})
            start = time.perf_counter()
            compute_advantage(mine, estimator, config=config)
            times[name].append(time.perf_counter() - start)
    medians = {name: 1e3 * float(np.median(t)) for name, t in times.items()}
    report("8,192 rows through verl's compute_advantage, medians of 5 in turns: " + ", ".join(f"{n} {t:.1f} ms" for n, t in medians.items()))


def test_two_updates_through_verls_fsdp2_engine(script, report):
    report("verl FSDP2 engine on the CPU: " + script("verl_step.py").strip().splitlines()[-1])


@pytest.mark.slow
def test_the_advantage_step_of_the_v1_trainer_on_ray(script, report):
    report("verl V1 trainer on Ray: " + script("verl_v1.py").strip().splitlines()[-1])
