"""Tokens after which a prompt's decoding ends: the model's own, or those that a user names."""

from __future__ import annotations

from pathlib import Path

from jaxspec.errors import InputError
from jaxspec.models.special_tokens import end_tokens
from jaxspec.models.tokenizer import Tokenizer
from jaxspec.settings import CommonConfig
from jaxspec.settings.common import NO_STOP, OWN_STOP

__all__ = ["stop_tokens"]


def stop_tokens(config: CommonConfig, place: Path, tokenizer: Tokenizer, vocab_size: int) -> tuple[int, ...]:
    """Ids of the tokens after which a held-out prompt ends, rising; none: all are decoded to the same length.

    Args:
        place: directory or container of the network.
    Raises:
        InputError: a name that is no token, or the model's own where it has none.
    """
    if config.stop is None:
        return end_tokens(place, vocab_size=vocab_size) if config.own_prompts else ()
    if NO_STOP in config.stop:
        return ()
    found: set[int] = set()
    for name in config.stop:
        if name == OWN_STOP:
            own = end_tokens(place, vocab_size=vocab_size)
            if not own:
                raise InputError(
                    f"stop {name!r} came, and neither generation_config.json nor config.json of {config.model!r} has "
                    "eos_token_id; name tokens or ids instead"
                )
            found |= set(own)
            continue
        token = int(name) if name.isdecimal() and len(name) < 10 else tokenizer.token_id(name)
        if token is None or token >= vocab_size:
            raise InputError(
                f"stop {name!r} is no token of {config.model!r}; allowed are {OWN_STOP}, {NO_STOP}, texts of single tokens, "
                f"and ids from 0 to {vocab_size - 1}"
            )
        found.add(token)
    return tuple(sorted(found))
