"""The paper's numbers cell by cell: kernels, memory, power, and what the model reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from experiments.papers.mobile_npu.decoding import (
    BATCHES,
    Decoding,
    decode,
    fit,
    gemv_seconds,
    slowdown,
    softmax_speedups,
)
from experiments.papers.mobile_npu.versions import (
    CONTEXT,
    GENERATIONS,
    LARGER,
    MODELS,
    calibrated_device,
    network_of,
    networks,
    printed,
    weight_bits,
)
from experiments.reproduce.paper import ComparedCell, Modelled, PrintedCell, as_printed, constant, each
from hwmodels import Architecture, Device, catalog, parameters
from hwmodels.numerics.units import BITS_PER_BYTE, GIGA, KIB, MIB
from hwmodels.step.capacity import activation_buffer_bytes, held_bytes

__all__ = [
    "CHUNK_TOKENS",
    "FIG14",
    "FIG15",
    "INPUTS",
    "MEMORY",
    "PROSE",
    "Solved",
    "claims",
    "fig14",
    "fig15",
    "fig15_cause",
    "fits",
    "head_share",
    "largest_cheap_batch",
    "memory_power",
    "nominal_size",
    "process_mib",
    "session_mib",
    "share_of_parameters",
    "smallest_too_large",
    "solve",
    "specifications",
    "table2",
    "weights_and_cache_mib",
    "weights_mib",
]

# Memory of the NPU's session and of the process: weights, cache and buffers as stored.

#: Tokens of a prompt that llama.cpp processes at once unless told otherwise (`n_ubatch`).
CHUNK_TOKENS = 512
_ACTIVATION_BYTES = 4


def _held(network: Architecture, context: float) -> tuple[float, float]:
    """MiB of the layers' weights, and of the cache."""
    bits = weight_bits() | {"embed": 0.0, "lm_head": 0.0}
    held = held_bytes(network, batch=1.0, context_tokens=context, weight_bits=bits, kv_bits=16.0)
    return float(held.weights) / MIB, float(held.kv) / MIB


def weights_mib(model: str) -> float:
    """Of the layers alone."""
    return _held(network_of(model), 0.0)[0]


def weights_and_cache_mib(model: str, context: float) -> float:
    """Of the layers and the cache of a context."""
    return sum(_held(network_of(model), context))


def session_mib(model: str, context: float) -> float:
    """All that the NPU's session holds."""
    held = activation_buffer_bytes(network_of(model), tokens=CHUNK_TOKENS, element_bytes=_ACTIVATION_BYTES)
    return weights_and_cache_mib(model, context) + float(held) / MIB


def process_mib(model: str, context: float) -> float:
    """The session and the vocabulary matrix in the process."""
    network = network_of(model)
    vocabulary = float(network.vocab_size) * float(network.hidden_size) * weight_bits()["embed"]
    return session_mib(model, context) + vocabulary / BITS_PER_BYTE / MIB


def fits(model: str, device: Device, context: float) -> bool:
    """Whether a session on the device can address all that it holds."""
    return session_mib(model, context) * MIB <= float(device.memory.capacity_bytes)


_ENDS: Mapping[str, Callable[[np.ndarray], Any]] = {"lowest": np.min, "highest": np.max, "average": np.mean}


class Solved(dict[tuple[str, str], Decoding]):
    """(generation, model) -> steps; V75 with the four fitted numbers, the others as the catalog has them."""


def solve(seed: int) -> Solved:
    """Steps of all networks on all generations, whether they can be addressed there or not. Nothing is drawn."""
    del seed
    devices = {name: catalog.device(entry) for name, entry in GENERATIONS.items()}
    devices["V75"] = calibrated_device(fit())
    return Solved(
        {
            (generation, model): decode(device, network)
            for generation, device in devices.items()
            for model, network in networks().items()
        }
    )


def fig15(solved: Solved) -> Callable[[PrintedCell], Modelled]:
    """Layouts: the mean slowdown is fitted, all ends are predicted."""
    seconds = gemv_seconds(calibrated_device(fit()))

    def model(cell: PrintedCell) -> Modelled:
        if cell["over"] == "no dequantization":
            return Modelled(100.0 * (slowdown(fit()) - 1.0), "calibrated", "mean over five matrices of four networks")
        ratios = seconds[cell["over"]] / seconds["ours"]
        where = "FFN down, 8 bits" if cell["end"] == "lowest" else "4 bits"
        return Modelled(float(_ENDS[cell["end"]](ratios)), "predicted", where)

    return model


def fig14(solved: Solved) -> Callable[[PrintedCell], Modelled]:
    """Softmax: both ends over 32 bits are fitted, that over 16 bits is predicted."""
    versions = {"32-bit floating-point exp": "float32", "16-bit floating-point exp": "float16"}

    def model(cell: PrintedCell) -> Modelled:
        version = versions[cell["over"]]
        value = float(_ENDS[cell["end"]](softmax_speedups(fit(), version)))
        note = "4 or 16 queries, 1024 keys" if cell["end"] == "lowest" else "1 query, 16384 keys"
        return Modelled(value, "calibrated" if version == "float32" else "predicted", note)

    return model


