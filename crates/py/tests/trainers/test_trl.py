"""TRL 1.16: its trainers with a tiny random policy, its losses, two processes."""

import numpy as np
import pytest

trl = pytest.importorskip("trl")

import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from tiny import digit_reward, tiny  # noqa: E402

import fgrpo  # noqa: E402
from fgrpo.trl import Focal, FGRPOTrainer, FRLOOTrainer, choice_reward, ifeval_reward, math_reward, synlogic_reward  # noqa: E402

torch.set_num_threads(1)
PROMPTS = ["1+1=?", "2+3=?", "4+4=?", "a b c"]
SIZE = 4


def trainer(base, folder, rewards=digit_reward, config=None, columns=None, **settings):
    """A trainer for two steps of 8 completions, which stores its outputs."""
    model, tokenizer = tiny()
    config_class = trl.RLOOConfig if issubclass(base, trl.RLOOTrainer) else trl.GRPOConfig
    arguments = config_class(
        output_dir=str(folder),
        per_device_train_batch_size=8,
        num_generations=SIZE,
        max_completion_length=8,
        max_steps=2,
        learning_rate=1e-2,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        gradient_checkpointing=False,
        disable_tqdm=True,
        seed=1,
        **{"beta": 0.0, **(config or {})},
    )

    class Spy(base):
        outputs, rewards = [], []

        def _calculate_rewards(self, *inputs):
            found = super()._calculate_rewards(*inputs)
            self.rewards.append(found[:, 0].tolist())
            return found

        def _generate_and_score_completions(self, inputs):
            out = super()._generate_and_score_completions(inputs)
            self.outputs.append(out["advantages"].clone())
            return out

    Spy.__name__ = base.__name__
    data = Dataset.from_dict({"prompt": PROMPTS, **(columns or {})})
    return Spy(model=model, reward_funcs=rewards, args=arguments, train_dataset=data, processing_class=tokenizer, **settings)


def weights(trained):
    return torch.cat([p.detach().flatten() for p in trained.model.parameters()])


@pytest.mark.parametrize(("stock", "ours"), [(trl.GRPOTrainer, FGRPOTrainer), (trl.RLOOTrainer, FRLOOTrainer)], ids=["grpo", "rloo"])
def test_gamma_zero_is_trls_trainer_and_gamma_one_weighs_its_advantages(stock, ours, tmp_path, report):
    plain = trainer(stock, tmp_path)
    plain.train()
    zero = trainer(ours, tmp_path, focal_gamma=0.0)
    zero.train()
    assert torch.equal(weights(plain), weights(zero))
    focal = trainer(ours, tmp_path, focal_gamma=1.0)
    focal.train()
    # The first step's completions are the same, so its advantages are comparable.
    base, weighted = plain.outputs[0], focal.outputs[0]
    assert plain.rewards[0] == focal.rewards[0]
    rewards = np.array(plain.rewards[0]).reshape(-1, SIZE)
    weight = torch.tensor(1 - rewards.mean(1)).repeat_interleave(SIZE).to(base.dtype)
    difference = (weighted - base * weight).abs().max().item()
    assert difference < 1e-6 and (weight != 1).any() and (base != 0).any()
    assert not torch.equal(weights(plain), weights(focal))
    logged = [log for log in focal.state.log_history if "focal_weight" in log]
    assert logged[0]["focal_weight"] == pytest.approx(float((1 - rewards.mean(1)).mean()))
    assert logged[0]["success_rate"] == pytest.approx(float(rewards.mean()))
    # The table of completions shows the advantages of the training.
    np.testing.assert_allclose(list(focal._logs["advantages"])[-8:], focal.outputs[-1], atol=1e-6)
    report(
        f"TRL {trl.__version__} {ours.__name__}: gamma 0 leaves the weights of {stock.__name__}'s two steps bit for bit; "
        f"gamma 1 and advantages times weight differ by at most {difference:.1e}"
    )


def test_pass_at_k_of_the_groups_is_logged(tmp_path):
    for gamma in (0.0, 0.5):
        run = trainer(FGRPOTrainer, tmp_path, focal_gamma=gamma)
        run.train()
        correct = np.array(run.rewards[0]).reshape(-1, SIZE).sum(1).astype(int)
        for k in (1, 2, 4):
            wanted = fgrpo.pass_at_k(SIZE, correct, k).mean()
            assert run.state.log_history[0][f"pass@{k}"] == pytest.approx(wanted)
        assert not any("pass@8" in log or "pass@3" in log for log in run.state.log_history)


