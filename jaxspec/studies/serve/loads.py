"""Which rates are served, and which draft length is best for a batch."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels.serving.requests import Requests
from hwmodels.serving.step_table import StepTable, step_seconds
from jaxspec.studies.serve.config import ServeConfig

__all__ = ["DECODING", "best_lengths", "count_of_rates", "longest_request", "rates_of"]

#: Ways to decode: without a draft, one of fixed length, and the best length for the batch at hand.
DECODING = ("autoregressive", "fixed", "by_batch")

#: Of what a full engine does without a draft.
_SHARES = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1])


def longest_request(requests: Requests) -> float:
    """Tokens of the longest request, prompt and output."""
    return float(jnp.max(requests.prompt_tokens + requests.output_tokens))


def _mean_context(requests: Requests) -> float:
    """Of a sequence while it generates, roughly: its prompt and half of its output."""
    return float(jnp.mean(requests.prompt_tokens + requests.output_tokens / 2))


def best_lengths(table: StepTable, conditional: np.ndarray, requests: Requests) -> np.ndarray:
    """Draft length with the most tokens per second for 0, 1, 2, ... sequences at the mean context, "batch".

    With none that generates, the longest of them: its network reads the prompts.
    """
    count = table.seconds.shape[0]
    lengths, batches = np.meshgrid(np.arange(count), np.arange(1, table.seconds.shape[1]), indexing="ij")
    context = _mean_context(requests)
    at = jax.vmap(lambda length, batch: step_seconds(table, length, batch, context, 0.0))
    seconds = np.asarray(at(jnp.asarray(lengths.reshape(-1)), jnp.asarray(batches.reshape(-1)))).reshape(lengths.shape)
    tokens = 1.0 + np.concatenate([[0.0], np.cumsum(np.cumprod(conditional))])[:count]
    found = np.argmax(tokens[:, None] / seconds, axis=0)
    return np.concatenate([[found.max()], found])


def count_of_rates(config: ServeConfig) -> int:
    """How many rates are served."""
    if config.rates is not None:
        return len(config.rates)
    return 1 if config.trace is not None else len(_SHARES)


def rates_of(
    config: ServeConfig, table: StepTable, requests: Requests, capacity_tokens: float, sequence_tokens: float
) -> np.ndarray:
    """The rates that are served, "rate": those of the configuration, the trace's own, or shares of a full engine's."""
    if config.rates is not None:
        return np.array(config.rates)
    if config.trace is not None:
        arrival = np.asarray(requests.arrival_s)
        return np.array([(len(arrival) - 1) / (arrival[-1] - arrival[0])])
    mean = float(jnp.mean(requests.prompt_tokens) + jnp.mean(requests.output_tokens))
    batch = int(max(1, min(config.max_batch, capacity_tokens // (mean + sequence_tokens))))
    return _default_rates(table, requests, batch, config.chunk_tokens)


def _default_rates(table: StepTable, requests: Requests, batch: int, chunk_tokens: int) -> np.ndarray:
    """Shares of the requests per second that a full engine, of so many sequences, finishes without a draft, "rate"."""
    prompt, output = (float(jnp.mean(tokens)) for tokens in (requests.prompt_tokens, requests.output_tokens))
    # As many requests end in a step as begin, and their prompts share the step's chunk.
    ending = min(batch / output, chunk_tokens / prompt)
    length, slots = jnp.zeros((), jnp.int32), jnp.asarray(batch)
    seconds = float(step_seconds(table, length, slots, _mean_context(requests), ending * prompt))
    return _SHARES * ending / seconds
