"""What a reader of times of a network with linear attention should know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hwmodels.compute.roofline import unit_of
from hwmodels.device import Device
from hwmodels.network.architecture import Architecture

__all__ = ["linear_remarks"]


def linear_remarks(device: Device, networks: Sequence[Architecture]) -> list[str]:
    """Sentences on layers with linear attention; empty for networks without them.

    Args:
        networks: target and draft, as far as they are given; leaves "*b" or single numbers.
    """
    layers = max((np.max(np.asarray(one.num_linear_layers)) for one in networks), default=0)
    if layers == 0:
        return []
    told = [
        "linear attention: a verification writes a state for each new token; engines that compute states again write less"
    ]
    if unit_of(device).measured is not None:
        told.append(
            f"not measured: linear attention of {layers:g} layers; its states move at the device's bandwidth, a launch each"
        )
    return told
