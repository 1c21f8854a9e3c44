"""What Huff-LLM prints beside its tables of savings: the roofline at 256 GB/s, the decoders' area, their growth with N.

The roofline's system is the weight-stationary array on MMLU with Llama-3.2-3B. It stops gaining where DRAM delivers a fold's
weights as fast as the array takes them in: 128 weights of 16 bits per nanosecond are 256 GB/s, a little more with the
activations that come along.

Areas are sums of printed ones. The printed overhead of the array, 6.13 %, follows from no count of decoders: one per column
makes 1.94 %, three 5.81 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.papers.huffllm.chips import BENCHMARK_TOKENS
from experiments.papers.huffllm.savings_model import (
    Case,
    Fitted,
    energy_saving,
    latency_saving,
    prefill_energy,
    prefill_time,
    work,
)
from experiments.papers.reproduction import printed_cells, table_row
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.numerics.units import BITS_PER_BYTE, GIGA, MICRO

__all__ = ["SYMBOL_BITS", "area", "cam_growth", "crossover_gbps", "operating_point", "reproduce"]

DATA = Path(__file__).parent / "data"

#: Widths of a symbol in the figure of CAM overheads.
SYMBOL_BITS = (4, 5, 6, 7, 8)

#: Bandwidths at which the roofline's system is shown.
BANDWIDTHS_GBPS = (32, 64, 128, 192, 256, 320, 512)

_MODEL, _BENCHMARK, _ARCHITECTURE = "Llama 3.2-3B", "MMLU", "systolic WS"

#: Printed in section 6: bandwidth at which nothing is gained any more, and the energy saved there.
_PRINTED_NO_GAIN_GBPS, _PRINTED_ENERGY_SAVING = 256.0, 24.0

#: Printed in section 3.1, of its figure: CAM of N = 5 over a column of 128 multipliers.
_PRINTED_CAM_PERCENT = 6.0


def _case(bandwidth_gbps: float) -> Case:
    return Case(_MODEL, BENCHMARK_TOKENS[_BENCHMARK], float(bandwidth_gbps), _ARCHITECTURE)


def operating_point(bandwidth_gbps: float, weight_bits: float, fitted: Fitted) -> dict[str, float]:
    """A point of the roofline: multiply-accumulates per byte of DRAM, and per second."""
    case = _case(bandwidth_gbps)
    done = work(case, weight_bits)
    macs = done.weights * case.tokens
    return {
        "macs_per_byte": macs / (done.dram_bits / BITS_PER_BYTE),
        "macs_per_s": macs / prefill_time(case, weight_bits, fitted),
    }


def crossover_gbps(weight_bits: float, fitted: Fitted, *, points: float = 1.0) -> float:
    """The bandwidth from which on compression saves less than so many percentage points of time."""
    low, high = 16.0, 2048.0
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if latency_saving(_case(middle), weight_bits, fitted) > points else (low, middle)
    return high


def _printed_areas() -> dict[tuple[str, str], float]:
    cells = printed_cells(DATA / "huffllm_area.csv")
    return {(cell["component"], cell["metric"]): float(cell["value"]) for cell in cells}


def area() -> dict[str, float]:
    """Printed areas by component and metric, and the overheads that follow, in percent of the array."""
    from hwmodels.decoders.huffman_cam import area_overhead

    printed = _printed_areas()
    decoder, element = printed["HD", "area"] * MICRO**2, printed["systolic array PE", "area"] * MICRO**2
    overhead = lambda decoders: (
        100 * float(area_overhead(decoder, rows=128, columns=128, pe_area_m2=element, decoders_per_column=decoders))
    )
    return {
        "printed_percent": printed["128x128 systolic array", "area_overhead"],
        "one_decoder_percent": overhead(1),
        "three_decoders_percent": overhead(3),
    }


def cam_growth() -> dict[int, float]:
    """Area in percent of a column of 128 elements, of the decoders of 15 bits in symbols of N, by N.

    Fifteen bits take 15 / N decoders of 2^N codewords; a codeword may be 12 / 5 as long as its symbol, as it is at N = 5.
    """
    from hwmodels.decoders.huffman_cam import ReferenceCam, area_overhead, decoder_area

    printed = _printed_areas()
    longest = printed["HD", "L_max"]
    reference = ReferenceCam(area_m2=printed["HD", "area"] * MICRO**2, symbol_bits=5.0, max_code_bits=longest)
    growth = {}
    for bits in SYMBOL_BITS:
        one = decoder_area(reference, symbol_bits=float(bits), max_code_bits=longest * bits / 5)
        element = printed["systolic array PE", "area"] * MICRO**2
        share = area_overhead(one, rows=128, columns=1, pe_area_m2=element, decoders_per_column=15 / bits)
        growth[bits] = 100 * float(share)
    return growth


def reproduce(bits: Mapping[str, float], fitted: Fitted) -> dict[str, Any]:
    """Rows, the roofline's curves, the energy at 256 GB/s by part, and the CAM's growth."""
    weight_bits = bits[_MODEL]
    crossover, areas, cams = crossover_gbps(weight_bits, fitted), area(), cam_growth()
    at_256 = _case(_PRINTED_NO_GAIN_GBPS)
    saved = energy_saving(at_256, weight_bits, fitted)
    time_saved = latency_saving(at_256, weight_bits, fitted)
    system = {"model": _MODEL, "benchmark": _BENCHMARK, "architecture": _ARCHITECTURE}
    rows = [
        _row("roofline", system, "no_gain_bandwidth", "GB/s", _PRINTED_NO_GAIN_GBPS, crossover)
        | {"note": f"{time_saved:.2f} % of the time saved at 256 GB/s, where none is printed"},
        _row("roofline", system | {"bandwidth_gbps": 256.0}, "energy_saving", "percent", _PRINTED_ENERGY_SAVING, saved),
        _row(
            "area",
            {"array": "128x128", "decoders_per_column": 3},
            "area_overhead",
            "percent",
            areas["printed_percent"],
            areas["three_decoders_percent"],
        )
        | {"note": f"one decoder per column makes {areas['one_decoder_percent']:.2f} %; 6.13 % follows from neither"},
        _row("cam_overhead", {"symbol_bits": 5}, "area_overhead", "percent", _PRINTED_CAM_PERCENT, cams[5]),
    ]
    points = {
        "bandwidth_gbps": list(BANDWIDTHS_GBPS),
        "latency_saving": [latency_saving(_case(b), weight_bits, fitted) for b in BANDWIDTHS_GBPS],
        "energy_saving": [energy_saving(_case(b), weight_bits, fitted) for b in BANDWIDTHS_GBPS],
    }
    # The array at 92 tokens: a fold takes as long as its weights need to come in, whatever the bandwidth.
    operating = {
        f"{bandwidth} GB/s, {name}": operating_point(bandwidth, width, fitted)
        for bandwidth in (128, 256)
        for name, width in (("16 bits", UNCOMPRESSED_BITS), ("compressed", weight_bits))
    }
    return {
        "rows": rows,
        "roofline": points,
        "operating_points": operating,
        "peak_macs_per_s": 128 * 128 * GIGA,
        "array_macs_per_s": _array_rate(),
        "crossover_gbps": crossover,
        "latency_saving_at_256": time_saved,
        "energy_at_256": {
            name: prefill_energy(at_256, width, fitted)._asdict()
            for name, width in (("16 bits", UNCOMPRESSED_BITS), ("compressed", weight_bits))
        },
        "area_percent": areas,
        "cam_percent": {str(key): value for key, value in cams.items()},
    }


def _array_rate() -> float:
    """Multiply-accumulates per second that the array reaches with these tokens and endless bandwidth."""
    case = _case(1e9)
    done = work(case, UNCOMPRESSED_BITS)
    return done.weights * case.tokens / done.busy_s


def _row(table: str, conditions: dict[str, Any], metric: str, unit: str, paper: float, ours: float) -> dict[str, Any]:
    return table_row(
        "huffllm",
        table,
        conditions,
        metric=metric,
        unit=unit,
        paper_value=paper,
        model_value=ours,
        status="predicted",
    )
