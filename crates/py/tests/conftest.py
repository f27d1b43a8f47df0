"""Nothing here imports the checkout's own package: the tests are of the installed wheel."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import sysconfig

import pytest
from scripted import HERMES

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def command():
    """Runs the installed command ``fgrpo``."""
    program = pathlib.Path(sysconfig.get_path("scripts"), "fgrpo")
    assert program.exists(), f"{program}: the wheel's command isn't installed"

    def run(*arguments, **settings):
        settings = {"capture_output": True, "text": True, "timeout": 300, **settings}
        return subprocess.run([str(program), *map(str, arguments)], **settings)

    run.program = program
    return run


# The words of the model that the engine's tests train.
WORDS = ["<pad>", "<end>", "<user>", "<assistant>", *"0123456789+=?"]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="session")
def model(tmp_path_factory, command):
    """A model of 2 layers with random weights, with a tokenizer of words."""
    folder = tmp_path_factory.mktemp("model")
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    special = [
        {
            "id": vocabulary[word],
            "content": word,
            "special": True,
            **dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False),
        }
        for word in WORDS[:4]
    ]
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"},
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder")),
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = {"eos_token": "<end>", "pad_token": "<pad>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    out = folder / "policy"
    sizes = ["--hidden-size", "32", "--layers", "2", "--heads", "4", "--kv-heads", "2", "--context", "64"]
    made = command("init", "--arch", "qwen3", *sizes, "--tokenizer", folder, "--out", out)
    assert made.returncode == 0, made.stderr
    return out


@pytest.fixture
def ctrl_c():
    """Sends this process what Ctrl-C does, also where whoever started the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run_notebook(command, tmp_path):
    """Runs a notebook's cells in a process of their own, with texts replaced and without graphics."""

    def run(name, **replaced):
        cells = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
        cells = [cell for cell in cells if cell["cell_type"] == "code"]
        assert cells and any(cell["outputs"] for cell in cells), f"{name}: wanted code and stored outputs"
        code = "\n\n".join("".join(cell["source"]) for cell in cells)
        # What IPython makes of `!command {expression}`.
        code = re.sub(r"^( *)!(.*)$", r"\1__import__('subprocess').run(f'''\2''', shell=True, check=True)", code, flags=re.M)
        for old, new in replaced.items():
            assert re.search(rf"^{old} = ", code, flags=re.M), f"{name}: wanted a line {old} = .."
            code = re.sub(rf"^{old} = .*$", f"{old} = {new}", code, flags=re.M)
        path = f"{command.program.parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "MPLBACKEND": "agg", "PATH": path},
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]

    return run


def byte_letters():
    """The letters of byte-level tokenizers, one for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


@pytest.fixture(scope="session")
def bytes_model(tmp_path_factory, command):
    folder = tmp_path_factory.mktemp("bytes")
    vocabulary = {letter: byte for byte, letter in byte_letters().items()}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = [
        {"id": 256 + i, "content": text, "special": text.startswith("<|"), **flags}
        for i, text in enumerate(("<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "</think>"))
    ]
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": bytewise,
        "decoder": bytewise,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        **dict.fromkeys(("truncation", "padding", "normalizer", "post_processor")),
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": HERMES}))
    out = folder / "policy"
    sizes = ["--hidden-size", "32", "--layers", "1", "--heads", "2", "--kv-heads", "1", "--context", "4096"]
    made = command("init", "--arch", "qwen3", *sizes, "--tokenizer", folder, "--out", out)
    assert made.returncode == 0, made.stderr
    return out
