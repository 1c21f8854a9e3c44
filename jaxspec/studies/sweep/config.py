"""What `jaxspec sweep` evaluates: a TOML file of axes over any number of device, network, workload, footprint, acceptance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels import Architecture, Device, Workload
from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.catalog import device_entries
from hwmodels.catalog.architecture_entries import ARCHITECTURE_RULES
from hwmodels.catalog.entries import LARGEST, SMALLEST
from hwmodels.numerics.fields import COUNT, FLAG, NOT_NEGATIVE, POSITIVE, WHOLE, Rule
from jaxspec.errors import InputError
from jaxspec.settings import CommonConfig, PredictConfig, Settings, read_toml
from jaxspec.settings.coercion import as_text, plain_number, shown
from jaxspec.settings.fields import same_as
from jaxspec.settings.schemes import WidthScheme
from jaxspec.suggestions import hint

__all__ = [
    "EXAMPLE",
    "MAX_POINTS",
    "SweepConfig",
    "axis_values",
    "check_numbers",
    "number_rules",
    "read_sweep_config",
]

#: More points than this take hours, and their file gigabytes.
MAX_POINTS = 50_000_000

_SCALES = ("linear", "log")

#: Names are long and alike: less similarity than in the catalog is a slip here.
_NEAR = 0.5

_WIDTH = Rule("more than 0 to 64 bits", lambda value: 0 < value <= 64)
_CHANCE = Rule("a number from 0 to 1", lambda value: 0 <= value <= 1)

#: A sweep to begin with, printed by `jaxspec sweep --example`.
EXAMPLE = """\
# jaxspec sweep sweep.toml: every combination of the axes is one design point.
architecture = ["llama-3.1-8b"]     # catalog names or config.json files
device = ["rtx-4090"]               # catalog names or TOML files
scheme = "cassandra1"               # widths to begin with: see jaxspec predict --help
max_draft_length = 8

[set]                               # numbers that differ from device, network and workload as they are
"workload.context_tokens" = 4096

[axes]                              # a list, or a range: scale is "log" or "linear"
"device.memory.bandwidth_bytes_per_s" = { from = 2e11, to = 4e12, points = 24, scale = "log" }
"workload.batch" = [1, 2, 4, 8, 16]
"footprint.draft_weight_bits" = { from = 3, to = 8, points = 11 }
"acceptance.alpha_token" = [0.7, 0.8, 0.9]

