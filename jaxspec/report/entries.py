"""How the report reads one entry of result.json: any key may be absent or null, and then the number is not shown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hwmodels import catalog

#: One device's part of result.json.
Entry = Mapping[str, Any]

#: In the order in which they are told; others that an entry holds follow.
CONFIGURATIONS = ("default", "grid", "uniform", "tuned")

#: The four kinds of a reported number, with what each says.
STATUSES = {
    "measured": "ran here",
    "predicted": "from a model, not fitted to these numbers",
    "calibrated": "from a model that was fitted to some of these numbers",
    "input": "given, or taken from a paper or a data sheet",
}

#: Shown in place of a status that the entry does not give.
NO_STATUS = "no status"

#: A gap between predicted and counted tokens per cycle beyond this many standard errors is a defect.
LARGEST_GAP = 3.0


def lookup(tree: Any, *path: str) -> Any:
    """The value under a path of keys; None where a key is absent."""
    for key in path:
        if not isinstance(tree, Mapping) or key not in tree:
            return None
        tree = tree[key]
    return tree


def number(tree: Any, *path: str) -> float | None:
    """The finite number under a path of keys; None where there is none."""
    value = lookup(tree, *path)
    if isinstance(value, bool):
        return None
    try:
        value = float(value)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def numbers(tree: Any, *path: str) -> dict[str, float]:
    """The finite numbers of the mapping under a path of keys."""
    values = {str(name): number(value) for name, value in (lookup(tree, *path) or {}).items()}
    return {name: value for name, value in values.items() if value is not None}


def in_order(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """`names` in a given order, those that the order does not know last and as they came."""
    names, order = list(names), list(order)
    return [name for name in order if name in names] + [name for name in names if name not in order]


def configurations(entry: Entry) -> dict[str, Mapping[str, Any]]:
    """The configurations that an entry holds, in the order of `CONFIGURATIONS`."""
    given = lookup(entry, "configurations") or {}
    return {name: given[name] for name in in_order(given, CONFIGURATIONS) if given[name]}


def status(configuration: Mapping[str, Any], *path: str) -> str:
    """The status of a metric: under its own name, its dotted path, or that of what holds it."""
    given = lookup(configuration, "status") or {}
    for name in (path[-1], ".".join(path), path[0]):
        if given.get(name):
            return str(given[name])
    return NO_STATUS


def gap_in_standard_errors(configuration: Mapping[str, Any]) -> float | None:
    """How far the counted tokens per cycle lie from the predicted ones, in standard errors."""
    given = number(configuration, "tokens_per_cycle_gap_in_standard_errors")
    if given is not None:
        return abs(given)
    predicted = number(configuration, "tokens_per_cycle_predicted")
    counted = number(configuration, "tokens_per_cycle_counted")
    error = number(configuration, "tokens_per_cycle_standard_error")
    if predicted is None or counted is None or not error:
        return None
    return abs(counted - predicted) / error


def architecture_title(entry: Entry) -> str:
    """What a person calls the priced architecture."""
    name = str(lookup(entry, "architecture") or "unnamed architecture")
    return catalog.architecture_title(name) if name in catalog.architecture_names() else name


def device_title(entry: Entry) -> str:
    """What a person calls the device."""
    name = device_name(entry)
    if given := lookup(entry, "device_title"):
        return str(given)
    return catalog.device_title(name) if name in catalog.device_names() else name


def device_name(entry: Entry) -> str:
    """The device as the entry names it."""
    return str(lookup(entry, "device") or "unnamed device")


def model_title(entry: Entry) -> str:
    """The network that ran, with its size."""
    name, size = lookup(entry, "model", "name") or "unnamed model", number(entry, "model", "parameters")
    if size is None:
        return str(name)
    scale, letter = next(((s, c) for s, c in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if size >= s), (1.0, ""))
    return f"{name} ({size / scale:.3g}{f' {letter}' if letter else ''} parameters)"


def provenance(entry: Entry) -> str:
    """Which network ran and what was priced: the sentence that every table and figure carries."""
    return (
        f"acceptance measured on {model_title(entry)}, "
        f"cost predicted for {architecture_title(entry)} on {device_title(entry)}"
    )
