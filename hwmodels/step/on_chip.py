"""Traffic on the chip: what a step's bytes take between memories and compute unit, coded before the decoders, 16 bits behind.

    place       buffer (L2 cache, scratchpad)    links (interconnect, network on chip)
    dma         decoded                          decoded
    l2          coded                            decoded
    array_edge  coded                            coded

Without decoders the compute unit unpacks values itself: they are coded on the whole way. Activations, and what is stored in 16
bits, take what they take.

Source: Cassandra, V-B and Fig. 10: in a GPU between L2 cache and interconnect, which uses the cache's capacity and bandwidth
    well; in an NPU within the DMA.
Departs: each byte passes once, as it is moved once and decoded once; what a product's tiles read again is left out.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.decoders.decoder import is_coded_at
from hwmodels.device import Device
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators import OPERATORS, OperatorWork
from hwmodels.numerics.axes import select
from hwmodels.numerics.scalars import with_last_axis
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.step.traffic import traffic_by_memory

__all__ = ["OnChipCost", "on_chip_cost"]

_ELEMENT_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE
_IS_ATTENTION = np.array([name == "attention" for name in OPERATORS])


@flax.struct.dataclass
class OnChipCost:
    """What traffic on the chip takes; times broadcast to "... operator"."""

    limit_s: tuple[Float[Array, "... operator"], ...]  # if only buffer or links took time; none without a path
    link_j: Float[Array, "... operator"] | None  # of the links; None: not known


def on_chip_cost(device: Device, work: OperatorWork) -> OnChipCost:
    """Time and energy of what each operator moves between the memories and the compute unit.

    Args:
        device: leaves "*b".
        work: "*b operator".
    Raises:
        ValueError: decoders and a path, and work that does not say what is coded.
    Gradient: right by every leaf; no kinks but those of `traffic_by_memory`.
    """
    if device.on_chip_path is None:
        return OnChipCost((), None)
    path, coded = with_last_axis(device.on_chip_path), sum(traffic_by_memory(device, work))
    buffer_bytes, link_bytes = (coded + _widening(device, work, level) for level in ("on_chip", "link"))
    if path.link_bytes_per_s is None:
        # Nothing is narrower behind the buffer than in it.
        limit_s = (link_bytes / path.buffer_bytes_per_s,)
    else:
        limit_s = (buffer_bytes / path.buffer_bytes_per_s, link_bytes / path.link_bytes_per_s)
    per_bit = path.link_energy_j_per_bit
    return OnChipCost(limit_s, None if per_bit is None else link_bytes * (BITS_PER_BYTE * per_bit))


def _widening(device: Device, work: OperatorWork, level: str) -> Float[Array, "... operator"]:
    """Bytes that decoding adds to what passes a level: none where values are still coded."""
    decoder = device.decoder
    if decoder is None or decoder.kind == "none" or is_coded_at(decoder, level):
        return jnp.zeros_like(work.flops)
    if work.coded_elements is None or work.coded_bits is None:
        raise ValueError(
            "the work does not say what is coded, which a device with a decoder needs; build it with step_operators"
        )
    added = work.coded_elements * _ELEMENT_BYTES - work.coded_bits / BITS_PER_BYTE
    return select(_IS_ATTENTION, added * with_last_axis(device.kv_traffic_factor), added)
