"""Table V cell by cell, the number of decoders, the overhead of 2 %, and what follows from them for other chips."""

from __future__ import annotations

from typing import Any

from experiments.papers.cassandra import units
from experiments.papers.cassandra.consequences import bounds, checks
from experiments.papers.cassandra.units import BFLOAT16_MACS, MM2, npu_decoder, npu_encoder, printed, printed_value
from experiments.papers.reproduction import beats, predictor_errors, spread_by_status, spread_of, table_row
from hwmodels.decoders import decode_cost, decoder

__all__ = ["BARS", "missed_bars", "reproduce"]

#: What a reproduction must reach: ratios in percentage points (half their last digit), the overhead, the number of decoders.
BARS = {"ratio_points": 0.05, "overhead_percent": (1.9, 2.1), "decoders": 0}

MODULES = ("BF16 MAC", "VPU", "SRAM", "DMA", "Cassandra Encoder", "Cassandra Decoder")
CASSANDRA = ("Cassandra Encoder", "Cassandra Decoder")

SCRATCHPAD_BITS = 9 * 2**20 * 8  # Cassandra, VI-D: 9 MB, read as 9 * 2^20 bytes


def _table(metric: str) -> dict[str, float]:
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
    areas, powers = _table("area"), _table("power")
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


def _row(cell: dict[str, str], table: str, value: float, status: str, note: str, paper: float) -> dict[str, Any]:
    return table_row(
        "cassandra",
        table,
        {k: v for k, v in cell.items() if k in ("module", "device", "conditions", "claim_id") and v},
        metric=cell.get("metric") or cell["quantity"],
        unit=cell["unit"],
        paper_value=paper,
        model_value=value,
        status=status,
        note=note,
    )


def _table_rows() -> list[dict[str, Any]]:
    per_module = {entry["module"]: entry for entry in per_unit()}
    decoders, encoders = npu_decoder(), npu_encoder()
    areas, powers = {}, {}
    for module, entry in per_module.items():
        areas[module], powers[module] = entry["area_m2"] * entry["count"] / MM2, entry["power_w"] * entry["count"]
    # The number of decoders is the model's, not the one that units were divided by.
    areas["Cassandra Decoder"] = float(decoders.total_area_m2) / MM2
    powers["Cassandra Decoder"] = float(decode_cost.total_power(decoders, units.MEAN_CODE_BITS))
    areas["Cassandra Encoder"] = float(encoders.total_area_m2) / MM2
    ratios = _corrected_ratios(areas)
    rows = []
    for cell in printed("table5_area_power"):
        module, metric, paper = cell["module"], cell["metric"], float(cell["value"])
        status, note = "input", "" if module != "SRAM" else "printed area and ratio contradict each other"
        value = {"area": areas, "power": powers, "area_ratio": ratios}[metric][module]
        if metric == "area_ratio" and module != "SRAM":
            status, note = "calibrated", "areas of this table, SRAM's from its ratio"
        elif module == "Cassandra Decoder":
            # The cell over 40 units, times the 40 units of the model: the cell.
            note = f"{decoder_text(decoders)}: this cell over the printed 40"
        rows.append(_row(cell, "table5_area_power", value, status, note, paper))
    return rows


def decoder_text(decoders: decoder.Decoder) -> str:
    """Count and figures of a unit, in words."""
    return f"{decoders.count:.0f} x {decoders.area_m2 / MM2:.3f} mm^2, {decoders.power_w * 1e3:.1f} mW"


def _corrected_ratios(areas: dict[str, float]) -> dict[str, float]:
    corrected = areas | {"SRAM": corrected_sram_area(areas, _table("area_ratio")["SRAM"])}
    total = sum(corrected.values())
    return {module: 100.0 * area / total for module, area in corrected.items()}


def shares() -> dict[str, float]:
    """Encoder and decoder over the NPU in percent, by every reading of the printed areas, and by power."""
    areas, powers = _table("area"), _table("power")
    ours = sum(areas[module] for module in CASSANDRA)
    printed_total = sum(areas.values())
    corrected_total = printed_total - areas["SRAM"] + corrected_sram_area(areas, _table("area_ratio")["SRAM"])
    return {
        "area, of printed areas": 100.0 * ours / printed_total,
        "area, of printed areas, SRAM corrected": 100.0 * ours / corrected_total,
        "area, over the NPU without Cassandra": 100.0 * ours / (printed_total - ours),
        "area, over the NPU without Cassandra, SRAM corrected": 100.0 * ours / (corrected_total - ours),
        "area, sum of printed ratios": sum(_table("area_ratio")[module] for module in CASSANDRA),
        "power, of printed powers": 100.0 * sum(powers[module] for module in CASSANDRA) / sum(powers.values()),
        "sum of printed areas, mm^2": printed_total,
        "sum with SRAM corrected, mm^2": corrected_total,
    }


