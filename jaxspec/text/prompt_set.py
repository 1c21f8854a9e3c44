"""Prompts of a user's own: a text file with one prompt per line, or JSON lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxspec.errors import InputError
from jaxspec.text.documents import Document, Encoder, check_plain, is_json_lines, parse_documents
from jaxspec.text.user_text import read_text_file

__all__ = ["MAX_PROMPTS", "PromptSet", "read_prompts"]

#: Most prompts of a run.
MAX_PROMPTS = 100_000


class PromptSet(NamedTuple):
    """Prompts in their order.

    Attributes:
        tokens: ids of each, int32.
        categories: of each, empty where its line names none; results are counted by category too.
    """

    tokens: list[np.ndarray]
    categories: tuple[str, ...]


def read_prompts(source: str, encoder: Encoder) -> PromptSet:
    """The prompts of a file.

    In a text file each line is a prompt, empty lines are left out. In a JSON lines file (.jsonl, .ndjson) each line is an
    object with "prompt", "messages" or "text", looked for in this order; messages go through the model's chat template, up to
    where the answer begins. A line may have a "category".

    Raises:
        InputError: the file cannot be read or is not text, a line is no prompt, or there are none or too many; JSON in a file
            that by its name is text, of which each line would be a prompt.
    """
    what = f"prompts {source!r}"
    data = read_text_file(source, "prompts", "a number")
    check_plain(source, data, what, "each line a prompt")
    documents = parse_documents(data, what, as_prompts=True) if is_json_lines(source) else _lines(data, what)
    if not documents:
        raise InputError(f"{what} has no prompt: all lines are empty; give one on each line")
    if len(documents) > MAX_PROMPTS:
        raise InputError(f"{what} has {len(documents)} prompts; allowed are 1 to {MAX_PROMPTS:,}: divide the file")
    found = [encoder.encode(document, as_prompt=True) for document in documents]
    for document, tokens in zip(documents, found, strict=True):
        if not len(tokens):
            made = "" if isinstance(document.content, str) else ", as the chat template writes it"
            raise InputError(f"{document.where} has no token{made}; give a longer prompt, or leave the line out")
    return PromptSet(found, tuple(document.category for document in documents))


def _lines(data: bytes, what: str) -> list[Document]:
    lines = data.decode("utf-8").split("\n")
    numbered = ((i, line.removesuffix("\r")) for i, line in enumerate(lines, start=1))
    return [Document(f"{what}, line {i}", line, len(line)) for i, line in numbered if line.strip()]
