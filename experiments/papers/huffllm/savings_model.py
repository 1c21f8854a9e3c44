"""Time and energy of a prefill with and without compressed weights, on Huff-LLM's two chips.

Time of a matrix product (not printed in the paper; tried were a sum, a maximum, a p-norm and this):

    max(computing, DRAM traffic / bandwidth) + exposed_load_share * (time in which the weights enter the array)

The longest of two overlapping streams, and a share of loading the array that nothing hides: in a weight-stationary array that
of each fold's rows, in an output-stationary one that of draining it, in the vector array that of the weight lanes. Weights
enter decoded, so this share does not shrink.

Energy: DRAM bits; bits read and written in buffers; for each weight that enters the array, the wires and registers that bring
it to its multiplier; and, compressed, the decoders, clocked as long as the prefill lasts. Multiply-adds are left out:
they are the same with and without, and the printed savings hardly fall with the number of tokens, as they would if they cost
anything near what they do in silicon.

DRAM carries the weights once, and in the systolic array inputs and outputs of every product, as its 8 KB buffer holds none
of them. The vector array's global buffer keeps those that fit.
"""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.reproduce.paper import printed_cells, printed_value
from hwmodels.compute import vector_mapping
from hwmodels.compute.systolic import array as systolic_array
from hwmodels.compute.systolic.array import OnChipBuffer, SystolicArray
from hwmodels.compute.vector_mapping import BufferedArray, weight_load_time
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.folds import ceil_div
from hwmodels.numerics.units import BITS_PER_BYTE, GIGA, KIB

__all__ = [
    "ARCHITECTURES",
    "BENCHMARK_TOKENS",
    "DRAM_J_PER_BIT",
    "FITTED_BOUNDS",
    "MODELS",
    "Case",
    "Costs",
    "Fitted",
    "Matrices",
    "Work",
    "energy_saving",
    "latency_saving",
    "prefill_energy",
    "prefill_time",
    "simba",
    "systolic",
    "work",
]


# The two chips, the models and the benchmarks of Huff-LLM's hardware experiments, as far as they are printed.
#
# Printed: array sizes, clocks, buffers, bandwidths (tables sim_spec and Simba_specs, section 4); tokens of a benchmark
# (tab:benchmark). The models' shapes are their publishers'. Assumed, as nothing is printed: what is marked so below.
#
# Two choices were made by outcome. The table's 16 PEs at 2 GHz multiply 2.05e12 times per second. With them a benchmark
# of 92 tokens (46 per byte of weights) would be bound by computing at either bandwidth, and no compression would save
# any time, where 26 to 31 % are printed. So the 16 x 16 PEs of section 2.2 are taken. Eq. (3) loads each fold's weights
# before it computes, which would hide all of the memory's time: the array here loads the next fold meanwhile.

DATA = Path(__file__).parent / "data"

#: Input tokens of a benchmark's average query; one prefill of one sequence. Table tab:benchmark.
BENCHMARK_TOKENS = {
    name: int(printed_value(DATA / "huffllm_benchmark_tokens.csv", "avg_input_tokens", benchmark=name))
    for name in ("MMLU", "ArcEasy", "Winogrande")
}

#: Architecture and dataflow, as the tables name them.
ARCHITECTURES = ("systolic WS", "systolic OS", "simba WS")


class Matrices(NamedTuple):
    """Weights of one layer; layers are alike, so that their number cancels. Embedding and head are left out."""

    k: tuple[int, ...]
    n: tuple[int, ...]
    copies: tuple[int, ...]  # matrices of that shape


def _llama(hidden: int, kv: int, ffn: int) -> Matrices:
    # Query and output; key and value; gate and up; down.
    return Matrices((hidden, hidden, hidden, ffn), (hidden, kv, ffn, hidden), (2, 2, 2, 1))


def _opt(hidden: int) -> Matrices:
    # Four of attention; up; down.
    return Matrices((hidden, hidden, 4 * hidden), (hidden, 4 * hidden, hidden), (4, 1, 1))


MODELS = {
    "Llama 2-13B": _llama(5120, 5120, 13824),
    "Llama 3-8B": _llama(4096, 1024, 14336),
    "Llama 3.2-3B": _llama(3072, 1024, 8192),
    "OPT-13B": _opt(5120),
    "OPT-6.7B": _opt(4096),
    "OPT-2.7B": _opt(2560),
}


def _spec(chip: str) -> dict[str, float]:
    """Sizes of a chip that hold at both bandwidths, as printed: tables sim_spec and Simba_specs."""
    cells = printed_cells(DATA / f"huffllm_{chip}_spec.csv")
    return {cell.metric: cell.value for cell in cells if "bandwidth_gbps" not in cell.conditions}


