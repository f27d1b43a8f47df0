"""Nothing here imports the package of the checkout, because the tests are for the installed wheel."""

import json
import os
import pathlib
import re
import signal
import subprocess
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


# Vocabulary of the model that the engine's tests train.
WORDS = ["<pad>", "<end>", "<user>", "<assistant>", *"0123456789+=?"]
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}> {{ m.content }} {% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="session")
def model(tmp_path_factory, command):
    """A model of 2 layers with random weights and a tokenizer of words."""
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
    """Sends this process the signal of Ctrl-C, even if the program that started the tests ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def run_notebook(command, tmp_path, monkeypatch):
    """Runs a notebook as Jupyter does, with the values of some variables replaced. Asserts that it shows as many pictures as its file has."""
    import nbclient
    import nbformat

    def pictures(notebook):
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        return sum("image/png" in output.get("data", {}) for output in outputs)

    def run(name, **replaced):
        notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        expected = pictures(notebook)
        assert expected > 0
        for variable, value in replaced.items():
            line = re.compile(rf"^{variable} = .*$", flags=re.M)
            cells = [cell for cell in notebook.cells if line.search(cell.source)]
            assert cells, f"{name} has no line {variable} = .."
            for cell in cells:
                cell.source = line.sub(lambda _: f"{variable} = {value}", cell.source)
        monkeypatch.setenv("PATH", f"{command.program.parent}{os.pathsep}{os.environ['PATH']}")
        resources = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
        assert pictures(notebook) == expected

    return run


def byte_letters():
    """Returns the letters of byte-level tokenizers, one for each byte."""
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
