"""Table V cell by cell, the number of decoders and the overhead of 2 %, from units and counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.papers.cassandra import units
from experiments.papers.cassandra.units import BFLOAT16_MACS, MM2, NPU, npu_decoder, npu_encoder, printed_value
from experiments.reproduce.paper import Modelled, Outcome, PrintedCell, as_printed
from hwmodels.decoders import decode_cost, decoder

__all__ = [
    "BARS",
    "corrected_sram_area",
    "decoders",
    "missed_bars",
    "overhead",
    "per_unit",
    "shares",
    "table5",
    "table5_areas",
]

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
    powers["Cassandra Decoder"] = float(decode_cost.total_power(units_of, units.MEAN_CODE_BITS))
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
    note = f"{units.COUNTERS} counters of {units.CHUNK_BITS} bits per unit, fitted; 8 shares of 128 bytes, assumed"

    def model(cell: PrintedCell) -> Modelled | None:
        if cell.metric == "num_cassandra_decoders":
            return Modelled(float(units.decoder_count()), "calibrated", note)
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
