"""The text decoder's part of a parsed config.json, where it describes a network that sees as well as reads."""

from __future__ import annotations

from typing import Any

from hwmodels.catalog.huggingface import family_called, nested_text, wrapper_of

__all__ = ["STATED", "text_config"]

#: Sizes that a release of a text decoder states: such a file without them is taken for damaged, whatever its family's defaults.
STATED = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")

#: What the whole network's file says of its decoder beside the head.
_OF_THE_WHOLE = ("quantization_config", "bos_token_id", "eos_token_id", "pad_token_id")


def text_config(raw: dict[str, Any]) -> dict[str, Any]:
    """The config.json that a checkpoint of the text decoder alone would have; a decoder's own is returned as it is.

    A `text_config` states what differs from its family's defaults, sizes too, and so they are filled in.

    Raises:
        ValueError: `text_config` is missing, or is no object.
    """
    wrapper = wrapper_of(raw)
    if wrapper is None:
        return raw
    nested = raw.get("text_config")
    if not isinstance(nested, dict):
        raise ValueError(f"text_config is {nested!r}; {wrapper.name} needs an object that describes its text decoder")
    found = nested_text(raw, nested, *_OF_THE_WHOLE)
    family = family_called(found["model_type"])
    if family is None:
        return found
    known = {key for key in STATED if any(name in found for name in (key, *family.spellings.get(key, ())))}
    return {key: family.defaults[key] for key in STATED if key not in known} | found
