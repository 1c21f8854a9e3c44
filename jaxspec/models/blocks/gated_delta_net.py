"""Linear attention of a layer: a gated delta net, whose tokens are remembered one by one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from hwmodels.networks import LinearSizes
from hwmodels.numerics.compensated_sums import EXACT
from jaxspec.models.attention import KVSource, TextOrder, product_by_sequence
from jaxspec.models.blocks.interface import AttentionResult, CachedShape, StepInput
from jaxspec.models.matrix import made
from jaxspec.models.norms import ACTIVATIONS, rms_norm
from jaxspec.models.sizes import DecoderSizes
from jaxspec.models.stored import biased_rows

__all__ = [
    "Decays",
    "GatedDeltaNet",
    "Remembered",
    "at_slots",
    "convolved",
    "delta_rule",
    "linear_sizes",
    "placed_sources",
]

# The gated delta rule as attention without a softmax: one slot for each token, in place of a state that each token changes.

#: Logarithms of decay are added in whole multiples of this, exactly up to a sum of 2^18, and in what remains of them.
_UNIT = 2.0**-6


class Decays(NamedTuple):
    """Sums of logarithms of decay over each token and all that it follows: `whole` + `rest`.

    One float32 holds a sum of some thousands to no better than 1e-4, and differences of neighbours would err by as much.

    Attributes:
        whole: integers. rest: in [0, 1).
    """

    whole: Float[Array, "batch head token"]
    rest: Float[Array, "batch head token"]


class Remembered(NamedTuple):
    """What is kept of tokens, of every sequence or of one that all share.

    Attributes:
        key: normalised. update: what each value head added. projected: queries, keys and values before the convolution.
    """

    key: Float[Array, "#batch key_head key_dim slot"]
    decays: Decays
    update: Float[Array, "#batch value_head value_dim slot"]
    projected: Float[Array, "#batch channel slot"]


def at_slots(
    array: Float[Array, "#batch row slot"], index: Int[Array, "batch place"]
) -> Float[Array, "batch row place"]:
    """Some slots of each sequence, or of the one that all share."""
    if array.shape[0] == 1 < index.shape[0]:
        return jax.vmap(lambda slots: array[0][:, slots])(index)
    return jax.vmap(lambda rows, slots: rows[:, slots])(array, index)


def delta_rule(
    query: Float[Array, "batch key_head token key_dim"],
    value: Float[Array, "batch value_head token value_dim"],
    log_decay: Float[Array, "batch value_head token"],
    beta: Float[Array, "batch value_head token"],
    key: Float[Array, "batch key_head token key_dim"],
    *,
    mask: Bool[Array, "batch token token"],
    sources: Sequence[tuple[Remembered, Bool[Array, "batch token slot"], Int[Array, "#batch slot"]]],
    order: TextOrder | None = None,
) -> tuple[Float[Array, "batch value_head token value_dim"], Decays, Float[Array, "batch value_head token value_dim"]]:
    """What each token reads, its sum of decays, and its update.

    Args:
        query: scaled. log_decay: at most 0.
        mask: among the tokens of the step, which stand behind all that they see.
        sources: what is remembered, which slots each token sees, and their positions.
        order: as for `attend`: then a token has the same numbers, to the last bit, however many of those before it are in the
            step.
    """
    rows = jnp.concatenate([key, query], axis=2)
    if order is not None:
        return _in_order(rows, value, log_decay, beta, sources, order)
    decays = _added(_latest(sources, value), log_decay, mask)
    found = [
        _read(rows, remembered.key, remembered.update, _decay(decays, remembered.decays, seen))
        for remembered, seen, _ in sources
    ]
    zero = jnp.zeros((*value.shape[:2], 2 * value.shape[2], value.shape[3]), value.dtype)
    known, read = jnp.split(functools.reduce(jnp.add, found, zero), 2, axis=2)
    right = beta[..., None] * (value - known)
    by_key, by_query = jnp.split(_weights(rows, key.swapaxes(2, 3), _decay(decays, decays, mask)), 2, axis=2)
    if value.shape[2] == 1:
        update = right
    else:
        update = jax.lax.linalg.triangular_solve(
            jnp.tril(beta[..., None] * by_key, -1), right, left_side=True, lower=True, unit_diagonal=True
        )
    return read + jnp.einsum("bhts,bhsd->bhtd", by_query, update, precision=EXACT), decays, update


def _in_order(
    rows: Float[Array, "batch key_head two_token key_dim"],
    value: Float[Array, "batch value_head token value_dim"],
    log_decay: Float[Array, "batch value_head token"],
    beta: Float[Array, "batch value_head token"],
    sources: Sequence[tuple[Remembered, Bool[Array, "batch token slot"], Int[Array, "#batch slot"]]],
    order: TextOrder,
) -> tuple[Array, Decays, Array]:
    """`delta_rule` with sums over all sources but the first in the order of the text."""
    (far, far_seen, _), *others = sources
    near = [remembered for remembered, _, _ in others]
    tokens, places = order.column.shape[1:]
    beside = lambda own, parts: jnp.concatenate([*parts, own], axis=-1)
    by_place = lambda columns: at_slots(columns, order.column.reshape(len(order.column), -1)).reshape(
        *columns.shape[:2], tokens, places
    )
    parent, has_parent = order.column[..., -2], order.known[:, None, :, -2]

    def follow(_: int, decays: Decays) -> Decays:
        """Each token adds its own to its parent's, which is right once the parent's is."""
        before = [
            jnp.where(has_parent, at_slots(beside(own, [getattr(part.decays, name) for part in near]), parent), 0)
            for name, own in decays._asdict().items()
        ]
        return _carried(before[0], before[1] + log_decay)

    none = jnp.zeros_like(log_decay)
    decays = jax.lax.fori_loop(0, places, follow, Decays(none, none))
    columns = Decays(*(beside(own, [part.decays[i] for part in near]) for i, own in enumerate(decays)))
    apart = (decays.whole[..., None] - by_place(columns.whole)) + (decays.rest[..., None] - by_place(columns.rest))
    decay = jnp.exp(jnp.where(order.known[:, None], apart, -jnp.inf))
    keys = beside(rows[:, :, :tokens].swapaxes(2, 3), [part.key for part in near])
    scores = product_by_sequence("kqd", "kds", "kqs", rows, keys)
    scores = scores.reshape(*scores.shape[:2], 2, tokens, -1)
    scores = jnp.take_along_axis(scores, order.column[:, None, None], axis=-1)
    group = value.shape[1] // rows.shape[1]
    weights = scores[:, :, None] * decay.reshape(len(decay), -1, group, 1, tokens, places)
    by_key, by_query = (weights[:, :, :, part].reshape(decay.shape) for part in (0, 1))
    known, read = jnp.split(_read(rows, far.key, far.update, _decay(decays, far.decays, far_seen)), 2, axis=2)

    def updates(update: Array) -> Array:
        """Of what stands at each place of each token: "batch value_head value_dim token place"."""
        of_columns = beside(update.swapaxes(2, 3), [part.update for part in near])
        flat = of_columns.reshape(len(of_columns), -1, of_columns.shape[-1])
        return by_place(flat).reshape(*of_columns.shape[:3], tokens, places)

    def correct(_: int, update: Array) -> Array:
        seen = jnp.sum(by_key[:, :, None, :, :-1] * updates(update)[..., :-1], axis=-1).swapaxes(2, 3)
        return beta[..., None] * (value - (known + seen))

    update = jax.lax.fori_loop(0, places, correct, jnp.zeros_like(value))
    seen = jnp.sum(by_query[:, :, None] * updates(update), axis=-1).swapaxes(2, 3)
    return read + seen, decays, update


def _weights(
    rows: Float[Array, "batch key_head two_token key_dim"],
    keys: Float[Array, "#batch key_head key_dim slot"],
    decay: Float[Array, "batch value_head token slot"],
) -> Float[Array, "batch value_head two_token slot"]:
    """Decayed products of each token's key, then of its query, with all keys."""
    scores = product_by_sequence("kqd", "kds", "kqs", rows, keys)
    batch, heads, tokens, slots = decay.shape
    key_heads = scores.shape[1]
    by_group = scores.reshape(batch, key_heads, 1, 2, tokens, slots)
    return (by_group * decay.reshape(batch, key_heads, -1, 1, tokens, slots)).reshape(batch, heads, -1, slots)


