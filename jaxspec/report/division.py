"""Several devices that hold a network together: from settings to the catalog, and in words."""

from __future__ import annotations

from typing import Protocol

from hwmodels import catalog
from hwmodels.catalog.device_entries import DeviceEntry
from hwmodels.catalog.groups import group_link

__all__ = ["Divided", "division_of", "division_words"]


class Divided(Protocol):
    """Settings that say how a network is divided."""

    @property
    def tensor_parallel(self) -> int:
        """Devices that share every matrix."""
        ...

    @property
    def expert_parallel(self) -> int:
        """Devices that hold whole experts."""
        ...

    @property
    def data_parallel(self) -> int:
        """Replicas."""
        ...

    @property
    def pipeline(self) -> int:
        """Stages of layers."""
        ...

    @property
    def draft_tensor_parallel(self) -> int | None:
        """Devices that share a draft network's matrices; None: as the target."""
        ...

    @property
    def link(self) -> str | None:
        """Link between devices; None: the device's own."""
        ...


def division_of(config: Divided) -> catalog.Division:
    """How settings divide a network among devices."""
    return catalog.Division(
        tensor=config.tensor_parallel,
        expert=config.expert_parallel,
        data=config.data_parallel,
        pipeline=config.pipeline,
        draft_tensor=config.draft_tensor_parallel,
        link=config.link,
    )


def division_words(entry: DeviceEntry, division: catalog.Division, name: str) -> list[str]:
    """What times of several devices assume, in sentences; none for one device.

    Args:
        entry: of one of the devices, which is called `name`.
    """
    if division.alone:
        return []
    link = group_link(entry, division, name)
    ways = {
        "tensor": division.tensor,
        "expert": division.expert,
        "data": division.data,
        "pipeline": division.pipeline,
    }
    counted = ", ".join(f"{way} {count}" for way, count in ways.items() if count > 1)
    errors = ", ".join(f"{collective} {100 * error:.2g} %" for collective, error in link.errors.items())
    return [
        f"{division.devices} devices over {link.title} hold the network together ({counted}); times are of all of them, "
        "work, traffic and memory of one, energy of all. Collectives overlap with nothing; mean error of those measured, on "
        f"sizes held out: {errors or 'none was measured'}.",
        "A draft network of its own is shared by "
        f"{division.tensor if division.draft_tensor is None else division.draft_tensor} devices.",
    ]
