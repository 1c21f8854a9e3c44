"""Whole steps of large mixtures of experts on 8 GPUs, beside the calibration package's composition.

Qwen3-235B-A22B and DeepSeek-V3 in 16 bits, matrices shared by 8 GPUs, routed experts shared likewise or held whole by each
device (expert parallel). The package's tables of experts spread tokens as a power law of exponent 1.2 does, which touches fewer
experts than even choices would, and time the busiest device; the model's routing is given the power law's popularity, with
which it touches as many.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.silicon.refit import CATALOG
from experiments.silicon.steps import Cell, Composed, by_key, cells_of, composed, errors_of, section, step_of, summary
from hwmodels import Architecture, Device, Routing, catalog
from hwmodels.analysis.calibration.kernel_tables import popularity_in_table
from hwmodels.network.operators.steps import StepShape, stack_steps
from hwmodels.step.priced_steps import price_steps

__all__ = ["CELLS", "compose", "page_section", "priced", "read_cells"]

CELLS = Path(__file__).with_suffix(".csv")
#: The part of the page, with the heads of its table.
_PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").rstrip("\n")

NETWORKS = {"qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B", "deepseek-v3": "deepseek-ai/DeepSeek-V3"}
GPUS, TOGETHER, EXPERT_WAYS = ("h100-sxm", "h200-sxm"), 8, (1, 8)
BATCHES, CONTEXTS, PROMPTS = (1, 4, 16, 64, 256), (512, 4096, 16384), (512, 2048, 8192)
DISTRIBUTION = "power_law_1.2"

#: Mean error that a row of the page should keep to.
BAR = 0.08


def compose() -> list[Cell]:
    """All cells from the package, 16-bit weights; `experts` of a cell: devices that hold whole experts.

    Raises:
        KernelTableError: the package is not installed.
    """
    engines = [
        Composed(
            {"network": network, "gpu": gpu, "engine": engine, "experts": ways},
            path,
            (BATCHES, CONTEXTS, (1,), PROMPTS),
            {"tp_size": TOGETHER, "moe_tp_size": TOGETHER // ways, "moe_ep_size": ways},
        )
        for network, path in NETWORKS.items()
        for gpu in GPUS
        for engine in CATALOG[gpu].versions
        for ways in EXPERT_WAYS
    ]
    experts = lambda operators: sum(s for name, s in operators.items() if "_moe" in name and "dispatch" not in name)
    return composed(engines, lambda one: {"experts_s": experts(one), "total_s": sum(one.values())})


#: The committed cells.
read_cells = functools.partial(cells_of, CELLS)


def tokens_of(cell: Cell) -> int:
    """New tokens of a cell's step, of all its sequences."""
    return cell.batch * (cell.tokens if cell.phase == "prefill" else 1)


def routing_of(cell: Cell, architecture: Architecture) -> Routing:
    """Popularity of experts under which independent tokens touch and load them as in the tables; leaves "expert"."""
    sizes = int(architecture.num_experts), int(architecture.experts_per_token)
    return Routing(popularity=jnp.asarray(popularity_in_table(DISTRIBUTION, tokens_of(cell), *sizes), jnp.float32))


def priced(cells: Sequence[Cell]) -> npt.NDArray[np.float64]:
    """Seconds of each cell by the model, "cell"."""
    times = np.zeros(len(cells))
    for (network, gpu, engine, ways), rows in by_key(cells, ("network", "gpu", "engine", "experts")).items():
        architecture, parallelism = catalog.architecture(network), catalog.Parallelism(tensor=TOGETHER, expert=ways)
        device = catalog.grouped(catalog.device_entry(gpu, engine=engine), parallelism, gpu).device
        steps = [step_of(cells[i]) for i in rows]
        times[rows] = times_of(device, architecture, steps, [cells[i] for i in rows]).total_s
    return times


class MixtureTimes(NamedTuple):
    """Of some cells' steps: of all operators, "cell operator", and whole, "cell"; seconds."""

    operator_s: npt.NDArray[np.float64]
    total_s: npt.NDArray[np.float64]


def times_of(
    device: Device, architecture: Architecture, steps: Sequence[StepShape], cells: Sequence[Cell]
) -> MixtureTimes:
    """Times of the steps of cells with the tables' routing."""
    routing = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(routing_of(cell, architecture) for cell in cells))
    return MixtureTimes(*map(np.asarray, _times(device, architecture, stack_steps(steps), routing)))


@jax.jit
def _times(
    device: Device, architecture: Architecture, steps: StepShape, routing: Routing
) -> tuple[jax.Array, jax.Array]:
    def one(step: StepShape, routing: Routing) -> tuple[jax.Array, jax.Array]:
        (priced_step,) = price_steps(device, architecture, [step], routing=routing)
        return priced_step.cost.operator_s, priced_step.cost.total_s

    return jax.vmap(one)(steps, routing)


def page_section(cells: Sequence[Cell]) -> str:
    """The part of the page about large mixtures, in Markdown."""
    error, head = errors_of(priced(cells), cells), _PAGE.format(bar=100 * BAR, devices=TOGETHER)

    def row(rows: list[int], of: Cell) -> str:
        held = "whole" if of.experts > 1 else "shared"
        labels = f"{of.network} | {of.gpu} | {of.engine} | {held} | {of.phase}"
        return f"{labels} | {summary(cells, error, rows, BAR)}"

    return section(head, cells, ("network", "gpu", "engine", "experts"), row)
