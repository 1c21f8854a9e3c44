"""Groups of several devices of the catalog: which divisions a network allows, and over which link."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hwmodels.catalog.calibrations import DEFAULT_ENGINE
from hwmodels.catalog.device_entries import DeviceEntry
from hwmodels.catalog.entries import EntryError
from hwmodels.catalog.links import LinkEntry, link, link_entry, link_names
from hwmodels.network.architecture import Architecture, dense_layers
from hwmodels.parallel.group import DeviceGroup

__all__ = ["Parallelism", "check_draft_parallelism", "check_parallelism", "group_link", "grouped"]


@dataclasses.dataclass(frozen=True)
class Parallelism:
    """How a network is split among devices; all 1: it is not.

    Attributes:
        draft_tensor: of a draft network; None: as the target.
        link: name of a link; None: the device's own.
    """

    tensor: int = 1
    expert: int = 1
    data: int = 1
    pipeline: int = 1
    draft_tensor: int | None = None
    link: str | None = None

    @property
    def devices(self) -> int:
        """All devices."""
        return self.tensor * self.data * self.pipeline

    @property
    def alone(self) -> bool:
        """Whether one device does everything."""
        return self.devices == 1 and self.expert == 1


def check_parallelism(parallelism: Parallelism, architecture: Architecture, name: str) -> None:
    """Refuse what an engine could not load.

    Args:
        architecture: of known numbers.
        name: what it is called, for messages.
    Raises:
        EntryError: a number that does not divide the network, or the devices.
    """
    a, tensor = architecture, parallelism.tensor
    if parallelism.alone:
        given = [n for n, v in (("link", parallelism.link), ("draft_tensor_parallel", parallelism.draft_tensor)) if v]
        if given and (parallelism.link is not None or parallelism.draft_tensor != 1):
            raise EntryError(
                f"{', '.join(given)} would have no effect: one device holds everything; leave it out, or give tensor_parallel, "
                "data_parallel or pipeline"
            )
        return
    _check_matrices("tensor_parallel", tensor, a, name)
    if parallelism.pipeline > int(a.num_layers):
        raise EntryError(
            f"pipeline is {parallelism.pipeline}, but {name} has {int(a.num_layers)} layers; give fewer stages"
        )
    if parallelism.draft_tensor is not None and tensor % parallelism.draft_tensor:
        raise EntryError(
            f"draft_tensor_parallel is {parallelism.draft_tensor}; it must divide tensor_parallel, which is {tensor}"
        )
    _check_experts(parallelism, a, name)


def check_draft_parallelism(parallelism: Parallelism, draft: Architecture, name: str) -> None:
    """Refuse a draft network of its own that an engine could not share among as many devices as its parallelism takes.

    Args:
        draft: of known numbers.
        name: what it is called, for messages.
    Raises:
        EntryError: a number that does not divide the network.
    """
    if parallelism.draft_tensor is not None:
        _check_matrices("draft_tensor_parallel", parallelism.draft_tensor, draft, name)
    elif not parallelism.alone:
        try:
            _check_matrices("tensor_parallel", parallelism.tensor, draft, name)
        except EntryError as error:
            raise EntryError(f"{error} as draft_tensor_parallel") from error


def _check_matrices(key: str, tensor: int, a: Architecture, name: str) -> None:
    """Heads and inner columns that devices share."""
    heads, kv_heads = int(a.num_heads), int(a.num_kv_heads)
    if heads % tensor:
        raise _not_dividing(key, tensor, name, "heads", heads)
    if not float(a.kv_lora_rank) and kv_heads % tensor and tensor % kv_heads:
        raise _not_dividing(key, tensor, name, "key-value heads", kv_heads)
    for kind, of_linear in (("key", a.linear_key_heads), ("value", a.linear_value_heads)):
        if int(of_linear) % tensor:
            raise _not_dividing(key, tensor, name, f"{kind} heads of linear attention", int(of_linear))
    dense = float(dense_layers(a)) > 0
    if dense and int(a.intermediate_size) % tensor:
        raise _not_dividing(key, tensor, name, "inner columns", int(a.intermediate_size))


def _check_experts(parallelism: Parallelism, a: Architecture, name: str) -> None:
    tensor, expert, experts = parallelism.tensor, parallelism.expert, int(a.num_experts)
    if expert == 1 and not experts:
        return
    if not experts:
        raise EntryError(
            f"expert_parallel is {expert}, but {name} has no routed experts; leave it out, or give a mixture such as "
            "qwen3-30b-a3b"
        )
    if experts % expert:
        raise _not_dividing("expert_parallel", expert, name, "experts", experts)
    within = tensor * parallelism.data
    if within % expert or (expert % tensor and tensor % expert):
        raise EntryError(
            f"expert_parallel is {expert}; it must divide tensor_parallel x data_parallel, which is {within}, and divide or be "
            f"divided by tensor_parallel, which is {tensor}"
        )
    ways = max(tensor // expert, 1)
    if int(a.expert_intermediate_size) % ways:
        raise _not_dividing(
            "tensor_parallel / expert_parallel", ways, name, "columns of an expert", int(a.expert_intermediate_size)
        )


def _not_dividing(key: str, value: int, name: str, what: str, count: int) -> EntryError:
    allowed = [n for n in range(1, min(count, 1024) + 1) if count % n == 0]
    near = sorted(sorted(allowed, key=lambda n: abs(n - value))[:5])
    give = "give one of" if len(near) == len(allowed) else "give a divisor of it, such as"
    return EntryError(f"{key} is {value}, but {name} has {count} {what}; {give} {', '.join(map(str, near))}")


def group_link(entry: DeviceEntry, parallelism: Parallelism, name: str) -> LinkEntry:
    """The link between parallel devices, with the all-reduce of the device's engine where that was measured.

    Args:
        name: what the device is called, for messages.
    Raises:
        UnknownNameError: no such link.
        EntryError: the device has no link of its own, and none came; a link that joins fewer than exchange at every layer.
    """
    wanted = parallelism.link or entry.link
    if wanted is None:
        raise EntryError(
            f"device {name!r} does not say how it is linked to others; give link: {', '.join(link_names())}"
        )
    engine = None
    if entry.calibration is not None:
        engine = entry.device.matrix_unit.engine or DEFAULT_ENGINE
    joining = link_entry(wanted, engine=engine)
    together, joins = max(parallelism.tensor, parallelism.expert), joining.link.joins
    if joins is not None and together > joins:
        spanning = ", ".join(one for one in link_names() if link(one).joins is None)
        ways = "tensor" if together == parallelism.tensor else "expert"
        raise EntryError(
            f"{ways}_parallel is {together}, and {wanted} joins {joins} devices ({joining.title}): the others are in further "
            f"hosts; give a link between hosts ({spanning}), or at most {joins}"
        )
    return joining


def grouped(entry: DeviceEntry, parallelism: Parallelism, name: str, *, always: bool = False) -> DeviceEntry:
    """The same device as one of a group, its sources with those of the link; as it is where it works alone.

    Args:
        name: what the device is called, for messages.
        always: make a group of one device too.
    Raises:
        UnknownNameError: no such link.
        EntryError: see `group_link`; a device with several memories.
    """
    if parallelism.alone and not always:
        return entry
    if entry.device.spill:
        raise EntryError(
            f"device {name!r} has {1 + len(entry.device.spill)} memories; several devices are modelled for those with one: "
            "leave the parallelism out, or give another device"
        )
    joined = group_link(entry, parallelism, name)
    draft = parallelism.tensor if parallelism.draft_tensor is None else parallelism.draft_tensor
    counts = {
        "tensor_parallel": parallelism.tensor,
        "expert_parallel": parallelism.expert,
        "data_parallel": parallelism.data,
        "pipeline": parallelism.pipeline,
        "draft_tensor_parallel": draft,
    }
    group = DeviceGroup(link=joined.link, **{key: float(value) for key, value in counts.items()})
    sources: Mapping[str, str] = {f"group.{key}": "given" for key in counts}
    sources = {**sources, **{f"group.link.{key}": source for key, source in joined.sources.items()}}
    return dataclasses.replace(
        entry, device=dataclasses.replace(entry.device, group=group), sources={**entry.sources, **sources}
    )
