"""Compares lighteval's pass@k with ours, and reads the parquet files that it writes. Runs in lighteval's environment."""

import tempfile
from dataclasses import asdict
from importlib.metadata import version

import numpy as np
from datasets import Dataset
from lighteval.logging.evaluation_tracker import EvaluationTracker
from lighteval.logging.info_loggers import DetailsLogger
from lighteval.metrics.metrics_sample import PassAtK
from lighteval.models.model_output import ModelResponse
from lighteval.tasks.requests import Doc

import fgrpo

worst = 0.0
rng = np.random.default_rng(0)
for n in (1, 4, 16, 100):
    for k in {1, 2, 4, n} & set(range(1, n + 1)):
        metric = PassAtK(k=k, n=n)
        for c in {0, 1, n // 2, n - 1, n}:
            scores = rng.permutation([1] * c + [0] * (n - c)).tolist()
            worst = max(worst, abs(metric.pass_at_k(scores) - fgrpo.pass_at_k(n, c, k)))
assert worst < 1e-12, worst

with tempfile.TemporaryDirectory() as folder:
    details = [
        DetailsLogger.Detail(
            Doc(query=f"2+{i}", choices=[str(2 + i)], gold_index=0, id=str(i), task_name="sums|0"),
            ModelResponse(text=["so \\boxed{3}", "none", "so \\boxed{4}"]),
            {"pass@k": 0.0},
        )
        for i in range(3)
    ]
    tracker = EvaluationTracker(output_dir=folder, save_details=True)
    tracker.general_config_logger.model_name = "model"
    dataset = Dataset.from_list([asdict(d) for d in details])
    tracker.save_details("2026-01-01T00-00-00.000000", {"sums|0": dataset.select_columns(sorted(dataset.column_names))})
    samples = fgrpo.read_samples(folder)
    assert samples.benchmark == ["sums|0"] * 3 and samples.problem == ["0", "1", "2"], samples
    assert (samples.n.tolist(), samples.c.tolist()) == ([3] * 3, [0, 1, 1]), (samples.n, samples.c)

print(f"lighteval {version('lighteval')}: pass@k differs by at most {worst:.1e}; the details it saves are read as samples")
