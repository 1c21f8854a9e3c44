"""What a device's die consists of: area and power part by part, from the sizes that its times follow from.

A larger array, scratchpad, decoder or interface always takes more area and more power: each part is a sum over what the compute
unit says that it is built of (`ComputeUnit.hardware`), over decoders and encoders, and over the interfaces to memories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.chip.blocks import (
    HardwareBlock,
    Technology,
    integer_mac_area,
    integer_mac_energy,
    interface_area,
    mac_area,
    mac_energy,
    power_law,
    sram_area,
    sram_energy_per_byte,
)
from hwmodels.chip.published import FPGA_AREA, FPGA_POWER, MEMORY_USD_PER_BYTE, WAFER_USD
from hwmodels.compute.roofline import unit_of
from hwmodels.decoders.decoder import Decoder
from hwmodels.decoders.encoder import Encoder
from hwmodels.device import Device, MemoryTier
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE, GB, NANO

__all__ = [
    "ChipBill",
    "ChipParts",
    "chip_area_parts",
    "chip_bill",
    "chip_power_parts",
    "decoder_power",
    "die_price",
    "die_yield",
    "dies_per_wafer",
    "encoder_power",
    "memory_price",
    "path_power",
    "static_power",
]

#: Links between parts of a die, by their area: UCIe 1.0, advanced package, its densest. doi:10.1109/TCPMT.2022.3207195.
_LINK_BYTES_PER_S_M2 = 1350 * GB / 1e-6
#: Each byte that a memory delivers is written to the SRAM once and read once.
_ACCESSES = 2.0


@flax.struct.dataclass
class ChipParts:
    """Area in m2, or power in W with everything busy, by part; "*b"."""

    arrays: Float[Array, "*b"]  # multipliers and adders
    sram: Float[Array, "*b"]
    decoders: Float[Array, "*b"]  # and encoders
    interfaces: Float[Array, "*b"]  # to the memories
    links: Float[Array, "*b"]  # between the unit's parts, and from memories to it where the device's file has them
    other: Float[Array, "*b"]  # area: what is beside; power: drawn whatever is done

    @property
    def total(self) -> Float[Array, "*b"]:
        """All parts."""
        return self.arrays + self.sram + self.decoders + self.interfaces + self.links + self.other


def chip_area_parts(device: Device, technology: Technology) -> ChipParts:
    """Area of a device's die, part by part; arguments as of `hwmodels.chip.chip_bill`.

    Gradient: right by every size; by the node with kinks at printed nodes.
    """
    blocks, node = unit_of(device).hardware(device, technology), technology.node_m
    arrays = _total(as_float(one.macs) * _mac_area(one, technology) for one in blocks)
    kept = {"efficiency": technology.sram_efficiency}
    sram = _total(
        [sram_area(node, technology.sram_bytes, **kept)]
        + [sram_area(node, one.sram_bytes, **kept) * (FPGA_AREA if one.fpga else 1.0) for one in blocks]
        + [sram_area(node, tier.capacity_bytes, **kept) for tier in device.tiers if tier.on_chip]
    )
    decoders = jnp.asarray(0.0 if device.decoder is None else device.decoder.total_area_m2)
    decoders = decoders + (0.0 if device.encoder is None else device.encoder.total_area_m2)
    rates = [as_float(one.link_bytes_per_s) for one in blocks] + [_path_rate(device)]
    links = _total(rate / _LINK_BYTES_PER_S_M2 for rate in rates)
    interfaces = _total(
        interface_area(technology.memory_interface, node, tier.bandwidth_bytes_per_s)
        for tier in device.tiers
        if not (tier.coupled or tier.on_chip)
    )
    other = (arrays + sram + decoders) * as_float(technology.other_area_share)
    return ChipParts(arrays, sram, decoders, interfaces, links, other)


def chip_power_parts(device: Device, technology: Technology) -> ChipParts:
    """Power with everything busy at once, part by part, and what is drawn whatever is done; see `chip_area_parts`.

    A memory whose energy per bit is not known takes none.
    """
    blocks, node = unit_of(device).hardware(device, technology), technology.node_m
    arrays = _total(as_float(one.macs) * as_float(one.frequency_hz) * _mac_energy(one, technology) for one in blocks)
    # What a memory on the chip takes is said beside it: its bytes pass through no second one.
    outside = [tier for tier in device.tiers if not tier.on_chip]
    bytes_per_s = sum((as_float(tier.bandwidth_bytes_per_s) for tier in outside), start=0.0)
    size = _total([as_float(technology.sram_bytes), *(as_float(one.sram_bytes) for one in blocks)])
    # A byte of no SRAM takes nothing; its energy is asked of a size at which it is finite.
    read = sram_energy_per_byte(node, jnp.where(size > 0, size, 1.0))
    sram = jnp.where(size > 0, _ACCESSES * bytes_per_s * read, 0.0)
    sram = sram + _total(_streaming_power(tier) for tier in device.tiers if tier.on_chip)
    interfaces = _total(_streaming_power(tier) for tier in outside)
    decoders = 0.0 if device.decoder is None else decoder_power(device.decoder)
    decoders = decoders + (0.0 if device.encoder is None else encoder_power(device.encoder))
    links = _total(as_float(one.link_bytes_per_s) * BITS_PER_BYTE * as_float(one.link_j_per_bit) for one in blocks)
    links = links + path_power(device)
    static = chip_area_parts(device, technology).total * as_float(technology.static_w_per_m2)
    return ChipParts(arrays, sram, jnp.asarray(decoders), interfaces, links, static)


def decoder_power(decoder: Decoder) -> Float[Array, "*b"]:
    """Power of all of a device's decoders at their full rate, "*b", in W; one without a rate decodes nothing."""
    a_second = as_float(decoder.frequency_hz) * jnp.nan_to_num(as_float(decoder.symbols_per_cycle), posinf=0.0)
    each = as_float(decoder.power_w) + as_float(decoder.symbol_energy_j) * a_second
    return jnp.asarray(as_float(decoder.count) * each)