def test_pass_at_k_counts_scored_completions_alone(tmp_path):
    def lower(completions, **_):
        return [None if i % SIZE == 0 else float(i % SIZE == 1) for i in range(len(completions))]

    run = trainer(FGRPOTrainer, tmp_path, rewards=lower)
    run.train()
    logged = run.state.log_history[0]
    assert [logged[f"pass@{k}"] for k in (1, 2, 3)] == pytest.approx([1 / 3, 2 / 3, 1]) and "pass@4" not in logged


def test_trainers_that_the_weight_cannot_reach_are_refused_at_construction():
    from trl.experimental.async_grpo import AsyncGRPOTrainer

    class Mine(Focal, AsyncGRPOTrainer):
        pass

    with pytest.raises(TypeError, match="Mine.Focal, AsyncGRPOTrainer.*no base has the method _calculate_rewards"):
        Mine("model", digit_reward, focal_gamma=0.5)

    class Late(trl.GRPOTrainer, Focal):
        pass

    with pytest.raises(TypeError, match="Late.*put Focal first"):
        Late("model", digit_reward)


def test_two_processes_weigh_groups_split_between_them(script, report):
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29517")
    import sys

    out = script("trl_processes.py", program=(sys.executable, *torchrun))
    found = {}
    for line in out.splitlines():
        if line.startswith("rank "):
            _, rank, kind, *values = line.split()
            found.setdefault(kind, {})[int(rank)] = [float(v) for v in values]
    gathered = np.array(found["gathered"][0])
    assert gathered.size == 4 and found["gathered"][0] == found["gathered"][1]
    mine = np.concatenate([found["advantages"][0], found["advantages"][1]])
    base = np.concatenate([found["base"][0], found["base"][1]])
    np.testing.assert_allclose(mine, base * (1 - gathered.mean()), atol=1e-6)
    report("TRL under torchrun: a group of 4 split over two processes gets one weight, (1 - rate) of all four")


def test_unscorable_completions_leave_their_group(tmp_path):
    calls = []

    def reward(completions, **_):
        calls.append(1)
        return [None if i % 4 == 3 else float(i % 4 == 0) for i in range(len(completions))]

    run = trainer(FGRPOTrainer, tmp_path, rewards=reward, focal_gamma=1.0)
    run.train()
    assert calls
    found = run.outputs[0].reshape(-1, SIZE)
    assert (found[:, 3] == 0).all() and torch.isfinite(found).all()
    assert [log["success_rate"] for log in run.state.log_history if "success_rate" in log][0] == pytest.approx(1 / 3)


def test_an_older_trl_that_would_score_an_unscorable_completion_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fgrpo.trl.LEAVES_OUT", False)
    trainer(FGRPOTrainer, tmp_path).train()
    run = trainer(FGRPOTrainer, tmp_path, rewards=lambda completions, **_: [None] + [1.0] * (len(completions) - 1))
    with pytest.raises(ValueError, match="TRL 1.6 or later"):
        run.train()


