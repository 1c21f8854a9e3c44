"""Results of `jaxspec pack`, `inspect` and `unpack`: a container or a checkpoint, tensor by tensor, and restored files."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.results import Quantity, Record, Result, measured
from jaxspec.results.records import one_word

__all__ = ["DEQUANTIZED", "PackResult", "TensorResult", "UnpackResult", "UnpackedFile", "WholeTensor"]

#: A size that a checkpoint does not have before it is packed, or a container without a draft.
_NONE: Quantity[float] = measured(None)


#: Option of a container whose weights a file had in fewer bits: the types that they were stored in.
DEQUANTIZED = "dequantized_from"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WholeTensor(Record):
    """Why a tensor is stored as it is, and the bytes that its codes would have taken, where they were made."""

    why: str = ""
    coded_bytes: int | None = None
    draft_bytes: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class TensorResult(Record):
    """One tensor; from `codec` on, as a container stores it.

    Attributes:
        dtype, bytes: before packing.
        unpacked_dtype: type in which the container gives it back, where that is another one.
        entropy: of what is given back, bits per value of each named field; None for types without fields, and where values were
            not read.
        bits_by_section: section -> bits per weight.
        code_tables: field -> symbol -> bits of its codeword.
        whole: None where the tensor is coded, or the scheme codes nothing.
    """

    name: str = ""
    dtype: str = ""
    shape: list[int] = dataclasses.field(default_factory=list)
    bytes: int = 0
    elements: int = 0
    unpacked_dtype: str | None = None
    entropy: dict[str, float] | None = None
    codec: str | None = None
    sha256: str | None = None
    stored_bytes: int | None = None
    draft_bytes: int | None = None
    ratio: Quantity[float] = _NONE
    target_bits_per_weight: Quantity[float] = _NONE
    draft_bits_per_weight: Quantity[float] = _NONE
    bits_by_section: dict[str, float] = dataclasses.field(default_factory=dict)
    code_tables: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    whole: WholeTensor | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackResult(Result):
    """A container, or a checkpoint that is not packed, whose `scheme` is None.

    Attributes:
        options: settings that the container was packed with; of both, the types of weights that were stored in fewer bits.
    """

    arrange_statuses = staticmethod(one_word)

    schema_version: int = 1
    container: str | None = None
    checkpoint: str | None = None
    scheme: str | None = None
    options: dict[str, Any] | None = None
    lossless: bool | None = None
    file_bytes: int | None = None
    tensor_bytes: int = 0
    ratio: Quantity[float] = _NONE
    target_bits_per_weight: Quantity[float] = _NONE
    draft_bits_per_weight: Quantity[float] = _NONE
    tensors: list[TensorResult] = dataclasses.field(default_factory=list)
    timing_s: dict[str, Quantity[float]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnpackedFile(Record):
    """One restored file."""

    file: str = ""
    bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnpackResult(Result):
    """Files restored from a container."""

    arrange_statuses = staticmethod(one_word)

    schema_version: int = 1
    container: str = ""
    lossless: bool = True
    files: list[UnpackedFile] = dataclasses.field(default_factory=list)
    timing_s: dict[str, Quantity[float]] = dataclasses.field(default_factory=dict)
