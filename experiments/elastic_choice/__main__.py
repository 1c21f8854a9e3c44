"""The best elastic draft at each batch: `python -m experiments.elastic_choice [--device D,...] [--json FILE]`.

Some minutes. Measures what drafted tokens bring over pool size, bit width, depth and width on a mixture that runs, prices each
choice on devices, and compares the choice of gradients with that of trying everything: the gap, and how many evaluations each
took.
"""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import jax.numpy as jnp

from experiments.command_line import add_outputs, carry_out
from experiments.elastic_axes.axes import WIDTHS, pool_sizes_of
from experiments.elastic_axes.measuring import Measured, Settings, measured_network
from experiments.elastic_choice.search import Found, Grid, by_gradient, by_trying_all
from experiments.elastic_choice.surface import MOST_WIDTH, Surface, measure_surface
from hwmodels import Architecture, Device, Workload, catalog
from hwmodels.memory.placement import PLACEMENTS
from hwmodels.network.measured_routing import measured_routing
from jaxspec.errors import InputError
from jaxspec.models.embedded import load_model
from jaxspec.report.terminal import Table, new_console
from jaxspec.runs.progress import Reporter
from jaxspec.tuning.objective import Pricing

#: Devices of the paper, and a GPU.
DEVICES = (
    "elmoe3d-hb8,elmoe3d-hb4,elmoe3d-hb-xpu,elmoe3d-xpu,elmoe3d-xpu-nmp,elmoe3d-xpu-logic-pim,elmoe3d-xpu-pim,h200-sxm"
)

#: Batches at which the choice is made.
BATCHES = (1, 2, 4, 8, 16, 32, 64)

#: Sequences that share a pool where acceptance is measured; between them it is interpolated.
SHARING = (1, 4, 16)


def grid_of(network: Measured, depth: int) -> Grid:
    """Every pool of whole experts, every whole width, depth and number of candidates."""
    least, most = network.experts.per_token, network.experts.num_experts
    share = [(size - least) / (most - least) for size in range(least, most + 1)]
    return Grid(share, [float(bits) for bits in WIDTHS], _from_one(depth), _from_one(MOST_WIDTH))


def _from_one(most: int) -> list[float]:
    return [float(count) for count in range(1, most + 1)]


def _target(device: str, architecture: str) -> tuple[Device, Architecture]:
    """What names stand for; leading bits of experts lie in the first of several memories.

    Raises:
        InputError: an unknown name.
    """
    try:
        found, shape = catalog.device(device), catalog.architecture(architecture)
    except catalog.UnknownNameError as error:
        raise InputError(str(error)) from error
    return dataclasses.replace(found, placement=PLACEMENTS["by_mode"]()) if found.spill else found, shape


def pricing_of(device: Device, architecture: Architecture, context: int, network: Measured) -> Pricing:
    """What is priced, with choices of experts as the running network's routers make them."""
    routing = measured_routing(network.chosen[:, network.text.first :], num_experts=network.experts.num_experts)
    return Pricing(device, architecture, Workload(batch=1.0, context_tokens=float(context)), routing)


def compare(grid: Grid, surface: Surface, pricing: Pricing, batch: float) -> dict[str, Any]:
    """Both searches at one batch."""
    tried, climbed = (search(grid, batch, surface, pricing) for search in (by_trying_all, by_gradient))
    return {
        "batch": batch,
        "exhaustive": _as_plain(tried),
        "gradient": _as_plain(climbed),
        # Both are points of one grid: what lies below 0 is the last digit of programs of two shapes.
        "gap": max(0.0, float(-jnp.expm1(climbed.log_speedup - tried.log_speedup))),
        "evaluations_ratio": tried.evaluations / climbed.evaluations,
        "status": "predicted",
    }


def _as_plain(found: Found) -> dict[str, Any]:
    names = ("expert_pool", "slice_bits", "depth", "width")
    choice = dict(zip(names, map(float, found.choice), strict=True))
    speedup = float(jnp.exp(found.log_speedup))
    return choice | {"speedup_vs_stored_ar": speedup, "evaluations": found.evaluations}


def run(model: str, architecture: str, devices: list[str], context: int, settings: Settings, reporter: Reporter):
    """All devices and batches.

    Raises:
        InputError: an unknown name, or a network without experts.
    """
    loaded = load_model(model)
    targets = {device: _target(device, architecture) for device in devices}
    reporter.line("continuing the held-out prompts ...")
    network = measured_network(loaded, settings)
    steps = len(SHARING) * len(WIDTHS) * len(pool_sizes_of(network))
    with reporter.bar("what tokens bring", steps) as bar:
        surface = measure_surface(network, settings, SHARING, bar.advance)
    grid, found = grid_of(network, settings.draft_length), {}
    with reporter.bar("choosing", len(devices) * len(BATCHES)) as bar:
        for device in devices:
            pricing, rows = pricing_of(*targets[device], context, network), []
            for batch in BATCHES:
                rows.append(compare(grid, surface, pricing, float(batch)))
                bar.advance(f"{device}, batch {batch}")
            found[device] = rows
    return {
        "model": model,
        "architecture": architecture,
        "context_tokens": context,
        "settings": dataclasses.asdict(settings),
        "grid_points": grid.size,
        "devices": found,
    }


def show(result: dict[str, Any]) -> None:
    """A table for each device on standard output."""
    console = new_console()
    for device, rows in result["devices"].items():
        table = Table(title=f"{result['architecture']} on {device}: pool, bits, depth x width (predicted)")
        for column in ("batch", "everything", "speedup", "tries", "gradient", "speedup", "tries", "gap", "fewer tries"):
            table.add_column(column, justify="right")
        for row in rows:
            cells = []
            for name in ("exhaustive", "gradient"):
                found = row[name]
                size = f"{found['expert_pool']:.2f}, {found['slice_bits']:.0f}, {found['depth']:.0f} x {found['width']:.0f}"
                cells += [size, f"{found['speedup_vs_stored_ar']:.3f}", str(found["evaluations"])]
            table.add_row(
                f"{row['batch']:.0f}", *cells, f"{100 * row['gap']:.2f} %", f"{row['evaluations_ratio']:.0f}x"
            )
        console.print(table)
    rows = [row for found in result["devices"].values() for row in found]
    console.print(
        f"  largest gap {100 * max(row['gap'] for row in rows):.2f} %, at least "
        f"{min(row['evaluations_ratio'] for row in rows):.0f} times fewer evaluations; a gradient counts for three"
    )


def main() -> None:
    """Run, show, write."""
    default = Settings(prompts=32, output_tokens=48, shifts=1)
    parser = argparse.ArgumentParser(
        prog="python -m experiments.elastic_choice",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default="embedded-moe", help="name or directory; default %(default)s")
    parser.add_argument("--architecture", default="qwen3-30b-a3b", help="mixture that is priced; default %(default)s")
    parser.add_argument("--device", default=DEVICES, help="names, separated by commas; default %(default)s")
    parser.add_argument("--context", type=int, default=1024, help="cached tokens per sequence; default %(default)s")
    parser.add_argument("--prompts", type=int, default=default.prompts, help="held out; default %(default)s")
    parser.add_argument("--seed", type=int, default=default.seed)
    add_outputs(parser, plots=False)
    args = parser.parse_args()
    settings = dataclasses.replace(default, prompts=args.prompts, seed=args.seed)
    names = args.device.split(",")
    work = lambda: run(args.model, args.architecture, names, args.context, settings, Reporter())
    carry_out(parser, args, work, show)


if __name__ == "__main__":
    main()
