"""What result.json says of widths without a measured kernel, of fits behind a device's times, of encoders, of idle devices."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from hwmodels import Architecture, Device, Footprint
from hwmodels.analysis.encoder_remarks import encoder_remarks
from hwmodels.analysis.group_remarks import group_remarks
from hwmodels.analysis.kernel_widths import kernel_remarks, kernel_widths
from hwmodels.analysis.linear_remarks import linear_remarks

__all__ = ["kernel_notes"]


def kernel_notes(
    device: Device,
    footprints: Sequence[Footprint],
    *,
    batch: float | None = None,
    architecture: Architecture | None = None,
) -> dict[str, Any]:
    """The fields `kernel_widths` and `notes` of an entry.

    Args:
        footprints: all that are priced on the device; leaves "*b".
        batch: sequences decoded together; None: several numbers of them.
        architecture: of the priced network; None: of several ones.
    Returns:
        "kernel_widths": bits by what is known of their kernels, see `hwmodels.KernelWidths`; None for a device that is not
        calibrated. "notes": sentences for a reader.
    """
    flat = [jax.tree.map(lambda leaf: np.ravel(np.asarray(jax.device_get(leaf), np.float64)), f) for f in footprints]
    together = jax.tree.map(lambda *leaves: np.concatenate(leaves), *flat)
    experts = None if architecture is None else bool(np.asarray(architecture.num_experts) > 0)
    found = kernel_widths(device, together, experts=experts)
    return {
        "kernel_widths": None if found is None else {k: list(v) for k, v in dataclasses.asdict(found).items()},
        "notes": [
            *kernel_remarks(device, together, experts=experts),
            *encoder_remarks(device, together),
            *([] if architecture is None else linear_remarks(device, architecture)),
            *([] if batch is None else group_remarks(device, batch)),
        ],
    }
