"""Compares math-verify and our mathematics verifier in processor time, both on one thread, in turns.

    pip install math-verify[antlr4_13_2]==0.9.0
    cargo build --release -p fgrpo-verify --example verify_math
    python peers/verify_math.py [--rows 70] [--rounds 3] [--pairs FILE] [--mode strict] [--ours target/release/examples/verify_math]

The program writes the responses itself: bare answers, solutions of about 2 kB with a formula in every line, and solutions of about 1.5 kB in
the style of chat models (headings, prose, displayed equations, a box at the end), which are closest to training. Golds are integers,
fractions, surds, sets, tuples, intervals and polynomials. One more case has only integers, like most training problems; these are cheapest
for math-verify. Half of the answers are wrong. Both verifiers must find the same number of correct answers. A pass before the timed rounds
fills math-verify's caches.

With `--pairs` and the file of public golds and changed answers that the parity tests read (verifiers/math_pairs.jsonl), a last case has these
golds, and these answers at the end of the same solutions. For this case both counts are printed instead.

With `--mode strict` our verifier grades strictly. The counts may then differ in every case, and are printed.
"""

import argparse
import json
import logging
import subprocess
import tempfile
import time

from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

logging.disable(logging.CRITICAL)

KINDS = [
    lambda n: (str(n), str(n), str(n + 1)),
    lambda n: (f"\\frac{{{n}}}{{{n + 1}}}", f"\\frac{{{2 * n}}}{{{2 * n + 2}}}", f"\\frac{{{n}}}{{{n + 2}}}"),
    lambda n: (f"{n}\\sqrt{{2}}", f"\\sqrt{{{2 * n * n}}}", f"{n}\\sqrt{{3}}"),
    lambda n: (f"\\{{{n}, {n + 1}, {n + 2}\\}}", f"{n + 2}, {n}, {n + 1}", f"{n}, {n + 1}, {n + 3}"),
    lambda n: (f"({n}, {n + 2}, {n})", f"({n}, {n + 2}, {n})", f"({n}, {n}, {n + 2})"),
    lambda n: (f"[{n}, {n + 5})", f"[{n}, {n + 5}.0)", f"[{n}, {n + 5}]"),
    lambda n: (f"x^2-{n * n}", f"(x-{n})(x+{n})", f"(x-{n})^2"),
]

STEP = (
    "First, we note that the value of the expression does not depend on the order of its terms, so we can write "
    "$a_{%d} = 3 \\cdot %d + 1$ and continue with the next step, where \\(b_{%d}\\) is replaced by its definition.\n"
)

SOLUTION = """To solve this problem, we first write down what is given and then look for a relation between the quantities.

**Step 1: Set up the equation.** Let \\(n\\) be the number that we are looking for. The first condition says that the sum of the first {a} terms is {b}, \
and the second one says that no term is larger than {c}. Both conditions have to hold at once, so we get

\\[
S_n = \\frac{{n(n+1)}}{{2}} = {b}.
\\]

**Step 2: Simplify.** Multiplying both sides by 2 and collecting the terms on one side gives a quadratic equation. Its discriminant is positive, and \
therefore there are two real solutions, of which only the larger one can be a count:

\\[
n = \\frac{{-1 + \\sqrt{{1 + 8 \\cdot {b}}}}}{{2}}.
\\]

**Step 3: Check the result.** We substitute this value into the original conditions. The left-hand side and the right-hand side agree, and the largest \
term is indeed at most {c}. A different choice would violate the first condition, because the sum grows with every term that is added, so there is \
nothing else to consider here. We should also make sure that we did not lose a solution when we divided by a common factor: that factor is not zero, \
since all of the terms are positive.

**Step 4: Put everything together.** Combining the result of the second step with the value found above, we can now read off what was asked for. It \
depends on neither the order of the terms nor on the way in which they were grouped, as we saw in the first step, and that completes the solution.

### Final answer

The value we are looking for is

\\[
\\boxed{{{answer}}}
\\]"""


def cases(rows, form, kinds=KINDS):
    for index in range(rows):
        gold, right, wrong = kinds[index % len(kinds)](2 + index)
        answer = right if index % 2 else wrong
        if form == "solution":
            text = SOLUTION.format(a=index + 3, b=(index + 3) * 17, c=index + 40, answer=answer)
        else:
            steps = "".join(STEP % (step, index + step, step) for step in range(10)) if form == "formulas" else ""
            text = f"{steps}Therefore, the answer is $\\boxed{{{answer}}}$."
        yield {"gold": gold, "response": text}


def of_benchmarks(path, rows):
    """Puts the answers of evenly spread pairs of the file at the end of solutions. Pairs that math-verify can't judge in time are left out."""
    pairs = [pair for pair in map(json.loads, open(path, encoding="utf-8")) if not pair.get("timeout")]
    solution = SOLUTION[: SOLUTION.index("The value we are looking for")]
    for index, pair in enumerate(pairs[:: max(1, len(pairs) // rows)][:rows]):
        text = solution.format(a=index + 3, b=(index + 3) * 17, c=index + 40)
        yield {"gold": pair["gold"], "response": text + pair["pred"]}


def theirs(rows):
    gold_target, target = [LatexExtractionConfig()], [ExprExtractionConfig(), LatexExtractionConfig()]
    start = time.process_time()
    correct = 0
    for row in rows:
        gold = parse("\\boxed{" + row["gold"] + "}", gold_target, parsing_timeout=None)
        correct += bool(verify(gold, parse(row["response"], target, parsing_timeout=None), timeout_seconds=None))
    return correct, len(rows) / (time.process_time() - start)


def ours(program, rows, repeat, mode):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for _ in range(repeat):
            for row in rows:
                file.write(json.dumps(row) + "\n")
        file.flush()
        result = json.loads(subprocess.run([program, file.name, mode], check=True, capture_output=True).stdout)
    return result["correct"] // repeat, result["per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=70)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs")
    parser.add_argument("--mode", choices=("parity", "strict"), default="parity")
    parser.add_argument("--ours", default="target/release/examples/verify_math")
    arguments = parser.parse_args()
    forms = [("answers alone", "alone"), ("a formula in every line", "formulas"), ("as models write", "solution")]
    kinds = [(name, list(cases(arguments.rows, form))) for name, form in forms]
    kinds.append(("as models write, integers", list(cases(4 * arguments.rows, "solution", KINDS[:1]))))
    if arguments.pairs:
        kinds.append(("benchmarks' answers, as models write", list(of_benchmarks(arguments.pairs, 4 * arguments.rows))))
    for name, rows in kinds:
        theirs(rows)
        ratios = []
        for _ in range(arguments.rounds):
            their_correct, their_rate = theirs(rows)
            our_correct, our_rate = ours(arguments.ours, rows, 500, arguments.mode)
            if their_correct != our_correct and (name.startswith("benchmarks") or arguments.mode == "strict"):
                print(f"{name}: {our_correct} of {len(rows)} correct here, {their_correct} there")
            elif their_correct != our_correct:
                raise SystemExit(f"{name}: {our_correct} correct here, {their_correct} there")
            ratios.append(our_rate / their_rate)
            print(f"{name}: ours {our_rate:.0f}/s, math-verify {their_rate:.0f}/s, ratio {ratios[-1]:.0f}", flush=True)
        print(f"{name}: median ratio {sorted(ratios)[len(ratios) // 2]:.0f}")


if __name__ == "__main__":
    main()
