import json
import shutil
import sys
import types

import numpy as np
import pytest

import fgrpo


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_our_own_lines_are_read_with_their_benchmarks(tmp_path):
    rows = [{"problem": "p", "sample": i, "verdict": v} for i, v in enumerate(["correct", "wrong", "unscorable", "unparsed"])]
    rows += [{"problem": "q", "sample": 0, "correct": True, "benchmark": "other"}]
    found = fgrpo.read_samples(write(tmp_path / "mine.jsonl", rows))
    assert (found.problem, found.benchmark) == (["p", "q"], ["mine", "other"])
    assert (found.n.tolist(), found.c.tolist(), found.unscorable.tolist()) == ([3, 1], [1, 1], [1, 0])


def test_sample_logs_of_lm_eval_are_graded_again(tmp_path):
    answers = [[r"\boxed{2}", r"\boxed{3}", "none"], [r"\boxed{5}", "5", r"\boxed{5.0}"]]
    rows = [
        {"doc_id": i, "doc": {}, "target": gold, "arguments": {}, "resps": [resps], "filtered_resps": [resps[0]], "exact_match": 0.0}
        for i, (gold, resps) in enumerate(zip(["2", "5"], answers, strict=True))
    ]
    path = write(tmp_path / "samples_gsm8k_2026-01-01T00-00-00.000000.jsonl", rows)
    for found in (fgrpo.read_samples(path), fgrpo.read_samples(path, "lm-eval"), fgrpo.read_samples(tmp_path)):
        assert found.benchmark == ["gsm8k"] * 2 and found.problem == ["0", "1"]
        assert (found.n.tolist(), found.c.tolist()) == ([3, 3], [1, 3])


def test_validation_dumps_of_verl_are_grouped_by_their_prompt(tmp_path):
    rows = [
        {"input": "1+1", "output": out, "gts": "2", "score": 0.0, "step": 3, "uid": f"a_b_{i}_0"}
        for i, out in enumerate([r"\boxed{2}", "3"])
    ] + [{"input": "2+2", "output": "4", "gts": "4", "score": 1.0, "step": 3, "uid": "c_0_0"}]
    found = fgrpo.read_samples(write(tmp_path / "3.jsonl", rows))
    assert (found.problem, found.n.tolist(), found.c.tolist()) == (["1+1", "2+2"], [2, 1], [1, 1])
    # Without prompts, the first part of the uid identifies the problems of one run.
    for row in rows:
        del row["input"]
    found = fgrpo.read_samples(write(tmp_path / "4.jsonl", rows))
    assert (found.problem, found.n.tolist()) == (["a_b", "c"], [2, 1])
    with pytest.raises(ValueError, match="3.jsonl"):
        fgrpo.read_samples(tmp_path)
    with pytest.raises(ValueError, match="expected a dump of lm-eval, found one of verl"):
        fgrpo.read_samples(tmp_path / "3.jsonl", "lm-eval")


def test_the_grader_may_be_another(tmp_path):
    rows = [{"input": "q", "output": r"\boxed{B}", "gts": "B", "score": 0.0}]
    path = write(tmp_path / "3.jsonl", rows)
    assert fgrpo.read_samples(path, grade=fgrpo.verify_choice).c.tolist() == [1]


def of_job(problem, truth, output, correct, grader):
    """Returns a line of verl's validation file of an exported job."""
    scores = {"score": float(correct), "acc": float(correct), "unparsed": 0.0, "unscorable": 0.0}
    named = {"source": truth["kind"], "problem": problem, "grader": grader}
    return {"input": f"user {problem}", "output": output, "gts": json.dumps(truth), "step": 5, **scores, **named}


def test_a_jobs_own_verdicts_count_and_another_mode_grades_again(tmp_path):
    rows = [of_job("p", {"kind": "python", "columns": {}}, "x", right, "python") for right in (True, True, False)]
    found = fgrpo.read_samples(write(tmp_path / "5.jsonl", rows))
    assert (found.problem, found.n.tolist(), found.c.tolist()) == (["p"], [3], [2])
    assert "python" in found.graded and "python" in repr(found)
    # Correct only in mode parity.
    unworked = of_job("p", {"kind": "math", "gold": "29"}, r"\boxed{12+17}", False, "math in mode strict")
    path = write(tmp_path / "6.jsonl", [unworked])
    assert fgrpo.read_samples(path).c.tolist() == [0] and "mode strict" in fgrpo.read_samples(path).graded
    again = fgrpo.read_samples(path, mode="parity")
    assert again.c.tolist() == [1] and "mode parity" in again.graded
    with pytest.raises(ValueError, match="mode"):
        fgrpo.read_samples(path, mode="exact")
    with pytest.raises(ValueError, match="mode"):
        fgrpo.read_samples(write(tmp_path / "mine.jsonl", [{"problem": "p", "n": 1, "c": 1}]), mode="strict")


