"""Tokens that mean something to a checkpoint: which end a text, and what those that templates write are called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxspec.errors import InputError
from jaxspec.formats.container import SUFFIX, Container
from jaxspec.formats.shard_index import json_object
from jaxspec.models.config import DecoderConfig
from jaxspec.models.gguf import is_gguf, open_gguf
from jaxspec.models.matrix import stack_of
from jaxspec.models.norms import NORMS

__all__ = [
    "embed",
    "end_tokens",
    "head_input",
    "head_of",
    "json_beside",
    "read_beside",
    "special_texts",
    "unembed",
]

# Small files beside the weights of a checkpoint: in its directory, packed along in a container, or made of a GGUF file.


def read_beside(place: Path, name: str) -> bytes | None:
    """The content of a file beside the weights, None if there is none.

    Args:
        place: directory, container or GGUF file.
    Raises:
        InputError: the container is damaged, or the file cannot be read.
    """
    if str(place).endswith(SUFFIX) and place.is_file():
        with Container(place) as container:
            return container.read_file(name)
    if is_gguf(place):
        return open_gguf(place).beside.get(name)
    path = place / name
    try:
        return path.read_bytes() if path.is_file() else None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); check its permissions") from error


def json_beside(place: Path, name: str) -> dict[str, Any]:
    """The object in a JSON file beside the weights, an empty one if there is no such file.

    Raises:
        InputError: see `read_beside`; it holds something else than a JSON object.
    """
    content = read_beside(place, name)
    return {} if content is None else json_object(content, place / name)


# Both ends of a decoder network: what enters the first layer, and logits of what the last one puts out.


def embed(
    tokens: Int[Array, "batch token"],
    positions: Int[Array, "batch token"],
    params: Mapping[str, Any],
    config: DecoderConfig,
    dtype: Any = jnp.float32,
) -> Float[Array, "batch token hidden"]:
    """What enters the first layer: the tokens' embeddings, scaled, and where positions are learned, theirs.

    Args:
        params: only `embed` and `position_embed` are read.
    """
    x = stack_of(params["embed"]).take(tokens).values().astype(dtype)
    if config.embedding_scale != 1:
        x = x * config.embedding_scale
    if config.learned_positions is not None:
        x = x + stack_of(params["position_embed"]).take(positions + config.learned_positions.offset).values().astype(
            dtype
        )
    return x


def head_of(params: Mapping[str, Any]) -> Any:
    """The matrix that hidden states are multiplied by: a network's own head, or without one (tied) its embedding."""
    return params["lm_head"] if "lm_head" in params else params["embed"]


def head_input(
    hidden: Float[Array, "*b hidden"], params: Mapping[str, Any], config: DecoderConfig
) -> Float[Array, "*b hidden"]:
    """What the LM head multiplies: the final norm of what the last layer puts out."""
    return NORMS[config.norm].apply(hidden, params, "final_norm", config.norm_eps)


def unembed(
    hidden: Float[Array, "*b hidden"], params: Mapping[str, Any], config: DecoderConfig, dot_dtype: Any = None
) -> Float[Array, "*b vocab"]:
    """Logits of what the last layer puts out: final norm and LM head.

    Args:
        params: only `final_norm` (and its bias) and the head (see `head_of`) are read.
    """
    logits = stack_of(head_of(params)).dot(head_input(hidden, params, config), dot_dtype)
    if config.logit_divisor != 1:
        logits = logits / config.logit_divisor
    return logits if config.logit_cap is None else config.logit_cap * jnp.tanh(logits / config.logit_cap)


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
