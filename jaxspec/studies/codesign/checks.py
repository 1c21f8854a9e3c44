"""What a problem's variables and costs must be, told before anything is computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hwmodels.analysis.design_costs import DIE_AREA
from hwmodels.catalog.entries import near_matches
from hwmodels.numerics.fields import Rule
from jaxspec.errors import InputError
from jaxspec.studies.acceptance_points import FoundLaw
from jaxspec.studies.codesign.config import CodesignConfig, Cost
from jaxspec.studies.codesign.variables import Variables
from jaxspec.studies.design_tree import check_value

__all__ = ["check_law", "check_set", "check_variables", "checked_costs"]

#: Hazard along a knob that is none: the last digit of acceptance that points have.
_LEAST_HAZARD = 1e-4

#: Numbers of a design point that no number of a co-design depends on, with the reason.
_UNREAD = {
    "acceptance.alpha_token": "acceptance comes from the table [acceptance]",
    "workload.output_tokens": "no whole answer is timed",
}


def checked_costs(config: CodesignConfig, known: list[str]) -> list[Cost]:
    """The costs, of known numbers. Raises InputError: one of something else, or an area by the whole die's."""
    for called, cost in config.costs.items():
        for name in cost.of:
            if name not in known:
                raise InputError(
                    f"costs.{called} is of {name!r};{near_matches(name, known, cutoff=0.5)} known are {', '.join(known)}"
                )
        if cost.area_mm2 and DIE_AREA in cost.of:
            raise InputError(
                f"costs.{called} has area_mm2 by {DIE_AREA}, which all areas add up to; give power_w or price by it"
            )
    return list(config.costs.values())


def check_set(config: CodesignConfig, widths: Sequence[str]) -> None:
    """Every number of [set] may have an effect. Raises InputError: otherwise.

    Args:
        widths: bits that knobs among the variables decide, by name.
    """
    for name in config.set:
        if (reason := _UNREAD.get(name)) is not None:
            raise InputError(f"set.{name} would have no effect: {reason}; leave it out")
    if both := sorted({f"footprint.{width}" for width in widths} & {*config.set}):
        raise InputError(
            f"{', '.join(both)} follows from knobs of the draft among the variables, and is set; leave one of them out"
        )


def check_variables(
    config: CodesignConfig, variables: Variables, rules: Mapping[str, Rule], knobs: Mapping[str, str]
) -> None:
    """Variables are numbers of a design, and both ends are allowed. Raises InputError: otherwise."""
    own = {name: rule for name, rule in rules.items() if name in knobs or name.startswith(("device.", "draft."))}
    for name, low, high in zip(variables.names, variables.low, variables.high, strict=True):
        if name in rules and name not in own:
            raise InputError(
                f"variables.{name} is no part of a design: change knobs of the draft (draft.…) and numbers of the device "
                "(device.…), and give the rest in [set]"
            )
        for end in (low, high):
            check_value(f"variables.{name}", float(end), own, config.device)


def check_law(
    config: CodesignConfig,
    found: FoundLaw,
    knobs: Mapping[str, str],
    widths: Callable[[Mapping[str, float]], Mapping[str, float]],
) -> None:
    """Acceptance is known wherever a knob may go, and falls along each knob where less is read. Raises InputError: otherwise.

    Args:
        widths: bits that knobs of these values read, by name; those of pools of experts are not among them.
    """
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
        place = found.law.names.index(knob)
        if float(found.law.coefficients[place].sum()) < _LEAST_HAZARD:
            raise InputError(
                f"variables.{name} is a free lunch: acceptance ({found.source}) is the same along it, so that nothing would "
                "speak against its cheapest value; give points that differ in it, or take it out"
            )
        best, other = (low, high) if float(found.law.way[place]) > 0 else (high, low)
        read, saved = (sum(widths({knob: end}).values()) for end in (best, other))
        if read < saved:
            raise InputError(
                f"variables.{name} is a free lunch: acceptance ({found.source}) is highest at {best:g}, where the least bits "
                "are read; check the points, or take it out"
            )
