"""Why Huff-LLM's tables of savings, areas and prose are not reproduced, with the arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.papers.huffllm import compression, hardware
from experiments.papers.huffllm.compression import DATA
from experiments.papers.huffllm.savings_model import BENCHMARK_TOKENS, MODELS, simba, systolic
from experiments.reproduce.paper import ComparedCell, printed_value
from hwmodels.compute.systolic.array import cycles
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.units import BITS_PER_BYTE, GIGA, NANO

__all__ = ["SAVINGS", "area", "claims"]

#: The benchmark of most tokens, the larger of two bandwidths, and the network that arithmetic is shown for.
_BENCHMARK, _GBPS, _MODEL = "MMLU", 128, "Llama 2-13B"

_ARRAY, _SIMBA = "systolic_array", "simba"


def _printed(rows: Sequence[ComparedCell], metric: str, **conditions: Any) -> list[float]:
    """Printed values of a metric under conditions, in the table's order."""
    return [
        row["paper_value"]
        for row in rows
        if row["metric"] == metric and all(row["conditions"][key] == str(text) for key, text in conditions.items())
    ]


def _fold_ns(dataflow: str, steps: int, bits: float) -> tuple[float, float]:
    """Nanoseconds that a fold computes by Eq. (3), and that its weights take from DRAM."""
    array = systolic(dataflow, as_printed=True)
    rows, columns = int(array.rows), int(array.columns)
    shape, weights = ((steps, rows, columns), rows) if dataflow == "ws" else ((rows, steps, columns), steps)
    return (
        cycles(array, *shape) / array.frequency_hz / NANO,
        weights * columns * bits / BITS_PER_BYTE / (_GBPS * GIGA) / NANO,
    )


def _latency(solved: Any, rows: Sequence[ComparedCell]) -> str:
    tokens, bits = BENCHMARK_TOKENS[_BENCHMARK], compression.printed_bits()[_MODEL]
    computing, loading = _fold_ns("ws", tokens, UNCOMPRESSED_BITS)
    compressed, chip = _fold_ns("ws", tokens, bits)[1], simba(as_printed=True)
    macs_per_s = chip.pe_rows * chip.pe_columns * chip.vector_macs * chip.vector_width * chip.frequency_hz
    asked = tokens * _GBPS * GIGA * BITS_PER_BYTE / UNCOMPRESSED_BITS
    llamas = [
        _printed(
            rows, "latency_saving", benchmark=_BENCHMARK, bandwidth_gbps=_GBPS, architecture=chip_name, model=_MODEL
        )[0]
        for chip_name in (_ARRAY, _SIMBA)
    ]
    in_turn = (loading - compressed) / (computing + loading)
    return (
        f"not printed: how times are combined. At {_GBPS} GB/s and {tokens} tokens a fold takes {computing:.0f} ns by Eq. (3), "
        f"its weights {loading:.0f} ns in 16 bits and {compressed:.0f} in {bits:.2f}: overlapped nothing is saved, one after "
        f"the other {in_turn:.0%} (printed {llamas[0]:.1f} %). The table's PEs of the vector array multiply {macs_per_s:.3g} "
        f"times per second, the DRAM's weights ask for {asked:.3g}: nothing is saved (printed {llamas[1]:.1f} %)"
    )


def _energy(solved: Any, rows: Sequence[ComparedCell]) -> str:
    where = {"model": _MODEL, "benchmark": _BENCHMARK}
    pairs = {
        chip: [
            _printed(rows, "energy_saving", architecture=chip, bandwidth_gbps=gbps, **where)[0] for gbps in (64, 128)
        ]
        for chip in (_ARRAY, _SIMBA)
    }
    printed = ", ".join(f"{low:.2f} and {high:.2f} % ({chip})" for chip, (low, high) in pairs.items())
    return (
        "not printed: unit energies. A.1 has neither time nor bandwidth in energies, so that each chip would save alike at 64 "
        f"and 128 GB/s; printed are {printed} of {_MODEL}, {_BENCHMARK}"
    )


