"""``fgrpo.train`` gives the same bits as the command, with the reward function in this process."""

import dataclasses
import json
import sys
import threading
import time
import types

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