def encoder_power(encoder: Encoder) -> Float[Array, "*b"]:
    """Power of all of a device's encoders at their full rate, "*b", in W."""
    a_second = as_float(encoder.frequency_hz) * as_float(encoder.values_per_cycle)
    each = as_float(encoder.power_w) + as_float(encoder.value_energy_j) * a_second
    return jnp.asarray(as_float(encoder.count) * each)


def path_power(device: Device) -> Leaf:
    """Power of the links between memories and compute unit at their full rate, "*b", in W; 0 where they are not known."""
    if device.on_chip_path is None or device.on_chip_path.link_energy_j_per_bit is None:
        return 0.0
    return _path_rate(device) * BITS_PER_BYTE * as_float(device.on_chip_path.link_energy_j_per_bit)


def _path_rate(device: Device) -> Leaf:
    """Bytes per second that the links between memories and compute unit are made for; 0 where they are not known."""
    path = device.on_chip_path
    if path is None:
        return 0.0
    return as_float(path.buffer_bytes_per_s if path.link_bytes_per_s is None else path.link_bytes_per_s)


def _streaming_power(tier: MemoryTier) -> Leaf:
    """Of a memory at its full rate; none where its energy per bit is not known."""
    if tier.energy_j_per_bit is None:
        return 0.0
    return as_float(tier.bandwidth_bytes_per_s) * BITS_PER_BYTE * as_float(tier.energy_j_per_bit)


def _mac_area(block: HardwareBlock, technology: Technology) -> Leaf:
    if block.weight_bits is None:
        area = mac_area(technology.node_m, technology.number_format)
    else:
        area = integer_mac_area(technology.node_m, block.weight_bits, block.activation_bits)
    return area * (FPGA_AREA if block.fpga else 1.0)


def _mac_energy(block: HardwareBlock, technology: Technology) -> Leaf:
    if block.mac_energy_j is not None:
        return as_float(block.mac_energy_j)
    if block.weight_bits is None:
        energy = mac_energy(technology.node_m, technology.number_format)
    else:
        energy = integer_mac_energy(technology.node_m, block.weight_bits, block.activation_bits)
    return energy * (FPGA_POWER if block.fpga else 1.0)


