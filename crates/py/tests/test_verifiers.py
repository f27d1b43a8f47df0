import copy
import json
import math
import multiprocessing
import os
import pickle
import threading
import time

import numpy as np
import pytest
from conftest import ROOT

import fgrpo

FIXTURES = ROOT / "crates/verify/tests/fixtures"
GOLDS = ["1/2", "x+1", "3", "(1,2]", "42"] * 40
RESPONSES = [r"so \boxed{0.5}", r"\boxed{1+x}", "no idea", r"\boxed{(1,2]}", r"\boxed{41}"] * 40
CODES = [0, 0, 2, 0, 1] * 40


def lines(name, *keys):
    """Returns the cases of a file, without its first line, which names the program that made it."""
    with (FIXTURES / name).open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.strip() and not line.startswith("#")]
    rows = [{key: row[key] for key in keys} for row in rows if keys[0] in row]
    assert len(rows) > 100
    return rows


def by_command(command, tmp_path, kind, rows, *flags):
    """Returns the command's verdicts on the same rows."""
    path = tmp_path / f"{kind}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = command("verify", kind, path, *flags)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(rows)
    return [a["verdict"] for a in answers], [a["reason"] for a in answers]


def agree(found, wanted):
    assert [fgrpo.VERDICTS[code] for code in found.code] == wanted[0]
    assert found.reason == wanted[1]


@pytest.mark.parametrize("mode", ["parity", "strict"])
def test_math_fixtures_get_the_verdicts_of_the_command(command, tmp_path, mode):
    rows = [{"gold": r["gold"], "response": r["pred"]} for r in lines("math.jsonl", "gold", "pred")]
    found = fgrpo.verify_math([r["gold"] for r in rows], [r["response"] for r in rows], mode=mode)
    agree(found, by_command(command, tmp_path, "math", rows, "--mode", mode))
    for row, code, reason in list(zip(rows, found.code, found.reason, strict=True))[::37]:
        assert fgrpo.MathProblem(row["gold"], mode=mode).check(row["response"]) == (code, reason)


def test_ifeval_fixtures_get_the_verdicts_of_the_command(command, tmp_path):
    keys = ("instruction_id_list", "kwargs", "response")
    rows = lines("ifeval.jsonl", *keys)
    found = fgrpo.verify_ifeval(*([row[key] for row in rows] for key in keys))
    agree(found, by_command(command, tmp_path, "ifeval", rows))


@pytest.mark.parametrize("mode", ["parity", "strict"])
def test_synlogic_fixtures_get_the_verdicts_of_the_command(command, tmp_path, mode):
    keys = ("task", "game_data_str", "response")
    problems = lines("synlogic.jsonl", "task", "game_data_str", "cases")
    rows = [{"task": p["task"], "game_data_str": p["game_data_str"], "response": r} for p in problems for r, _ in p["cases"]]
    found = fgrpo.verify_synlogic(*([row[key] for row in rows] for key in keys), mode=mode)
    agree(found, by_command(command, tmp_path, "synlogic", rows, "--mode", mode))


def test_choices_get_the_verdicts_of_the_command(command, tmp_path):
    responses = [r"\boxed{B}", r"\boxed{b}", "The answer is B.", r"\boxed{Paris}", r"\boxed{C}", "", r"\boxed{(B)}"]
    rows = [{"gold": "B", "response": r, "options": ["Rome", "Paris", "Oslo"]} for r in responses]
    for match in ("letter", "letter-or-content"):
        found = fgrpo.verify_choice("B", responses, options=[["Rome", "Paris", "Oslo"]] * len(rows), match=match)
        agree(found, by_command(command, tmp_path, "choice", rows, "--choice", match))


@pytest.mark.parametrize("threads", [None, 1, 2, 8])
def test_verdicts_do_not_depend_on_threads_and_keep_their_order(threads):
    found = fgrpo.verify_math(GOLDS, RESPONSES, threads=threads)
    assert found.code.tolist() == CODES and found.code.dtype == np.uint8
    assert found.correct.tolist() == [code == 0 for code in CODES]


def test_rewards_of_unscorable_responses_are_nan_unless_told_otherwise():
    verdicts = fgrpo.Verdicts(np.array([0, 1, 2, 3], np.uint8), [""] * 4)
    np.testing.assert_array_equal(verdicts.rewards(), [1, 0, 0, np.nan])
    np.testing.assert_array_equal(verdicts.rewards(2, -1, 0), [2, -1, -1, 0])
    # credit leaves NaN out.
    assert fgrpo.credit([verdicts.rewards()]).success_rate.tolist() == [1 / 3]


def test_endless_work_is_unscorable_at_once():
    start = time.perf_counter()
    verdict = fgrpo.MathProblem("9").check(r"\boxed{9^{9^{9^9}}}")
    assert time.perf_counter() - start < 1
    assert verdict.verdict in ("unscorable", "wrong") and not verdict.correct


