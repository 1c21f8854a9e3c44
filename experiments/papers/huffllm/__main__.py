"""Huff-LLM's tables: `python -m experiments.papers.huffllm [--json FILE] [--out FOLDER]`. A quarter of a minute."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from experiments.papers.huffllm import hardware, savings
from experiments.papers.huffllm.chips import bits_by_model
from experiments.papers.huffllm.compression import cell_label, reproduce
from experiments.papers.huffllm.savings_model import FITTED_BOUNDS, Fitted
from experiments.papers.reproduction import show_tables
from jaxspec.files import to_json, write_text
from jaxspec.report.terminal import Table, new_console


def run(seed: int) -> dict[str, Any]:
    """Compression, then savings with its bits per weight, then roofline and areas with the numbers fitted there."""
    result = reproduce(seed=seed)
    own = bits_by_model(result["rows"], "model_value")
    saved = savings.reproduce(own, bits_by_model(result["rows"], "paper_value"))
    chip = hardware.reproduce(own, Fitted(**saved["own"]["fitted"]))
    rows = [*result["rows"], *saved["rows"], *chip["rows"]]
    return {**result, "rows": rows, "savings": saved, "hardware": chip}


def show(result: dict[str, Any]) -> None:
    """Compression tables on standard output."""
    console = new_console()
    show_tables(console, result, label=cell_label)
    table = Table(title="Llama in FP16: from the entropies' sum (paper: 10.61) to Huffman bits (paper: 10.96)")
    table.add_column("item")
    table.add_column("bits per weight", justify="right")
    for entry in result["explanation"]:
        table.add_row(entry["item"], f"{entry['bits_per_weight']:.4f}")
    console.print(table)
    console.print("\n".join(result["missed_bars"]) or "All bars are met.")


def show_savings(saved: dict[str, Any]) -> None:
    """Tables of savings, errors in percentage points, and what was fitted."""
    console = new_console()
    for source, words in (("own", "own compression"), ("printed", "printed ratios")):
        part = saved[source]
        table = Table(title=f"Savings, bits per weight from {words}: mean (largest) absolute error in points")
        for column in ("cells of", "number", "model", "constants", "order right/tied/wrong", "cells in doubt"):
            table.add_column(column, justify="left" if column == "cells of" else "right")
        for name, compared in part["by_table"].items():
            table.add_row(name, *_compared(compared), _points(compared["in_doubt"]))
        for metric, sets in part["by_metric"].items():
            for name, compared in sets.items():
                table.add_row(f"{metric}: {name}", *_compared(compared), "")
        console.print(table)
        for metric, compared in part["transferred"].items():
            words = f"{_points(compared['model'])}; constants fitted where it was: {_points(compared['constants'])}"
            console.print(f"  {metric}, predicted on fitted architectures: {words}")
        for metric, by_benchmark in part["leave_one_benchmark_out"].items():
            words = "; ".join(
                f"{name} {_points(compared['model'])}, constants {_points(compared['constants'])}"
                for name, compared in by_benchmark.items()
            )
            console.print(f"  {metric}, benchmark left out: {words}")
        for name, value in part["fitted"].items():
            low, high = FITTED_BOUNDS[name]
            console.print(f"  fitted: {name} = {value:.4g}, within {low:.2g} to {high:.2g}")
        console.print("  " + ("; ".join(savings.missed_bars(saved, source)) or "All bars are met.") + "\n")


def show_hardware(chip: dict[str, Any]) -> None:
    """Roofline, areas and CAMs."""
    console = new_console()
    table = Table(title="Weight-stationary array, Llama-3.2-3B, MMLU")
    for column in ("GB/s", "time saved", "energy saved"):
        table.add_column(column, justify="right")
    for bandwidth, time, energy in zip(*chip["roofline"].values(), strict=True):
        table.add_row(f"{bandwidth}", f"{time:.2f} %", f"{energy:.2f} %")
    console.print(table)
    for row in chip["rows"]:
        words = f"paper {row['paper_value']:.4g}, model {row['model_value']:.4g} {row['unit']}"
        console.print(f"  {row['table']}, {row['metric']}: {words} ({row['relative_error']:.1%}) {row['note']}")
    growth = ", ".join(f"{bits}: {percent:.1f} %" for bits, percent in chip["cam_percent"].items())
    console.print(f"  decoders of 15 bits over 128 elements, by bits per symbol: {growth}")


def _points(errors: dict[str, float]) -> str:
    return f"{errors['mean']:.2f} ({errors['max']:.2f}), {errors['cells']} cells" if errors["cells"] else "none"


def _compared(compared: dict[str, Any]) -> tuple[str, ...]:
    ours, constants = compared["model"], compared["constants"]
    if not ours["cells"]:
        return "0", "", "", ""
    order = "/".join(str(count) for count in compared["order"].values())
    spread = lambda errors: f"{errors['mean']:.2f} ({errors['max']:.2f})"
    return str(ours["cells"]), spread(ours), spread(constants), order


def plot(result: dict[str, Any], folder: Path) -> None:
    """All figures as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from experiments.papers.huffllm import figures

    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in (
        ("compression", figures.compression_figure(result["rows"])),
        ("savings", figures.savings_figure(result["rows"])),
        ("roofline", figures.roofline_figure(result["hardware"])),
        ("cam", figures.cam_figure(result["hardware"])),
    ):
        figure.savefig(folder / f"huffllm_{name}.png", dpi=150)
        plt.close(figure)


def main() -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.papers.huffllm", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, help="folder for the plots; none are drawn without it")
    args = parser.parse_args()
    result = run(args.seed)
    show(result)
    show_savings(result["savings"])
    show_hardware(result["hardware"])
    if args.out:
        plot(result, args.out)
    if args.json:
        # The savings' rows stand among all rows.
        saved = {key: value for key, value in result["savings"].items() if key != "rows"}
        write_text(args.json, to_json({"schema_version": 1, **result, "savings": saved}))


if __name__ == "__main__":
    main()