def _read(
    rows: Array, keys: Array, updates: Array, decay: Array
) -> Float[Array, "batch value_head two_token value_dim"]:
    """What each token's key, then its query, reads of the slots of a source."""
    return product_by_sequence("kqs", "kds", "kqd", _weights(rows, keys, decay), updates)


def _decay(
    own: Decays, other: Decays, seen: Bool[Array, "batch token slot"]
) -> Float[Array, "batch value_head token slot"]:
    """From each slot to each token that sees it; 0 from others."""
    between = lambda own, other: own[:, :, :, None] - other[:, :, None, :]
    apart = between(own.whole, other.whole) + between(own.rest, other.rest)
    return jnp.exp(jnp.where(seen[:, None], apart, -jnp.inf))


def _carried(whole: Array, rest: Array) -> Decays:
    carry = jnp.floor(rest)
    return Decays(whole + carry, rest - carry)


def _latest(
    sources: Sequence[tuple[Remembered, Bool[Array, "batch token slot"], Int[Array, "#batch slot"]]],
    like: Float[Array, "batch value_head token value_dim"],
) -> Decays:
    """Of the last slot that each token sees; 0 where it sees none."""
    none = jnp.zeros(like.shape[:3], like.dtype)
    found, position = Decays(none, none), jnp.full((like.shape[0], like.shape[2]), -1)
    for remembered, seen, positions in sources:
        at = jnp.where(seen, positions[:, None, :], -1)
        slot, last = jnp.argmax(at, axis=-1), jnp.max(at, axis=-1)
        later = (last > position)[:, None]
        own = (at_slots(part, slot) for part in remembered.decays)
        found = Decays(*(jnp.where(later, new, old) for new, old in zip(own, found, strict=True)))
        position = jnp.maximum(position, last)
    return found