def test_graded_rewards_need_a_threshold_or_the_function_that_decides(tmp_path):
    def style(completions, **_):
        return [0.1 * (i % 3) for i in range(len(completions))]

    run = trainer(FGRPOTrainer, tmp_path, rewards=[digit_reward, style])
    with pytest.raises(ValueError, match="FGRPOTrainer: group .*correct_by"):
        run.train()
    for settings in ({"correct_by": "digit_reward"}, {"reward_threshold": 1.0}):
        run = trainer(FGRPOTrainer, tmp_path, rewards=[digit_reward, style], **settings)
        run.train()
        rewards = np.array(list(run._logs["rewards"]["digit_reward"])[-8:])
        assert [log["success_rate"] for log in run.state.log_history if "success_rate" in log][-1] == pytest.approx(rewards.mean())


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"focal_gamma": -1.0}, "gamma: expected"), ({"reward_wrong": 2.0}, "correct: expected"), ({"correct_by": "x"}, "correct_by: expected")],
)
def test_settings_that_cannot_work_are_refused_before_training(settings, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        trainer(FGRPOTrainer, tmp_path, **settings)


@pytest.mark.parametrize(
    ("theirs", "settings", "loss", "mode", "ours"),
    [
        ("grpo", {}, "grpo", "seq-mean-token-mean", {"dual_clip": None}),
        ("bnpo", {}, "grpo", "token-mean", {"dual_clip": None}),
        ("dr_grpo", {}, "grpo", "seq-mean-token-sum-norm", {"dual_clip": None, "max_len": 8}),
        ("dapo", {"epsilon_high": 0.28}, "dapo", "token-mean", {"dual_clip": None}),
        ("cispo", {"epsilon_high": 6.0}, "cispo", "token-mean", {"absolute_cap": True, "clip_high": 6.0}),
    ],
)
def test_losses_and_gradients_are_trls(theirs, settings, loss, mode, ours, tmp_path, report):
    run = trainer(trl.GRPOTrainer, tmp_path, config={"loss_type": theirs, **settings})
    rng = np.random.default_rng(3)
    rows, tokens = 8, 8
    mask = np.arange(tokens)[None] < rng.integers(1, tokens + 1, rows)[:, None]
    old = -3 * rng.random((rows, tokens))
    logp = torch.tensor(old + rng.normal(0, 0.5, old.shape), requires_grad=True)
    own = rng.normal(size=rows)
    run._get_per_token_logps_and_entropies = lambda *_, **__: (logp, torch.zeros(rows, tokens), None)
    run.current_gradient_accumulation_steps = 1
    ones = torch.ones(rows, 2, dtype=torch.long)
    value = run._compute_loss(
        run.model,
        {
            "prompt_ids": ones,
            "prompt_mask": ones,
            "completion_ids": torch.ones(rows, tokens, dtype=torch.long),
            "completion_mask": torch.tensor(mask).long(),
            "advantages": torch.tensor(own),
            "old_per_token_logps": torch.tensor(old),
            "num_items_in_batch": torch.tensor(mask.sum()),
        },
    )
    value.backward()
    found, slope = fgrpo.policy_loss(logp.detach(), old, own, mask, loss=loss, aggregation=mode, **ours)
    difference = max(abs(found - value.item()), np.abs(slope - logp.grad.numpy()).max())
    report(f"TRL {theirs}: loss and gradient differ by at most {difference:.1e}")
    assert difference < 1e-9


def test_reward_functions_judge_strings_and_conversations():
    metrics = {}
    found = math_reward([r"\boxed{0.5}", r"\boxed{}"], solution=["1/2", "1"], log_metric=metrics.__setitem__, prompts=[], x=1)
    assert found == [1.0, 0.0] and metrics == {"math/unparsed": 0.5, "math/unscorable": 0.0}
    talk = [[{"role": "assistant", "content": r"\boxed{B}"}]]
    assert choice_reward(talk, solution=["B"]) == [1.0]
    assert math_reward([[{"role": "assistant", "content": r"\boxed{2}"}]], answer=["2"]) == [1.0]
    assert math_reward([r"\boxed{72}"] * 2, answer=["48 + 24 = 72.\n#### 72", 72]) == [1.0, 1.0]
    # Only the assistant's last message is an answer. A message may consist of parts.
    spoken, boxed = [{"role": "assistant", "content": ""}], r"\boxed{4}"
    assert math_reward([[{"role": "assistant", "content": [{"type": "text", "text": boxed}]}]], solution=["4"]) == [1.0]
    for last in ({"role": "tool", "name": "solve", "content": boxed}, {"role": "assistant", "content": None}, {"role": "assistant"}):
        assert math_reward([spoken + [last]], solution=["4"]) == [0.0]
        assert ifeval_reward([spoken + [last]], instruction_id_list=[["punctuation:no_comma"]], kwargs=[[{}]]) == [0.0]
    # For math-verify, a percentage equals its number.
    off, gold = r"\boxed{35}", [r"35\%"]
    assert math_reward([off], answer=gold) == [0.0] and math_reward([off], answer=gold, mode="parity") == [1.0]
    assert ifeval_reward(["no comma"], instruction_id_list=[["punctuation:no_comma"]], kwargs=[[{}]]) == [1.0]
    assert synlogic_reward(["x"], task=["sudoku"], game_data_str=["{}"]) == [None]
    with pytest.raises(ValueError, match="expected a column solution or answer"):
        math_reward(["x"])


def test_a_run_with_the_math_reward_learns_from_its_column(tmp_path):
    # Completions of a random policy have no answer, so all rewards are 0, nothing changes, and the run says so.
    run = trainer(FGRPOTrainer, tmp_path, rewards=math_reward, columns={"solution": ["2", "5", "8", "1"]})
    run.train()
    logs = [log for log in run.state.log_history if "math/unparsed" in log]
    assert logs and 0 <= logs[0]["math/unparsed"] <= 1
