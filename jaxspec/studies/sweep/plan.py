"""A sweep before it runs: names resolved, numbers checked, its grid and its front made."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.studies.acceptance_points import FoundLaw
from jaxspec.studies.design_tree import CONTEXT, design_tree, number_rules
from jaxspec.studies.engine_pricing import engine_scatter
from jaxspec.studies.feasibility import check_positions
from jaxspec.studies.sweep.axes import axis_values, check_networks, check_numbers, derived_numbers
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import Grid
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.points_file import COLUMNS, INTERVAL_COLUMNS

__all__ = ["SweepPlan", "plan_sweep"]

#: Hazard of a token that is never accepted.
_NEVER = 1e3


@dataclasses.dataclass(frozen=True)
class SweepPlan:
    """A sweep whose names and numbers are known to be right."""

    grid: Grid
    front: ParetoFront
    law: FoundLaw | None = None


def plan_sweep(config: SweepConfig) -> SweepPlan:
    """Names of devices and networks resolved, axes made. Raises InputError: one that cannot be used."""
    axes = {name: axis_values(config, name) for name in config.axes}
    pairs = [(shape, device) for shape in config.architecture for device in config.device]
    bases = [_base(config, shape, device) for shape, device in pairs]
    networks = {shape: base["architecture"] for (shape, _), base in zip(pairs, bases, strict=True)}
    for name, network in networks.items():  # the same on every device
        check_networks(config, network)
        check_positions(name, network, max(axes.get(CONTEXT, [0.0])) + 1)
    front = ParetoFront(**vars(config.pareto))
    scheme = find_scheme(config.scheme)
    knobs = {name: config.set.get(f"draft.{name}", value) for name, value in knob_defaults(scheme).items()}
    derived, law = derived_numbers(config, knobs)
    if law is not None and law.fit is None and law.law.profile.size > 1:
        bases = [_by_position(base, law, config.max_draft_length) for base in bases]
    scatters = tuple(engine_scatter(config.engine, device=base["device"]) for base in bases)
    grid = Grid(axes, pairs, bases, config.max_draft_length, derived, scatters)
    front.check_columns((*axes, *COLUMNS, *(INTERVAL_COLUMNS if grid.has_intervals else ())), axes)
    return SweepPlan(grid, front, law)


def _by_position(base: dict[str, Any], law: FoundLaw, longest: int) -> dict[str, Any]:
    """The tree with the hazard of each position; behind those that are known nothing is accepted."""
    known = np.asarray(law.law.profile, np.float32)[:longest]
    profile = np.pad(known, (0, longest - known.size), constant_values=_NEVER)
    return base | {"acceptance": base["acceptance"] | {"profile": profile}}


def _base(config: SweepConfig, architecture: str, device: str) -> dict[str, Any]:
    """The tree whose leaves axes are named by, at its values before any axis changes them."""
    varied = any(name.startswith("device.group.") for name in (*config.axes, *config.set))
    base = design_tree(config, architecture, device, parallel=config, together=varied)
    if config.pool_fits and "draft.expert_pool" in {*config.axes, *config.set}:
        raise InputError("pool_fits is true and draft.expert_pool is an axis or set; leave one of them out")
    check_numbers(config, number_rules(base["architecture"], base["device"], find_scheme(config.scheme)), device)
    return base
