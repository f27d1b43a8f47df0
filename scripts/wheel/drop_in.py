#!/usr/bin/env python3
"""Runs the call sites of math-verify in trainers with math-verify and with fgrpo.math_verify, and prints the differences.

    FGRPO_PARITY_DATA=FOLDER python scripts/wheel/drop_in.py [--limit N] [--show N] [--table]

It needs math-verify and the wheel; TRL's and verl's functions are called where these are installed. FOLDER/verifiers has the
corpora: lines with gold and pred. --limit: only the first N rows of each corpus. --show: N differences of each kind. --table:
instead, what happens in threads, processes, asyncio and Ray, and the speed. Exit code 1 if agreement is below 99 %.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import concurrent.futures
import functools
import importlib.util
import json
import logging
import multiprocessing
import os
import pathlib
import subprocess
import sys
import time

CORPORA = ("math_verify_suite", "math_pairs", "math_natural", "math_other_suites")
ENDLESS = r"\boxed{9^{9^{9^9}}}"


def trl_accuracy_reward(gold, text):
    from trl.rewards import accuracy_reward

    return accuracy_reward([[{"role": "assistant", "content": text}]], [f"${gold}$"])[0]


def verl_math_verify(gold, text):
    # compute_score calls it in a separate process.
    return verl_module()._verify_in_subprocess("\\boxed{" + gold + "}", text)


@functools.lru_cache
def verl_module():
    """Imports a module by its path: importing all of verl takes a minute, and its ANTLR runtime is too old for math-verify's percentages."""
    found = importlib.util.find_spec("verl")
    if found is None:
        raise ImportError("verl isn't installed")
    path = pathlib.Path(found.submodule_search_locations[0], "utils/reward_score/math_verify.py")
    spec = importlib.util.spec_from_file_location("verl_math_verify", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def open_r1_accuracy_reward(gold, text):
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse, verify

    truth = parse(f"${gold}$", extraction_mode="first_match")
    if not truth:
        return None
    style = NormalizationConfig(
        nits=False, malformed_operators=False, basic_latex=True, equations=True, boxed="all", units=True
    )
    config = LatexExtractionConfig(normalization_config=style, boxed_match_priority=0, try_extract_without_anchor=False)
    return float(verify(parse(text, [config], extraction_mode="first_match"), truth))


def lighteval_metric(gold, text):
    from math_verify.metric import math_metric
    from math_verify.parser import ExprExtractionConfig, LatexExtractionConfig

    metric = math_metric((LatexExtractionConfig(),), (ExprExtractionConfig(), LatexExtractionConfig()))
    try:
        return metric([f"${gold}$"], [text])[0]
    except ValueError:
        return None


def readme(gold, text):
    from math_verify import parse, verify

    return float(verify(parse(f"${gold}$"), parse(text)))


SITES = (trl_accuracy_reward, verl_math_verify, open_r1_accuracy_reward, lighteval_metric, readme)


def rows(limit):
    folder = pathlib.Path(os.environ["FGRPO_PARITY_DATA"], "verifiers")
    for name in CORPORA:
        lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[:limit]
        yield from ({"corpus": name, **json.loads(line)} for line in lines)


def choose(library):
    logging.disable(logging.CRITICAL)
    if library == "ours":
        import fgrpo.math_verify

        fgrpo.math_verify.install()


def work(library, limit):
    """Runs in a separate process. Prints the rewards of every call site and its seconds, a JSON line each."""
    choose(library)
    cases = list(rows(limit))
    out, sys.stdout = sys.stdout, sys.stderr
    for site in SITES:
        try:
            site("1", "\\boxed{1}")
        except ImportError as error:
            print(json.dumps({"site": site.__name__, "missing": str(error)}), file=out)
            continue
        start = time.perf_counter()
        rewards = [site(row["gold"], row["pred"]) for row in cases]
        print(json.dumps({"site": site.__name__, "rewards": rewards, "seconds": time.perf_counter() - start}), file=out)


def compare(limit, show):
    cases, found = list(rows(limit)), {}
    for library in ("theirs", "ours"):
        command = [sys.executable, __file__, "--work", library] + (["--limit", str(limit)] if limit else [])
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        found[library] = [json.loads(line) for line in done.stdout.splitlines()]
    worst = 1.0
    for theirs, ours in zip(found["theirs"], found["ours"], strict=True):
        if "missing" in theirs:
            print(f"{theirs['site']}: not run: {theirs['missing']}")
            continue
        kinds = collections.defaultdict(list)
        for row, one, other in zip(cases, theirs["rewards"], ours["rewards"], strict=True):
            if one != other:
                kinds[one, other].append(row)
        different = sum(map(len, kinds.values()))
        worst = min(worst, 1 - different / len(cases))
        print(
            f"{theirs['site']}: {len(cases) - different:,} of {len(cases):,} agree ({100 - 100 * different / len(cases):.2f} %); "
            f"{theirs['seconds']:.1f} s and {ours['seconds']:.2f} s, {theirs['seconds'] / ours['seconds']:.0f} times"
        )
        for (one, other), which in sorted(kinds.items(), key=lambda kind: -len(kind[1])):
            print(f"    {len(which):4} math-verify {one}, fgrpo {other}")
            for row in which[:show]:
                print(f"         {row['gold']!r} | {row['pred']!r} ({row.get('variant', row['corpus'])})")
    return 0 if worst >= 0.99 else 1


def judge(_=None):
    """Grades three right answers, a wrong one and an endless one, as a reward function does."""
    answers = [("1/2", "\\boxed{0.5}"), ("x+1", "\\boxed{1+x}"), ("12", "\\boxed{12}"), ("12", "\\boxed{13}"), ("9", ENDLESS)]
    return [readme(*answer) for answer in answers]


RIGHT = [1.0, 1.0, 1.0, 0.0, 0.0]


def in_threads():
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return list(pool.map(judge, range(4)))


def in_asyncio():
    async def many():
        return await asyncio.gather(*(asyncio.to_thread(judge) for _ in range(4)))

    return asyncio.run(many())


def started_in(library):
    choose(library)


def in_processes(method, library):
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, context, started_in, (library,)) as pool:
        return list(pool.map(judge, range(4)))