def _added(
    before: Decays, log_decay: Float[Array, "batch head token"], mask: Bool[Array, "batch token token"]
) -> Decays:
    """Sums over the tokens of a step, after what came before it."""
    coarse = _UNIT * jnp.round(log_decay / _UNIT)
    seen = mask.astype(log_decay.dtype)
    total = lambda values: jnp.einsum("bts,bhs->bht", seen, values, precision=EXACT)
    large, small = total(coarse), total(log_decay - coarse)
    whole = jnp.floor(large)
    return _carried(before.whole + whole, before.rest + ((large - whole) + small))


#: What the norms of queries and keys add to the square of their length: of Qwen3-Next's network in transformers, no setting.
_EPS = 1e-6


@dataclasses.dataclass(frozen=True)
class GatedDeltaNet:
    """Queries, keys and values through a short convolution, a matrix per value head that forgets and corrects itself, and a
    gated norm of what each head puts out.

    The matrix is never made (see `delta_rule`). A slot of the cache holds a token's keys, its sums of decay, its
    updates, and its projections, which the convolution of the next tokens reads; in float32, whatever codec the caches of
    attention have.

    Matrices: `in_qkv` (queries, keys, values of all heads), `in_z` (gates), `in_b` and `in_a` (how much a head learns and
    forgets), `out`; `conv` has a row for each channel of `in_qkv`, its last column for the token itself.

    Source: Yang et al. 2024, arXiv:2412.06464, with projections, convolution and gates of Qwen3.5 in transformers.
    """

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        own, hidden = linear_sizes(sizes), sizes.hidden_size
        rows = {"in_qkv": own.convolved, "in_z": own.values, "in_b": own.value_heads, "in_a": own.value_heads}
        return {name: (count, hidden) for name, count in rows.items()} | {
            "conv": (own.convolved, own.conv_tokens),
            "out": (hidden, own.values),
        }

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("out",)

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int, float]]:
        """See `Block`."""
        own = linear_sizes(sizes)
        return {"dt_bias": (own.value_heads, 1.0), "a_log": (own.value_heads, 0.0), "out_norm": (own.value_dim, 1.0)}

    def cached_shape(self, sizes: DecoderSizes) -> CachedShape:
        """See `Attention`: all of it in the place of keys, whose slots are last."""
        own = linear_sizes(sizes)
        return CachedShape(1, own.keys + own.values + 2 * own.value_heads + own.convolved, 0)

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> AttentionResult:
        """See `Attention`. The rule computes in float32, or in a wider type that comes.

        Raises:
            NotImplementedError: attention is asked for in another way.
            ValueError: a cache without positions.
        """
        if step.attend is not None:
            raise NotImplementedError(
                "another way to attend (attend) came, and layers with linear attention have no softmax to compute in it; leave "
                "attend out, or take a network without linear attention"
            )
        own, dtype = linear_sizes(sizes), normed.dtype
        wide = jnp.float64 if dtype == jnp.float64 else jnp.float32
        product = partial(biased_rows, normed, weights, biased=False, dot_dtype=step.dot_dtype)
        projected = product(kind="in_qkv").astype(wide)
        sources = [
            (_remembered(source, own, wide), source.mask, positions) for source, positions in placed_sources(step)
        ]
        earlier = [(remembered.projected, seen, positions) for remembered, seen, positions in sources]
        mixed = ACTIVATIONS[sizes.activation](convolved(projected, made(weights["conv"]).astype(wide), earlier, step))
        by_head = lambda part, heads: part.reshape(*part.shape[:2], heads, -1).transpose(0, 2, 1, 3)
        query, key = (by_head(part, own.key_heads) for part in jnp.split(mixed[..., : 2 * own.keys], 2, axis=-1))
        value = by_head(mixed[..., 2 * own.keys :], own.value_heads)
        query, key = own.key_dim**-0.5 * _of_length_one(query), _of_length_one(key)
        vector = lambda name: weights[name].astype(wide)[None, None]
        beta = jax.nn.sigmoid(product(kind="in_b").astype(wide))
        log_decay = -jnp.exp(vector("a_log")) * jax.nn.softplus(product(kind="in_a").astype(wide) + vector("dt_bias"))
        heads_first = lambda part: part.transpose(0, 2, 1)
        read, decays, update = delta_rule(
            query,
            value,
            heads_first(log_decay),
            heads_first(beta),
            key,
            mask=step.mask,
            sources=sources,
            order=step.order,
        )
        normal = rms_norm(read.transpose(0, 2, 1, 3), weights["out_norm"], sizes.norm_eps)
        gate = product(kind="in_z").astype(wide).reshape(normal.shape)
        attended = (normal * jax.nn.silu(gate)).reshape(*normed.shape[:2], -1).astype(dtype)
        output = biased_rows(attended, weights, "out", False, step.dot_dtype)
        return AttentionResult(
            output, _written(key, decays, update, projected), {"linear_in": normed, "linear_out": attended}
        )


