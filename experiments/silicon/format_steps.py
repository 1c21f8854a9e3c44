"""Whole steps with weights of 8 and 4 bits, activations quantized too, beside the calibration package's composition.

Llama-3.1-8B on one GPU, keys and values of 16 bits. The package quantizes the matrices of the
layers and leaves embedding and LM head in 16 bits; so does the model here.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import numpy.typing as npt

from experiments.silicon.steps import (
    DEVICES,
    Cell,
    Composed,
    by_key,
    cells_of,
    composed,
    errors_of,
    section,
    step_of,
    summary,
)
from hwmodels import LAYER_MATRICES, Architecture, Device, Footprint, catalog, uniform_weight_bits
from hwmodels.analysis.calibration.kernel_tables import KERNEL_FORMATS
from hwmodels.catalog.calibrated import calibrated_gpu
from hwmodels.catalog.calibrations import calibrated_engines, calibration_record
from hwmodels.network.operators.steps import StepShape, stack_steps
from hwmodels.step.priced_steps import price_steps

__all__ = ["CELLS", "compose", "page_section", "priced", "read_cells"]

CELLS = Path(__file__).with_suffix(".csv")
#: The part of the page, with the heads of its table.
_PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").rstrip("\n")

NETWORK, PATH = "llama-3.1-8b", "meta-llama/Meta-Llama-3.1-8B"
GPUS, FORMATS = ("b200-sxm", "h100-sxm"), ("fp8", "fp8_block", "nvfp4")
BATCHES, CONTEXTS, PROMPTS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (512, 4096, 16384), (512, 1024, 2048, 4096, 8192)

#: Mean error that a row of the page should keep to, and the largest one.
BAR, LARGEST = 0.08, 0.20


def compose() -> list[Cell]:
    """All cells of the formats that the catalog has for an engine. Raises KernelTableError: the package is not installed."""
    engines = [
        Composed(
            {"gpu": gpu, "engine": engine, "weights": weights},
            PATH,
            (BATCHES, CONTEXTS, (1,), PROMPTS),
            {"gemm_quant_mode": weights},
        )
        for gpu in GPUS
        for engine in calibrated_engines(gpu)
        for weights in FORMATS
        if weights in calibration_record(gpu, engine)["formats"]
    ]
    products = lambda operators: sum(seconds for name, seconds in operators.items() if name.endswith("gemm"))
    return composed(engines, lambda one: {"products_s": products(one), "total_s": sum(one.values())})


#: The committed cells.
read_cells = functools.partial(cells_of, CELLS)


def priced(cells: Sequence[Cell]) -> npt.NDArray[np.float64]:
    """Seconds of each cell by the model with the format asked for, "cell"."""
    times = np.zeros(len(cells))
    architecture = catalog.architecture(NETWORK)
    for (gpu, engine, weights), rows in by_key(cells, ("gpu", "engine", "weights")).items():
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


def page_section(cells: Sequence[Cell]) -> str:
    """The part of the page about quantized weights, in Markdown."""
    error, head = errors_of(priced(cells), cells), _PAGE.format(bar=100 * BAR, largest=100 * LARGEST)

    def row(rows: list[int], of: Cell) -> str:
        return f"{of.gpu} | {of.engine} | {of.weights} | {of.phase} | {summary(cells, error, rows, BAR, LARGEST)}"

    return section(head, cells, ("gpu", "engine", "weights"), row)
