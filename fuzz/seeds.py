"""Writes seed corpora for the fuzz targets, from this project's cases and, if FGRPO_PARITY_DATA is set, from public corpora.

    python3 fuzz/seeds.py [OUT]        # OUT/TARGET/NUMBER, by default fuzz/seeds
"""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).parent.parent
FIXTURES = ROOT / "crates/verify/tests/fixtures"
EACH = 600  # number of seeds of one target from one file


def rows(path, wanted=EACH):
    """Returns evenly spread rows of a file of JSON lines."""
    lines = [line for line in path.read_text().splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines[:: max(1, len(lines) // wanted)]]


def corpora():
    """Yields (target, bytes) pairs."""
    data = os.environ.get("FGRPO_PARITY_DATA")
    public = pathlib.Path(data) / "verifiers" if data else None

    # The targets number tasks in alphabetical order, as the crate does.
    tasks = sorted({row["task"] for row in rows(FIXTURES / "synlogic.jsonl", 10**9) if "task" in row})
    # Empty answers, and answers that contain too much, for golds of every kind.
    math = [FIXTURES / "math.jsonl", FIXTURES / "math_empty.jsonl"]
    synlogic = [FIXTURES / "synlogic.jsonl"]
    ifeval = [FIXTURES / "ifeval.jsonl"]
    if public:
        math += [public / name for name in ("math_verify_suite.jsonl", "math_other_suites.jsonl", "math_pairs.jsonl", "math_natural.jsonl")]
        ifeval.append(public / "ifeval_gpt4.jsonl")
        synlogic.append(public / "synlogic.jsonl")
    for path in math:
        for number, row in enumerate(rows(path)):
            gold, answer = str(row["gold"]), str(row["pred"])
            yield "math_check", f"{gold}\0{answer}".encode()
            yield "math_extract", bytes([number % 256]) + answer.encode()
    if public:
        for row in rows(public / "latex_to_sympy.jsonl"):
            yield "math_check", f"1\0{row['latex']}".encode()
    for path in synlogic:
        for number, row in enumerate(rows(path)):
            cases = row.get("cases") or ([[row["response"], 0]] if "response" in row else [])
            if not cases:
                continue
            task = tasks.index(row["task"])
            yield "synlogic_check", bytes([task, 0]) + row["game_data_str"].encode()[:4000]
            for response, _ in cases[:8]:
                yield "synlogic_check", bytes([task, 1 + number % 7]) + response.encode()[:4000]
                yield "synlogic_python", response.encode()[:2000]
    for text in ("1 + 2 * 3 ** 2", "[(1, 2), (3, 4)]", "{'a': [1, True, None]}", "-7 // 2 % 3", "'a' 'b' * 2", "not 1 < 2 <= 3"):
        yield "synlogic_python", text.encode()
    for path in ifeval:
        for number, row in enumerate(rows(path)):
            texts = [value for one in row["kwargs"] for value in (one or {}).values() if isinstance(value, str)]
            argument = (texts or ["the"])[0]
            response = row["response"][:3000]
            yield "ifeval_check", bytes([number % 256]) + f"{argument}\0{response}".encode()
            yield "ifeval_pattern", f"{argument}\0{response[:300]}".encode()
    for pattern in (
        r"\b(?:cat|dog)s?\b", r"(\w+)\s+\1", r"a{2,5}?b*", r"[^a-z\d_-]+$", r"(?<=a)b(?!c)", r"(?>x+)y", r"(?i:A)(?P<n>b)(?P=n)",
        r"(a*)*b", r"^\s*\W\D.$", r"(?m)^x|y\Z", r"[]a\]]\x41\u0042\101", r"(?s).(?#note)\B",
    ):  # fmt: skip
        yield "ifeval_pattern", f"{pattern}\0The cat catches cats, aab xxy".encode()
    for text in ('{"a": [1, 2.5e-3, NaN, -Infinity, null], "b\\u00e9\\ud800": {"c": true}}', '[[[[]]]]', '"\\n\\/"', "-0.0", "{}"):
        yield "ifeval_json", text.encode()
    for path in sorted((ROOT / "configs").glob("*.toml")):
        yield "configuration", path.read_bytes()
        yield "configuration", path.read_bytes() + b"\0eval.k=1,8\0update.lr=1e-5"
    for text in (
        '{"problem": "a", "sample": 0, "correct": true, "tokens": 12, "finish": "stop"}\n{"problem": "a", "sample": 1, "verdict": "wrong", "answer": "3"}',
        '{"benchmark": "x", "problem": 7, "n": 8, "c": 3, "unscorable": 1, "subject": "s"}',
    ):  # fmt: skip
        yield "samples", text.encode()
    for number, text in enumerate((
        '{"problem": "2+2?", "answer": "4", "solution": "\\\\boxed{4}"}\n{"problem": "3+3?", "answer": 6}',
        '{"question": "Which?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answer": "B"}',
        '{"prompt": "p", "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}',
        '{"prompt": [{"role": "user", "content": "q"}], "data_source": "val/sudoku", "extra_info": {"game_data_str": "{}"}}',
    )):  # fmt: skip
        yield "dataset", bytes([4 * number]) + text.encode()
    yield "dataset", b"\x01problem,answer\n2+2?,4\n\"a\n,b\",5\n"
    templates = json.loads((ROOT / "crates/cli/tests/golden/chat.json").read_text())["templates"]
    for template in templates.values():
        yield "template", template.encode() + b"\x002+2?"
    yield "tokenizer", json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [{"id": 3, "content": "<s>", "single_word": False,
        "lstrip": False, "rstrip": False, "normalized": False, "special": True}], "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]]}}).encode()  # fmt: skip
    for path in sorted((ROOT / "crates/nn/tests/golden/gguf").glob("*.gguf")):
        yield "gguf", path.read_bytes()
    for response in (r"So \boxed{B}", r"\boxed{\text{(C)}}", r"\boxed{Paris.}", "**The answer is: (B).**", r"\fbox{d) Rome}", r"\boxed{A, B, C, D}", r"\boxed{A} \boxed{B}"):
        yield "choice", f"B\nLondon|Paris|Rome|A dog\n{response}".encode()


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "fuzz/seeds"
    counts = {}
    for target, seed in corpora():
        folder = out / target
        folder.mkdir(parents=True, exist_ok=True)
        number = counts[target] = counts.get(target, 0) + 1
        (folder / f"{number:05}").write_bytes(seed)
    for target, count in sorted(counts.items()):
        print(f"{target}: {count} seeds")


if __name__ == "__main__":
    main()
