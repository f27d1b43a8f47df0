"""A metric over strings, with the names of math-verify 0.9."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from .grader import verify
from .parser import ExprExtractionConfig, ExtractionTarget, parse

logger = logging.getLogger(__name__)


def math_metric(
    gold_extraction_target: Sequence[ExtractionTarget] = (ExprExtractionConfig(),),
    pred_extraction_target: Sequence[ExtractionTarget] = (ExprExtractionConfig(),),
    aggregation_function: Callable[[list[float]], float] = max,
    precision: int = 6,
) -> Callable[[list[str], list[str]], tuple[float, tuple[list[str], list[str]] | None]]:
    """Returns a function of golds and predictions, which returns the aggregated score and all parsed answers as strings.

    A prediction scores 1 if it equals any gold, and 0 otherwise. A gold without an answer raises ``ValueError``.
    """

    def score(golds: list[str], predictions: list[str]) -> tuple[float, tuple[list[str], list[str]] | None]:
        answers = [parse(text, pred_extraction_target) for text in predictions]
        truths = [parse(text, gold_extraction_target) for text in golds]
        if not all(truths):
            raise ValueError(f"golds: expected an answer in each, found {golds}")
        if not any(answers):
            logger.warning("No prediction has an answer that can be parsed: %s", predictions)
        scores = [float(any(verify(truth, answer, precision) for truth in truths)) for answer in answers]
        texts = tuple([str(item) for items in lists for item in items] for lists in (truths, answers))
        return aggregation_function(scores), texts

    return score
