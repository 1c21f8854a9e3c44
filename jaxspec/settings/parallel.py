"""Settings of several devices that hold the priced network together."""

from __future__ import annotations

import dataclasses

from jaxspec.settings.base import Settings
from jaxspec.settings.fields import setting

__all__ = ["ALONE", "MOST_TOGETHER", "PARALLEL", "ParallelSettings"]

#: Devices along one way of dividing a network.
MOST_TOGETHER = 1024


@dataclasses.dataclass(frozen=True)
class ParallelSettings(Settings):
    """How the priced network is divided among devices of the same kind."""

    tensor_parallel: int = setting(
        1, "Devices that share every matrix of the priced network.", low=1, high=MOST_TOGETHER
    )
    expert_parallel: int = setting(
        1, "Devices that hold whole routed experts, of each layer their part.", low=1, high=MOST_TOGETHER
    )
    data_parallel: int = setting(
        1,
        "Replicas that decode a part of the batch each, with experts in common where expert_parallel says so.",
        low=1,
        high=MOST_TOGETHER,
    )
    pipeline: int = setting(1, "Stages of layers, one behind the other.", low=1, high=MOST_TOGETHER)
    draft_tensor_parallel: int | None = setting(
        None,
        "Devices that share the matrices of a draft network of its own.",
        low=1,
        high=MOST_TOGETHER,
        unset="tensor_parallel, as vLLM and SGLang do",
    )
    link: str | None = setting(
        None, "Link between the devices, such as nvlink4, pcie5 or infiniband-ndr.", unset="the device's own"
    )


#: Names of these settings.
PARALLEL = tuple(field.name for field in dataclasses.fields(ParallelSettings))

#: One device.
ALONE = ParallelSettings()
