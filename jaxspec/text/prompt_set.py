"""Prompts of a user's own: a text file with one prompt per line, or JSON lines.

Prompts that stand in a text: acceptance on text that drafts know is not that on new text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt64

from jaxspec.errors import InputError
from jaxspec.text.documents import Document, Encoder, check_plain, is_json_lines, parse_documents, read_text_file

__all__ = ["MAX_PROMPTS", "PromptSet", "num_within", "read_prompts"]

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
    prompts = [encoder.encode(document, as_prompt=True) for document in documents]
    for document, tokens in zip(documents, prompts, strict=True):
        if not len(tokens):
            made = "" if isinstance(document.content, str) else ", as the chat template writes it"
            raise InputError(f"{document.where} has no token{made}; give a longer prompt, or leave the line out")
    return PromptSet(prompts, tuple(document.category for document in documents))


def _lines(data: bytes, what: str) -> list[Document]:
    lines = data.decode("utf-8").split("\n")
    numbered = ((i, line.removesuffix("\r")) for i, line in enumerate(lines, start=1))
    return [Document(f"{what}, line {i}", line, len(line)) for i, line in numbered if line.strip()]


#: Tokens without which a prompt may stand in any text.
_LEAST_SEARCHED = 8

#: Of a polynomial modulo 2^64; odd, so that no token is lost.
_MULTIPLIER = 0x9E3779B97F4A7C15


def num_within(prompts: Sequence[Int[np.ndarray, " token"]], text: Int[np.ndarray, " token"]) -> int:
    """How many prompts stand in a text, word for word.

    The first and the last token are not compared, as they may be other ones next to other text. Prompts that are short
    without them are not counted.
    """
    by_size: dict[int, list[np.ndarray]] = {}
    for prompt in (prompt[1:-1] for prompt in prompts if len(prompt) >= _LEAST_SEARCHED + 2):
        if len(prompt) <= len(text):
            by_size.setdefault(1 << (len(prompt).bit_length() - 1), []).append(prompt)
    return sum(_num_beginning(some, text, size) for size, some in by_size.items())


def _num_beginning(prompts: Sequence[Int[np.ndarray, " token"]], text: Int[np.ndarray, " token"], size: int) -> int:
    """How many prompts stand in a text as a whole; all have so many tokens or more."""
    wanted = np.array([_keys(prompt[:size], size)[0] for prompt in prompts])
    keys = _keys(text, size)
    (places,) = np.nonzero(np.isin(keys, wanted))
    places = places[np.argsort(keys[places], kind="stable")]
    begin, end = (np.searchsorted(keys[places], wanted, side) for side in ("left", "right"))
    return sum(
        _stands_at(prompt, text, places[first:last]) for prompt, first, last in zip(prompts, begin, end, strict=True)
    )


def _keys(tokens: Int[np.ndarray, " token"], size: int) -> UInt64[np.ndarray, " place"]:
    """A number for each place that has so many tokens (a power of two) from it on: equal for equal tokens, seldom otherwise."""
    keys, width, power = tokens.astype(np.uint64), 1, _MULTIPLIER
    while width < size:
        keys = keys[:-width] * np.uint64(power) + keys[width:]
        width, power = 2 * width, power * power % 2**64
    return keys


def _stands_at(
    prompt: Int[np.ndarray, " token"], text: Int[np.ndarray, " place"], places: Int[np.ndarray, " some"]
) -> bool:
    """Whether a prompt stands at one of these places, of which there may be many in a text that repeats itself."""
    places = places[places + len(prompt) <= len(text)]
    for offset, token in enumerate(prompt):
        if len(places) <= 1:
            break
        places = places[text[places + offset] == token]
    return any(np.array_equal(text[place : place + len(prompt)], prompt) for place in places[:1])
