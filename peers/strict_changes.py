"""Tests strict mode on golds of public benchmarks that rules change into wrong answers, or into right answers in unusual forms.

    python peers/strict_changes.py PAIRS.jsonl... [--program target/release/fgrpo] [--list]

Lines of PAIRS have a "gold", as in the corpora of docs/parity.md. A rule skips golds to which it doesn't apply. Prints the number of wrong
answers that are accepted and of right ones that are refused, by rule; --list prints each of them.
"""

import argparse
import collections
import fractions
import json
import re
import subprocess

NUMBER = re.compile(r"-?\d+(\.\d+)?")
FRACTION = re.compile(r"(-?)\\d?frac\{(\d+)\}\{(\d+)\}")
SUM = re.compile(r"(\d+)\s*\+\s*(\d*i|\d*\\sqrt\{\d+\})")


def number(form):
    return lambda g: form(g) if NUMBER.fullmatch(g) else None


def whole(form, least=0):
    return lambda g: form(g) if re.fullmatch(r"-?\d+", g) and abs(int(g)) >= least else None


def value(form):
    return lambda g: form(g) if NUMBER.fullmatch(g) or FRACTION.fullmatch(g) else None


def fraction(form):
    def change(g):
        m = FRACTION.fullmatch(g)
        return m and form(m[1], int(m[2]), int(m[3]))

    return change


def replaced(old, new):
    return lambda g: re.sub(old, new, g) if re.search(old, g) else None


def digit(which):
    def change(g):
        places = [m.start() for m in re.finditer(r"\d", g)]
        if not places:
            return None
        at = places[which]
        return g[:at] + str(int(g[at]) % 9 + 1) + g[at + 1 :]

    return change


def is_finite(q):
    for p in (2, 5):
        while q % p == 0:
            q //= p
    return q == 1


def decimal(sign, p, q):
    return sign + str(p / q) if is_finite(fractions.Fraction(p, q).denominator) else None


def digits(n, end=""):
    def form(sign, p, q):
        return None if is_finite(fractions.Fraction(p, q).denominator) or 10 * p < q else f"{sign}{p / q:.{n}f}{end}"

    return fraction(form)


def rounded(form):
    def change(g):
        text = NUMBER.fullmatch(g) and form % float(g)
        return text if text and float(text) != float(g) else None

    return change


def thousands(separator):
    return lambda g: re.sub(r"(?<=\d)(?=(\d{3})+$)", lambda _: separator, g) if re.fullmatch(r"\d{4,}", g) else None