def _total(parts: Sequence[Leaf] | object) -> Float[Array, "*b"]:
    return jnp.asarray(sum(parts, start=0.0))  # pyright: ignore[reportCallIssue, reportArgumentType]


# Everything that a device costs: area, power and price, with their parts.

_WAFER_M = 0.3
#: How faults come in clusters: the exponent of the negative binomial distribution; 3 is common for logic.
#: Cunningham 1990, doi:10.1109/66.53188.
_CLUSTERING = 3.0


def dies_per_wafer(area_m2: Number) -> Float[Array, "*b"]:
    """Whole square dies of a wafer of 300 mm, "*b"; real, and at least one thousandth, so that gradients go on.

    Source: Hennessy and Patterson, Computer Architecture, 6th ed., 1.6: pi (d/2)^2 / A - pi d / sqrt(2 A).
    """
    area = as_float(area_m2)
    dies = math.pi * (_WAFER_M / 2) ** 2 / area - math.pi * _WAFER_M / jnp.sqrt(2.0 * jnp.asarray(area))
    return jnp.maximum(dies, 1e-3)


def die_yield(area_m2: Number, defects_per_m2: Number) -> Float[Array, "*b"]:
    """Share of dies without a fault, "*b", in (0, 1]: negative binomial, (1 + A D / 3)^-3."""
    return jnp.asarray((1.0 + as_float(area_m2) * as_float(defects_per_m2) / _CLUSTERING) ** -_CLUSTERING)


def die_price(area_m2: Number, technology: Technology) -> Float[Array, "*b"]:
    """Price of a die that works, "*b", in USD: of the wafer over its good dies. Source: see `WAFER_USD`."""
    wafer = power_law({node * NANO: price for node, price in WAFER_USD.items()}, technology.node_m)
    return wafer / (dies_per_wafer(area_m2) * die_yield(area_m2, technology.defects_per_m2))


def memory_price(device: Device, technology: Technology) -> Float[Array, "*b"]:
    """Price of the device's memories by their capacity, "*b", in USD; those on the chip are paid for with the die."""
    capacity = sum((as_float(tier.capacity_bytes) for tier in device.tiers if not tier.on_chip), start=0.0)
    return jnp.asarray(capacity * MEMORY_USD_PER_BYTE[technology.memory_interface])


@flax.struct.dataclass
class ChipBill:
    """Cost of a device, "*b"."""

    area_m2: Float[Array, "*b"]  # of the die
    power_w: Float[Array, "*b"]  # with everything busy at once
    price_usd: Float[Array, "*b"]  # of die and memories
    area: ChipParts
    power: ChipParts


def chip_bill(device: Device, technology: Technology | None = None) -> ChipBill:
    """Area, power and price of a device by the sizes that its times follow from.

    Args:
        device: leaves "*b".
        technology: leaves "*b"; the device's own unless given.
    Raises:
        ValueError: no technology, neither given nor the device's.
    Gradient: smooth by sizes, rates and capacities; by the node with kinks at printed nodes.
    """
    process = device.technology if technology is None else technology
    if process is None:
        raise ValueError("the device has no technology; give one, such as Technology(node_m=7e-9)")
    area, power = chip_area_parts(device, process), chip_power_parts(device, process)
    price = die_price(area.total, process) + memory_price(device, process)
    return ChipBill(area.total, power.total, price, area, power)


def static_power(device: Device) -> Float[Array, "*b"]:
    """Power that the device draws whatever it does, "*b": as its [chip] says, or as area and technology have it.

    Raises:
        ValueError: the device has neither.
    """
    if device.chip is not None:
        return as_float(device.chip.static_power_w)
    if device.technology is None:
        raise ValueError("the device has neither a chip nor a technology, so that its power is not known")
    return chip_area_parts(device, device.technology).total * as_float(device.technology.static_w_per_m2)
