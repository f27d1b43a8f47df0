#!/usr/bin/env python3
"""Makes the tables and figures of docs/retained-mass.md from docs/retained-mass.jsonl.

  scripts/retained_mass.py collect [--problems] RUN...    # puts the lines of runs with eval.exact into the file
  scripts/retained_mass.py table [BASE]                   # the page's tables, as Markdown; with BASE, every method against it
  scripts/retained_mass.py figure > docs/figures/retained-mass.svg
  scripts/retained_mass.py sizes > docs/figures/retained-mass-sizes.svg
  scripts/retained_mass.py means                          # the values that docs/explore.html shows

With --problems, lines have the mass and retained mass of each problem too.
"""

import json
import math
import random
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
# Metrics of the step that a line has.
CHANGES = ["mass_change", "unsampled_mass_change", "unsampled_falls", "unsampled_falls_predicted", "unsampled_sign_agrees"]
CHANGES += ["unsampled_sign_agrees_centred", "direct_drift", "normalization_coupling", "tail_miss_predicted", "tail_miss_observed"]
DRAWN = ["GRPO", "gamma 0.5", "gamma 1"]
# Group sizes of the figure: every other one.
DRAWN_SIZES = [2, 8, 32, 128]


def collect(runs, problems):
    """Writes a line for each evaluation of each run to the file, and removes old lines of the same setting."""
    fresh = {}
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
        width = config["model"]["init"]["hidden_size"]
        key |= {} if width == 96 else {"width": width}
        lines = fresh[setting(key)] = []
        steps = {m["step"]: m for m in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())}
        for line in map(json.loads, (run / "eval.jsonl").read_text().splitlines()):
            exact, step = line["exact"], steps.get(line["step"], {})
            measures = ["mass", "retained", "effective", "below_a_tenth", "unsampled_mass", "tail_miss"]
            values = {name: exact[name] for name in measures} | {"pass_at_256": exact["pass_at_k"]["256"]}
            # How the step's update changed the mass, if a group was active.
            values |= {name: step[name] for name in CHANGES if name in step}
            values = {k: round(v, 5) for k, v in values.items()}
            if problems:
                now = [[math.exp(logp) for logp in logps] for logps in exact["logp"]]
                start = start if lines else now
                retained = [1 - sum(max(0, b - a) for a, b in zip(*both)) / sum(both[1]) for both in zip(now, start)]
                values["problems"] = [[round(v, 4) for v in column] for column in (map(sum, now), retained)]
            lines.append(key | {"step": line["step"]} | values)
    kept = [line for line in map(json.loads, LINES.read_text().splitlines()) if setting(line) not in fresh]
    everything = kept + [line for lines in fresh.values() for line in lines]
    LINES.write_text("".join(json.dumps(line) + "\n" for line in everything))


def setting(line):
    """Returns the values that identify the run of a line."""
    return line["n"], line["method"], line["start"], line.get("width", 96)


def read(width=96):
    """Returns the lines of each run by (group size, method, start), in the order of their steps."""
    runs = defaultdict(list)
    for line in map(json.loads, LINES.read_text().splitlines()):
        if line.get("width", 96) == width:
            runs[setting(line)[:3]].append(line)
    return {key: sorted(lines, key=lambda line: line["step"]) for key, lines in runs.items()}


def at_mass(lines, mass, name):
    """Interpolates a measure where the run first reaches a mass."""
    for before, after in zip(lines, lines[1:]):
        if before["mass"] <= mass <= after["mass"]:
            part = (mass - before["mass"]) / max(after["mass"] - before["mass"], 1e-12)
            return before[name] + part * (after[name] - before[name])
    raise ValueError(f"no step has a mass of {mass}")


def bounds(values):
    """Mean of the starts and its 95 % interval by Student's t."""
    mean = sum(values) / len(values)
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / max(len(values) - 1, 1) / len(values))
    half = T.get(len(values) - 1, math.nan) * error
    return mean, mean - half, mean + half


