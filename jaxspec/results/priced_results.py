"""What every result for one device begins with: which device and network were priced, with which numbers, from which files."""

from __future__ import annotations

import dataclasses

from jaxspec.results.network_results import PricedNumber
from jaxspec.results.records import Result

__all__ = ["PricedResult"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricedResult(Result):
    """A result for one device and one architecture, which measures no network.

    Attributes:
        architecture_data, device_data: numbers that were priced with, by field.
        assumptions: in sentences.
        inputs: SHA-256 of every file that the configuration names.
    """

    schema_version: int = 1
    architecture: str | None = None
    architecture_data: dict[str, PricedNumber] = dataclasses.field(default_factory=dict)
    device: str | None = None
    device_title: str | None = None
    device_data: dict[str, PricedNumber] = dataclasses.field(default_factory=dict)
    assumptions: list[str] = dataclasses.field(default_factory=list)
    inputs: dict[str, str] = dataclasses.field(default_factory=dict)
