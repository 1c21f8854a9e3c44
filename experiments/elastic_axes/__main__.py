"""The axes of elastic drafts: `python -m experiments.elastic_axes [--model M] [--json FILE] [--out FOLDER]`.

Some minutes. Prints acceptance lengths over pool size and bit width (ELMoE-3D, Fig. 5b), of hot, shared and random pools
(Fig. 17a, b), of the readings of a weight (Fig. 17c), and how many experts tokens touch together (Fig. 16b).
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from experiments.command_line import add_outputs, carry_out
from experiments.elastic_axes.axes import (
    CAPACITY_SHARE,
    SHARING,
    WIDTHS,
    both_axes,
    draft_bytes,
    pool_rules,
    pool_sizes_of,
    unique_experts,
)
from experiments.elastic_axes.axes import weight_readings as readings_of
from experiments.elastic_axes.measuring import Settings, measured_network
from experiments.elastic_axes.readings import READINGS
from jaxspec.models.embedded import load_model
from jaxspec.report.terminal import Table, new_console
from jaxspec.runs.progress import Reporter

#: Factors by which hotness falls per token, beside the default.
RETENTIONS = (0.8, 0.99, 1.0)


#: What is measured.
PARTS = ("axes", "pools", "readings", "experts")


def run(
    model: str, settings: Settings, capacity_share: float, parts: Collection[str], reporter: Reporter
) -> dict[str, Any]:
    """Measurements of one network.

    Args:
        parts: of `PARTS`.
    Raises:
        InputError: an unknown network, or one without experts.
    """
    loaded = load_model(model)
    reporter.line("continuing the held-out prompts ...")
    network = measured_network(loaded, settings)
    result: dict[str, Any] = {
        "model": model,
        "settings": dataclasses.asdict(settings),
        "experts": network.experts.num_experts,
        "experts_per_token": network.experts.per_token,
        "capacity_bytes": capacity_share * draft_bytes(network, network.experts.num_experts, 8),
        "status": "measured",
    }
    pools = len(pool_sizes_of(network))
    if "axes" in parts:
        with reporter.bar("both axes", len(WIDTHS) * pools) as bar:
            result["both_axes"] = both_axes(network, settings, bar.advance)
    if "pools" in parts:
        with reporter.bar("pools", (pools - 1) * (2 + len(SHARING) + len(RETENTIONS))) as bar:
            rules = pool_rules(network, settings, SHARING, RETENTIONS, bar.advance)
        result |= {"pool_rules": rules.rows, "gain_over_random": rules.gains}
    if "readings" in parts:
        with reporter.bar("readings", len(WIDTHS) * len(READINGS)) as bar:
            result["weight_readings"] = readings_of(network, settings, bar.advance)
    if "experts" in parts:
        result["unique_experts"] = unique_experts(network, most=16)
    return result


def show(result: dict[str, Any]) -> None:
    """Tables on standard output, of what was measured."""
    console = new_console()
    length = lambda row: f"{row['mean']:.3f} ± {row['standard_error']:.3f}"
    gain = lambda row: f"{row['ratio']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
    for title, key, down, across, form in (
        ("both axes: drafted tokens accepted (measured)", "both_axes", "bits", "pool", length),
        ("pools of experts: drafted tokens accepted (measured)", "pool_rules", "rule", "pool", length),
        ("the same over random pools of equal size (measured; 95 %)", "gain_over_random", "rule", "pool", gain),
        ("readings of a weight: drafted tokens accepted (measured)", "weight_readings", "reading", "bits", length),
    ):
        if key not in result:
            continue
        rows = result[key]
        table, columns = Table(title=title), sorted({row[across] for row in rows})
        table.add_column(down)
        for column in columns:
            table.add_column(f"{across} {column}", justify="right")
        for name in dict.fromkeys(row[down] for row in rows):
            of = {row[across]: row for row in rows if row[down] == name}
            table.add_row(str(name), *(form(of[column]) for column in columns))
        console.print(table)
    if "unique_experts" not in result:
        return
    table = Table(title="distinct experts of a layer that tokens choose together (measured)")
    for column in ("tokens", "one request", "several requests", "even and independent"):
        table.add_column(column, justify="right")
    for row in result["unique_experts"]:
        table.add_row(str(row["tokens"]), *(f"{row[key]:.2f}" for key in ("one_request", "several_requests", "even")))
    console.print(table)


def plot(result: dict[str, Any], folder: Path) -> None:
    """One figure for each measurement, as PNG."""
    from experiments.elastic_axes import figures

    folder.mkdir(parents=True, exist_ok=True)
    name = Path(result["model"]).name
    for part, key, draw in (
        ("axes", "both_axes", lambda rows: figures.axes_figure(rows, result["capacity_bytes"], name)),
        ("pools", "pool_rules", lambda rows: figures.pools_figure(rows, name)),
        ("readings", "weight_readings", lambda rows: figures.readings_figure(rows, name)),
        ("experts", "unique_experts", lambda rows: figures.experts_figure(rows, name)),
    ):
        if key in result:
            draw(result[key]).savefig(folder / f"elastic_{part}.png", dpi=150)


def main() -> None:
    """Run, show, write."""
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m experiments.elastic_axes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="embedded-moe", help="name or directory; default %(default)s")
    parser.add_argument("--prompts", type=int, default=default.prompts, help="held out; default %(default)s")
    parser.add_argument("--output-tokens", type=int, default=default.output_tokens, help="default %(default)s")
    parser.add_argument(
        "--capacity-share",
        type=float,
        default=CAPACITY_SHARE,
        help="of the bytes of the INT8 network, for the frame in the first figure; default %(default)s",
    )
    parser.add_argument(
        "--temperature", type=float, default=default.temperature, help="of the decoding; 0, the default, is greedy"
    )
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this alone, or several; default: all")
    add_outputs(parser)
    args = parser.parse_args()
    settings = dataclasses.replace(
        default, prompts=args.prompts, output_tokens=args.output_tokens, temperature=args.temperature, seed=args.seed
    )
    work = lambda: run(args.model, settings, args.capacity_share, args.only or PARTS, Reporter())
    carry_out(parser, args, work, show, plot)


if __name__ == "__main__":
    main()
