import ast
import doctest
import importlib
import inspect
import pathlib
import pydoc
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import fgrpo

PACKAGE = pathlib.Path(fgrpo.__file__).parent
NAMES = [name for name in fgrpo.__all__ if name != "__version__"]


def in_fresh_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_it_is_the_wheel_that_is_tested():
    assert ROOT not in PACKAGE.parents, f"{PACKAGE} is the checkout's"


def test_importing_the_package_and_starting_the_command_import_no_numpy():
    loaded = "print([m for m in ('numpy', 'torch', 'trl', 'verl') if m in sys.modules])"
    assert in_fresh_python(f"import sys, fgrpo; {loaded}") == "[]"
    assert in_fresh_python(f"import sys, fgrpo._command; {loaded}") == "[]"
    assert in_fresh_python(f"import sys, fgrpo; fgrpo.credit; {loaded}") == "['numpy']"


def test_importing_the_package_starts_no_thread_and_catches_no_signal():
    code = (
        "import os, signal; before = signal.getsignal(signal.SIGINT); import fgrpo; "
        "status = open('/proc/self/status').read(); print(signal.getsignal(signal.SIGINT) is before, "
        "[l for l in status.splitlines() if l.startswith('Threads')], "
        "'SigCgt' in status)"
    )
    if not pathlib.Path("/proc/self/status").exists():
        pytest.skip("no /proc")
    assert in_fresh_python(code) == "True ['Threads:\\t1'] True"


def test_every_public_name_is_there_documented_and_in_the_stub():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    stubbed = {alias.asname for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert stubbed == set(NAMES)
    assert set(NAMES) <= set(dir(fgrpo))
    for name in NAMES:
        value = getattr(fgrpo, name)
        assert name in fgrpo.__doc__ or name == "VERDICTS", f"{name} isn't in the package's table"
        if callable(value):
            assert inspect.getdoc(value), f"{name} has no docstring"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        fgrpo.nothing  # noqa: B018
    assert (PACKAGE / "py.typed").exists()


def test_help_lists_the_functions():
    text = pydoc.plain(pydoc.render_doc(fgrpo))
    for name in NAMES:
        assert re.search(rf"\b{name}\b", text), f"{name} isn't in help(fgrpo)"


def test_the_stub_of_the_extension_names_what_it_has():
    stub = ast.parse((PACKAGE / "_native.pyi").read_text())
    stubbed = {n.name for n in stub.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    stubbed |= {n.target.id for n in stub.body if isinstance(n, ast.AnnAssign)} - {"__version__"}
    native = importlib.import_module("fgrpo._native")
    assert stubbed == {name for name in dir(native) if not name.startswith("__")}
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            found = list(inspect.signature(getattr(native, node.name)).parameters)
            assert found == [a.arg for a in node.args.args], node.name


@pytest.mark.parametrize("module", ["", "_credit", "_engine", "_loss", "_verifiers", "_samples", "_statistics", "_theory"])
def test_examples_of_the_docstrings_run(module):
    found = doctest.testmod(
        importlib.import_module(f"fgrpo.{module}".rstrip(".")), optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert found.attempted > 0 and found.failed == 0


def python_blocks(path):
    return re.findall(r"^```python\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/distillation.md", "docs/math-verify.md", "crates/py/README.md"])
def test_examples_of_the_pages_run(page, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("policy", "teacher"):
        (tmp_path / name).symlink_to(model)
    blocks = python_blocks(ROOT / page)
    assert blocks, f"{page} has no example"
    # The blocks of a page build on each other; a comment `# ->` says what a line prints.
    code = "\n".join(blocks)
    wanted = [line.split("# -> ", 1)[1] for line in code.splitlines() if "# -> " in line]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == wanted
