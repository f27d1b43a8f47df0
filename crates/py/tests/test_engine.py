"""The engine in this process, compared with itself and with the closed-form losses, and in a loop that must learn."""

import os
import threading

import numpy as np
import pytest

import fgrpo


@pytest.fixture
def engine(model):
    return fgrpo.Engine(model, threads=1, seed=1)


@pytest.fixture
def prompt(engine):
    return engine.tokenizer.chat([{"role": "user", "content": "2 + 3 ="}])


def datum(sample, advantage):
    return fgrpo.Datum(sample.prompt, sample.tokens, sample.logprobs, advantage)


def test_tokens_come_back_as_the_text_they_were_made_of(engine, prompt):
    assert engine.tokenizer.decode(prompt, special=True).split() == ["<user>", "2", "+", "3", "=", "<assistant>"]
    assert engine.tokenizer.encode("4 2") == [8, 6]
    assert engine.tokenizer.stop_tokens == [1]
    assert engine.vocab_size == 17 and engine.positions == 64


def test_a_sample_follows_from_its_seed_and_is_scored_with_the_numbers_it_was_sampled_with(engine, prompt):
    (first, second), (third, _) = engine.sample([prompt, prompt[:3]], n=2, max_tokens=12, seed=7)
    again = engine.sample([prompt, prompt[:3]], n=2, max_tokens=12, seed=7)
    np.testing.assert_array_equal(first.tokens, again[0][0].tokens)
    np.testing.assert_array_equal(third.tokens, again[1][0].tokens)
    assert first.tokens.tolist() != second.tokens.tolist()
    assert first.tokens.dtype == np.int32 and first.logprobs.dtype == np.float32
    logp, entropy = engine.score([[*prompt, *first.tokens]])[0]
    assert logp.shape == entropy.shape == (len(prompt) + first.tokens.size - 1,)
    np.testing.assert_allclose(logp[len(prompt) - 1 :], first.logprobs, atol=1e-5)
    np.testing.assert_allclose(entropy[len(prompt) - 1 :], first.entropy, atol=1e-5)
    assert first.finish == ("stop" if first.tokens[-1] == 1 else "length")


def test_samples_without_a_seed_differ_from_call_to_call(engine, prompt):
    one, other = (engine.sample([prompt], max_tokens=12)[0][0].tokens.tolist() for _ in range(2))
    assert one != other


def test_a_stop_text_ends_a_completion_and_is_not_in_its_text(engine, prompt):
    samples = engine.sample([prompt], n=40, max_tokens=30, stop="4", seed=1)[0]
    stopped = [s for s in samples if s.finish == "stop" and s.tokens[-1] == 8]
    assert stopped and all("4" not in s.text for s in samples)


def test_a_continued_sample_has_only_its_end_computed(engine, prompt):
    sample = engine.sample([prompt], max_tokens=8, temperature=0)[0][0]
    longer = engine.extend(sample, engine.tokenizer.encode("1 2"))
    assert longer.size == len(prompt) + sample.tokens.size + 2
    assert engine.sample([longer], max_tokens=4)[0][0].cached >= len(prompt)