WRONG = {
    "last digit": digit(-1), "first digit": digit(0), "inverse": fraction(lambda s, p, q: rf"{s}\frac{{{q}}}{{{p}}}" if p != q else None),
    "sign": value(lambda g: None if g == "0" else g[1:] if g[0] == "-" else "-" + g), "ten times": whole(lambda g: g + "0", 1),
    "point": whole(lambda g: g[:-1] + "." + g[-1] if g[-1] != "0" else None, 10), "not": lambda g: r"\text{not }" + g,
    "unequal": value(lambda g: r"\neq " + g), "at least": value(lambda g: r"\text{at least }" + g), "less": value(lambda g: "<" + g),
    "or": lambda g: g + r" \text{ or } 977", "and": lambda g: g + r" \text{ and } 977", "comma": lambda g: g + ", 977",
    "plus one": value(lambda g: g + "+1"), "almost": value(lambda g: g + " - 10^{-9}"), "sum": whole(lambda g: f"{int(g) - 7}+7"),
    "times x": value(lambda g: g + "x"), "square": whole(lambda g: g + "^2", 2), "factorial": whole(lambda g: g + "!", 3),
    "percent": whole(lambda g: g + r"\%", 1), "million": whole(lambda g: g + r"\text{ million}", 1), "base": whole(lambda g: g + "_3", 3),
    "y for x": lambda g: g.replace("x", "y") if re.search(r"(?<![\\a-z])x", g) and "y" not in g else None,
    "relation": lambda g: g.replace("<", ">") if "<" in g else None, "minus for plus": lambda g: g.replace("+", "-", 1) if "+" in g else None,
    "root": replaced(r"\\sqrt\{([2-9]|\d\d+)\}", r"\1"), "no pi": lambda g: g.replace(r"\pi", "") if re.search(r"\d\\pi", g) else None,
    "one digit": rounded("%.1f"), "two digits": rounded("%.2g"), "three digits": rounded("%.3g"), "equals": lambda g: g + " = 977",
    "equals before": lambda g: "977 = " + g, "approximates": lambda g: g + r" \approx 977", "hedge": lambda g: r"\text{possibly }" + g,
    "question": lambda g: g + "?", "minus x": lambda g: g + "-x", "imaginary": value(lambda g: g + "i" if g != "0" else None),
    "not worked out": number(lambda g: rf"\frac{{2\cdot {g}}}{{2}}"), "implies": lambda g: g + r" \Rightarrow 977",
}
RIGHT = {
    "x =": value(lambda g: "x=" + g), "the value is": lambda g: r"\text{The value is }" + g, "slash": fraction(lambda s, p, q: f"{s}{p}/{q}"),
    "decimal": fraction(decimal), "6 digits": digits(6), "8 digits": digits(8), "12 digits": digits(12), "16 digits": digits(16),
    "mixed": fraction(lambda s, p, q: rf"{p // q}\frac{{{p % q}}}{{{q}}}" if not s and p > q and p % q else None),
    "expanded": fraction(lambda s, p, q: rf"{s}\frac{{{3 * p}}}{{{3 * q}}}"), "power -1": fraction(lambda s, p, q: rf"{s}{p}\cdot {q}^{{-1}}"),
    "comma": thousands(","), "braced comma": thousands("{,}"), "thin space": thousands(r"\,"), "braced space": thousands(r"{\,}"), "space": thousands(" "),
    "zeros": whole(lambda g: g + ".0"), "plus": number(lambda g: "+" + g if g[0] != "-" else None), "minus sign": lambda g: g.replace("-", "−"),
    "en dash": number(lambda g: "–" + g[1:] if g[0] == "-" else None), "dfrac": replaced(r"\\frac", r"\\dfrac"), "tfrac": replaced(r"\\frac", r"\\tfrac"),
    "fullwidth": number(lambda g: g.translate(str.maketrans("0123456789-", "０１２３４５６７８９－"))), "sqrt()": replaced(r"\\sqrt\{(\d+)\}", r"\\sqrt(\1)"),
    "root sign": replaced(r"\\sqrt\{(\d+)\}", r"√\1"), "half power": replaced(r"\\sqrt\{(\d+)\}", r"(\1)^{1/2}"), "sqrt": replaced(r"\\sqrt\{(\d+)\}", r"sqrt(\1)"),
    "pi": replaced(r"\\pi", "π"), "infinity": replaced(r"\\infty", "∞"), "dot": replaced(r"(\d)(\\pi|\\sqrt)", r"\1\\cdot \2"), "bold": lambda g: rf"\mathbf{{{g}}}",
    "stars": lambda g: f"**{g}**", "display": lambda g: r"\displaystyle " + g, "color": lambda g: rf"\color{{red}}{{{g}}}", "braces": lambda g: f"{{{g}}}",
    "dollars": lambda g: f"${g}$", "brackets": lambda g: rf"\({g}\)", "period": lambda g: g + ".", "spaces": lambda g: rf"\ {g}\,", "box": lambda g: rf"\boxed{{{g}}}",
    "therefore": lambda g: r"\therefore " + g, "implies": whole(lambda g: rf"2x={2 * int(g)} \Rightarrow x={g}"),
    "swapped": lambda g: (m := SUM.fullmatch(g)) and f"{m[2]}+{m[1]}", "words": lambda g: g.replace(",", " and ") if re.fullmatch(r"-?\d+\s*,\s*-?\d+", g) else None,
    "turned": lambda g: "{1} > {0}".format(*g.split("<")) if re.fullmatch(r"[^<>]+<[^<>]+", g) else None, "cm": value(lambda g: g + r"\text{ cm}"),
    "degrees": whole(lambda g: g + r"^\circ"), "with decimal": fraction(lambda s, p, q: (d := decimal(s, p, q)) and rf"{s}\frac{{{p}}}{{{q}}} = {d}"),
}
SENTENCES = ["The final answer is $%s$.", "**Answer:** $%s$", "Answer: %s", "So the answer is \\(%s\\).", "\\[\\boxed{%s}\\]\nThis completes the proof.", "### Answer\n\n$%s$", "$$%s$$"]


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("pairs", nargs="+")
    parser.add_argument("--program", default="target/release/fgrpo")
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    golds = {json.loads(line)["gold"].strip().strip("$") for path in arguments.pairs for line in open(path)}
    golds = sorted(gold for gold in golds if 0 < len(gold) < 120 and "\n" not in gold and "$" not in gold)
    for title, rules, sentences, good in [("wrong answers accepted", WRONG, [], False), ("right answers refused", RIGHT, SENTENCES, True)]:
        cases = [(name, gold, rf"\boxed{{{text}}}") for gold in golds for name, rule in rules.items() if (text := rule(gold)) and text != gold]
        cases += [(sentence, gold, sentence % gold) for gold in golds for sentence in sentences]
        lines = "".join(json.dumps({"gold": gold, "response": response}) + "\n" for _, gold, response in cases)
        command = [arguments.program, "verify", "math", "-", "--mode", "strict"]
        found = subprocess.run(command, input=lines, capture_output=True, text=True).stdout.splitlines()
        off = [case for case, line in zip(cases, found, strict=True) if (json.loads(line)["verdict"] == "correct") != good]
        print(f"{title}: {len(off)} of {len(cases)} ({100 * len(off) / len(cases):.2f} %), from {len(golds)} golds")
        all_, counts = collections.Counter(name for name, *_ in cases), collections.Counter(name for name, *_ in off)
        for name, count in counts.most_common():
            print(f"  {name!r}: {count} of {all_[name]}")
        for case in off if arguments.list else []:
            print("   ", *case, sep=" | ")


if __name__ == "__main__":
    main()
