"""SkyRL's and rLLM's registries of advantage estimators.

If a trainer is installed, its registry and estimators are used. Otherwise a stub has the parts of its documented interface that the
plug-in uses: SkyRL 0.3.0's ``register_advantage_estimator`` and rLLM 0.3.0's ``register_rllm_adv_estimator``.
"""

import importlib
import sys
import types

import numpy as np
import pytest

import fgrpo


def stand_in(monkeypatch, path, decorator):
    """Installs a module with a registering decorator. Returns the registered functions."""
    known = {}

    def register(name):
        return lambda function: known.setdefault(name, function)

    module = types.ModuleType(path)
    setattr(module, decorator, register)
    parts = path.split(".")
    for end in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(".".join(parts[:end])))
    monkeypatch.setitem(sys.modules, path, module)
    return known


def plug_in(monkeypatch, name):
    # The package's attribute and the entry are restored after the test, if they were there or not.
    monkeypatch.setattr(fgrpo, name.split(".")[1], None, raising=False)
    monkeypatch.setitem(sys.modules, name, None)
    del sys.modules[name]
    return importlib.import_module(name)


GROUPS = [np.array([1.0, 0.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0, 1.0]), np.array([1.0, 1.0, 1.0, 1.0])]


@pytest.mark.parametrize("real", [True, False], ids=["rllm", "stand-in"])
def test_rllm_gets_the_credit_of_each_group(real, monkeypatch, report):
    path = "rllm.trainer.algorithms.advantage"
    if real:
        theirs = pytest.importorskip(path)
        known = theirs.RLLM_ADV_ESTIMATOR_REGISTRY
    else:
        known = stand_in(monkeypatch, path, "register_rllm_adv_estimator")
    module = plug_in(monkeypatch, "fgrpo.rllm")
    module.register()
    module.register("plain", gamma=0.0, ddof=0)
    wanted = fgrpo.advantages(GROUPS, gamma=0.5)
    found, returns = known["fgrpo"](GROUPS, algorithm_config=None, traj_groups=[])
    assert returns is found
    np.testing.assert_array_equal(found, wanted)
    uneven, _ = known["fgrpo"]([np.array([1.0]), np.array([1.0, 0.0, np.nan])], None)
    assert [len(group) for group in uneven] == [1, 3] and uneven[0][0] == 0 and uneven[1][2] == 0 and uneven[1][0] > 0
    assert known["fgrpo"]([], None) == ([], [])
    if real:
        own, _ = known["grpo"](GROUPS, algorithm_config=types.SimpleNamespace(norm_adv_by_std_in_grpo=True))
        np.testing.assert_allclose(known["plain"](GROUPS, None)[0], own, atol=1e-5)
        report("rLLM: the estimator fgrpo in its registry; with gamma 0 its own GRPO")


@pytest.mark.parametrize("real", [True, False], ids=["skyrl", "stand-in"])
def test_skyrl_gets_the_credit_of_each_group(real, monkeypatch, report):
    torch = pytest.importorskip("torch")
    path = "skyrl.backends.skyrl_train.utils.ppo_utils"
    if real:
        theirs = pytest.importorskip(path)
        get = theirs.AdvantageEstimatorRegistry.get
    else:
        get = stand_in(monkeypatch, path, "register_advantage_estimator").__getitem__
    module = plug_in(monkeypatch, "fgrpo.skyrl")
    names = ["fgrpo", "plain", "rloo-f"]
    if real:
        for name in names:
            theirs.AdvantageEstimatorRegistry._functions.pop(name, None)
    module.register()
    module.register("plain", gamma=0.0)
    module.register("rloo-f", estimator="rloo", gamma=1.0)
    index = np.array([f"p{i % 3}" for i in range(12)], dtype=object)
    rewards = torch.tensor([float(GROUPS[i % 3][i // 3]) for i in range(12)])
    lengths = torch.arange(12) % 5 + 1
    mask = (torch.arange(5)[None] < lengths[:, None]).float()
    token = torch.zeros(12, 5)
    token[torch.arange(12), lengths - 1] = rewards
    given = dict(token_level_rewards=token, response_mask=mask, index=index, values=None, grpo_norm_by_std=True, gamma=1.0,
                 lambd=1.0, config=None)  # fmt: skip
    for name, settings in [("fgrpo", {"gamma": 0.5}), ("rloo-f", {"estimator": "rloo", "gamma": 1.0})]:
        found, returns = get(name)(**given)
        wanted = fgrpo.advantages(rewards.numpy(), groups=index, **settings)
        np.testing.assert_allclose(found.numpy(), wanted[:, None] * mask.numpy(), atol=1e-6)
        assert returns is found and found.dtype == token.dtype
    if real:
        own, _ = theirs.compute_advantages_and_returns(
            token.clone(), mask, index, theirs.AdvantageEstimator.GRPO, config=None
        )
        np.testing.assert_allclose(get("plain")(**given)[0].numpy(), own.numpy(), atol=1e-5)
        report("SkyRL: the estimator fgrpo in its registry; with gamma 0 its own GRPO")
