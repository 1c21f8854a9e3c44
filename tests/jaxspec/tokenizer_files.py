"""Contents of tokenizer.json files of other kinds than bytes in their order."""

from __future__ import annotations

from typing import Any

from experiments.random_checkpoint import _byte_tokenizer

__all__ = ["bytes_in_order", "bytes_turned", "spaced"]

_SPACE = "▁"

#: Of `spaced`, behind its begin-of-text token.
_CHARACTERS = f"{_SPACE}\nabcdefghijklmnopqrstuvwxyz_()=:,0123456789"


def spaced() -> dict[str, Any]:
    """One token for each character, spaces as letters, in the manner of Llama 2, Mistral and Phi-3: a space is put before a
    text, and taken away from what is decoded.
    """
    begin = {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE}
    back = {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "}
    strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
    vocabulary = {"<s>": 0} | {character: number for number, character in enumerate(_CHARACTERS, start=1)}
    return {
        "version": "1.0",
        "added_tokens": [begin | {"special": True}],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": _SPACE}, replace]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "Fuse"}, strip]},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }


def bytes_in_order() -> dict[str, Any]:
    """The 256 bytes, each by its number."""
    return _byte_tokenizer()


def bytes_turned() -> dict[str, Any]:
    """The 256 bytes, the last one first."""
    found = bytes_in_order()
    vocabulary = {letter: 255 - byte for letter, byte in found["model"]["vocab"].items()}
    return found | {"model": found["model"] | {"vocab": vocabulary}}
