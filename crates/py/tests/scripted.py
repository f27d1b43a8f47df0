"""An engine whose model follows a script, and templates for it."""

import json

import numpy as np

import fgrpo

# A template like those of Hermes and Qwen.
HERMES = (
    "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<tool_call> is how to call.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class Scripted(fgrpo.Engine):
    """An engine whose model writes the turns of a script."""

    def __init__(self, model, script):
        super().__init__(model, threads=1)
        self.script, self.turn, self.said = script, 0, []

    def sample(self, prompts, n=1, **settings):
        out = []
        for i, prompt in enumerate(prompts):
            text = self.script(i, self.turn)
            cut = text.endswith("...")
            tokens = np.array(self.tokenizer.encode(text if cut else text + "<|im_end|>"), dtype=np.int32)
            logprobs = -np.arange(1, tokens.size + 1, dtype=np.float32)
            self.said.append(tokens)
            finish = "length" if cut else "stop"
            out.append([fgrpo.Sample(np.asarray(prompt), tokens, logprobs, logprobs, text, finish, 0)])
        self.turn += 1
        return out


def call(name="add", **arguments):
    return f'<tool_call>{json.dumps({"name": name, "arguments": arguments})}</tool_call>'


def give_template(model, folder, template):
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for file in folder.glob("chat_template.jinja"):
        file.unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>", "chat_template": template}))
