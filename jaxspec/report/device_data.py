"""What a report says of the device that was used: its numbers, each with source and status, and what its times assume."""

from __future__ import annotations

import dataclasses
from typing import Any

from hwmodels import catalog
from jaxspec.report.assumptions import device_facts, number_status
from jaxspec.report.entries import Entry, device_name, lookup, number
from jaxspec.report.formatting import quantity

__all__ = ["DeviceNumber", "assumptions", "device_data", "device_rows"]


@dataclasses.dataclass(frozen=True)
class DeviceNumber:
    """One number of a device's data, where it comes from, and its status."""

    field: str
    value: float
    source: str
    status: str = "input"


def device_data(entry: Entry) -> list[DeviceNumber]:
    """The device's numbers: the entry's "device_data" (field -> value, source, status), else those of the catalog.

    Empty for a device that neither knows.
    """
    given = _fact(entry, "device_data") or {}
    found = [(field, number(data, "value"), data) for field, data in given.items()]
    return [
        DeviceNumber(
            field,
            value,
            source=str(lookup(data, "source") or "no source given"),
            status=str(lookup(data, "status") or number_status(str(lookup(data, "source") or ""))),
        )
        for field, value, data in found
        if value is not None
    ]


def device_rows(entry: Entry) -> list[tuple[str, str, str, str]]:
    """The device's numbers: field, value with its unit, status, source."""
    return [(d.field, quantity(d.field, d.value), d.status, d.source) for d in device_data(entry)]


def assumptions(entry: Entry) -> list[str]:
    """What the device's times assume, in sentences: the entry's own, else those of the catalog's device."""
    return [str(sentence) for sentence in _fact(entry, "assumptions") or []]


def _fact(entry: Entry, key: str) -> Any:
    """What the entry says of its device, else what the catalog does; None for a device that neither knows."""
    given = lookup(entry, key)
    name = device_name(entry)
    return device_facts(name)[key] if given is None and name in catalog.device_names() else given
