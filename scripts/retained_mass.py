#!/usr/bin/env python3
"""Makes the table and the figure of docs/retained-mass.md from docs/retained-mass.jsonl.

  scripts/retained_mass.py collect RUN... > docs/retained-mass.jsonl   # lines of runs with eval.exact
  scripts/retained_mass.py table [BASE]                                # the page's tables, as Markdown
  scripts/retained_mass.py figure > docs/figures/retained-mass.svg
"""

import json
import math
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

LINES = Path(__file__).parent.parent / "docs" / "retained-mass.jsonl"
# Two-sided 95 % quantiles of Student's t by degrees of freedom.
T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
# The methods in the order of the tables. The others are compared with the first.
COLOURS = {"GRPO": "#d1495b", "gamma 0.5": "#edae49", "gamma 1": "#00798c", "low LR": "#8d96a3", "entropy bonus": "#7b4fa3", "KL": "#5b8c3a"}
COLOURS |= dict.fromkeys(["RUL", "DS-GRPO", "DARO", "MaxRL", "pass@k training", "UCPO", "CurveRL"], "#8d96a3")
BASE = "GRPO"
DRAWN = ["GRPO", "gamma 0.5", "gamma 1"]
# Group sizes of the figure: every other one.
DRAWN_SIZES = [2, 8, 32, 128]


def collect(runs):
    """Prints a line for each evaluation of each run."""
    for run in map(Path, runs):
        config = tomllib.loads((run / "config.toml").read_text())
        algorithm = config["algorithm"]
        controls = {
            "low LR": config["update"]["low_lr_gamma"],
            "entropy bonus": algorithm["entropy_coef"],
            "KL": algorithm["kl_coef"],
            "RUL": algorithm["shaping"]["kind"] == "unlikely",
            "DS-GRPO": algorithm["shaping"]["kind"] == "smoothing",
            "DARO": algorithm["daro"],
            f"gamma {algorithm['focal_gamma']:g}": algorithm["focal_gamma"],
        }
        advantages = {"max_rl": "MaxRL", "passk_training": "pass@k training", "ucpo": "UCPO", "curve_rl": "CurveRL"}
        controls |= {name: algorithm["advantage"]["kind"] == kind for kind, name in advantages.items()}
        method = next((name for name, value in controls.items() if value), BASE)
        key = {"n": config["rollout"]["group_size"], "method": method, "start": config["seed"]}
        steps = {m["step"]: m for m in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())}
        for line in map(json.loads, (run / "eval.jsonl").read_text().splitlines()):
            exact = line["exact"]
            measures = ["mass", "retained", "effective", "below_a_tenth", "unsampled_mass", "tail_miss"]
            values = {name: exact[name] for name in measures} | {"pass_at_256": exact["pass_at_k"]["256"]}
            # How the step's update changed the mass, if a group was active.
            changes = ["mass_change", "unsampled_mass_change", "unsampled_falls"]
            values |= {name: steps[line["step"]][name] for name in changes if name in steps.get(line["step"], {})}
            print(json.dumps(key | {"step": line["step"]} | {k: round(v, 5) for k, v in values.items()}))


def read():
    """Returns the lines of each run by (group size, method, start), in the order of their steps."""
    runs = defaultdict(list)
    for line in map(json.loads, LINES.read_text().splitlines()):
        runs[line["n"], line["method"], line["start"]].append(line)
    return {key: sorted(lines, key=lambda line: line["step"]) for key, lines in runs.items()}


def at_mass(lines, mass, name):
    """Interpolates a measure where the run first reaches a mass."""
    for before, after in zip(lines, lines[1:]):
        if before["mass"] <= mass <= after["mass"]:
            part = (mass - before["mass"]) / max(after["mass"] - before["mass"], 1e-12)
            return before[name] + part * (after[name] - before[name])
    raise ValueError(f"no step has a mass of {mass}")


