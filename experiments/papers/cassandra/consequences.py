"""What follows from the units of Table V beyond its cells: other chips, energy, stalls, encoding, other papers' decoders."""

from __future__ import annotations

import dataclasses
from typing import Any

from experiments.papers.cassandra import units
from experiments.papers.cassandra.units import BFLOAT16_MACS, MM2, npu_decoder, npu_encoder, printed_value
from hwmodels.decoders import decode_cost, decoder, encoder, huffman_cam
from hwmodels.numerics.units import BITS_PER_BYTE, GB

__all__ = ["bounds", "checks"]

#: Bits read per weight in a draft step, 40 % pruned and 4 bits cut: bitmap, and sign, exponent, 3 mantissa bits of the kept.
DRAFT_BITS = 1 + 0.6 * (1 + units.MEAN_CODE_BITS + 3)  # Cassandra, IV-B and VI-A
KEPT_SHARE = 0.6

#: Keys and values of a token of Llama-3.1-8B: layers, heads, elements of a head, both.
KV_VALUES = 32 * 8 * 128 * 2

#: Memory bandwidths of the devices, in GB/s: NPU of Cassandra, VI-A; GPUs of their data sheets.
BANDWIDTH_GB_PER_S = {"systolic array NPU": 273.0, "RTX 4090": 1008.0, "Jetson AGX Orin": 204.8}

#: Huff-LLM, 5.2: a 5-bit decoder of 1199.3 um^2 and an element of 484 um^2 at 12 nm; 3.2: three of them for float16.
HUFFMAN_AREA_M2, PE_AREA_M2, HUFFMAN_NODE_NM = 1199.3e-12, 484e-12, 12.0


def bounds() -> list[dict[str, Any]]:
    """Area of the NPU's units on other chips, in percent of the die; the paper prints none, only that it should be smaller.

    As synthesised at 28 nm it is an upper bound. Scaled by the square of the node it is a lower one: real nodes shrink less.
    Decoders for the memory: as many as keep up with drafting straight from it, at the assumed clock.
    """
    decoders, encoders = npu_decoder(), npu_encoder()
    area_mm2 = float(decoders.total_area_m2 + encoders.total_area_m2) / MM2
    power_w = float(decode_cost.total_power(decoders, units.MEAN_CODE_BITS) + encoders.power_w)
    from_nm = printed_value("hardware_specs", "technology_node", device="systolic array NPU")
    rows = []
    for device, bandwidth in BANDWIDTH_GB_PER_S.items():
        decoded_bytes_per_cycle = bandwidth * GB / units.CLOCK_HZ * 16 / DRAFT_BITS
        row: dict[str, Any] = {
            "device": device,
            "decoders_for_memory": decoder.decoders_needed(
                decoders, decoded_bytes_per_cycle, KEPT_SHARE * units.MEAN_CODE_BITS
            ),
        }
        if device != "systolic array NPU":
            die = printed_value("hardware_specs", "die_area", device=device)
            node = printed_value("hardware_specs", "technology_node", device=device)
            row |= {
                "die_mm2": die,
                "node_nm": node,
                "percent_unscaled": 100.0 * area_mm2 / die,
                "percent_ideally_scaled": 100.0 * area_mm2 * (node / from_nm) ** 2 / die,
                "power_percent": 100.0 * (power_w / printed_value("hardware_specs", "power", device=device)),
            }
        rows.append(row)
    return rows


def checks() -> list[dict[str, Any]]:
    """Numbers that no cell holds: energy, stalls with fewer units, the encoder's time, and comparisons across papers."""
    decoders, encoders = npu_decoder(), npu_encoder()
    bits = units.MEAN_CODE_BITS
    kept_bits = KEPT_SHARE * bits
    weights = 8e9  # a model of 8 billion
    memory_s = weights * DRAFT_BITS / BITS_PER_BYTE / (BANDWIDTH_GB_PER_S["systolic array NPU"] * GB)
    scale = (28.0 / HUFFMAN_NODE_NM) ** 2
    unit_bytes = float(decoder.decoded_bytes_per_cycle(decoders, bits))
    entries: list[tuple[str, float, str]] = [
        (
            "energy of decoding, unpruned",
            float(decode_cost.energy_per_bit(decoders, bits)) * 1e12,
            "pJ per decoded bit",
        ),
        ("decoded by 40 units, unpruned", float(decoder.decoded_bytes_per_s(decoders, bits)) / GB, "GB/s"),
    ]
    for count in (40, 20, 10, 5):
        read = decode_cost.read_time(
            dataclasses.replace(decoders, count=float(count)), weights * decoders.symbol_bytes, kept_bits, memory_s
        )
        entries.append((f"stall factor of a draft step, {count} units", float(read.stall_factor), "x"))
    huffman = 3 * HUFFMAN_AREA_M2 / 2.0
    overhead = huffman_cam.area_overhead(
        HUFFMAN_AREA_M2, rows=128, columns=128, pe_area_m2=PE_AREA_M2, decoders_per_column=3
    )
    entries += [
        ("encoding a token's KV, one value per cycle", float(encoder.encode_time(encoders, KV_VALUES)) * 1e6, "us"),
        ("a draft step's reading, 8e9 weights", memory_s * 1e6, "us"),
        ("encoders needed for it", float(encoder.encoders_needed(encoders, KV_VALUES, memory_s)), "units"),
        ("unary area per decoded byte and cycle", decoders.area_m2 / unit_bytes * 1e12, "um^2 at 28 nm"),
        ("Huffman CAM area per decoded byte and cycle", huffman * 1e12, "um^2 at 12 nm"),
        ("the same, ideally scaled", huffman * scale * 1e12, "um^2 at 28 nm"),
        ("overhead of Huff-LLM's three decoders per column", 100.0 * float(overhead), "percent of the elements"),
        (
            "MAC area from Huff-LLM's element, ideally scaled (printed: 64.8)",
            PE_AREA_M2 * scale * BFLOAT16_MACS / MM2,
            "mm^2 at 28 nm",
        ),
    ]
    return [{"item": item, "value": value, "unit": unit} for item, value, unit in entries]
