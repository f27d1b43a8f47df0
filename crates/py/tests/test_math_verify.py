"""fgrpo.math_verify, the drop-in; scripts/wheel/drop_in.py compares it with math-verify itself."""

import asyncio
import copy
import dataclasses
import importlib
import inspect
import json
import logging
import os
import pathlib
import pickle
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
from conftest import ROOT

from fgrpo.math_verify import (
    ExprExtractionConfig,
    LatexExtractionConfig,
    NormalizationConfig,
    StringExtractionConfig,
    Value,
    errors,
    math_metric,
    parse,
    verify,
)


def in_fresh_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_parsed_answer_is_a_list_of_the_value_and_its_text():
    found = parse(r"so it is $\frac{1}{2}$")
    value, text = found
    assert isinstance(found, list) and len(found) == 2 and isinstance(value, Value)
    assert (str(value), text, str(found)) == ("1/2", r"\frac{1}{2}", r"[Value(1/2), '\\frac{1}{2}']")
    assert parse("nothing") == [] and not parse("")
    assert value == parse("1/2")[0] and hash(value) == hash(parse("1/2")[0]) and value != parse("1/3")[0]


@pytest.mark.parametrize(
    ("gold", "answer", "settings", "wanted"),
    [
        ("$1/2$", "0.5", {}, True),
        ("$1/2$", "0.4", {}, False),
        ("$x<3$", r"$(-\infty,3)$", {}, True),
        (r"$(-\infty,3)$", "$x<3$", {}, False),
        (r"$(-\infty,3)$", "$x<3$", {"allow_set_relation_comp": True}, True),
        ("$x+1$", "$y+1$", {}, False),
        ("$x+1$", "$y+1$", {"strict": False}, True),
        ("$1/3$", "0.333", {}, False),
        ("$1/3$", "0.333", {"float_rounding": 3}, True),
        ("$1/3$", "0.333", {"float_rounding": 3, "numeric_precision": 30, "timeout_seconds": None}, True),
    ],
)
def test_values_are_compared_as_the_settings_say(gold, answer, settings, wanted):
    gold, answer = parse(gold), parse(answer)
    assert verify(gold, answer, **settings) is wanted
    assert any(verify(one, other, **settings) for one in gold for other in answer) is wanted
    assert verify([], answer) is verify(gold, []) is verify("", "") is False


def test_targets_and_modes_say_what_is_searched():
    anchored = [LatexExtractionConfig(try_extract_without_anchor=False, boxed_match_priority=0)]
    assert parse("so $5$", anchored) == [] and str(parse(r"so \boxed{5}", anchored)[0]) == "5"
    assert parse(r"\boxed{5}", [LatexExtractionConfig(boxed_match_priority=-1)]) == []
    assert parse("5", [ExprExtractionConfig(try_extract_without_anchor=False)]) == []
    assert str(parse("the answer is 5", [ExprExtractionConfig(try_extract_without_anchor=False)])[0]) == "5"
    assert parse("The answer is B", [StringExtractionConfig()]) == ["b", "B"]
    assert parse("The answer is (x)", [StringExtractionConfig(("(x)", "y"), lowercase=False)]) == ["(x)", "(x)"]
    broken = r"\boxed{\frac{} and} after $5$"
    assert str(parse(broken)[0]) == "5"
    (text,) = parse(broken, extraction_mode="first_match")
    assert isinstance(text, str)
    assert parse(broken, extraction_mode="first_match", fallback_mode="no_fallback") == []
    # Called as in TRL and open-r1.
    style = NormalizationConfig(nits=False, malformed_operators=False, basic_latex=True, equations=True, boxed="all", units=True)
    config = LatexExtractionConfig(normalization_config=style, boxed_match_priority=0, try_extract_without_anchor=False)
    assert str(parse(r"\boxed{x = 2 + 1 = 3}", [config])[0]) == "3"
    assert verify(parse(r"\boxed{3\text{ cm}}", [config], extraction_mode="first_match"), parse("$3$"))


def test_what_is_too_expensive_is_empty_or_an_error():
    endless, deep = r"\boxed{9^{9^{9^9}}}", r"\boxed{" + "(" * 3000 + "x" + ")" * 3000 + "}"
    start = time.perf_counter()
    assert parse(deep) == [] and not verify(parse("9"), parse(endless))
    with pytest.raises(errors.TimeoutException):
        parse(deep, raise_on_error=True)
    with pytest.raises(errors.TimeoutException):
        verify(parse("9"), parse(endless), raise_on_error=True)
    assert time.perf_counter() - start < 5 and not issubclass(errors.TimeoutException, Exception)


def test_what_is_no_text_is_refused_or_reported(caplog):
    assert str(parse(72)[0]) == "72"
    with pytest.raises(TypeError, match="pred: expected str, found <class 'NoneType'>"):
        parse(None, raise_on_error=True)
    with caplog.at_level(logging.WARNING, "fgrpo.math_verify"):
        assert parse(None) == []
    assert "NoneType" in caplog.text
    with pytest.raises(TypeError, match="verify: expected what parse returns, found <class 'int'>"):
        verify(parse("1"), 1)