def in_ray(library):
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

    @ray.remote
    def one(module, library):
        sys.path.insert(0, module)
        import drop_in

        drop_in.choose(library)
        return drop_in.judge()

    folder = str(pathlib.Path(__file__).parent)
    return ray.get([one.remote(folder, library) for _ in range(4)])


PLACES = {
    "the main thread": lambda library: [judge()],
    "threads": lambda library: in_threads(),
    "asyncio.to_thread": lambda library: in_asyncio(),
    "processes, fork": lambda library: in_processes("fork", library),
    "processes, spawn": lambda library: in_processes("spawn", library),
    "Ray": in_ray,
}


def place(name, library):
    """Runs in a separate process. Prints the result of calls from one kind of thread or process."""
    choose(library)
    start = time.perf_counter()
    try:
        found = PLACES[name](library)
        text = "right" if all(one == RIGHT for one in found) else f"{found}"
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {str(error)[:60]}"
    print(f"{text}, {time.perf_counter() - start:.2f} s", flush=True)
    os._exit(0)


def table(limit_s=300):
    print("| where | math-verify | fgrpo.math_verify |\n|---|---|---|")
    for name in PLACES:
        cells = []
        for library in ("theirs", "ours"):
            command = [sys.executable, __file__, "--place", name, "--work", library]
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=limit_s)
                cells.append(done.stdout.strip().splitlines()[-1] if done.stdout.strip() else f"ended with {done.returncode}")
            except subprocess.TimeoutExpired:
                cells.append(f"hangs (stopped after {limit_s} s)")
        print(f"| {name} | {cells[0]} | {cells[1]} |", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--limit", type=int)
    arguments.add_argument("--show", type=int, default=0)
    arguments.add_argument("--table", action="store_true")
    arguments.add_argument("--work", choices=("theirs", "ours"), help=argparse.SUPPRESS)
    arguments.add_argument("--place", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.place:
        return place(given.place, given.work)
    if given.work:
        return work(given.work, given.limit)
    return table() if given.table else compare(given.limit, given.show)


if __name__ == "__main__":
    sys.exit(main())
