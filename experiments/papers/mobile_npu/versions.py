"""The paper's devices, models and stored widths, and the versions of kernels that its ablations compare."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from experiments.reproduce.paper import PrintedCell, printed_cells, printed_value
from hwmodels import Architecture, Device, catalog, uniform_weight_bits
from hwmodels.compute.matrix_vector_npu import MatrixVectorNpu
from hwmodels.compute.vector_array import Polynomial, polynomial_steps
from hwmodels.compute.weight_layouts import CoalescedGroups, ScatteredGroups, TileGroups, Unconverted
from hwmodels.tables import read_table

__all__ = [
    "CONTEXT",
    "DATA",
    "GENERATIONS",
    "GPU",
    "INSTRUCTIONS",
    "LARGER",
    "LAYOUTS",
    "MODELS",
    "PAPER",
    "SOFTMAX_KEYS",
    "SOFTMAX_QUERIES",
    "Fitted",
    "calibrated_device",
    "cells",
    "claim",
    "exponential",
    "layout",
    "network_of",
    "networks",
    "printed",
    "weight_bits",
]


# The paper's printed numbers by where they stand.

PAPER = "mobile_npu"

DATA = Path(__file__).parent / "data"


def cells(table: str) -> tuple[PrintedCell, ...]:
    """Numbers of a table."""
    return printed_cells(DATA / f"{PAPER}_{table}.csv")


def printed(table: str, metric: str = "", **conditions: str) -> float:
    """The one number of a table under these conditions."""
    return printed_value(DATA / f"{PAPER}_{table}.csv", metric, **conditions)


def claim(claim_id: str) -> float:
    """A number of the prose; the lower end of a range."""
    return printed("claims", claim_id=claim_id)


#: Context budget of the memory figures, and prompt of Fig. 8, in tokens.
CONTEXT = claim("NPU034")

#: Queries and keys of Fig. 14.
SOFTMAX_QUERIES = (1, 4, 16)
SOFTMAX_KEYS = (1024, 4096, 16384)


#: Generations of Table 3 by their names in the catalog, and the GPU beside V75's.
GENERATIONS = {"V73": "hexagon-v73", "V75": "hexagon-v75", "V79": "hexagon-v79"}
GPU = "adreno-750"

#: Networks of 7.1 that run on the phones, by their names in the catalog.
MODELS = {
    "Qwen2.5-1.5B": "qwen2.5-1.5b",
    "Qwen2.5-3B": "qwen2.5-3b",
    "Llama3.2-1B": "llama-3.2-1b",
    "Llama3.2-3B": "llama-3.2-3b",
}

#: A network of 7.1 that is only compared, as no phone runs it.
LARGER = {"Qwen2.5-7B": "qwen2.5-7b"}

#: Vector instructions of a pass over 4-bit codes: of a full register, and of a group alone.
INSTRUCTIONS: dict[str, dict[str, int]] = read_table(__package__, "data", "instructions.toml")


class Fitted(NamedTuple):
    """The four fitted numbers."""

    register_packets: float  # converting a full register of codes
    step_packets: float  # a step of a polynomial exponential
    row_packets: float  # a row of a softmax
    static_power_w: float  # of the phone, whatever the NPU does


@functools.cache
def network_of(model: str) -> Architecture:
    """A network by the paper's name."""
    return catalog.architecture((MODELS | LARGER)[model])


@functools.cache
def networks() -> dict[str, Architecture]:
    """The four networks that the phones run, by the paper's names."""
    return {name: network_of(name) for name in MODELS}


def weight_bits() -> dict[str, float]:
    """Stored bits per weight by kind: as printed in 7.1; llama.cpp's Q6_K for the vocabulary, which the paper does not name."""
    narrow = printed("quantization_and_lut", "bits_per_weight", scheme="Q4_0")
    wide = printed("quantization_and_lut", "bits_per_weight", scheme="Q8_0")
    vocabulary = 210.0 * 8.0 / 256.0  # Q6_K of ggml: 210 bytes for 256 weights
    bits = uniform_weight_bits(narrow, ("q", "k", "v", "o", "gate", "up"))
    return bits | {"down": wide, "embed": vocabulary, "lm_head": vocabulary, "norm": 32.0}


def calibrated_device(fitted: Fitted) -> Device:
    """V75 of the catalog with other fitted numbers."""
    device = catalog.device(GENERATIONS["V75"])
    npu = device.matrix_unit
    vector = npu.vector.replace(
        row_packets=fitted.row_packets, layout=npu.vector.layout.replace(register_packets=fitted.register_packets)
    )
    assert device.chip is not None
    chip = dataclasses.replace(device.chip, static_power_w=fitted.static_power_w)
    return dataclasses.replace(device, matrix_unit=npu.replace(vector=vector), chip=chip)


def _alone(npu: MatrixVectorNpu) -> TileGroups:
    """A group by itself: fewer instructions than a full register, at the same packets for each."""
    count = {name: sum(steps.values()) for name, steps in INSTRUCTIONS.items()}
    packets = npu.vector.layout.register_packets * count["group alone"] / count["full register"]
    group = printed("quantization_and_lut", "group_size", scheme="Q4_0")
    return TileGroups(group_weights=group, group_packets=packets)


def _scattered(npu: MatrixVectorNpu) -> ScatteredGroups:
    """The same with a scatter for each group, which takes as long as a gather."""
    alone = _alone(npu)
    return ScatteredGroups(alone.group_weights, alone.group_packets, npu.vector.exponential.gather_packets)


#: Versions of Fig. 15, from the unit whose weights lie coalesced.
LAYOUTS: dict[str, Callable[[MatrixVectorNpu], CoalescedGroups | TileGroups | ScatteredGroups | Unconverted]] = {
    "baseline": _scattered,
    "HMX layout": _alone,
    "ours": lambda npu: npu.vector.layout,
    "no dequantization": lambda npu: Unconverted(),
}


def layout(device: Device, version: str) -> MatrixVectorNpu:
    """The device's matrix unit with a version of Fig. 15."""
    npu = device.matrix_unit.on(device)
    return npu.replace(vector=npu.vector.replace(layout=LAYOUTS[version](npu)))


def exponential(device: Device, version: str, step_packets: float) -> MatrixVectorNpu:
    """The device's matrix unit with a version of Fig. 14: "table", "float16" or "float32"."""
    npu = device.matrix_unit.on(device)
    if version == "table":
        return npu
    polynomial = Polynomial(polynomial_steps({"float16": 11, "float32": 24}[version]), step_packets)
    return npu.replace(vector=npu.vector.replace(exponential=polynomial))
