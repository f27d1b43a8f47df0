import json
from math import comb

import numpy as np
import pytest

import fgrpo

N = np.full(40, 64)
A, B = np.arange(40), np.arange(40) + 9


def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample():
    n, c, k = 20, np.arange(21), np.array([1, 2, 5, 20])
    wanted = [[1 - comb(n - x, y) / comb(n, y) for x in c] for y in k]
    np.testing.assert_allclose(fgrpo.pass_at_k(n, c[None], k[:, None]), wanted, rtol=1e-14)
    # Exactly 0, not -0.
    assert not np.signbit(fgrpo.pass_at_k(8, 0, 1)) and isinstance(fgrpo.pass_at_k(8, 0, 1), float)
    assert fgrpo.pass_at_k([], [], 1).shape == (0,) and fgrpo.pass_at_k(10**10, 5, 1) == 5e-10


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (([4], [5], 2), ValueError, "problem 0: expected 0 <= c <= n, found c = 5"),
        (([4, 4], [1, -1], 2), ValueError, "problem 1: expected 0 <= c <= n, found c = -1"),
        (([4], [1], 5), ValueError, "problem 0: expected 1 <= k <= n, found k = 5"),
        (([4], [1], 0), ValueError, "problem 0: expected 1 <= k <= n, found k = 0"),
        (([4.0], [1], 1), TypeError, "n: expected integers, found dtype float64"),
        (([4, 4], [1, 1, 1], 1), ValueError, "shape mismatch"),
    ],
)
def test_counts_that_cannot_be_are_refused(arguments, error, words):
    with pytest.raises(error) as found:
        fgrpo.pass_at_k(*arguments)
    assert words in str(found.value)


def test_compare_gives_what_the_command_gives(command, tmp_path):
    paths = []
    for name, counts in (("a", A), ("b", B)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f'{{"problem": {i}, "n": 64, "c": {c}}}\n' for i, c in enumerate(counts)))
        paths.append(path)
    done = command("compare", *paths, "-k", "1,8", "--cover", "50", "--json")
    assert done.returncode == 0, done.stderr
    wanted = json.loads(done.stdout)
    for found in (
        fgrpo.compare((N, A), (N, B), k=(1, 8), cover=50),
        fgrpo.compare(*paths, k=(1, 8), cover=[50]),
        fgrpo.compare(fgrpo.read_samples(paths[0]), str(paths[1]), k=(1, 8), cover=(50,)),
    ):
        assert [(c.k, c.cover) for c in found] == [(1, None), (8, None), (None, 50)]
        assert (found[2].a, found[2].b) == (np.mean(A >= 32), np.mean(B >= 32))
        for ours, theirs in zip(found, wanted, strict=True):
            assert (ours.p_value, ours.holm_p_value, ours.m) == (theirs["p_value"], theirs["holm_p_value"], theirs["m"])
            assert (ours.a, ours.b, ours.difference) == (theirs["a"], theirs["b"], theirs["difference"])
            assert list(ours.interval) == theirs["interval"] and ours.gained == theirs["gained"]
            assert list(ours.bootstrap_interval) == theirs["bootstrap"]["interval"]
            assert ours.p_bounds[0] <= ours.p_value <= ours.p_bounds[1]


def test_compare_of_tables_is_that_of_their_counts():
    rng = np.random.default_rng(0)
    a, b = (rng.random((30, 32)) < rate for rate in (0.3, 0.5))
    found = fgrpo.compare(a, b.astype(float), k=4)
    assert found == fgrpo.compare((np.full(30, 32), a.sum(1)), (np.full(30, 32), b.sum(1)), k=4)
    assert found[0].p_value < 0.01 < found[0].difference
    simulated = fgrpo.compare(a, b, k=4, method="monte-carlo", seed=3)[0]
    assert simulated.p_bounds is None and abs(simulated.interval[0] - found[0].interval[0]) < 0.01