@pytest.mark.parametrize("loss", ["grpo", {"kind": "dapo", "clip": [0.1, 0.3]}, "gspo", "cispo"])
def test_the_gradient_of_a_loss_is_that_of_its_derivative_in_closed_form(model, prompt, loss):
    name = loss if isinstance(loss, str) else loss["kind"]
    clips = {} if isinstance(loss, str) else {"clip_low": 0.1, "clip_high": 0.3}
    norms, after, values = [], [], []
    for own in (False, True):
        engine = fgrpo.Engine(model, threads=1)
        group = engine.sample([prompt], n=6, max_tokens=10, seed=3)[0]
        advantages = np.linspace(-1, 1, 6)
        rng = np.random.default_rng(0)
        shifted = [s.logprobs + rng.normal(0, 0.2, s.logprobs.shape).astype(np.float32) for s in group]
        data = [
            fgrpo.Datum(s.prompt, s.tokens, old, a) for s, old, a in zip(group, shifted, advantages, strict=True)
        ]
        if own:
            longest = max(s.tokens.size for s in group)
            pad = lambda rows: np.stack([np.pad(row, (0, longest - len(row))) for row in rows])
            scores = engine.score([[*s.prompt, *s.tokens] for s in group])
            logp = [score[0][len(prompt) - 1 :] for score in scores]
            mask = pad([np.ones(s.tokens.size) for s in group])
            value, slope = fgrpo.policy_loss(
                pad(logp), pad(shifted), advantages, mask, loss=name, aggregation="token-mean", dual_clip=None, **clips
            )
            values.append(value)
            metrics = engine.forward_backward(data, dlogp=[slope[i, : s.tokens.size] for i, s in enumerate(group)])
            ratios = np.exp(np.concatenate([new - datum.logprobs for new, datum in zip(logp, data, strict=True)]))
            np.testing.assert_allclose([metrics["ratio"], metrics["ratio_max"]], [ratios.mean(), ratios.max()], rtol=1e-4)
            assert not {"loss", "clipped_low", "clipped_high"} & set(metrics), "of a loss that isn't known"
        else:
            values.append(engine.forward_backward(data, loss, aggregation="token-mean")["loss"])
        norms.append(engine.optim_step(lr=1e-3)["grad_norm"])
        after.append(engine.score([[*prompt, *group[0].tokens]])[0][0])
    np.testing.assert_allclose(values[0], values[1], rtol=1e-4)
    np.testing.assert_allclose(norms[0], norms[1], rtol=1e-4)
    np.testing.assert_allclose(after[0], after[1], atol=1e-4)


def test_a_mask_with_one_turn_is_a_completion(model, prompt):
    norms = []
    for masked in (False, True):
        engine = fgrpo.Engine(model, threads=1)
        sample = engine.sample([prompt], max_tokens=10, seed=3)[0][0]
        whole = np.concatenate([sample.prompt, sample.tokens])
        mask = np.arange(whole.size) >= len(prompt)
        logprobs = np.where(mask, np.pad(sample.logprobs, (len(prompt), 0)), 0)
        turns = fgrpo.Datum(tokens=whole, mask=mask, logprobs=logprobs, advantages=0.5)
        metrics = engine.forward_backward([turns if masked else datum(sample, 0.5)])
        assert metrics["tokens"] == sample.tokens.size and metrics["ratio"] == pytest.approx(1, abs=1e-4)
        norms.append(engine.optim_step(lr=1e-3)["grad_norm"])
    assert norms[0] == norms[1] > 0


def test_a_datum_has_what_its_loss_reads(engine, prompt):
    without = fgrpo.Datum(prompt, [9], advantage=1.0)
    bare = fgrpo.Datum(tokens=[*prompt, 9], mask=[0] * len(prompt) + [1])
    for data, loss, words in ((without, "grpo", "data\\[0\\]: .*logprobs"), (bare, "cross_entropy", "data\\[0\\]: .*advantages")):
        with pytest.raises(ValueError, match=words):
            engine.forward_backward([data], loss)
    supervised = engine.forward_backward([without], "cross_entropy")
    assert set(supervised) == {"loss", "tokens", "clipped_low", "clipped_high"}
    assert supervised["loss"] == pytest.approx(-engine.score([[*prompt, 9]])[0][0][-1], rel=1e-5)
    norm = engine.optim_step(lr=0.0)["grad_norm"]
    assert set(engine.forward_backward([bare], dlogp=[[-1.0]])) == {"tokens"}
    assert engine.optim_step(lr=0.0)["grad_norm"] == pytest.approx(norm, rel=1e-5) and norm > 0


@pytest.mark.parametrize("setting", [{"aggregation": "seq-mean-token-mean"}, {"entropy_coef": 0.1}, {"max_len": 4}])
def test_settings_that_a_loss_does_not_have_are_refused(engine, prompt, setting):
    data, (name,) = [fgrpo.Datum(prompt, [9], [-1.0], 1.0)], setting
    with pytest.raises(ValueError, match=f"{name}: not available with 'cross_entropy'"):
        engine.forward_backward(data, "cross_entropy", **setting)
    for change in (setting, {"loss": "typo"}):
        with pytest.raises(ValueError, match=": not available with dlogp"):
            engine.forward_backward(data, dlogp=[[1.0]], **change)


