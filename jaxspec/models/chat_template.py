"""The chat template of a checkpoint: from messages to the text that its network was trained on.

A template comes with the checkpoint and is a program. It runs in Jinja's sandbox, with the functions that templates expect.

Source: `apply_chat_template` of Hugging Face `transformers`.
Departs: `strftime_now` tells one fixed date, so that the same messages give the same tokens on every day.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from jaxspec.errors import InputError, one_line
from jaxspec.models.beside_weights import json_beside, read_beside
from jaxspec.models.special_tokens import special_texts

__all__ = ["TEMPLATE_DATE", "ChatTemplate", "load_chat_template"]

#: Date that templates are told: the one that Llama 3's template writes where nobody tells it another.
TEMPLATE_DATE = datetime.datetime(2024, 7, 26)


class _Generation(Extension):
    """The block `generation`, which marks what an assistant said: its content is written, the mark is not needed here."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja has it

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled chat template.

    Raises:
        InputError: it is no valid template.
    """

    def __init__(self, source: str, path: Path, special: dict[str, str]):
        """Compile.

        Args:
            path: what errors call it.
            special: texts of special tokens by name.
        """
        self._path, self._special = path, special
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": TEMPLATE_DATE.strftime}
        try:
            self._template = environment.from_string(source)
        # Templates become Python: its compiler, and numbers that are computed beforehand, have errors of their own.
        except Exception as error:
            raise InputError(f"{path}: its chat template is not valid ({_reason(error)}); fetch it again") from error

    def render(self, messages: Sequence[dict[str, Any]], *, begin_answer: bool) -> str:
        """The text of a conversation.

        Args:
            messages: each with "role" and "content".
            begin_answer: add what stands before an assistant's next answer.
        Raises:
            InputError: the template refuses the messages.
        """
        try:
            return self._template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=begin_answer, **self._special
            )
        except Exception as error:  # a template is a program, which may fail in any way
            raise InputError(f"the chat template of {self._path} refuses the messages ({_reason(error)})") from error


def load_chat_template(place: Path) -> ChatTemplate | None:
    """The chat template of a directory or container; None: it has none.

    It is chat_template.jinja, else that of tokenizer_config.json. Of several named ones the one called "default" is taken.

    Raises:
        InputError: a file that cannot be read, or a template that is not valid.
    """
    own = read_beside(place, "chat_template.jinja")
    if own is not None:
        path, source = place / "chat_template.jinja", own.decode("utf-8", errors="replace")
    else:
        path, source = place / "tokenizer_config.json", json_beside(place, "tokenizer_config.json").get("chat_template")
    if isinstance(source, list):
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default")
    if source is None:
        return None
    if not isinstance(source, str):
        raise InputError(
            f"{path} has a chat_template of type {type(source).__name__}; it must be a text: fetch it again"
        )
    return ChatTemplate(source, path, special_texts(place))


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
):
    """Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: Any) -> str:
    """What templates call `raise_exception`."""
    raise jinja2.TemplateError(str(message))


def _reason(error: Exception) -> str:
    return one_line(error) or type(error).__name__
