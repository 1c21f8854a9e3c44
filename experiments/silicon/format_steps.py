"""Whole steps with weights of 8 and 4 bits, activations quantized too, beside the calibration package's composition.

Llama-3.1-8B on one GPU, keys and values of 16 bits. The package quantizes the matrices of the
layers and leaves embedding and LM head in 16 bits; so does the model here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import jax
import numpy as np
import numpy.typing as npt

from experiments.silicon.refit import CATALOG
from experiments.silicon.steps import DEVICES, by_key, cells_of, composed, package, step_of, summary
from hwmodels import LAYER_MATRICES, Architecture, Device, Footprint, catalog, uniform_weight_bits
from hwmodels.analysis.calibration.kernel_tables import KERNEL_FORMATS
from hwmodels.catalog.calibrated import calibrated_gpu
from hwmodels.catalog.calibrations import calibrated_engines, calibration_record
from hwmodels.network.operators.steps import StepShape, stack_steps
from hwmodels.step.priced_steps import price_steps

__all__ = ["CELLS", "FormatCell", "compose", "format_section", "priced", "read_cells"]

CELLS = Path(__file__).with_suffix(".csv")
#: The part of the page, with the heads of its table.
_PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").rstrip("\n")

NETWORK, PATH = "llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B"
GPUS, FORMATS = ("b200-sxm", "h100-sxm"), ("fp8", "fp8_block", "nvfp4")
BATCHES, CONTEXTS, PROMPTS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (512, 4096, 16384), (512, 1024, 2048, 4096, 8192)

#: Mean error that a row of the page should keep to, and the largest one.
BAR, LARGEST = 0.08, 0.20


@dataclasses.dataclass(frozen=True)
class FormatCell:
    """One composed step; `tokens` is the context of a decode step, the prompt of a prefill of one sequence."""

    gpu: str
    engine: str
    weights: str
    phase: str
    batch: int
    tokens: int
    products_s: float
    total_s: float


def compose() -> list[FormatCell]:
    """All cells of the formats that the catalog has for an engine, from the package.

    Raises:
        KernelTableError: the package is not installed.
    """
    built_of, cells = package(), []
    modes = dict.fromkeys(("moe_quant_mode", "fmha_quant_mode", "kvcache_quant_mode"), "bfloat16")
    for gpu in GPUS:
        system = CATALOG[gpu]
        for engine in calibrated_engines(gpu):
            for weights in (kind for kind in FORMATS if kind in calibration_record(gpu, engine)["formats"]):
                built = built_of(PATH, system.system, engine, system.versions[engine], gemm_quant_mode=weights, **modes)
                make = functools.partial(FormatCell, gpu, engine, weights)
                cells += composed(make, built, (BATCHES, CONTEXTS, (1,), PROMPTS), _parts)
    return cells


def _parts(operators: Mapping[str, float]) -> dict[str, float]:
    products = sum(seconds for name, seconds in operators.items() if name.endswith("gemm"))
    return {"products_s": products, "total_s": sum(operators.values())}


def read_cells(path: Path = CELLS) -> list[FormatCell]:
    """The committed cells."""
    return cells_of(FormatCell, path)


def priced(cells: Sequence[FormatCell]) -> npt.NDArray[np.float64]:
    """Seconds of each cell by the model with the format asked for, "cell"."""
    times = np.zeros(len(cells))
    architecture = catalog.architecture(NETWORK)
    for (gpu, engine, weights), rows in by_key(cells, lambda cell: (cell.gpu, cell.engine, cell.weights)).items():
        device = _as_measured(catalog.device(DEVICES[gpu], engine=engine, weight_format=weights), gpu, engine, weights)
        widths = uniform_weight_bits(KERNEL_FORMATS[weights].weight_bits, LAYER_MATRICES)
        steps = stack_steps([step_of(cells[i], Footprint(widths, widths, 16.0, 16.0)) for i in rows])
        times[rows] = jax.device_get(_times(device, architecture, steps))
    return times


def _as_measured(device: Device, gpu: str, engine: str, weights: str) -> Device:
    """With the host's time for each product where the table has it: the package's composition has it too."""
    gemm, unit = calibrated_gpu(gpu, engine, weights, without_graph=True), device.matrix_unit
    formats = tuple(
        dataclasses.replace(one, host_s=float(host), host_rows_s=float(rows))
        for one, host, rows in zip(unit.formats, gemm.coefficients.host_s, gemm.coefficients.host_rows_s, strict=True)
    )
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(unit, formats=formats))


@jax.jit
def _times(device: Device, architecture: Architecture, steps: StepShape) -> jax.Array:
    return jax.vmap(lambda step: price_steps(device, architecture, [step])[0].cost.total_s)(steps)


def format_section(cells: Sequence[FormatCell]) -> str:
    """The part of the page about quantized weights, in Markdown."""
    ours = priced(cells)
    lines = [_PAGE.format(bar=100 * BAR, largest=100 * LARGEST)]
    for kind, rows in by_key(cells, lambda c: (c.phase, c.gpu, c.engine, c.weights)).items():
        chosen = [cells[row] for row in rows]
        error = ours[rows] / np.array([cell.total_s for cell in chosen]) - 1
        lines.append(f"| {kind[1]} | {kind[2]} | {kind[3]} | {kind[0]} | {summary(chosen, error, BAR, LARGEST)} |")
    return "\n".join([*lines, ""])
