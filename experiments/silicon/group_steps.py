"""Whole steps of Llama-3.1-70B on 2, 4 and 8 GPUs that share its matrices, beside the calibration package's composition.

The package adds up the same kernels as on one GPU at their shares, and two all-reduces per layer from the engines' own tables.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from experiments.silicon.refit import CATALOG
from experiments.silicon.steps import KV_FORMATS
from hwmodels import Architecture, Device, Footprint, catalog, uniform_footprint
from hwmodels.analysis.calibration.kernel_tables import KernelTableError
from hwmodels.network.operators.steps import StepShape, decode_step, prefill_step, stack_steps
from hwmodels.network.workload import Workload
from hwmodels.step.priced_steps import price_steps

__all__ = [
    "CELLS",
    "GroupCell",
    "cells_of",
    "compose",
    "group_section",
    "package",
    "priced",
    "read_cells",
    "runs_of",
    "step_of",
    "write_cells",
]

C = TypeVar("C")

CELLS = Path(__file__).with_name("group_steps.csv")

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


def package() -> Callable[..., Any]:
    """From a network and its formats to the package's engine, which composes steps.

    Raises:
        KernelTableError: the package is not installed.
    """
    try:
        from aiconfigurator_core import AicEngine  # pyright: ignore[reportMissingImports]
        from aiconfigurator_core.sdk.engine import compile_engine  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError as error:
        raise KernelTableError(f"cells cannot be composed: {error}; pip install aiconfigurator-core pyarrow") from error
    logging.getLogger("aiconfigurator_core").setLevel(logging.ERROR)
    return lambda *place, **settings: AicEngine.from_spec(compile_engine(*place, **settings))


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
                for phase, batch, tokens, run in runs_of(built, BATCHES, CONTEXTS, PROMPT_BATCHES, PROMPTS):
                    try:
                        operators = run()
                    except Exception:  # the package raises its own kinds where its tables end
                        continue
                    joined = sum(seconds for name, seconds in operators.items() if "_ar" in name)
                    cells.append(GroupCell(gpu, engine, devices, phase, batch, tokens, joined, sum(operators.values())))
    return cells


def runs_of(
    built: Any, batches: Sequence[int], contexts: Sequence[int], prompt_batches: Sequence[int], prompts: Sequence[int]
) -> list[tuple[str, int, int, Callable[[], dict[str, float]]]]:
    """Phase, batch and tokens of all decode steps and prefills, with what composes one: operator -> seconds."""

    def decode(batch: int, tokens: int) -> dict[str, float]:
        return _seconds(built.decode_step_per_op(batch, tokens, 2))

    def prefill(batch: int, tokens: int) -> dict[str, float]:
        return _seconds(built.run_static_per_op(batch, 1, tokens, 1, 0, 1.0, 1.0, "static_ctx")[0])

    sizes = [("decode", decode, batches, contexts), ("prefill", prefill, prompt_batches, prompts)]
    return [(phase, b, t, functools.partial(of, b, t)) for phase, of, some, long in sizes for b in some for t in long]


def _seconds(operators: Sequence[Any]) -> dict[str, float]:
    """Operators of the same name together, as those of layers with a window and without one."""
    seconds: dict[str, float] = {}
    for name, milliseconds, *_ in operators:
        seconds[name] = seconds.get(name, 0.0) + 1e-3 * milliseconds
    return seconds


def write_cells(cells: Sequence[Any]) -> str:
    """The file's text: one cell, a dataclass of words and numbers, per line; five digits."""
    names = [field.name for field in dataclasses.fields(cells[0])]
    shown = lambda value: f"{value:.5g}" if isinstance(value, float) else str(value)
    return "\n".join([",".join(names), *(",".join(shown(getattr(cell, name)) for name in names) for cell in cells), ""])


def cells_of(kind: type[C], path: Path) -> list[C]:
    """The cells of a file that `write_cells` wrote, each of a kind."""
    kinds = {"str": str, "int": int, "float": float}
    types = {field.name: kinds[str(field.type)] for field in dataclasses.fields(cast(Any, kind))}
    lines = path.read_text(encoding="utf-8").splitlines()
    return [kind(**{name: types[name](value) for name, value in row.items()}) for row in csv.DictReader(lines)]


def read_cells(path: Path = CELLS) -> list[GroupCell]:
    """The committed cells."""
    return cells_of(GroupCell, path)


def priced(cells: Sequence[GroupCell]) -> dict[str, npt.NDArray[np.float64]]:
    """Seconds of each cell by the model, "cell": "total_s", and "collectives_s" in it."""
    architecture = catalog.architecture(NETWORK)
    times = {"total_s": np.zeros(len(cells)), "collectives_s": np.zeros(len(cells))}
    for gpu, engine in dict.fromkeys((cell.gpu, cell.engine) for cell in cells):
        rows = [i for i, cell in enumerate(cells) if (cell.gpu, cell.engine) == (gpu, engine)]
        entry = catalog.grouped(catalog.device_entry(gpu, engine=engine), catalog.Parallelism(tensor=2), gpu)
        steps = stack_steps([step_of(cells[i].phase, cells[i].batch, cells[i].tokens) for i in rows])
        counts = jnp.array([float(cells[i].devices) for i in rows])
        total_s, collective_s = jax.device_get(_times(entry.device, architecture, steps, counts))
        times["total_s"][rows], times["collectives_s"][rows] = total_s, collective_s.sum(axis=-1)
    return times


def step_of(phase: str, batch: int, tokens: int, footprint: Footprint | None = None) -> StepShape:
    """The step of a cell; 16 bits unless a footprint is given."""
    prefill = phase == "prefill"
    workload = Workload(batch=batch, context_tokens=0.0 if prefill else tokens, prompt_tokens=tokens)
    return (prefill_step if prefill else decode_step)(workload, footprint=footprint or uniform_footprint(16.0))


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
    lines = [
        "## Several GPUs",
        "",
        "Llama-3.1-70B in 16 bits, its matrices shared by 2, 4 or 8 GPUs (tensor parallel): decoding at batches 1 to 256 and",
        "contexts of 128 to 32768 tokens, prefill of 1 and 4 prompts of 512 to 8192 tokens, composed by the same package.",
        "*Collectives* is the mean error of the exchange between GPUs. The model also gathers logits, which the package leaves",
        "out. Target: a mean of 8 %; rows that miss it are bold.",
        "",
        "| GPU | engine | phase | GPUs | cells | mean | largest | at batch, tokens | bias | collectives |",
        "| --- | --- | --- |" + " ---: |" * 7,
    ]
    keys = sorted({(c.phase, c.gpu, c.engine, c.devices) for c in cells})
    for key in keys:
        rows = [i for i, c in enumerate(cells) if (c.phase, c.gpu, c.engine, c.devices) == key]
        error = np.array([ours["total_s"][i] / cells[i].total_s - 1 for i in rows])
        joined = np.array([ours["collectives_s"][i] / cells[i].collectives_s - 1 for i in rows])
        worst, mean = cells[rows[int(np.abs(error).argmax())]], float(np.abs(error).mean())
        mark = "" if mean <= BAR else "**"
        lines.append(
            f"| {key[1]} | {key[2]} | {key[0]} | {key[3]} | {len(rows)} | {mark}{100 * mean:.1f} %{mark} "
            f"| {100 * np.abs(error).max():.1f} % | {worst.batch}, {worst.tokens} | {100 * error.mean():+.1f} % "
            f"| {100 * np.abs(joined).mean():.1f} % |"
        )
    return "\n".join([*lines, ""])
