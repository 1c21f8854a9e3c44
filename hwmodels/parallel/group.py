"""Devices that hold one network together: how many of each kind of parallelism, over which link, and the share of one of them.

A group is T · D · P devices: T share every matrix (tensor), P hold one stage of the layers each (pipeline), D replicas decode
sequences of their own (data). One device of it

* multiplies its share of heads, inner columns, vocabulary and experts; norms, routers and the joint projections of latent
  attention are repeated on all; key-value heads fewer than T are repeated too (so is a cache of latents);
* with expert parallelism E holds whole experts, 1/E of each layer's. E up to T leaves T / E devices to each part of them; a
  larger E spreads the experts over E / T replicas, whose tokens are sent to them;
* decodes 1/D of the sequences, in P parts that pass the stages one behind the other, so that all stages work; never less than
  one sequence at a time. Stages hold whole layers, and the fullest sets the pace.

Source: Shoeybi et al. 2019, arXiv:1909.08053, sec. 3 (tensor); Rajbhandari et al. 2022, arXiv:2201.05596, sec. 5.2 (experts);
parts in flight as vLLM and SGLang keep them.
"""

from __future__ import annotations

import dataclasses

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.network.architecture import LAYER_COUNTS, Architecture
from hwmodels.network.operators.expert_sharing import ExpertSharing
from hwmodels.network.operators.steps import StepShape
from hwmodels.network.workload import Workload
from hwmodels.numerics.fields import COUNT, WHOLE, number
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.parallel.network_link import Link

__all__ = [
    "DeviceGroup",
    "for_draft",
    "fullest_stage",
    "held_share",
    "share_of_architecture",
    "share_of_step",
    "sharing_devices",
]

#: Of a layer; what rounding leaves of a whole number of them is no layer more.
_OF_A_LAYER = 1e-4


@flax.struct.dataclass
class DeviceGroup:
    """Devices of one kind that decode together. Every field is a leaf, "*b", or a tree of leaves; counts may be fractions.

    `drafting` is the group as a draft network of its own sees it.
    """

    link: Link  # between any two of them
    tensor_parallel: Leaf = number(COUNT, default=1.0)
    expert_parallel: Leaf = number(COUNT, default=1.0)
    data_parallel: Leaf = number(COUNT, default=1.0)
    pipeline: Leaf = number(COUNT, default=1.0)
    draft_tensor_parallel: Leaf = number(COUNT, default=1.0)  # devices that share a draft network's matrices
    idle: Leaf = number(WHOLE, default=0.0)  # further devices, which are powered and hold nothing of the network

    @property
    def devices(self) -> Leaf:
        """All devices, "*b"."""
        busy = as_float(self.tensor_parallel) * as_float(self.data_parallel) * as_float(self.pipeline)
        return busy + as_float(self.idle)

    @property
    def drafting(self) -> DeviceGroup:
        """The same devices, a draft network's matrices shared by `draft_tensor_parallel` of each replica, without stages.

        What is decoded at once is what the target decodes at once.
        """
        replicas = as_float(self.data_parallel) * as_float(self.pipeline)
        return dataclasses.replace(
            self,
            tensor_parallel=self.draft_tensor_parallel,
            expert_parallel=1.0,
            data_parallel=replicas,
            pipeline=1.0,
            idle=self.devices - as_float(self.draft_tensor_parallel) * replicas,
        )


