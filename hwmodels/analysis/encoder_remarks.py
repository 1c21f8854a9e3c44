"""What a reader should know where a cache is stored compressed: encoding what is new may be priced at nothing."""

from __future__ import annotations

import numpy as np

from hwmodels.device import Device
from hwmodels.network.footprint import UNCOMPRESSED_BITS, Footprint

__all__ = ["encoder_remarks"]


def encoder_remarks(device: Device, footprint: Footprint) -> list[str]:
    """A sentence where keys and values are stored in fewer than 16 bits and the device has no encoder.

    Args:
        device: leaves are single numbers.
        footprint: leaves "*b", known.
    """
    if device.encoder is not None:
        return []
    bits = min(float(np.min(width)) for width in (footprint.draft_kv_bits, footprint.target_kv_bits))
    if bits >= UNCOMPRESSED_BITS:
        return []
    return [
        f"encoding: keys and values are read in {bits:.3g} bits, and this device's file has no [encoder]: compressing new ones "
        "takes neither time nor energy here"
    ]