def memory_power(solved: Solved) -> Callable[[PrintedCell], Modelled]:
    """7.5 and 7.2.3: memory is predicted, one power is fitted, the other printed one is a bound."""

    def model(cell: PrintedCell) -> Modelled:
        if cell.metric == "cpu_cores_utilized":
            return as_printed(cell, "cores of the host")
        if cell.metric == "dmabuf_memory":
            return Modelled(session_mib(cell["model"], CONTEXT), "predicted", "weights, cache, activations")
        if cell.metric == "total_memory":
            mib = process_mib(cell["model"], CONTEXT)
            return Modelled(mib * MIB / (KIB * MIB), "predicted", "with the vocabulary matrix as Q6_K")
        power = solved["V75", cell["model"]].power_w()
        assert power is not None
        if cell["model"] == "Qwen2.5-3B":
            return Modelled(float(np.mean(power[-1])), "calibrated", "mean over batch sizes, 4096 tokens")
        return Modelled(float(np.max(power)), "predicted", "largest of all batch sizes", "an upper bound, no value")

    return model


def table2(solved: Solved) -> Callable[[PrintedCell], Modelled]:
    """Rates of V75 as the catalog has them: inputs."""
    device = catalog.device(GENERATIONS["V75"])
    npu = device.matrix_unit.on(device)
    rates = {
        ("HVX (1 Thread)", "fp16_gemm_throughput"): device.vector_flops_per_s / npu.vector.units,
        ("HMX", "fp16_gemm_throughput"): npu.peak_flops_per_s,
        ("HVX (1 Thread)", "memory_read_bandwidth"): npu.core_path_bytes_per_s,
        ("HMX (DMA)", "memory_read_bandwidth"): npu.dma_bytes_per_s,
    }
    return lambda cell: Modelled(float(rates[cell["hardware_unit"], cell.metric]) / GIGA, "input", "the catalog's")


def specifications(solved: Solved) -> Callable[[PrintedCell], Modelled | None]:
    """What the model reads of 3.1.2, 5.1 and 5.2, from the catalog's V75 and V73: inputs."""
    npu, older = (catalog.device(GENERATIONS[name]) for name in ("V75", "V73"))
    unit = npu.matrix_unit
    codes, entries = unit.vector.layout.register_bits / 4.0, 2.0**15
    table = unit.vector.exponential.table_bytes
    numbers = {
        ("TCM", "capacity"): unit.on_chip_bytes / MIB,
        ("HMX FP16 tile", "rows"): unit.tile_rows,
        ("HMX FP16 tile", "cols"): unit.tile_columns,
        ("HMX FP16 tile", "size_bytes"): 2.0 * unit.tile_depth * unit.tile_columns,
        ("HMX FP16 tile", "unused_activation_rows_at_batch_1"): unit.tile_rows - 1.0,
        ("HVX", "vector_width"): unit.vector.layout.register_bits,
        ("HVX", "units_min"): unit.vector.units,
        ("HVX", "units_max"): catalog.device(GENERATIONS["V79"]).matrix_unit.vector.units,
        ("vector register", "width"): unit.vector.layout.register_bits / BITS_PER_BYTE,
        ("vgather", "elements_per_instruction"): unit.vector.register_scores,
        ("NPU session", "virtual_address_width"): np.log2(npu.memory.capacity_bytes),
        ("older NPUs", "virtual_address_space"): older.memory.capacity_bytes / (KIB * MIB),
        ("super-group", "elements"): codes,
        ("super-group", "groups"): codes / printed("quantization_and_lut", "group_size", scheme="Q4_0"),
        ("non-positive FP16 exp LUT", "entries"): entries,
        ("non-positive FP16 exp LUT", "size"): table / KIB,
        ("non-positive FP16 exp LUT", "tcm_share"): 100.0 * table / unit.on_chip_bytes,
    }

    def model(cell: PrintedCell) -> Modelled | None:
        value = numbers.get((cell.conditions.get("component") or cell.conditions.get("scheme", ""), cell.metric))
        return None if value is None else Modelled(float(value), "input", "the catalog's")

    return model


def head_share(solved: Solved, generation: str = "V75") -> np.ndarray:
    """Of the vocabulary projection at the largest batch, least prompt, percent, by network."""
    return np.array([100.0 * solved[generation, model].head_share[0, -1] for model in MODELS])


def largest_cheap_batch(solved: Solved) -> float:
    """Largest batch of the 1.5B network whose step takes less energy than one token of the 3B network, prompt of 4096."""
    small, large = (solved["V75", name].energy_j for name in ("Qwen2.5-1.5B", "Qwen2.5-3B"))
    assert small is not None
    assert large is not None
    return float(np.max(np.array(BATCHES)[small[-1] < large[-1, 0]]))


