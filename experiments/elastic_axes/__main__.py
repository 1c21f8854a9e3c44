"""The axes of elastic drafts: `python -m experiments.elastic_axes [--model M] [--json FILE] [--out FOLDER]`.

Some minutes. Prints acceptance lengths over pool size and bit width (ELMoE-3D, Fig. 5b), of hot, shared and random pools
(Fig. 17a, b), of the readings of a weight (Fig. 17c), and how many experts tokens touch together (Fig. 16b).
"""

from __future__ import annotations

import argparse
import dataclasses
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


def run(model: str, settings: Settings, capacity_share: float, reporter: Reporter) -> dict[str, Any]:
    """All measurements of one network.

    Raises:
        InputError: an unknown network, or one without experts.
    """
    loaded = load_model(model)
    reporter.line("continuing the held-out prompts ...")
    network = measured_network(loaded, settings)
    pools = len(pool_sizes_of(network))
    with reporter.bar("both axes", len(WIDTHS) * pools) as bar:
        axes = both_axes(network, settings, bar.advance)
    with reporter.bar("pools", (pools - 1) * (2 + len(SHARING) + len(RETENTIONS))) as bar:
        rules = pool_rules(network, settings, SHARING, RETENTIONS, bar.advance)
    with reporter.bar("readings", len(WIDTHS) * len(READINGS)) as bar:
        readings = readings_of(network, settings, bar.advance)
    return {
        "model": model,
        "settings": dataclasses.asdict(settings),
        "experts": network.experts.num_experts,
        "experts_per_token": network.experts.per_token,
        "capacity_bytes": capacity_share * draft_bytes(network, network.experts.num_experts, 8),
        "both_axes": axes,
        "pool_rules": rules,
        "gain_over_random": _gains(rules),
        "weight_readings": readings,
        "unique_experts": unique_experts(network, most=16),
        "status": "measured",
    }


def _gains(rules: list[dict[str, Any]]) -> list[dict[str, float]]:
    """Acceptance length of hot pools over that of random ones of equal size."""
    length = {(row["rule"], row["pool"]): row["mean"] for row in rules}
    pools = sorted({row["pool"] for row in rules})
    return [{"pool": pool, "ratio": length["hotness", pool] / length["random", pool]} for pool in pools]


def show(result: dict[str, Any]) -> None:
    """Tables on standard output."""
    console = new_console()
    for title, rows, down, across in (
        ("both axes: drafted tokens accepted", result["both_axes"], "bits", "pool"),
        ("pools of experts", result["pool_rules"], "rule", "pool"),
        ("readings of a weight", result["weight_readings"], "reading", "bits"),
    ):
        table, columns = Table(title=f"{title} (measured)"), sorted({row[across] for row in rows})
        table.add_column(down)
        for column in columns:
            table.add_column(f"{across} {column}", justify="right")
        for name in dict.fromkeys(row[down] for row in rows):
            of = {row[across]: row for row in rows if row[down] == name}
            table.add_row(
                str(name), *(f"{of[column]['mean']:.3f} ± {of[column]['standard_error']:.3f}" for column in columns)
            )
        console.print(table)
    table = Table(title="distinct experts of a layer that tokens choose together (measured)")
    for column in ("tokens", "one request", "several requests", "even and independent"):
        table.add_column(column, justify="right")
    for row in result["unique_experts"]:
        table.add_row(str(row["tokens"]), *(f"{row[key]:.2f}" for key in ("one_request", "several_requests", "even")))
    console.print(table)
    gains = ", ".join(f"{row['ratio']:.2f} at {row['pool']}" for row in result["gain_over_random"])
    console.print(f"  hot pools over random ones of equal size: {gains}")


def plot(result: dict[str, Any], folder: Path) -> None:
    """One figure for each measurement, as PNG."""
    from experiments.elastic_axes import figures

    folder.mkdir(parents=True, exist_ok=True)
    name = Path(result["model"]).name
    for what, figure in (
        ("axes", figures.axes_figure(result["both_axes"], result["capacity_bytes"], name)),
        ("pools", figures.pools_figure(result["pool_rules"], name)),
        ("readings", figures.readings_figure(result["weight_readings"], name)),
        ("experts", figures.experts_figure(result["unique_experts"], name)),
    ):
        assert figure is not None
        figure.savefig(folder / f"elastic_{what}.png", dpi=150)


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
    add_outputs(parser)
    args = parser.parse_args()
    settings = dataclasses.replace(
        default, prompts=args.prompts, output_tokens=args.output_tokens, temperature=args.temperature, seed=args.seed
    )
    carry_out(parser, args, lambda: run(args.model, settings, args.capacity_share, Reporter()), show, plot)


if __name__ == "__main__":
    main()
