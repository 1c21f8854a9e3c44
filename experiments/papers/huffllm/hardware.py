"""What Huff-LLM prints beside its tables of savings: the roofline at 256 GB/s, the decoders' area, their growth with N.

The roofline's system is the weight-stationary array on MMLU with Llama-3.2-3B. It stops gaining where DRAM delivers a fold's
weights as fast as the array takes them in: 128 weights of 16 bits per nanosecond are 256 GB/s, a little more with the
activations that come along.

Areas are sums of printed ones. The printed overhead of the array, 6.13 %, follows from no count of decoders: one per column
makes 1.94 %, three 5.81 %.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from experiments.papers.huffllm.savings_model import (
    BENCHMARK_TOKENS,
    Case,
    Fitted,
    energy_saving,
    latency_saving,
    prefill_energy,
    prefill_time,
    systolic,
    work,
)
from experiments.reproduce.paper import Modelled, PrintedCell, as_printed, printed_value
from hwmodels.decoders.huffman_cam import ReferenceCam, area_overhead, decoder_area
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.units import BITS_PER_BYTE, GIGA, MICRO

__all__ = [
    "SYMBOL_BITS",
    "area",
    "areas_table",
    "cam_growth",
    "claims_table",
    "crossover_gbps",
    "curves",
    "intake_gbps",
    "operating_point",
    "printed_areas",
]

DATA = Path(__file__).parent / "data"

#: Widths of a symbol in the figure of CAM overheads.
SYMBOL_BITS = (4, 5, 6, 7, 8)

#: Bandwidths at which the roofline's system is shown.
BANDWIDTHS_GBPS = (32, 64, 128, 192, 256, 320, 512)

_MODEL, _BENCHMARK, _ARCHITECTURE = "Llama 3.2-3B", "MMLU", "systolic WS"

#: Bandwidth from which on no time is saved, as printed in section 6.
NO_GAIN_GBPS = printed_value(DATA / "huffllm_claims.csv", claim_id="HUF029")


def _case(bandwidth_gbps: float, *, as_printed: bool = False) -> Case:
    return Case(_MODEL, BENCHMARK_TOKENS[_BENCHMARK], float(bandwidth_gbps), _ARCHITECTURE, as_printed)


def operating_point(bandwidth_gbps: float, weight_bits: float, fitted: Fitted) -> dict[str, float]:
    """A point of the roofline: multiply-accumulates per byte of DRAM, and per second."""
    case = _case(bandwidth_gbps)
    done = work(case, weight_bits)
    macs = done.weights * case.tokens
    return {
        "macs_per_byte": macs / (done.dram_bits / BITS_PER_BYTE),
        "macs_per_s": macs / prefill_time(case, weight_bits, fitted),
    }


#: Percentage points of time below which nothing is saved.
NOTHING = 1.0


def crossover_gbps(weight_bits: float, fitted: Fitted, *, points: float = NOTHING, as_printed: bool = False) -> float:
    """The bandwidth from which on compression saves less than so many percentage points of time.

    Args:
        as_printed: cycles of the array by Eq. (3).
    """
    low, high = 16.0, 2048.0
    while high / low > 1 + 1e-6:
        middle = (low * high) ** 0.5
        saved = latency_saving(_case(middle, as_printed=as_printed), weight_bits, fitted)
        low, high = (middle, high) if saved > points else (low, middle)
    return high


def printed_areas() -> dict[str, float]:
    """Printed sizes of the decoder (HD) and of an element of the array, in square metres, and what goes with them."""
    of = lambda component, metric: printed_value(DATA / "huffllm_area.csv", metric, component=component)
    return {
        "decoder_m2": of("HD", "area") * MICRO**2,
        "element_m2": of("systolic array PE", "area") * MICRO**2,
        "overhead_percent": of("128x128 systolic array", "area_overhead"),
        "longest_code_bits": of("HD", "L_max"),
        "node_nm": of("synthesis technology", "technology_node"),
        "decoders_per_weight": of("HD module", "num_5_bit_decoders"),
    }


def intake_gbps() -> float:
    """Bandwidth at which DRAM delivers uncompressed weights as fast as the array takes them in, without activations."""
    array = systolic("ws")
    return array.columns * array.frequency_hz * UNCOMPRESSED_BITS / BITS_PER_BYTE / GIGA


def area() -> dict[str, float]:
    """The printed overhead, and those that follow from the printed areas, in percent of the array."""
    printed, array = printed_areas(), systolic("ws")
    sizes = {"rows": array.rows, "columns": array.columns, "pe_area_m2": printed["element_m2"]}
    overhead = lambda count: 100 * float(area_overhead(printed["decoder_m2"], **sizes, decoders_per_column=count))
    return {
        "printed_percent": printed["overhead_percent"],
        "one_decoder_percent": overhead(1),
        "three_decoders_percent": overhead(printed["decoders_per_weight"]),
    }


def cam_growth() -> dict[int, float]:
    """Area in percent of a column of 128 elements, of the decoders of 15 bits in symbols of N, by N.

    Fifteen bits take 15 / N decoders of 2^N codewords; a codeword may be 12 / 5 as long as its symbol, as it is at N = 5.
    """
    printed, rows = printed_areas(), systolic("ws").rows
    longest = printed["longest_code_bits"]
    reference = ReferenceCam(area_m2=printed["decoder_m2"], symbol_bits=5.0, max_code_bits=longest)
    growth = {}
    for bits in SYMBOL_BITS:
        one = decoder_area(reference, symbol_bits=float(bits), max_code_bits=longest * bits / 5)
        share = area_overhead(
            one, rows=rows, columns=1, pe_area_m2=printed["element_m2"], decoders_per_column=15 / bits
        )
        growth[bits] = 100 * float(share)
    return growth


def areas_table(solved: Any) -> Callable[[PrintedCell], Modelled | None]:
    """Areas of 3.1 and 5.2: the overhead of three decoders per column, and of the CAMs of 5 bits; others are input."""
    areas, growth = area(), cam_growth()
    note = f"one decoder per column makes {areas['one_decoder_percent']:.2f} %; 6.13 % follows from neither"
    unread = ("cam_entries", "codeword_register", "larger_codeword_register")

    def model(cell: PrintedCell) -> Modelled | None:
        if cell.metric != "area_overhead":
            return None if cell.metric in unread else as_printed(cell)
        if cell["component"].startswith("N=5"):
            return Modelled(growth[5], "predicted")
        return Modelled(areas["three_decoders_percent"], "predicted", note)

    return model


def claims_table(
    bits: Mapping[str, float], fitted: Fitted, *, points: float = NOTHING, as_printed: bool = False
) -> Callable[[PrintedCell], Modelled | None]:
    """Two numbers of the prose: where the roofline's system gains no time any more, and the energy that it saves there.

    Args:
        points, as_printed: see `crossover_gbps`.
    """
    weight_bits, at_no_gain = bits[_MODEL], _case(NO_GAIN_GBPS, as_printed=as_printed)
    time_saved = latency_saving(at_no_gain, weight_bits, fitted)
    values = {
        "HUF028": (energy_saving(at_no_gain, weight_bits, fitted), ""),
        "HUF029": (
            crossover_gbps(weight_bits, fitted, points=points, as_printed=as_printed),
            f"{time_saved:.2f} % of the time saved at {NO_GAIN_GBPS:.0f} GB/s, where none is printed",
        ),
    }

    def model(cell: PrintedCell) -> Modelled | None:
        value, note = values.get(cell["claim_id"], (None, ""))
        return None if value is None else Modelled(value, "predicted", note)

    return model


def curves(bits: Mapping[str, float], fitted: Fitted) -> dict[str, Any]:
    """The roofline's curves, the energy at 256 GB/s by part, and the CAM's growth."""
    weight_bits, at_256, array = bits[_MODEL], _case(NO_GAIN_GBPS), systolic("ws")
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
        "roofline": points,
        "operating_points": operating,
        "peak_macs_per_s": array.rows * array.columns * array.frequency_hz,
        "array_macs_per_s": _array_rate(),
        "crossover_gbps": crossover_gbps(weight_bits, fitted),
        "latency_saving_at_256": latency_saving(at_256, weight_bits, fitted),
        "energy_at_256": {
            name: prefill_energy(at_256, width, fitted)._asdict()
            for name, width in (("16 bits", UNCOMPRESSED_BITS), ("compressed", weight_bits))
        },
        "area_percent": area(),
        "cam_percent": {str(key): value for key, value in cam_growth().items()},
    }


def _array_rate() -> float:
    """Multiply-accumulates per second that the array reaches with these tokens and endless bandwidth."""
    case = _case(1e9)
    done = work(case, UNCOMPRESSED_BITS)
    return done.weights * case.tokens / done.busy_s
