"""What a report says of the device that was used: its numbers, each with source and status, and what its times assume."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels import catalog
from jaxspec.report.assumptions import device_facts, number_status
from jaxspec.report.formatting import quantity
from jaxspec.report.titles import device_name
from jaxspec.results.network_results import MeasuredResult, PricedNumber
from jaxspec.results.quantity import finite

__all__ = ["DeviceNumber", "assumptions", "device_data", "device_rows"]


@dataclasses.dataclass(frozen=True)
class DeviceNumber:
    """One number of a device's data, where it comes from, and its status."""

    field: str
    value: float
    source: str
    status: str = "input"


def device_data(result: MeasuredResult) -> list[DeviceNumber]:
    """The device's numbers: the result's own, else those of the catalog; empty for a device that neither knows."""
    given = result.device_data
    if given is None:
        given = {name: PricedNumber(**number) for name, number in _catalog(result, "device_data", {}).items()}
    return [
        DeviceNumber(
            field,
            value,
            source=str(number.source or "no source given"),
            status=str(number.status or number_status(str(number.source or ""))),
        )
        for field, number in given.items()
        if (value := finite(number.value)) is not None
    ]


def device_rows(result: MeasuredResult) -> list[tuple[str, str, str, str]]:
    """The device's numbers: field, value with its unit, status, source."""
    return [(d.field, quantity(d.field, d.value), d.status, d.source) for d in device_data(result)]


def assumptions(result: MeasuredResult) -> list[str]:
    """What the device's times assume, in sentences: the result's own, else those of the catalog's device."""
    given = result.assumptions
    return [str(sentence) for sentence in (_catalog(result, "assumptions", []) if given is None else given)]


def _catalog(result: MeasuredResult, key: str, default: Any) -> Any:
    """What the catalog says of the device."""
    name = device_name(result)
    return device_facts(name)[key] if name in catalog.device_names() else default
