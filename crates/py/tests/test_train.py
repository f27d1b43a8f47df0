"""``fgrpo.train`` gives the same bits as the command, with the reward function in this process."""

import contextlib
import dataclasses
import json
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

import fgrpo

ROWS = [{"question": f"{a} + {b} =", "sum": str(a + b)} for a in range(3) for b in range(3)]
GRADER = '''
def reward(completion, sum, **columns):
    """Whether the answer is the sum; half a point for a digit."""
    words = completion.split()
    return 1.0 if words == [sum] else 0.5 if words and words[0].isdigit() else 0.0
'''


def config(model, **more):
    return {
        "steps": 3,
        "seed": 5,
        "task": {"kind": "math"},
        "model": {"path": str(model)},
        "rollout": {"prompts": 4, "group_size": 8, "max_new_tokens": 4},
        "update": {"lr": 1e-2},
        "eval": {"every": 3, "samples": 4, "k": [1, 4]},
        "save": {"every": 1},
        "compute": {"threads": 1},
        **more,
    }


@pytest.fixture
def grader(tmp_path):
    (tmp_path / "grade.py").write_text(GRADER)
    namespace = {}
    exec(GRADER, namespace)
    return tmp_path / "grade.py", namespace["reward"]


def weights(run):
    return (run / "checkpoints" / "step-000003" / "model.safetensors").read_bytes()


def test_a_run_is_that_of_the_command_bit_for_bit(command, model, grader, tmp_path):
    file, reward = grader
    steps = []
    out = tmp_path / "here"
    run = fgrpo.train(config(model), reward=reward, data=ROWS, held_out=ROWS[:4], out=out, on_step=steps.append)
    assert [step["step"] for step in steps] == [1, 2, 3] == [row["step"] for row in run.metrics]
    assert set(run.pass_at_k) == {1, 4} and run.report.exists()
    assert [row["step"] for row in run.cover(50)] == [row["step"] for row in run.evaluations]
    evaluation = {"step": 0, "set": "held-out", "samples": 4, "problems": 4, "per_problem": [0, 2, 4, 1]}
    uneven = {**evaluation, "scored_per_problem": [0, 4, 4, 2]}
    run = dataclasses.replace(run, evaluations=[evaluation, uneven])
    assert run.cover(50, 100) == [
        {"step": 0, "set": "held-out", "cover@50%": 2 / 4, "cover@100%": 1 / 4},
        {"step": 0, "set": "held-out", "cover@50%": 1.0, "cover@100%": 1 / 3},
    ]
    (tmp_path / "run.toml").write_text(
        f"""
        steps = 3
        seed = 5
        task = {{ kind = "python", grader = "{file}:reward", data = "{out}.train.jsonl", held_out = "{out}.held-out.jsonl" }}
        model.path = "{model}"
        rollout = {{ prompts = 4, group_size = 8, max_new_tokens = 4 }}
        update.lr = 1e-2
        eval = {{ every = 3, samples = 4, k = [1, 4] }}
        save.every = 1
        compute.threads = 1
        """
    )
    there = tmp_path / "there"
    done = command("train", tmp_path / "run.toml", "--out", there)
    assert done.returncode == 0, done.stderr
    assert weights(out) == weights(there)


def test_a_notebook_shows_the_curves_while_the_run_goes_on(model, grader, tmp_path, monkeypatch):
    begun, shown = threading.Event(), []

    def show(image, display_id=None):
        shown.append((image, (tmp_path / "run" / "report.html").exists()))
        begun.set()
        return types.SimpleNamespace(update=show)

    tools = types.SimpleNamespace(Image=lambda data, format: data, display=show)
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=tools, version_info=(9, 0)))
    monkeypatch.setitem(sys.modules, "IPython.display", tools)

    def reward(completion, sum, **columns):
        if (tmp_path / "run" / "metrics.jsonl").exists() and len(steps_of(tmp_path / "run")) == 1:
            assert begun.wait(60), "nothing was shown after the first step"
        return grader[1](completion, sum)

    run = fgrpo.train(config(model), reward=reward, data=ROWS, held_out=ROWS[:4], out=tmp_path / "run", plot=True)
    assert [report for _, report in shown] in ([False, True], [False, False, True])
    assert all(image.startswith(b"\x89PNG") for image, _ in shown) and shown[0][0] != shown[-1][0]
    rewards, active, passes = run.plot().axes
    assert rewards.lines[0].get_xydata().tolist() == [[row["step"], row["reward_mean"]] for row in run.metrics]
    assert active.lines[0].get_ydata().tolist() == [row["active_fraction"] for row in run.metrics]
    assert [line.get_label() for line in passes.lines] == ["k = 1", "k = 4"]
    assert [line.get_ydata()[-1] for line in passes.lines] == list(run.pass_at_k.values())


