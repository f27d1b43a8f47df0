"""math-verify, lm-eval, verifiers, slime and OpenRLHF."""

import asyncio
import json
import logging
import shutil
import threading
import time
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fgrpo

GOLDS = ["\\frac{1}{2}", "2\\sqrt{3}", "x^2+1", "(1,2]", "42"]
ANSWERS = ["0.5", "\\sqrt{12}", "1+x^2", "(1,2]", "41"]
RESPONSES = ["We get, after some thought, " * 40 + "\\boxed{%s}" % a for a in ANSWERS]


def test_the_verdicts_are_math_verifys_and_come_sooner(report):
    math_verify = pytest.importorskip("math_verify")
    logging.disable(logging.CRITICAL)

    def theirs(gold, response):
        return math_verify.verify(math_verify.parse("\\boxed{" + gold + "}"), math_verify.parse(response))

    wanted = [theirs(g, r) for g, r in zip(GOLDS, RESPONSES, strict=True)]
    assert fgrpo.verify_math(GOLDS, RESPONSES).correct.tolist() == wanted
    few, many = 60, 8000
    start = time.perf_counter()
    for _ in range(few):
        for gold, response in zip(GOLDS, RESPONSES, strict=True):
            theirs(gold, response)
    slow = 5 * few / (time.perf_counter() - start)
    fast = {}
    for threads in (1, 8):
        start = time.perf_counter()
        fgrpo.verify_math(GOLDS * many, RESPONSES * many, threads=threads)
        fast[threads] = 5 * many / (time.perf_counter() - start)
    report(
        f"responses a second (1.1 kB, five kinds of answers): math-verify {math_verify_version()} {slow:,.0f} in one process; "
        f"fgrpo {fast[1]:,.0f} on one thread, {fast[8]:,.0f} on 8 threads: {fast[1] / slow:,.0f} and {fast[8] / slow:,.0f} times"
    )


def math_verify_version():
    from importlib.metadata import version

    return version("math-verify")


def test_math_verify_needs_the_main_thread_and_ours_does_not(report):
    math_verify = pytest.importorskip("math_verify")
    found = {}

    def work():
        try:
            math_verify.verify(math_verify.parse("\\boxed{1/2}"), math_verify.parse("\\boxed{0.5}"))
        except BaseException as error:  # noqa: BLE001
            found["theirs"] = type(error).__name__
        found["ours"] = fgrpo.MathProblem("1/2").check("\\boxed{0.5}").verdict

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    report(f"in a thread: math-verify raises {found.get('theirs', 'nothing')}, fgrpo says {found['ours']}")
    assert found["ours"] == "correct"
    start = time.perf_counter()
    verdict = fgrpo.MathProblem("9").check("\\boxed{9^{9^{9^9}}}")
    assert (verdict.verdict, verdict.reason) == ("wrong", "budget")
    report(f"9^(9^(9^9)): fgrpo says {verdict.verdict} ({verdict.reason}) after {1e3 * (time.perf_counter() - start):.2f} ms")


def test_the_task_pack_runs_in_lm_eval(tmp_path, report):
    lm_eval = pytest.importorskip("lm_eval")
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    import fgrpo.lm_eval as pack

    class Counting(LM):
        """Gives the right answer every second time."""

        asked = 0

        def generate_until(self, requests):
            out = []
            for _ in requests:
                out.append("so \\boxed{5}" if self.asked % 2 == 0 else "so \\boxed{6}")
                self.asked += 1
            return out

        loglikelihood = loglikelihood_rolling = None

    Counting.__abstractmethods__ = frozenset()
    folder = tmp_path / "tasks"
    shutil.copytree(pack.PATH, folder)
    data = tmp_path / "data.jsonl"
    data.write_text("".join(json.dumps({"problem": f"2+{i}", "answer": "not read", "final": str(2 + i)}) + "\n" for i in range(4)))
    (folder / "own.yaml").write_text(
        "include: fgrpo_math_yaml\ntask: own\ndataset_path: json\n"
        f"dataset_kwargs: {{data_files: {{test: {data}}}}}\ntest_split: test\nrepeats: 8\ndoc_to_target: final\n"
    )
    manager = TaskManager(include_path=str(folder))
    assert {"own", "fgrpo_gsm8k", "fgrpo_math500"} <= set(manager.all_tasks)
    found = lm_eval.simple_evaluate(model=Counting(), tasks=["own"], task_manager=manager, log_samples=True, bootstrap_iters=0)
    results = found["results"]["own"]
    # One problem of four has the answer 5, and half of its 8 samples are 5.
    assert results["pass@1,all"] == pytest.approx(0.125)
    assert results["pass@2,all"] == pytest.approx(fgrpo.pass_at_k(8, 4, 2) / 4)
    assert results["pass@8,all"] == pytest.approx(0.25)
    # Its log of samples is read back.
    path = tmp_path / "samples_own_2026-01-01T00-00-00.000000.jsonl"
    path.write_text("".join(json.dumps(row, default=str) + "\n" for row in found["samples"]["own"]))
    samples = fgrpo.read_samples(path)
    assert samples.n.tolist() == [8] * 4 and samples.c.tolist() == [0, 0, 0, 4]
    report(f"lm-eval {lm_eval.__version__}: the task pack gives pass@1 {results['pass@1,all']:.3f} and pass@8 {results['pass@8,all']:.3f} as it should")


