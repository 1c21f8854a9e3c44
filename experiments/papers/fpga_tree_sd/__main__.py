"""Tree speculation on FPGAs: `python -m experiments.papers.fpga_tree_sd [--json FILE] [--out FOLDER]`. Half a minute."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.papers.fpga_tree_sd.result import BARRED_BOARDS, reproduce
from experiments.papers.reproduction import show_tables
from jaxspec.files import to_json, write_text
from jaxspec.report.terminal import Table, new_console


def label(row: Mapping[str, Any]) -> str:
    """What tells a row from others of its table."""
    keys = ("board", "context_length", "method", "benchmark", "claim_id", "sd_algorithm")
    conditions = row["conditions"]
    if row["table"] == "table1_llama31_8b":
        keys = ("context_length", "method")
    elif row["table"] == "fig4_average_speedup":
        keys = ("sd_algorithm", "model")
    elif row["table"] != "claims":
        keys = ("board", "context_length", "method", "benchmark")
    return ", ".join(conditions[key] for key in keys if key in conditions)


def show(result: Mapping[str, Any]) -> None:
    """Tables on standard output."""
    console = new_console()
    show_tables(console, result, label=label, agrees="better than the simplest predictors")
    _show_boards(console, result["summary"]["fpga_tree_sd/table4_platforms"])
    _show_variants(console, result["variants"])
    table = Table(title="A generation from 128 to 16384 tokens of context, its length switched as the context grows")
    for column in ("board", "tokens/s", "over AR", "over the original set", "best fixed length", "over it", "lengths"):
        table.add_column(column, justify="left" if column in ("board", "lengths") else "right")
    for entry in result["switching"]:
        ratios = [f"{entry[f'speedup_vs_{name}']:.2f}x" for name in ("ar", "original")]
        lengths = ", ".join(str(step["length"]) for step in entry["schedule"])
        fixed = (str(entry["best_fixed_length"]), f"{entry['speedup_vs_best_fixed']:.3f}x")
        table.add_row(entry["board"], f"{entry['tokens_per_s']:.2f}", *ratios, *fixed, lengths)
    console.print(table)
    bounds = result["law_bounds"]
    words = "holds" if bounds["holds"] else "does NOT hold"
    console.print(f"  Eq. (4), 1.5 < AAT < x from 2 tokens on: {words}; least {bounds['least_tokens']:.3f} tokens")
    naive = result["summary"]["fpga_tree_sd/table1_llama31_8b"]["naive_lengths"]
    verdict = "reproduced" if naive["beats_simplest"] else "NOT reproduced"
    console.print(
        f"  naive lengths by the law's slope: {verdict}; median {naive['ours']['median']:.1%}, a constant's "
        f"{naive['one constant']['median']:.1%}"
    )
    console.print("  where the paper contradicts itself (F1 to F8): README.md beside the printed numbers")
    console.print("\n".join(result["missed_bars"]) or "All bars are met.")


def _show_boards(console: Console, summary: Mapping[str, Any]) -> None:
    table = Table(title="Table IV by board: best throughputs")
    for column in (
        "board",
        "median",
        "max",
        "of its maximum at the printed lengths",
        "best lengths",
        "beats simpler",
        "bar",
    ):
        table.add_column(column)
    for board, found in summary["by_board"].items():
        shares = ", ".join(f"{share:.3f}" for share in found["share_of_maximum_at_printed_length"])
        lengths = ", ".join(f"{length:.0f}" for length in found["best_lengths"])
        beats = "own column" if board == "V80" else "yes" if found["beats_simplest"] else "NO"
        errors = (f"{found['ours']['median']:.2%}", f"{found['ours']['max']:.2%}")
        table.add_row(board, *errors, shares, lengths, beats, "8 %" if board in BARRED_BOARDS else "none")
    console.print(table)
    steps = summary["autoregressive"]
    for name, errors in steps.items():
        console.print(f"  AR on the other boards, {name}: median {errors['median']:.3%}, max {errors['max']:.3%}")


def _show_variants(console: Console, variants: list[dict[str, Any]]) -> None:
    table = Table(title="One choice changed, fitted to Table I again (least share: at the printed best lengths)")
    columns = (
        "variant",
        "median",
        "max",
        "least share",
        "U280 max",
        "VHK158 max",
        "U250 max",
        "U250 lengths",
        "naive lengths",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "variant" else "right")
    for entry in variants:
        boards = entry["boards"]
        errors = [f"{boards[name]['max']:.1%}" for name in ("U280", "VHK158", "U250")]
        lengths = ", ".join(f"{length:.0f}" for length in boards["U250"]["best_lengths"])
        naive = f"{entry['naive_lengths'][0]:.0f} to {entry['naive_lengths'][-1]:.0f}"
        spread = (f"{entry['median']:.1%}", f"{entry['max']:.1%}", f"{entry['least_share_of_maximum']:.3f}")
        table.add_row(entry["variant"], *spread, *errors, lengths, naive)
    console.print(table)


def plot(folder: Path) -> None:
    """All figures as PNG."""
    from experiments.papers.fpga_tree_sd import figures

    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in (("model", figures.model_figure), ("speedup", figures.speedup_figure)):
        figure = draw()
        assert figure is not None
        figure.savefig(folder / f"fpga_tree_sd_{name}.png", dpi=150)


def main() -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.papers.fpga_tree_sd", description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--out", type=Path, help="folder for the plots; none are drawn without it")
    args = parser.parse_args()
    result = reproduce()
    show(result)
    if args.out:
        plot(args.out)
    if args.json:
        write_text(args.json, to_json({"schema_version": 1, **result}))


if __name__ == "__main__":
    main()
