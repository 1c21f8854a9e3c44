"""What `jaxspec sweep` evaluates: a TOML file of axes over any number of device, network, workload, footprint, acceptance."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels import Architecture, Device, Workload
from hwmodels.catalog import device_entries
from hwmodels.catalog.architecture_entries import ARCHITECTURE_RULES
from hwmodels.catalog.entries import COUNT, FLAG, LARGEST, NOT_NEGATIVE, POSITIVE, SMALLEST, WHOLE, Rule, near_matches
from hwmodels.sensitivity import leaf_names
from jaxspec.compress.scheme_widths import WIDTH_SCHEMES
from jaxspec.errors import InputError
from jaxspec.runs.config import read_toml

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
class SweepConfig:
    """One sweep. `axes` and `set` are by dotted name, as in "device.memory.bandwidth_bytes_per_s"."""

    axes: dict[str, Any]  # name -> list of numbers, or {from, to, points, scale}
    architecture: tuple[str, ...] = ("llama-3.1-8b",)
    device: tuple[str, ...] = ("rtx-4090",)
    scheme: str = "cassandra1"
    max_draft_length: int = 8
    set: dict[str, float] = dataclasses.field(default_factory=dict)
    pareto: dict[str, str] = dataclasses.field(default_factory=dict)


def read_sweep_config(path: str | Path) -> SweepConfig:
    """A sweep's TOML file, checked; names of axes are checked against the devices later.

    Raises:
        InputError: the file cannot be read; an unknown key; a value of the wrong kind; too many points.
    """
    raw = read_toml(path)
    fields = {field.name for field in dataclasses.fields(SweepConfig)}
    for key in raw:
        if key not in fields:
            hint = near_matches(key, fields, cutoff=_NEAR)
            raise InputError(f"{path}: unknown key {key!r};{hint} allowed are {', '.join(sorted(fields))}")
    if not isinstance(raw.get("axes"), dict) or not raw["axes"]:
        raise InputError(f"{path}: axes are missing; add a table [axes] with one number to vary, see --example")
    settings: dict[str, Any] = {"axes": raw["axes"]}
    for key in ("architecture", "device"):
        if key in raw:
            names = [raw[key]] if isinstance(raw[key], str) else raw[key]
            if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
                raise InputError(f"{path}: {key} is {raw[key]!r}; give a name or a list of names")
            settings[key] = tuple(dict.fromkeys(names))
    if "scheme" in raw:
        if not isinstance(raw["scheme"], str) or raw["scheme"] not in WIDTH_SCHEMES:
            raise InputError(f"{path}: scheme is {raw['scheme']!r}; allowed are {', '.join(WIDTH_SCHEMES)}")
        settings["scheme"] = raw["scheme"]
    if "max_draft_length" in raw:
        length = raw["max_draft_length"]
        if not isinstance(length, int) or isinstance(length, bool) or not 1 <= length <= 64:
            raise InputError(f"{path}: max_draft_length is {length!r}; allowed are whole numbers from 1 to 64")
        settings["max_draft_length"] = length
    if "set" in raw:
        if not isinstance(raw["set"], dict):
            raise InputError(f"{path}: set is {raw['set']!r}; it must be a table of names and numbers")
        settings["set"] = {name: _number(value, f"{path}: set.{name}") for name, value in raw["set"].items()}
    if "pareto" in raw:
        settings["pareto"] = _pareto(raw["pareto"], f"{path}: pareto")
    config = SweepConfig(**settings)
    points = len(config.architecture) * len(config.device)
    for name in config.axes:
        points *= len(axis_values(config, name, where=str(path)))
    if points > MAX_POINTS:
        raise InputError(f"{path}: the axes make {points:,} points; allowed are {MAX_POINTS:,}: make an axis shorter")
    return config


def axis_values(config: SweepConfig, name: str, *, where: str = "sweep") -> np.ndarray:
    """Values of an axis, float64.

    Raises:
        InputError: neither a list of numbers nor a range.
    """
    axis, what = config.axes[name], f"{where}: axes.{name}"
    if isinstance(axis, list):
        if not axis:
            raise InputError(f"{what} is empty; give at least one number")
        return np.array([_number(value, what) for value in axis])
    if not isinstance(axis, dict) or not {"from", "to", "points"} <= set(axis) <= {"from", "to", "points", "scale"}:
        raise InputError(
            f'{what} is {axis!r}; give a list of numbers or {{ from = …, to = …, points = …, scale = "log" }}'
        )
    low, high = _number(axis["from"], f"{what}.from"), _number(axis["to"], f"{what}.to")
    points, scale = axis["points"], axis.get("scale", "linear")
    if not isinstance(points, int) or isinstance(points, bool) or not 1 <= points <= MAX_POINTS:
        raise InputError(f"{what}.points is {points!r}; allowed are whole numbers from 1 to {MAX_POINTS:,}")
    if scale not in _SCALES:
        raise InputError(f"{what}.scale is {scale!r}; allowed are {', '.join(_SCALES)}")
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
            hint = near_matches(name, rules, cutoff=_NEAR)
            raise InputError(
                f"{where} is no number of a design point on {device};{hint} allowed are {', '.join(rules)}"
            )
        for value in numbers.tolist():
            if not rules[name].holds(value):
                raise InputError(f"{where} is {value:g}; it must be {rules[name].words}")
    if both := sorted(set(config.axes) & set(config.set)):
        raise InputError(f"{', '.join(both)} is both an axis and set; take it out of one of them")


def _number(value: Any, where: str) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # TOML integers have no bound; comparisons work with all of them, and are false for NaN.
    if not number or not (value == 0 or SMALLEST <= abs(value) <= LARGEST):
        shown = repr(value) if len(repr(value)) < 40 else "a number of many digits"
        raise InputError(f"{where} is {shown}; it must be a finite number, 0 or of size {SMALLEST:g} to {LARGEST:g}")
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