def interval(values):
    """Mean of the starts with its 95 % interval by Student's t."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return f"{mean:+.3f} (one start)"
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1) / len(values))
    return f"{mean:+.3f} [{mean - T[len(values) - 1] * error:+.3f}, {mean + T[len(values) - 1] * error:+.3f}]"


def table(base=BASE):
    """Prints the last step of each setting, and then the retained mass at the mass that a base method reaches too."""
    runs = read()
    sizes, starts = sorted({n for n, _, _ in runs}), sorted({start for _, _, start in runs})
    names = ["mass", "retained", "effective", "below_a_tenth", "pass_at_256"]
    print("| N | method | mass | retained | effective solutions | below a tenth | pass@256 | tail miss at the start | unsampled falls |")
    print("|---|---|---|---|---|---|---|---|---|")
    mean = lambda lines, name: f"{sum(line[name] for line in lines) / len(lines):.3f}" if lines else ""
    start = list({start: lines[0] for (_, _, start), lines in runs.items()}.values())
    print("| before RL | | " + " | ".join(mean(start, name) for name in names) + " | | |")
    for n in sizes:
        for method in (BASE, "gamma 1"):
            found = [runs[n, method, s] for s in starts if (n, method, s) in runs]
            means = [mean([lines[-1] for lines in found], name) for name in names]
            means.append(mean([lines[0] for lines in found], "tail_miss"))
            updates = [line for lines in found for line in lines if "unsampled_falls" in line]
            print(f"| {n} | {method} | " + " | ".join([*means, mean(updates, "unsampled_falls")]) + " |")
    print(f"\n| N | method | starts | at mass | {base} retains | method retains | difference | difference of pass@256 |")
    print("|---|---|---|---|---|---|---|---|")
    pooled = defaultdict(lambda: defaultdict(list))
    for n in sizes:
        for method in COLOURS:
            pairs = []
            for start in starts:
                both = [runs.get((n, m, start)) for m in (base, method)]
                if method != base and all(both):
                    # The largest mass that both runs reached.
                    mass = min(max(line["mass"] for line in lines) for lines in both)
                    a, b = ([at_mass(lines, mass, name) for name in ("retained", "pass_at_256")] for lines in both)
                    pairs.append((mass, a[0], b[0], b[0] - a[0], b[1] - a[1]))
                    pooled[method][start].append(pairs[-1][3])
            if pairs:
                columns = list(zip(*pairs))
                means = " | ".join(f"{sum(column) / len(column):.3f}" for column in columns[:3])
                intervals = " | ".join(map(interval, columns[3:]))
                print(f"| {n} | {method} | {len(pairs)} | {means} | {intervals} |")
    for method, by_start in pooled.items():
        # One value for each start, so that the runs of one start don't count as several.
        means = interval([sum(values) / len(values) for values in by_start.values()])
        print(f"| all | {method} | {len(by_start)} | | | | {means} | |")


def figure():
    """Prints the retained mass against the mass: every run, and the mean of each method at each step, one panel for each group size."""
    runs = {key: lines for key, lines in read().items() if key[0] in DRAWN_SIZES}
    sizes = DRAWN_SIZES
    width, height, left, top = 210, 200, 44, 30
    masses = [line["mass"] for lines in runs.values() for line in lines]
    low, high = math.floor(10 * min(masses)) / 10, math.ceil(10 * max(masses)) / 10
    total = left + len(sizes) * (width + 16) + 8
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {top + height + 52}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>']
    text = lambda x, y, said, more="": parts.append(f'<text x="{x:.0f}" y="{y:.0f}" fill="#333" {more}>{said}</text>')
    for i, n in enumerate(sizes):
        x0 = left + i * (width + 16)
        x = lambda mass: x0 + width * (mass - low) / (high - low)
        y = lambda retained: top + height * (1 - retained)
        parts.append(f'<rect x="{x0}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>')
        text(x0 + width / 2, top - 8, f"N = {n}", 'text-anchor="middle"')
        # The last tick of a panel stands where the first one of the next does.
        for tick in range(round(10 * low), round(10 * high) + (n == sizes[-1])):
            text(x(tick / 10), top + height + 16, f"{tick / 10:.1f}", 'text-anchor="middle"')
        draw = lambda points, colour, more: parts.append(
            f'<polyline points="{" ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in points)}" fill="none" stroke="{colour}" {more}/>'
        )
        starts = lambda method: {start for size, name, start in runs if (size, name) == (n, method)}
        common = set.intersection(*map(starts, DRAWN))
        means = {}
        for method in DRAWN:
            paths = {start: [(line["mass"], line["retained"]) for line in runs[n, method, start]] for start in sorted(starts(method))}
            for path in paths.values():
                draw(path, COLOURS[method], 'stroke-width="1" opacity="0.25"')
            steps = zip(*(path for start, path in paths.items() if start in common))
            means[method] = [[sum(axis) / len(axis) for axis in zip(*step)] for step in steps]
        for method, path in means.items():
            draw(path, COLOURS[method], 'stroke-width="2.6"')
    for tick in range(0, 11, 2):
        text(left - 6, top + height * (1 - tick / 10) + 4, f"{tick / 10:.1f}", 'text-anchor="end"')
    text(left, top + height + 38, "mass on all solutions (across), retained mass (up); thin: runs, thick: means of the same starts:")
    for i, name in enumerate(DRAWN):
        text(left + 510 + 90 * i, top + height + 38, name, f'style="fill:{COLOURS[name]};font-weight:bold"')
    print("\n".join([*parts, "</svg>"]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", *runs] if runs:
            collect(runs)
        case ["table", *base]:
            table(*base)
        case ["figure"]:
            figure()
        case _:
            sys.exit(__doc__)
