"""Steps of a network on a device: what each executes and what it costs, all of them through one map."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.network.architecture import KINDS, UNCOMPRESSED_BITS, Architecture, ffn_layers
from hwmodels.network.operators import OperatorWork, StepShape, busiest_load, step_operators
from hwmodels.network.operators.step import WEIGHT_BITS, widths_of_kinds
from hwmodels.network.routing import UNIFORM, Routing
from hwmodels.numerics.fast_compile import in_small_program, priced_at_once
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.parallel.collectives import COLLECTIVES, Collective, collective_time, collective_work
from hwmodels.parallel.group import DeviceGroup, fullest_stage, share_of_architecture, share_of_step
from hwmodels.step.energy import idle_energy
from hwmodels.step.step_cost import StepCost, step_cost

__all__ = [
    "PricedStep",
    "group_step",
    "price_steps",
]


Result = TypeVar("Result")


def cached_trace(function: Callable[..., Result]) -> Callable[..., Result]:
    """The function, a program of its own within compiled ones.

    Of its arguments, pytrees, Python numbers stay what they are: known while it is traced. Called with arrays at hand it runs
    as it is.
    """

    @functools.partial(jax.jit, static_argnums=(0, 1, 2))
    def once(small: bool, treedef: Any, known: tuple[tuple[type, Any] | None, ...], traced: list[Any]) -> Result:
        left = iter(traced)
        leaves = [next(left) if number is None else number[1] for number in known]
        arguments, named = treedef.unflatten(leaves)
        return function(*arguments, **named)

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Result:
        leaves, treedef = jax.tree.flatten((arguments, named))
        traced = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
        # The type too: 1, 1.0 and True are equal.
        known = tuple(None if isinstance(leaf, Tracer) else (type(leaf), leaf) for leaf in leaves)
        if not traced or not all(number is None or number[0] in (bool, int, float) for number in known):
            return function(*arguments, **named)
        return once(in_small_program(), treedef, known, traced)

    return call


_ELEMENT_BYTES = UNCOMPRESSED_BITS / BITS_PER_BYTE


def group_step(
    device: Device, architecture: Architecture, step: StepShape, *, routing: Routing, temperature: Number = 0.0
) -> tuple[OperatorWork, StepCost]:
    """Work of one device and cost of a step of all sequences on a device's group.

    Times are the step's; work and traffic are one device's; energy is that of all devices, busy ones as busy as the busiest.

    Args:
        device: with a group, and one memory; leaves are single numbers.
        architecture, step: of the whole network, and of all sequences.
        routing, temperature: as of `price_steps`.
    Raises:
        ValueError: several memories.
    """
    group: DeviceGroup = device.group
    if device.spill:
        raise ValueError(
            f"a group of devices came, each with {1 + len(device.spill)} memories; groups are modelled for devices with one: "
            "leave the parallelism out, or give another device"
        )
    own, share = share_of_architecture(group, architecture), share_of_step(group, step)
    work = step_operators(own, share, routing)
    alone = step_cost(device, work, temperature=temperature)
    collective_s, sent_bytes = _collectives(group, architecture, share, routing)
    stage, parts = fullest_stage(group, architecture), as_float(step.batch) / share.batch
    underway = jnp.minimum(parts / as_float(group.data_parallel), as_float(group.pipeline))
    waited_s = (alone.total_s + jnp.sum(collective_s, axis=-1)) * jnp.maximum(underway * stage - 1.0, 0.0)
    collective_s = collective_s.at[..., COLLECTIVES.index("send")].add(waited_s)
    total_s = alone.total_s + jnp.sum(collective_s, axis=-1)
    stored = work.stored
    assert stored is not None
    work = dataclasses.replace(
        work,
        stored=dataclasses.replace(
            stored,
            # Of one part of the batch and all layers: as much as all parts on one stage, if all have as many layers.
            kv=stored.kv * stage * as_float(group.pipeline),
            dense=stored.dense * stage,
            experts=stored.experts * stage,
            by_the_row=stored.by_the_row * stage,
        ),
    )
    # Parts of the batch that run somewhere in the group, each on as many devices as share a matrix.
    busy = parts * as_float(group.tensor_parallel)
    energy = alone.energy
    if energy is not None:
        per_bit = 0.0 if group.link.energy_j_per_bit is None else as_float(group.link.energy_j_per_bit)
        bits = BITS_PER_BYTE * sent_bytes * per_bit
        energy = dataclasses.replace(
            energy,
            arithmetic_j=energy.arithmetic_j * busy,
            memory_j=energy.memory_j * busy,
            link_j=(energy.link_j + bits) * busy,
            decoder_j=energy.decoder_j * busy,
            encoder_j=energy.encoder_j * busy,
            static_j=idle_energy(device, total_s),
        )
    cost = dataclasses.replace(
        alone,
        total_s=total_s,
        collective_s=collective_s,
        memory_j=None if alone.memory_j is None else alone.memory_j * busy,
        energy=energy,
    )
    return work, cost


def _collectives(
    group: DeviceGroup, architecture: Architecture, step: StepShape, routing: Routing
) -> tuple[Float[Array, "... collective"], Float[Array, "*b"]]:
    """Seconds by collective of all layers, over `COLLECTIVES`, and bytes that one device sends.

    Args:
        architecture: the whole network's.
        step: of one replica, with its `expert_sharing`.
    """
    tensor, expert = (jnp.asarray(as_float(n)) for n in (group.tensor_parallel, group.expert_parallel))
    layers, moe = (jnp.asarray(as_float(n)) for n in (architecture.num_layers, architecture.num_moe_layers))
    feed_forward = jnp.asarray(ffn_layers(architecture))
    rows = as_float(step.batch) * as_float(step.tokens)
    row_bytes = as_float(architecture.hidden_size) * _ELEMENT_BYTES
    logits = as_float(step.batch) * as_float(step.logit_tokens) * as_float(architecture.vocab_size) * _ELEMENT_BYTES
    # With experts beyond the devices that share a matrix, rows travel to them and back.
    # A step that skips blocks skips what joins them.
    run = jnp.asarray(as_float(step.feed_forward_share))
    away = run * jnp.where(expert > tensor, moe, 0.0)
    joined = layers * as_float(step.attention_share) + feed_forward * run - away
    chosen = as_float(architecture.experts_per_token)
    assert step.expert_sharing is not None
    # The exchange ends when the busiest device has all of its rows.
    busiest = busiest_load(
        architecture.num_experts,
        chosen,
        step.tokens,
        devices=expert,
        sequences=as_float(step.batch) * as_float(step.expert_sharing.replicas),
        routing=routing,
        pool_experts=step.pool_experts,
    )
    copies = expert * -jnp.expm1(chosen * jnp.log1p(-jnp.minimum(busiest / expert, 1.0 - 1e-6)))
    sent = rows / tensor * copies * row_bytes
    zero = jnp.zeros_like(sent)
    wanted: dict[Collective, list[tuple[Array, Array, Array]]] = {  # launches, message of each, devices
        "all_reduce": [(1.0 + joined, rows * row_bytes + zero, tensor)],
        "all_gather": [(jnp.ones_like(zero), logits + zero, tensor), (away, rows * row_bytes + zero, tensor)],
        "all_to_all": [(2.0 * away, sent, expert)],
        "send": [
            (as_float(group.pipeline) - 1.0 + zero, rows * row_bytes + zero, jnp.maximum(as_float(group.pipeline), 1.0))
        ],
    }
    seconds, moved = [], zero
    for collective in COLLECTIVES:
        one = zero
        for launches, message, devices in wanted.get(collective, []):
            one = one + launches * collective_time(group.link, collective, message, devices=devices)
            algorithm = (
                "one_shot" if collective == "send" else "ring"
            )  # what a ring sends is the least that can be sent
            work = collective_work(collective, algorithm, message, devices)
            moved = moved + jnp.where(devices > 1.0, launches * work.sent_bytes, 0.0)
        seconds.append(one)
    return jnp.stack(seconds, axis=-1), moved


@flax.struct.dataclass
class PricedStep:
    """One step, or "*g" of them: what it executes and what that costs."""

    work: OperatorWork
    cost: StepCost


@priced_at_once
def price_steps(
    device: Device,
    architecture: Architecture,
    groups: Sequence[StepShape],
    *,
    routing: Routing = UNIFORM,
    temperature: Number = 0.0,
) -> list[PricedStep]:
    """Price groups of steps of one network, all in one map: a program holds the model of a step once.

    On a device that is one of several (`Device.group`) a step is that of all of them together: see `group_step`.

    Args:
        device, architecture: leaves are single numbers; `vmap` for more.
        groups: of each the leaves broadcast to "*g", () for a single step.
        routing: of all steps' tokens, popularity "expert"; uniform and independent unless given.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    Returns:
        for each group its steps, leaves "*g ...".
    """
    packed: dict[int, Array] = {}  # bits that several groups have are put in a row once
    groups = [group.complete for group in groups]
    leaves = [_leaves(group, packed) for group in groups]
    shapes = [np.broadcast_shapes(*(leaf.shape[: leaf.ndim - own] for leaf, own in each)) for each in leaves]
    if all(leaf.ndim == own for each in leaves for leaf, own in each):
        leaves[0] = [(leaf[None], own) for leaf, own in leaves[0]]  # at least one number has a row for each step
    rows, common = [], []
    for each in zip(*leaves, strict=True):
        # What all steps have in common is computed once for all.
        alike = each[0][0].ndim == each[0][1] and all(leaf is each[0][0] for leaf, _ in each)
        common.append(each[0][0] if alike else None)
        rows.append(
            None
            if alike
            else jnp.concatenate([_rows(leaf, own, s) for (leaf, own), s in zip(each, shapes, strict=True)])
        )
    structure = jax.tree.structure(_with_bits(groups[0], [0.0] * len(WEIGHT_BITS)))
    priced = _price_rows(
        device,
        architecture,
        structure.unflatten(rows),
        structure.unflatten(common),
        routing=routing,
        temperature=temperature,
    )
    leaves, treedef = jax.tree.flatten(priced)
    parts = [jax.lax.split(leaf, [math.prod(shape) for shape in shapes]) for leaf in leaves]
    return [
        treedef.unflatten([part if len(shape) == 1 else part.reshape(*shape, *part.shape[1:]) for part in group])
        for group, shape in zip(zip(*parts, strict=True), shapes, strict=True)
    ]


def _with_bits(step: StepShape, bits: Sequence[Any]) -> StepShape:
    """The step with other bits: in a row while steps are gathered, as a name for each kind would be sixty columns."""
    return dataclasses.replace(step, **dict(zip(WEIGHT_BITS, bits, strict=True)))


def _leaves(step: StepShape, packed: dict[int, Array]) -> list[tuple[Array, int]]:
    """Arrays of a step, and how many axes of each are its own, behind those of the group."""

    def packed_once(name: str) -> Array:
        bits = getattr(step, name)
        if id(bits) not in packed:
            widths = [jnp.asarray(each) for each in widths_of_kinds(bits, name).values()]
            packed[id(bits)] = jnp.stack(jnp.broadcast_arrays(*widths), axis=-1)
        return packed[id(bits)]

    own = jax.tree.leaves(_with_bits(jax.tree.map(lambda _: 0, step), [1] * len(WEIGHT_BITS)))
    leaves = jax.tree.leaves(_with_bits(step, [packed_once(name) for name in WEIGHT_BITS]))
    return [(jnp.asarray(as_float(leaf)), axes) for leaf, axes in zip(leaves, own, strict=True)]


def _rows(leaf: Array, own: int, shape: tuple[int, ...]) -> Float[Array, "row ..."]:
    ends = leaf.shape[leaf.ndim - own :]
    whole = np.broadcast_shapes(leaf.shape[: leaf.ndim - own], shape)
    return jnp.broadcast_to(leaf, (*whole, *ends)).reshape(-1, *ends)


@cached_trace
def _price_rows(
    device: Device,
    architecture: Architecture,
    rows: StepShape,
    common: StepShape,
    *,
    routing: Routing,
    temperature: Number,
) -> PricedStep:
    """Steps and their costs, leaves "row ...".

    Args:
        rows: what steps differ by, leaves "row"; bits are " kind" behind that.
        common: what they have in common; of both each leaf is None in the other.
    """

    def price(own: StepShape) -> PricedStep:
        missing = lambda leaf: leaf is None
        step = jax.tree.map(lambda row, other: other if row is None else row, own, common, is_leaf=missing)
        by_kind = [dict(zip(KINDS, jnp.unstack(getattr(step, name)), strict=True)) for name in WEIGHT_BITS]
        step = _with_bits(step, by_kind)
        if device.group is not None:
            return PricedStep(*group_step(device, architecture, step, routing=routing, temperature=temperature))
        work = step_operators(architecture, step, routing)
        return PricedStep(work, step_cost(device, work, temperature=temperature))

    return jax.vmap(price)(rows)
