"""The codecs that a storage scheme is made of: how a draft is cut out of a target, and what reading either takes."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, Self

from jaxtyping import Array, Float

from jaxspec.compress.footprint import BitsPerValue
from jaxspec.settings.knobs import StoredDtype

__all__ = ["CompressedKV", "CompressedMatrix", "KVCodec", "MatrixCodec", "OwnKnobs"]

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


class MatrixCodec(Protocol):
    """How one matrix is stored: its target, and a draft as a part of it. Members are frozen, hashable and hold no arrays.

    Everything works on one matrix at a time and under `jit`, `vmap` and `grad`.
    """

    def prepare(self, matrix: Float[Array, "row column"], channel_norm: Float[Array, " column"]) -> Any:
        """Whatever of a matrix is worth computing once for all knobs, and is much smaller than the matrix.

        Args:
            channel_norm: L2 norm of each input channel over calibration tokens.
        """
        ...

    def soft(
        self, matrix: Float[Array, "row column"], prepared: Any, knobs: OwnKnobs, temperature: Float[Array, ""] | float
    ) -> CompressedMatrix:
        """The differentiable draft; tends to `hard` as the temperature (> 0) falls, away from half-way knobs."""
        ...

    def hard(self, matrix: Float[Array, "row column"], prepared: Any, knobs: OwnKnobs) -> CompressedMatrix:
        """The bit-exact draft."""
        ...

    def target(self, matrix: Float[Array, "*b row column"]) -> Float[Array, "*b row column"]:
        """What the target computes with, of one matrix or of several; of a lossless scheme the stored values themselves."""
        ...


class KVCodec(Protocol):
    """How keys and values are stored; otherwise as `MatrixCodec`, of one layer's KV at a time."""

    def of_dtype(self, dtype: StoredDtype) -> Self:
        """The same of caches in a 16-bit type; that of bfloat16 unless asked for."""
        ...

    def prepare(self, rows: Float[Array, "*b slot column"]) -> Any:
        """Whatever of one layer's known KV, values of the type that networks are stored in, is worth computing once for all
        knobs."""
        ...

    def soft(
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

    def hard(self, prepared: Any, knobs: OwnKnobs, counted: Float[Array, " batch"] | None = None) -> CompressedKV:
        """The bit-exact compressed KV. Arguments as for `soft`."""
        ...

    def encode(self, rows: Float[Array, "*b column"], knobs: OwnKnobs) -> Float[Array, "*b column"]:
        """`hard` of rows seen for the first time, inside a decoding loop, without its footprint."""
        ...
