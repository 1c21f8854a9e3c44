"""What a problem's variables and costs must be, told before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping

from hwmodels.numerics.fields import Rule
from jaxspec.errors import InputError
from jaxspec.studies.acceptance_points import FoundLaw
from jaxspec.studies.codesign.config import CodesignConfig, Cost
from jaxspec.studies.codesign.variables import Variables
from jaxspec.studies.design_tree import check_value

__all__ = ["check_law", "check_variables", "checked_costs"]


def checked_costs(config: CodesignConfig, known: list[str]) -> list[Cost]:
    """The costs, of known numbers. Raises InputError: one of something else."""
    for called, cost in config.costs.items():
        for name in cost.of:
            if name not in known:
                raise InputError(f"costs.{called} is of {name!r}; known are {', '.join(known)}")
    return list(config.costs.values())


def check_variables(
    config: CodesignConfig, variables: Variables, rules: Mapping[str, Rule], knobs: Mapping[str, str]
) -> None:
    """Variables are numbers of a design, and both ends are allowed. Raises InputError: otherwise."""
    for name, low, high in zip(variables.names, variables.low, variables.high, strict=True):
        for end in (low, high):
            check_value(f"variables.{name}", float(end), rules, config.device)
        if name not in knobs and not name.startswith("device."):
            raise InputError(
                f"variables.{name} is no part of a design: change knobs of the draft (draft.…) and numbers of the device "
                "(device.…), and give the rest in [set]"
            )


def check_law(config: CodesignConfig, found: FoundLaw, knobs: Mapping[str, str]) -> None:
    """Acceptance is known wherever a knob may go. Raises InputError: otherwise."""
    for name, knob in knobs.items():
        if knob not in found.law.names:
            known = ", ".join(f"draft.{known}" for known in found.law.names) or "no knob"
            raise InputError(
                f"variables.{name} is a free lunch: acceptance ({found.source}) depends on {known}, so that nothing would "
                "speak against its cheapest value; give points that differ in it, or take it out"
            )
        low, high = found.ranges[knob]
        bounds = config.variables[name]
        if bounds.first < low - 1e-6 or bounds.last > high + 1e-6:
            raise InputError(
                f"variables.{name} is from {bounds.first:g} to {bounds.last:g}, and acceptance is known from {low:g} to "
                f"{high:g}; stay within, or give points beyond"
            )
