import numpy as np
import pytest

import fgrpo


def test_tail_misses_are_the_printed_differences_of_powers():
    mu, tau, n = np.array([0.5, 0.3]), np.array([0.1, 0.05]), np.array([[2], [8], [32]])
    wanted = (1 - tau) ** n - (mu - tau) ** n - (1 - mu) ** n
    np.testing.assert_allclose(fgrpo.tail_miss(mu, tau, n), wanted, rtol=1e-12)
    np.testing.assert_allclose(fgrpo.active(mu, n), 1 - mu**n - (1 - mu) ** n, rtol=1e-12)
    assert isinstance(fgrpo.tail_miss(0.5, 0.1, 8), float)


def test_the_peak_is_the_largest_tail_miss():
    n = np.arange(1, 200)
    for mu, tau in [(0.5, 0.1), (0.2, 0.01), (0.9, 0.05)]:
        values = fgrpo.tail_miss(mu, tau, n)
        peak = fgrpo.peak(mu, tau)
        assert peak.n == n[values.argmax()] and peak.tail_miss == values.max()


def test_the_multiplier_of_the_low_lr_control_has_the_papers_values():
    assert [round(fgrpo.low_lr(gamma), 3) for gamma in (0, 0.5, 1)] == [1, 0.679, 0.5]


def test_simulations_start_alike_and_the_focal_weight_keeps_more_mass():
    runs = [
        fgrpo.simulate(group_size=8, gamma=gamma, steps=200, record_every=50, actions=2000, correct=200, seed=1) for gamma in (0, 1)
    ]
    for run in runs:
        assert run.step.tolist() == [0, 50, 100, 150, 200]
        assert all(len(column) == 5 for column in run)
    assert runs[0].correct_mass[0] == runs[1].correct_mass[0] and runs[0].retained[0] == 1
    assert runs[1].retained[-1] > runs[0].retained[-1]
    again = fgrpo.simulate(group_size=8, gamma=1, steps=200, record_every=50, actions=2000, correct=200, seed=1)
    np.testing.assert_array_equal(again.entropy, runs[1].entropy)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fgrpo.tail_miss(0.1, 0.5, 4), "tau: expected"),
        (lambda: fgrpo.active(1.5, 4), "mu: expected"),
        (lambda: fgrpo.active(0.5, 0), "n: expected"),
        (lambda: fgrpo.active(0.5, -3), "n: expected"),
        (lambda: fgrpo.peak(0.5, 0.0), "no peak"),
        (lambda: fgrpo.low_lr(-1), "gamma"),
        (lambda: fgrpo.simulate(group_size=0), "group_size: expected"),
        (lambda: fgrpo.simulate(group_size=-1), "group_size: expected at least 0, found -1"),
        (lambda: fgrpo.simulate(group_size=8, actions=1), "actions: expected"),
        (lambda: fgrpo.simulate(group_size=8, record_every=0), "record_every: expected"),
    ],
)
def test_arguments_outside_their_domain_are_refused(call, words):
    with pytest.raises(ValueError) as found:
        call()
    assert words in str(found.value)
