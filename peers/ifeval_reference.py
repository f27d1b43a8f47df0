"""IFEval by its reference checkers (lm-eval's copy of Google's), on JSON lines.

    python peers/ifeval_reference.py label CASES.jsonl > LABELLED.jsonl     # adds "strict" and "loose"
    python peers/ifeval_reference.py time CASES.jsonl                       # responses per second, one thread

Needs: pip install lm-eval==0.4.13 nltk==3.10.4 langdetect==1.0.9 immutabledict (lm-eval's own dependencies are not
needed: only its checkers are imported). The Punkt parameters come from this repository, so nothing is downloaded.
"""

import importlib.util
import json
import logging
import os
import pathlib
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
    """lm_eval.tasks.ifeval.utils without the rest of lm_eval."""
    import langdetect

    langdetect.DetectorFactory.seed = 0
    root = pathlib.Path(importlib.util.find_spec("lm_eval").origin).parent
    for name in ("lm_eval", "lm_eval.tasks", "lm_eval.tasks.ifeval"):
        module = types.ModuleType(name)
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = module
    from lm_eval.tasks.ifeval import utils

    return utils


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("label", "time"):
        sys.exit(__doc__)
    utils = checkers()
    lines = [line for line in open(sys.argv[2]) if not line.startswith("#")]
    cases = [json.loads(line) for line in lines]

    def check(case):
        problem = utils.InputExample(
            case.get("key", 0), case["instruction_id_list"], case["prompt"], case["kwargs"]
        )
        strict = utils.test_instruction_following_strict(problem, case["response"])
        loose = utils.test_instruction_following_loose(problem, case["response"])
        return strict.follow_instruction_list, loose.follow_instruction_list

    if sys.argv[1] == "time":
        for case in cases[:20]:
            check(case)
        start = time.perf_counter()
        for case in cases:
            check(case)
        seconds = time.perf_counter() - start
        print(f"{len(cases) / seconds:.1f} responses per second ({len(cases)} in {seconds:.2f} s, one thread)")
        return
    for case in cases:
        strict, loose = check(case)
        case["strict"] = [bool(x) for x in strict]
        case["loose"] = [bool(x) for x in loose]
        print(json.dumps(case, ensure_ascii=False))


if __name__ == "__main__":
    main()
