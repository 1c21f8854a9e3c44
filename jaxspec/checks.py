"""Arguments of decoding and of its measurement, checked on the host before anything compiles or runs.

XLA has no errors for values: a token id beyond the vocabulary reads the nearest row, a negative one counts from the end, a
temperature of 0 divides by it. All public functions that decode or measure call the same checks, so that the same mistake
gets the same line from each.

Shapes and types are checked always. Values are read only where they are on the host's side of a computation: traced values
(under `jit`, `vmap`, `grad`) and arrays that are spread over several hosts have none to read. Whoever traces these functions
answers for the values, and the docstrings say what comes of wrong ones. An array that is still being computed is waited for;
prompts, lengths and temperatures are small, and parameters are never read.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

__all__ = [
    "LEAST_TEMPERATURE",
    "check_count",
    "check_draft_vocabulary",
    "check_key",
    "check_lengths",
    "check_network",
    "check_prompt_ids",
    "check_sampling",
    "check_sizes",
    "check_stop",
    "check_temperature",
    "check_tokens",
    "check_traced_count",
    "known_value",
]

#: Logits of any network, divided by it, stay finite in float32.
LEAST_TEMPERATURE = 1e-30


def known_value(value: Any) -> np.ndarray | None:
    """The value of an array or a number; None where there is none to read: it is traced, or lies on other hosts too."""
    if isinstance(value, Tracer):
        return None
    if isinstance(value, jax.Array) and not value.is_fully_addressable:
        return None
    return np.asarray(value)


def check_count(name: str, value: Any, *, least: int = 1, most: int | None = None) -> None:
    """A static whole number within bounds.

    Raises:
        ValueError: another kind of value, or one out of bounds.
    """
    allowed = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} is {_shown(value)}; it must be {allowed}")
    if value < least or (most is not None and value > most):
        raise ValueError(f"{name} is {value}; it must be {allowed}")


def check_traced_count(name: str, value: Any, *, least: int, most: int) -> None:
    """A whole number within bounds that may be traced: then only its shape and type are checked.

    Raises:
        ValueError: no single whole number, or one out of bounds.
    """
    shape, dtype = _form(name, value)
    if shape != () or not _whole(dtype):
        raise ValueError(
            f"{name} has shape {shape} and type {dtype}; it must be one whole number from {least} to {most}: use vmap for "
            "several"
        )
    known = known_value(value)
    if known is not None:
        check_count(name, int(known), least=least, most=most)


def check_sizes(*, num_tokens: Any, room: Any, width: Any | None = None) -> None:
    """The static sizes of a decoding loop.

    Raises:
        ValueError: one that is no whole number of at least 1, or more tokens than room.
    """
    check_count("num_tokens", num_tokens)
    check_count("room", room)
    if width is not None:
        check_count("width", width)
    if num_tokens > room:
        raise ValueError(f"{num_tokens} tokens do not fit in room for {room}; give at least as much room")


def check_tokens(name: str, tokens: Any, *, vocab_size: int, least: int = 1) -> tuple[int, int]:
    """A batch of texts of one length, as token ids.

    Args:
        least: tokens that each text must have.
    Returns:
        batch, tokens of a text.
    Raises:
        ValueError: no array of whole numbers of two axes, no text, texts that are too short, an id outside the vocabulary.
    """
    shape, dtype = _form(name, tokens)
    if len(shape) != 2 or shape[0] < 1 or shape[1] < least:
        raise ValueError(
            f"{name} have shape {shape}; give a batch of one or more texts of one length, {least} or more tokens each"
        )
    if not _whole(dtype):
        raise ValueError(f"{name} have type {dtype}; token ids are whole numbers: convert them to int32")
    known = known_value(tokens)
    if known is not None:
        outside = (known < 0) | (known >= vocab_size)
        if np.any(outside):
            row, place = (int(axis[0]) for axis in np.nonzero(outside))
            raise ValueError(
                f"{name}[{row}, {place}] is {known[row, place]}; a vocabulary of {vocab_size} has token ids 0 to "
                f"{vocab_size - 1}: use the tokenizer of this network"
            )
    return shape[0], shape[1]


def check_prompt_ids(prompt_ids: Any, batch: int) -> None:
    """One name per prompt.

    Raises:
        ValueError: another number of them, or something else than whole numbers that 32 bits hold.
    """
    shape, dtype = _form("prompt_ids", prompt_ids)
    if shape != (batch,) or not _whole(dtype):
        raise ValueError(
            f"prompt_ids have shape {shape} and type {dtype}; {batch} prompts need as many whole numbers, ({batch},)"
        )
    known = known_value(prompt_ids)
    # Random keys take 32 bits: ids that differ in higher ones would draw alike.
    if known is not None and np.any((known < -(2**31)) | (known >= 2**31)):
        raise ValueError(
            f"prompt_ids reach from {known.min()} to {known.max()}; they must fit in 32 bits: renumber them"
        )


def check_lengths(lengths: Any, batch: int, places: int) -> None:
    """Lengths of texts that begin at place 0; None: all have as many tokens as there are places.

    Raises:
        ValueError: another number of them, something else than whole numbers, or one that is not 1 to `places`.
    """
    if lengths is None:
        return
    shape, dtype = _form("lengths", lengths)
    if shape != (batch,) or not _whole(dtype):
        raise ValueError(
            f"lengths have shape {shape} and type {dtype}; {batch} prompts need as many whole numbers, ({batch},)"
        )
    known = known_value(lengths)
    if known is not None and np.any((known < 1) | (known > places)):
        raise ValueError(
            f"lengths reach from {known.min()} to {known.max()}; prompts of {places} places allow 1 to {places}"
        )


def check_stop(stop: Any) -> None:
    """Tokens that end a text; ids beyond the vocabulary never come. None: there are none.

    Raises:
        ValueError: no array of whole numbers with one axis.
    """
    if stop is None:
        return
    shape, dtype = _form("stop", stop)
    if len(shape) != 1 or not _whole(dtype):
        raise ValueError(f"stop has shape {shape} and type {dtype}; give an array of token ids with one axis")


def check_temperature(temperature: Any, greedy: Any) -> None:
    """The temperature of decoding; greedy decoding ignores its value.

    Raises:
        ValueError: no single number, one that is not finite, or (when sampling) one that is not above 0.
    """
    if not isinstance(greedy, bool | np.bool_):
        raise ValueError(f"greedy is {_shown(greedy)}; it must be True or False")
    shape, dtype = _form("temperature", temperature)
    number = jnp.issubdtype(dtype, np.floating) or (isinstance(temperature, int) and _whole(dtype))
    if shape != () or not number:
        raise ValueError(
            f"temperature has shape {shape} and type {dtype}; it must be one floating-point number: use vmap for several"
        )
    known = None if greedy else known_value(temperature)
    if known is not None and not LEAST_TEMPERATURE <= float(known) < math.inf:
        raise ValueError(
            f"temperature is {float(known)}; sampling needs a finite number of at least {LEAST_TEMPERATURE:g}: for the "
            "likeliest token use greedy=True"
        )


def check_sampling(decoding: Any) -> None:
    """Settings of decoding (`jaxspec.speculate.Decoding`); greedy decoding ignores all numbers.

    Raises:
        ValueError: a temperature that `check_temperature` refuses, a top_k that is no whole number of at least 0, or a top_p
            that is not above 0 and at most 1.
    """
    check_temperature(decoding.temperature, decoding.greedy)
    if decoding.greedy:
        return
    if decoding.top_k is not None:
        shape, dtype = _form("top_k", decoding.top_k)
        known = known_value(decoding.top_k)
        if shape != () or not _whole(dtype) or (known is not None and known < 0):
            raise ValueError(
                f"top_k is {_shown(decoding.top_k)}; it must be one whole number of at least 0 (0: all tokens)"
            )
    if decoding.top_p is not None:
        shape, dtype = _form("top_p", decoding.top_p)
        known = known_value(decoding.top_p)
        number = jnp.issubdtype(dtype, np.floating) or _whole(dtype)
        if shape != () or not number or (known is not None and not 0 < float(known) <= 1):
            raise ValueError(
                f"top_p is {_shown(decoding.top_p)}; it must be one number above 0 and at most 1 (1: all tokens)"
            )


def check_key(seed: Any) -> None:
    """One typed random key.

    Raises:
        ValueError: anything else, as a whole number or a raw pair of them.
    """
    dtype = getattr(seed, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key) or seed.shape != ():
        raise ValueError(f"seed is {_shown(seed)}; it must be one typed key: make it with jax.random.key(number)")


def check_network(params: Any, *, vocab_size: int, hidden_size: int) -> None:
    """Parameters belong to a configuration: the embedding tells one network from another.

    Raises:
        ValueError: an embedding of another shape.
    """
    shape = params["embed"].shape
    if shape != (vocab_size, hidden_size):
        raise ValueError(
            f"the parameters' embedding has shape {shape}; the configuration needs ({vocab_size}, {hidden_size}): pass "
            "both from one network"
        )


def check_draft_vocabulary(draft_vocab: int, vocab_size: int) -> None:
    """A draft proposes the target's tokens.

    Raises:
        ValueError: another vocabulary.
    """
    if draft_vocab != vocab_size:
        raise ValueError(
            f"the draft has a vocabulary of {draft_vocab}, the target one of {vocab_size}; they must be the same tokens: use "
            "a draft that was made for this target"
        )


def _form(name: str, value: Any) -> tuple[tuple[int, ...], Any]:
    """Shape and type of an array or a number."""
    if isinstance(value, bool | int | float):
        return (), np.asarray(value).dtype
    if not hasattr(value, "dtype"):
        raise ValueError(f"{name} is {_shown(value)}; give an array: np.asarray makes one")
    return tuple(value.shape), value.dtype


def _whole(dtype: Any) -> bool:
    return bool(jnp.issubdtype(dtype, np.integer))


def _shown(value: Any) -> str:
    """A value on one line, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
