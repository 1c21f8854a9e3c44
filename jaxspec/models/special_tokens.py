"""Tokens that mean something to a checkpoint: which end a text, and what those that templates write are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxspec.errors import InputError
from jaxspec.models.beside_weights import json_beside

__all__ = ["end_tokens", "special_texts"]

#: Names under which templates ask for special tokens.
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def end_tokens(place: Path, *, vocab_size: int) -> tuple[int, ...]:
    """Ids after which the checkpoint's own settings end a text, rising; none where it names none.

    Args:
        place: directory or container.
    Raises:
        InputError: `eos_token_id` is no token id, nor a list of them.
    Source: `eos_token_id` of generation_config.json, else of config.json, else of its text decoder's part, as `transformers`
        takes it.
    """
    for name in ("generation_config.json", "config.json"):
        found = json_beside(place, name)
        value, nested = found.get("eos_token_id"), found.get("text_config")
        if value is None and isinstance(nested, dict):
            value = nested.get("eos_token_id")
        if value is not None:
            ids = value if isinstance(value, list) else [value]
            if any(type(token) is not int or not 0 <= token < vocab_size for token in ids):
                raise InputError(
                    f"{place / name} has eos_token_id {value!r}; allowed are token ids from 0 to {vocab_size - 1}: fix the file"
                )
            return tuple(sorted(set(ids)))
    return ()


def special_texts(place: Path) -> dict[str, str]:
    """Texts of the special tokens by name, as templates ask for them: of tokenizer_config.json, else special_tokens_map.json.

    Raises:
        InputError: a file that is no JSON object.
    """
    files = [json_beside(place, name) for name in ("special_tokens_map.json", "tokenizer_config.json")]
    found = {name: _text(file[name]) for file in files for name in _NAMES if name in file}
    return {name: text for name, text in found.items() if text is not None}


def _text(token: Any) -> str | None:
    """A token's text, which may stand in an object beside its settings."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None