def _output_stationary(solved: Any, rows: Sequence[ComparedCell]) -> str:
    where = {"model": _MODEL, "benchmark": _BENCHMARK}
    by_metric = {
        metric: [_printed(rows, metric, bandwidth_gbps=gbps, **where)[0] for gbps in (64, 128)]
        for metric in ("energy_saving", "latency_saving")
    }
    (low, high), (slow, fast) = by_metric.values()
    steps = int(MODELS[_MODEL].k[0])
    computing, loading = _fold_ns("os", steps, UNCOMPRESSED_BITS)
    return (
        f"not printed: unit energies, and A.1 has no bandwidth in them (printed {low:.2f} and {high:.2f} % at 64 and 128 "
        f"GB/s). Latencies at 128 GB/s, {fast:.2f} %, are below those at 64, {slow:.2f} %, though the array waits for DRAM at "
        f"both: {steps} rows of a fold take {computing:.0f} ns, their weights {loading:.0f}"
    )


def _opt(solved: Any, rows: Sequence[ComparedCell]) -> str:
    where = {"benchmark": "Winogrande", "bandwidth_gbps": "64"}
    llama = compression.printed_bits()[_MODEL]
    pairs = {}
    for metric, name in (("energy_saving", "energy_savings_ws"), ("latency_saving", "latency_savings_ws")):
        table = DATA / f"huffllm_{name}.csv"
        theirs = printed_value(table, metric, architecture=_ARRAY, model=_MODEL, **where)
        ours = _printed(rows, metric, architecture=_ARRAY, model="OPT-13B", **where)[0]
        pairs[metric] = (ours, theirs, UNCOMPRESSED_BITS - ours / theirs * (UNCOMPRESSED_BITS - llama))
    doubtful = [row for row in rows if row["metric"] == "latency_saving"]
    (energy, of_llama, bits), (latency, its, other) = pairs.values()
    return (
        f"not printed: what the two tables above lack, and one number of bits. On the array energies of OPT-13B and {_MODEL}, "
        f"{energy:.2f} and {of_llama:.2f} %, are as {bits:.1f} to {llama:.2f} bits, latencies, {latency:.2f} and {its:.2f} %, "
        f"as {other:.1f}; {sum(bool(row['doubt']) for row in doubtful)} of {len(doubtful)} latencies are above 1 - bits / 16"
    )


#: By table of savings.
SAVINGS = {
    "latency_savings_ws": _latency,
    "energy_savings_ws": _energy,
    "output_stationary_savings": _output_stationary,
    "opt_savings": _opt,
}


def area(solved: Any, rows: Sequence[ComparedCell]) -> str:
    """The count of decoders that the printed overhead is of."""
    printed, array, percent = hardware.printed_areas(), systolic("ws"), hardware.area()
    elements = float(array.rows * array.columns)
    decoders = percent["printed_percent"] / 100 * elements * printed["element_m2"] / printed["decoder_m2"]
    return (
        f"not printed: how many decoders there are. {percent['printed_percent']:g} % of {elements:.0f} elements of "
        f"{printed['element_m2'] * 1e12:g} um^2 are {decoders:.0f} decoders of {printed['decoder_m2'] * 1e12:g} um^2, "
        f"{decoders / array.columns:.2f} for each column; one makes {percent['one_decoder_percent']:.2f} %, three "
        f"{percent['three_decoders_percent']:.2f} %"
    )


def claims(solved: Any, rows: Sequence[ComparedCell]) -> str:
    """The bandwidth is the array's own."""
    array, taken = systolic("ws"), UNCOMPRESSED_BITS / BITS_PER_BYTE
    return (
        f"not printed: energies, as in tab:main_result_energy; {hardware.intake_gbps():g} GB/s is what the array's "
        f"{array.columns:.0f} columns take in, {taken:.0f} bytes each at {array.frequency_hz / GIGA:g} GHz"
    )
