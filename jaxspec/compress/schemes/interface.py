"""What a storage scheme is: how a draft is cut out of a target, what reading either takes, and how a file holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.formats.container import Codec
from jaxspec.settings.knobs import KnobSpec
from jaxspec.settings.schemes import SchemeFacts

__all__ = ["CompressedKV", "CompressedLayer", "Layer", "LayerKnobs", "Scheme"]

#: Parameters of one layer by name; the matrices of `MATRIX_KINDS` are "row column".
Layer = dict[str, Array]

#: Knobs of one layer by name: " kind" for knobs of matrices, "" for knobs of a layer.
LayerKnobs = dict[str, Array]


class CompressedLayer(NamedTuple):
    """One layer of a draft.

    Attributes:
        matrices: kind -> "row column", what the draft computes with.
        footprint: bits read per stored weight by kind; nothing of the KV cache.
    """

    matrices: Layer
    footprint: Footprint


class CompressedKV(NamedTuple):
    """KV of one layer as a draft reads it.

    Attributes:
        rows: "*b column", one row for the keys or the values of a token.
        footprint: bits read per stored element; nothing of the weights.
    """

    rows: Float[Array, "*b column"]
    footprint: Footprint


class Scheme(Protocol):
    """A way to store a network so that a draft is a part of it. Members are frozen, hashable and hold no arrays.

    Everything that runs works on one layer at a time and under `jit`, `vmap` and `grad`; callers map it over layers. A scheme
    whose facts say `runs` False can be priced and packed; its functions of a layer raise NotImplementedError.
    """

    @property
    def facts(self) -> SchemeFacts:
        """Its entry in the registry, `jaxspec.settings.schemes`."""
        ...

    @property
    def name(self) -> str:
        """As users give it."""
        ...

    @property
    def title(self) -> str:
        """One line."""
        ...

    @property
    def lossless(self) -> bool:
        """Whether the target is the uncompressed network's, bit for bit."""
        ...

    @property
    def knob_specs(self) -> tuple[KnobSpec, ...]:
        """What may be set; empty for a scheme without choices."""
        ...

    @property
    def codec(self) -> Codec | None:
        """The container's, or None where no file of this scheme can be written yet."""
        ...

    def prepare(self, layer: Layer, channel_norms: Mapping[str, Float[Array, " column"]]) -> Any:
        """Whatever of a layer is worth computing once for all knobs.

        Args:
            channel_norms: L2 norm of each input channel over calibration tokens, by input group (see `INPUT_OF`).
        """
        ...

    def soft(
        self, layer: Layer, prepared: Any, knobs: LayerKnobs, temperature: Float[Array, ""] | float
    ) -> CompressedLayer:
        """The differentiable draft; tends to `hard` as the temperature (> 0) falls, away from half-way knobs."""
        ...

    def hard(self, layer: Layer, prepared: Any, knobs: LayerKnobs) -> CompressedLayer:
        """The bit-exact draft."""
        ...

    def target(self, layer: Layer) -> Layer:
        """The layer that the target computes with."""
        ...

    def prepare_kv(self, rows: Float[Array, "*b slot column"]) -> Any:
        """Whatever of one layer's known KV is worth computing once for all knobs."""
        ...

    def soft_kv(self, prepared: Any, knobs: LayerKnobs, temperature: Float[Array, ""] | float) -> CompressedKV:
        """The differentiable compressed KV."""
        ...

    def hard_kv(self, prepared: Any, knobs: LayerKnobs) -> CompressedKV:
        """The bit-exact compressed KV."""
        ...

    def encode_kv(self, rows: Float[Array, "*b column"], knobs: LayerKnobs) -> Float[Array, "*b column"]:
        """`hard_kv` of rows seen for the first time, inside a decoding loop, without its footprint."""
        ...

    def expected_footprint(self, knobs: Mapping[str, float]) -> Footprint:
        """Bits read on Gaussian rows (see `gaussian_patterns`), the same knobs everywhere; experts as other matrices.

        Args:
            knobs: one number for each of `knob_specs`.
        """
        ...