def test_an_evaluation_and_a_dump_are_compared_by_the_question(tmp_path):
    questions = [f"What is {i} + {i}?" for i in range(12)]
    hashes = [f"hash{i}" for i in range(12)]
    folder = tmp_path / "laptop"
    folder.mkdir()
    write(folder / "samples.jsonl", [{"benchmark": "sums", "problem": h, "sample": i, "correct": False} for h in hashes for i in range(2)])
    asked = zip(hashes, questions, strict=True)
    prompts = [{"benchmark": "sums", "problem": h, "task": "math", "messages": [{"role": "user", "content": q}]} for h, q in asked]
    write(folder / "prompts.jsonl", prompts)
    rows = [
        {"input": f"user\n{q}\nassistant\n", "output": rf"\boxed{{{2 * i}}}", "gts": str(2 * i), "step": 5}
        for i, q in reversed(list(enumerate(questions)))
        for _ in range(2)
    ]
    dump = write(tmp_path / "5.jsonl", rows)
    assert fgrpo.compare(folder, dump)[0].difference == 1.0
    assert fgrpo.compare(dump, folder)[0].difference == -1.0


class Frame(dict):
    """The common interface of pandas and polars frames."""

    class Column(list):
        def to_list(self):
            return list(self)

    columns = property(lambda self: list(self))
    __getitem__ = lambda self, key: Frame.Column(super().__getitem__(key))  # noqa: E731
    __len__ = lambda self: len(next(iter(self.values())))  # noqa: E731


def test_frames_are_samples():
    counted = Frame(problem=["a", "b"], n=[8, 8], c=[1, 7])
    single = Frame(problem=["a"] * 8 + ["b"] * 8, correct=[True] + [False] * 7 + [1.0] * 7 + [0.0])
    assert fgrpo.compare(counted, single)[0].difference == 0
    missing = Frame(problem=["a"] * 3, correct=[1.0, float("nan"), None])
    assert fgrpo.plan(missing, group_sizes=(2,)).active.tolist() == [0]


@pytest.mark.parametrize("verdict", [0.4, -1.0, 2, "wrong", "False"])
def test_a_frame_of_rewards_or_words_is_refused(verdict):
    with pytest.raises((ValueError, TypeError), match="samples: correct: expected"):
        fgrpo.plan(Frame(problem=["p", "p"], correct=[verdict, 0]))


def test_missing_values_of_a_frame_are_unscorable():
    missing = type("NAType", (), {"__bool__": None})()
    found = fgrpo.compare(Frame(problem=["0"] * 4, correct=[True, missing, None, False]), ([2], [1]), uneven=True)[0]
    assert found.a == found.b == 0.5
    with pytest.raises(TypeError, match="a: expected an array without a mask"):
        fgrpo.compare(np.ma.masked_array([[1, 0]], [[True, False]]), ([2], [1]))


@pytest.fixture
def details(tmp_path, monkeypatch):
    """Writes files of lighteval's details, which are JSON here, because pyarrow isn't installed."""
    reader = types.SimpleNamespace(read_table=lambda path: types.SimpleNamespace(to_pylist=lambda: json.loads(path.read_text())))
    monkeypatch.setitem(sys.modules, "pyarrow", types.SimpleNamespace(parquet=reader))
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", reader)

    def made(name, choices, texts, index=0, **doc):
        path = tmp_path / name / f"details_{name}_2026-01-01T00-00-00.000000.parquet"
        path.parent.mkdir(exist_ok=True)
        doc = {"id": "0", "query": "q", "choices": choices, "gold_index": index, **doc}
        path.write_text(json.dumps([{"doc": doc, "model_response": {"text": texts}}]))
        return path.parent

    return made


