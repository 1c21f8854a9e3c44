"""Scores of a trained network on held-out text: bits per byte, and how its routers spread the tokens."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Float

from experiments.train_embedded.balance import expert_load
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text

__all__ = ["bits_per_byte", "router_load"]


def bits_per_byte(
    params: Params,
    text: np.ndarray,
    *,
    window: int = 512,
    stride: int = 256,
    batch: int = 16,
    config: DecoderConfig,
) -> float:
    """Held-out cross-entropy of `text`, in bits per byte, float32.

    Windows overlap: each byte is scored once, with at least window − stride bytes of context (but for the first ones).
    """
    starts = np.arange(0, text.size - 1, stride)
    padded = np.pad(text.astype(np.int32), (window - stride, window + 1))
    # Row r scores the `stride` bytes that follow its start; what stands before them is context.
    rows = np.stack([padded[s : s + window + 1] for s in starts])
    scored = np.stack([(s + 1 + np.arange(stride)) < text.size for s in starts])

    @jax.jit
    def nats(params, rows, scored):
        logits = forward_text(params, config, rows[:, :-1]).logits[:, -stride:]
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:][:, -stride:])
        return jnp.sum(jnp.where(scored, loss, 0.0))

    missing = -len(rows) % batch
    rows = np.concatenate([rows, np.zeros((missing, window + 1), np.int32)])
    scored = np.concatenate([scored, np.zeros((missing, stride), bool)])
    chunks = range(0, len(rows), batch)
    total = sum(float(nats(params, rows[i : i + batch], scored[i : i + batch])) for i in chunks)
    return total / math.log(2) / (text.size - 1)


def router_load(
    params: Params, text: np.ndarray, *, config: DecoderConfig, window: int = 512, batch: int = 16
) -> Float[np.ndarray, "layer expert"]:
    """Share of the tokens of `text` that go through each expert, float32; of the layers that have a router.

    The text is cut into windows; what remains at its end, less than `batch` of them, is left out.

    Raises:
        ValueError: a dense network, or a text too short for one batch.
    """
    if config.experts is None:
        raise ValueError("the network has no router; give a mixture of experts")
    rounds = text.size // (window * batch)
    if rounds == 0:
        raise ValueError(f"the text has {text.size} bytes; it must have at least {window * batch}")
    rows = text[: rounds * window * batch].astype(np.int32).reshape(rounds, batch, window)
    experts = config.experts.num_experts

    @jax.jit
    def of_rows(params, rows):
        result = forward_text(params, config, rows, logits_from=window)
        assert result.extras is not None
        return expert_load(result.extras.original, experts)

    return np.mean([of_rows(params, part) for part in rows], axis=0)
