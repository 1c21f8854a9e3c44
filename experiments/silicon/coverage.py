"""How often intervals of calibrated devices hold whole steps, and ratios: `python -m experiments.silicon.coverage`.

Whole steps are those of `steps.csv`, composed by the calibration package from measured kernels. Speedups are ratios of steps
of different width, so that ratios are counted too: of a batch over one sequence. How much of two steps' errors is common
(`SHARED_VARIANCE`) was chosen on the cells of llama-3.1-8b; qwen3-8b was held out of that choice.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from experiments.command_line import add_outputs, carry_out
from experiments.silicon.steps import DEVICES, Cell, read_cells, step_of
from hwmodels import Device, PricedStep, catalog
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, cycle_numbers
from hwmodels.analysis.uncertainty.kernel_errors import part_deviations, part_times
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.network.operators.steps import stack_steps
from hwmodels.step.step_cost import step_cost
from jaxspec.report.terminal import Table, new_console

__all__ = ["covered_cells", "main"]

#: Contexts and batches that are counted.
_CONTEXTS, _BATCHES = (512, 2048, 8192), (1, 2, 4, 8, 16, 32)


@functools.cache
def _device(gpu: str, engine: str) -> Device:
    """With the kernels of 16 bits alone, which are all that the cells use: each costs a compilation."""
    device = catalog.device(DEVICES[gpu], engine=engine)
    unit: CalibratedGpu = device.matrix_unit
    few: dict[str, Any] = {
        "formats": unit.formats[-1:],
        "weight_widths": unit.weight_widths[-1:],
        "experts": (),
        "expert_widths": (),
    }
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(unit, **few))


@jax.jit
def _priced(device: Device, architecture: Any, steps: Any) -> PricedStep:
    def one(step: Any) -> PricedStep:
        work = step.operators(architecture)
        return PricedStep(work, step_cost(device, work))

    return jax.vmap(one)(steps)


_numbers = jax.jit(cycle_numbers)


def covered_cells(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """For each decode cell whether its time, and its ratio to one sequence, lie in their 90 % intervals.

    Args:
        cells: any; those of 16-bit caches at `_CONTEXTS` and `_BATCHES` count.
    """
    groups: dict[tuple[str, str, str, int], dict[int, Cell]] = {}
    for cell in cells:
        if cell.phase == "decode" and cell.kv_bits == 16 and cell.tokens in _CONTEXTS and cell.batch in _BATCHES:
            groups.setdefault((cell.gpu, cell.engine, cell.network, cell.tokens), {})[cell.batch] = cell
    found = []
    for (gpu, engine, network, tokens), by_batch in groups.items():
        if set(by_batch) != set(_BATCHES):
            continue
        device, ordered = _quiet(_device(gpu, engine)), [by_batch[batch] for batch in _BATCHES]
        steps = jax.device_get(
            _priced(device, catalog.architecture(network), stack_steps([step_of(cell) for cell in ordered]))
        )
        one = jax.tree.map(lambda leaf: leaf[0], steps)
        for index, cell in enumerate(ordered):
            this = jax.tree.map(lambda leaf, at=index: leaf[at], steps)
            numbers = _intervals(_device(gpu, engine), one, this)
            ratio = ordered[0].total_s / cell.total_s
            found.append(
                {
                    "gpu": gpu,
                    "engine": engine,
                    "network": network,
                    "tokens": tokens,
                    "batch": cell.batch,
                    "step": _inside(numbers["cycle_s"], cell.total_s),
                    "ratio": None if cell.batch == 1 else _inside(numbers["speedup_vs_stored_ar"], ratio),
                }
            )
    return found


def _quiet(device: Device) -> Device:
    """Without what only readers see, which would compile anew for each device."""
    named = {"remarks": (), "spreads": (), "engine": ""}
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(device.matrix_unit, **named))


def _intervals(device: Device, one: PricedStep, this: PricedStep) -> dict[str, Any]:
    """Of a step's time, and of the time of one sequence's step over it."""
    seconds = np.stack([part_times(step) for step in (one, this)]).astype(np.float32)
    deviations = np.stack([_deviations(device, step) for step in (one, this)])
    counts = np.eye(2, dtype=np.float32)
    times = CycleTimes(seconds, deviations.astype(np.float32), bf16=counts[0], stored=counts[0], cycle=counts[1])
    return jax.device_get(_numbers(times, np.zeros(1, np.float32), np.zeros((1, 1), np.float32)))


def _deviations(device: Device, step: PricedStep) -> np.ndarray:
    found = part_deviations(device, step)
    assert found is not None  # all of these GPUs are calibrated
    return np.asarray(found)


def _inside(number: Any, measured: float) -> bool:
    low, high = number.ends()
    return bool(low <= measured <= high)


def summary(cells: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By network: how many cells, and which share of times and of ratios lies in its interval."""
    found = {}
    for network in sorted({cell["network"] for cell in cells}):
        own = [cell for cell in cells if cell["network"] == network]
        ratios = [cell["ratio"] for cell in own if cell["ratio"] is not None]
        found[network] = {
            "cells": len(own),
            "steps_inside": float(np.mean([cell["step"] for cell in own])),
            "ratios": len(ratios),
            "ratios_inside": float(np.mean(ratios)),
        }
    return found


def _show(result: dict[str, Any]) -> None:
    table = Table("90 % intervals of calibrated devices, counted on whole decode steps")
    for heading in ("network", "steps", "inside", "ratios", "inside"):
        table.add_column(heading, justify="right")
    for network, row in result["summary"].items():
        shares = [f"{100 * row[name]:.0f} %" for name in ("steps_inside", "ratios_inside")]
        table.add_row(network, str(row["cells"]), shares[0], str(row["ratios"]), shares[1])
    new_console().print(table)


def main() -> None:
    """Count and show."""
    parser = argparse.ArgumentParser(prog="python -m experiments.silicon.coverage", description=__doc__)
    add_outputs(parser, plots=False)

    def run() -> dict[str, Any]:
        cells = covered_cells(read_cells())
        return {"cells": cells, "summary": summary(cells)}

    carry_out(parser, parser.parse_args(), run, _show)


if __name__ == "__main__":
    main()