def test_a_state_brings_its_seed_and_fits_only_its_model(model, bytes_model, prompt, tmp_path):
    one = fgrpo.Engine(model, threads=1, seed=3)
    one.save_state(tmp_path / "state")
    other, larger = fgrpo.Engine(model, threads=1, seed=9), fgrpo.Engine(bytes_model, threads=1)
    other.load_state(tmp_path / "state")
    drawn = [[sample.tokens.tolist() for sample in engine.sample([prompt], n=8, max_tokens=4)[0]] for engine in (one, other)]
    assert drawn[0] == drawn[1]
    before = larger.score([[4, 5, 6]])[0][0]
    with pytest.raises(ValueError, match="another model"):
        larger.load_state(tmp_path / "state")
    np.testing.assert_array_equal(larger.score([[4, 5, 6]])[0][0], before)


@pytest.mark.parametrize("lora", [None, {"rank": 4}])
def test_a_loop_that_goes_on_from_a_state_has_the_same_bits(model, prompt, tmp_path, lora):
    def steps(engine, count):
        for _ in range(count):
            group = engine.sample([prompt], n=4, max_tokens=8)[0]
            engine.forward_backward([datum(s, a) for s, a in zip(group, (1, -1, 0.5, -0.5), strict=True)])
            engine.optim_step(lr=1e-2)
        return engine.score([[*prompt, 9, 1]])[0][0]

    engine = fgrpo.Engine(model, lora=lora, threads=1)
    steps(engine, 2)
    engine.save_state(tmp_path / "state")
    wanted = steps(engine, 2)
    resumed = fgrpo.Engine(model, lora=lora, threads=1)
    resumed.load_state(tmp_path / "state")
    np.testing.assert_array_equal(steps(resumed, 2), wanted)
    engine.save(tmp_path / "policy")
    np.testing.assert_allclose(fgrpo.Engine(tmp_path / "policy", threads=1).score([[*prompt, 9, 1]])[0][0], wanted, atol=1e-5)


def test_a_loop_of_ten_lines_learns(model):
    engine = fgrpo.Engine(model, threads=1, seed=2)
    prompt = engine.tokenizer.chat([{"role": "user", "content": "2 + 3 ="}])
    for _ in range(40):
        groups = engine.sample([prompt], n=32, max_tokens=1)
        rewards = [[float(s.text.strip() == "5") for s in group] for group in groups]
        credit = fgrpo.credit(rewards, estimator="grpo", gamma=0.5)
        data = [datum(s, float(a)) for g, row in zip(groups, credit.advantages, strict=True) for s, a in zip(g, row, strict=True)]
        engine.forward_backward(data, loss="grpo")
        engine.optim_step(lr=1e-2)
    solved = [s.text.strip() == "5" for s in engine.sample([prompt], n=64, max_tokens=1)[0]]
    assert np.mean(solved) > 0.9


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda e: e.sample([[1, 99]]), ValueError, "prompts[0]: expected token ids from 0 to 16, found 99"),
        (lambda e: e.sample([[1, -1]]), ValueError, "found token -1"),
        (lambda e: e.sample([1, 2]), TypeError, "prompts: expected"),
        (lambda e: e.sample([[]]), ValueError, "prompts[0]: expected 1 to 64 tokens"),
        (lambda e: e.sample([[1] * 64]), ValueError, "prompts[0]: "),
        (lambda e: e.sample([[1]], n=0), ValueError, "n: expected"),
        (lambda e: e.sample([[1]], top_p=0), ValueError, "top_p"),
        (lambda e: e.sample([[1]], stop=""), ValueError, "stop: "),
        (lambda e: e.sample([[1]], seed=-1), ValueError, "seed: expected"),
        (lambda e: e.sample([[1]], temperature=-1), ValueError, "temperature"),
        (lambda e: e.score([[1, 2]], temperature=0), ValueError, "temperature: "),
        (lambda e: e.forward_backward([fgrpo.Datum([1], [2], [0.0], 1)], temperature=np.nan), ValueError, "temperature: "),
        (lambda e: e.score([[1, 99]]), ValueError, "sequences[0]: "),
        (lambda e: e.forward_backward([]), ValueError, "data: expected"),
        (lambda e: e.forward_backward([1]), TypeError, "data[0]: expected"),
        (lambda e: fgrpo.Datum([1], [2], [np.nan], 1), ValueError, "logprobs: expected"),
        (lambda e: fgrpo.Datum([1], [2], [0.0, 0.0], 1), ValueError, "logprobs: expected"),
        (lambda e: fgrpo.Datum([1], [2], [0.0], np.inf), ValueError, "advantage: expected"),
        (lambda e: fgrpo.Datum(tokens=[1, 2], mask=[1, 0], logprobs=[0, 0], advantages=1), ValueError, "first token"),
        (lambda e: e.forward_backward([fgrpo.Datum([1], [2], [0.0], 1)], "ppo"), ValueError, "ppo"),
        (lambda e: e.sample(["1 + 1"]), TypeError, "prompts: expected"),
        (lambda e: e.score([fgrpo.Datum([1], [2], [0.0], 1)]), TypeError, "sequences: expected"),
        (lambda e: e.forward_backward([fgrpo.Datum([1], [2], [0.0], 1)], {"kind": "grpo", "klip": 1}), ValueError, "klip"),
        (lambda e: e.forward_backward([fgrpo.Datum([1], [2], [0.0], 1)], dlogp=[[1, 2]]), ValueError, "dlogp[0]: expected"),
        (
            lambda e: e.forward_backward(
                [fgrpo.Datum(tokens=[1, 2, 3], mask=[0, 1, 1], logprobs=[0, 0, 0], advantages=[0, 1, 2])], "gspo"
            ),
            ValueError,
            "data[0].advantages: ",
        ),
        (
            lambda e: e.forward_backward([fgrpo.Datum([1], [2], [0.0], 1)], aggregation="seq-mean-token-sum-norm"),
            ValueError,
            "max_len: expected",
        ),
        (lambda e: e.forward_backward([fgrpo.Datum([1], [2], [0.0], 1)], max_len=-4), ValueError, "max_len: expected at least 1"),
        (lambda e: e.forward_backward([fgrpo.Datum([1], [2], [0.0], 1)], entropy_coef=np.nan), ValueError, "entropy_coef: expected"),
        (lambda e: fgrpo.Engine("/nowhere", seed=-1), ValueError, "seed: expected at least 0, found -1"),
        (lambda e: fgrpo.Engine("/nowhere", threads=1.5), TypeError, "threads: expected an integer, found 1.5"),
        (lambda e: e.optim_step(1e-3), ValueError, "optim_step: "),
        (lambda e: e.optim_step(np.nan), ValueError, "lr: expected"),
        (lambda e: e.load_state("/nowhere"), ValueError, "/nowhere"),
        (lambda e: fgrpo.Engine("/nowhere"), ValueError, "/nowhere"),
    ],
)
def test_what_cannot_be_is_refused_by_name_and_leaves_the_engine_as_it_was(engine, call, error, words):
    before = engine.score([[4, 5, 6]])[0][0]
    with pytest.raises(error) as found:
        call(engine)
    assert words in str(found.value)
    np.testing.assert_array_equal(engine.score([[4, 5, 6]])[0][0], before)


