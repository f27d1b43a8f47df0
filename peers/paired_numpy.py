"""The paper's paired subsampling test in NumPy, as its text describes it, compared with `fgrpo compare`.

Each of 50,000 iterations draws m of the n samples of every problem without replacement under both models (the
number of correct ones is hypergeometric), averages pass@k over problems, and takes the difference of the models.
Prints both p-values, both times and one ratio per k. Requires numpy. Run from the repository root:

    cargo build --release -p fgrpo && python peers/paired_numpy.py
"""

import json
import subprocess
import sys
import tempfile
import time
from math import comb
from pathlib import Path

import numpy as np

PROBLEMS, N, M, ITERATIONS = 675, 1024, 256, 50_000  # half a minute per k on an idle core, minutes on a busy one
BINARY = Path(sys.argv[1] if len(sys.argv) > 1 else "target/release/fgrpo")


def simulate(a, b, k, rng):
    table = np.array([1 - comb(M - x, k) / comb(M, k) for x in range(M + 1)])
    differences = np.empty(ITERATIONS)
    for i in range(ITERATIONS):
        xa = rng.hypergeometric(a, N - a, M)
        xb = rng.hypergeometric(b, N - b, M)
        differences[i] = table[xb].mean() - table[xa].mean()
    below, above = (differences <= 1e-12).mean(), (differences >= -1e-12).mean()
    return min(1.0, 2 * min(below, above)), np.percentile(differences, [2.5, 97.5])


def main():
    rng = np.random.default_rng(0)
    rate = rng.beta(0.4, 0.6, PROBLEMS)
    a = rng.binomial(N, rate)
    b = np.clip(a + rng.integers(-40, 42, PROBLEMS), 0, N)
    with tempfile.TemporaryDirectory() as folder:
        for name, counts in (("a", a), ("b", b)):
            lines = (json.dumps({"problem": i, "n": N, "c": int(c)}) + "\n" for i, c in enumerate(counts))
            Path(folder, f"{name}.jsonl").write_text("".join(lines))
        for k in (1, 256):
            start = time.perf_counter()
            p, interval = simulate(a, b, k, rng)
            peer = time.perf_counter() - start
            command = [BINARY, "compare", f"{folder}/a.jsonl", f"{folder}/b.jsonl", "-k", str(k), "--m", str(M), "--json"]
            start = time.perf_counter()
            ours = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]
            own = time.perf_counter() - start
            print(
                f"k={k}: NumPy p {p:.5f} [{interval[0]:+.5f}, {interval[1]:+.5f}] in {peer:.2f} s; "
                f"fgrpo p {ours['p_value']:.5f} [{ours['interval'][0]:+.5f}, {ours['interval'][1]:+.5f}] in {own:.3f} s "
                f"with start-up, reading and bootstrap; ratio {peer / own:.0f}"
            )
            error = 5 * 2 * (max(p, 1e-4) / 2 / ITERATIONS) ** 0.5
            assert abs(p - ours["p_value"]) < error, (p, ours["p_value"], error)


if __name__ == "__main__":
    main()
