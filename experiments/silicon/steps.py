"""Whole steps beside the calibration package's own composition of them: every device, engine and phase.

The package adds a step up from its measured kernels by its own interpolation, norms and embedding at an empirical share of the
bandwidth. Its cells are committed (`steps.csv`); `compose` makes them anew.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import logging
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from experiments.silicon.refit import CATALOG
from hwmodels import Device, Footprint, catalog, uniform_footprint
from hwmodels.analysis.calibration.kernel_tables import KernelTableError
from hwmodels.network.architecture import Workload
from hwmodels.network.operators import OPERATORS, step_operators
from hwmodels.network.operators.steps import StepShape, decode_step, prefill_step, stack_steps
from hwmodels.step.step_cost import step_cost

__all__ = [
    "CELLS",
    "Cell",
    "Composed",
    "by_key",
    "cells_of",
    "compose",
    "composed",
    "errors_of",
    "marked",
    "priced",
    "read_cells",
    "section",
    "step_of",
    "summary",
    "sums_by",
    "write_cells",
]

CELLS = Path(__file__).with_name("steps.csv")
SOURCE = "aiconfigurator-core 0.12.0 (Apache-2.0), one GPU, seconds"

#: Devices of the catalog by GPU of the calibrations, where the names differ.
DEVICES = {name: name for name in CATALOG} | {"a100-sxm": "a100-sxm-80gb"}

NETWORKS = {"llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B", "qwen3-8b": "Qwen/Qwen3-8B"}
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
PROMPTS = (512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
PROMPT_BATCHES = (1, 2, 4, 8, 16)
#: Network that is composed with narrow keys and values too.
_NARROW = "llama-3.1-8b"
#: Cells that are priced at once.
_GROUP = 64

#: Bits per element of keys and values -> what the package calls them.
KV_FORMATS = {16: "bfloat16", 8: "fp8"}


class Cell(types.SimpleNamespace):
    """One composed step: labels (GPU, engine, ...), phase, batch, tokens, and seconds of its parts.

    `tokens` is the context of a decode step, the prompt of a prefill; `total_s` is of the whole step.
    """

    def __getattr__(self, name: str) -> Any:
        # Files that have all parts of a step do not repeat their sum.
        if name == "total_s":
            return sum(seconds for part, seconds in vars(self).items() if part.endswith("_s"))
        raise AttributeError(name)


class Composed(NamedTuple):
    """An engine of the package whose steps are composed.

    Attributes:
        labels: of its cells, "gpu" and "engine" among them.
        path: of the network.
        sizes: batches, contexts, batches of prompts, prompts; see `runs_of`.
        settings: of the package; products, experts, attention and cache are in 16 bits unless it says otherwise.
    """

    labels: dict[str, Any]
    path: str
    sizes: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
    settings: dict[str, Any]


_SETTINGS = dict.fromkeys(("gemm_quant_mode", "moe_quant_mode", "fmha_quant_mode", "kvcache_quant_mode"), "bfloat16")


def compose(gpus: Iterable[str] = tuple(CATALOG)) -> list[Cell]:
    """All cells from the package, 16-bit weights. Raises KernelTableError: the package is not installed."""
    engines = [
        Composed(
            {"gpu": gpu, "engine": engine, "network": network, "kv_bits": kv_bits},
            path,
            (BATCHES, CONTEXTS, PROMPT_BATCHES if kv_bits == 16 else (), PROMPTS),
            {"kvcache_quant_mode": kv_format},
        )
        for gpu in gpus
        for engine in CATALOG[gpu].versions
        for network, path in NETWORKS.items()
        for kv_bits, kv_format in KV_FORMATS.items()
        if kv_bits == 16 or network == _NARROW
    ]
    return composed(engines, functools.partial(sums_by, {"gemm": "products_s", "attention": "attention_s"}))


def sums_by(ends: Mapping[str, str], operators: Mapping[str, float]) -> dict[str, float]:
    """Seconds by part. Args: ends: of operators' names -> part; all others are "rest_s"."""
    parts = dict.fromkeys((*ends.values(), "rest_s"), 0.0)
    for name, seconds in operators.items():
        parts[next((part for end, part in ends.items() if name.endswith(end)), "rest_s")] += seconds
    return parts


def composed(engines: Iterable[Composed], parts: Callable[[Mapping[str, float]], Mapping[str, float]]) -> list[Cell]:
    """A cell for each step of engines of the package; what an engine cannot run, and steps where its tables end, are left out.

    Args:
        parts: from seconds by operator.
    Raises:
        KernelTableError: the package is not installed.
    """
    built_of, cells = package(), []
    for labels, path, sizes, settings in engines:
        system, engine = CATALOG[labels["gpu"]], labels["engine"]
        try:
            built = built_of(path, system.system, engine, system.versions[engine], **_SETTINGS | settings)
        except (RuntimeError, ValueError, NotImplementedError):
            continue
        for phase, batch, tokens, run in runs_of(built, *sizes):
            try:
                operators = run()
            except Exception:  # the package raises its own kinds where its tables end
                continue
            cells.append(Cell(**labels, phase=phase, batch=batch, tokens=tokens, **parts(operators)))
    return cells


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


