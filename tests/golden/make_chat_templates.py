"""Render conversations with transformers, which our chat templates are tested with.

Needs transformers and tokenizers, and nothing of ours: `python tests/golden/make_chat_templates.py` writes
`tests/golden/chat_templates.json`; with `--check` it renders anew and compares. Templates are written here in the manner of
released ones: loops with controls, namespaces, JSON, marks of what an assistant said, special tokens as texts and as objects.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

OUT = Path(__file__).parent / "chat_templates.json"

HEADERS = """{{- bos_token }}
{%- for message in messages %}
    {{- '<|start|>' + message['role'] + '<|end|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
"""

INSTRUCTIONS = """{% if messages[0]['role'] == 'system' %}
    {% set system = messages[0]['content'] %}{% set messages = messages[1:] %}
{% endif %}
{{ bos_token }}{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{ raise_exception('Roles must alternate user/assistant/user/assistant') }}
    {% endif %}
    {% if message['role'] == 'user' %}
[INST] {% if loop.first and system is defined %}{{ system + '\\n\\n' }}{% endif %}{{ message['content'] }} [/INST]
    {%- else %}
 {{ message['content'] }}{{ eos_token }}
    {%- endif %}
{% endfor %}"""

CONTROLS = """{%- set found = namespace(last=none, count=0) %}
{%- for message in messages %}
    {%- if message.role == 'skip' %}{% continue %}{% endif %}
    {%- if message.role == 'stop' %}{% break %}{% endif %}
    {%- set found.count = found.count + 1 %}
    {%- set found.last = message %}
{{- loop.index }}:{{ message.role }}={{ message | tojson }}{{ '\\n' }}
{%- endfor %}
{{- found.count }} {{ found.last.content | upper }}{{ pad_token }}{{ [1, {"b": 2, "a": 'é<&'}] | tojson(indent=1) }}"""

GENERATION = """{% for message in messages %}
{% if message['role'] == 'assistant' %}
{% generation %}
{{ message['content'] + eos_token }}
{% endgeneration %}
{% else %}
{{ '<|' + message['role'] + '|>' + message['content'] }}
{% endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""

SAID = [
    {"role": "system", "content": "Be brief. "},
    {"role": "user", "content": 'What is <b> & "c"?\n\nTell me: né, 漢字'},
    {"role": "assistant", "content": " A letter."},
    {"role": "user", "content": "And d?"},
]

CASES: dict[str, dict[str, Any]] = {
    "headers": {"chat_template": HEADERS, "bos_token": "<|bos|>"},
    "instructions": {
        "chat_template": INSTRUCTIONS,
        "bos_token": {"content": "<s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False},
        "eos_token": "</s>",
    },
    "controls": {"chat_template": CONTROLS, "pad_token": "<pad>"},
    "generation": {"chat_template": GENERATION, "eos_token": "<|end|>"},
    "named": {
        "chat_template": [{"name": "tool_use", "template": "no"}, {"name": "default", "template": GENERATION}],
        "eos_token": "E",
    },
}

MESSAGES = {
    "controls": [
        {"role": "user", "content": "one"},
        {"role": "skip", "content": "two"},
        {"role": "user", "content": "three é"},
        {"role": "stop", "content": "four"},
        {"role": "user", "content": "five"},
    ]
}


def rendered() -> list[dict[str, Any]]:
    """All cases with what transformers makes of them."""
    found = []
    for name, config in CASES.items():
        special = {
            key: value["content"] if isinstance(value, dict) else value
            for key, value in config.items()
            if key.endswith("_token")
        }
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"?": 0}, "?")), **special)
        template = config["chat_template"]
        if isinstance(template, list):
            template = {entry["name"]: entry["template"] for entry in template}["default"]
        for messages in (MESSAGES.get(name, SAID), SAID[1:3]):
            for begin in (True, False):
                text = tokenizer.apply_chat_template(
                    messages, chat_template=template, tokenize=False, add_generation_prompt=begin
                )
                case = {"name": name, "config": config, "messages": messages, "begin_answer": begin, "text": text}
                found.append(case)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the stored texts")
    text = json.dumps(rendered(), indent=1, ensure_ascii=False) + "\n"
    if parser.parse_args().check:
        sys.exit(text != OUT.read_text(encoding="utf-8"))
    OUT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
