"""Grouped-query attention with rotary positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from jaxspec.models.attention import KVSource
from jaxspec.models.blocks.interface import AttentionResult, CachedShape, StepInput
from jaxspec.models.norms import NORMS
from jaxspec.models.rope import chosen_rope, rotate
from jaxspec.models.rounded_inputs import as_integers
from jaxspec.models.sizes import DecoderSizes
from jaxspec.models.stored import biased_rows

__all__ = ["GroupedAttention"]


@dataclasses.dataclass(frozen=True)
class GroupedAttention:
    """Attention in which groups of query heads share one key-value head.

    With a gate, rows of `q` are one head's query, then its gate, then the next head's.

    Source: Ainslie et al. 2023, arXiv:2305.13245. Norms per head (`qk_norm`): Qwen3; over all heads (`qk_norm_whole`): OLMo 2;
        per head with scales of all heads (`qk_norm_scales`): Command R+; after the rotation (`qk_norm_last`): Hunyuan;
        biases (`qkv_bias`): Qwen2; soft caps: Gemma 2; sinks: gpt-oss; a gate (`attention_gate`): Qwen3-Next;
        queries that grow with their position (`query_growth`): Ministral 3.
    """

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        query, key = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
        hidden = sizes.hidden_size
        queries = query * (1 + sizes.attention_gate)
        return {"q": (queries, hidden), "k": (key, hidden), "v": (key, hidden), "o": (hidden, query)}

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("o",)

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int | tuple[int, ...], float]]:
        """See `Block`."""
        norms: dict[str, tuple[int | tuple[int, ...], float]] = {
            name: (length, initial)
            for norm, length in self._normed(sizes).items()
            for name, initial in NORMS[sizes.norm].vectors(norm).items()
        }
        sinks = {"sinks": (sizes.num_heads, 0.0)} if sizes.attention_sinks else {}
        return norms | {name: (length, 0.0) for name, length in self._biases(sizes).items()} | sinks

    def _normed(self, sizes: DecoderSizes) -> dict[str, int | tuple[int, ...]]:
        """Norm of queries and keys -> shape of its scales."""
        if not sizes.qk_norm:
            return {}
        heads, width = {"q_norm": sizes.num_heads, "k_norm": sizes.num_kv_heads}, sizes.head_dim
        if sizes.qk_norm_scales:
            return {name: (count, width) for name, count in heads.items()}
        return {name: count * width if sizes.qk_norm_whole else width for name, count in heads.items()}

    def _biases(self, sizes: DecoderSizes) -> dict[str, int]:
        shapes = self.matrices(sizes)
        biased = [*("q", "k", "v") * sizes.qkv_bias, *("o",) * sizes.o_bias]
        return {f"{kind}_bias": shapes[kind][0] for kind in biased}

    def cached_shape(self, sizes: DecoderSizes) -> CachedShape:
        """See `Attention`."""
        return CachedShape(sizes.num_kv_heads, sizes.head_dim, sizes.head_dim)

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> AttentionResult:
        """See `Attention`."""
        dtype, dot_dtype = normed.dtype, step.dot_dtype
        rows = partial(
            biased_rows,
            normed,
            weights,
            biased=sizes.qkv_bias,
            dot_dtype=dot_dtype,
            rounded=sizes.rounded_inputs,
        )

        norm = lambda x, kind: NORMS[sizes.norm].apply(x, weights, f"{kind}_norm", sizes.norm_eps)

        def by_head(product: Array, kind: str) -> Float[Array, "batch token head head_dim"]:
            heads = (*product.shape[:2], -1, sizes.head_dim)
            if sizes.qk_norm and not sizes.qk_norm_last and kind != "v":
                whole = sizes.qk_norm_whole and not sizes.qk_norm_scales
                product = norm(product if whole else product.reshape(heads), kind)
            return product.reshape(heads)

        product, gate = rows(kind="q"), None
        if sizes.attention_gate:
            both = product.reshape(*product.shape[:2], sizes.num_heads, 2, sizes.head_dim)
            product, gate = (part.reshape(*part.shape[:2], -1) for part in (both[..., 0, :], both[..., 1, :]))
        query, key, value = by_head(product, "q"), by_head(rows(kind="k"), "k"), by_head(rows(kind="v"), "v")
        if sizes.ropes != (None,):
            lengths = step.positions + 1 if step.lengths is None else step.lengths
            frequency, factor = chosen_rope(sizes.ropes, sizes.rotated_elements, lengths, step.rope)
            turn = partial(rotate, factor=factor, interleaved=sizes.interleaved_rope)
            query, key = turn(query, step.positions, frequency), turn(key, step.positions, frequency)
        if sizes.qk_norm and sizes.qk_norm_last:
            query, key = norm(query, "q"), norm(key, "k")
        if sizes.query_growth is not None:
            rate, tokens = sizes.query_growth
            grown = 1 + rate * jnp.log1p(jnp.floor(step.positions / tokens))
            query = query * grown[..., None, None].astype(dtype)
        query, key, value = as_integers(query, key, value, sizes.integer_kv, weights)
        if step.kv_codec is not None:
            key, value = step.kv_codec(key), step.kv_codec(value)
        key, value = key.transpose(0, 2, 3, 1), value.transpose(0, 2, 1, 3)
        sources = [
            *(KVSource(source.key.astype(dtype), source.value.astype(dtype), source.mask) for source in step.sources),
            KVSource(key, value, step.mask),
        ]
        sinks = weights["sinks"] if sizes.attention_sinks else None
        attended = step.attending()(query, sources, scale=sizes.score_scale, cap=sizes.score_cap, sinks=sinks)
        if gate is not None:
            attended = attended * jax.nn.sigmoid(gate)
        output = biased_rows(attended, weights, "o", sizes.o_bias, dot_dtype, sizes.rounded_inputs)
        return AttentionResult(output, (key, value), {"qkv": normed, "o": attended})