def systolic(dataflow: str, *, as_printed: bool = False) -> SystolicArray:
    """128 x 128 elements at 1 GHz: table sim_spec. Energies and buffer bandwidths are priced by `savings_model`.

    Args:
        as_printed: cycles by Eq. (3).
    """
    spec = _spec("systolic_array")
    unpriced = OnChipBuffer(bandwidth_bytes_per_s=float("inf"), access_bytes=2.0, access_energy_j=0.0)
    return SystolicArray(
        rows=int(spec["pe_rows"]),
        columns=int(spec["pe_cols"]),
        frequency_hz=spec["pe_frequency"] * GIGA,
        mac_energy_j=0.0,
        input_buffer=unpriced,
        weight_buffer=unpriced,
        output_buffer=unpriced,
        dataflow=dataflow,
        convention="huffllm" if as_printed else "pipelined",  # by outcome: see above
    )


def simba(*, as_printed: bool = False) -> BufferedArray:
    """16 x 16 PEs at 2 GHz: section 2.2 and table Simba_specs.

    Args:
        as_printed: the table's 16 PEs, in a square.
    """
    spec, side = _spec("simba"), int(printed_value(DATA / "huffllm_claims.csv", claim_id="HUF033"))
    if as_printed:
        side = math.isqrt(int(spec["num_pes"]))
    pes, input_buffer, width = side * side, int(spec["input_buffer_size"]) * KIB, int(spec["vector_mac_width"])
    return BufferedArray(
        pe_rows=side,
        pe_columns=side,
        vector_macs=int(spec["num_vector_macs"]),
        vector_width=width,
        frequency_hz=spec["pe_frequency"] * GIGA,
        weight_buffer_bytes=int(spec["weight_buffer_size"]) * KIB,
        input_buffer_bytes=input_buffer,
        accumulator_buffer_bytes=int(spec["accumulator_buffer_size"]) * KIB,
        global_buffer_bytes=pes * input_buffer,  # assumed: as much as all input buffers; 2.2 names it without its size
        weight_lanes=side * width,  # assumed: on one side of the grid, a vector each
    )


#: Of moving a bit from DRAM. Assumed, LPDDR4's order of magnitude; only the other energies' ratios to it matter to a saving.
DRAM_J_PER_BIT = 5e-12


class Fitted(NamedTuple):
    """The four fitted numbers, shared by all models, benchmarks, bandwidths and architectures."""

    exposed_load_share: float  # of loading (draining) the array, in [0, 1]
    buffer_j_per_bit: float  # read or written in any buffer on chip
    entry_j_per_weight: float  # of bringing a decoded weight to its multiplier
    decoder_j_per_cycle: float  # of one lane's decoders, whether a weight arrives or not


#: What physics allows: SRAMs of some KB, 16 bits over some mm of wire, three CAMs of 32 entries in 16 nm.
FITTED_BOUNDS = {
    "exposed_load_share": (0.0, 1.0),
    "buffer_j_per_bit": (5e-15, 2e-13),
    "entry_j_per_weight": (0.0, 2e-11),
    "decoder_j_per_cycle": (1e-13, 5e-12),
}


class Case(NamedTuple):
    """One prefill."""

    model: str
    tokens: int
    bandwidth_gbps: float
    architecture: str
    as_printed: bool = False  # the chip as its table and equation print it


class Work(NamedTuple):
    """What a prefill of one layer does."""

    busy_s: float  # the longer of computing and DRAM, summed over products
    load_s: float  # of loading or draining the array
    dram_bits: float
    buffer_bits: float
    weights: float
    decoder_hz: float  # lanes times clock


class Costs(NamedTuple):
    """Energies of a prefill of one layer, in joules."""

    dram: float
    buffers: float
    entry: float
    decoders: float

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)


@functools.cache
def work(case: Case, weight_bits: float = UNCOMPRESSED_BITS) -> Work:
    """Counts of a prefill, which no fitted number enters.

    Raises:
        ValueError: an architecture or model that is not in `ARCHITECTURES` or `MODELS`.
    """
    if case.model not in MODELS or case.architecture not in _COUNTS:
        raise ValueError(
            f"model {case.model!r} on {case.architecture!r} came; models are {', '.join(MODELS)}, "
            f"architectures {', '.join(_COUNTS)}"
        )
    shapes, counts = MODELS[case.model], _COUNTS[case.architecture]
    rows = [counts(case.as_printed, case.tokens, k, n, weight_bits) for k, n in zip(shapes.k, shapes.n, strict=True)]
    compute_s, load_s, dram_bits, buffer_bits = (np.array(column, float) for column in zip(*rows, strict=True))
    busy_s = np.maximum(compute_s, dram_bits / (BITS_PER_BYTE * case.bandwidth_gbps * GIGA))
    count = np.array(shapes.copies, float)
    chip, array = simba(as_printed=case.as_printed), systolic("ws")
    on_simba = case.architecture == "simba WS"
    return Work(
        busy_s=float(count @ busy_s),
        load_s=float(count @ load_s),
        dram_bits=float(count @ dram_bits),
        buffer_bits=float(count @ buffer_bits),
        weights=float(count @ np.multiply(shapes.k, shapes.n)),
        decoder_hz=chip.weight_lanes * chip.frequency_hz if on_simba else array.columns * array.frequency_hz,
    )


