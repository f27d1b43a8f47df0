"""Checks with mypy and pyright that the pages' examples have no type errors, and that every call with a mistake has one.

    check_types.py TOOLS PYTHON     the folder with mypy and pyright, and an interpreter whose environment has the wheel
"""

import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/python.md", "docs/math-verify.md")

RIGHT = """
import fgrpo

shown: float = round(fgrpo.pass_at_k(n=64, c=3, k=8), 3)
mean: float = fgrpo.pass_at_k([64], [3], 8).mean()
weight: float = fgrpo.focal_weight(0.5, gamma=1) + fgrpo.active(0.5, 2) + fgrpo.tail_miss(0.5, 0.1, 8)
fgrpo.advantages([[1, 0]], gamma=1, estimator="rloo")
fgrpo.verify_math(["1", 2, ["1", "2"]], ["1", "2", "3"], mode="strict")


class Mine(fgrpo.MathProblem):
    note: str


own: Mine = Mine("1/2", mode="strict")
"""
WRONG = """
import fgrpo

fgrpo.credit([[1, 0]], gama=1)
fgrpo.advantages([[1, 0]], gama=1)
fgrpo.credit([[1, 0]], estimator="gae")
fgrpo.verify_math(["1"], ["1"], mode="lose")
fgrpo.MathProblem("1/2", mod="strict")
fgrpo.pass_at_k(n=64, c=3, kk=8)
"""


def main(tools, python):
    files = {"right": RIGHT, "wrong": WRONG}
    for number, page in enumerate(PAGES):
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
        files[f"page{number}"] = f"# {page}\n" + "\n".join(blocks)
    mistakes = {("wrong", n) for n, line in enumerate(WRONG.splitlines(), 1) if line.startswith("fgrpo.")}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for name, code in files.items():
            pathlib.Path(folder, f"{name}.py").write_text(code, encoding="utf-8")
        names = [f"{name}.py" for name in files]
        cache = pathlib.Path(tools, "..", ".mypy_cache")
        for command in (
            [f"{tools}/mypy", "--cache-dir", cache, "--python-executable", python, *names],
            [f"{tools}/pyright", "--pythonpath", python, *names],
        ):
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder)
            found = {(name, int(n)) for name, n in re.findall(r"(\w+)\.py:(\d+).* error", done.stdout)}
            if found != mistakes:
                print(f"{done.stdout}{done.stderr}\nwanted errors in {sorted(mistakes)} alone", file=sys.stderr)
                failed = True
    if not failed:
        print(f"types: mypy and pyright accept the examples of {', '.join(PAGES)} and refuse {len(mistakes)} mistakes")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
