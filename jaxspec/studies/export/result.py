"""Result of `jaxspec export`."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.results import UNKNOWN, Quantity, Record, Result, quantity_field
from jaxspec.results.network_results import AcceptanceRates

__all__ = ["DecodedDraft", "ExportResult"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodedDraft(Record):
    """Held-out prompts decoded with the draft."""

    prompts: Quantity[int] = UNKNOWN
    acceptance: AcceptanceRates = dataclasses.field(default_factory=AcceptanceRates)
    tokens_per_cycle: Quantity[float] = quantity_field(error="tokens_per_cycle_standard_error")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportResult(Result):
    """A draft written for other engines.

    Attributes:
        run, command: run directory and the command that made it.
        target: where engines find the target; unpacked there from `container`, where the run opened one.
        checkpoint: that the run opened, where the scheme rounds the target and it was written as well; otherwise None.
        target_dtype: number format in which it was written.
        files: name -> bytes, of the directory.
        zero_share: of the weights of the layers' matrices, those that are zero.
        compressed_kv: whether the run's draft read a compressed KV cache, which engines do not.
        in_run: as the run decoded, on the target's own KV cache, compressed.
        alone: with a KV cache of its own, not compressed, as engines run it; unknown where it was not decoded.
        engines: name -> flags or settings.
        format, draft_dtype: of a model in few bits: how it is written; `target_dtype` and this are the types of the matrices.
        speedup_vs_stored_ar: predicted for the device, over the written target without a draft.
    """

    schema_version: int = 1
    run: str | None = None
    command: str | None = None
    configuration: str | None = None
    device: str | None = None
    architecture: str | None = None
    target: str | None = None
    container: str | None = None
    checkpoint: str | None = None
    target_dtype: str | None = None
    directory: str | None = None
    files: dict[str, int] = dataclasses.field(default_factory=dict)
    dtype: str | None = None
    format: str | None = None
    draft_dtype: str | None = None
    scheme: str | None = None
    draft_length: Quantity[int] = UNKNOWN
    bits_per_weight: Quantity[float] = UNKNOWN
    speedup_vs_bf16_ar: Quantity[float] = UNKNOWN
    speedup_vs_stored_ar: Quantity[float] = UNKNOWN
    zero_share: Quantity[float] = UNKNOWN
    compressed_kv: bool | None = None
    in_run: DecodedDraft = DecodedDraft()
    alone: DecodedDraft = DecodedDraft()
    engines: dict[str, Any] = dataclasses.field(default_factory=dict)
    timing_s: dict[str, Quantity[float]] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
