"""The table of Hugging Face model families: one row each, for pricing, loading, running and exporting.

Rows are in `families.toml`, names of tensors in `tensors.toml`, what they cannot say in `beyond`. Defaults, in
`defaults.json`, are those of the families' configuration classes in transformers 5; what the rows say about biases, norms and
experts is tested against the networks that transformers builds (tests/golden/make_parameter_counts.py), what they say about
running against what transformers computes (tests/golden/make_hf_golden.py).
"""

from __future__ import annotations

import dataclasses
import importlib.resources
import json
from collections.abc import Callable, Mapping
from typing import Any

from hwmodels.networks.families import beyond
from hwmodels.networks.family import Experts, Family, Rotary, RouterRule, Running, Setting, Windows
from hwmodels.networks.tensor_names import merged_tables
from hwmodels.registry import Registry
from hwmodels.tables import read_table

__all__ = ["FAMILIES", "family_called"]


def _accept(name: str, family: Any) -> Family:
    if not isinstance(family, Family) or family.name != name:
        raise ValueError(f"family {name!r} is {family!r:.60}; give a Family of this name")
    return family


#: Family -> what its configuration class has where a file lacks a key.
_DEFAULTS: Mapping[str, Mapping[str, Any]] = json.loads(
    importlib.resources.files(__name__).joinpath("defaults.json").read_text(encoding="utf-8")
)

_ROWS = read_table(__package__, "families.toml")
_SHARED = _ROWS.pop("like")


def _values(entry: Any) -> Any:
    """An entry of the table as the columns have it."""
    if isinstance(entry, list):
        return tuple(map(_values, entry))
    if not isinstance(entry, dict):
        return None if entry == "null" else entry
    if "setting" in entry:
        return Setting(entry["setting"], entry.get("power", 1.0))
    shared = _values(_SHARED[entry["like"]]) if "like" in entry else {}
    return shared | {key: _values(value) for key, value in entry.items() if key != "like"}


def _running(row: dict[str, Any]) -> Running:
    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("tensors", "fused", "stacked"), merged_tables),
        "fused_by": lambda order: dict.fromkeys(merged_tables(row["fused"]), order),
        **dict.fromkeys(("transposed", "unit_axes"), frozenset),
        "rotary": lambda rotary: rotary and Rotary(**rotary),
        "router": lambda router: RouterRule(**router),
    }
    return Running(**{key: readers[key](value) if key in readers else value for key, value in row.items()})


def _family(name: str, row: dict[str, Any]) -> Family:
    function = lambda entry: getattr(beyond, entry) if isinstance(entry, str) else entry
    readers: dict[str, Callable[[Any], Any]] = {
        "running": _running,
        "names": lambda names: _running({"architecture": ""} | names),
        "experts": lambda experts: Experts(**experts),
        "windows": lambda windows: Windows(**(windows if isinstance(windows, dict) else {"pattern": windows})),
        **dict.fromkeys(("beyond", "norms_per_layer"), function),
    }
    columns = {key: readers[key](value) if key in readers else value for key, value in _values(row).items()}
    derived = {key: function(value) for key, value in columns.pop("defaults", {}).items()}
    return Family(name, {**_DEFAULTS[name], **derived}, **columns)


#: `model_type` of config.json -> family.
FAMILIES: Registry[Family] = Registry("family", {name: _family(name, row) for name, row in _ROWS.items()}, _accept)


def family_called(model_type: Any) -> Family | None:
    """The family of a `model_type`, with the defaults of that name where it is one of `also`; None: it is in no row."""
    if not isinstance(model_type, str):
        return None
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    base = next((family for family in FAMILIES.values() if model_type in family.also), None)
    return base and dataclasses.replace(base, defaults={**base.defaults, **base.also[model_type]})
