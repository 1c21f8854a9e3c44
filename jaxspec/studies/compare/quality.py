"""What a changed network makes of held-out prompts: bits per byte, and agreement with the 16-bit network's next token."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxspec.compress.fitted import CalibrationSample
from jaxspec.compress.kv import stored_kv
from jaxspec.compress.weights import sum_of_squares
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.integer_kv import plane_partners
from jaxspec.models.mesh import filled_rows, mesh_of, on_host, split_rows
from jaxspec.results import measured
from jaxspec.runs.stages import Arrays
from jaxspec.speculate.chunks import prompt_chunks
from jaxspec.studies.compare.result import Quality
from jaxspec.trees.text_ratios import ratio_of_totals

__all__ = ["calibration_sample", "channel_norms", "quality_of", "read_prompts_with"]

#: Rows of calibration text that a space for inputs is found with.
_SAMPLE = 128


def read_prompts_with(
    params: Params, config: DecoderConfig, prompts: Int[np.ndarray, "prompt token"], advance: Callable[[], None]
) -> Arrays:
    """Nats of each token of the prompts but the first, and the likeliest token in its place; "prompt place".

    Args:
        config: with the form in which the network keeps its KV cache.
        advance: called after each chunk of prompts.
    """
    parts: dict[str, list[np.ndarray]] = {"nats": [], "likeliest": []}
    for chunk in prompt_chunks(prompts, mesh_of(params)):
        nats, likeliest = on_host(_read(params, config, *split_rows(params, chunk.prompts)))
        parts["nats"].append(np.asarray(nats)[: chunk.real])
        parts["likeliest"].append(np.asarray(likeliest)[: chunk.real])
        advance()
    return {name: np.concatenate(found) for name, found in parts.items()}


@partial(jax.jit, static_argnames="config")
def _read(
    params: Params, config: DecoderConfig, tokens: Int[Array, "batch token"]
) -> tuple[Float[Array, "batch place"], Int[Array, "batch place"]]:
    # A prompt of one token has nothing to predict, and a pass needs a token.
    logits = forward_text(params, config, tokens, kv_codec=stored_kv(config)).logits[:, :-1]
    own = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)[..., 0]
    return -own, jnp.argmax(logits, axis=-1)


def quality_of(
    found: Arrays, plain: Arrays, lengths: Int[np.ndarray, " prompt"], num_bytes: Int[np.ndarray, " prompt"]
) -> Quality:
    """Bits per byte and agreement, with standard errors over prompts; unknown where prompts have a single token.

    Args:
        found, plain: from `read_prompts_with`, of the network and of the 16-bit one.
        lengths: tokens of each prompt; what stands behind them is padding.
        num_bytes: of all tokens of each prompt but the first.
    """
    there = np.arange(1, found["nats"].shape[1] + 1) < np.asarray(lengths)[:, None]
    if not there.any():
        return Quality()
    bits = np.sum(found["nats"].astype(np.float64) * there, axis=1) / math.log(2)
    same = np.sum((found["likeliest"] == plain["likeliest"]) & there, axis=1)
    per_byte = ratio_of_totals(bits, num_bytes.astype(np.float64))
    agreement = ratio_of_totals(same.astype(np.float64), there.sum(axis=1).astype(np.float64))
    return Quality(
        bits_per_byte=measured(float(per_byte.mean), float(per_byte.standard_error)),
        agreement=measured(float(agreement.mean), float(agreement.standard_error)),
    )


def channel_norms(
    params: Params, config: DecoderConfig, texts: Int[np.ndarray, "text token"], advance: Callable[[], None]
) -> dict[str, Float[np.ndarray, "layer column"]]:
    """L2 norm of what flows through each input channel over texts, by input group (see `INPUT_OF`); `advance` as above."""
    squares: dict[str, Any] = {}
    for chunk in prompt_chunks(texts):
        # A chunk is filled up with further copies of texts, which do not count.
        tokens, counted = filled_rows(mesh_of(params), chunk.prompts[: chunk.real])
        given = split_rows(params, tokens, *(() if counted is None else (counted,)))
        found = on_host(_squares(params, config, *given))
        squares = {name: squares.get(name, 0.0) + np.asarray(value, np.float64) for name, value in found.items()}
        advance()
    return {name: np.sqrt(value).astype(np.float32) for name, value in squares.items()}


@partial(jax.jit, static_argnames="config")
def _squares(
    params: Params,
    config: DecoderConfig,
    tokens: Int[Array, "batch token"],
    counted: Float[Array, " batch"] | None = None,
) -> dict[str, Array]:
    squares = partial(sum_of_squares, counted=counted)
    options = {"kv_codec": stored_kv(config), "keep_activations": squares, "logits_from": tokens.shape[1]}
    found = forward_text(params, config, tokens, **options).activations
    assert found is not None
    return found


def calibration_sample(
    params: Params, config: DecoderConfig, texts: Int[np.ndarray, "text token"]
) -> CalibrationSample:
    """Rows at even distances out of the first texts, as many as are read together, and the largest sizes of their keys.

    Args:
        config: of a network without latent attention.
    """
    first = prompt_chunks(texts)[0]
    (tokens,) = split_rows(params, filled_rows(mesh_of(params), first.prompts[: first.real])[0])
    inputs, largest = on_host(_sampled(params, config, tokens, first.real))
    return CalibrationSample(inputs, np.maximum(largest, largest[..., plane_partners(config)]))


@partial(jax.jit, static_argnames=("config", "texts"))
def _sampled(
    params: Params, config: DecoderConfig, tokens: Int[Array, "batch token"], texts: int
) -> tuple[dict[str, Array], Float[Array, "layer head element"]]:
    # Behind so many texts stand copies of the last one, which change no largest key.
    def rows(inputs: Array) -> Array:
        found = inputs[:texts].reshape(-1, inputs.shape[-1])  # of experts as many for each token as it chooses
        places = np.linspace(0, len(found) - 1, min(_SAMPLE, len(found))).astype(np.int32)
        return found[places].astype(jnp.float32)

    options = {"kv_codec": stored_kv(config), "keep_activations": rows, "logits_from": tokens.shape[1]}
    found = forward_text(params, config, tokens, **options)
    assert found.activations is not None
    return found.activations, jnp.max(jnp.abs(found.cache.key), axis=(1, 4)).astype(jnp.float32)
