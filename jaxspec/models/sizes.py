"""Sizes and constants of a decoder: what its layers share, and the numbers in which layers of one kind may differ."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal

from hwmodels.networks import SharedSizes
from jaxspec.models.norms import ACTIVATIONS
from jaxspec.models.rope import Rope, RopeScaling
from jaxspec.settings.compressions import IntegerKV, RoundedInputs

__all__ = ["DecoderSizes", "NormKind", "shortest"]

#: Kinds of norm (see `jaxspec.models.norms`).
NormKind = Literal["rms", "shifted_rms", "layer", "unbiased_layer"]

_SIZES = (
    *("vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim"),
    *("embedding_scale", "residual_scale", "logit_divisor"),
)
_OPTIONAL = ("score_scale", "score_cap", "logit_cap", "rotary_dim")


@dataclasses.dataclass(frozen=True)
class DecoderSizes(SharedSizes):
    """Static sizes and constants of a decoder; which blocks its layers consist of is added by `DecoderConfig`.

    Windows and rotations are patterns: one that is shorter than the network is repeated.

    Attributes:
        rope_theta, rope_scaling: rotation of queries and keys.
        norm: kind of all norms. norm_eps: what they add to the variance.
        pre_norms, post_norms: whether a block's input, and its output before it is added to the stream, are normed.
        parallel: both blocks of a layer read its input, after one norm, and what they put out is added together.
        qk_norm_scales: of norms of queries and keys per head, each element of all heads has a scale of its own.
        qk_norm_last: queries and keys are normed after their rotation.
        activation: of the feed-forward networks (see `jaxspec.models.norms`), but of dense ones with `xielu`.
        local_rope: rotation in layers with a window, where it is another one.
        score_scale: by which scores of attention are multiplied; None: 1 / sqrt(elements of a query head).
        score_cap, logit_cap: soft caps, cap * tanh(x / cap), of scores and logits; None: no cap.
        embedding_scale: of the embedding, where it enters the first layer.
        residual_scale: of what a block adds to the stream.
        logit_divisor: by which logits are divided, before their cap.
        rounded_inputs: form in which the layers' matrices read activations; None: as they are.
        integer_kv: integers to which keys and values are rounded as they are written; None: they are not.
    Raises:
        ValueError: a size is not positive, the query heads are no multiple of the KV heads, an unknown activation, or a pattern
            that does not divide the layers; rounded inputs or a cache of integers beside latent or linear attention, spread
            inputs beside experts.
    """

    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    norm: NormKind = "rms"
    pre_norms: bool = True
    post_norms: bool = False
    parallel: bool = False
    qk_norm_scales: bool = False
    qk_norm_last: bool = False
    activation: str = "silu"
    local_rope: Rope | None = None
    score_scale: float | None = None
    score_cap: float | None = None
    logit_cap: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_divisor: float = 1.0
    rounded_inputs: RoundedInputs | None = None
    integer_kv: IntegerKV | None = None

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            least = 1 if isinstance(value, int) else 0
            if value < least or value == 0:
                raise ValueError(f"{name} is {value}; it must be {'at least 1' if least else 'above 0'}")
        for name in _OPTIONAL:
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} is {value}; it must be above 0, or None")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.num_heads} query heads cannot share {self.num_kv_heads} KV heads; "
                "the first must be a multiple of the second"
            )
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation is {self.activation!r}; allowed are {', '.join(ACTIVATIONS)}")
        for name in ("windows", "rotated"):
            pattern = getattr(self, name)
            if not pattern or self.num_layers % len(pattern):
                raise ValueError(f"{name} has {len(pattern)} entries; they must divide the {self.num_layers} layers")
            # Equal networks have equal descriptions.
            object.__setattr__(self, name, shortest(pattern))
        if any(window is not None and window < 1 for window in self.windows):
            raise ValueError(f"windows are {self.windows}; each must be at least 1, or None")
        if self.rounded_inputs is not None and self.latent is not None:
            raise ValueError(
                "rounded_inputs and latent are both given; latent attention, which multiplies by its projections in two ways, "
                "reads activations as they are: give one of the two"
            )
        if self.rounded_inputs is not None and self.rounded_inputs.spread and self.experts is not None:
            raise ValueError(
                "rounded_inputs are spread, and experts are given; no space is made for the inputs of experts: give one of both"
            )
        if self.integer_kv is not None and self.latent is not None:
            raise ValueError(
                "integer_kv and latent are both given; latent attention caches no keys and values of heads: give one of the two"
            )
        if self.linear is not None and (self.rounded_inputs is not None or self.integer_kv is not None):
            name = "integer_kv" if self.rounded_inputs is None else "rounded_inputs"
            raise ValueError(
                f"{name} and linear are both given; linear attention reads activations as they are, and caches no keys: "
                "give one of both"
            )
        if self.latent is None and any(self.rotated) and 2 * self.planes > self.head_dim:
            if self.rotary_dim in (None, self.head_dim):
                raise ValueError(f"head_dim is {self.head_dim}; rotary embeddings need an even one")
            raise ValueError(f"{self.planes} planes are rotated; head_dim {self.head_dim} has not so many")

    @property
    def rotated_elements(self) -> int:
        """Elements of a head that are rotated where anything is."""
        if self.latent is not None:
            return self.latent.rope_head_dim
        return self.head_dim if self.rotary_dim is None else self.rotary_dim

    @property
    def planes(self) -> int:
        """Planes of a head that are rotated where anything is."""
        return (self.rotated_elements + 1) // 2

    @property
    def scored_heads(self) -> int:
        """Scores of a layer for each token that a token sees: of linear attention its key's, its query's and their decay."""
        linear = self.linear
        if linear is None or linear.convolution_alone:
            return self.num_heads
        return max(self.num_heads, 3 * linear.value_heads)

    @property
    def windowed(self) -> bool:
        """Whether any layer has a window."""
        return any(window is not None for window in self.windows)

    def rope(self, layer: int) -> Rope | None:
        """Rotation of one layer; None where nothing is rotated."""
        if not self.rotated[layer % len(self.rotated)]:
            return None
        local = self.windows[layer % len(self.windows)] is not None and self.local_rope is not None
        return self.local_rope if local else Rope(self.rope_theta, self.rope_scaling)

    @functools.cached_property
    def ropes(self) -> tuple[Rope | None, ...]:
        """The distinct rotations of the layers, in the order in which they come."""
        period = math.lcm(len(self.windows), len(self.rotated))
        return tuple(dict.fromkeys(map(self.rope, range(period))))


def shortest(pattern: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shortest pattern that this one repeats."""
    lengths = (length for length in range(1, len(pattern) + 1) if len(pattern) % length == 0)
    return next(pattern[:length] for length in lengths if pattern[:length] * (len(pattern) // length) == pattern)