def test_details_of_lighteval_are_graded_as_their_task(details):
    found = fgrpo.read_samples(details("lighteval|sums|0", ["5"], [r"\boxed{5}", r"\boxed{4}"]))
    assert (found.benchmark, found.question, found.n.tolist(), found.c.tolist()) == (["sums|0"], ["q"], [2], [1])
    letters = details("gpqa:diamond|0", ["A", "B", "C", "D"], ["The correct answer is (C).", r"\boxed{C}", r"\boxed{A}"], [2])
    found = fgrpo.read_samples(letters)
    assert found.c.tolist() == [1] and "choice" in found.graded and str(letters) in found.graded
    assert fgrpo.read_samples(letters, grade=fgrpo.verify_math).n.tolist() == [3]
    specific = {"instructions_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    found = fgrpo.read_samples(details("ifeval|0", [""], ["No comma.", "One, here."], specific=specific))
    assert (found.n.tolist(), found.c.tolist()) == ([2], [1])


def test_details_of_lighteval_that_cannot_be_one_evaluation_are_refused(details, tmp_path):
    sums = details("sums|0", ["5"], [r"\boxed{5}"])
    for folder, words in (
        (details("several|0", ["5", "7"], ["7"], [0, 1]), "row 0: gold_index: expected one reference answer"),
        (details("none|0", [], ["7"], []), "reference answer is empty"),
        (write(details("mixed|0", ["5"], ["5"]) / "x.jsonl", [{"problem": "a", "n": 4, "c": 1}]).parent, "only one kind"),
    ):
        with pytest.raises(ValueError, match=words):
            fgrpo.read_samples(folder)
    for model in ("one", "two"):
        shutil.copytree(sums, tmp_path / "models" / model)
    with pytest.raises(ValueError, match="several logs of task sums"):
        fgrpo.read_samples(tmp_path / "models")


def test_a_grader_grades_responses_and_has_no_mode(tmp_path):
    dump = write(tmp_path / "v.jsonl", [{"input": "q", "output": r"\boxed{5}", "gts": "5", "score": 1.0, "step": 1}])
    with pytest.raises(ValueError, match="mode: not available with grade"):
        fgrpo.read_samples(dump, grade=fgrpo.verify_math, mode="strict")
    assert fgrpo.read_samples(dump, grade=fgrpo.verify_math).benchmark == fgrpo.read_samples(dump).benchmark == ["v"]
    with pytest.raises(ValueError, match="grade: .* graded already"):
        fgrpo.read_samples(write(tmp_path / "mine.jsonl", [{"problem": "p", "n": 1, "c": 1}]), grade=fgrpo.verify_math)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"problem": 1, "n": 4, "c": 5}', "line 1: problem 1: c = 5"),
        ("", "empty"),
        ("[1]", "line 1"),
        ('{"doc_id": 0, "resps": [["x"]]}', "line 1: target"),
        ('{"output": "x", "gts": null}', "line 1: gts"),
        ('{"problem"', "line 1"),
    ],
)
def test_files_that_cannot_be_read_are_refused_by_line(tmp_path, text, words):
    path = tmp_path / "samples.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError) as found:
        fgrpo.read_samples(path)
    assert words in str(found.value) and "samples.jsonl" in str(found.value)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        fgrpo.read_samples(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no .jsonl and no .parquet"):
        fgrpo.read_samples(tmp_path)
    with pytest.raises(ValueError, match="expected the columns"):
        fgrpo.compare(Frame(x=[1]), Frame(x=[1]))
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match="a: a row has no problem"):
            fgrpo.compare(Frame(problem=["p", missing, missing], correct=[1, 1, 0]), Frame(x=[1]))
    (tmp_path / "a.jsonl").write_text("{}")
    with pytest.raises(ValueError, match="format: expected .*found 'csv'"):
        fgrpo.read_samples(tmp_path / "a.jsonl", "csv")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"n": [4], "c": [5]}, "problem 0: expected"),
        ({"n": [4], "c": [1, 2]}, "n of shape (1,), c of shape (2,)"),
        ({"n": [4, 4], "c": [1, 2], "problem": ["a", "a"]}, "appears twice"),
        ({"n": [4], "c": [1], "unscorable": [-1]}, "problem 0"),
        ({"n": np.zeros((2, 2), int), "c": [1]}, "shape (2, 2)"),
    ],
)
def test_columns_that_do_not_fit_are_refused(columns, words):
    with pytest.raises(ValueError) as found:
        fgrpo.Samples(**columns)
    assert words in str(found.value)
