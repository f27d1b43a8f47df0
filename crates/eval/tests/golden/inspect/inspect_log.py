"""Runs three sums, four epochs each, in inspect_ai (0.3.285) with a mock model, and writes the log as inspect_log.json.

    pip install inspect-ai==0.3.285
    python inspect_log.py

Correct: 3 of 4 answers to "one", 2 of 4 to sample 2, none of the 3 to sample 3 that a request answered; one request fails.
"""

import pathlib
import json
import tempfile

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate

ANSWERS = {"1 + 1 = ?": ["2", "2", "3", "2"], "2 + 3 = ?": ["5", "4", "5", "6"], "4 + 4 = ?": ["7", "nothing", None, "9"]}


def answer(messages, tools, choice, config):
    text = ANSWERS[messages[0].text].pop(0)
    if text is None:
        raise RuntimeError("the request failed")
    output = ModelOutput.from_content("mockllm/model", text)
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it downloads a tokenizer
    return output


task = Task(
    name="sums", solver=generate(), scorer=match(numeric=True),
    dataset=[Sample(input=q, target=t, id=i) for (q, t, i) in zip(ANSWERS, ["2", "5", "8"], ["one", 2, 3])],
)
with tempfile.TemporaryDirectory() as folder:
    log = eval(task, model=get_model("mockllm/model", custom_outputs=answer), epochs=4, log_format="json", log_dir=folder, max_samples=1,
               fail_on_error=False, display="none")[0]
    text = json.loads(pathlib.Path(log.location).read_text())
for sample in text["samples"]:
    for long in ["events", "events_data"]:
        sample[long] = []
    if sample.get("error"):
        sample["error"] = {"message": sample["error"]["message"], "traceback": "", "traceback_ansi": ""}
text["eval"]["packages"], text["eval"]["revision"] = {"inspect_ai": "0.3.285"}, None
pathlib.Path(__file__).with_name("inspect_log.json").write_text(json.dumps(text, indent=1) + "\n")
