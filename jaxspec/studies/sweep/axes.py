"""Axes of a sweep: their values, and what each number of a design point may be."""

from __future__ import annotations

import dataclasses

import numpy as np

from hwmodels import Architecture, Device, Workload
from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.catalog import device_entries
from hwmodels.catalog.architecture_entries import ARCHITECTURE_RULES
from hwmodels.numerics.fields import COUNT, FLAG, NOT_NEGATIVE, POSITIVE, WHOLE, Rule
from jaxspec.errors import InputError
from jaxspec.studies.sweep.config import Range, SweepConfig
from jaxspec.suggestions import hint

__all__ = ["axis_values", "check_numbers", "number_rules"]

#: Names are long and alike: less similarity than in the catalog is a slip here.
_NEAR = 0.5

_WIDTH = Rule("more than 0 to 64 bits", lambda value: 0 < value <= 64)
_CHANCE = Rule("a number from 0 to 1", lambda value: 0 <= value <= 1)


def axis_values(config: SweepConfig, name: str) -> np.ndarray:
    """Values of an axis, float64."""
    axis = config.axes[name]
    if not isinstance(axis, Range):
        return np.array(axis)
    return (np.geomspace if axis.scale == "log" else np.linspace)(axis.first, axis.last, axis.points)


def number_rules(architecture: Architecture, device: Device) -> dict[str, Rule]:
    """What each number of a design point must be, by dotted name. Counts may be fractions here."""
    shape = {f"architecture.{name}": relaxed(ARCHITECTURE_RULES[name]) for name in leaf_names(architecture)}
    workload = {f"workload.{field.name}": POSITIVE for field in dataclasses.fields(Workload)}
    workload["workload.context_tokens"] = NOT_NEGATIVE
    widths = ("draft_kv_bits", "draft_weight_bits", "target_kv_bits", "target_weight_bits")
    experts = {"routing.correlation": _CHANCE, "routing.independence": _CHANCE, "draft.expert_pool": _CHANCE}
    if not float(architecture.num_experts):
        experts = {}
    return (
        shape
        | workload
        | experts
        | {f"device.{name}": rule for name, rule in device_entries.number_rules(device).items()}
        | {f"footprint.{name}": _WIDTH for name in widths}
        | {"acceptance.alpha_token": _CHANCE}
    )


def relaxed(rule: Rule) -> Rule:
    """A rule of whole numbers or flags for real ones between."""
    return {COUNT: POSITIVE, WHOLE: NOT_NEGATIVE, FLAG: _CHANCE}.get(rule, rule)


def check_numbers(config: SweepConfig, rules: dict[str, Rule], device: str) -> None:
    """Every name is one of `rules`, and every value satisfies its rule.

    Raises:
        InputError: otherwise, or a name is both an axis and set.
    """
    values = {f"axes.{name}": axis_values(config, name) for name in config.axes}
    values |= {f"set.{name}": np.array([value]) for name, value in config.set.items()}
    for where, numbers in values.items():
        name = where.partition(".")[2]
        if name not in rules:
            raise InputError(f"{where} is not a number of a design point on {device}{hint(name, rules, cutoff=_NEAR)}")
        for value in numbers.tolist():
            if not rules[name].holds(value):
                raise InputError(f"{where} is {value:g}; it must be {rules[name].words}")
    if both := sorted(set(config.axes) & set(config.set)):
        raise InputError(f"{', '.join(both)} is both an axis and set; take it out of one of them")