[pareto]                            # the figure: two results or axes, and which way is better
x = "device.memory.bandwidth_bytes_per_s"
y = "tokens_per_s"
better_x = "low"
better_y = "high"
"""


@dataclasses.dataclass(frozen=True)
class SweepConfig(Settings):
    """One sweep. `axes` and `set` are by dotted name, as in "device.memory.bandwidth_bytes_per_s".

    Names are checked against the devices later, by `check_numbers`.

    Raises:
        InputError: a value of the wrong kind; no axis; too many points.
    """

    axes: dict[str, Any]  # name -> list of numbers, or {from, to, points, scale}
    architecture: tuple[str, ...] = (CommonConfig.architecture,)
    device: tuple[str, ...] = CommonConfig.device
    scheme: WidthScheme = "cassandra1"
    max_draft_length: int = same_as(PredictConfig, "max_draft_length")
    set: dict[str, float] = dataclasses.field(default_factory=dict)
    pareto: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        super().__post_init__()
        if not self.axes:
            raise InputError("axes are missing; add a table [axes] with one number to vary, see --example")
        replace = partial(object.__setattr__, self)  # the class is frozen
        replace("axes", {as_text("axes", name): _plain_axis(axis) for name, axis in self.axes.items()})
        replace("set", {as_text("set", name): _number(value, f"set.{name}") for name, value in self.set.items()})
        replace("pareto", _pareto(self.pareto, "pareto") if self.pareto else {})
        points = len(self.architecture) * len(self.device)
        for name in self.axes:
            points *= len(axis_values(self, name))
        if points > MAX_POINTS:
            raise InputError(f"the axes make {points:,} points; allowed are {MAX_POINTS:,}: make an axis shorter")


def read_sweep_config(path: str | Path) -> SweepConfig:
    """A sweep's TOML file, checked; names of axes are checked against the devices later.

    Raises:
        InputError: the file cannot be read; an unknown key; see `SweepConfig`.
    """
    raw = read_toml(path)
    fields = [field.name for field in dataclasses.fields(SweepConfig)]
    try:
        for key in raw:
            if key not in fields:
                raise InputError(f"unknown key {shown(key)}{hint(key, sorted(fields), cutoff=_NEAR)}")
        settings: dict[str, Any] = {"axes": {}, **raw}
        return SweepConfig(**settings)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def axis_values(config: SweepConfig, name: str) -> np.ndarray:
    """Values of an axis, float64.

    Raises:
        InputError: neither a list of numbers nor a range.
    """
    axis, what = config.axes[name], f"axes.{name}"
    if isinstance(axis, list):
        if not axis:
            raise InputError(f"{what} is empty; give at least one number")
        return np.array([_number(value, what) for value in axis])
    if not isinstance(axis, dict) or not {"from", "to", "points"} <= set(axis) <= {"from", "to", "points", "scale"}:
        raise InputError(
            f'{what} is {shown(axis)}; give a list of numbers or {{ from = …, to = …, points = …, scale = "log" }}'
        )
    low, high = _number(axis["from"], f"{what}.from"), _number(axis["to"], f"{what}.to")
    points, scale = axis["points"], axis.get("scale", "linear")
    if not isinstance(points, int) or isinstance(points, bool) or not 1 <= points <= MAX_POINTS:
        raise InputError(f"{what}.points is {shown(points)}; allowed are whole numbers from 1 to {MAX_POINTS:,}")
    if scale not in _SCALES:
        raise InputError(f"{what}.scale is {shown(scale)}; allowed are {', '.join(_SCALES)}")
    if scale == "log":
        if min(low, high) <= 0:
            raise InputError(f"{what} goes from {low:g} to {high:g}; a log scale needs numbers above 0")
        return np.geomspace(low, high, points)
    return np.linspace(low, high, points)


def number_rules(architecture: Architecture, device: Device) -> dict[str, Rule]:
    """What each number of a design point must be, by dotted name. Counts may be fractions here."""
    shape = {f"architecture.{name}": relaxed(ARCHITECTURE_RULES[name]) for name in leaf_names(architecture)}
    workload = {f"workload.{field.name}": POSITIVE for field in dataclasses.fields(Workload)}
    workload["workload.context_tokens"] = NOT_NEGATIVE
    widths = ("draft_kv_bits", "draft_weight_bits", "target_kv_bits", "target_weight_bits")
    return (
        shape
        | workload
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


def _plain_axis(axis: Any) -> Any:
    """An axis in TOML's own types, where it can be told what it is."""
    if isinstance(axis, Mapping):
        return {key: _plain_axis(value) for key, value in axis.items()}
    if hasattr(axis, "tolist"):
        return axis.tolist()
    return [_plain_axis(value) for value in axis] if isinstance(axis, (list, tuple)) else axis


def _number(value: Any, where: str) -> float:
    value = plain_number(value)
    # TOML integers have no bound; comparisons work with all of them, and are false for NaN.
    if value is None or not (value == 0 or SMALLEST <= abs(value) <= LARGEST):
        raise InputError(
            f"{where} is {shown(value)}; it must be a finite number, 0 or of size {SMALLEST:g} to {LARGEST:g}"
        )
    return float(value)


def _pareto(raw: Any, where: str) -> dict[str, str]:
    if not isinstance(raw, dict) or not {"x", "y"} <= set(raw) <= {"x", "y", "better_x", "better_y"}:
        raise InputError(f'{where} is {raw!r}; give x and y, and better_x and better_y as "low" or "high"')
    for key in ("better_x", "better_y"):
        if raw.get(key, "low") not in ("low", "high"):
            raise InputError(f"{where}.{key} is {raw[key]!r}; allowed are low, high")
    if not all(isinstance(value, str) for value in raw.values()):
        raise InputError(f"{where} is {raw!r}; all its values are texts")
    return dict(raw)
