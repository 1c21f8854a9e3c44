"""Settings of `jaxspec sweep`: axes over any number of device, network, workload, footprint and acceptance."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import ClassVar, Literal

from jaxspec.errors import InputError
from jaxspec.settings.acceptance import AcceptanceSource
from jaxspec.settings.base import Settings, build_config, read_layer
from jaxspec.settings.coercion import shown
from jaxspec.settings.common import DRAFT_WITHIN_TARGET, CommonConfig, ExpertSettings, ParallelSettings
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, WidthScheme
from jaxspec.studies.predict.config import PredictConfig
from jaxspec.studies.study import Study, run_directory

#: Of one shard; more points than this take long, and their file gigabytes.
MAX_POINTS = 50_000_000


#: A sweep can be divided into so many parts.
_MOST_SHARDS = 1_000_000


#: Sizes of numbers other than 0: those of the catalog.
SIZES = (1e-20, 1e20)


#: A sweep to begin with, printed by `jaxspec sweep --example`.
EXAMPLE = Path(__file__).with_name("example.toml").read_text(encoding="utf-8")


def _end_of_range(help: str, key: str) -> float:  # noqa: A002
    return setting(dataclasses.MISSING, help, sizes=SIZES, key=key)


@dataclasses.dataclass(frozen=True)
class Range(Settings, stated_beside=__file__):
    """An axis from its ends: `{ from = 1, to = 16, points = 5, scale = "log" }`."""

    form: ClassVar[str] = (
        'give a list of numbers or { from = …, to = …, points = …, scale = "log" }, behind a name in quotes as in '
        '"workload.batch" = [1, 2]'
    )

    first: float = _end_of_range("First value.", "from")
    last: float = _end_of_range("Last value.", "to")
    points: int = setting(dataclasses.MISSING, low=1, high=MAX_POINTS)
    scale: Literal["linear", "log"] = setting("linear")

    def __post_init__(self):
        super().__post_init__()
        if self.scale == "log" and min(self.first, self.last) <= 0:
            raise InputError(f"from is {self.first:g} and to is {self.last:g}; a log scale needs numbers above 0")
        if self.points == 1 and self.first != self.last:
            raise InputError(
                f"points is 1, and from {self.first:g} to {self.last:g} are two values; give 2 or more, or a list"
            )


#: Values of an axis, or a range.
Axis = list[float] | Range


@dataclasses.dataclass(frozen=True)
class ParetoAxes(Settings, stated_beside=__file__):
    """Two or three results or axes, which way is better, and what divides the points."""

    form: ClassVar[str] = (
        'give x and y, and better_x and better_y as "low" or "high"; z, better_z, group and facets may be added'
    )

    x: str = setting(dataclasses.MISSING)
    y: str = setting(dataclasses.MISSING)
    better_x: Literal["low", "high"] = setting("low")
    better_y: Literal["low", "high"] = setting("high")
    z: str | None = setting(None)
    better_z: Literal["low", "high"] = setting("low")
    group: tuple[str, ...] | None = setting(None)
    facets: str | None = setting(None)

    def __post_init__(self):
        super().__post_init__()
        if self.z is None and self.better_z != "low":
            raise InputError(f"better_z is {self.better_z!r} without z; give z, or leave better_z out")


def _check_shard(text: str) -> None:
    shard_of(text)


def shard_of(text: str | None) -> tuple[int, int]:
    """Number of a shard, from 1, and how many there are; (1, 1) for None.

    Raises:
        InputError: another form than "1/8".
    """
    number, _, shards = (text or "1/1").partition("/")
    if not (number.isdecimal() and shards.isdecimal() and 1 <= int(number) <= int(shards) <= _MOST_SHARDS):
        raise InputError(f"shard is {shown(text)}; give a number from 1 and how many there are, as in '1/8'")
    return int(number), int(shards)


@dataclasses.dataclass(frozen=True)
class SweepConfig(ParallelSettings, ExpertSettings, Settings, stated_beside=__file__):
    """One sweep. `axes` and `set` are by dotted name, as in "device.memory.bandwidth_bytes_per_s".

    A knob of the scheme is "draft.weight_prune" and decides the bits that are read. Names are checked against the devices
    later, by `jaxspec.studies.sweep.grid.check_numbers`.

    Raises:
        InputError: a value of the wrong kind; no axis; too many points.
    """

    axes: dict[str, Axis] = setting(dict, sizes=SIZES)
    architecture: tuple[str, ...] = setting((CommonConfig.architecture,), objects="architecture")
    device: tuple[str, ...] = same_as(CommonConfig, "device")
    engine: str | None = same_as(CommonConfig, "engine")
    weight_format: str | None = same_as(CommonConfig, "weight_format")
    scheme: WidthScheme = setting(DEFAULT_SCHEME_NAME, objects="scheme")
    max_draft_length: int = same_as(PredictConfig, "max_draft_length")
    set: dict[str, float] = setting(dict, sizes=SIZES)
    # By default the widest choice that every sweep has.
    pareto: ParetoAxes = setting(ParetoAxes(x="held_bytes", y="tokens_per_s"))
    acceptance: AcceptanceSource | None = setting(None)
    shard: str | None = setting(None, check=_check_shard)

    unused = (DRAFT_WITHIN_TARGET,)

    def __post_init__(self):
        super().__post_init__()
        if not self.axes:
            raise InputError("axes are missing; add a table [axes] with one number to vary, see --example")
        lengths = [axis.points if isinstance(axis, Range) else len(axis) for axis in self.axes.values()]
        points = math.prod([len(self.architecture), len(self.device), *lengths])
        shards = shard_of(self.shard)[1]
        if points > MAX_POINTS * shards:
            raise InputError(
                f"the axes make {points:,} points; allowed are {MAX_POINTS:,} in one shard: make an axis shorter, or divide "
                f"them with shard '1/{-(-points // MAX_POINTS)}' and so on"
            )

    @property
    def input_files(self) -> dict[str, Path]:
        """Files that it names beside networks and devices."""
        return {} if self.acceptance is None else self.acceptance.files


def read_sweep_config(path: str | Path) -> SweepConfig:
    """A sweep's TOML file, checked; names of axes are checked against the devices later.

    Raises:
        InputError: the file cannot be read; an unknown key; see `SweepConfig`.
    """
    return build_config(SweepConfig, read_layer(path))


#: The study of many design points.
SWEEP = Study(
    name="sweep",
    config=SweepConfig,
    figures="jaxspec.studies.sweep.view:figures",
    points="jaxspec.studies.sweep.view:points",
    out=run_directory("sweep"),
    config_argument="SWEEP.toml",
    example=EXAMPLE,
    shared=True,
    subcommands={"merge": "jaxspec.cli.runs:merge"},
)