def test_the_interval_widens_with_its_level():
    narrow, wide = (fgrpo.compare((N, A), (N, A * 3 // 2), level=level)[0] for level in (0.5, 0.99))
    assert wide.interval[0] < narrow.interval[0] < narrow.difference < narrow.interval[1] < wide.interval[1]
    assert wide.bootstrap_interval[0] < narrow.bootstrap_interval[0]


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (((N, A), (N[:3], B[:3])), {}, "different problems"),
        (((N, A), (N, B)), {"k": 65}, "k: expected"),
        (((N, A), (N, B)), {"k": ()}, "k: expected"),
        (((N, A), (N, B)), {"cover": 101}, "cover: expected"),
        (((N, A), (N, B)), {"cover": 0}, "cover: expected"),
        (((N, A), (N, B)), {"k": -1}, "k: expected"),
        (((N, A), (N, B)), {"m": 65}, "m: expected"),
        (((N, A), (N, B)), {"m": 4, "k": 8}, "k: expected"),
        (((N, A), (N, B)), {"method": "t-test"}, 'found "t-test"'),
        (((N, A), (N, B)), {"level": 1.0}, "level: expected"),
        (((N, A), (N, B)), {"resamples": 0}, "resamples: expected"),
        (((N, A), (N, B)), {"resamples": 10**12}, "resamples: expected at most"),
        (((N, A), (N, B)), {"m": -1}, "m: expected at least 0, found -1"),
        (((N, A), (N, B)), {"seed": -1}, "seed: expected at least 0, found -1"),
        (((N, A), (N, A + 30)), {}, "problem 35: expected 0 <= c <= n, found c = 65"),
        (((N, A), (N + np.arange(40), B)), {}, "b: problem 0 has 64 samples, problem 1 has 65; pass uneven=True"),
        ((([], []), ([], [])), {}, "a: found no problems"),
        (((N, A, B), (N, B)), {}, "a: expected"),
        ((np.full((2, 2), 0.5), np.zeros((2, 2))), {}, "a: expected"),
        ((np.zeros(3), np.zeros(3)), {}, "a: expected"),
    ],
)
def test_samples_that_cannot_be_compared_are_refused(arguments, settings, words):
    with pytest.raises(ValueError) as found:
        fgrpo.compare(*arguments, **settings)
    assert words in str(found.value)


def test_uneven_samples_are_taken_when_told_so():
    assert fgrpo.compare((N, A), (N + np.arange(40), B), uneven=True)[0].problems == 40


def test_plan_gives_what_the_command_gives(command, tmp_path):
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(f'{{"problem": {i}, "n": 64, "c": {c}}}\n' for i, c in enumerate(A)))
    done = command("plan", path, "--group-sizes", "2,8,32", "--json")
    wanted = json.loads(done.stdout)
    found = fgrpo.plan((N, A), group_sizes=(8, 2, 32))
    assert found.active.tolist() == [row["active"] for row in wanted["group_sizes"]]
    assert found.tail_miss.tolist() == [row["tail_miss"] for row in wanted["group_sizes"]]
    assert {"group_size": found.group_size, "focal_gamma": found.gamma} == wanted["suggested"]
    assert fgrpo.plan(([8], [0])).group_size is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"group_sizes": (1,)}, "group_sizes: expected"), ({"group_sizes": ()}, "group_sizes"), ({"tail": 0.0}, "tail: expected")],
)
def test_plans_that_cannot_be_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        fgrpo.plan((N, A), **settings)


def test_a_comparison_prints_as_a_table_and_counts_without_samples_are_named():
    found = fgrpo.compare(([8] * 3, [3, 4, 5]), ([8] * 3, [4, 5, 5]), k=[1, 8])
    head, first, last = repr(found).splitlines()
    assert head.split()[:4] == ["benchmark", "measure", "a", "b"] and first.split()[:5] == ["all", "pass@1", "50.0", "58.3", "+8.3"]
    assert last.split()[1] == "pass@8"
    whole = fgrpo.compare(([8] * 3, [3, 4, 5]), ([8] * 3, [4, 5, 5]), m=8)
    assert whole[0].p_value is None and [cell for cell in repr(whole).split() if cell == "-"][1:] == ["-", "-"], "nothing is tested: a subsample is the sample"
    assert found._repr_html_().count("<tr>") == 3 and [c.k for c in found] == [1, 8]
    with pytest.raises(ValueError, match=r"expected \(a_n, a_c\)"):
        fgrpo.compare(np.array([3, 4]), np.array([4, 4]))
