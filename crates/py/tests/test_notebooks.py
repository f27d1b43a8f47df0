import pytest


@pytest.mark.parametrize(("name", "replaced"), [("theory", {}), ("compare", {}), ("first-run", {"steps": 4})], ids=lambda p: str(p))
def test_the_notebooks_run_from_top_to_bottom(run_notebook, name, replaced):
    run_notebook(name, **replaced)