def steps_of(run):
    return (run / "metrics.jsonl").read_text().splitlines()


def test_ctrl_c_saves_and_a_resumed_run_has_the_same_bits(model, grader, tmp_path, ctrl_c):
    settings = {"reward": grader[1], "data": ROWS, "held_out": ROWS[:4]}
    whole = fgrpo.train(config(model), **settings, out=tmp_path / "whole")

    def interrupt(step):
        if step["step"] == 1:
            ctrl_c()

    slow = {"reward": lambda completion, sum, **columns: (threading.Event().wait(0.01), grader[1](completion, sum))[1]}
    with pytest.raises(KeyboardInterrupt):
        fgrpo.train(config(model), **{**settings, **slow}, out=tmp_path / "parts", on_step=interrupt)
    with pytest.raises(ValueError, match="grader"):
        fgrpo.train(config(model), **settings, out=tmp_path / "parts", if_exists="resume")  # another function
    fgrpo.train(config(model), **{**settings, **slow}, out=tmp_path / "parts", if_exists="resume")
    assert weights(whole.path) == weights(tmp_path / "parts")


def test_ctrl_c_during_a_wait_saves_the_step_and_reports_it(model, grader, tmp_path, ctrl_c):
    out, steps = tmp_path / "run", []

    def reward(completion, sum, **columns):
        if (out / "metrics.jsonl").exists() and len(steps_of(out)) == 1:
            with contextlib.suppress(FileExistsError):
                (tmp_path / "sent").mkdir()
                ctrl_c()
        return grader[1](completion, sum)

    settings = {"reward": reward, "data": ROWS, "held_out": ROWS[:4], "out": out}
    with pytest.raises(KeyboardInterrupt):
        fgrpo.train(config(model, steps=200, save={"every": 1000}), **settings, on_step=lambda step: steps.append(step["step"]))
    last = len(steps_of(out))
    assert last < 200 and steps == list(range(1, last + 1))
    assert [checkpoint.name for checkpoint in (out / "checkpoints").glob("step-*")] == [f"step-{last:06}"]


