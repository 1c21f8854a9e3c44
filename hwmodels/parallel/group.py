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
from typing import Literal, TypeAlias

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.network.architecture import LAYER_COUNTS, Architecture, Workload
from hwmodels.network.operators.expert_sharing import ExpertSharing
from hwmodels.network.operators.steps import StepShape
from hwmodels.numerics.fields import BYTE_RATE, COUNT, ENERGY, POSITIVE, WHOLE, number
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_arrays, as_float, same_rank
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.parallel.collectives import Link

__all__ = [
    "DeviceGroup",
    "Division",
    "ElementLinks",
    "Exchange",
    "Phase",
    "divide",
    "for_draft",
    "fullest_stage",
    "held_share",
    "share_of_architecture",
    "share_of_step",
    "sharing_devices",
    "sum_exchange",
]

# What elements tell each other about a product whose weights lie with several of them.


@flax.struct.dataclass
class ElementLinks:
    """Links of one processing element; all have the same. Every field is a leaf, "*b"."""

    aggregation_bytes_per_s: Leaf = number(BYTE_RATE)  # to and from other elements, > 0
    streamline_bytes_per_s: Leaf = number(BYTE_RATE)  # from memories that are not its own bank, > 0
    activation_bits: Leaf = number(POSITIVE, default=8.0)  # of an activation that is sent, > 0
    partial_sum_bits: Leaf = number(POSITIVE, default=32.0)  # of a sum that is sent, > 0
    energy_j_per_bit: Leaf = number(ENERGY, default=0.0)  # of the aggregation links, >= 0


@flax.struct.dataclass
class Exchange:
    """One product's exchange, leaves "*b"."""

    volume_bytes: Float[Array, "*b"]  # over all links together
    time_s: Float[Array, "*b"]  # of the busiest link; links work at the same time


def sum_exchange(links: ElementLinks, m: Number, k: Number, n: Number, *, elements: Number) -> Exchange:
    """Exchange of sums: activations go to every element, sums to the element that has the row.

    Args:
        links: leaves "*b".
        m, k, n: "*b", > 0; activations, inner size, columns. Rows and columns are spread evenly.
        elements: "*b", >= 1.
    """
    links, m, k, n, count = same_rank(links, *map(as_float, (m, k, n, elements)))
    activations = m * k * as_float(links.activation_bits) / BITS_PER_BYTE
    sums = m * n * as_float(links.partial_sum_bits) / BITS_PER_BYTE
    # Of an element's rows it has 1 / count itself, of a row's sums likewise.
    others = (count - 1.0) / count
    received = activations * others + sums / count * others
    return _exchange(links, received, count)


def _exchange(links: ElementLinks, received_bytes: Leaf, elements: Leaf) -> Exchange:
    received = jnp.asarray(received_bytes)
    return Exchange(received * elements, received / as_float(links.aggregation_bytes_per_s))


#: What is divided: the columns, or the rows.
Phase: TypeAlias = Literal["tensor", "data"]


@flax.struct.dataclass
class Division:
    """One product in parts; leaves "*b"."""

    passes: Float[Array, "*b"]  # that the fullest element makes over the blocks it multiplies
    blocks: Float[Array, "*b"]  # of weights that it multiplies in each pass
    active_share: Float[Array, "*b"]  # of the elements, on average over the product's time, in (0, 1]


def divide(
    phase: Phase, m: Number, blocks: Number, *, elements: Number, reuse: Number, temperature: Number = 0.0
) -> Division:
    """Divide a product.

    Args:
        phase: static.
        m: "*b", > 0; activations.
        blocks: "*b", > 0; blocks of weights.
        elements: "*b", >= 1.
        reuse: "*b", >= 1; activations that a block is multiplied with in one pass.
        temperature: "*b", in [0, 1], of all counts; 0 is exact.
    Raises:
        ValueError: another phase.
    Gradient: as `smooth_ceil_div`.
    """
    m, blocks, count = as_arrays(m, blocks, elements)
    if phase == "tensor":
        rounds = smooth_ceil_div(blocks, count, temperature)
        return Division(smooth_ceil_div(m, reuse, temperature), rounds, blocks / rounds / count)
    if phase == "data":
        rows = smooth_ceil_div(m, count, temperature)
        return Division(smooth_ceil_div(rows, reuse, temperature), blocks, m / rows / count)
    raise ValueError(f"phase is {phase!r}; allowed are 'tensor' and 'data'")


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
