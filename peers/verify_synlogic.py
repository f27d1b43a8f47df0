"""Compares SynLogic's verifiers with ours in processor time, both on one thread, in turns.

    pip install numpy math-verify[antlr4_13_2]==0.9.0
    cargo build --release
    python peers/verify_synlogic.py CHECKOUT [FGRPO] [--cases FILE] [--rounds 3]

CHECKOUT is a clone of MiniMax-AI/SynLogic at 6794f97; its verifiers are run, not copied. The cases are this project's, or those of a file
of the same form or with task, game_data_str and response in each line. Both must agree on every case before they are timed. Both decode the
problem's data for every response; ours also reads the JSON line and writes the answer. Prints the median of the rounds' ratios for each task.
"""

import argparse
import contextlib
import io
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from synlogic_cases import load  # noqa: E402

ROOT = pathlib.Path(__file__).parent.parent
ALIASES = {"game_of_24": "mathador"}
COPIES = 200


def cases_of(path):
    """Returns {task: [(game_data_str, response)]}."""
    cases = {}
    for line in open(path, encoding="utf-8"):
        row = json.loads(line)
        if "game_data_str" not in row:
            continue
        responses = [response for response, _ in row["cases"]] if "cases" in row else [row["response"]]
        cases.setdefault(row["task"], []).extend((row["game_data_str"], response) for response in responses)
    return cases


def theirs(data_class, verifier_class, cases):
    verdicts = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        start = time.process_time()
        for data, response in cases:
            try:
                verdicts.append(bool(verifier_class().verify(data_class.from_json_str(data), response)))
            except Exception:
                verdicts.append(False)
        return verdicts, time.process_time() - start


def processor_time():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def ours(program, path):
    start = processor_time()
    command = [program, "verify", "synlogic", str(path), "--threads", "1"]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    return [json.loads(line)["verdict"] == "correct" for line in lines], processor_time() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout")
    parser.add_argument("program", nargs="?", default=str(ROOT / "target/release/fgrpo"))
    parser.add_argument("--cases", default=str(ROOT / "crates/verify/tests/fixtures/synlogic.jsonl"))
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    data_class, verifiers = load(arguments.checkout)
    totals, ratios_of = [], {}
    with tempfile.TemporaryDirectory() as folder:
        once, often = pathlib.Path(folder) / "once.jsonl", pathlib.Path(folder) / "often.jsonl"
        for task, cases in sorted(cases_of(arguments.cases).items()):
            verifier = verifiers[ALIASES.get(task, task)]
            lines = "".join(
                json.dumps({"task": task, "game_data_str": data, "response": response}) + "\n" for data, response in cases
            )
            once.write_text(lines)
            often.write_text(lines * (COPIES + 1))
            ratios, seconds = [], []
            for _ in range(arguments.rounds):
                their_verdicts, their_time = theirs(data_class, verifier, cases)
                our_verdicts, start_up = ours(arguments.program, once)
                if their_verdicts != our_verdicts:
                    different = [i for i, pair in enumerate(zip(their_verdicts, our_verdicts)) if pair[0] != pair[1]]
                    raise SystemExit(f"{task}: different verdicts of cases {different[:5]}")
                # The difference is the time of COPIES times the cases, without the start of the program.
                our_time = (ours(arguments.program, often)[1] - start_up) / COPIES
                ratios.append(their_time / max(our_time, 1e-9))
                seconds.append((their_time, our_time))
            their_best, our_best = (min(pair[i] for pair in seconds) for i in (0, 1))
            ratios_of[task] = statistics.median(ratios)
            totals.append((their_best, our_best, len(cases)))
            print(
                f"{task:30} {len(cases):5} cases  reference {1e6 * their_best / len(cases):9.1f} us"
                f"  ours {1e6 * our_best / len(cases):7.1f} us  ratio {ratios_of[task]:6.0f}",
                flush=True,
            )
    their_sum, our_sum, count = (sum(total[i] for total in totals) for i in range(3))
    print(f"all {count} cases: reference {1e6 * their_sum / count:.1f} us, ours {1e6 * our_sum / count:.1f} us, ratio {their_sum / our_sum:.0f}")
    print(f"ratio by task: {min(ratios_of.values()):.0f} to {max(ratios_of.values()):.0f}, median {statistics.median(ratios_of.values()):.0f}")


if __name__ == "__main__":
    main()
