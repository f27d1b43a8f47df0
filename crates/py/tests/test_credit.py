import itertools
import re
from typing import get_args

import numpy as np
import pytest

import fgrpo
from fgrpo._credit import Estimator

REWARDS = np.array([[1, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], float)


def test_grpo_is_the_reward_less_the_mean_over_the_deviation():
    mean, deviation = REWARDS.mean(1, keepdims=True), REWARDS.std(1, ddof=1, keepdims=True)
    found = fgrpo.credit(REWARDS)
    np.testing.assert_allclose(found.advantages, (REWARDS - mean) / (deviation + 1e-6), atol=1e-12)
    np.testing.assert_array_equal(found.success_rate, [0.25, 0.75, 1, 0])
    np.testing.assert_array_equal(found.focal_weight, 1)
    assert found.advantages.dtype == np.float64 and found.group.dtype == np.int64
    np.testing.assert_array_equal(found.group, np.repeat(np.arange(4), 4))


def test_the_type_names_every_estimator():
    with pytest.raises(ValueError, match='estimator: expected one of .*found "ppo"') as refused:
        fgrpo.credit(REWARDS, estimator="ppo")
    assert re.findall(r'"(\w+)"', str(refused.value).split(";")[0]) == list(get_args(Estimator))


@pytest.mark.parametrize("estimator", get_args(Estimator))
def test_the_focal_weight_multiplies_the_advantages_of_every_estimator(estimator):
    rows = np.arange(1, 17).reshape(4, 4)
    settings = {"estimator": estimator, "lengths": rows, "mean_logp": -0.1 * rows, "clusters": rows % 3}
    if estimator in ("pkpo", "passk_training", "bbg"):
        settings["k"] = 2
    base = fgrpo.credit(REWARDS, **settings)
    focal = fgrpo.credit(REWARDS, gamma=0.5, **settings)
    np.testing.assert_array_equal(focal.focal_weight, (1 - REWARDS.mean(1)) ** 0.5)
    np.testing.assert_array_equal(focal.advantages, base.advantages * focal.focal_weight[:, None])


def test_an_estimator_with_settings_is_a_table():
    power = fgrpo.advantages(REWARDS, estimator={"kind": "power", "a": np.float32(0.5), "b": -0.5})
    focal = fgrpo.advantages(REWARDS, eps=0.0, ddof=0, gamma=1.0)
    np.testing.assert_allclose(power, focal, atol=1e-12)
    with pytest.raises(ValueError, match='"power" has no setting "c".* kind, a, b, delta'):
        fgrpo.advantages(REWARDS, estimator={"kind": "power", "c": 1})
    table = {"kind": "pkpo", "k": 2}
    np.testing.assert_array_equal(
        fgrpo.advantages(REWARDS, estimator=table), fgrpo.advantages(REWARDS, estimator="pkpo", k=2)
    )
    for name, k in {"pkpo": 4, "passk_training": 4, "bbg": 16}.items():
        rewards = [[1.0, 0, 0, 0, 1]]
        found = [fgrpo.advantages(rewards, estimator=name), fgrpo.advantages(rewards, estimator=name, k=k)]
        np.testing.assert_array_equal(*found)


def test_a_function_of_a_groups_rewards_is_an_estimator():
    def dr_grpo(rewards):
        return [reward - sum(rewards) / len(rewards) for reward in rewards]

    found, wanted = (fgrpo.credit(REWARDS, estimator=e, gamma=0.5) for e in (dr_grpo, "dr_grpo"))
    for mine, theirs in zip(found, wanted):
        np.testing.assert_allclose(mine, theirs, atol=1e-12)
    seen = []

    def every(rewards, correct, lengths, mean_logp):
        seen.append((rewards, correct, lengths, mean_logp))
        return np.array(rewards)

    rewards, groups = [1, np.nan, 0, 1, 1], ["a", "a", "b", "a", "c"]
    columns = {"lengths": [1, 2, 3, 4, 5], "mean_logp": [-1, -2, -3, -4, -5]}
    found = fgrpo.credit(rewards, groups=groups, estimator=every, threshold=0.5, **columns)
    # The function gets neither the unscorable completion nor groups of one.
    assert seen == [([1.0, 1.0], [True, True], [1, 4], [-1.0, -4.0])]
    np.testing.assert_array_equal(found.advantages, [1, 0, 0, 1, 0])
    np.testing.assert_array_equal(fgrpo.advantages([[0.25, 0.5]], estimator=lambda rewards: rewards), [[0.25, 0.5]])
    for function, words in [
        (lambda rewards: rewards[1:], "expected one advantage for each of 4 rewards"),
        (lambda rewards: [np.nan] * 4, "expected finite numbers"),
        (lambda rewards: 1.0, "returned 1.0"),
    ]:
        with pytest.raises(ValueError, match=words):
            fgrpo.credit(REWARDS, estimator=function)
    with pytest.raises(ValueError, match="shaping: .*the estimator is a function"):
        fgrpo.credit(REWARDS, estimator=dr_grpo, shaping="unlikely", mean_logp=-REWARDS)


def test_credit_is_shared_out_by_clusters_or_log_probabilities():
    rewards, right = [[1, 1, 1, 0]], fgrpo.advantages([[1, 1, 1, 0]])[0, 0]
    table = {"kind": "cue_grpo", "alpha": 1.0}
    for clusters in ([["a", "a", "b", "b"]], [[1, 1, 2, 2]]):
        found = fgrpo.advantages(rewards, estimator=table, clusters=clusters)
        np.testing.assert_allclose(found[0, :3], right * np.array([0.75, 0.75, 1.5]), rtol=1e-12)
    # A flat batch, whose clusters are distinguished within a group.
    flat = fgrpo.advantages([1, 1, 1, 0], groups=[0] * 4, estimator=table, clusters=["a", "a", "b", "b"])
    np.testing.assert_array_equal(flat, found[0])
    with pytest.raises(ValueError, match="clusters is required: cue_grpo uses each completion's cluster"):
        fgrpo.advantages(rewards, estimator=table)
    with pytest.raises(ValueError, match=r"clusters: expected .*found shape \(4,\)"):
        fgrpo.advantages(rewards, estimator=table, clusters=[1, 1, 2, 2])
    found = fgrpo.advantages(rewards, estimator={"kind": "ucpo", "tau": 1.0}, mean_logp=np.log([[0.6, 0.2, 0.2, 0.9]]))
    np.testing.assert_allclose(found[0, :3], right * np.array([3, 9, 9]) / 7, rtol=1e-5)
    with pytest.raises(ValueError, match="mean_logp is required: ucpo"):
        fgrpo.advantages(rewards, estimator="ucpo")


def test_several_rewards_are_normalised_apart():
    rng = np.random.default_rng(0)
    parts = [REWARDS, rng.normal(size=(4, 4)) * 1000]
    found = fgrpo.advantages(REWARDS, estimator="gdpo", parts=parts, weights=[1, 0.5])
    own = [(p - p.mean(1, keepdims=True)) / (p.std(1, ddof=1, keepdims=True) + 1e-4) for p in parts]
    sums = own[0] + 0.5 * own[1]
    np.testing.assert_allclose(found, sums / (sums.std(ddof=1) + 1e-4), atol=1e-12)
    np.testing.assert_array_equal(
        fgrpo.advantages(REWARDS, estimator="gdpo", parts=[REWARDS]), fgrpo.advantages(REWARDS, estimator="gdpo")
    )
    with pytest.raises(ValueError, match="parts: grpo .*found 2"):
        fgrpo.advantages(REWARDS, parts=parts)
    with pytest.raises(ValueError, match=r"parts: expected .*found shape \(4,\)"):
        fgrpo.advantages(REWARDS, estimator="gdpo", parts=[np.ones(4)])
    with pytest.raises(ValueError, match="weights: expected one for each of 2 parts, found 1"):
        fgrpo.advantages(REWARDS, estimator="gdpo", parts=parts, weights=[1])


def test_lengths_weigh_the_baseline_and_all_groups_are_one_batch():
    found = fgrpo.advantages([[1, 0]], estimator="opo", lengths=[[1, 3]])
    np.testing.assert_array_equal(found, [[0.75, -0.25]])
    with pytest.raises(ValueError, match="lengths is required"):
        fgrpo.advantages([[1, 0]], estimator="opo")
    with pytest.raises(ValueError, match="lengths: expected .*found shape"):
        fgrpo.advantages([[1, 0]], estimator="opo", lengths=[1, 3])
    # Two groups, one of them with unequal rewards.
    np.testing.assert_array_equal(fgrpo.advantages([[1, 0], [1, 1]], estimator="gpg"), [[1, -1], [0, 0]])


def test_interleaved_groups_give_what_rows_give():
    order = np.random.default_rng(0).permutation(REWARDS.size)
    labels = np.repeat(["a", "b", "c", "d"], 4)[order]
    found = fgrpo.credit(REWARDS.ravel()[order], groups=labels, gamma=1.0)
    wanted = fgrpo.credit(REWARDS, gamma=1.0)
    np.testing.assert_allclose(found.advantages, wanted.advantages.ravel()[order], atol=1e-12)
    assert found.success_rate[found.group].tolist() == REWARDS.mean(1).repeat(4)[order].tolist()


@pytest.mark.parametrize("labels", [["x", "x", "y", "y"], [7, 7, -1, -1], [(1, "a"), (1, "a"), None, None], [1.5, 1.5, True, True]])
def test_groups_are_any_hashables(labels):
    np.testing.assert_array_equal(fgrpo.credit([1, 0, 1, 1], groups=labels).group, [0, 0, 1, 1])


class Tensor:
    """Behaves like a framework's tensor: equal tensors are different keys, and iteration gives tensors."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __iter__(self):
        return (Tensor(value) for value in self.values)

    def tolist(self):
        return self.values.tolist()


@pytest.mark.parametrize(
    "labels",
    [
        Tensor([7, 7, 8, 8]),
        [Tensor(7), Tensor(7), Tensor(8), Tensor(8)],
        [("a", Tensor(7)), ("a", Tensor(7)), ("b", Tensor(7)), ("b", Tensor(7))],
        [Tensor([1, 2]), Tensor([1, 2]), Tensor([1, 3]), Tensor([1, 3])],
        [np.array(7), np.array(7), np.array(8), np.array(8)],
        np.array([np.array(7), np.array(7), np.array(8), np.array(8)], dtype=object),
    ],
)
def test_equal_tensors_are_one_group(labels):
    found = fgrpo.credit([1, 0, 1, 0], groups=labels)
    assert found.group.tolist() == [0, 0, 1, 1] and (found.advantages != 0).all()


def test_a_missing_group_is_refused():
    for labels in ([float("nan"), float("nan")], np.array([1.0, np.nan]), [("a", float("nan"))] * 2):
        with pytest.raises(ValueError, match="groups: expected .*found nan"):
            fgrpo.credit([1, 0], groups=labels)


def test_single_precision_rewards_reach_their_threshold():
    for threshold in (0.3, 0.7, 0.9, 0.95):
        rewards = np.array([[threshold, 0.0, threshold, 0.0]], np.float32)
        assert fgrpo.credit(rewards, threshold=threshold, gamma=0.5).success_rate == [0.5], threshold
        seen = []
        fgrpo.credit(rewards, threshold=threshold, estimator=lambda rewards, correct: (seen.append(correct), rewards)[1])
        assert seen == [[True, False, True, False]]


def test_nan_leaves_the_group_and_gets_zero():
    found = fgrpo.credit([[1, 0, np.nan, 0]], estimator="dr_grpo", gamma=1.0)
    rate = 1 / 3
    np.testing.assert_allclose(found.advantages, [[(1 - rate) ** 2, -rate * (1 - rate), 0, -rate * (1 - rate)]])
    np.testing.assert_allclose(found.success_rate, [rate])


def test_groups_without_a_scored_completion_and_lone_completions_get_zero():
    found = fgrpo.credit([[np.nan, np.nan]], gamma=0.5)
    assert np.isnan(found.success_rate).all() and (found.advantages == 0).all()
    assert found.focal_weight.tolist() == [1]
    assert fgrpo.credit([1.0], groups=["a"]).advantages.tolist() == [0]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_empty_rewards_give_empty_advantages(shape):
    found = fgrpo.credit(np.zeros(shape), gamma=0.5)
    assert found.advantages.shape == shape and found.success_rate.shape == shape[:1]
    assert fgrpo.credit([], groups=[]).advantages.shape == (0,)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.uint8, np.float16, np.float32, ">f8"])
def test_any_numbers_will_do_in_any_layout(dtype):
    wanted = fgrpo.advantages(REWARDS)
    np.testing.assert_array_equal(fgrpo.advantages(REWARDS.astype(dtype)), wanted)
    np.testing.assert_array_equal(fgrpo.advantages(np.asfortranarray(REWARDS.astype(dtype))), wanted)
    twice = REWARDS.astype(dtype).repeat(2, axis=1)[:, ::2]
    np.testing.assert_array_equal(fgrpo.advantages(twice), wanted)


def test_difficulty_weighting_compares_with_the_anchor():
    rewards = [[1.0, 0.0], [1.0, 1.0]]
    found = fgrpo.advantages([[1.0, 0.0, 0.0, 0.0]], estimator="dr_grpo", shaping=("ha_dw", 2.0, 0.5))
    up, down = 2.0 * np.exp(0.25), 2.0 * np.exp(-0.25)
    np.testing.assert_allclose(found[0], [0.75 * up, -0.25 * down, -0.25 * down, -0.25 * down])
    # Without an anchor, the success rate of the call is used, 3/4.
    np.testing.assert_array_equal(
        fgrpo.advantages(rewards, shaping="ha_dw"), fgrpo.advantages(rewards, shaping=("ha_dw", 1.3, 0.75))
    )


def test_shaping_reads_the_log_probabilities():
    logp = [[-2.0, -1.0, -4.0, -3.0]]
    rewards = [[1.0, 1.0, 1.0, 0.0]]
    shaped = np.array([0.875, 0.8125, 1.0, 0.0])
    found = fgrpo.advantages(rewards, estimator="dr_grpo", shaping=("unlikely", 0.25), mean_logp=logp)
    np.testing.assert_allclose(found, [shaped - shaped.mean()])
    np.testing.assert_array_equal(
        found, fgrpo.advantages(rewards, estimator="dr_grpo", shaping="unlikely", mean_logp=logp)
    )
    found = fgrpo.advantages([[1.0, 0.0]], estimator="dr_grpo", shaping="smoothing", mean_logp=[[-2.0, -4.0]])
    np.testing.assert_allclose(found, [[0.5 + 0.1, -0.5 - 0.2]])


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "words"),
    [
        (([1, 0],), {}, ValueError, ["rewards: expected", "found shape (2,)", "groups="]),
        (([[1, 0]],), {"groups": ["a"]}, ValueError, ["rewards: expected", "found shape (1, 2)"]),
        (([1, 0],), {"groups": ["a"]}, ValueError, ["found 1", "groups: expected", "each of 2 rewards"]),
        (([1, 0],), {"groups": [[], []]}, TypeError, ["groups", "hashable"]),
        (([[1], [1, 0]],), {}, ValueError, ["rewards: the rows differ in length"]),
        (([["1", "0"]],), {}, TypeError, ["rewards: expected numbers", "found dtype <U1"]),
        (([[None, 0]],), {}, TypeError, ["rewards: expected", "found dtype object"]),
        (([[1j, 0]],), {}, TypeError, ["rewards: expected", "found dtype complex128"]),
        (([[1, 0.5]],), {"gamma": 1.0}, ValueError, ["group 0", "completion 1", "found 0.5", "threshold"]),
        (([1, 0, 1, 0.5],), {"groups": ["p", "p", "q", "q"], "gamma": 1.0}, ValueError, ["group 'q'", "completion 1"]),
        (([[1, np.inf]],), {}, ValueError, ["group 0", "found inf", "finite"]),
        (([[1, 0]],), {"gamma": -1.0}, ValueError, ["gamma: expected", "found -1", "at least 0"]),
        (([[1, 0]],), {"gamma": np.nan}, ValueError, ["gamma: expected", "found NaN"]),
        (([[1, 0]],), {"eps": -1.0}, ValueError, ["eps: expected", "found -1"]),
        (([[1, 0]],), {"ddof": 2}, ValueError, ["ddof: expected", "found 2"]),
        (([[1, 0]],), {"estimator": "gae"}, ValueError, ["estimator: expected", "found \"gae\"", "rloo"]),
        (([[1, 0]],), {"estimator": "pkpo"}, ValueError, ["k: expected", "found 4"]),
        (([[1, 0]],), {"estimator": "pkpo", "k": 3}, ValueError, ["k: expected", "found 3"]),
        (([[1, 0]],), {"k": 2}, ValueError, ["k: ", "found 2", "grpo"]),
        (([[1, 0]],), {"estimator": "rloo", "eps": 0.1}, ValueError, ["eps: ", "found 0.1", "rloo"]),
        (([[1, 0]],), {"estimator": "dr_grpo", "ddof": 0}, ValueError, ["ddof: ", "found 0", "dr_grpo"]),
        (([[1, 0]],), {"estimator": {"kind": "grpo", "eps": 0.1}, "eps": 0.2}, ValueError, ["eps is set twice", "0.1", "0.2"]),
        (([[1, 0]],), {"correct": 0.0}, ValueError, ["correct: expected", "found 0"]),
        (([[1, 0]],), {"threshold": np.nan}, ValueError, ["threshold: expected", "found NaN"]),
        (([[1, 0]],), {"shaping": "unlikely"}, ValueError, ["mean_logp is required"]),
        (([[1, 0]],), {"shaping": "dense", "mean_logp": [[0, 0]]}, ValueError, ["shaping: expected", "found \"dense\""]),
        (([[1, 0]],), {"shaping": ("unlikely", 2.0), "mean_logp": [[0, 0]]}, ValueError, ["shaping: expected", "found 2"]),
        (([[1, 0]],), {"shaping": ("ha_dw", 1.3, 2.0)}, ValueError, ["shaping: expected", "found 2"]),
        (([[1, 0]],), {"mean_logp": [0, 0], "shaping": "unlikely"}, ValueError, ["mean_logp: expected", "found shape (2,)"]),
        (([[1, 0]],), {"gamma": "a"}, TypeError, ["str"]),
        (([[1, 0]],), {"k": -1, "estimator": "pkpo"}, ValueError, ["k: expected at least 0, found -1"]),
        (([[1, 0]],), {"ddof": 1.0}, TypeError, ["ddof: expected an integer, found 1.0"]),
        (([[1, 0]],), {"eps": float("nan")}, ValueError, ["eps: expected a finite number, found nan"]),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(arguments, settings, error, words):
    with pytest.raises(error) as found:
        fgrpo.credit(*arguments, **settings)
    for word in words:
        assert word in str(found.value)


def test_focal_weight_is_a_power_of_the_failure_rate():
    np.testing.assert_array_equal(fgrpo.focal_weight([0, 0.75, 1], 0.5), [1, 0.5, 0])
    assert fgrpo.focal_weight(0.75, 2.0) == 0.0625 and isinstance(fgrpo.focal_weight(0.75, 2.0), float)
    assert np.isnan(fgrpo.focal_weight([np.nan], 1.0)).all()
    for rate, gamma in itertools.product([1.5, -0.1], [1.0]):
        with pytest.raises(ValueError, match="success_rate: expected"):
            fgrpo.focal_weight([rate], gamma)
    with pytest.raises(ValueError, match="gamma: expected .*found -1"):
        fgrpo.focal_weight([0.5], -1)
