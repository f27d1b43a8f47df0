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

# A template with the constructs of Gemma 4's: it leaves out messages of tools, cuts thoughts from the content, and has fields for thoughts and answers.
GEMMA = (
    "{% if tools %}<|turn>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|tool_call> is how to call.<turn|>\n{% endif %}"
    "{% set last = namespace(role='', answers=false) %}{% for m in messages if m.role != 'tool' %}"
    "{% if last.role != 'assistant' or m.role != 'assistant' %}<|turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{% endif %}"
    "{% if m.reasoning_content %}<|channel>thought\n{{ m.reasoning_content }}\n<channel|>{% endif %}"
    "{% for call in m.tool_calls or [] %}<|tool_call>call:{{ call.function.name }}{{ '{' }}{% for key, value in call.function.arguments | dictsort %}"
    "{{ key }}:{{ '<|\"|>' ~ value ~ '<|\"|>' if value is string else value }}{{ '' if loop.last else ',' }}{% endfor %}}<tool_call|>{% endfor %}"
    "{{ m.content.split('<channel|>')[-1] | trim }}"
    "{% for answer in m.tool_responses or [] %}<|tool_response>response:{{ answer.name }}{value:{{ answer.response }}}<tool_response|>{% endfor %}"
    "{% if not (m.tool_responses or m.role == 'assistant' and loop.nextitem and loop.nextitem.role == 'assistant') %}<turn|>\n{% endif %}"
    "{% set last.role = m.role %}{% set last.answers = m.tool_responses %}{% endfor %}"
    "{% if add_generation_prompt and not last.answers %}<|turn>model\n{% endif %}"
)


class Scripted(fgrpo.Engine):
    """An engine whose model writes the turns of a script. A turn without one of the end tokens gets the first one."""

    def __init__(self, model, script, ends=("<|im_end|>",)):
        super().__init__(model, threads=1)
        self.script, self.turn, self.said, self.ends = script, 0, [], ends

    def sample(self, prompts, n=1, **settings):
        out = []
        for i, prompt in enumerate(prompts):
            text = self.script(i, self.turn)
            cut = text.endswith("...")
            tokens = np.array(self.tokenizer.encode(text if cut or text.endswith(self.ends) else text + self.ends[0]), dtype=np.int32)
            logprobs = -np.arange(1, tokens.size + 1, dtype=np.float32)
            self.said.append(tokens)
            finish = "length" if cut else "stop"
            out.append([fgrpo.Sample(np.asarray(prompt), tokens, logprobs, logprobs, text, finish, 0)])
        self.turn += 1
        return out


def call(name="add", **arguments):
    return f'<tool_call>{json.dumps({"name": name, "arguments": arguments})}</tool_call>'


# Special tokens of Gemma 4, in the order of `give_template`.
GEMMA4 = ("<turn|>", "<|turn>", "<|tool_response>", "<tool_response|>", "<|channel>", "<channel|>")


def give_template(model, folder, template, tokens=None):
    """Copies a model of bytes with another template. ``tokens`` are the special tokens; the first and the third end a turn."""
    for file in model.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    for file in folder.glob("chat_template.jinja"):
        file.unlink()
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": tokens[0] if tokens else "<|im_end|>", "chat_template": template}))
    if tokens:
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        for token, content in zip(tokenizer["added_tokens"], tokens, strict=True):
            token.update(content=content, special=True)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        ends = [token["id"] for token in tokenizer["added_tokens"] if token["content"] in (tokens[0], tokens[2])]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
