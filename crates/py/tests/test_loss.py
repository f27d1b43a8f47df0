import numpy as np
import pytest

import fgrpo

RNG = np.random.default_rng(1)
B, T = 6, 9
LOGP = -RNG.random((B, T))
OLD = LOGP + RNG.normal(0, 0.4, (B, T))
ADVANTAGES = RNG.normal(size=B)
MASK = np.arange(T)[None] < np.array([9, 1, 4, 7, 0, 5])[:, None]
MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("loss", ["grpo", "dapo", "gspo", "sapo"])
def test_the_derivative_is_that_of_the_loss(loss, mode):
    norm = {"max_len": 20} if mode == "seq-mean-token-sum-norm" else {}

    def value(logp):
        return fgrpo.policy_loss(logp, OLD, ADVANTAGES, MASK, loss=loss, aggregation=mode, **norm)[0]

    slope = fgrpo.policy_loss(LOGP, OLD, ADVANTAGES, MASK, loss=loss, aggregation=mode, **norm)[1]
    assert slope.shape == (B, T) and (slope[~MASK] == 0).all()
    if loss == "gspo":
        # Every token has the ratio of its sequence, so a finite difference must move the whole sequence.
        steps = [(b, slice(None)) for b in (0, 2, 3, 5)]
    else:
        steps = [(0, 0), (0, 8), (1, 0), (2, 3), (3, 6), (5, 2)]
    for at in steps:
        step = np.zeros((B, T))
        step[at] = 1e-6
        finite = (value(LOGP + step) - value(LOGP - step)) / 2e-6
        assert finite == pytest.approx(slope[at].sum(), abs=1e-6)


def test_sapo_and_dppo_read_their_settings():
    def loss(name, **settings):
        return fgrpo.policy_loss([[-1.0]], [[-1.5]], [2.0], [[1]], loss=name, aggregation="token-mean", **settings)

    gate = 1 / (1 + np.exp(-2 * (np.exp(0.5) - 1)))
    assert loss("sapo", tau=(2.0, 1.0))[0] == pytest.approx(-2 * 2 * gate)
    moved = np.exp(-1.0) - np.exp(-1.5)
    assert loss("dppo_tv", clip_high=moved - 1e-3)[0] == 0
    assert loss("dppo_tv", clip_high=moved + 1e-3)[1][0, 0] == pytest.approx(-2 * np.exp(0.5))
    assert loss("gmpo", clip_high=0.25)[0] == pytest.approx(-2 * np.exp(0.25))
    with pytest.raises(ValueError, match="tau: the loss"):
        loss("grpo", tau=(1.0, 1.0))
    with pytest.raises(ValueError, match="tau: expected"):
        loss("sapo", tau=(0.0, 1.0))


def test_cispo_weighs_the_gradient_of_the_log_probability():
    value, slope = fgrpo.policy_loss(LOGP, OLD, ADVANTAGES, MASK, loss="cispo", aggregation="token-mean")
    weight = np.clip(np.exp(LOGP - OLD), 0, 6) * ADVANTAGES[:, None] * MASK / MASK.sum()
    np.testing.assert_allclose(slope, -weight, atol=1e-14)
    assert value == pytest.approx(-(weight * LOGP).sum())
    capped = fgrpo.policy_loss(
        LOGP, OLD, ADVANTAGES, MASK, loss="cispo", aggregation="token-mean", absolute_cap=True, clip_high=1.0
    )[1]
    weight = np.minimum(np.exp(LOGP - OLD), 1.0) * ADVANTAGES[:, None] * MASK / MASK.sum()
    np.testing.assert_allclose(capped, -weight, atol=1e-14)


def test_masked_tokens_may_hold_anything():
    logp = np.where(MASK, LOGP, np.nan)
    for masked, full in zip(
        fgrpo.policy_loss(logp, OLD, ADVANTAGES, MASK, loss="grpo", aggregation="token-mean"),
        fgrpo.policy_loss(LOGP, OLD, ADVANTAGES, MASK, loss="grpo", aggregation="token-mean"),
        strict=True,
    ):
        np.testing.assert_array_equal(masked, full)


def test_an_empty_batch_has_no_loss():
    value, slope = fgrpo.policy_loss(
        np.zeros((0, 3)), np.zeros((0, 3)), [], np.zeros((0, 3)), loss="grpo", aggregation="token-mean"
    )
    assert value == 0 and slope.shape == (0, 3)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"old_logp": OLD[:, :3]}, ValueError, "old_logp: expected"),
        ({"advantages": np.zeros((B, T))}, ValueError, "advantages: expected"),
        ({"mask": MASK * 0.5}, ValueError, "mask: expected"),
        ({"logp": LOGP[0]}, ValueError, "logp: expected"),
        ({"logp": LOGP * np.nan}, ValueError, "logp: expected"),
        ({"advantages": [np.inf] * B}, ValueError, "advantages: expected"),
        ({"loss": "ppo"}, ValueError, 'loss: unknown loss "ppo"'),
        ({"aggregation": "mean"}, ValueError, 'aggregation: expected one of "token-mean", '),
        ({"aggregation": "seq-mean-token-sum-norm"}, ValueError, "max_len is required"),
        ({"aggregation": "seq-mean-token-sum-norm", "max_len": 0}, ValueError, "max_len: expected"),
        ({"clip_low": -1.0}, ValueError, "clip_low: expected"),
        ({"dual_clip": 0.5}, ValueError, "dual_clip: expected"),
        ({"loss": "kl_cov", "clip_high": 0.3}, ValueError, "clip_high: the loss"),
        ({"loss": "sapo", "clip_low": 0.3}, ValueError, "clip_low: the loss"),
        ({"loss": "gspo", "tau": (1.0, 2.0)}, ValueError, "tau: the loss"),
        ({"loss": "dapo", "absolute_cap": True}, ValueError, "absolute_cap: the loss"),
        ({"loss": "gspo", "dual_clip": 3.0}, ValueError, "dual_clip: the loss"),
        ({"max_len": 9}, ValueError, "max_len: the aggregation"),
        ({"logp": LOGP.astype(str)}, TypeError, "logp: expected"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(change, error, words):
    arguments = {
        "logp": LOGP, "old_logp": OLD, "advantages": ADVANTAGES, "mask": MASK, "loss": "grpo", "aggregation": "token-mean",
    }  # fmt: skip
    with pytest.raises(error) as found:
        fgrpo.policy_loss(**{**arguments, **change})
    assert words in str(found.value)
