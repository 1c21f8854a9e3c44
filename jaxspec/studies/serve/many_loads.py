"""The same requests at many rates: all ways to decode side by side, one rate after the other.

At a low rate an engine takes twenty times the steps of a full one. Rates that are mapped together wait for the longest; one
after the other they take a third of the time, and it can be told how far they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from hwmodels.serving.engine import Engine, Serving
from hwmodels.serving.latencies import Latencies, latencies
from hwmodels.serving.requests import Requests, with_rate
from hwmodels.serving.simulation import begin_serving, serve_further, served_so_far
from hwmodels.serving.step_table import StepTable

__all__ = ["serve_loads"]

#: Steps of the engines between two words about how far they are: about a second.
_STEPS = 4096


def serve_loads(
    requests: Requests,
    rates: np.ndarray,
    table: StepTable,
    sides: np.ndarray,
    engine: Engine,
    key: PRNGKeyArray,
    *,
    tell: Callable[[int, float], object],
) -> Latencies:
    """Latencies "side decoding rate", on the host.

    Args:
        requests: none needs more than the engine's capacity.
        rates: "rate", requests per second.
        sides: "side", by how many standard deviations all steps err.
        engine: its draft lengths are "decoding batch".
        tell: is told how many requests are served, all rates together, and the rate at hand.
    """
    count, found = requests.arrival_s.shape[-1], []
    parts = requests, table, jnp.asarray(sides), engine, key
    for place, rate in enumerate(map(float, rates)):
        at = jnp.asarray(rate, jnp.float32)
        state = _begun(requests, jnp.asarray(sides), engine)
        while (done := int(jnp.min(state.done))) < count:
            tell(place * count + done, rate)
            state = _further(state, at, *parts)
        found.append(jax.device_get(_seen(state, requests, at)))
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=2), *found)


@jax.jit
def _begun(requests: Requests, sides: Float[Array, " side"], engine: Engine) -> Serving:
    """Engines "side decoding"."""
    each = jax.vmap(lambda lengths: begin_serving(requests, dataclasses.replace(engine, draft_lengths=lengths)))
    return jax.vmap(lambda _: each(engine.draft_lengths))(sides)


@partial(jax.jit, donate_argnums=0)
def _further(
    states: Serving,
    rate: Float[Array, ""],
    requests: Requests,
    table: StepTable,
    sides: Float[Array, " side"],
    engine: Engine,
    key: PRNGKeyArray,
) -> Serving:
    arriving = with_rate(requests, rate)

    def one(state: Serving, side: Float[Array, ""], lengths: Array) -> Serving:
        follows = dataclasses.replace(engine, draft_lengths=lengths)
        return serve_further(state, arriving, table.erring(side), follows, key, steps=_STEPS)

    return jax.vmap(jax.vmap(one, (0, None, 0)), (0, 0, None))(states, sides, engine.draft_lengths)


@jax.jit
def _seen(states: Serving, requests: Requests, rate: Float[Array, ""]) -> Latencies:
    arriving = with_rate(requests, rate)
    return jax.vmap(jax.vmap(lambda state: latencies(arriving, served_so_far(state))))(states)
