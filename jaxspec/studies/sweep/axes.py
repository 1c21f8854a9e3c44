"""Axes of a sweep: their values, checked, and the numbers of design points that they stand for."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from hwmodels import Architecture
from hwmodels.catalog import EntryError
from hwmodels.catalog.architecture_entries import checked_architecture
from hwmodels.numerics.fields import Rule
from jaxspec.compress.footprint_table import tabulate
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.errors import InputError
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.studies.acceptance_points import FoundLaw, resolve_acceptance
from jaxspec.studies.design_tree import check_value, knob_name
from jaxspec.studies.sweep.config import Range, SweepConfig

__all__ = ["DerivedNumbers", "axis_values", "check_networks", "check_numbers", "derived_numbers"]


#: Networks of a sweep that are looked at before it begins: a second's worth.
_MOST_NETWORKS = 20_000


def axis_values(config: SweepConfig, name: str) -> np.ndarray:
    """Values of an axis, float64."""
    axis = config.axes[name]
    if not isinstance(axis, Range):
        return np.array(axis)
    return (np.geomspace if axis.scale == "log" else np.linspace)(axis.first, axis.last, axis.points)


def check_numbers(config: SweepConfig, rules: Mapping[str, Rule], device: str) -> None:
    """Every name of an axis is one of `rules`, and every value satisfies its rule.

    Raises:
        InputError: otherwise, or a name is both an axis and set.
    """
    for name in config.axes:
        for value in axis_values(config, name).tolist():
            check_value(f"axes.{name}", value, rules, device)
    if both := sorted(set(config.axes) & set(config.set)):
        raise InputError(f"{', '.join(both)} is both an axis and set; take it out of one of them")


def check_networks(config: SweepConfig, architecture: Architecture) -> None:
    """Networks of all points are possible: no more key-value heads than heads, and so on.

    Every rule is about two numbers at most, so that any two axes are tried at all of their values, the others at their first.

    Args:
        architecture: without axes, with what is set.
    Raises:
        InputError: a network that cannot be.
    """
    prefix, varied = "architecture.", {}
    for name in config.axes:
        if name.startswith(prefix):
            varied[name.removeprefix(prefix)] = axis_values(config, name).tolist()
    if not varied and not any(name.startswith(prefix) for name in config.set):
        return
    start = {name: float(value) for name, value in vars(architecture).items()}
    start |= {name: values[0] for name, values in varied.items()}
    alone = ({name: value} for name, values in varied.items() for value in values)
    pairs = (
        {one: first, other: second}
        for one, other in itertools.combinations(varied, 2)
        for first, second in itertools.product(varied[one], varied[other])
    )
    for changed in itertools.islice(itertools.chain([{}], alone, pairs), _MOST_NETWORKS):
        point = start | changed
        try:
            checked_architecture(point, where="axes and set")
        except EntryError as error:
            raise InputError(str(error)) from error


@dataclasses.dataclass(frozen=True)
class DerivedNumbers:
    """Numbers that follow from knobs of the draft: bits read, and acceptance where a law says it.

    Attributes:
        tables: names of axes, and dotted name of a number -> its entries, an axis each.
    """

    tables: tuple[tuple[tuple[str, ...], dict[str, np.ndarray]], ...] = ()

    @property
    def names(self) -> set[str]:
        """Numbers that are derived."""
        return {name for _, entries in self.tables for name in entries}

    def at(self, places: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The numbers of some points. Args: places: axis -> which of its values each point has, shapes that broadcast."""
        return {
            name: entries[tuple(places[axis] for axis in axes)]
            for axes, table in self.tables
            for name, entries in table.items()
        }


def derived_numbers(config: SweepConfig, knobs: Mapping[str, float]) -> tuple[DerivedNumbers, FoundLaw | None]:
    """What the axes that are knobs decide, for every combination of their values.

    Args:
        knobs: values of all of the scheme's.
    Raises:
        InputError: such a number is an axis or set itself, or a knob lies beyond what acceptance is known for.
    """
    scheme = find_scheme(config.scheme)
    axes = {name: knob for name in config.axes if (knob := knob_name(name, scheme)) is not None}
    values = {knob: axis_values(config, name).tolist() for name, knob in axes.items()}
    widths = {knob: column for knob, column in values.items() if knob != EXPERT_POOL.name}
    tables = [
        (tuple(f"draft.{name}" for name in names), {f"footprint.{width}": bits for width, bits in table.items()})
        for names, table in tabulate(scheme, knobs, widths)
    ]
    law = None
    if config.acceptance is not None:
        law = resolve_acceptance(config.acceptance, scheme)
        tables.append(_by_law(config, scheme, law, knobs, values))
    found = DerivedNumbers(tuple(tables))
    if both := sorted(found.names & {*config.axes, *config.set}):
        raise InputError(
            f"{', '.join(both)} follows from knobs of the draft or from [acceptance], and is an axis or set; leave one of "
            "them out"
        )
    return found, law


def _by_law(
    config: SweepConfig, scheme: Scheme, found: FoundLaw, knobs: Mapping[str, float], values: dict[str, list[float]]
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """alpha_token for every combination of the axes that the law depends on."""
    names = [name for name in found.law.names if name in values]
    for name in found.law.names:
        low, high = found.ranges[name]
        for value in values.get(name, [knobs[name]]):
            if not low - 1e-9 <= value <= high + 1e-9:
                raise InputError(
                    f"draft.{name} is {value:g}, and acceptance is known from {low:g} to {high:g}; stay within, or give points"
                )
    grid = np.meshgrid(*(np.asarray(values[name], np.float32) for name in names), indexing="ij")
    own: dict[str, Any] = {name: np.float32(value) for name, value in knobs.items()}
    own |= dict(zip(names, grid, strict=True))
    alpha = np.exp(-np.asarray(jax.device_get(found.law.hazard(own)), float))
    shape = tuple(len(values[name]) for name in names)
    return tuple(f"draft.{name}" for name in names), {"acceptance.alpha_token": np.broadcast_to(alpha, shape)}