def test_an_environment_of_verifiers_takes_the_reward(report):
    verifiers = pytest.importorskip("verifiers")
    import verifiers.v1 as vf

    class Data(vf.TaskData):
        answer: str

    class Sum(vf.Task[Data]):
        pass

    class Trace:
        def __init__(self, reply):
            self.metrics, self.rewards, self.last_reply = {}, {}, reply

        def record_reward(self, key, value, weight):
            self.rewards[key] = (value, weight)

        def record_metric(self, key, value):
            self.metrics[key] = value

    config = vf.TaskConfig(rewards={"math": {"fn": "fgrpo.verifiers:math_reward", "weight": 2.0}})
    task = Sum(Data(prompt="1+1", answer="2"), config)
    for reply, wanted in [("so \\boxed{2}", 1.0), ("so \\boxed{3}", 0.0), ("?", 0.0)]:
        trace = Trace(reply)
        asyncio.run(task.score(trace))
        assert list(trace.rewards.values()) == [(wanted, 2.0)], trace.rewards
    report(f"verifiers {verifiers.__version__}: a task's score takes fgrpo.verifiers:math_reward by its import path")


def test_slimes_hooks_weigh_groups_and_judge_answers():
    from fgrpo.slime import math_reward, post_process_rewards

    class Sample:
        def __init__(self, group, reward):
            self.group_index, self.reward = group, reward

        def get_reward_value(self, args):
            return self.reward

    rewards = np.array([[1, 0, 0, 0], [1, 1, 1, 0]], float)
    samples = [Sample(g, r) for g, row in enumerate(rewards) for r in row]
    arguments = SimpleNamespace(grpo_std_normalization=True, focal_gamma=0.5)
    raw, found = post_process_rewards(arguments, samples)
    assert raw == rewards.ravel().tolist()
    punished = SimpleNamespace(focal_gamma=0.5, reward_wrong=-1.0)
    signed = post_process_rewards(punished, [Sample(sample.group_index, 2 * sample.reward - 1) for sample in samples])[1]
    np.testing.assert_allclose(signed, found, atol=1e-5)
    np.testing.assert_array_equal(found, fgrpo.advantages(rewards, gamma=0.5).ravel())
    def estimated(**more):
        return post_process_rewards(SimpleNamespace(focal_gamma=0.0, grpo_std_normalization=True, **more), samples)[1]

    for name in ("gspo", "cispo"):
        assert estimated(advantage_estimator=name) == fgrpo.advantages(rewards).ravel().tolist()
    centered = rewards - rewards.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(estimated(advantage_estimator="reinforce_plus_plus_baseline"), centered.ravel())
    for more in ({"advantage_estimator": "ppo"}, {"rewards_normalization": False}):
        with pytest.raises(ValueError, match="set --advantage-estimator to one of grpo, .* without --disable-rewards-normalization"):
            estimated(**more)
    for label in ("2", 2, "1 + 1 = 2.\n#### 2"):
        assert asyncio.run(math_reward(arguments, SimpleNamespace(label=label, response="\\boxed{2}"))) == 1.0


def test_openrlhfs_reward_file_judges_a_batch():
    import importlib.util

    import fgrpo.openrlhf

    # Loaded from the file's path, as OpenRLHF does.
    spec = importlib.util.spec_from_file_location("reward_func", Path(fgrpo.openrlhf.__file__))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.reward_func(["1+1= \\boxed{2}", "1+1= \\boxed{3}"], ["1+1=", "1+1="], ["2", "2"])
    assert found["rewards"].tolist() == [1.0, 0.0] and found["scores"].tolist() == [1.0, 0.0]
    assert found["extra_logs"]["unparsed"].tolist() == [0.0, 0.0]
    # The query is decoded from tokens: here it has the prompt in composed characters, and without its beginning.
    prompt = "Rene\u0301: 40+2= \\boxed{42}. And 2+2="
    composed = unicodedata.normalize("NFC", prompt)
    with pytest.warns(UserWarning, match="begin with"):
        found = module.reward_func([composed + " \\boxed{4}", composed, composed[4:]], [prompt] * 3, ["4", "42", "42"])
    assert found["rewards"].tolist() == [1.0, 0.0, 0.0] and found["extra_logs"]["unscorable"].tolist() == [0.0, 0.0, 1.0]


def test_real_frames_are_samples():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"problem": ["a"] * 4 + ["b"] * 4, "correct": [True, False, None, False] + [True] * 4})
    found = fgrpo.plan(frame, group_sizes=(2,))
    assert 0 < found.active[0] < 1
    assert fgrpo.compare(frame, frame, k=1)[0].difference == 0
    polars = pytest.importorskip("polars")
    assert fgrpo.compare(polars.DataFrame({"problem": ["0"], "n": [8], "c": [2]}), ([8], [2]), k=1)[0].difference == 0