def test_a_forked_child_can_train_after_its_parent(model, tmp_path):
    script = """
import fgrpo, os, sys
def train(out):
    config = {"steps": 1, "model": {"path": sys.argv[1]}, "rollout": {"prompts": 2, "group_size": 4, "max_new_tokens": 2}, "eval": {"every": 0}}
    fgrpo.train(config, reward=lambda completion, **columns: len(completion) % 2, data=[{"question": "1 + 1 ="}] * 2, out=out)
train(sys.argv[2] + "/parent")
child = os.fork()
if child == 0:
    train(sys.argv[2] + "/child")
    os._exit(0)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script, model, tmp_path], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(steps_of(tmp_path / "child")) == 1


def test_a_changed_default_or_captured_value_changes_the_function(model, tmp_path):
    def made(scale, half=0.5):
        def reward(completion, sum, *, half=half, **columns):
            return scale * (1.0 if completion.strip() == sum else half)

        return reward

    class Judge:
        def __init__(self, scale):
            self.scale = scale

        def reward(self, completion, sum, **columns):
            return self.scale * float(completion.strip() == sum)

    small = config(model, steps=1, eval={"every": 0})
    changes = [(made(1.0), made(1.0), made(2.0)), (made(1.0), made(1.0), made(1.0, 0.25)), (Judge(1).reward, Judge(1).reward, Judge(2).reward)]
    for index, (first, same, other) in enumerate(changes):
        settings = {"data": ROWS, "held_out": ROWS[:4], "out": tmp_path / str(index)}
        fgrpo.train(small, reward=first, **settings)
        fgrpo.train(small, reward=same, **settings, if_exists="resume")
        with pytest.raises(ValueError, match="grader"):
            fgrpo.train(small, reward=other, **settings, if_exists="resume")


def test_a_refused_run_leaves_the_data_of_the_run_in_its_folder(model, grader, tmp_path):
    small = config(model, steps=1, eval={"every": 0})
    out = tmp_path / "run"
    fgrpo.train(small, reward=grader[1], data=ROWS, held_out=ROWS[:4], out=out)
    before, steps = {path: path.read_bytes() for path in tmp_path.glob("run.*")}, []
    assert len(before) == 2
    for changes in ({}, {"if_exists": "resume"}, {"if_exists": "restart", "set": {"step": 3}}, {"if_exists": "overwrite"}):
        with pytest.raises(ValueError):
            fgrpo.train(small, reward=grader[1], data=ROWS[:2], held_out=ROWS[:1], out=out, on_step=steps.append, **changes)
        assert {path: path.read_bytes() for path in tmp_path.glob("run.*")} == before and not steps, changes
    with pytest.raises(ValueError):
        fgrpo.train(config(model, step=1), reward=grader[1], data=ROWS, out=tmp_path / "new")
    assert not list(tmp_path.glob("new*"))
    fgrpo.train(small, reward=grader[1], data=ROWS[:2], held_out=ROWS[:1], out=out, if_exists="restart")
    assert len((tmp_path / "run.train.jsonl").read_text().splitlines()) == 2


def test_a_run_that_is_started_over_reports_no_step_of_the_old_one(model, grader, tmp_path, monkeypatch):
    settings = {"reward": grader[1], "data": ROWS, "held_out": ROWS[:4], "out": tmp_path / "run"}
    fgrpo.train(config(model), **settings)
    begin, steps = fgrpo._native.train, []
    monkeypatch.setattr(fgrpo._native, "train", lambda *arguments: (time.sleep(0.5), begin(*arguments))[1])
    run = fgrpo.train(config(model, steps=2), **settings, if_exists="restart", on_step=steps.append)
    assert steps == run.metrics and [step["step"] for step in steps] == [1, 2]


def test_a_reward_that_raises_is_shown_once_and_stops_a_run_that_nothing_grades(model, tmp_path, capfd):
    def broken(completion, **columns):
        raise RuntimeError("no such model")

    with pytest.raises((ValueError, RuntimeError), match="no such model"):
        fgrpo.train(config(model), reward=broken, data=ROWS, held_out=ROWS[:4], out=tmp_path / "run")
    assert capfd.readouterr().err.count("Traceback") == 1


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"reward": 3}, TypeError, "reward: expected"),
        ({"data": []}, ValueError, "task.data: expected at least one row"),
        ({"data": [1]}, TypeError, "task.data: row 0: expected"),
        ({"data": [{"question": object()}]}, TypeError, "task.data: row 0: expected"),
        ({"set": {"step": 3}}, ValueError, "^step: unknown key `step`"),
        ({"set": {"update.lr": -1}}, ValueError, "^update.lr: "),
        ({"set": {"rollout": {"promts": 3}}}, ValueError, "^rollout: unknown key `promts`"),
        ({"set": {"steps": None}}, TypeError, "^steps: expected"),
        ({"device": "tpu"}, ValueError, "device"),
        ({"if_exists": "overwrite"}, ValueError, "^if_exists: expected"),
    ],
)
def test_what_cannot_be_is_refused_by_name(model, grader, tmp_path, changes, error, words):
    settings = {"reward": grader[1], "data": ROWS, "held_out": ROWS[:4], "out": tmp_path / "run", **changes}
    with pytest.raises(error, match=words):
        fgrpo.train(config(model), **settings)


def test_a_wrong_key_of_a_dict_is_named_in_full(model, tmp_path):
    wrong = config(model, rollout={"promts": 4}, update={"lr": 1e-3, "betas": [0.5, 0.5]})
    with pytest.raises(ValueError, match=r"^rollout\.promts: unknown key `promts`; did you mean `prompts`"):
        fgrpo.train(wrong, data=ROWS, held_out=ROWS[:4], out=tmp_path / "run")


def test_verls_compute_score_grades_as_it_is(model, tmp_path):
    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        seen.add((data_source, ground_truth))
        return float(solution_str.split() == [ground_truth])

    seen = set()
    rows = [{"question": "1 + 1 =", "data_source": "sums", "reward_model": {"ground_truth": "2"}}, {"question": "2 + 1 =", "answer": "3"}]
    small = config(model, steps=1, rollout={"prompts": 2, "group_size": 2, "max_new_tokens": 2}, eval={"every": 0})
    fgrpo.train(small, reward=compute_score, data=rows, out=tmp_path / "run")
    assert seen == {("sums", "2"), (None, "3")}


def test_single_precision_scores_reach_their_limit(model, tmp_path):
    small = config(model, steps=1, eval={"every": 0})
    limit = {"task.grader.correct_from": 0.9}
    run = fgrpo.train(small, reward=lambda completion, **columns: np.float32(0.9), data=ROWS, held_out=ROWS[:4], out=tmp_path / "run", set=limit)
    assert run.metrics[0]["verdicts"] == {"correct": 32}


def test_several_rewards_train_beside_completions_without_an_answer(bytes_model, tmp_path):
    def reward(completion, **columns):
        return {"score": 0.0, "rewards": {"correct": 0.0, "short": -len(completion) / 1000}}

    sizes = {"rollout": {"prompts": 8, "group_size": 8, "max_new_tokens": 32}, "algorithm": {"advantage": "gdpo"}}
    rows = [{"problem": str(i)} for i in range(8)]
    run = fgrpo.train(config(bytes_model, steps=1, eval={"every": 0}, **sizes), reward=reward, data=rows, out=tmp_path / "run")
    assert run.metrics[0]["verdicts"]["unparsed"] > 0 and set(run.metrics[0]["rewards"]) == {"correct", "short"}


def test_a_notebook_shows_the_plot_of_a_run_as_a_picture(model, grader, tmp_path):
    formatters = pytest.importorskip("IPython.core.formatters")
    run = fgrpo.train(config(model, steps=2), reward=grader[1], data=ROWS, held_out=ROWS[:4], out=tmp_path / "run")
    data, _ = formatters.DisplayFormatter().format(run.plot())
    assert data["image/png"].startswith(b"\x89PNG")
    ticks = run.plot().axes[0].get_xticks()
    assert all(tick == round(tick) for tick in ticks), f"there is no step {ticks}"


def test_the_command_says_who_can_continue_a_run_of_python(command, model, grader, tmp_path):
    run = fgrpo.train(config(model), reward=grader[1], data=ROWS, held_out=ROWS[:4], out=tmp_path / "run")
    again = command("train", run.path / "config.toml", "--out", run.path, "--resume", "--set", "steps=4", "--accept-changes")
    assert again.returncode == 2 and "fgrpo.train" in again.stderr
    assert json.loads((run.path / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 3


def test_a_second_run_beside_one_in_this_process_is_refused(model, grader, tmp_path):
    begun, refused = threading.Event(), []

    def during(step):
        if not begun.is_set():
            begun.set()
            with pytest.raises(ValueError, match="another run is in progress in this process"):
                fgrpo.train(config(model), reward=grader[1], data=ROWS, held_out=ROWS[:4], out=tmp_path / "second")
            refused.append(step["step"])

    fgrpo.train(config(model, steps=30), reward=grader[1], data=ROWS, held_out=ROWS[:4], out=tmp_path / "first", on_step=during)
    assert refused
