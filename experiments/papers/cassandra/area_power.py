"""Table V cell by cell, the number of decoders and the overhead of 2 %, from units and counts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.reproduce import paper as csv
from experiments.reproduce.paper import Modelled, Outcome, PrintedCell, as_printed
from hwmodels.decoders import decoder
from hwmodels.decoders.decoder import Decoder, decoded_bytes_per_cycle, decoders_needed
from hwmodels.decoders.encoder import Encoder
from hwmodels.memory.tiers import CACHE_BLOCK_BYTES
from hwmodels.numerics.units import TERA

__all__ = [
    "BARS",
    "BFLOAT16_MACS",
    "CLOCK_HZ",
    "COUNTERS",
    "MEAN_CODE_BITS",
    "MM2",
    "NPU",
    "corrected_sram_area",
    "counters_scan",
    "decoder_count",
    "decoders",
    "missed_bars",
    "npu_decoder",
    "npu_encoder",
    "overhead",
    "per_unit",
    "printed",
    "printed_value",
    "shares",
    "table5",
    "table5_areas",
]

# The NPU of Table V as units and counts, and the number of decoders from the width of its scratchpad.

DATA = Path(__file__).parent / "data"

MM2 = 1e-6

#: The paper's own accelerator, as its tables name it.
NPU = "systolic array NPU"


def printed(name: str) -> tuple[csv.PrintedCell, ...]:
    """Numbers of a table."""
    return csv.printed_cells(DATA / f"cassandra_{name}.csv")


def printed_value(name: str, metric: str = "", **conditions: str) -> float:
    """The one number of a table that meets the conditions."""
    return csv.printed_value(DATA / f"cassandra_{name}.csv", metric, **conditions)


def _npu(metric: str) -> float:
    return printed_value("hardware_specs", metric, device=NPU)


#: assumed: the paper prints no clock. 32,000 multiply-adds per cycle at 1 GHz are 64 TFLOPS.
CLOCK_HZ = 1e9

#: Multiply-adds per cycle at that clock: Cassandra, VI-A, 64 TFLOPS.
BFLOAT16_MACS = _npu("peak_throughput") * TERA / 2 / CLOCK_HZ

#: Mean length of a unary-coded exponent: Cassandra, IV-B and Fig. 6(b).
MEAN_CODE_BITS = printed_value("claims", claim_id="CAS017")

#: Bits of a zero counter's chunk: Cassandra, Algorithm 1.
CHUNK_BITS = int(printed_value("algorithm_config", "chunk_width"))

#: Fitted: zero counters of a unit, the whole number that gives the printed number of decoders.
COUNTERS = 5


def _unit(counters: int) -> Decoder:
    """A unit of so many zero counters over chunks of equal width, all in one cycle; its output is wide enough."""
    return Decoder(frequency_hz=CLOCK_HZ, code_bits_per_cycle=float(CHUNK_BITS * counters), kind="unary", place="dma")


def decoder_count(counters: int = COUNTERS) -> int:
    """Decoders that keep up with the scratchpad, a whole number in each share of a cache block."""
    demand = _npu("scratchpad_bandwidth_total")
    return int(decoders_needed(_unit(counters), demand, MEAN_CODE_BITS, partitions=int(demand / CACHE_BLOCK_BYTES)))


def counters_scan(most: int = 16) -> list[dict[str, Any]]:
    """For each number of counters: a unit's rate, and decoders needed with and without shares."""
    demand = _npu("scratchpad_bandwidth_total")
    return [
        {
            "counters": counters,
            "decoded_bytes_per_cycle": float(decoded_bytes_per_cycle(_unit(counters), MEAN_CODE_BITS)),
            "decoders_in_shares": decoder_count(counters),
            "decoders_together": decoders_needed(_unit(counters), demand, MEAN_CODE_BITS),
        }
        for counters in range(1, most + 1)
    ]


def npu_decoder() -> Decoder:
    """All decoders of the NPU; a unit's area and power are the printed totals over the printed number."""
    number = _npu("num_cassandra_decoders")
    return dataclasses.replace(
        _unit(COUNTERS),
        count=float(decoder_count()),
        area_m2=printed_value("table5_area_power", "area", module="Cassandra Decoder") * MM2 / number,
        power_w=printed_value("table5_area_power", "power", module="Cassandra Decoder") / number,
    )