def test_a_problem_that_cannot_be_read_is_unscorable_and_says_why():
    for found, words in [
        (fgrpo.verify_choice(["ZZ"], ["x"]), "bad_input: gold:"),
        (fgrpo.verify_synlogic(["chess"], ["{}"], ["x"]), "bad_input: task: expected one of"),
        (fgrpo.verify_ifeval([["no:such"]], [[{}]], ["x"]), "bad_input:"),
        (fgrpo.verify_ifeval([["a", "b"]], [[{}]], ["x"]), "bad_input:"),
    ]:
        assert found.code.tolist() == [3] and found.reason[0].startswith(words), found


def test_text_without_utf_8_is_read():
    assert fgrpo.verify_math("2", ["\ud800 \\boxed{2} \udfff"]).correct.all()
    assert fgrpo.MathProblem("2").check("\ud800 \\boxed{2}").correct


@pytest.mark.parametrize(
    ("gold", "answer"),
    [
        ("48 / 2 = <<48/2=24>>24 in May.\n#### 72", "72"),
        ("#### $1,234.50", "1234.5"),
        ("A long way leads to $x = 3$, so the answer is \\boxed{72}.", "72"),
        ("First \\boxed{1}, and in the end we find \\boxed{72}.", "72"),
        ("$72$", "72"),
        ("['1', '2']", "1, 2"),
        (72, "72"),
        (0.5, "1/2"),
        (["1", 2], "1, 2"),
        (np.int64(72), "72"),
        (np.array(["72"], object), "72"),
    ],
)
def test_a_gold_is_read_as_in_data_sets(gold, answer):
    response = rf"so it is \boxed{{{answer}}}"
    for mode in ("parity", "strict"):
        assert fgrpo.verify_math([gold], [response], mode=mode).correct.all()
        assert fgrpo.verify_math([gold], [r"so it is \boxed{73}"], mode=mode).code.tolist() == [1]
        assert fgrpo.MathProblem(gold, mode=mode).check(response).correct


class OwnProblem(fgrpo.MathProblem):
    """A subclass with an attribute."""


