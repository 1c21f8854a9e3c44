"""Whole steps with weights of 8 and 4 bits, activations quantized too, beside the calibration package's composition.

Llama-3.1-8B on one GPU, keys and values of 16 bits. The package quantizes the matrices of the
layers and leaves embedding and LM head in 16 bits; so does the model here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from experiments.silicon.refit import CATALOG
from experiments.silicon.steps import DEVICES, by_key, cells_of, package, runs_of, step_of, summary
from hwmodels import LAYER_MATRICES, Architecture, Device, Footprint, catalog, uniform_weight_bits
from hwmodels.analysis.calibration.kernel_tables import KERNEL_FORMATS
from hwmodels.catalog.calibrated import calibrated_gpu
from hwmodels.catalog.calibrations import calibrated_engines, calibration_record
from hwmodels.network.operators.steps import StepShape, stack_steps
from hwmodels.step.priced_steps import price_steps

__all__ = ["CELLS", "FormatCell", "compose", "format_section", "priced", "read_cells"]

CELLS = Path(__file__).with_name("format_steps.csv")

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
                cells += _cells(built, (gpu, engine, weights))
    return cells


def _cells(built: Any, of_what: tuple[str, str, str]) -> list[FormatCell]:
    cells = []
    for phase, batch, tokens, run in runs_of(built, BATCHES, CONTEXTS, (1,), PROMPTS):
        operators = run()
        products = sum(seconds for name, seconds in operators.items() if name.endswith("gemm"))
        cells.append(FormatCell(*of_what, phase, batch, tokens, products, sum(operators.values())))
    return cells


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
    lines = [
        "## Weights of 8 and 4 bits",
        "",
        "Llama-3.1-8B with FP8, FP8 in blocks and NVFP4 (`--weight-format`), activations quantized, LM head in 16 bits:",
        "decoding at batches 1 to 256 and contexts of 512 to 16384 tokens, prefill of one prompt of 512 to 8192 tokens,",
        f"composed by the same package. Targets: a mean of {100 * BAR:.0f} % and at most {100 * LARGEST:.0f} %; rows that",
        "miss one are bold. vLLM's FP8 blocks are composed and priced without a CUDA graph, as they were measured.",
        "",
        "| GPU | engine | weights | phase | cells | mean | largest | at batch, tokens | bias |",
        "| --- | --- | --- | --- |" + " ---: |" * 5,
    ]
    for kind, rows in by_key(cells, lambda c: (c.phase, c.gpu, c.engine, c.weights)).items():
        chosen = [cells[row] for row in rows]
        error = ours[rows] / np.array([cell.total_s for cell in chosen]) - 1
        lines.append(f"| {kind[1]} | {kind[2]} | {kind[3]} | {kind[0]} | {summary(chosen, error, BAR, LARGEST)} |")
    return "\n".join([*lines, ""])