def npu_encoder() -> Encoder:
    """The NPU's encoder as one unit; the paper prints neither how many there are nor their rate."""
    return Encoder(
        frequency_hz=CLOCK_HZ,
        values_per_cycle=1.0,  # assumed: the least that hardware can do
        area_m2=printed_value("table5_area_power", "area", module="Cassandra Encoder") * MM2,
        power_w=printed_value("table5_area_power", "power", module="Cassandra Encoder"),
    )


#: What a reproduction must reach: ratios in percentage points (half their last digit), the overhead, the number of decoders.
#: The mean length of a unary code may miss by so many bits.
BARS = {"ratio_points": 0.05, "overhead_percent": (1.9, 2.1), "decoders": 0, "unary_bits": 0.06}

MODULES = ("BF16 MAC", "VPU", "SRAM", "DMA", "Cassandra Encoder", "Cassandra Decoder")
CASSANDRA = ("Cassandra Encoder", "Cassandra Decoder")

#: Cassandra, VI-D: 9 MB, read as 9 * 2^20 bytes.
SCRATCHPAD_BITS = int(printed_value("hardware_specs", "scratchpad_capacity")) * 2**20 * 8


def table5_areas(metric: str = "area") -> dict[str, float]:
    """A column of Table V by module: area in mm^2, area_ratio in percent, or power in W."""
    return {module: printed_value("table5_area_power", metric, module=module) for module in MODULES}


def corrected_sram_area(areas: dict[str, float], sram_ratio: float) -> float:
    """The SRAM area, mm^2, that has the printed ratio if all other areas are right: s = r (s + others)."""
    others = sum(area for module, area in areas.items() if module != "SRAM")
    return others * sram_ratio / (100.0 - sram_ratio)


def per_unit() -> list[dict[str, Any]]:
    """What a unit of each module takes, and how many there are."""
    counts = {
        "BF16 MAC": (BFLOAT16_MACS, "multiply-add", "assumed: 64 TFLOPS at 1 GHz"),
        "VPU": (1.0, "whole", ""),
        "SRAM": (float(SCRATCHPAD_BITS), "bit", "9 MB scratchpad"),
        "DMA": (1.0, "whole", ""),
        "Cassandra Encoder": (1.0, "whole", "their number is not printed"),
        "Cassandra Decoder": (
            printed_value("hardware_specs", "num_cassandra_decoders"),
            "decoder",
            "printed number of decoders",
        ),
    }
    areas, powers = table5_areas(), table5_areas("power")
    return [
        {
            "module": module,
            "unit": name,
            "count": count,
            "area_m2": areas[module] * MM2 / count,
            "power_w": powers[module] / count,
            "note": note,
        }
        for module, (count, name, note) in counts.items()
    ]


def table5(solved: Any, *, as_printed: bool = False) -> Callable[[PrintedCell], Modelled]:
    """Table V: units times counts, and ratios of areas. All of it follows from its own cells by arithmetic: input.

    Args:
        as_printed: ratios of the areas as they are printed, SRAM's among them.
    """
    per_module = {entry["module"]: entry for entry in per_unit()}
    units_of, encoders = npu_decoder(), npu_encoder()
    areas, powers = {}, {}
    for module, entry in per_module.items():
        areas[module], powers[module] = entry["area_m2"] * entry["count"] / MM2, entry["power_w"] * entry["count"]
    # The number of decoders is the model's, not the one that units were divided by.
    areas["Cassandra Decoder"] = float(units_of.total_area_m2) / MM2
    powers["Cassandra Decoder"] = units_of.count * units_of.power_w
    areas["Cassandra Encoder"] = float(encoders.total_area_m2) / MM2
    columns = {"area": areas, "power": powers, "area_ratio": _ratios(areas, as_printed=as_printed)}

    def model(cell: PrintedCell) -> Modelled:
        module, metric = cell["module"], cell.metric
        note = "printed area and ratio contradict each other" if module == "SRAM" else ""
        if metric == "area_ratio" and module != "SRAM":
            note = "areas of this table, SRAM's from its ratio"
        elif module == "Cassandra Decoder":
            # The cell over 40 units, times the 40 units of the model: the cell.
            note = f"{_decoder_text(units_of)}: this cell over the printed 40"
        return Modelled(columns[metric][module], "input", note)

    return model


