"""Makes jobs with `fgrpo export`, and composes verl's configuration of a job, without torch and the rest of verl."""

import importlib.util
import json
import pathlib
import subprocess
import sys


def rows(path, problem, n=40):
    """Writes sums as a data set and returns its path; `problem` is a format string with `{i}`."""
    lines = (json.dumps({"problem": problem.format(i=i), "answer": str(2 * i)}) for i in range(n))
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def folder(path, problem):
    """Makes a tiny model with a chat template, and a data set of sums, in a folder. Needs torch."""
    from tiny import tiny

    tiny(path / "model")
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (path / "model" / "chat_template.jinja").write_text(template)
    rows(path / "sums.jsonl", problem)
    return path


def sums(path, problem):
    """Makes a folder as `folder` does, with a configuration of three steps in `sums.toml`."""
    path = folder(path, problem)
    (path / "sums.toml").write_text(
        f"steps = 3\n[task]\nkind = 'math'\ndata = '{path}/sums.jsonl'\nheld_out_share = 0.2\n"
        f"[model]\npath = '{path}/model'\n[rollout]\nprompts = 8\ngroup_size = 4\nmax_new_tokens = 32\n"
        "[eval]\nsamples = 4\nk = [1, 4]\n"
    )
    return path


def variant(trainer, folder, out, changes):
    """Exports the configuration of `sums` with changed settings, and returns the job. What the trainer lacks is allowed to differ."""
    words = [folder / "sums.toml", "--gpus", 2, *(word for change in changes for word in ("--set", change))]
    done = export(trainer, folder / out, *words)
    if "allow a key" in done.stderr:
        done = export(trainer, folder / out, *words, "--allow", "all")
    assert done.returncode == 0, done.stderr
    return folder / out


def export(trainer, out, *words):
    """Runs `fgrpo export`."""
    command = [str(pathlib.Path(sys.executable).with_name("fgrpo")), "export", trainer, *map(str, words), "--out", str(out)]
    return subprocess.run(command, capture_output=True, text=True)


def composed(job, stub):
    """Composes verl's configuration with the settings that run.sh passes to Python, in whose place a program in `stub` is."""
    from hydra import compose, initialize_config_dir

    stub.mkdir(exist_ok=True)
    python = stub / "python3"
    python.write_text('#!/bin/sh\n[ "$1" = - ] && exit 0\nfor a in "$@"; do printf "%s\\0" "$a"; done\n')
    python.chmod(0o755)
    ran = subprocess.run([job / "run.sh"], env={"PATH": f"{stub}:/usr/bin:/bin"}, capture_output=True, check=True)
    words = [word.decode() for word in ran.stdout.split(b"\0")[:-1]]
    assert words[:2] == ["-m", "verl.trainer.main_ppo"]
    # The folder is found without an import of verl, which would import torch.
    verl = pathlib.Path(importlib.util.find_spec("verl").origin).parent
    with initialize_config_dir(str(verl / "trainer" / "config"), version_base=None):
        return compose("ppo_trainer", overrides=words[2:])
