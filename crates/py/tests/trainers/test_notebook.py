def test_the_notebook_trains_in_trl_and_compares(run_notebook):
    run_notebook("trl", steps=1)
