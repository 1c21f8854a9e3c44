"""Cassandra's area and power: `python -m experiments.papers.cassandra [--json FILE]`. A few seconds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.papers.cassandra import units
from experiments.papers.cassandra.area_power import reproduce
from experiments.papers.reproduction import show_tables
from jaxspec.files import to_json, write_text
from jaxspec.report.terminal import Table, new_console


def show(result: dict[str, Any]) -> None:
    """Tables on standard output."""
    console = new_console()
    show_tables(
        console,
        result,
        label=lambda row: row["conditions"].get("module") or row["conditions"].get("device", "NPU"),
        paper_format="g",
        model_format=".4g",
        title="{covered} cells",
        agrees="agrees better than the simplest predictors",
    )
    _show_units(console, result)
    console.print("\n".join(result["missed_bars"]) or "All bars are met.")


def _show_units(console: Console, result: dict[str, Any]) -> None:
    table = Table(title="Figures of a unit: Table V over the number of units (input)")
    for column in ("module", "unit", "count", "area, um^2", "power, uW", "note"):
        table.add_column(column)
    for entry in result["per_unit"]:
        figures = (f"{entry['count']:,.0f}", f"{entry['area_m2'] * 1e12:.4g}", f"{entry['power_w'] * 1e6:.4g}")
        table.add_row(entry["module"], entry["unit"], *figures, entry["note"])
    console.print(table)
    table = Table(title=f"Decoders for 1024 bytes per cycle, codewords of {units.MEAN_CODE_BITS} bits (printed: 40)")
    for column in ("counters of 8 bits", "bytes per cycle", "in 8 shares of 128 bytes", "together"):
        table.add_column(column, justify="right")
    for entry in result["counters"][:8]:
        rate = f"{entry['decoded_bytes_per_cycle']:.2f}"
        table.add_row(str(entry["counters"]), rate, str(entry["decoders_in_shares"]), str(entry["decoders_together"]))
    console.print(table)
    for name, value in result["shares"].items():
        console.print(f"  encoder and decoder: {name}: {value:.3f}" if "sum" not in name else f"  {name}: {value:.2f}")
    for bound in result["bounds"]:
        line = f"  {bound['device']}: drafting from memory needs {bound['decoders_for_memory']} decoders of 1 GHz (assumed)"
        if "die_mm2" in bound:
            low, high = bound["percent_ideally_scaled"], bound["percent_unscaled"]
            line += f"; the NPU's units are {low:.3f} to {high:.2f} % of the die"
        console.print(line)
    for entry in result["checks"]:
        console.print(f"  {entry['item']}: {entry['value']:.4g} {entry['unit']}")


def main() -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.papers.cassandra", description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    result = reproduce()
    show(result)
    if args.json:
        write_text(args.json, to_json({"schema_version": 1, **result}))


if __name__ == "__main__":
    main()