def _other_rows() -> list[dict[str, Any]]:
    (count,) = [row for row in printed("hardware_specs") if row["metric"] == "num_cassandra_decoders"]
    (claim,) = [row for row in printed("claims") if row["claim_id"] == "CAS023"]
    overhead = shares()["area, over the NPU without Cassandra, SRAM corrected"]
    return [
        _row(
            count,
            "hardware_specs",
            float(units.decoder_count()),
            "calibrated",
            f"{units.COUNTERS} counters of {units.CHUNK_BITS} bits per unit, fitted; 8 shares of 128 bytes, assumed",
            float(count["value"]),
        ),
        _row(claim, "claims", overhead, "predicted", "from Table V alone", float(claim["value_low"])),
    ]


def _rounds_to(value: float, paper: float) -> bool:
    """Whether a value, rounded to the digits of a printed one, is it."""
    _, _, decimals = f"{paper:g}".partition(".")
    return round(value, len(decimals)) == paper


def _summary(rows: list[dict[str, Any]], table: str, cells: int) -> dict[str, Any]:
    rows = [row for row in rows if row["table"] == table]
    counted = [row for row in rows if row["status"] != "input"]
    simplest: dict[str, list[float]] = {}
    compared = counted
    if table == "table5_area_power":
        areas, powers = _table("area"), _table("power")
        # Only the ratios can be compared: the decoder's own area and power are calibrated to themselves.
        compared = [row for row in counted if row["metric"] == "area_ratio"]
        by_area = lambda row: 100.0 * areas[row["conditions"]["module"]] / sum(areas.values())
        by_power = lambda row: 100.0 * powers[row["conditions"]["module"]] / sum(powers.values())
        predictors = {"printed area over the sum of printed areas": by_area, "the power column's shares": by_power}
        fitted = {
            "SRAM area, mm^2": corrected_sram_area(areas, _table("area_ratio")["SRAM"]),
            "area of a decoder, mm^2": npu_decoder().area_m2 / MM2,
            "power of a decoder, W": npu_decoder().power_w,
        }
    elif table == "hardware_specs":
        together = units.counters_scan()[units.COUNTERS - 1]["decoders_together"]
        predictors = {"the same units without shares": lambda row: float(together)}
        fitted = {"zero counters of a unit": float(units.COUNTERS)}
    else:
        predictors = {"sum of the printed ratios": lambda row: shares()["area, sum of printed ratios"]}
        fitted = {}
    for name, predict in predictors.items():
        simplest[name] = predictor_errors(compared, predict)
    ours = spread_of([row["relative_error"] for row in compared])
    ours["rounded"] = sum(_rounds_to(row["model_value"], row["paper_value"]) for row in compared)
    peers = {name: spread_of(errors) for name, errors in simplest.items()}
    # One fitted number to one cell tests nothing.
    tested = len(compared) > len(fitted)
    return {
        "cells": cells,
        "covered": len(rows),
        "relative_error": spread_by_status(rows),
        "compared": ours,
        "fitted": fitted,
        "simplest_predictors": peers,
        "tested": tested,
        "beats_simplest": tested and all(beats(ours, peer) for peer in peers.values()),
    }


def missed_bars(rows: list[dict[str, Any]]) -> list[str]:
    """The cells that miss their bar, in words."""
    missed = []
    for row in rows:
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
        elif row["metric"] in ("area", "power") and row["relative_error"] > 1e-6:
            missed.append(f"units: {place} off by {row['relative_error']:.1%}")
    return missed


def reproduce() -> dict[str, Any]:
    """All rows, a summary per table, figures per unit, the number of decoders and what follows for other chips."""
    rows = [*_table_rows(), *_other_rows()]
    cells = {"table5_area_power": len(printed("table5_area_power")), "hardware_specs": 1, "claims": 1}
    return {
        "rows": rows,
        "summary": {f"cassandra/{table}": _summary(rows, table, number) for table, number in cells.items()},
        "per_unit": per_unit(),
        "counters": units.counters_scan(),
        "shares": shares(),
        "bounds": bounds(),
        "checks": checks(),
        "missed_bars": missed_bars(rows),
    }