def nominal_size(model: str) -> float:
    """Billions of parameters in a network's name."""
    return float(model.rpartition("-")[2].removesuffix("B"))


def smallest_too_large(is_small_enough: Callable[[str], bool]) -> float:
    """Nominal size of the smallest network of 7.1 that does not fit, in billions of parameters."""
    return min(nominal_size(model) for model in MODELS | LARGER if not is_small_enough(model))


def claims(solved: Solved) -> Callable[[PrintedCell], Modelled | None]:
    """Prose that is no kernel: the head's share, the address space, energy of two networks, the ratio of Table 2."""
    device, older = (catalog.device(GENERATIONS[name]) for name in ("V75", "V73"))
    ratio = device.peak_flops_per_s / device.vector_flops_per_s * device.matrix_unit.vector.units
    lower = "the text says that this one is below, not that it is the last"
    modelled = {
        "NPU009": Modelled(float(ratio), "input", "Table 2", "a lower bound, no value"),
        "NPU020": Modelled(largest_cheap_batch(solved), "predicted", "of 1, 2, 4, 8, 16", lower),
        "NPU026": Modelled(float(np.mean(head_share(solved))), "predicted", "mean of four networks on V75"),
        "NPU037": Modelled(
            smallest_too_large(lambda model: fits(model, older, CONTEXT)), "predicted", "of five networks"
        ),
    }
    return lambda cell: modelled.get(cell["claim_id"])


def share_of_parameters(row: ComparedCell) -> float | None:
    """Of the head in all that a step multiplies by, percent; and the networks whose weights alone fill the addresses."""
    if row["conditions"].get("claim_id") == "NPU037":
        limit = float(catalog.device(GENERATIONS["V73"]).memory.capacity_bytes) / MIB
        return smallest_too_large(lambda model: weights_mib(model) <= limit)
    shares = []
    for network in networks().values():
        stored = parameters(network)
        head = float(network.vocab_size * network.hidden_size)
        layers = sum(float(stored[kind]) for kind in ("q", "k", "v", "o", "gate", "up", "down"))
        shares.append(100.0 * head / (head + layers))
    return float(np.mean(shares))


# The simplest predictors: constants, the paper's other cells, and sums without the parts that the model adds.

_OTHER_END = {"lowest": "highest", "highest": "lowest"}


def _other_end(row: ComparedCell) -> float | None:
    """The printed other end of the same range, by the ratio of stored bits: half of the cells go in."""
    over, end = (row["conditions"][key] for key in ("over", "end"))
    if end not in _OTHER_END:
        return None
    narrow, wide = (printed("quantization_and_lut", "bits_per_weight", scheme=scheme) for scheme in ("Q4_0", "Q8_0"))
    ratio = narrow / wide if end == "lowest" else wide / narrow
    return printed("fig15", over=over, end=_OTHER_END[end]) * ratio


FIG15 = {"one constant per version": constant("over"), "the printed other end, by stored bits": each(_other_end)}


def fig15_cause(solved: Solved, rows: Sequence[ComparedCell]) -> str:
    """Ratios of the ends, printed and ours, beside that of the stored bits."""
    upper = [row for row in rows if row["conditions"]["end"] == "highest"]
    value = {(row["conditions"]["over"], row["conditions"]["end"]): row for row in rows}
    off = lambda errors: " and ".join(f"{error:.1%}" for error in errors)
    simple = [abs(float(_other_end(row) or np.nan) / row["paper_value"] - 1) for row in upper]
    ends = {
        key: " and ".join(f"{row[key] / value[row['conditions']['over'], 'lowest'][key]:.2f}" for row in upper)
        for key in ("paper_value", "model_value")
    }
    narrow, wide = (printed("quantization_and_lut", "bits_per_weight", scheme=scheme) for scheme in ("Q4_0", "Q8_0"))
    return (
        f"missed: upper ends are {off(row['relative_error'] for row in upper)} off, the printed lower ends times {wide:g} / "
        f"{narrow:g} stored bits {off(simple)}. Which matrices the ends are is not printed; printed ends are as "
        f"{ends['paper_value']}, ours as {ends['model_value']}, stored bits as {wide / narrow:.2f}"
    )


_HIGHEST = printed("fig14", over="32-bit floating-point exp", end="highest")

FIG14 = {
    "the printed speedup over 32 bits": each(lambda row: _HIGHEST),
    "the same by the bits of a number": each(lambda row: _HIGHEST / 2.0),
}


def _without_activations(row: ComparedCell) -> float | None:
    model = row["conditions"]["model"]
    if row["metric"] == "dmabuf_memory":
        return weights_and_cache_mib(model, CONTEXT)
    if row["metric"] == "total_memory":
        return printed("memory_power", "dmabuf_memory", model=model) / KIB
    return None


MEMORY = {
    "one constant": constant(),
    "weights and cache; for the total, the printed session": each(_without_activations),
}

PROSE = {"parameters alone": each(share_of_parameters)}

INPUTS = {"one constant": constant()}
