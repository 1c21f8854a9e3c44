"""Measures this machine, group by group; what is measured is kept, so that a killed run repeats only the group it was in."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels import Architecture
from jaxspec.errors import InputError, one_line
from jaxspec.files import read_json, to_json, write_text
from jaxspec.runs.machine import load_per_core, machine_name, whole_machine_name
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Arrays, Stages
from jaxspec.studies.calibrate.config import CalibrateConfig
from jaxspec.studies.calibrate.noise import Noise, noise_of
from jaxspec.studies.calibrate.plan import Group, groups_of
from jaxspec.studies.calibrate.programs import product_program
from jaxspec.studies.calibrate.table import Row
from jaxspec.studies.calibrate.timing import measure

__all__ = ["Measured", "begun_here", "measure_machine"]

_MACHINE = "machine.json"
#: The program that is timed before each group: a product that every machine has.
_PROBE = (16, 256, 256, 4, "float32")


@dataclasses.dataclass(frozen=True)
class Measured:
    """A table of measured times, and how quiet the machine was.

    Attributes:
        spreads: of each row's repeats.
        compile_s: seconds of all first calls together, which compile.
        noise: None for times that a user brought.
    """

    table: list[Row]
    spreads: list[float]
    compile_s: float
    noise: Noise | None
    name: str


def begun_here(checkpoints: Path) -> None:
    """Refuse to go on with times of another machine, or to call them times of this one.

    Raises:
        InputError: the run was begun on one.
    """
    kept = checkpoints / _MACHINE
    if not kept.exists():
        return
    before, here = _read(kept)["machine"], whole_machine_name()
    if before not in (here, machine_name()):  # earlier versions did not record the processor
        raise InputError(
            f"the run in {checkpoints.parent} measured {before}, and this is {here}; start it anew with --force, or work in "
            "another directory"
        )


def measure_machine(
    config: CalibrateConfig, networks: Mapping[str, Architecture], stages: Stages, reporter: Reporter, *, few: bool
) -> Measured:
    """Time every group that is not there yet."""
    kept = stages.root / _MACHINE
    if not kept.exists():
        write_text(kept, to_json({"machine": whole_machine_name(), "load": load_per_core()}))
    load = _read(kept)["load"]
    groups, table, spreads = groups_of(config, networks, few=few), [], []
    probes, compile_s = [], 0.0
    with reporter.bar("measuring", len(groups)) as bar:
        for group in groups:
            found = stages.run(group.name, lambda group=group: _timed(group, config.repeats))
            table += _rows(group, found[config.statistic])
            spreads += found["spread"].tolist()
            probes.append(float(found["probe"][0]))
            compile_s += float(np.sum(found["first_s"]))
            bar.advance(group.name.partition("/")[2])
    return Measured(table, spreads, compile_s, noise_of(spreads, probes, load), machine_name())


def _read(kept: Path) -> dict[str, Any]:
    """On which machine a run was begun, and how busy it was."""
    try:
        found = read_json(kept)
        if not isinstance(found["machine"], str) or isinstance(found["load"], (str, list, dict)):
            raise TypeError("neither a name nor a number")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{str(kept)!r} is damaged ({one_line(error)}), so that times may be another machine's; start the run anew with "
            "--force"
        ) from error
    return found


def _timed(group: Group, repeats: int) -> Arrays:
    (probe,) = measure([product_program(*_PROBE)], repeats=3)
    found = group.clock(repeats)
    numbers = {
        name: np.array([getattr(one, name) for one in found]) for name in ("median", "least", "spread", "first_s")
    }
    return numbers | {"probe": np.array([probe.median])}


def _rows(group: Group, seconds: Sequence[float]) -> list[Row]:
    return [dataclasses.replace(row, seconds=float(one)) for row, one in zip(group.rows, seconds, strict=True)]
