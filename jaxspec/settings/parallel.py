"""Settings of several devices that hold the priced network together."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.fields import setting

__all__ = ["ALONE", "DRAFT_WITHIN_TARGET", "MOST_TOGETHER", "PARALLEL", "ParallelSettings", "draft_division_unused"]

#: Devices along one way of dividing a network.
MOST_TOGETHER = 1024


@dataclasses.dataclass(frozen=True)
class ParallelSettings(Settings):
    """How the priced network is divided among devices of the same kind."""

    heading: ClassVar[str] = "Several devices"

    tensor_parallel: int = setting(1, "Tensor parallelism: devices that share every matrix.", low=1, high=MOST_TOGETHER)
    expert_parallel: int = setting(
        1,
        "Expert parallelism: devices that divide the routed experts of each layer, each expert whole.",
        low=1,
        high=MOST_TOGETHER,
    )
    data_parallel: int = setting(
        1,
        "Replicas, each with a part of the batch; expert_parallel may divide the experts among them.",
        low=1,
        high=MOST_TOGETHER,
    )
    pipeline: int = setting(
        1, "Pipeline parallelism: stages, each with a part of the layers.", low=1, high=MOST_TOGETHER
    )
    draft_tensor_parallel: int | None = setting(
        None,
        "Devices that share every matrix of a separate draft network.",
        low=1,
        high=MOST_TOGETHER,
        unset="tensor_parallel, as in vLLM and SGLang",
    )
    link: str | None = setting(
        None, "Link between the devices, such as nvlink4, pcie5 or infiniband-ndr.", unset="the device's own"
    )


#: Names of these settings.
PARALLEL = tuple(field.name for field in dataclasses.fields(ParallelSettings))

#: One device.
ALONE = ParallelSettings()


def draft_division_unused(reason: Callable[[Any], str | None]) -> Unused:
    """The rule that refuses `draft_tensor_parallel` where no draft network of its own is priced. Args: reason: see `Unused`."""
    return Unused(("draft_tensor_parallel",), reason)


#: The same of a command that prices no such network.
DRAFT_WITHIN_TARGET = draft_division_unused(lambda config: "the draft is a part of the target, and is shared as it is")
