"""Compares rendered conversations with transformers, for every chat template in TRL's wheel.

    pip install ./crates/py transformers trl
    python peers/chat_templates.py --model FOLDER      # any model: only its tokenizer is used

The conversations are with and without tools, thoughts, calls and their answers. If a template rejects a conversation, both must reject it.
"""

import argparse
import datetime
import importlib.util
import json
import pathlib
import shutil
import tempfile

import fgrpo
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils


class Today(datetime.datetime):
    """The date that fgrpo gives a template."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


chat_template_utils.datetime = Today

TOOL = {
    "type": "function",
    "function": {
        "name": "add", "description": "Adds <two> & more.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer", "description": "é"}}, "required": ["a"]},
    },
}
ITEM = {"type": "object", "properties": {"x": {"type": "number"}, "unit": {"type": "string", "enum": ["m", "s"]}}, "required": ["x"]}
MEASURES = {
    "type": "function",
    "function": {
        "name": "measure", "description": "Measures.",
        "parameters": {
            "type": "object",
            "properties": {
                "where": {**ITEM, "description": "Place"}, "list": {"type": "array", "items": ITEM}, "names": {"type": "array", "items": {"type": "string"}},
                "note": {"type": "string", "nullable": True, "default": "none"}, "exact": {"type": "boolean", "description": "Whether it is exact"},
            },
            "required": ["where"],
        },
    },
}
CALL = {"id": "000000000", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": "x\ny", "c": [1, {"d": None}], "e": True}}}
ANSWER = {"role": "tool", "name": "add", "tool_call_id": "000000000", "content": "4"}
ASKED = {"role": "user", "content": "2+2?"}
CONVERSATIONS = [
    [{"role": "user", "content": "Hi <b> & 'q'"}],
    [{"role": "system", "content": " Be brief. "}, ASKED],
    [ASKED, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n4"}, ASKED],
    [ASKED, {"role": "assistant", "content": "let me", "tool_calls": [CALL]}, ANSWER],
    [ASKED, {"role": "assistant", "content": "<think>\nso\n</think>\n\n", "tool_calls": [CALL, CALL]}, ANSWER, ANSWER],
    [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
    [ASKED, {"role": "assistant", "reasoning_content": "so", "content": "", "tool_calls": [CALL]}, ANSWER, {"role": "assistant", "content": "It's 4."}, ASKED],
    [ASKED, {"role": "assistant", "content": "", "tool_calls": [CALL], "tool_responses": [{"name": "add", "response": "4"}]}],
]


def attempt(function, *arguments, **settings):
    try:
        return function(*arguments, **settings), None
    except Exception as error:
        return None, str(error).splitlines()[0][:150]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    args = parser.parse_args()
    templates = pathlib.Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
    for template in sorted(templates.glob("*.jinja")):
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place) / "model"
            shutil.copytree(args.model, folder, ignore=shutil.ignore_patterns("chat_template*"))
            config = json.loads((folder / "tokenizer_config.json").read_text())
            (folder / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template.read_text()}))
            engine, opened = attempt(fgrpo.Engine, folder, threads=1)
            if engine is None:
                print(f"{template.name}: refused: {opened}")
                continue
            theirs = PreTrainedTokenizerFast.from_pretrained(folder)
            equal, rejected, other = 0, 0, []
            cases = [(c, tools, thinking) for c in CONVERSATIONS for tools in (None, [TOOL], [TOOL, MEASURES]) for thinking in (None, True, False)]
            for messages, tools, thinking in cases:
                switch = {} if thinking is None else {"enable_thinking": thinking}
                a, _ = attempt(theirs.apply_chat_template, messages, tools=tools, tokenize=False, add_generation_prompt=True, **switch)
                b, why = attempt(engine.tokenizer.render, messages, tools=tools, thinking=thinking)
                equal += a == b
                rejected += a is None and b is None
                if a != b:
                    other.append(why or f"another text for the conversation that ends with {messages[-1]}")
            print(f"{template.name}: {equal} of {len(cases)} equal ({rejected} rejected by both){'; ' + other[0] if other else ''}", flush=True)


main()