def prefill_time(case: Case, weight_bits: float, fitted: Fitted) -> float:
    """Seconds of one layer's products."""
    done = work(case, weight_bits)
    return done.busy_s + fitted.exposed_load_share * done.load_s


def prefill_energy(case: Case, weight_bits: float, fitted: Fitted) -> Costs:
    """Joules of one layer's products; decoders only where weights are compressed."""
    done = work(case, weight_bits)
    clocked = done.decoder_hz * prefill_time(case, weight_bits, fitted) if weight_bits < UNCOMPRESSED_BITS else 0.0
    return Costs(
        dram=done.dram_bits * DRAM_J_PER_BIT,
        buffers=done.buffer_bits * fitted.buffer_j_per_bit,
        entry=done.weights * fitted.entry_j_per_weight,
        decoders=clocked * fitted.decoder_j_per_cycle,
    )


def latency_saving(case: Case, weight_bits: float, fitted: Fitted) -> float:
    """Percent of the time of uncompressed weights."""
    return 100 * (1 - prefill_time(case, weight_bits, fitted) / prefill_time(case, UNCOMPRESSED_BITS, fitted))


def energy_saving(case: Case, weight_bits: float, fitted: Fitted) -> float:
    """Percent of the energy with uncompressed weights."""
    before = prefill_energy(case, UNCOMPRESSED_BITS, fitted)
    return 100 * (1 - prefill_energy(case, weight_bits, fitted).total / before.total)


def _systolic_counts(dataflow: str, as_printed: bool, m: int, k: int, n: int, weight_bits: float) -> tuple[Any, ...]:
    array = systolic(dataflow, as_printed=as_printed)
    shape = systolic_array.mapping(array, m, k, n)
    folds = ceil_div(shape.row_extent, array.rows) * ceil_div(shape.column_extent, array.columns)
    elements = systolic_array.buffer_elements(array, m, k, n)
    # Each weight and each input is written to its buffer once, too.
    buffer_bits = (
        (elements.weight_reads + k * n) * weight_bits
        + (elements.input_reads + m * k) * UNCOMPRESSED_BITS
        + elements.output_accesses * systolic_array.PARTIAL_SUM_BITS
    )
    return (
        systolic_array.cycles(array, m, k, n) / array.frequency_hz,
        folds * array.rows / array.frequency_hz,
        k * n * weight_bits + m * (k + n) * UNCOMPRESSED_BITS,
        buffer_bits,
    )


#: Only ranks mappings that are equally fast.
_NOMINAL = vector_mapping.AccessEnergies(dram_j_per_bit=DRAM_J_PER_BIT, buffer_j_per_bit=5e-14, mac_j=0.0)

#: At which mappings are sought. DRAM decides on the time at this one and at those below, so that they are the same there.
_MAPPED_AT = 128 * GIGA


@functools.cache
def _simba_counts(as_printed: bool, m: int, k: int, n: int, weight_bits: float) -> tuple[Any, ...]:
    array = simba(as_printed=as_printed)
    _, mapped = vector_mapping.search(
        array, m, k, n, bandwidth_bytes_per_s=_MAPPED_AT, energies=_NOMINAL, weight_bits=weight_bits
    )
    # An activation that fits as a whole stays between two products; only others come from DRAM or go there.
    spilled = sum(
        size for size in (m * k, m * n) if size * UNCOMPRESSED_BITS > array.global_buffer_bytes * BITS_PER_BYTE
    )
    return (
        mapped.compute_s,
        float(weight_load_time(array, k, n)),
        mapped.dram_weight_bits + spilled * UNCOMPRESSED_BITS,
        mapped.buffer_bits,
    )


_COUNTS = {
    "systolic WS": functools.partial(_systolic_counts, "ws"),
    "systolic OS": functools.partial(_systolic_counts, "os"),
    "simba WS": _simba_counts,
}
