"""What result.json says of widths without a measured kernel, of fits behind a device's times, of encoders, of idle devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from hwmodels import Architecture, Device, Footprint
from hwmodels.analysis.kernel_widths import kernel_remarks, kernel_widths
from hwmodels.analysis.remarks import encoder_remarks, group_remarks, linear_remarks
from hwmodels.numerics.scalars import Number
from jaxspec.studies.feasibility import memory_notes, position_notes

__all__ = ["kernel_notes"]


def kernel_notes(
    device: Device,
    footprints: Sequence[Footprint],
    *,
    batches: Iterable[Number],
    architecture: Architecture | None = None,
    draft: Architecture | None = None,
    when: str = "at any moment",
    texts: Mapping[str, float] | None = None,
    held: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """The fields `kernel_widths` and `notes` of an entry.

    Args:
        footprints: all that are priced on the device; leaves "*b".
        batches, when: sequences decoded together, all numbers of them that are priced; see `group_remarks`.
        architecture: of the priced network, leaves "*b"; None: of several ones.
        draft: of a draft network of its own; None: there is none.
        texts, held: see `position_notes` and `memory_notes`; None: nothing is said of them.
    Returns:
        "kernel_widths": bits by what is known of their kernels, see `hwmodels.KernelWidths`; None for a device that is not
        calibrated. "notes": sentences for a reader.
    """
    flat = [jax.tree.map(lambda leaf: np.ravel(np.asarray(jax.device_get(leaf), np.float64)), f) for f in footprints]
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *flat)
    networks = [one for one in (architecture, draft) if one is not None]
    experts = None if architecture is None else any(np.any(np.asarray(one.num_experts) > 0) for one in networks)
    found = kernel_widths(device, together, experts=experts)
    return {
        "kernel_widths": None if found is None else {k: list(v) for k, v in dataclasses.asdict(found).items()},
        "notes": [
            *kernel_remarks(device, together, experts=experts),
            *encoder_remarks(device, together),
            *linear_remarks(device, networks),
            *group_remarks(device, batches, when=when),
            *position_notes(texts or {}),
            *memory_notes(device, held or {}),
        ],
    }
