"""Whole steps of Llama-3.1-70B on 2, 4 and 8 GPUs that share its matrices, beside the calibration package's composition.

The package adds up the same kernels as on one GPU at their shares, and two all-reduces per layer from the engines' own tables.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.silicon.refit import CATALOG
from experiments.silicon.steps import KV_FORMATS, by_key, cells_of, composed, package, step_of, summary
from hwmodels import Architecture, Device, catalog
from hwmodels.network.operators.steps import StepShape, stack_steps
from hwmodels.step.priced_steps import price_steps

__all__ = ["CELLS", "GroupCell", "compose", "group_section", "priced", "read_cells"]

CELLS = Path(__file__).with_suffix(".csv")
#: The part of the page, with the heads of its table.
_PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").rstrip("\n")

NETWORK, PATH = "llama-3.1-70b", "meta-llama/Meta-Llama-3.1-70B"
GPUS, DEVICES = ("h100-sxm", "h200-sxm"), (2, 4, 8)
BATCHES, CONTEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (128, 512, 2048, 8192, 32768)
PROMPT_BATCHES, PROMPTS = (1, 4), (512, 2048, 8192)

#: Mean error that a row of the page should keep to.
BAR = 0.08


@dataclasses.dataclass(frozen=True)
class GroupCell:
    """One composed step; `tokens` is the context of a decode step, the prompt of a prefill."""

    gpu: str
    engine: str
    devices: int
    phase: str
    batch: int
    tokens: int
    collectives_s: float
    total_s: float


def compose() -> list[GroupCell]:
    """All cells from the package, 16-bit weights; what an engine cannot run there is left out.

    Raises:
        KernelTableError: the package is not installed.
    """
    built_of = package()
    modes = dict.fromkeys(
        ("gemm_quant_mode", "moe_quant_mode", "fmha_quant_mode", "kvcache_quant_mode"), KV_FORMATS[16]
    )
    cells = []
    for gpu in GPUS:
        for engine, version in CATALOG[gpu].versions.items():
            for devices in DEVICES:
                built = built_of(PATH, CATALOG[gpu].system, engine, version, tp_size=devices, **modes)
                make = functools.partial(GroupCell, gpu, engine, devices)
                cells += composed(make, built, (BATCHES, CONTEXTS, PROMPT_BATCHES, PROMPTS), _parts)
    return cells


def _parts(operators: Mapping[str, float]) -> dict[str, float]:
    joined = sum(seconds for name, seconds in operators.items() if "_ar" in name)
    return {"collectives_s": joined, "total_s": sum(operators.values())}


def read_cells(path: Path = CELLS) -> list[GroupCell]:
    """The committed cells."""
    return cells_of(GroupCell, path)


def priced(cells: Sequence[GroupCell]) -> dict[str, npt.NDArray[np.float64]]:
    """Seconds of each cell by the model, "cell": "total_s", and "collectives_s" in it."""
    architecture = catalog.architecture(NETWORK)
    times = {"total_s": np.zeros(len(cells)), "collectives_s": np.zeros(len(cells))}
    for (gpu, engine), rows in by_key(cells, lambda cell: (cell.gpu, cell.engine)).items():
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


def group_section(cells: Sequence[GroupCell]) -> str:
    """The part of the page about several GPUs, in Markdown."""
    ours = priced(cells)
    lines = [_PAGE]
    for kind, rows in by_key(cells, lambda c: (c.phase, c.gpu, c.engine, c.devices)).items():
        chosen = [cells[row] for row in rows]
        error, joined = (
            ours[part][rows] / np.array([getattr(cell, part) for cell in chosen]) - 1
            for part in ("total_s", "collectives_s")
        )
        lines.append(
            f"| {kind[1]} | {kind[2]} | {kind[0]} | {kind[3]} | {summary(chosen, error, BAR)} "
            f"| {100 * np.abs(joined).mean():.1f} % |"
        )
    return "\n".join([*lines, ""])