def linear_sizes(sizes: DecoderSizes) -> LinearSizes:
    """Of linear attention, or of short convolutions. Raises ValueError: there are none."""
    if sizes.linear is None:
        raise ValueError("linear is None, and a layer has linear attention; give its sizes")
    return sizes.linear


def placed_sources(step: StepInput) -> list[tuple[KVSource, Int[Array, "#batch slot"]]]:
    """Sources of a step with the positions of their slots. Raises ValueError: a cache without positions."""
    placed = [
        (source, positions)
        for source, positions in zip(step.sources, step.source_positions, strict=True)
        if positions is not None
    ]
    if len(placed) < len(step.sources):
        raise ValueError(
            "a cache has no positions, which convolutions need; make it with `empty_cache` of this network"
        )
    return placed


def _of_length_one(x: Float[Array, "*b element"]) -> Array:
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + _EPS)


def convolved(
    projected: Float[Array, "batch token channel"],
    taps: Float[Array, "channel tap"],
    earlier: Sequence[tuple[Float[Array, "#batch channel slot"], Array, Array]],
    step: StepInput,
) -> Float[Array, "batch token channel"]:
    """Each channel over a token and those right before it, which their positions tell, wherever they lie.

    Args:
        earlier: of each source its channels, which slots each token sees, and their positions.
    """
    found = projected * taps[None, None, :, -1]
    places = [*earlier, (projected.swapaxes(1, 2), step.mask, step.positions)]
    for distance in range(1, taps.shape[1]):
        for channels, seen, positions in places:
            at = seen & (positions[:, None, :] == step.positions[:, :, None] - distance)
            before = at_slots(channels, jnp.argmax(at, axis=-1)).swapaxes(1, 2)
            there = jnp.any(at, axis=-1)[..., None]
            found = found + jnp.where(there, before * taps[None, None, :, -1 - distance], 0)
    return found


def _remembered(source: KVSource, own: LinearSizes, wide: Any) -> Remembered:
    """What a slot holds, in the order of `_written`."""
    rows = source.key[:, 0].astype(wide)
    sizes = [own.keys, own.value_heads, own.value_heads, own.values]
    ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
    key, whole, rest, update, projected = jnp.split(rows, ends, axis=1)
    by_head = lambda part, heads: part.reshape(len(rows), heads, -1, rows.shape[-1])
    return Remembered(by_head(key, own.key_heads), Decays(whole, rest), by_head(update, own.value_heads), projected)


def _written(
    key: Float[Array, "batch key_head token key_dim"],
    decays: Decays,
    update: Float[Array, "batch value_head token value_dim"],
    projected: Float[Array, "batch token channel"],
) -> tuple[Array, Array]:
    """What the cache holds of the tokens of a step."""
    flat = lambda part: part.swapaxes(2, 3).reshape(len(part), -1, part.shape[2])
    rows = jnp.concatenate([flat(key), *decays, flat(update), projected.swapaxes(1, 2)], axis=1)
    return rows[:, None], jnp.zeros((len(rows), 1, rows.shape[-1], 0), rows.dtype)
