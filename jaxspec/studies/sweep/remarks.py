"""What a reader of a sweep's points should know of the devices, the knobs and the columns."""

from __future__ import annotations

import dataclasses

import numpy as np

from hwmodels import Device
from hwmodels.compute.roofline import unit_of
from jaxspec.compress.schemes import find_scheme
from jaxspec.studies.design_tree import CONTEXT, footprint_of, knob_name
from jaxspec.studies.headline_intervals import interval_notes
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.sweep.config import SweepConfig
from jaxspec.studies.sweep.grid import Grid
from jaxspec.studies.sweep.pareto import ParetoFront
from jaxspec.studies.sweep.plan import SweepPlan

__all__ = ["device_remarks", "unheard_knobs", "unknown_columns"]


def device_remarks(grid: Grid, engine: str | None) -> list[str]:
    """What a reader should know of the devices' kernels at the widths that the axes take."""
    notes = []
    derived = {name: np.ravel(entries) for _, table in grid.derived.tables for name, entries in table.items()}
    for (name, device), base in zip(grid.pairs, grid.bases, strict=True):
        varied = grid.axes | derived
        bits = {width: varied.get(f"footprint.{width}", value) for width, value in base["footprint"].items()}
        together = _with_counts(base["device"], varied)
        batches = [np.asarray(varied.get("workload.batch", base["workload"].batch))]
        network, experts = base["architecture"], "architecture.num_experts"
        network = dataclasses.replace(network, num_experts=varied.get(experts, network.num_experts))
        context = varied.get(CONTEXT, np.asarray(base["workload"].context_tokens))
        found = kernel_notes(
            together,
            [footprint_of(bits)],
            batches=batches,
            architecture=network,
            texts={name: float(np.max(context)) + 1.0},
        )
        mixture = bool(np.any(np.asarray(network.num_experts) > 0))
        growth = unit_of(base["device"]).growth_remarks(memories=len(base["device"].tiers), experts=mixture)
        notes += [f"{device}: {note}" for note in (*found["notes"], *growth, *interval_notes(base["device"], engine))]
    return list(dict.fromkeys(notes))


def _with_counts(device: Device, varied: dict[str, np.ndarray]) -> Device:
    """The device with all that axes say of how many of it share the work."""
    if device.group is None:
        return device
    given = {field.name: varied.get(f"device.group.{field.name}") for field in dataclasses.fields(device.group)}
    group = dataclasses.replace(device.group, **{name: counts for name, counts in given.items() if counts is not None})
    return dataclasses.replace(device, group=group)


def unheard_knobs(config: SweepConfig, plan: SweepPlan) -> list[str]:
    """Knobs that change what is read and not what is accepted."""
    heard = () if plan.law is None else plan.law.law.names
    knobs = [name for name in config.axes if knob_name(name, find_scheme(config.scheme)) is not None]
    deaf = [name for name in knobs if name.removeprefix("draft.") not in heard]
    return (
        [f"acceptance does not depend on {', '.join(deaf)}: give points of it in a table [acceptance]"] if deaf else []
    )


def unknown_columns(front: ParetoFront) -> list[str]:
    """Why there is no front, or columns of it that some points have no number of, as energy of a device without energy data."""
    if not front.fitting:
        return [
            "no point fits its memory: compare held_bytes with capacity_bytes in sweep.parquet, and take more memory, fewer "
            "bits, a smaller batch or a shorter context"
        ]
    return [
        f"{name} is not known for {count:,} of the {front.fitting:,} points that fit, and none of these is on the front: "
        "take another column, or a device whose data give it"
        for name, count in front.unknown.items()
        if count
    ]
