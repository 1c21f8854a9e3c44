"""What a storage scheme is: how a draft is cut out of a target, what reading either takes, and how a file holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

from jaxtyping import Array, Float

from hwmodels import Footprint
from jaxspec.compress.footprint import BitsPerValue
from jaxspec.formats.container import Codec
from jaxspec.settings.knobs import KnobSpec, StoredDtype
from jaxspec.settings.schemes import SchemeFacts

__all__ = ["CompressedKV", "CompressedMatrix", "OwnKnobs", "Scheme"]

#: Knobs of one matrix, or of one layer's KV cache, by name.
OwnKnobs = dict[str, Float[Array, ""]]


class CompressedMatrix(NamedTuple):
    """One matrix of a draft.

    Attributes:
        values: what the draft computes with.
        bits: read per stored weight, by a draft step and by a verification.
    """

    values: Float[Array, "row column"]
    bits: BitsPerValue


class CompressedKV(NamedTuple):
    """KV of one layer as a draft reads it.

    Attributes:
        rows: "*b column", one row for the keys or the values of a token.
        bits: read per stored element, by a draft step and by a verification.
    """

    rows: Float[Array, "*b column"]
    bits: BitsPerValue


class Scheme(Protocol):
    """A way to store a network so that a draft is a part of it. Members are frozen, hashable and hold no arrays.

    Everything that runs works on one matrix, or one layer's KV, at a time and under `jit`, `vmap` and `grad`. A scheme whose
    facts say `runs` False can be priced and packed; its functions of a matrix raise NotImplementedError.
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

    def of_dtype(self, dtype: StoredDtype) -> Self:
        """The same scheme of networks stored in a 16-bit type: knobs that cut mantissa bits range over those that it has,
        KV caches are in it, and so is what the expected footprint counts. The registry's are of bfloat16.

        A matrix has the type that it is stored in, whichever this is.
        """
        ...

    @property
    def codec(self) -> Codec | None:
        """The container's, or None where no file of this scheme can be written yet."""
        ...

    def of_kind(self, kind: str) -> Scheme:
        """The scheme whose functions of a matrix hold for a kind of matrix: itself, unless it stores that kind otherwise.

        Args:
            kind: of a network, see `MATRIX_KINDS`; "lm_head" where the scheme's facts say that it compresses the head.
        """
        ...

    def prepare(self, matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> Any:
        """Whatever of a matrix is worth computing once for all knobs, and is much smaller than the matrix.

        Args:
            channel_norm: L2 norm of each input channel over calibration tokens.
        """
        ...

    def soft(
        self,
        matrix: Float[Array, "row column"],
        prepared: Any,
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
    ) -> CompressedMatrix:
        """The differentiable draft; tends to `hard` as the temperature (> 0) falls, away from half-way knobs."""
        ...

    def hard(self, matrix: Float[Array, "row column"], prepared: Any, knobs: OwnKnobs) -> CompressedMatrix:
        """The bit-exact draft."""
        ...

    def target(self, matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        """What the target computes with, of one matrix or of several; of a lossless scheme the stored values themselves."""
        ...

    def prepare_kv(self, rows: Float[Array, "*b slot column"]) -> Any:
        """Whatever of one layer's known KV, values of the type that networks are stored in, is worth computing once for all
        knobs."""
        ...

    def soft_kv(
        self,
        prepared: Any,
        knobs: OwnKnobs,
        temperature: Float[Array, ""] | float,
        counted: Float[Array, " batch"] | None = None,
    ) -> CompressedKV:
        """The differentiable compressed KV.

        Args:
            counted: whether the bits are about a sequence, 0 or 1; None: about all. Rows of all are compressed.
        """
        ...

    def hard_kv(self, prepared: Any, knobs: OwnKnobs, counted: Float[Array, " batch"] | None = None) -> CompressedKV:
        """The bit-exact compressed KV. Arguments as for `soft_kv`."""
        ...

    def encode_kv(self, rows: Float[Array, "*b column"], knobs: OwnKnobs) -> Float[Array, "*b column"]:
        """`hard_kv` of rows seen for the first time, inside a decoding loop, without its footprint."""
        ...

    def expected_footprint(self, knobs: Mapping[str, float]) -> Footprint:
        """Bits read on Gaussian rows (see `gaussian_patterns`), the same knobs everywhere; experts as other matrices.

        Args:
            knobs: one number for each of `knob_specs`.
        """
        ...
