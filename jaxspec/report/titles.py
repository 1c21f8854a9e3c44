"""Names that a person reads: of networks, architectures, devices and configurations, in their order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hwmodels import catalog
from jaxspec.results.network_results import Configuration, ConfigurationsResult, MeasuredResult

__all__ = [
    "CONFIGURATIONS",
    "PricedRecord",
    "architecture_title",
    "configurations",
    "device_name",
    "device_title",
    "in_order",
    "model_title",
    "provenance",
]


class PricedRecord(Protocol):
    """A result for one device."""

    @property
    def architecture(self) -> str | None:
        """Whose cost is predicted."""
        ...

    @property
    def device(self) -> str | None:
        """On which."""
        ...


#: Order of configurations; others that a result holds follow.
CONFIGURATIONS = ("default", "j_grid", "grid", "uniform", "tuned")


def in_order(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """`names` in a given order, those that the order does not know last and as they came."""
    names, order = list(names), list(order)
    return [name for name in order if name in names] + [name for name in names if name not in order]


def configurations(result: ConfigurationsResult) -> dict[str, Configuration]:
    """The configurations of a result, in the order of `CONFIGURATIONS`."""
    present = {name: each for name, each in result.configurations.items() if each is not None}
    return {name: present[name] for name in in_order(present, CONFIGURATIONS)}


def architecture_title(result: PricedRecord) -> str:
    """What a person calls the priced architecture."""
    name = result.architecture or "unnamed architecture"
    return catalog.architecture_title(name) if name in catalog.architecture_names() else name


def device_title(result: PricedRecord) -> str:
    """What a person calls the device."""
    name = device_name(result)
    if title := getattr(result, "device_title", None):
        return str(title)
    return catalog.device_title(name) if name in catalog.device_names() else name


def device_name(result: PricedRecord) -> str:
    """The device as the result names it."""
    return result.device or "unnamed device"


def model_title(result: MeasuredResult) -> str:
    """The network that ran, with its size."""
    name, size = result.model.name or "unnamed model", result.model.parameters.number
    if size is None:
        return name
    scale, letter = next(((s, c) for s, c in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if size >= s), (1.0, ""))
    return f"{name} ({size / scale:.3g}{f' {letter}' if letter else ''} parameters)"


def provenance(result: MeasuredResult) -> str:
    """Which network ran and what was priced: the sentence that every table and figure carries."""
    return (
        f"acceptance measured on {model_title(result)}, "
        f"cost predicted for {architecture_title(result)} on {device_title(result)}"
    )
