"""Functions that the YAML files of the task pack call."""

from __future__ import annotations

from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter
from lm_eval.api.task import ConfigurableTask

import fgrpo

#: Values of k. Values above the number of samples aren't reported.
KS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class MathTask(ConfigurableTask):
    """A task that passes its target to ``process_results`` in the column ``fgrpo_target``."""

    def __init__(self, config: dict) -> None:
        super().__init__(config={key: value for key, value in config.items() if key != "class"})

    def process_results(self, doc: dict, results: list) -> dict[str, Any]:
        return super().process_results({**doc, "fgrpo_target": self.doc_to_target(doc)}, results)


def process_results(doc: dict, results: list) -> dict[str, Any]:
    """Computes unbiased pass@k of one problem from its samples (``repeats``). Unscorable samples don't count in n."""
    samples = results[0] if isinstance(results[0], list) else results
    verdicts = fgrpo.verify_math([doc["fgrpo_target"]] * len(samples), samples)
    n, c = int((verdicts.code != 3).sum()), int(verdicts.correct.sum())
    found = {f"pass@{k}": fgrpo.pass_at_k(n, c, k) for k in KS if k <= n}
    return {**found, "unscorable": len(samples) - n}


@register_filter("fgrpo_all")
class AllSamples(Filter):
    """Returns all samples of a problem. lm-eval's filters return the first, or a number that must be configured."""

    def apply(self, resps: Any, docs: Any) -> Any:
        return map(list, resps)