def _decoder_text(unit: decoder.Decoder) -> str:
    return f"{unit.count:.0f} x {unit.area_m2 / MM2:.3f} mm^2, {unit.power_w * 1e3:.1f} mW"


def _ratios(areas: dict[str, float], *, as_printed: bool) -> dict[str, float]:
    sram = {} if as_printed else {"SRAM": corrected_sram_area(areas, table5_areas("area_ratio")["SRAM"])}
    corrected = areas | sram
    total = sum(corrected.values())
    return {module: 100.0 * area / total for module, area in corrected.items()}


def shares() -> dict[str, float]:
    """Encoder and decoder over the NPU in percent, by every reading of the printed areas, and by power."""
    areas, powers, ratios = table5_areas(), table5_areas("power"), table5_areas("area_ratio")
    ours = sum(areas[module] for module in CASSANDRA)
    printed_total = sum(areas.values())
    corrected_total = printed_total - areas["SRAM"] + corrected_sram_area(areas, ratios["SRAM"])
    return {
        "area, of printed areas": 100.0 * ours / printed_total,
        "area, of printed areas, SRAM corrected": 100.0 * ours / corrected_total,
        "area, over the NPU without Cassandra": 100.0 * ours / (printed_total - ours),
        "area, over the NPU without Cassandra, SRAM corrected": 100.0 * ours / (corrected_total - ours),
        "area, sum of printed ratios": sum(ratios[module] for module in CASSANDRA),
        "power, of printed powers": 100.0 * sum(powers[module] for module in CASSANDRA) / sum(powers.values()),
        "sum of printed areas, mm^2": printed_total,
        "sum with SRAM corrected, mm^2": corrected_total,
    }


def decoders(solved: Any) -> Callable[[PrintedCell], Modelled | None]:
    """The number of decoders from the scratchpad's bandwidth; other specifications that the model reads are input."""
    note = f"{COUNTERS} counters of {CHUNK_BITS} bits per unit, fitted; 8 shares of 128 bytes, assumed"

    def model(cell: PrintedCell) -> Modelled | None:
        if cell.metric == "num_cassandra_decoders":
            return Modelled(float(decoder_count()), "calibrated", note)
        unread = (NPU, "memory_capacity")
        return None if (cell["device"], cell.metric) == unread else as_printed(cell)

    return model


def overhead(solved: Any) -> Callable[[PrintedCell], Modelled | None]:
    """The overhead of 2 %: a ratio of Table V's printed areas, so input."""
    value = shares()["area, over the NPU without Cassandra, SRAM corrected"]
    return lambda cell: Modelled(value, "input", "from Table V alone") if cell["claim_id"] == "CAS023" else None


def missed_bars(outcome: Outcome) -> list[str]:
    """The cells that miss their bar, in words."""
    missed = []
    for row in outcome.rows:
        error = abs(row["model_value"] - row["paper_value"])
        place = f"{row['table']}, {row['conditions']}, {row['metric']}"
        if row["metric"] == "area_ratio" and error > BARS["ratio_points"]:
            missed.append(f"ratio_points: {place} off by {error:.3f}, allowed {BARS['ratio_points']}")
        elif row["metric"] == "num_cassandra_decoders" and error > BARS["decoders"]:
            missed.append(f"decoders: {row['model_value']:.0f}, allowed {row['paper_value']:.0f} exactly")
        elif row["table"] == "claims":
            low, high = BARS["overhead_percent"]
            if not low <= row["model_value"] <= high:
                missed.append(f"overhead_percent: {row['model_value']:.2f}, allowed {low} to {high}")
        elif row["metric"] in ("area", "power") and row["relative_error"] > 1e-6 and row["table"] != "hardware_specs":
            missed.append(f"units: {place} off by {row['relative_error']:.1%}")
        elif row["table"] == "fig6" and error > BARS["unary_bits"]:
            missed.append(f"unary_bits: {row['conditions']} off by {error:.3f}, allowed {BARS['unary_bits']:.3f}")
    return missed
