"""Multi-head latent attention: the cache holds one short vector per token, from which every head's key and value come."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.networks import LatentSizes
from jaxspec.models.attention import KVSource
from jaxspec.models.blocks.interface import AttentionResult, CachedShape, KVCodec, StepInput
from jaxspec.models.dots import dot_rows
from jaxspec.models.matrix import made
from jaxspec.models.norms import RmsNorm
from jaxspec.models.rope import chosen_rope, rotate
from jaxspec.models.sizes import DecoderSizes
from jaxspec.models.stored import biased_rows

__all__ = ["LatentAttention", "absorbs"]


@dataclasses.dataclass(frozen=True)
class LatentAttention:
    """Attention whose keys and values are projected from one latent vector per token, beside one rotated key for all heads.

    The cache holds latents (as values) and rotated keys, after the codec. A step expands them to keys and values of every head,
    or multiplies queries and outputs by the projections instead ("absorbed"), whichever takes fewer products; both are the
    same function. Decoding is absorbed, processing of a prompt expanded.

    Matrices: `q_down` and `kv_down` (the latent, then the key to be rotated) read the hidden state; `q_up` (of each head the
    part that is not rotated, then the rotated one), `k_up` and `v_up` read latents. `q` is in the place of both of the queries'
    where they have no latent.

    Source: DeepSeek-V2, arXiv:2405.04434, Section 2.1 and Appendix C.
    """

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        latent, heads, hidden = _latent(sizes), sizes.num_heads, sizes.hidden_size
        queries, rank = heads * (sizes.head_dim + latent.rope_head_dim), latent.query_rank
        into = {"q": (queries, hidden)} if rank is None else {"q_down": (rank, hidden), "q_up": (queries, rank)}
        return into | {
            "kv_down": (latent.kv_rank + latent.rope_head_dim, hidden),
            "k_up": (heads * sizes.head_dim, latent.kv_rank),
            "v_up": (heads * latent.value_head_dim, latent.kv_rank),
            "o": (hidden, heads * latent.value_head_dim),
        }

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("o",)

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int, float]]:
        """See `Block`."""
        latent, shapes = _latent(sizes), self.matrices(sizes)
        norms = {} if latent.query_rank is None else {"q_down_norm": (latent.query_rank, 1.0)}
        biased = [*("q_down", "kv_down") * sizes.qkv_bias, *("o",) * sizes.o_bias]
        biases = {f"{kind}_bias": (shapes[kind][0], 0.0) for kind in biased if kind in shapes}
        return norms | {"kv_down_norm": (latent.kv_rank, 1.0)} | biases

    def cached_shape(self, sizes: DecoderSizes) -> CachedShape:
        """See `Attention`."""
        latent = _latent(sizes)
        return CachedShape(1, latent.rope_head_dim, latent.kv_rank)

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> AttentionResult:
        """See `Attention`."""
        latent, dtype, dot_dtype = _latent(sizes), normed.dtype, step.dot_dtype
        norm = RmsNorm()
        down = partial(biased_rows, normed, weights, biased=sizes.qkv_bias, dot_dtype=dot_dtype)
        inputs, low, queries = {"qkv": normed}, normed, "q"
        if latent.query_rank is not None:
            queries = "q_up"
            low = norm.apply(down(kind="q_down"), weights, "q_down_norm", latent.norm_eps)
            inputs["q_latent"] = low
        query = biased_rows(low, weights, queries, False, dot_dtype).reshape(*low.shape[:2], sizes.num_heads, -1)
        plain, rotated = jnp.split(query, [sizes.head_dim], axis=-1)
        both = down(kind="kv_down")
        value = norm.apply(both[..., : latent.kv_rank], weights, "kv_down_norm", latent.norm_eps)[:, :, None]
        key = both[:, :, None, latent.kv_rank :]
        if sizes.ropes != (None,):
            lengths = step.positions + 1 if step.lengths is None else step.lengths
            frequency, factor = chosen_rope(sizes.ropes, latent.rope_head_dim, lengths, step.rope)
            turn = partial(rotate, factor=factor, interleaved=sizes.interleaved_rope)
            rotated, key = turn(rotated, step.positions, frequency), turn(key, step.positions, frequency)
        if step.kv_codec is not None:
            key, value = _stored(key, value, step.kv_codec)
        written = key.transpose(0, 2, 3, 1), value.transpose(0, 2, 1, 3)
        sources = [
            *(KVSource(source.key.astype(dtype), source.value.astype(dtype), source.mask) for source in step.sources),
            KVSource(*written, step.mask),
        ]
        # Of each head: (element, latent).
        up_key, up_value = (
            made(weights[kind]).reshape(sizes.num_heads, -1, latent.kv_rank) for kind in ("k_up", "v_up")
        )
        scale = query.shape[-1] ** -0.5 if sizes.score_scale is None else sizes.score_scale
        attending = partial(step.attending(), scale=scale, cap=sizes.score_cap)
        if absorbs(sizes, query.shape[1], [source.value.shape[2] for source in sources]):
            found = attending(rotated, sources, value_query=_by_head(plain, up_key.swapaxes(1, 2), dot_dtype))
            found = found.reshape(*query.shape[:3], latent.kv_rank)
            attended = _by_head(found, up_value, dot_dtype).reshape(*query.shape[:2], -1)
        else:
            expand = partial(_expanded, up_key=up_key, up_value=up_value, dot_dtype=dot_dtype)
            attended = attending(jnp.concatenate([rotated, plain], axis=-1), list(map(expand, sources)))
        output = biased_rows(attended, weights, "o", sizes.o_bias, dot_dtype)
        # The latents of the step are what enters `k_up` and `v_up`, in whichever form.
        return AttentionResult(output, written, inputs | {"kv_latent": value[:, :, 0], "o": attended})


def absorbs(sizes: DecoderSizes, tokens: int, slots: Sequence[int]) -> bool:
    """Whether a step multiplies queries and outputs by the projections, rather than all latents that it sees.

    Args:
        tokens: of the step, in each sequence. slots: of each source, the step's own tokens among them.
    """
    latent, seen = _latent(sizes), sum(slots)
    projections = latent.kv_rank * (sizes.head_dim + latent.value_head_dim)
    absorbed = tokens * (seen * (2 * latent.kv_rank + latent.rope_head_dim) + projections)
    narrow = sizes.head_dim + latent.rope_head_dim + latent.value_head_dim
    return absorbed <= seen * (tokens * narrow + projections)


def _stored(key: Array, value: Array, codec: KVCodec) -> tuple[Array, Array]:
    """What is cached of a token is one row, unless its two parts are of one length (see `jaxspec.compress.kv`)."""
    if key.shape == value.shape:
        return codec(key), codec(value)
    both = codec(jnp.concatenate([key, value], axis=-1))
    return both[..., : key.shape[-1]], both[..., key.shape[-1] :]


def _latent(sizes: DecoderSizes) -> LatentSizes:
    if sizes.latent is None:
        raise ValueError("latent is None; a network with latent attention states its sizes")
    return sizes.latent


def _by_head(
    x: Float[Array, "batch token head column"], matrices: Float[Array, "head row column"], dot_dtype: Any
) -> Float[Array, "batch token head row"]:
    """Each head's rows by its own matrix."""
    return jax.vmap(partial(dot_rows, dot_dtype=dot_dtype), in_axes=(2, 0), out_axes=2)(x, matrices)


def _expanded(source: KVSource, up_key: Array, up_value: Array, dot_dtype: Any) -> KVSource:
    """Keys and values of every head from what is cached; the rotated part of keys comes first."""
    heads, batch = len(up_key), len(source.value)
    up = jax.vmap(partial(dot_rows, source.value[:, 0], dot_dtype=dot_dtype), out_axes=1)  # "batch head slot element"
    rotated = jnp.broadcast_to(source.key, (batch, heads, *source.key.shape[2:]))
    key = jnp.concatenate([rotated, up(up_key).swapaxes(2, 3)], axis=2)
    return KVSource(key, up(up_value), source.mask)
