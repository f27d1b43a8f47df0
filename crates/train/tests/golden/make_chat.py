"""Renders chat templates of our own with transformers and writes chat.json.

    python make_chat.py          # transformers, jinja2: versions stand in the file

The templates use the constructs that the public templates of Qwen2.5, Qwen3, QwQ and Llama 3.2 use.
"""
import datetime
import json
import pathlib

import jinja2
import transformers
from transformers.utils import chat_template_utils as utils

TEMPLATES = {
    "chatml": """{%- if messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "thinking": """{%- set ns = namespace(multi=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi and message.role == "user" and message.content is string and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi = false %}
        {%- set ns.last = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last and (loop.last or (not loop.last and reasoning)) %}
            {{- '<a>\\n<think>\\n' + reasoning.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<a>\\n' + content }}
        {%- endif %}
        {{- '</a>\\n' }}
    {%- else %}
        {{- '<' + message.role[0] + '>\\n' + content + '</' + message.role[0] + '>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<a>\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
""",
    "dated": """{{- bos_token }}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|h|>system<|e|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- eos_token }}
{%- for message in messages %}
    {{- '<|h|>' + message['role'] + '<|e|>\\n\\n'+ message['content'] | trim + eos_token }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|h|>assistant<|e|>\\n\\n' }}
{%- endif %}
""",
    "macros": """{% macro turn(message, n=1) %}
[{{ n }}:{{ message.role|upper }}] {{ message.content|replace('\\t', ' ')|trim }}
{% endmacro %}
{% for message in messages %}
  {% if message.role == 'assistant' %}
{% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}

  {% elif message.role not in ['user', 'system'] %}
{{ raise_exception('Unknown role ' ~ message.role ~ '!') }}
  {% else %}
    {# a comment #}
{{ turn(message, n=loop.index) }}
  {% endif %}
  {% if loop.index > 4 %}{% break %}{% endif %}
{% endfor %}
{{ messages | tojson }}
{{ messages[0] | tojson(indent=2) }}
{{ {"b": [1, 2.5, true, none], "a": "é\\n\\"<>&'"} | tojson(sort_keys=True) }}
{% if add_generation_prompt %}GO{% endif %}""",
    "alternate": """{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{{ ' ' if not loop.first else '' }}{{ message['content'].strip() }}{% if message['content'].lower().count('x') > 1 %}!{% endif %}{{ message['content'].title()[:5] }}{% for word in message['content'].split() if word.isdigit() %}|{{ word|int + 1 }}{% else %}-{% endfor %}{% endfor %}""",
}

CONVERSATIONS = [
    [{"role": "user", "content": "What is 2 + 2?"}],
    [{"role": "system", "content": "  Please reason step by step. "}, {"role": "user", "content": "Line one\nline two\t\"quoted\" <b>&amp;</b> é\u4e16"}],
    [
        {"role": "user", "content": "x1 7 x2"},
        {"role": "assistant", "content": "<think>\nhm, 7\n</think>\n\nIt is 8."},
        {"role": "user", "content": "Sure?\n"},
    ],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nthought\n</think>\n\nb"}],
    [{"role": "user", "content": ""}, {"role": "judge", "content": "no"}],
]

OPTIONS = [
    {"add_generation_prompt": True},
    {"add_generation_prompt": False},
    {"add_generation_prompt": True, "enable_thinking": False},
    {"add_generation_prompt": True, "enable_thinking": True},
]


class Pinned(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 6)


utils.datetime = Pinned
cases = []
for name, template in TEMPLATES.items():
    for messages in CONVERSATIONS:
        for options in OPTIONS:
            case = {"template": name, "messages": messages, "options": options}
            try:
                rendered, _ = utils.render_jinja_template(
                    [messages], chat_template=template, bos_token="<bos>", eos_token="<eos>", tools=None, documents=None, **options
                )
                case["rendered"] = rendered[0]
            except jinja2.exceptions.TemplateError as error:
                case["error"] = str(error)
            cases.append(case)
made = f"make_chat.py with transformers {transformers.__version__}, jinja2 {jinja2.__version__}"
out = {"made_by": made, "date": "2024-07-06", "templates": TEMPLATES, "cases": cases}
pathlib.Path(__file__).with_name("chat.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
print(len(cases), "cases,", sum("error" in c for c in cases), "errors")
