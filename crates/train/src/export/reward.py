"""The reward function of this job: the verifiers of fgrpo with the settings of config.toml."""

import logging
import pathlib

import pyarrow.parquet as pq
{%- if trainer == "skyrl" %}

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
{%- endif %}

import fgrpo
{%- if trainer == "trl" %}
from fgrpo.trl import answer_texts
{%- endif %}

JOB = pathlib.Path(__file__).resolve().parent
# A configuration that can't be read ends the program here, before anything is graded.
GRADER = fgrpo.Grader(JOB / "config.toml")


def check(first=8):
    """Ends the program if no response to the first problems of a part can be graded, for example because the grader lacks a file."""
    graded, failed = set(), {}
    for batch in pq.ParquetFile(JOB / "train.parquet").iter_batches(1024, columns=["data_source", "reward_model"]):
        for row in batch.to_pylist():
            part = row["data_source"]
            reasons = failed.setdefault(part, [])
            if part not in graded and len(reasons) < first:
                grade = GRADER.grade(row["reward_model"]["ground_truth"], r"The answer is \boxed{1}.", part=part)
                graded.update([part] if grade.verdict != "unscorable" else [])
                reasons.append(grade.reason)
        if graded.issuperset(GRADER.parts):
            break
    for part in failed.keys() - graded:
        raise SystemExit(f"{part}: a response to none of the first {len(failed[part])} problems can be graded: {failed[part][-1]}")


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    """The reward of a response, and what verl writes into its validation files."""
    # verl marks the whole group of a response as failed if this function raises, so an error is an unscorable response.
    try:
        grade = GRADER.grade(ground_truth, solution_str, part=data_source)
        verdict, reward, grader = grade.verdict, grade.reward, GRADER.described(data_source)
    except Exception:
        logging.getLogger(__name__).exception("fgrpo: a response of %s can't be graded", data_source)
        verdict, reward, grader = "unscorable", float("nan"), ""
    return {
        "score": reward,
        "acc": float(verdict == "correct"),
        "unparsed": float(verdict == "unparsed"),
        "unscorable": float(verdict == "unscorable"),
        "source": data_source,
        "grader": grader,
        "problem": str((extra_info or {}).get("problem", "")),
    }
{%- if trainer == "trl" %}


def rewards(completions, data_source, reward_model, **_):
    """The rewards of completions for TRL. It leaves a completion out of its group for which the reward is None."""
    columns = zip(data_source, answer_texts(completions), reward_model, strict=True)
    scores = [compute_score(part, text, truth["ground_truth"])["score"] for part, text, truth in columns]
    return [None if score != score else score for score in scores]
{%- endif %}
{%- if trainer == "skyrl" %}


class Graded(BaseTextEnv):
    """SkyRL's environment of one completion, which ends with its reward."""

    def __init__(self, env_config, extras):
        super().__init__()
        self.row = extras

    def step(self, action):
        row = self.row
        graded = compute_score(row["data_source"], action, row["reward_model"]["ground_truth"], row["extra_info"])
        return BaseTextEnvStepOutput(observations=[], reward=graded["score"], done=True, metadata=graded)
{%- endif %}
