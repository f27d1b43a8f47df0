import json

import pytest
from conftest import ROOT


@pytest.mark.parametrize(
    ("name", "replaced"),
    [
        ("theory", {}),
        ("compare", {}),
        ("first-run", {"steps": 4}),
        ("own-loss", {"steps": 2, "sft_steps": 20}),
        ("tools", {"steps": 1, "sft_steps": 20, "root": f"Path({str(ROOT)!r})"}),
    ],
    ids=lambda p: str(p) if isinstance(p, str) else "",
)
def test_the_notebooks_run_from_top_to_bottom(run_notebook, name, replaced):
    run_notebook(name, **replaced)


def test_the_loop_of_ones_own_runs_on_any_chat_model(run_notebook, command, tmp_path):
    policy = tmp_path / "policy"
    made = command("sft", "arena-arithmetic", "--set", "sft.steps=2", "--set", "rollout.max_new_tokens=400", "--out", policy)
    assert made.returncode == 0, made.stderr
    run_notebook("own-loop", steps=1, model=json.dumps(str(policy)))
