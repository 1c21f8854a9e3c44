"""Huff-LLM's compression tables: `python -m experiments.huffllm [--json FILE] [--out FOLDER]`. A few seconds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from experiments.huffllm.compression import reproduce
from jaxspec.files import to_json, write_text


def _label(row: dict[str, Any]) -> str:
    conditions = row["conditions"]
    if row["table"] == "entropy_splits":
        return f"{conditions['split']}, {conditions['field_name']}"
    return " ".join(conditions[key] for key in ("model", "number_format") if key in conditions)


def show(result: dict[str, Any]) -> None:
    """Tables on standard output."""
    console = Console(width=140)
    for key, summary in result["summary"].items():
        paper, name = key.split("/")
        table = Table(title=f"{paper} {name}: {summary['covered']} of {summary['cells']} cells")
        for column in ("cell", "metric", "paper", "model", "error", "status", "note"):
            table.add_column(column, justify="right" if column in ("paper", "model", "error") else "left")
        for row in result["rows"]:
            if (row["paper"], row["table"]) == (paper, name):
                numbers = (f"{row['paper_value']:.2f}", f"{row['model_value']:.3f}", f"{row['relative_error']:.2%}")
                table.add_row(_label(row), row["metric"], *numbers, row["status"], row["note"])
        console.print(table)
        spread = lambda errors: f"median {errors['median']:.2%}, max {errors['max']:.2%} ({errors['cells']} cells)"
        for status, errors in summary["relative_error"].items():
            console.print(f"  {status}: {spread(errors)}")
        for predictor, errors in summary["simplest_predictors"].items():
            console.print(f"  instead, {predictor}: {spread(errors)}")
        verdict = "reproduced" if summary["beats_simplest"] else "NOT reproduced: a simpler predictor is as good"
        fitted = ", ".join(f"{number} = {value:.4g}" for number, value in summary["fitted"].items())
        console.print(f"  {verdict}; fitted: {fitted}\n")
    table = Table(title="Llama in FP16: from the entropies' sum (paper: 10.61) to Huffman bits (paper: 10.96)")
    table.add_column("item")
    table.add_column("bits per weight", justify="right")
    for entry in result["explanation"]:
        table.add_row(entry["item"], f"{entry['bits_per_weight']:.4f}")
    console.print(table)
    console.print("\n".join(result["missed_bars"]) or "All bars are met.")


def plot(result: dict[str, Any], path: Path) -> None:
    """Bars of printed and modelled values: entropies of the fields, bits per weight of the models."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = (
        ("entropy_splits", "entropy", "bits per field"),
        ("compression_ratios", "bits_per_param", "bits per weight"),
    )
    figure, axes = plt.subplots(1, 2, figsize=(13, 4.5), width_ratios=(2, 3), layout="constrained")
    for axis, (table, metric, label) in zip(axes, panels):
        rows = [row for row in result["rows"] if (row["table"], row["metric"]) == (table, metric)]
        place = np.arange(len(rows))
        axis.bar(place - 0.2, [row["paper_value"] for row in rows], 0.4, label="printed", color="0.7")
        colours = ["tab:orange" if row["status"] == "calibrated" else "tab:blue" for row in rows]
        axis.bar(place + 0.2, [row["model_value"] for row in rows], 0.4, color=colours)
        # Empty bars, for the legend only.
        for name, colour in (("calibrated", "tab:orange"), ("predicted", "tab:blue")):
            if any(row["status"] == name for row in rows):
                axis.bar(0, 0, 0, label=f"model, {name}", color=colour)
        axis.set_xticks(place, [_label(row) for row in rows], rotation=60, ha="right", fontsize=8)
        axis.set_ylabel(label)
        axis.set_ylim(0, 1.15 * max(row["paper_value"] for row in rows))
        axis.legend(ncols=3, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.huffllm", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, help="folder for the plot; none is drawn without it")
    args = parser.parse_args()
    result = reproduce(seed=args.seed)
    show(result)
    if args.out:
        plot(result, args.out / "huffllm_compression.png")
    if args.json:
        write_text(args.json, to_json({"schema_version": 1, **result}))


if __name__ == "__main__":
    main()
