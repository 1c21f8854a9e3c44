"""Result of `jaxspec sweep`; its points are in `sweep.parquet`."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.results import Record, Result
from jaxspec.results.network_results import EngineUsed, PricedNumber

__all__ = ["FrontAxes", "ParetoPoints", "SweepResult"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FrontAxes(Record):
    """Two or three columns, which way each is better, "low" or "high", and what divides the points."""

    x: str = ""
    y: str = ""
    better_x: str = "low"
    better_y: str = "high"
    z: str | None = None
    better_z: str = "low"
    group: list[str] = dataclasses.field(default_factory=list)
    facets: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParetoPoints(Record):
    """The front of each group; points are column -> value, by x. Of very many points some, evenly: `count` says how many."""

    axes: FrontAxes = FrontAxes()
    count: int = 0
    points: list[dict[str, Any]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SweepResult(Result):
    """A sweep altogether.

    Attributes:
        architecture_data, device_data: name of the network or device -> field -> number that was priced with, those of [set]
            included; axes are in the points.
        columns: of sweep.parquet.
        best: result -> the point with the highest value of it.
        status: of columns; all points share it.
        inputs: SHA-256 of every file that the configuration names.
        acceptance: origin and status of the acceptance, with errors of a law that it follows; None: it is an axis, or set.
        engine: whose terms are in the times; None: kernels alone.
        interval_statement: what columns of intervals hold; None: there are none.
        shard: part of the points that these are, as "1/8"; None: all of them.
    """

    has_status_table = False

    schema_version: int = 1
    points: int = 0
    points_that_fit: int = 0
    architecture_data: dict[str, dict[str, PricedNumber]] = dataclasses.field(default_factory=dict)
    device_data: dict[str, dict[str, PricedNumber]] = dataclasses.field(default_factory=dict)
    columns: list[str] = dataclasses.field(default_factory=list)
    pareto: ParetoPoints = ParetoPoints()
    best: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    status: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    directory: str = ""
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
    acceptance: dict[str, Any] | None = None
    shard: str | None = None
    engine: EngineUsed | None = None
    interval_statement: str | None = None

    @property
    def device(self) -> str | None:
        """None: there may be several."""
        return None
