"""Whole steps of large mixtures of experts on 8 GPUs, beside the calibration package's composition.

Qwen3-235B-A22B and DeepSeek-V3 in 16 bits, matrices shared by 8 GPUs, routed experts shared likewise or held whole by each
device (expert parallel). The package's tables of experts spread tokens as a power law of exponent 1.2 does, which touches fewer
experts than even choices would, and time the busiest device; the model's routing is given the power law's popularity, with
which it touches as many.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.silicon.refit import CATALOG
from experiments.silicon.steps import by_key, cells_of, composed, package, step_of, summary
from hwmodels import Architecture, Device, Routing, catalog
from hwmodels.analysis.calibration.kernel_tables import popularity_in_table
from hwmodels.network.operators.steps import StepShape, stack_steps
from hwmodels.step.priced_steps import price_steps

__all__ = ["CELLS", "MixtureCell", "compose", "mixture_section", "priced", "read_cells"]

CELLS = Path(__file__).with_suffix(".csv")
#: The part of the page, with the heads of its table.
_PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").rstrip("\n")

NETWORKS = {"qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B", "deepseek-v3": "deepseek-ai/DeepSeek-V3"}
GPUS, TOGETHER, EXPERT_WAYS = ("h100-sxm", "h200-sxm"), 8, (1, 8)
BATCHES, CONTEXTS, PROMPTS = (1, 4, 16, 64, 256), (512, 4096, 16384), (512, 2048, 8192)
DISTRIBUTION = "power_law_1.2"

#: Mean error that a row of the page should keep to.
BAR = 0.08


@dataclasses.dataclass(frozen=True)
class MixtureCell:
    """One composed step; `tokens` is the context of a decode step, the prompt of a prefill.

    Attributes:
        experts: devices that hold whole experts.
        experts_s: of routed experts alone, where the package says it.
    """

    network: str
    gpu: str
    engine: str
    experts: int
    phase: str
    batch: int
    tokens: int
    experts_s: float
    total_s: float


def compose() -> list[MixtureCell]:
    """All cells from the package, 16-bit weights; what an engine cannot run there is left out.

    Raises:
        KernelTableError: the package is not installed.
    """
    built_of = package()
    modes = ("gemm_quant_mode", "moe_quant_mode", "fmha_quant_mode", "kvcache_quant_mode")
    cells = []
    for network, path in NETWORKS.items():
        for gpu in GPUS:
            for engine, version in CATALOG[gpu].versions.items():
                for ways in EXPERT_WAYS:
                    sizes = {"tp_size": TOGETHER, "moe_tp_size": TOGETHER // ways, "moe_ep_size": ways}
                    try:
                        sized = sizes | dict.fromkeys(modes, "bfloat16")
                        built = built_of(path, CATALOG[gpu].system, engine, version, **sized)
                    except (RuntimeError, ValueError, NotImplementedError):
                        continue
                    make = functools.partial(MixtureCell, network, gpu, engine, ways)
                    cells += composed(make, built, (BATCHES, CONTEXTS, (1,), PROMPTS), _parts)
    return cells


def _parts(operators: Mapping[str, float]) -> dict[str, float]:
    experts = sum(seconds for name, seconds in operators.items() if "_moe" in name and "dispatch" not in name)
    return {"experts_s": experts, "total_s": sum(operators.values())}


def read_cells(path: Path = CELLS) -> list[MixtureCell]:
    """The committed cells."""
    return cells_of(MixtureCell, path)


def tokens_of(cell: Any) -> int:
    """New tokens of a cell's step, of all its sequences."""
    return cell.batch * (cell.tokens if cell.phase == "prefill" else 1)


def routing_of(cell: Any, architecture: Architecture) -> Routing:
    """Popularity of experts under which independent tokens touch and load them as in the tables; leaves "expert"."""
    sizes = int(architecture.num_experts), int(architecture.experts_per_token)
    return Routing(popularity=jnp.asarray(popularity_in_table(DISTRIBUTION, tokens_of(cell), *sizes), jnp.float32))


def priced(cells: Sequence[MixtureCell]) -> npt.NDArray[np.float64]:
    """Seconds of each cell by the model, "cell"."""
    times = np.zeros(len(cells))
    key = lambda cell: (cell.network, cell.gpu, cell.engine, cell.experts)
    for (network, gpu, engine, ways), rows in by_key(cells, key).items():
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
    device: Device, architecture: Architecture, steps: Sequence[StepShape], cells: Sequence[Any]
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


def mixture_section(cells: Sequence[MixtureCell]) -> str:
    """The part of the page about large mixtures, in Markdown."""
    ours = priced(cells)
    lines = [_PAGE.format(bar=100 * BAR, devices=TOGETHER)]
    for kind, rows in by_key(cells, lambda c: (c.phase, c.network, c.gpu, c.engine, c.experts)).items():
        chosen = [cells[row] for row in rows]
        error = ours[rows] / np.array([cell.total_s for cell in chosen]) - 1
        held = "whole" if kind[4] > 1 else "shared"
        lines.append(f"| {kind[1]} | {kind[2]} | {kind[3]} | {held} | {kind[0]} | {summary(chosen, error, BAR)} |")
    return "\n".join([*lines, ""])
