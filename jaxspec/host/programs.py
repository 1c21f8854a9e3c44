"""Timed programs of `jaxspec calibrate`: networks they are of, the clock, steps and cycles."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwmodels import Architecture, catalog
from jaxspec.compress.kv import stored_kv
from jaxspec.host.config import FORMATS, CalibrateConfig
from jaxspec.host.stopwatch import AUTOREGRESSIVE, chain_way, time_ways
from jaxspec.models.apart import Apart, Parts, over_layers
from jaxspec.models.attention import KVSource, attend
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, abstract_params, causal_mask, forward, init_params
from jaxspec.models.decoding_programs import jit_decoding
from jaxspec.models.kv_cache import CachedKV, empty_cache, write_cache
from jaxspec.models.matrix import Matrix, Stored, matrix_of
from jaxspec.models.stored import SMALL, as_computed, as_stored
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts.interface import ReadyDraft
from jaxspec.speculate.drafts.network_draft import NetworkDraft
from jaxspec.speculate.drafts.ngram_draft import NGramDraft, NGramParams
from jaxspec.speculate.sampling import GREEDY, token_distribution
from jaxspec.speculate.steps import slots_before, top_gap

#: Network whose steps are timed beside those of large ones.
COMPANION = "qwen3-0.6b"


#: The most elements of a matrix: a larger vocabulary is cut.
_MOST_WEIGHTS = 1 << 25


def companion_of(config: CalibrateConfig, networks: Mapping[str, Architecture]) -> dict[str, Architecture]:
    """The network, by name, of which whole steps alone are timed too where all others are large and held in 16 bits; or none.

    Steps of large matrices hardly show what launches cost within a step, nor by how much a network of other widths is off.
    """
    own = catalog.architecture(COMPANION)
    least = _layer_weights(own)
    is_large = FORMATS[config.widest] <= 16.0 and all(_layer_weights(one) > least for one in networks.values())
    return {COMPANION: own} if is_large else {}


def matrices_of(network: Architecture) -> list[tuple[int, int]]:
    """(inner, outer) of the matrices of a dense layer and of the head."""
    hidden, inner = int(network.hidden_size), int(network.intermediate_size)
    query, key = int(network.num_heads * network.head_dim), int(network.num_kv_heads * network.head_dim)
    vocab = min(int(network.vocab_size), max(1, _MOST_WEIGHTS // hidden))
    shapes = [(hidden, query), (hidden, key), (query, hidden), (hidden, inner), (inner, hidden), (hidden, vocab)]
    return [shape for shape in dict.fromkeys(shapes) if min(shape) > 0]


def _layer_weights(network: Architecture) -> int:
    """Elements of the matrices that a layer has."""
    return sum(inner * outer for inner, outer in matrices_of(network)[:-1])


def probes_of(network: Architecture, held: str) -> list[tuple[int, int, int]]:
    """(layers, vocabulary, context) of the networks whose whole steps are timed.

    Args:
        held: format of their matrices. Few float32 ones, as only small networks decode in float32.
    """
    hidden = int(network.hidden_size)
    layer = _layer_weights(network)
    # A loop over one layer is none: its matrices are read where they lie, those of several are taken out of a stack.
    most = max(1, int(network.num_layers))
    layers = min(4, most, max(2, SMALL // 2 // max(layer, 1))) if held == "float32" else min(4, most)
    vocab = int(max(256, min(1024, SMALL // 4 // hidden)))
    few = min(layers, 2)
    return list(dict.fromkeys([(layers, 256, 128), (few, 256, 256), (few, vocab, 384)]))


def dense_config(network: Architecture, layers: int, vocab: int) -> DecoderConfig:
    """A dense network of these widths."""
    return DecoderConfig(
        vocab_size=vocab,
        hidden_size=int(network.hidden_size),
        intermediate_size=int(network.intermediate_size),
        num_layers=layers,
        num_heads=int(network.num_heads),
        num_kv_heads=int(network.num_kv_heads),
        head_dim=int(network.head_dim),
    )


#: Seconds that one call of a program is to take, so that its start and the clock do not count.
CALL_S = 0.02


#: What a turn takes is never all for the loop.
_LEAST_SHARE = 0.1


#: The most turns in a call.
_MOST_TURNS = 1 << 16


Clock = Callable[[], float]


@dataclasses.dataclass(frozen=True)
class Timed:
    """A program to time.

    Attributes:
        run: from a number of turns to arrays; compiled once for all numbers.
        per_turn: things to time in a turn, as layers of a loop.
    """

    run: Callable[[int], Any]
    per_turn: int = 1


@dataclasses.dataclass(frozen=True)
class Timing:
    """Seconds of one thing.

    Attributes:
        median, least: over the repeats.
        spread: between the quartiles, over the median.
        first_s: of the first call, which compiles.
    """

    median: float
    least: float
    spread: float
    first_s: float


def measure(
    programs: Sequence[Timed],
    *,
    repeats: int,
    call_s: float = CALL_S,
    clock: Clock = time.perf_counter,
    empty: Timed | None = None,
) -> list[Timing]:
    """Time programs side by side: each repeat runs all of them, so that a slow minute of the machine meets all alike.

    Args:
        repeats: at least 1.
        call_s: seconds of a call; programs take turns until they last so long.
        empty: a loop with nothing in its turns, timed beside programs with several things in a turn, which share it: they are
            not charged for it. A step has one such turn, however many layers; on a GPU, which tells the host whether to go
            on, it takes 22 µs, more than many a product.
    """
    beside = [empty] if empty is not None and any(program.per_turn > 1 for program in programs) else []
    timed = [*programs, *beside]
    firsts, turns = [], []
    for program in timed:
        firsts.append(_seconds(program, 1, clock))
        turns.append(_turns(program, call_s, clock))
    samples: list[list[float]] = [[] for _ in timed]
    for _ in range(repeats):
        for program, count, seconds in zip(timed, turns, samples, strict=True):
            seconds.append(_seconds(program, count, clock) / count)
    turn_s = statistics.median(samples[-1]) if beside else 0.0
    return [
        timing_of([_each(one, program.per_turn, turn_s) for one in seconds], first)
        for program, seconds, first in zip(programs, samples, firsts, strict=False)
    ]


def _each(seconds: float, count: int, turn_s: float) -> float:
    """Of so many things in a turn that took so long. An empty turn may take longer than one with work to hide it behind."""
    return max(seconds - turn_s, _LEAST_SHARE * seconds) / count if count > 1 else seconds


def _turns(program: Timed, call_s: float, clock: Clock) -> int:
    """As many turns as last long enough, found by doubling."""
    count = 1
    while (seconds := _seconds(program, count, clock)) < call_s / 2 and count < _MOST_TURNS:
        count = min(_MOST_TURNS, max(2 * count, int(count * min(16.0, call_s / max(seconds, 1e-9)))))
    return count


def _seconds(program: Timed, turns: int, clock: Clock) -> float:
    began = clock()
    jax.block_until_ready(program.run(turns))
    return clock() - began


def timing_of(seconds: list[float], first_s: float) -> Timing:
    """Of the seconds of all repeats, and of the first call, which compiles."""
    middle = statistics.median(seconds)
    quartiles = statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [middle] * 3
    return Timing(middle, min(seconds), (quartiles[2] - quartiles[0]) / middle, first_s)


#: Matrices of a timed stack that are arrays of their own, at most: each is compiled by itself.
MOST_APART = 96


#: So little of a result goes back into the loop that nothing changes, and so much that nothing is left out.
_TRACE = 1e-30


def _noise(seed: int, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    # Made on the device, in the type that is kept: a stack of matrices is large.
    return jax.jit(lambda key: jax.random.normal(key, shape, dtype))(jax.random.key(seed))


def _product_turns(body: Any) -> Any:
    """A compiled loop of (turns, state, constants)."""
    return jit_decoding(lambda turns, state, fixed: jax.lax.fori_loop(0, turns, lambda _, x: body(x, fixed), state))


def product_program(rows: int, inner: int, outer: int, layers: int, weight_format: str) -> Timed:
    """Products of one activation by the matrices of a stack, in the format in which they are held.

    Few float32 matrices lie as those of a small network do (`jaxspec.models.apart`); more, and narrower ones, in a stack that a
    loop widens.
    """
    weights = _noise(1, (layers, outer, inner), jnp.dtype(weight_format))
    stack = Apart.of(weights) if weight_format == "float32" and layers <= MOST_APART else Stored.of(weights)

    def body(x: Array, stack: Matrix) -> Array:
        def layer(x: Array, stored: Matrix) -> tuple[Array, None]:
            # The barrier keeps the product whole, as a step has it: of one row, XLA would compute the column that is read.
            product_rows = matrix_of(stored.in_loop()).dot(x)
            product = jax.lax.optimization_barrier(product_rows)
            return x + product[:, :1] * _TRACE, None

        return over_layers(layer, x, stack, layers)[0]

    run, state = _product_turns(body), _noise(2, (rows, inner))
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

    run, state = _product_turns(body), _noise(5, (batch, tokens, heads, head_dim))
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
        output = forward(
            params,
            config,
            chosen,
            StepInput(
                length[:, None] + jnp.arange(tokens)[None],
                causal_mask(batch, tokens),
                sources=[CachedKV(cache, slots_before(length, tokens, slots))],
                kv_codec=stored_kv(config),
            ),
        )
        probability = token_distribution(output.logits, GREEDY)
        margin = jnp.minimum(margin, jnp.min(top_gap(output.logits), axis=1))
        chosen = jnp.argmax(probability, axis=-1).astype(jnp.int32)
        return chosen, write_cache(cache, output.cache, length, after=output.hidden), margin

    run = _product_turns(body)
    return Timed(lambda turns: run(turns, (start, cache, jnp.full(batch, jnp.inf)), (params, length)))


def lookup_program(rows: int, vocab: int, hidden: int) -> Timed:
    """Rows of a table, by tokens that depend on the last ones."""
    table = _noise(1, (vocab, hidden))

    def body(tokens: Array, table: Array) -> Array:
        vectors = table[tokens]
        return (tokens + 1 + (jnp.max(vectors, axis=1) * _TRACE).astype(jnp.int32)) % vocab

    run, state = _product_turns(body), jnp.arange(rows, dtype=jnp.int32) % vocab
    return Timed(lambda turns: run(turns, state, table))


def sampling_program(rows: int, vocab: int) -> Timed:
    """Tokens of rows of logits, with the margin of each."""
    logits = _noise(1, (rows, vocab))

    def body(state: Array, logits: Array) -> Array:
        moved = logits + state[:, None] * _TRACE
        probability = token_distribution(moved, GREEDY)
        return top_gap(moved) + jnp.argmax(probability, axis=-1) * _TRACE

    run = _product_turns(body)
    return Timed(lambda turns: run(turns, jnp.zeros(rows), logits))


def stream_program(size_bytes: int) -> Timed:
    """A pass over an array: its sum, by all cores."""
    array = _noise(1, (max(1, size_bytes // 4096), 1024))

    def body(total: Array, array: Array) -> Array:
        return total + jnp.sum(jnp.max(array + total * _TRACE, axis=1)) * _TRACE

    run = _product_turns(body)
    return Timed(lambda turns: run(turns, jnp.zeros(()), array))


def turn_program() -> Timed:
    """A turn of a loop that does next to nothing."""
    run = _product_turns(lambda x, one: x + one)
    return Timed(lambda turns: run(turns, jnp.zeros(8), jnp.ones(8)))


def launch_program() -> Timed:
    """Calls of a small compiled program from Python."""
    one = jax.jit(lambda x: x + 1.0)
    state = jnp.zeros(8)

    def run(turns: int) -> Array:
        result = state
        for _ in range(turns):
            result = one(result)
        return result

    return Timed(run)


#: Tokens of each prompt, and generated behind it: more than a cycle yields.
_PROMPT, _OUTPUT = 128, 64


#: Places of the cache that such decoding attends to.
CYCLE_SLOTS = _PROMPT + _OUTPUT


#: Prompts that are decoded one at a time.
_PROMPTS = 4


def random_params(config: DecoderConfig, held: str, seed: int = 0) -> Params:
    """Random weights as a network of them decodes.

    Args:
        held: format of its matrices: float32, as small networks decode, or one of 16 bits, as large ones do.
    """
    key = jax.random.key(seed)
    return as_computed(init_params(config, key)) if held == "float32" else as_stored(_drawn(config, key, held))


def _drawn(config: DecoderConfig, key: jax.Array, held: str) -> Params:
    """Matrices of about unit gain, vectors of ones, each made in the format that it is held in: 8 billion weights in float32,
    as `init_params` makes them, are more than a GPU has room for beside their copy."""
    leaves, structure = jax.tree.flatten(abstract_params(config))
    stacked = config.num_layers

    def draw(key: jax.Array, leaf: Any) -> jax.Array:
        if leaf.ndim < 2 or leaf.shape[:-1] == (stacked,):
            return jnp.ones(leaf.shape, held)
        return jax.random.normal(key, leaf.shape, held) * jnp.asarray(leaf.shape[-1] ** -0.5, held)

    one = jax.jit(draw, static_argnums=1)
    keys = jax.random.split(key, len(leaves))
    return jax.tree.unflatten(structure, [one(key, leaf) for key, leaf in zip(keys, leaves, strict=True)])


def cycle_timings(
    config: DecoderConfig, held: str, *, draft_layers: int, lengths: Sequence[int], batch: int, repeats: int
) -> list[Timing]:
    """Seconds of greedy decoding: of a step without speculation, of a verification of each chain, of a cycle of each.

    Args:
        config: of the network.
        held: see `random_params`; the draft network's too.
        draft_layers: of a draft network of the same widths; 0: a lookup in the text drafts.
        lengths: of the chains.
        batch: sequences decoded together.
    """
    params, draft = random_params(config, held), _draft(config, held, draft_layers)
    prompts = np.random.default_rng(0).integers(0, config.vocab_size, (max(batch, _PROMPTS), _PROMPT))
    ways = {str(length): chain_way(draft, length, GREEDY) for length in lengths}
    timed = time_ways(
        params,
        config,
        Prompts(prompts.astype(np.int32), num_tokens=_OUTPUT, decoding=GREEDY, seed=0),
        ways,
        batch=batch,
        repeats=repeats,
    )
    jax.clear_caches()  # no other group runs these programs, and a process may map only so many
    alone, chains = timed[AUTOREGRESSIVE], [timed[name] for name in ways]
    steps = [timing_of(seconds.tolist(), 0.0) for seconds in (alone.cycle_s, *(chain.verify_s for chain in chains))]
    return steps + [timing_of(chain.cycle_s.tolist(), chain.compile_s) for chain in chains]


def _draft(config: DecoderConfig, held: str, layers: int) -> ReadyDraft:
    if not layers:
        return ReadyDraft(NGramDraft(config.vocab_size), NGramParams())
    own = dataclasses.replace(config, num_layers=layers)
    return ReadyDraft(NetworkDraft(own), random_params(own, held, seed=1))
