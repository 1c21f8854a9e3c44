"""What is timed: pieces of a decoding step as the networks here run them, each in a loop of its own.

A step is one compiled program: its layers one after the other, or under a loop over stacked weights, and steps under a loop
over those. A product that is called by itself has launches and copies that a step has not, so each piece is timed within such
loops.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxspec.compress.kv import stored_kv
from jaxspec.models.apart import Apart, Columns, Parts, over_layers
from jaxspec.models.attention import KVSource, attend
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, causal_mask, forward
from jaxspec.models.decoding_programs import jit_decoding
from jaxspec.models.dots import dot_rows
from jaxspec.models.kv_cache import CachedKV, empty_cache, write_cache
from jaxspec.models.stored import Stored, dot_stored
from jaxspec.models.streamed import Stack
from jaxspec.speculate.sampling import GREEDY, token_distribution
from jaxspec.speculate.steps import slots_before, top_gap
from jaxspec.studies.calibrate.timing import Timed

__all__ = [
    "attention_program",
    "launch_program",
    "lookup_program",
    "product_program",
    "sampling_program",
    "step_program",
    "stream_program",
    "turn_program",
]

#: Matrices of a timed stack that are arrays of their own, at most: each is compiled by itself.
MOST_APART = 96

#: So little of a result goes back into the loop that nothing changes, and so much that nothing is left out.
_TRACE = 1e-30


def _noise(seed: int, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    # Made on the device, in the type that is kept: a stack of matrices is large.
    return jax.jit(lambda key: jax.random.normal(key, shape, dtype))(jax.random.key(seed))


def _turns(body: Any) -> Any:
    """A compiled loop of (turns, state, constants)."""
    return jit_decoding(lambda turns, state, fixed: jax.lax.fori_loop(0, turns, lambda _, x: body(x, fixed), state))


def product_program(rows: int, inner: int, outer: int, layers: int, weight_format: str) -> Timed:
    """Products of one activation by the matrices of a stack, in the format in which they are held.

    Few float32 matrices lie as those of a small network do (`jaxspec.models.apart`); more, and narrower ones, in a stack that a
    loop widens.
    """
    weights = _noise(1, (layers, outer, inner), jnp.dtype(weight_format))
    stack = Apart.of(weights) if weight_format == "float32" and layers <= MOST_APART else Stored.of(weights)

    def body(x: Array, stack: Stack) -> Array:
        def layer(x: Array, stored: Stack) -> tuple[Array, None]:
            # The barrier keeps the product whole, as a step has it: of one row, XLA would compute the column that is read.
            found = dot_stored(x, stored) if isinstance(stored, Columns) else dot_rows(x, stored.values())
            product = jax.lax.optimization_barrier(found)
            return x + product[:, :1] * _TRACE, None

        return over_layers(layer, x, stack, layers)[0]

    run, state = _turns(body), _noise(2, (rows, inner))
    return Timed(lambda turns: run(turns, state, stack), per_turn=layers)


def attention_program(
    *, batch: int, tokens: int, context: int, heads: int, kv_heads: int, head_dim: int, layers: int, apart: bool
) -> Timed:
    """Attention of new tokens over the cache of each layer, and over themselves.

    Args:
        apart: layers' keys and values lie as those of a small network do (`jaxspec.models.kv_cache`); else in a stack.
    """
    key = _noise(1, (layers, batch, kv_heads, head_dim, context))
    value = _noise(2, (layers, batch, kv_heads, context, head_dim))
    new_key, new_value = _noise(3, (batch, kv_heads, head_dim, tokens)), _noise(4, (batch, kv_heads, tokens, head_dim))
    length = jnp.full(batch, context, jnp.int32)

    def body(query: Array, fixed: Any) -> Array:
        key, value, new_key, new_value, length = fixed
        mask, own = slots_before(length, tokens, context), causal_mask(batch, tokens)

        def layer(query: Array, cached: tuple[Array, Array]) -> tuple[Array, None]:
            sources = [KVSource(cached[0], cached[1], mask), KVSource(new_key, new_value, own)]
            return query + attend(query, sources)[..., :1, None] * _TRACE, None

        return over_layers(layer, query, (key, value), layers)[0]

    run, state = _turns(body), _noise(5, (batch, tokens, heads, head_dim))
    cached = (Parts(tuple(key)), Parts(tuple(value))) if apart else (key, value)
    fixed = (*cached, new_key, new_value, length)
    return Timed(lambda turns: run(turns, state, fixed), per_turn=layers)


def step_program(params: Params, config: DecoderConfig, *, batch: int, tokens: int, context: int) -> Timed:
    """Whole steps of a network over `tokens` new tokens of each sequence, their tokens chosen, their KV written."""
    slots = context + tokens
    cache, length = empty_cache(config, batch, slots, params=params), jnp.full(batch, context, jnp.int32)
    start = jnp.zeros((batch, tokens), jnp.int32)

    def body(state: Any, fixed: Any) -> Any:
        params, length = fixed
        chosen, cache, margin = state
        found = forward(
            params,
            config,
            tokens=chosen,
            positions=length[:, None] + jnp.arange(tokens)[None],
            mask=causal_mask(batch, tokens),
            sources=[CachedKV(cache, slots_before(length, tokens, slots))],
            kv_codec=stored_kv(config),
        )
        probability = token_distribution(found.logits, GREEDY)
        margin = jnp.minimum(margin, jnp.min(top_gap(found.logits), axis=1))
        chosen = jnp.argmax(probability, axis=-1).astype(jnp.int32)
        return chosen, write_cache(cache, found.cache, length, after=found.hidden), margin

    run = _turns(body)
    return Timed(lambda turns: run(turns, (start, cache, jnp.full(batch, jnp.inf)), (params, length)))


def lookup_program(rows: int, vocab: int, hidden: int) -> Timed:
    """Rows of a table, by tokens that depend on the last ones."""
    table = _noise(1, (vocab, hidden))

    def body(tokens: Array, table: Array) -> Array:
        found = table[tokens]
        return (tokens + 1 + (jnp.max(found, axis=1) * _TRACE).astype(jnp.int32)) % vocab

    run, state = _turns(body), jnp.arange(rows, dtype=jnp.int32) % vocab
    return Timed(lambda turns: run(turns, state, table))


def sampling_program(rows: int, vocab: int) -> Timed:
    """Tokens of rows of logits, with the margin of each."""
    logits = _noise(1, (rows, vocab))

    def body(state: Array, logits: Array) -> Array:
        moved = logits + state[:, None] * _TRACE
        probability = token_distribution(moved, GREEDY)
        return top_gap(moved) + jnp.argmax(probability, axis=-1) * _TRACE

    run = _turns(body)
    return Timed(lambda turns: run(turns, jnp.zeros(rows), logits))


def stream_program(size_bytes: int) -> Timed:
    """A pass over an array: its sum, by all cores."""
    array = _noise(1, (max(1, size_bytes // 4096), 1024))

    def body(total: Array, array: Array) -> Array:
        return total + jnp.sum(jnp.max(array + total * _TRACE, axis=1)) * _TRACE

    run = _turns(body)
    return Timed(lambda turns: run(turns, jnp.zeros(()), array))


def turn_program() -> Timed:
    """A turn of a loop that does next to nothing."""
    run = _turns(lambda x, one: x + one)
    return Timed(lambda turns: run(turns, jnp.zeros(8), jnp.ones(8)))


def launch_program() -> Timed:
    """Calls of a small compiled program from Python."""
    one = jax.jit(lambda x: x + 1.0)
    state = jnp.zeros(8)

    def run(turns: int) -> Array:
        found = state
        for _ in range(turns):
            found = one(found)
        return found

    return Timed(run)
