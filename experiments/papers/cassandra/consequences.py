"""What follows from the units of Table V beyond its cells: other chips, energy, stalls, encoding, other papers' decoders."""

from __future__ import annotations

import dataclasses
from typing import Any

from experiments.papers.cassandra import units
from experiments.papers.cassandra.units import BFLOAT16_MACS, MM2, NPU, npu_decoder, npu_encoder, printed_value
from experiments.papers.huffllm.hardware import printed_areas as huffllm_areas
from hwmodels import catalog
from hwmodels.decoders import decode_cost, decoder, encoder, huffman_cam
from hwmodels.numerics.units import BITS_PER_BYTE, GB

__all__ = ["bounds", "checks"]

#: Cassandra's evaluated configuration, VI-A: 40 % of the weights pruned, 4 bits of their mantissas cut.
_PRUNED, _CUT_BITS = (
    printed_value("algorithm_config", metric, parameter="evaluated configuration", target="weights")
    for metric in ("pruning_ratio", "mantissa_truncation")
)
KEPT_SHARE = 1.0 - _PRUNED / 100.0

#: Bits read per weight in a draft step: bitmap, and sign, exponent and what is left of 7 mantissa bits of the kept.
DRAFT_BITS = 1 + KEPT_SHARE * (1 + units.MEAN_CODE_BITS + 7 - _CUT_BITS)  # Cassandra, IV-B and VI-A

#: The GPUs of VI-D by their names in the catalog, and the model whose KV is encoded.
GPUS, KV_OF = {"RTX 4090": "rtx-4090", "Jetson AGX Orin": "jetson-agx-orin"}, "llama-3.1-8b"

#: Weights of the model whose draft step is timed.
_WEIGHTS = 8e9

#: Bytes that one Huffman decoder of a float16 weight, three CAMs, delivers per cycle.
_HUFFMAN_BYTES = 2.0


def _bandwidths() -> dict[str, float]:
    """Bytes per second by device: the NPU's as printed in VI-A, the GPUs' of the catalog."""
    npu = printed_value("hardware_specs", "memory_bandwidth", device=NPU) * GB
    return {
        NPU: npu,
        **{name: float(catalog.device(entry).memory.bandwidth_bytes_per_s) for name, entry in GPUS.items()},
    }


def _kv_values() -> float:
    """Keys and values of a token: layers, heads, elements of a head, both."""
    model = catalog.architecture(KV_OF)
    return float(model.num_layers * model.num_kv_heads * model.head_dim * 2)


def bounds() -> list[dict[str, Any]]:
    """Area of the NPU's units on other chips, in percent of the die; the paper prints none, only that it should be smaller.

    As synthesised at 28 nm it is an upper bound. Scaled by the square of the node it is a lower one: real nodes shrink less.
    Decoders for the memory: as many as keep up with drafting straight from it, at the assumed clock.
    """
    decoders, encoders = npu_decoder(), npu_encoder()
    area_mm2 = float(decoders.total_area_m2 + encoders.total_area_m2) / MM2
    power_w = float(decode_cost.total_power(decoders, units.MEAN_CODE_BITS) + encoders.power_w)
    from_nm = printed_value("hardware_specs", "technology_node", device=NPU)
    rows = []
    for device, bandwidth in _bandwidths().items():
        decoded_bytes_per_cycle = bandwidth / units.CLOCK_HZ * 16 / DRAFT_BITS
        row: dict[str, Any] = {
            "device": device,
            "decoders_for_memory": decoder.decoders_needed(
                decoders, decoded_bytes_per_cycle, KEPT_SHARE * units.MEAN_CODE_BITS
            ),
        }
        if device != NPU:
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
    memory_s = _WEIGHTS * DRAFT_BITS / BITS_PER_BYTE / _bandwidths()[NPU]
    other = huffllm_areas()
    scale = (printed_value("hardware_specs", "technology_node", device=NPU) / other["node_nm"]) ** 2
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
            dataclasses.replace(decoders, count=float(count)), _WEIGHTS * decoders.symbol_bytes, kept_bits, memory_s
        )
        entries.append((f"stall factor of a draft step, {count} units", float(read.stall_factor), "x"))
    cams, element_m2 = other["decoders_per_weight"], other["element_m2"]
    huffman = cams * other["decoder_m2"] / _HUFFMAN_BYTES
    overhead = huffman_cam.area_overhead(
        other["decoder_m2"], rows=128, columns=128, pe_area_m2=element_m2, decoders_per_column=cams
    )
    printed_mac = printed_value("table5_area_power", "area", module="BF16 MAC")
    entries += [
        ("encoding a token's KV, one value per cycle", float(encoder.encode_time(encoders, _kv_values())) * 1e6, "us"),
        ("a draft step's reading, 8e9 weights", memory_s * 1e6, "us"),
        ("encoders needed for it", float(encoder.encoders_needed(encoders, _kv_values(), memory_s)), "units"),
        ("unary area per decoded byte and cycle", decoders.area_m2 / unit_bytes * 1e12, "um^2 at 28 nm"),
        ("Huffman CAM area per decoded byte and cycle", huffman * 1e12, "um^2 at 12 nm"),
        ("the same, ideally scaled", huffman * scale * 1e12, "um^2 at 28 nm"),
        ("overhead of Huff-LLM's three decoders per column", 100.0 * float(overhead), "percent of the elements"),
        (
            f"MAC area from Huff-LLM's element, ideally scaled (printed: {printed_mac:g})",
            element_m2 * scale * BFLOAT16_MACS / MM2,
            "mm^2 at 28 nm",
        ),
    ]
    return [{"item": item, "value": value, "unit": unit} for item, value, unit in entries]
