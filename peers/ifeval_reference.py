"""Runs the reference checkers of IFEval (lm-eval's copy of Google's) on JSON lines.

    python peers/ifeval_reference.py label CASES.jsonl > LABELLED.jsonl     # adds "strict" and "loose"
    python peers/ifeval_reference.py time CASES.jsonl                       # processor time for all of them
    python peers/ifeval_reference.py compare CASES.jsonl [FGRPO]            # the same beside ours, in turns

Needs: pip install lm-eval==0.4.13 nltk==3.10.4 langdetect==1.0.9 immutabledict (lm-eval's own dependencies are not
needed: only its checkers are imported). The Punkt parameters come from this repository, so nothing is downloaded.
"""

import importlib.util
import json
import logging
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import types

logging.disable(logging.CRITICAL)
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import punkt_parameters  # noqa: E402

_data = tempfile.mkdtemp()
punkt_parameters.nltk_folder(_data)
os.environ["NLTK_DATA"] = _data


def checkers():
    """Imports lm_eval.tasks.ifeval.utils without the rest of lm_eval."""
    import langdetect

    langdetect.DetectorFactory.seed = 0
    root = pathlib.Path(importlib.util.find_spec("lm_eval").origin).parent
    for name in ("lm_eval", "lm_eval.tasks", "lm_eval.tasks.ifeval"):
        module = types.ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    from lm_eval.tasks.ifeval import utils

    return utils


def cases_of(path):
    return [json.loads(line) for line in open(path) if not line.startswith("#")]


def checker():
    """Returns a function that computes the strict and loose labels of a case."""
    utils = checkers()

    def check(case):
        problem = utils.InputExample(
            case.get("key", 0), case["instruction_id_list"], case["prompt"], case["kwargs"]
        )
        strict = utils.test_instruction_following_strict(problem, case["response"])
        loose = utils.test_instruction_following_loose(problem, case["response"])
        return strict.follow_instruction_list, loose.follow_instruction_list

    return check


def label(path):
    check = checker()
    for case in cases_of(path):
        strict, loose = check(case)
        case["strict"] = [bool(x) for x in strict]
        case["loose"] = [bool(x) for x in loose]
        print(json.dumps(case, ensure_ascii=False))


def seconds(check, cases):
    start = time.process_time()
    for case in cases:
        check(case)
    return time.process_time() - start


def compare(path, program):
    """Compares processor time on one thread, best of three rounds each. Ours is timed on 1 and on 21 copies of the cases: the
    difference is the time of 20 copies without the start of the program."""
    check, cases = checker(), cases_of(path)
    seconds(check, cases[:20])
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / name for name in ("once.jsonl", "often.jsonl")]
        text = "".join(json.dumps(case) + "\n" for case in cases)
        files[0].write_text(text)
        files[1].write_text(text * 21)

        def ours(file):
            def used():
                usage = resource.getrusage(resource.RUSAGE_CHILDREN)
                return usage.ru_utime + usage.ru_stime

            start = used()
            command = [program, "verify", "ifeval", str(file), "--threads", "1"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            return used() - start

        rounds = []
        for _ in range(3):
            once, often = ours(files[0]), ours(files[1])
            rounds.append((seconds(check, cases), (often - once) / 20))
    theirs, our = (min(r[i] for r in rounds) for i in (0, 1))
    ratios = sorted(t / o for t, o in rounds)
    print(f"reference {1e6 * theirs / len(cases):8.1f} microseconds per response ({len(cases) / theirs:.0f} per second)")
    print(f"ours      {1e6 * our / len(cases):8.1f} microseconds per response ({len(cases) / our:.0f} per second)")
    print(f"ratio     {theirs / our:8.1f} (rounds: {ratios[0]:.1f} to {ratios[-1]:.1f})")


def main():
    match sys.argv[1:]:
        case ["label", path]:
            label(path)
        case ["time", path]:
            check, cases = checker(), cases_of(path)
            seconds(check, cases[:20])
            print(f"{seconds(check, cases):.3f} s for {len(cases)} responses, one thread")
        case ["compare", path, *program] if len(program) < 2:
            root = pathlib.Path(__file__).parent.parent
            compare(path, program[0] if program else str(root / "target/release/fgrpo"))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
