"""Whole steps of Llama-3.1-70B on 2, 4 and 8 GPUs that share its matrices, beside the calibration package's composition.

The package adds up the same kernels as on one GPU at their shares, and two all-reduces per layer from the engines' own tables.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.silicon.refit import CATALOG
from experiments.silicon.steps import Cell, Composed, by_key, cells_of, composed, errors_of, section, step_of, summary
from hwmodels import Architecture, Device, catalog
from hwmodels.network.operators.steps import StepShape, stack_steps
from hwmodels.step.priced_steps import price_steps

__all__ = ["CELLS", "compose", "page_section", "priced", "read_cells"]

CELLS = Path(__file__).with_suffix(".csv")
#: The part of the page, with the heads of its table.
_PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").rstrip("\n")

NETWORK, PATH = "llama-3.1-70b", "meta-llama/Meta-Llama-3.1-70B"
GPUS, DEVICES = ("h100-sxm", "h200-sxm"), (2, 4, 8)
BATCHES, CONTEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (128, 512, 2048, 8192, 32768)
PROMPT_BATCHES, PROMPTS = (1, 4), (512, 2048, 8192)

#: Mean error that a row of the page should keep to.
BAR = 0.08


def compose() -> list[Cell]:
    """All cells from the package, 16-bit weights. Raises KernelTableError: the package is not installed."""
    engines = [
        Composed(
            {"gpu": gpu, "engine": engine, "devices": devices},
            PATH,
            (BATCHES, CONTEXTS, PROMPT_BATCHES, PROMPTS),
            {"tp_size": devices},
        )
        for gpu in GPUS
        for engine in CATALOG[gpu].versions
        for devices in DEVICES
    ]
    joined = lambda operators: sum(seconds for name, seconds in operators.items() if "_ar" in name)
    return composed(engines, lambda one: {"collectives_s": joined(one), "total_s": sum(one.values())})


#: The committed cells.
read_cells = functools.partial(cells_of, CELLS)


def priced(cells: Sequence[Cell]) -> dict[str, npt.NDArray[np.float64]]:
    """Seconds of each cell by the model, "cell": "total_s", and "collectives_s" in it."""
    architecture = catalog.architecture(NETWORK)
    times = {"total_s": np.zeros(len(cells)), "collectives_s": np.zeros(len(cells))}
    for (gpu, engine), rows in by_key(cells, ("gpu", "engine")).items():
        entry = catalog.grouped(catalog.device_entry(gpu, engine=engine), catalog.Parallelism(tensor=2), gpu)
        steps = stack_steps([step_of(cells[i]) for i in rows])
        counts = jnp.array([float(cells[i].devices) for i in rows])
        total_s, collective_s = jax.device_get(_times(entry.device, architecture, steps, counts))
        times["total_s"][rows], times["collectives_s"][rows] = total_s, collective_s.sum(axis=-1)
    return times


@jax.jit
def _times(
    device: Device, architecture: Architecture, steps: StepShape, counts: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def one(step: StepShape, count: jax.Array) -> tuple[jax.Array, jax.Array]:
        together = dataclasses.replace(device, group=device.group.replace(tensor_parallel=count))
        (priced_step,) = price_steps(together, architecture, [step])
        assert priced_step.cost.collective_s is not None
        return priced_step.cost.total_s, priced_step.cost.collective_s

    return jax.vmap(one)(steps, counts)


def page_section(cells: Sequence[Cell]) -> str:
    """The part of the page about several GPUs, in Markdown."""
    ours = priced(cells)
    error, joined = (errors_of(ours[part], cells, part) for part in ("total_s", "collectives_s"))

    def row(rows: list[int], of: Cell) -> str:
        labels = f"{of.gpu} | {of.engine} | {of.phase} | {of.devices}"
        return f"{labels} | {summary(cells, error, rows, BAR)} | {100 * np.abs(joined[rows]).mean():.1f} %"

    return section(_PAGE, cells, ("gpu", "engine", "devices"), row)
