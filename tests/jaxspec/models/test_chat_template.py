"""Chat templates: the texts that transformers makes (`tests/golden/make_chat_templates.py`), and what is refused."""

import json
import time
from pathlib import Path

import pytest

from jaxspec.errors import InputError
from jaxspec.models.chat_template import ChatTemplate, load_chat_template
from jaxspec.models.special_tokens import end_tokens

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "chat_templates.json").read_text(encoding="utf-8"))
ASKED = [{"role": "user", "content": "Hello"}]


def template_of(folder, config):
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return load_chat_template(folder)


@pytest.mark.parametrize(
    "case", GOLDEN, ids=lambda case: f"{case['name']}-{case['begin_answer']}-{len(case['messages'])}"
)
def test_texts_are_those_of_transformers(tmp_path, case):
    template = template_of(tmp_path, case["config"])
    assert template.render(case["messages"], begin_answer=case["begin_answer"]) == case["text"]


def test_a_file_of_its_own_wins_and_names_tokens_of_either_file(tmp_path):
    (tmp_path / "chat_template.jinja").write_text("{{ bos_token }}{{ eos_token }}{{ messages[0].content }}")
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": "<a>"}, "eos_token": "<b>"}))
    template = template_of(tmp_path, {"chat_template": "other", "eos_token": "<c>"})
    assert template.render(ASKED, begin_answer=False) == "<a><c>Hello"


def test_a_checkpoint_may_have_none(tmp_path):
    assert load_chat_template(tmp_path) is None
    assert template_of(tmp_path, {"bos_token": "<s>"}) is None


def test_the_date_is_the_same_on_every_day(tmp_path):
    template = template_of(tmp_path, {"chat_template": "{{ strftime_now('%d %b %Y') }}"})
    assert template.render(ASKED, begin_answer=True) == "26 Jul 2024"


NO_TEMPLATES = [
    "{{ messages",
    "{% for %}",
    "{% frobnicate %}",
    "{{ 1 | nofilter }}",
    "{% break %}",  # the rest: not for Jinja, for what it makes of them
    "{{ 2**100000 }}",
    f"{{{{ {'1' * 5000} }}}}",
    "{% for a in b %}" * 25 + "{% endfor %}" * 25,
    "{% macro f(a, a) %}{% endmacro %}",
]


@pytest.mark.parametrize("source", NO_TEMPLATES, ids=range(len(NO_TEMPLATES)))
def test_what_is_no_template(tmp_path, source):
    with pytest.raises(InputError, match=r"tokenizer_config\.json: its chat template is not valid") as caught:
        template_of(tmp_path, {"chat_template": source})
    assert str(caught.value).isprintable()


def test_a_template_of_another_type(tmp_path):
    with pytest.raises(InputError, match="chat_template of type int"):
        template_of(tmp_path, {"chat_template": 3})


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('no such\nrole') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[7].content.x.y }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",  # the sandbox
        "{{ messages.append(1) }}",
    ],
)
def test_what_a_template_refuses_is_one_line(source):
    template = ChatTemplate(source, Path("m/chat_template.jinja"), {})
    with pytest.raises(InputError, match=r"m/chat_template\.jinja refuses the messages \(") as caught:
        template.render(ASKED, begin_answer=True)
    assert str(caught.value).isprintable()


@pytest.mark.signals(2)
@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ messages[0].content * 10 ** 10 }}",
        "{% set a = namespace(b='aaaaaaaa') %}{% for i in range(40) %}{% set a.b = a.b + a.b %}{% endfor %}{{ a.b }}",
        "{{ messages[0].content.center(10 ** 10) }}",
        "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}",
        # When it is compiled, where Jinja computes constants.
        "{{ 'a' * 10 ** 10 }}",
        "{{ 9 ** (9 ** 9) }}",
    ],
)
def test_a_template_has_limits_of_time_and_memory(source):
    began = time.monotonic()
    with pytest.raises(InputError, match=r"m/chat_template\.jinja") as caught:
        ChatTemplate(source, Path("m/chat_template.jinja"), {}).render(ASKED, begin_answer=True)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("generation", "config", "found"),
    [
        ({"eos_token_id": 7}, {"eos_token_id": 3}, (7,)),
        ({"eos_token_id": [9, 2, 9]}, {}, (2, 9)),
        ({}, {"eos_token_id": 3}, (3,)),
        (None, {"eos_token_id": [3, 0]}, (0, 3)),
        (None, {"eos_token_id": None}, ()),
    ],
)
def test_end_tokens(tmp_path, generation, config, found):
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert end_tokens(tmp_path, vocab_size=10) == found


@pytest.mark.parametrize("value", [10, -1, "7", [1, None], 2.0, True, {"a": 1}])
def test_end_tokens_that_are_none(tmp_path, value):
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(InputError, match=r"config\.json has eos_token_id .* allowed are token ids from 0 to 9"):
        end_tokens(tmp_path, vocab_size=10)
