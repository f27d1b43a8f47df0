"""Prints math-verify's verdicts on the right and wrong answers that the test of our strict mode generates, by class.

    pip install math-verify[antlr4_13_2]==0.9.0
    FGRPO_STRICT_EXPORT=strict.jsonl cargo test --release -p fgrpo-verify --test math_strict cases_are_exported
    python peers/strict_math.py strict.jsonl

Golds are put into a box and read as LaTeX, responses are read as LaTeX and plain expressions, as in training frameworks.
"""

import collections
import json
import logging
import sys

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

logging.disable(logging.CRITICAL)


def accepted(row):
    gold = parse("\\boxed{" + row["gold"] + "}", [LatexExtractionConfig()], parsing_timeout=5)
    answer = parse(row["pred"], [ExprExtractionConfig(), LatexExtractionConfig()], parsing_timeout=5)
    return bool(verify(gold, answer, timeout_seconds=5))


def main():
    counts = collections.defaultdict(lambda: [0, 0])
    for line in open(sys.argv[1], encoding="utf-8"):
        row = json.loads(line)
        count = counts[(not row["right"], row["class"])]
        count[0] += 1
        count[1] += accepted(row)
    for wrong in (False, True):
        rows = [(name, count) for (side, name), count in sorted(counts.items()) if side == wrong]
        print("wrong answers:" if wrong else "right answers:", "class | cases | accepted")
        for name, (cases, good) in rows:
            print(f"  {name} | {cases} | {good}")
        print(f"  total | {sum(c for _, (c, _) in rows)} | {sum(g for _, (_, g) in rows)}")


if __name__ == "__main__":
    main()
