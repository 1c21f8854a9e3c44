"""What a published row ran on: kernels of its engine and its weights' formats, widths, and what of that is not measured."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from experiments.field.engines import engine_of
from experiments.field.gpus import Gpu, device_of_group, named_device
from experiments.field.networks import A_NETWORK
from experiments.field.rows import FieldRow
from experiments.field.stored import SIXTEEN_BITS, Stored, stored, weight_bits
from hwmodels import Architecture, DraftCost, Footprint
from hwmodels.analysis.kernel_widths import kernel_remarks
from hwmodels.compute.roofline import unit_of
from hwmodels.numerics.scalars import Leaf

__all__ = ["Ran", "what_ran"]


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a row ran on: the target's kernels and the draft's, widths of both, and what is not measured of that.

    Attributes:
        draft_format: of kernels that also quantize a draft's activations; None: they keep 16 bits.
    """

    gpu: Gpu
    draft_gpu: Gpu
    draft_format: str | None
    footprint: Footprint
    notes: tuple[str, ...]


def what_ran(row: FieldRow, target: Architecture, draft: DraftCost) -> Ran:
    """Kernels and widths of a row. A draft is stored in 16 bits unless its row says otherwise, as heads and small networks are
    published; a head within the target's own file as the target."""
    how, drafts = _target_stored(row), float(draft.passes) > 0.0
    of_draft = stored(row.draft_precision) if drafts and not _in_target(row) else how
    own = target if draft.architecture is None else draft.architecture
    bits = weight_bits(how, target)
    draft_bits = dict(bits) if drafts and _in_target(row) else weight_bits(of_draft, own)
    if float(draft.shares_ends):  # they are the target's, as it stores them
        draft_bits |= {end: bits[end] for end in ("embed", "lm_head")}
    footprint = Footprint(
        target_weight_bits=bits,
        draft_weight_bits=draft_bits,
        target_kv_bits=row.kv_bits,
        draft_kv_bits=row.kv_bits,
    )
    gpu = _gpu_of(row, how, target, draft)
    # Weights of 16 bits have one kernel, which every format's device holds.
    apart = drafts and of_draft != SIXTEEN_BITS and of_draft != how
    draft_gpu = _gpu_of(row, of_draft, target, draft) if apart else gpu
    draft_format = draft_gpu.weight_format if drafts and of_draft.formats else None
    remarks = [*gpu.notes, *_of_widths(gpu, footprint.target_weight_bits, row, target)]
    if drafts:
        remarks += [*draft_gpu.notes, *_of_widths(draft_gpu, footprint.draft_weight_bits, row, own)]
    if drafts and not row.draft_precision and not _in_target(row) and how.bits < SIXTEEN_BITS.bits:
        remarks.append("draft_precision is empty: 16 bits are assumed")
    if not row.target_precision and how != SIXTEEN_BITS:
        remarks.append("target_precision is empty: Q4_K is assumed, as most files of llama.cpp have")
    return Ran(gpu, draft_gpu, draft_format, footprint, tuple(dict.fromkeys(remarks)))


def _target_stored(row: FieldRow) -> Stored:
    """A target's format; llama.cpp's files are of 4 bits unless their name says otherwise."""
    return stored(row.target_precision or ("q4_k" if engine_of(row.engine).name == "llama.cpp" else ""))


def _in_target(row: FieldRow) -> bool:
    """Whether a draft is stored in the target's file, whose precision then is its own."""
    return not row.draft_precision and re.search(r"\bin gguf\b", row.draft.lower()) is not None


def _of_widths(gpu: Gpu, bits: Mapping[str, Leaf], row: FieldRow, network: Architecture) -> list[str]:
    """Widths of one of a row's networks that its device has no measured kernel for."""
    measured = unit_of(gpu.device).measured
    if measured is None:
        return []
    alone = Footprint(
        target_weight_bits=dict(bits),
        draft_weight_bits=dict(bits),
        target_kv_bits=row.kv_bits,
        draft_kv_bits=row.kv_bits,
    )
    # The other network of the row may be the one that a format's kernels are for.
    remarks = kernel_remarks(gpu.device, alone, experts=bool(float(network.num_experts)), unused_format=False)
    return [one for one in remarks if one not in measured.remarks]


def _gpu_of(row: FieldRow, how: Stored, target: Architecture, draft: DraftCost) -> Gpu:
    """A row's device, alone or as one of several: those that share matrices as its notes say, else all of them."""
    engine = engine_of(row.engine)
    one = named_device(
        row.device, engine.kernels, how.formats, rows=engine.name is not None and engine.rows is not None
    )
    if row.device_count == 1 and row.tensor_parallel in (None, 1):
        return one
    tensor = row.tensor_parallel or row.device_count
    own = draft.architecture if draft.statement == A_NETWORK else None
    return device_of_group(row.device, one, tensor=tensor, devices=row.device_count, target=target, draft=own)
