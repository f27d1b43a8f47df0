"""F-GRPO for TRL: trainers with focal-weighted advantages, and reward functions for the four verifiers.

.. code-block:: python

    from fgrpo.trl import FGRPOTrainer, math_reward

    trainer = FGRPOTrainer(model, reward_funcs=math_reward, args=GRPOConfig(...), train_dataset=..., focal_gamma=0.5)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import trl

from . import Credit, Verdicts, credit, pass_at_k, verify_choice, verify_ifeval, verify_math, verify_synlogic
from ._environment import text_of
from ._native import FOCAL_GAMMA, TRAINING_MODE
from ._verifiers import Gold, Mode

if TYPE_CHECKING:
    from typing_extensions import Self

#: Whether TRL leaves completions without a reward out of their group. Before version 1.6 it gave them the reward 0.
LEAVES_OUT = tuple(int(part) for part in trl.__version__.split(".")[:2]) >= (1, 6)


class Focal:
    """Mix-in that multiplies a TRL trainer's advantages by the focal weight of their group. Put it first among the bases.

    focal_gamma: exponent; 0 gives the plain trainer, bit for bit. reward_correct, reward_wrong: sum of the rewards of a correct
    and of a wrong completion. reward_threshold: lowest sum that counts as correct, for rewards with other values. correct_by: name
    of the reward function that decides correctness; the other rewards then don't affect the weight.

    Logs ``focal_weight``, ``success_rate`` and the unbiased ``pass@k`` (k = 1, 2, 4 .. the group's size) as means over the
    groups. Groups may be split across processes. Raises ``TypeError`` for a trainer class without the two methods below.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        order = cls.__mro__
        for hook in ("_calculate_rewards", "_generate_and_score_completions"):
            has = [base for base in order if hook in vars(base)]
            if not any(order.index(base) > order.index(Focal) for base in has):
                bases = ", ".join(base.__name__ for base in cls.__bases__)
                late = any(order.index(base) < order.index(Focal) for base in has if base is not cls)
                why = "put Focal first among its bases" if late else f"no base has the method {hook}"
                raise TypeError(
                    f"{cls.__name__}({bases}): Focal can't weight the advantages of this trainer class ({why}); use one "
                    "that computes them as trl.GRPOTrainer and trl.RLOOTrainer do"
                )
        return super().__new__(cls)

    def __init__(
        self,
        *args: Any,
        focal_gamma: float = FOCAL_GAMMA,
        reward_correct: float = 1.0,
        reward_wrong: float = 0.0,
        reward_threshold: float | None = None,
        correct_by: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.focal_gamma = focal_gamma
        self._meaning = {"correct": reward_correct, "wrong": reward_wrong, "threshold": reward_threshold}
        self._correct_by = correct_by
        self._gathered: torch.Tensor | None = None
        credit(np.zeros((0, 2)), gamma=focal_gamma, **self._meaning)  # raises an error for bad settings before a model is loaded
        super().__init__(*args, **kwargs)
        if correct_by is not None and correct_by not in self.reward_func_names:
            raise ValueError(f"correct_by: expected one of {list(self.reward_func_names)}, found {correct_by!r}")

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> torch.Tensor:
        # (rows of all processes, reward functions), group by group. Callbacks and reward functions only get the rows of one process.
        found = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if not LEAVES_OUT and bool(found.isnan().all(dim=1).any()):
            raise ValueError(
                f"{type(self).__name__}: every reward function returned None for a completion, and TRL {trl.__version__} would give it "
                "a reward of 0. Use TRL 1.6 or later, which leaves it out of its group"
            )
        if self._correct_by is not None:
            self._gathered = found[:, self.reward_func_names.index(self._correct_by)]
        else:
            rewards = (found * self.reward_weights.to(found.device)).nansum(dim=1)
            rewards[found.isnan().all(dim=1)] = torch.nan
            self._gathered = rewards
        return found

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        mode = "train" if self.model.training else "eval"
        size = self.num_generations if mode == "train" else getattr(self, "num_generations_eval", self.num_generations)
        rewards = self._gathered.double().cpu().numpy().reshape(-1, size)
        try:
            found = credit(rewards, estimator="dr_grpo", gamma=self.focal_gamma, **self._meaning)
        except ValueError as error:
            raise ValueError(
                f"{type(self).__name__}: {error} (reward_correct, reward_wrong, reward_threshold and correct_by say what counts "
                "as correct)"
            ) from None
        for name, value in _metrics(found, (~np.isnan(rewards)).sum(1)).items():
            self._metrics[mode][name].append(value)
        if self.focal_gamma == 0:
            return output
        own = output["advantages"]
        weight = torch.as_tensor(found.focal_weight, dtype=own.dtype, device=own.device).repeat_interleave(size)
        rows = own.shape[0]
        first = self.accelerator.process_index * rows
        output["advantages"] = own * weight[first : first + rows].reshape(-1, *[1] * (own.dim() - 1))
        self._relog(weight.tolist())
        return output

    def _relog(self, weight: list[float]) -> None:
        """Weights the advantages that the base class has just logged for its table of completions."""
        logged = self._logs["advantages"]
        count = min(len(weight), len(logged))
        last = [logged.pop() for _ in range(count)][::-1]
        logged.extend(a * w for a, w in zip(last, weight[len(weight) - count :], strict=True))


def _metrics(found: Credit, scored: np.ndarray) -> dict[str, float]:
    """Computes means over the groups. scored: number of completions with a reward in each group."""
    metrics = {"focal_weight": float(found.focal_weight.mean())}
    known = ~np.isnan(found.success_rate)
    n, rate = scored[known], found.success_rate[known]
    if n.size:
        metrics["success_rate"] = float(rate.mean())
    k = 1
    while (large := n >= k).any():
        metrics[f"pass@{k}"] = float(np.mean(pass_at_k(n[large], np.rint(rate * n)[large].astype(int), k)))
        k = 2 * k if 2 * k <= n.max() or k == n.max() else int(n.max())
    return metrics


class FGRPOTrainer(Focal, trl.GRPOTrainer):
    """TRL's ``GRPOTrainer`` with the focal weight, with the arguments of both ``GRPOTrainer`` and :class:`Focal`."""


class FRLOOTrainer(Focal, trl.RLOOTrainer):
    """TRL's ``RLOOTrainer`` with the focal weight, with the arguments of both ``RLOOTrainer`` and :class:`Focal`."""


def answer_texts(completions: Sequence[Any]) -> list[str]:
    """Returns the text of each completion: the completion itself, or the text of the last message of a conversation.

    The text is empty if the last message isn't the assistant's, because TRL ends a conversation with a tool's message if
    no token is left for the answer.
    """
    return [c if isinstance(c, str) else _answer(c) for c in completions]


def _answer(messages: Sequence[Mapping[str, Any]]) -> str:
    last = messages[-1] if messages else {}
    return (text_of(last.get("content"), "the policy") or "") if last.get("role") == "assistant" else ""


def _rewards(verdicts: Verdicts, name: str, log_metric: Callable[[str, float], None] | None) -> list[float | None]:
    """Converts verdicts to 1, 0, or None if the verifier failed; TRL leaves such a completion out of its group."""
    if log_metric is not None and len(verdicts.code):
        log_metric(f"{name}/unparsed", float((verdicts.code == 2).mean()))
        log_metric(f"{name}/unscorable", float((verdicts.code == 3).mean()))
    return [None if code == 3 else float(code == 0) for code in verdicts.code]


def math_reward(
    completions: Sequence[Any],
    solution: Sequence[Gold] | None = None,
    answer: Sequence[Gold] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    mode: Mode = TRAINING_MODE,
    accept_unfinished: bool = False,
    **_: Any,
) -> list[float | None]:
    """Grades mathematics. Columns: ``solution`` or ``answer``, the reference answer; the other arguments as in ``verify_math``."""
    golds = solution if solution is not None else answer
    if golds is None:
        raise ValueError("math_reward: the reference answers are missing; expected a column solution or answer")
    verdicts = verify_math(golds, answer_texts(completions), mode=mode, accept_unfinished=accept_unfinished)
    return _rewards(verdicts, "math", log_metric)


def choice_reward(
    completions: Sequence[Any],
    solution: Sequence[str],
    options: Sequence[Sequence[str]] | None = None,
    log_metric: Callable[[str, float], None] | None = None,
    **_: Any,
) -> list[float | None]:
    """Grades multiple choice. Columns: ``solution`` (the letter) and optionally ``options``."""
    return _rewards(verify_choice(solution, answer_texts(completions), options=options), "choice", log_metric)


def ifeval_reward(
    completions: Sequence[Any],
    instruction_id_list: Sequence[Sequence[str]],
    kwargs: Sequence[Sequence[dict | None]],
    log_metric: Callable[[str, float], None] | None = None,
    **_: Any,
) -> list[float | None]:
    """Grades instruction following. Columns: ``instruction_id_list`` and ``kwargs``, as in Google's data set."""
    return _rewards(verify_ifeval(instruction_id_list, kwargs, answer_texts(completions)), "ifeval", log_metric)


def synlogic_reward(
    completions: Sequence[Any],
    task: Sequence[str],
    game_data_str: Sequence[str],
    log_metric: Callable[[str, float], None] | None = None,
    mode: Mode = TRAINING_MODE,
    **_: Any,
) -> list[float | None]:
    """Grades SynLogic's puzzles. Columns: ``task`` and ``game_data_str``; ``mode`` as in ``verify_synlogic``."""
    return _rewards(verify_synlogic(task, game_data_str, answer_texts(completions), mode=mode), "synlogic", log_metric)