def test_the_metric_scores_the_best_prediction():
    metric = math_metric((LatexExtractionConfig(),), (ExprExtractionConfig(), LatexExtractionConfig()))
    assert metric([r"\boxed{1/2}"], ["it is 3", "it is 0.5"]) == (1.0, (["1/2", r"\frac{1}{2}"], ["3", "3", "0.5", "0.5"]))
    assert metric(["$1$", "$2$"], ["2"])[0] == 1 and metric(["$1$"], ["no"])[0] == 0
    with pytest.raises(ValueError, match="golds: expected"):
        metric(["no"], ["1"])


@pytest.mark.skipif("FGRPO_PARITY_DATA" not in os.environ, reason="FGRPO_PARITY_DATA isn't set")
def test_the_suite_of_math_verify_passes():
    path = pathlib.Path(os.environ["FGRPO_PARITY_DATA"], "verifiers", "math_verify_suite.jsonl")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(rows) > 200
    for row in rows:
        latex = LatexExtractionConfig(boxed_match_priority=row["boxed_match_priority"])
        config = [latex if kind == "latex" else ExprExtractionConfig() for kind in row["match_types"]]
        settings = {"float_rounding": row["precision"], **{k: row[k] for k in ("strict", "allow_set_relation_comp")}}
        found = verify(parse(row["gold"], config), parse(row["pred"], config), **settings)
        assert found == bool(row["math_verify"]), (row["gold"], row["pred"])


def judge(answer):
    return verify(parse("$1/2$"), parse(answer, [LatexExtractionConfig(), ExprExtractionConfig()]))


def test_it_works_in_threads_processes_and_asyncio():
    answers, wanted = [r"\boxed{0.5}", "nothing", r"\boxed{9^{9^{9^9}}}", "1/2"] * 8, [True, False, False, True] * 8
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(judge, answers)) == wanted
    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(2, get_context(method)) as pool:
            assert list(pool.map(judge, answers)) == wanted
            # Values are passed between processes.
            assert pool.submit(parse, "x+1").result() == parse("x+1")

    async def many():
        return await asyncio.gather(*(asyncio.to_thread(judge, answer) for answer in answers))

    assert asyncio.run(many()) == wanted


def test_values_and_configurations_are_copied_and_pickled():
    texts = ["$\\frac{1}{2}$ and $5\\%$", r"\boxed{x=1} \boxed{x=2}", "1,234.5%", "1 + 2*3", "the answer is $(1,2]$", "none"]
    for given in [*map(parse, texts), LatexExtractionConfig(), StringExtractionConfig(("A", "B"))]:
        for again in (copy.deepcopy(given), pickle.loads(pickle.dumps(given))):
            assert again == given and repr(again) == repr(given)
    assert dataclasses.replace(LatexExtractionConfig(), boxed_match_priority=0).boxed_match_priority == 0


def test_installed_it_is_what_import_math_verify_finds():
    code = (
        "import fgrpo.math_verify as ours; ours.install(); ours.install()\n"
        "import importlib.util, math_verify, math_verify.metric\n"
        "from math_verify import LatexExtractionConfig, parse, verify\n"
        "from math_verify.errors import TimeoutException\n"
        "from math_verify.grader import verify as other\n"
        "from math_verify.parser import ExprExtractionConfig\n"
        "from latex2sympy2_extended import NormalizationConfig\n"
        "assert importlib.util.find_spec('math_verify') and math_verify is ours and other is verify is ours.verify\n"
        "config = LatexExtractionConfig(normalization_config=NormalizationConfig(units=True))\n"
        "print(verify(parse('$1/2$'), parse('$0.5$', [config])))"
    )
    assert in_fresh_python(code) == "True"


@pytest.mark.parametrize("name", ["", ".parser", ".grader", ".metric"])
def test_signatures_are_math_verifys(name):
    pytest.importorskip("math_verify")
    theirs, ours = (importlib.import_module(package + name) for package in ("math_verify", "fgrpo.math_verify"))
    public = getattr(theirs, "__all__", None) or ["parse", "verify", "math_metric", "LatexExtractionConfig"]
    names = [n for n in public if hasattr(theirs, n)]
    assert names and all(hasattr(ours, n) for n in names)
    for function in (n for n in names if inspect.isroutine(getattr(theirs, n)) or n.endswith("ExtractionConfig")):
        wanted, found = (inspect.signature(getattr(m, function)).parameters for m in (theirs, ours))
        assert list(found) == list(wanted), function
        simple = (int, bool, str, type(None))
        for parameter, value in wanted.items():
            if isinstance(value.default, simple):
                assert found[parameter].default == value.default, f"{function}: {parameter}"


def test_the_script_that_compares_runs_ours(tmp_path):
    """Runs its call sites, by name, only with our module."""
    script = ROOT / "scripts/wheel/drop_in.py"
    (tmp_path / "verifiers").mkdir()
    for name in ("math_verify_suite", "math_pairs", "math_natural", "math_other_suites"):
        row = {"gold": r"\frac{1}{2}", "pred": r"so \boxed{0.5}"}
        (tmp_path / "verifiers" / f"{name}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    environment = {**os.environ, "FGRPO_PARITY_DATA": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script), "--work", "ours"], env=environment, capture_output=True, text=True, timeout=300
    )
    found = {line["site"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert len(found) == 5, done.stderr
    for site in ("open_r1_accuracy_reward", "lighteval_metric", "readme"):
        assert found[site]["rewards"] == [1.0] * 4