def test_problems_are_copied_and_pickled():
    cloudpickle = pytest.importorskip("cloudpickle")
    own = OwnProblem("2", mode="strict")
    own.note = "kept"
    # 35% equals 35 only in mode parity.
    unfinished = fgrpo.MathProblem("35", mode="strict", accept_unfinished=True)
    assert unfinished.check(r"\boxed{30+5}").correct
    for problem in (fgrpo.MathProblem("35\\%"), fgrpo.MathProblem("35\\%", mode="strict"), own, unfinished):
        wanted = problem.check(r"\boxed{35}")
        copies = [copy.copy(problem), copy.deepcopy(problem), cloudpickle.loads(cloudpickle.dumps(problem))]
        copies += [pickle.loads(pickle.dumps(problem, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
        for again in copies:
            assert type(again) is type(problem) and again.check(r"\boxed{35}") == wanted and repr(again) == repr(problem)
            assert again.check(r"\boxed{30+5}") == problem.check(r"\boxed{30+5}")
            assert getattr(again, "note", None) == getattr(problem, "note", None)


def test_a_restated_problem_is_no_answer_in_training_unless_that_is_asked_for():
    from fgrpo._verifiers import problem_of

    golds, responses = ["56088"] * 2, [r"\boxed{123\times 456}", r"\boxed{56088}"]
    both, one = [True, True], [False, True]
    assert fgrpo.verify_math(golds, responses).correct.tolist() == both, "the mode of math-verify is the default here"
    assert fgrpo.verify_math(golds, responses, mode="strict").correct.tolist() == one
    assert fgrpo.verify_math(golds, responses, mode="strict", accept_unfinished=True).correct.tolist() == both
    # The function that plug-ins call.
    assert [problem_of("56088").check(r).correct for r in responses] == one
    assert [problem_of("56088", accept_unfinished=True).check(r).correct for r in responses] == both


def test_empty_lists_have_no_verdicts():
    found = fgrpo.verify_math([], [])
    assert found.code.shape == (0,) and found.reason == [] and found.rewards().shape == (0,)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: fgrpo.verify_math(["1"], ["1", "2"]), ValueError, "there are 1 reference answers for 2 responses"),
        (lambda: fgrpo.verify_math(["1"], [None]), TypeError, "responses[0]: expected str, found <class 'NoneType'>"),
        (lambda: fgrpo.verify_math(["1", None], ["1"] * 2), TypeError, "golds[1]: expected a string, a number or a list, found None"),
        (lambda: fgrpo.verify_math([["1", {}]], ["1"]), TypeError, "golds[0]: expected a string, a number or a list, found {}"),
        (lambda: fgrpo.verify_math([float("nan")], ["1"]), TypeError, "golds[0]: expected a string, a number or a list, found nan"),
        (lambda: fgrpo.verify_math(["1"], "1"), TypeError, "responses: expected"),
        (lambda: fgrpo.verify_math(["1"], ["1"], mode="loose"), ValueError, 'found "loose"'),
        (lambda: fgrpo.verify_math(["1"], ["1"], threads=0), ValueError, "threads: expected"),
        (lambda: fgrpo.verify_choice("A", ["A"], match="x"), ValueError, 'found "x"'),
        (lambda: fgrpo.verify_choice("A", ["A"], options=[]), ValueError, "options: there are 0 lists"),
        (lambda: fgrpo.verify_synlogic(["sudoku"], [], ["A"]), ValueError, "tasks and game_data differ in length: 1 and 0"),
        (lambda: fgrpo.verify_ifeval([], [[]], ["A"]), ValueError, "instructions and arguments differ in length: 0 and 1"),
        (lambda: fgrpo.MathProblem(None), TypeError, "gold: expected a string, a number or a list, found None"),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(call, error, words):
    with pytest.raises(error) as found:
        call()
    assert words in str(found.value)


def test_other_threads_run_while_a_verifier_works():
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    golds, responses = ["2\\sqrt{3}"] * 4000, ["We get, after some thought, " * 60 + r"\boxed{\sqrt{12}}"] * 4000
    thread.start()
    before = ticks[0]
    start = time.perf_counter()
    fgrpo.verify_math(golds, responses, threads=1)
    spent, during = time.perf_counter() - start, ticks[0] - before
    stop.set()
    thread.join()
    # If the GIL were held, the counter wouldn't change.
    assert during >= 5, f"{during} ticks in {spent:.3f} s"


def test_one_problem_serves_many_threads():
    problem, bad = fgrpo.MathProblem("2\\sqrt{3}"), []

    def work():
        for _ in range(200):
            if not problem.check(r"\boxed{\sqrt{12}}").correct:
                bad.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not bad


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_has_used_threads_may_fork():
    assert fgrpo.verify_math(GOLDS, RESPONSES, threads=4).code.tolist() == CODES
    found = fgrpo.compare(([32] * 20, range(20)), ([32] * 20, range(5, 25)), k=2)
    for _ in range(5):
        child = os.fork()
        if child == 0:
            again = fgrpo.verify_math(GOLDS, RESPONSES, threads=4)
            same = fgrpo.compare(([32] * 20, range(20)), ([32] * 20, range(5, 25)), k=2)
            os._exit(0 if again.code.tolist() == CODES and same == found else 1)
        deadline = time.monotonic() + 60
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > deadline:
                os.kill(child, 9)
                pytest.fail("the child hangs")
            time.sleep(0.01)
        assert status == 0


def _work(i):
    return int(fgrpo.verify_math(GOLDS, RESPONSES, threads=2).correct.sum()) + i * 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_multiprocessing_work(method):
    fgrpo.verify_math(GOLDS, RESPONSES, threads=2)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map_async(_work, range(6)).get(timeout=120) == [CODES.count(0)] * 6


def test_nan_is_the_reward_of_a_failure():
    assert math.isnan(fgrpo.Verdicts(np.array([3], np.uint8), ["budget"]).rewards()[0])


def test_a_grader_has_the_settings_of_a_configuration_for_every_part(tmp_path):
    (tmp_path / "grade.py").write_text("def reward(completion, answer, **_):\n    return 0.5 if answer in completion else None\n")
    (tmp_path / "rows.jsonl").write_text('{"problem": "1+1?", "answer": "2"}\n')
    (tmp_path / "mix.toml").write_text(
        "steps = 1\n[model]\npath = 'nowhere'\n[algorithm]\nreward_wrong = -1.0\ncorrect_threshold = 0.5\n"
        "[[task.parts]]\nkind = 'math'\ndata = 'rows.jsonl'\n"
        "[[task.parts]]\nkind = 'python'\nname = 'own'\ndata = 'rows.jsonl'\ngrader = 'grade.py:reward'\n".replace(
            "[[task.parts]]", "[task]\nkind = 'mix'\n[[task.parts]]", 1
        )
    )
    grader = fgrpo.Grader(tmp_path / "mix.toml", folder=tmp_path)
    assert grader.parts == ["math", "own"]
    row = {"problem": "1+1?", "answer": "2"}
    right = grader.grade(row, r"\boxed{2}", part="math")
    assert (right.verdict, right.correct, right.reward) == ("correct", True, 1.0)
    # The reference answer of an exported job, and a wrong answer.
    assert grader.grade('{"kind":"math","gold":"2"}', r"\boxed{3}", part="math").reward == -1.0
    assert grader.grade(row, "it is 2", part="own").reward == 0.5
    unscorable = grader.grade(row, "no idea", part="own")
    assert unscorable.verdict == "unscorable" and math.isnan(unscorable.reward)
    for truth, part, named in ((row, "other", "other"), (row, None, "own"), ({"problem": "1+1?"}, "math", "answer")):
        with pytest.raises(ValueError, match=named):
            grader.grade(truth, "2", part=part)