def test_a_gradient_that_no_update_used_is_not_lost_silently(engine, prompt, tmp_path):
    engine.forward_backward([fgrpo.Datum(prompt, [9], [-1.0], 1.0)])
    with pytest.raises(ValueError, match="unused gradient"):
        engine.save_state(tmp_path / "state")
    engine.zero_grad()
    engine.save_state(tmp_path / "state")
    with pytest.raises(ValueError, match="other files"):
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "thesis.tex").touch()
        engine.save(tmp_path / "mine")


def test_ctrl_c_stops_sampling_and_the_engine_goes_on(engine, prompt, ctrl_c):
    timer = threading.Timer(0.3, ctrl_c)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        engine.sample([prompt], n=200_000, max_tokens=50)
    assert len(engine.sample([prompt], n=2, max_tokens=4)[0]) == 2


def test_other_threads_run_while_the_engine_works(engine, prompt):
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.wait(0.001):
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    engine.sample([prompt], n=2000, max_tokens=40)
    stop.set()
    thread.join()
    assert ticks[0] > 5


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_told_instead_of_waiting_forever(engine):
    child = os.fork()
    if child == 0:
        try:
            engine.score([[4, 5]])
        except RuntimeError as error:
            os._exit(3 if "before a fork" in str(error) else 4)
        os._exit(5)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_two_engines_do_not_disturb_each_other(model, prompt):
    one, other = fgrpo.Engine(model, threads=1), fgrpo.Engine(model, threads=1)
    before = other.score([prompt])[0][0]
    one.forward_backward([fgrpo.Datum(prompt, [9], [-1.0], 1.0)])
    one.optim_step(lr=0.1)
    del one
    np.testing.assert_array_equal(other.score([prompt])[0][0], before)