def interval(values):
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*bounds(values)) if len(values) > 1 else f"{values[0]:+.3f} (one start)"


def over_problems(pairs, resamples=1000):
    """95 % interval of the mean difference of retained mass at equal mass when both starts and problems are drawn anew."""
    draw = random.Random(1)
    problems = range(len(pairs[0][0][0]["problems"][0]))
    differences = []
    for _ in range(resamples):
        drawn = draw.choices(problems, k=len(problems))
        mean = lambda column: sum(column[i] for i in drawn) / len(drawn)
        curve = lambda lines: [dict(zip(("mass", "retained"), map(mean, line["problems"]))) for line in lines]
        starts = draw.choices(range(len(pairs)), k=len(pairs))
        curves = {start: [curve(lines) for lines in pairs[start]] for start in set(starts)}
        differences.append(sum(difference(*curves[start]) for start in starts) / len(starts))
    differences.sort()
    low, high = (differences[round(part * (resamples - 1))] for part in (0.025, 0.975))
    return f"[{low:+.3f}, {high:+.3f}]"


def difference(base, method):
    """Returns how much more a method's run has retained, at the largest mass that both runs reached."""
    mass = min(max(line["mass"] for line in lines) for lines in (base, method))
    return at_mass(method, mass, "retained") - at_mass(base, mass, "retained")


def heads(*names):
    print("\n| " + " | ".join(names) + " |\n|" + "---|" * len(names))


def table(base=None):
    """Prints the retained mass at the mass that a base method reaches too, the last step of each setting, and the theory's check."""
    every, base = base is not None, base or BASE
    runs = read()
    sizes, starts = sorted({n for n, _, _ in runs}), sorted({start for _, _, start in runs})
    compare(runs, base, every)
    if every:
        return
    heads("N", "method", "starts", "difference", "over starts and problems")
    for n in sizes:
        both = [[runs.get((n, m, s), [{}]) for m in (BASE, "gamma 1")] for s in starts]
        both = [pair for pair in both if all("problems" in line for lines in pair for line in lines)]
        if len(both) > 2:
            print(f"| {n} | gamma 1 | {len(both)} | {interval([difference(*pair) for pair in both])} | {over_problems(both)} |")
    mean = lambda lines, name: f"{sum(line[name] for line in lines) / len(lines):.3f}" if lines else ""
    heads("N", "method", "mass", "retained", "effective solutions", "below a tenth", "pass@256")
    names = ["mass", "retained", "effective", "below_a_tenth", "pass_at_256"]
    first = list({start: lines[0] for (_, _, start), lines in runs.items()}.values())
    print("| before RL | | " + " | ".join(mean(first, name) for name in names) + " |")
    for n in sizes:
        for method in (BASE, "gamma 1"):
            last = [runs[n, method, s][-1] for s in starts if (n, method, s) in runs]
            print(f"| {n} | {method} | " + " | ".join(mean(last, name) for name in names) + " |")
    heads("N", "method", "updates", "falls", "falls in theory", "sign agrees", "sign agrees, centred", "lemma 1", "missed")
    names = ["unsampled_falls", "unsampled_falls_predicted", "unsampled_sign_agrees", "unsampled_sign_agrees_centred"]
    names += ["tail_miss_predicted", "tail_miss_observed"]
    for n in sizes:
        for method in (BASE, "gamma 1"):
            found = [line for s in starts for line in runs.get((n, method, s), []) if "tail_miss_observed" in line]
            if found:
                print(f"| {n} | {method} | {len(found)} | " + " | ".join(mean(found, name) for name in names) + " |")
    for width in sorted({json.loads(line).get("width", 96) for line in LINES.read_text().splitlines()} - {96}):
        print(f"\nWidth {width}:")
        compare(read(width), BASE, True)


