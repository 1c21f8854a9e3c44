"""Many samples of one prompt, in batches of one width, so that a sample does not depend on how many are asked for."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from jaxspec.checks import check_count, check_key, check_network, check_sampling, check_stop, check_tokens
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.mesh import on_host
from jaxspec.scaling.branches import Branches, grow, started
from jaxspec.speculate.proof import check_logits
from jaxspec.speculate.sampling import SAMPLING, Decoding

__all__ = ["PROMPT_STEP", "WIDTH", "Samples", "check_settings", "padded_prompt", "sample_continuations", "token_ids"]

#: Samples that grow together. The last digits of logits depend on it, on CPUs and GPUs alike.
WIDTH = 16

#: Prompts are padded to multiples of so many tokens, so that few lengths are compiled.
PROMPT_STEP = 64


class Samples(NamedTuple):
    """Continuations of one prompt, on the host.

    Attributes:
        tokens: what was generated; 0 behind `length`.
        length: tokens generated, a stop token included.
        stopped: whether it ended with a stop token.
        log_prob: of each token under the distribution that it was drawn from; 0 behind `length`.
    """

    tokens: Int[np.ndarray, "sample place"]
    length: Int[np.ndarray, " sample"]
    stopped: Bool[np.ndarray, " sample"]
    log_prob: Float[np.ndarray, "sample place"]

    def texts(self) -> list[Int[np.ndarray, " token"]]:
        """The tokens of each sample, without padding."""
        return [row[:length] for row, length in zip(self.tokens, self.length, strict=True)]


def sample_continuations(
    params: Params,
    config: DecoderConfig,
    prompt: Int[np.ndarray, " token"],
    *,
    samples: int,
    num_tokens: int,
    seed: Key[Array, ""],
    prompt_id: int = 0,
    decoding: Decoding = SAMPLING,
    stop: Int[np.ndarray, " stop"] | None = None,
    width: int = WIDTH,
) -> Samples:
    """Sample continuations of one prompt, `width` at a time, over one copy of the prompt's KV.

    Sample i is the same whatever `samples` is: it stands at place i modulo `width` of a batch of one size, and its random
    numbers are made of (seed, prompt, i, position).

    Args:
        prompt: token ids, one or more.
        num_tokens: most tokens of each.
        prompt_id: names the prompt in random keys, as for `decode`.
        stop: tokens that end a sample; None: none does.
        width: samples that grow together; static.
    Raises:
        ValueError: a count below 1, a token outside the vocabulary, or settings of decoding out of their range.
        InputError: the network's logits are no numbers.
    """
    for name, value in (("samples", samples), ("num_tokens", num_tokens), ("width", width)):
        check_count(name, value)
    check_settings(params, config, seed, decoding, stop)
    places, length = padded_prompt(prompt, config)
    settings = (seed, jnp.asarray(prompt_id), decoding.for_program(), jnp.asarray(num_tokens))
    nothing, ends = token_ids(None), token_ids(stop)
    parts: list[Branches] = []
    for first in range(0, samples, width):
        number = first + jnp.arange(width)
        branches = started(params, places, length, number, config=config, room=num_tokens)
        parts.append(grow(params, branches, *settings, nothing, ends, config=config))
    of = lambda name: np.concatenate([np.asarray(on_host(getattr(part, name))) for part in parts])[:samples]
    check_logits(log_prob := of("log_prob"))
    return Samples(tokens=of("tokens"), length=of("length"), stopped=of("ended"), log_prob=log_prob)


def check_settings(
    params: Params,
    config: DecoderConfig,
    seed: Key[Array, ""],
    decoding: Decoding,
    *token_sets: Int[np.ndarray, " _"] | None,
) -> None:
    """Check what samples and beams have in common.

    Args:
        token_sets: tokens that end something.
    Raises:
        ValueError: see `jaxspec.checks`.
    """
    check_network(params, vocab_size=config.vocab_size, hidden_size=config.hidden_size)
    check_key(seed)
    check_sampling(decoding)
    for tokens in token_sets:
        check_stop(tokens)


def token_ids(tokens: Int[np.ndarray, " token"] | None) -> Int[Array, " token"]:
    """Token ids as an array; None: there are none."""
    return jnp.zeros(0, jnp.int32) if tokens is None else jnp.asarray(tokens, jnp.int32)


def padded_prompt(
    prompt: Int[np.ndarray, " token"], config: DecoderConfig
) -> tuple[Int[Array, " place"], Int[Array, ""]]:
    """A prompt padded to a multiple of `PROMPT_STEP`, and its length.

    Raises:
        ValueError: no token, or one outside the vocabulary.
    """
    prompt = np.asarray(prompt)
    check_tokens("prompt", prompt[None], vocab_size=config.vocab_size)
    places = -(-len(prompt) // PROMPT_STEP) * PROMPT_STEP
    return jnp.asarray(np.pad(prompt.astype(np.int32), (0, places - len(prompt)))), jnp.asarray(len(prompt))
