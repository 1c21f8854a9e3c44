"""Grouped-query attention with rotary positions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from jaxtyping import Array, Float

from jaxspec.models.attention import KVSource, attend, attend_sequentially
from jaxspec.models.blocks.interface import AttentionResult, StepInput
from jaxspec.models.dots import dot_rows
from jaxspec.models.norms import rms_norm
from jaxspec.models.rope import inverse_frequencies, rotate
from jaxspec.models.sizes import DecoderSizes

__all__ = ["GroupedAttention"]


@dataclasses.dataclass(frozen=True)
class GroupedAttention:
    """Attention in which groups of query heads share one key-value head.

    Source: Ainslie et al. 2023, arXiv:2305.13245. Norms per head (`qk_norm`): Qwen3; biases (`qkv_bias`): Qwen2.
    """

    def matrices(self, sizes: DecoderSizes) -> dict[str, tuple[int, ...]]:
        """See `Block`."""
        query, key = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim
        hidden = sizes.hidden_size
        return {"q": (query, hidden), "k": (key, hidden), "v": (key, hidden), "o": (hidden, query)}

    @property
    def residual_matrices(self) -> tuple[str, ...]:
        """See `Block`."""
        return ("o",)

    def vectors(self, sizes: DecoderSizes) -> dict[str, tuple[int, float]]:
        """See `Block`."""
        norms = {"q_norm": (sizes.head_dim, 1.0), "k_norm": (sizes.head_dim, 1.0)} if sizes.qk_norm else {}
        return norms | {name: (length, 0.0) for name, length in self._biases(sizes).items()}

    def _biases(self, sizes: DecoderSizes) -> dict[str, int]:
        shapes = self.matrices(sizes)
        return {f"{kind}_bias": shapes[kind][0] for kind in ("q", "k", "v")} if sizes.qkv_bias else {}

    def architecture_fields(self, sizes: DecoderSizes, layers: int) -> dict[str, float]:
        """See `Block`."""
        return {
            "num_heads": sizes.num_heads,
            "num_kv_heads": sizes.num_kv_heads,
            "head_dim": sizes.head_dim,
            "qk_norm": sizes.qk_norm,
            "vectors_per_layer": sum(self._biases(sizes).values()),
        }

    def cached_shape(self, sizes: DecoderSizes) -> tuple[int, int]:
        """See `Attention`."""
        return sizes.num_kv_heads, sizes.head_dim

    def apply(
        self,
        normed: Float[Array, "batch token hidden"],
        weights: Mapping[str, Array],
        sizes: DecoderSizes,
        step: StepInput,
    ) -> AttentionResult:
        """See `Attention`."""
        dtype, dot_dtype = normed.dtype, step.dot_dtype

        def project(kind: str) -> Float[Array, "batch token head head_dim"]:
            product = dot_rows(normed, weights[kind].astype(dtype), dot_dtype)
            if sizes.qkv_bias:
                product += weights[f"{kind}_bias"].astype(dtype)
            return product.reshape(*product.shape[:2], -1, sizes.head_dim)

        query, key, value = map(project, ("q", "k", "v"))
        if sizes.qk_norm:
            query = rms_norm(query, weights["q_norm"], sizes.norm_eps)
            key = rms_norm(key, weights["k_norm"], sizes.norm_eps)
        frequency = inverse_frequencies(sizes)
        query, key = rotate(query, step.positions, frequency), rotate(key, step.positions, frequency)
        if step.kv_codec is not None:
            key, value = step.kv_codec(key), step.kv_codec(value)
        key, value = key.transpose(0, 2, 3, 1), value.transpose(0, 2, 1, 3)
        sources = [
            *(KVSource(source.key.astype(dtype), source.value.astype(dtype), source.mask) for source in step.sources),
            KVSource(key, value, step.mask),
        ]
        attended = attend_sequentially(query, sources, dot_dtype) if step.frugal else attend(query, sources)
        output = dot_rows(attended, weights["o"].astype(dtype), dot_dtype)
        return AttentionResult(output, (key, value), {"qkv": normed, "o": attended})