def compare(runs, base, every):
    """Prints each method's difference to a base by group size, and the mean over the sizes."""
    sizes, starts = sorted({n for n, _, _ in runs}), sorted({start for _, _, start in runs})
    heads("N", "method", "starts", "at mass", f"{base} retains", "method retains", "difference", "difference of pass@256")
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
            if pairs and (every or method in DRAWN):
                columns = list(zip(*pairs))
                means = " | ".join(f"{sum(column) / len(column):.3f}" for column in columns[:3])
                intervals = " | ".join(map(interval, columns[3:]))
                print(f"| {n} | {method} | {len(pairs)} | {means} | {intervals} |")
    for method, by_start in pooled.items():
        # One value for each start, so that the runs of one start don't count as several.
        means = interval([sum(values) / len(values) for values in by_start.values()])
        print(f"| all | {method} | {len(by_start)} | | | | {means} | |")


def means():
    """Returns rows of step, mass and retained mass of GRPO, and of gamma 1, as means over starts, by group size."""
    runs, rows = read(), {}
    for n in sorted({n for n, _, _ in runs}):
        both = [[lines for (size, m, _), lines in runs.items() if (size, m) == (n, method)] for method in (BASE, "gamma 1")]
        mean = lambda found, i, name: round(sum(lines[i][name] for lines in found) / len(found), 3)
        steps = [line["step"] for line in both[0][0]]
        rows[n] = [[step, *(mean(found, i, name) for found in both for name in ("mass", "retained"))] for i, step in enumerate(steps)]
    return rows


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
        # The last tick of a panel is at the same position as the first one of the next.
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


def figure_of_sizes():
    """Prints the mass and the retained mass after the last step against the group size, with 95 % bands over starts."""
    runs = read()
    sizes = sorted({n for n, _, _ in runs})
    width, height, left, top = 300, 200, 44, 30
    total = left + 2 * (width + 50)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {top + height + 52}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>']
    text = lambda x, y, said, more="": parts.append(f'<text x="{x:.0f}" y="{y:.0f}" fill="#333" {more}>{said}</text>')
    for i, (name, title) in enumerate([("mass", "mass on all solutions"), ("retained", "retained mass")]):
        x0 = left + i * (width + 50)
        x = lambda n: x0 + 12 + (width - 24) * (math.log2(n) - 1) / (math.log2(sizes[-1]) - 1)
        y = lambda value: top + height * (1 - (value - 0.2) / 0.5)
        parts.append(f'<rect x="{x0}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#bbb"/>')
        text(x0 + width / 2, top - 8, title, 'text-anchor="middle"')
        for n in sizes:
            text(x(n), top + height + 16, n, 'text-anchor="middle"')
        for tick in range(2, 8):
            text(x0 - 6, y(tick / 10) + 4, f"{tick / 10:.1f}", 'text-anchor="end"')
        for method in DRAWN:
            points = []
            for n in sizes:
                points.append((n, *bounds([lines[-1][name] for (size, m, start), lines in runs.items() if (size, m) == (n, method) and start <= 5])))
            path = lambda points: " ".join(f"{x(n):.1f},{y(min(max(value, 0.2), 0.7)):.1f}" for n, value in points)
            band = [(n, low) for n, _, low, _ in points] + [(n, high) for n, _, _, high in reversed(points)]
            parts.append(f'<polygon points="{path(band)}" fill="{COLOURS[method]}" opacity="0.13"/>')
            parts.append(f'<polyline points="{path([point[:2] for point in points])}" fill="none" stroke="{COLOURS[method]}" stroke-width="2.4"/>')
    text(left, top + height + 38, "group size N; bands: 95 % of the mean of five starts")
    for i, name in enumerate(DRAWN):
        text(left + 350 + 90 * i, top + height + 38, name, f'style="fill:{COLOURS[name]};font-weight:bold"')
    print("\n".join([*parts, "</svg>"]))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["collect", "--problems", *runs] if runs:
            collect(runs, problems=True)
        case ["collect", *runs] if runs:
            collect(runs, problems=False)
        case ["table", *base]:
            table(*base)
        case ["figure"]:
            figure()
        case ["means"]:
            print(json.dumps(means(), separators=(",", ":")))
        case ["sizes"]:
            figure_of_sizes()
        case _:
            sys.exit(__doc__)
