"""The two chips, the models and the benchmarks of Huff-LLM's hardware experiments, as far as they are printed.

Printed: array sizes, clocks, buffers, bandwidths (tables sim_spec and Simba_specs, section 4); tokens of a benchmark
(tab:benchmark). The models' shapes are their publishers'. Assumed, as nothing is printed: what is marked so below.

Two choices were made by outcome. The table's 16 PEs at 2 GHz multiply 2.05e12 times per second. With them a
benchmark of 92 tokens (46 per byte of weights) would be bound by computing at either bandwidth, and no compression would save
any time, where 26 to 31 % are printed. So the 16 x 16 PEs of section 2.2 are taken. Eq. (3) loads each fold's weights before it
computes, which would hide all of the memory's time: the array here loads the next fold meanwhile.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

from experiments.reproduce.printed import printed_cells, printed_value
from hwmodels.compute.systolic.array import OnChipBuffer, SystolicArray
from hwmodels.compute.vector_buffers import BufferedArray
from hwmodels.numerics.units import GIGA, KIB

__all__ = [
    "ARCHITECTURES",
    "BENCHMARK_TOKENS",
    "MODELS",
    "Matrices",
    "simba",
    "systolic",
]

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
