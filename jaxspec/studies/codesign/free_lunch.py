"""Variables that would cost nothing, refused before any search: what is free ends at its bound and says nothing."""

from __future__ import annotations

import numpy as np

from hwmodels.analysis.design_costs import ELEMENTS
from hwmodels.compute.roofline import unit_of
from hwmodels.device import Device
from hwmodels.numerics.scalars import as_float
from jaxspec.errors import InputError
from jaxspec.studies.codesign.config import BUDGETS
from jaxspec.studies.codesign.problem import Problem

__all__ = ["refuse_free_lunches"]

#: Slopes of logarithms over the whole range of a variable: of the objective, and of a cost. Less is rounding.
_SLOPE, _COST = 1e-3, 1e-6

_TECHNOLOGY = "device.technology."


def refuse_free_lunches(problem: Problem, places: np.ndarray) -> None:
    """Every number of the device takes from a budget where it makes designs better; a larger array takes area and power.

    Args:
        places: "design variable", of the unit cube, at which slopes are taken.
    Raises:
        InputError: a variable for which that is not so, by its name.
    """
    _, slopes = problem.smooth(places)
    better = -slopes[:, 0]
    spent = slopes[:, [1 + i for i, name in enumerate(problem.limits) if name in BUDGETS]]
    for i, name in enumerate(problem.variables.names):
        if not name.startswith("device."):
            continue
        direction = np.where(np.abs(better[:, i]) > _SLOPE, np.sign(better[:, i]), 0.0)[:, None]
        rises, falls = spent[:, :, i] > _COST, spent[:, :, i] < -_COST
        if direction.any():
            costs = bool((np.where(direction > 0, rises, falls) & (direction != 0)).any())
        else:
            # Times do not notice it. How a chip is made always trades one cost for another; sizes cost anyway.
            costs = bool(rises.any() and falls.any() if name.startswith(_TECHNOLOGY) else (rises | falls).any())
        if not costs:
            budgets = ", ".join(name for name in problem.limits if name in BUDGETS)
            raise InputError(
                f"variables.{name} is a free lunch: making it better costs nothing under {budgets}; add what it costs, as "
                f"[costs.name] with of = {{ {_key(name)} = 1 }}, or a budget that it counts in, or take it out"
            )
    _refuse_free_arrays(problem)


def _refuse_free_arrays(problem: Problem) -> None:
    variables = problem.variables
    middle = np.clip(problem.before, variables.low, variables.high)
    for i, name in enumerate(variables.names):
        ends = np.stack([middle, middle])
        ends[:, i] = variables.low[i], variables.high[i]
        sizes = [_array_size(problem.model.tree(row)["device"]) for row in ends]
        if sizes[0] == sizes[1]:
            continue
        found = problem.numbers(ends)
        for cost in ("area_mm2", "power_w"):
            if not np.diff(getattr(found, cost)) * np.diff(sizes) > 0:
                of = "peak_flops_per_s" if unit_of(problem.device).elements is None else ELEMENTS
                raise InputError(
                    f"variables.{name} is a free lunch: a larger array costs no {cost}; add [costs.name] with "
                    f"of = {{ {of} = 1 }} and {cost}"
                )


def _array_size(device: Device) -> float:
    """Elements of the matrix unit; the peak where that is all that is known of the array."""
    elements = unit_of(device).elements
    return float(as_float(device.peak_flops_per_s if elements is None else elements))


def _key(name: str) -> str:
    """As a key of TOML."""
    inner = name.removeprefix("device.")
    return f'"{inner}"' if "." in inner else inner