def share_of_architecture(group: DeviceGroup, architecture: Architecture) -> Architecture:
    """The network as one device multiplies by it: all layers, of each its share. Routed experts keep their number.

    Args:
        group, architecture: leaves "*b".
    Gradient: kinks where key-value heads begin to be repeated, and where experts are as many ways as matrices.
    """
    a = jax.tree.map(lambda leaf: jnp.asarray(as_float(leaf)), architecture)
    tensor, expert = (jnp.asarray(as_float(n)) for n in (group.tensor_parallel, group.expert_parallel))
    # A device has a whole key-value head at least, and a network of latents has none of its own.
    kv_heads = jnp.minimum(jnp.maximum(a.num_kv_heads / tensor, 1.0), a.num_kv_heads)
    return dataclasses.replace(
        a,
        num_heads=a.num_heads / tensor,
        num_kv_heads=kv_heads,
        intermediate_size=a.intermediate_size / tensor,
        vocab_size=a.vocab_size / tensor,
        linear_key_heads=a.linear_key_heads / tensor,
        linear_value_heads=a.linear_value_heads / tensor,
        expert_intermediate_size=a.expert_intermediate_size / jnp.maximum(tensor / expert, 1.0),
        shared_intermediate_size=a.shared_intermediate_size / tensor,
    )


def share_of_step(group: DeviceGroup, step: StepShape) -> StepShape:
    """A step of all sequences as one replica takes it: its part of them, and how experts are spread.

    Args:
        group, step: leaves "*b".
    Gradient: a kink where one sequence is left.
    """
    tensor, expert = (jnp.asarray(as_float(n)) for n in (group.tensor_parallel, group.expert_parallel))
    sharing = ExpertSharing(devices=expert, replicas=jnp.maximum(expert / tensor, 1.0))
    batch = _at_once(step.batch, as_float(group.data_parallel) * as_float(group.pipeline))
    return dataclasses.replace(step, batch=batch, expert_sharing=sharing)


def fullest_stage(group: DeviceGroup, architecture: Architecture) -> Float[Array, "*b"]:
    """The share of a network's layers that the fullest stage of a pipeline holds: whole layers, so 1/P and more.

    Args:
        group, architecture: leaves "*b".
    Gradient: kinks at whole numbers of stages, between which the share is interpolated.
    """
    layers, stages = (jnp.maximum(as_float(n), 1.0) for n in (architecture.num_layers, group.pipeline))
    below = jnp.floor(stages)
    whole = lambda count: jnp.maximum(jnp.ceil(layers / count - _OF_A_LAYER), 1.0)
    return (whole(below) + (stages - below) * (whole(below + 1.0) - whole(below))) / layers


def sharing_devices(device: Device) -> Leaf:
    """Devices that share each matrix of a target, "*b"; 1 where one works alone."""
    return 1.0 if device.group is None else as_float(device.group.tensor_parallel)


def for_draft(device: Device) -> Device:
    """The device as a draft network of its own sees it: in its group's `drafting`; as it is where it works alone."""
    return device if device.group is None else dataclasses.replace(device, group=device.group.drafting)


def held_share(
    group: DeviceGroup | None, architecture: Architecture, workload: Workload
) -> tuple[Architecture, Workload]:
    """Network and workload whose weights and KV are what the fullest device of a group holds; as they are without one.

    Embedding and head are counted on every stage of a pipeline.

    Args:
        group, architecture, workload: leaves "*b".
    """
    if group is None:
        return architecture, workload
    own, stage = share_of_architecture(group, architecture), fullest_stage(group, architecture)
    tensor, expert = (jnp.asarray(as_float(n)) for n in (group.tensor_parallel, group.expert_parallel))
    # As many bytes as 1 / E of the experts, each split as `share_of_architecture` has it.
    own = dataclasses.replace(
        own,
        **{count: getattr(own, count) * stage for count in LAYER_COUNTS},
        expert_intermediate_size=jnp.asarray(as_float(architecture.expert_intermediate_size))
        / (expert * jnp.maximum(tensor / expert, 1.0)),
    )
    return own, dataclasses.replace(workload, batch=_at_once(workload.batch, group.data_parallel))


def _at_once(batch: Number, parts: Number) -> Float[Array, "*b"]:
    """Sequences of one part; one at least, or all where they are fewer."""
    whole = jnp.asarray(as_float(batch))
    return jnp.maximum(whole / as_float(parts), jnp.minimum(whole, 1.0))