def write_cells(cells: Sequence[Cell]) -> str:
    """The file's text: one cell per line; five digits."""
    shown = lambda value: f"{value:.5g}" if isinstance(value, float) else str(value)
    return "\n".join([",".join(vars(cells[0])), *(",".join(map(shown, vars(cell).values())) for cell in cells), ""])


def cells_of(path: Path) -> list[Cell]:
    """The cells of a file that `write_cells` wrote."""
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return [Cell(**{name: _value(text) for name, text in row.items()}) for row in csv.DictReader(lines)]


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


#: The committed cells.
read_cells = functools.partial(cells_of, CELLS)


def step_of(cell: Cell, footprint: Footprint | None = None) -> StepShape:
    """The step of a cell; 16 bits unless a footprint is given."""
    prefill = cell.phase == "prefill"
    workload = Workload(batch=cell.batch, context_tokens=0.0 if prefill else cell.tokens, prompt_tokens=cell.tokens)
    return (prefill_step if prefill else decode_step)(workload, footprint=footprint or uniform_footprint(16.0))


def section(head: str, cells: Sequence[Cell], labels: Sequence[str], row: Callable[[list[int], Cell], str]) -> str:
    """A part of the page in Markdown: its head, and a line for each phase and labels.

    Args:
        row: from places of a line's cells and the first of them to the line.
    """
    lines = [row(rows, cells[rows[0]]) for rows in by_key(cells, ("phase", *labels)).values()]
    return "\n".join([head, *(f"| {line} |" for line in lines), ""])


def errors_of(
    seconds: npt.NDArray[np.float64], cells: Sequence[Cell], part: str = "total_s"
) -> npt.NDArray[np.float64]:
    """Relative errors of the model's seconds of a part, "cell"."""
    return seconds / np.array([getattr(cell, part) for cell in cells]) - 1


def summary(
    cells: Sequence[Cell], error: npt.NDArray[np.float64], rows: list[int], bar: float, largest: float = math.inf
) -> str:
    """Of some cells how many steps, mean and largest error, bold beyond their bars, where that is, and the bias."""
    size = np.abs(error[rows])
    worst = cells[rows[int(size.argmax())]]
    bias = f"{100 * error[rows].mean():+.1f} %"
    return f"{len(rows)} | {marked(size, bar, largest)} | {worst.batch}, {worst.tokens} | {bias}"


def marked(size: npt.NDArray[np.float64], bar: float, largest: float = math.inf) -> str:
    """Mean and largest of some sizes as two cells, bold beyond their bars."""
    shown = ((value, f"{100 * value:.1f} %", most) for value, most in ((size.mean(), bar), (size.max(), largest)))
    return " | ".join(f"**{text}**" if value > most else text for value, text, most in shown)


def by_key(cells: Sequence[Cell], labels: Sequence[str]) -> dict[tuple[Any, ...], list[int]]:
    """Places of the cells that have the same of several labels, in their order."""
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, cell in enumerate(cells):
        places.setdefault(tuple(getattr(cell, label) for label in labels), []).append(place)
    return dict(sorted(places.items()))


def priced(cells: Sequence[Cell], *, measured: bool = True) -> dict[str, npt.NDArray[np.float64]]:
    """Seconds of each cell by the model, "cell", with the parts that `Cell` has.

    Args:
        cells: of any devices, engines and networks.
        measured: with the fitted kernels; else at the bare roofline of the data sheet.
    """
    names = ("products_s", "attention_s", "rest_s")
    times = {name: np.zeros(len(cells)) for name in names}
    for (gpu, engine, network), indices in by_key(cells, ("gpu", "engine", "network")).items():
        device = catalog.device(DEVICES[gpu], engine=engine)
        if not measured:
            memory = dataclasses.replace(device.memory, efficiency=1.0)
            device = dataclasses.replace(device, matrix_unit=None, operator_latency_s=0.0, memory=memory)
        else:
            # What cells with 16-bit weights and no experts never use, and what only readers see, costs a compilation each.
            unit = device.matrix_unit
            unit = dataclasses.replace(
                unit,
                formats=unit.formats[-1:],
                weight_widths=unit.weight_widths[-1:],
                experts=(),
                expert_widths=(),
                remarks=(),
                spreads=(),
                engine="",
            )
            device = dataclasses.replace(device, matrix_unit=unit)
        architecture, pieces = catalog.architecture(network), []
        for start in range(0, len(indices), _GROUP):
            steps = stack_steps([_step(cells[index]) for index in np.resize(indices[start : start + _GROUP], _GROUP)])
            pieces.append(np.asarray(_operator_times(device, architecture, steps), np.float64))
        seconds = np.concatenate(pieces)[: len(indices)]
        by_name = dict(zip(OPERATORS, seconds.T))
        times["attention_s"][indices] = by_name["attention"]
        times["rest_s"][indices] = by_name["norm"] + by_name["embed"]
        times["products_s"][indices] = seconds.sum(axis=-1) - times["attention_s"][indices] - times["rest_s"][indices]
    return times | {"total_s": sum((times[name] for name in names), np.zeros(len(cells)))}


def _step(cell: Cell) -> StepShape:
    return dataclasses.replace(step_of(cell), kv_bits=float(cell.kv_bits), stored_kv_bits=float(cell.kv_bits))


@jax.jit
def _operator_times(device: Device, architecture: Any, steps: StepShape) -> jax.Array:
    return jax.vmap(lambda step: step_cost(device, step_operators(architecture, step)).operator_s)(steps)
