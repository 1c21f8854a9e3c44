"""One step on a group of devices: the share of one device, and the collectives that join the shares.

Collectives of a step, per forward pass of a replica's tokens (r rows of h elements of 16 bits):

    all_reduce   after the embedding, after "o" and after "down" or the experts of each layer, over T devices: r h
    all_gather   of the logits over T devices; of the rows behind experts that tokens were sent to (E > T), over T: r h
    all_to_all   to the experts and back (E > T), over E devices: as many rows as come to the busiest device, to which each
                 one with a choice of its experts is sent
    send         from stage to stage of a pipeline: r h; and what stages wait for the fullest of them

They overlap with nothing, as engines run them by default. A step of P stages takes as long as all layers one after the other,
at one part of the batch; with n parts on their way n times as long as the fullest stage, if that is longer: 61 layers on four
stages are 16 on the fullest, and four parts take as long as 64 layers.

Source: the operators of vLLM, SGLang and TensorRT-LLM as aiconfigurator-core 0.12.0 lists them; Shoeybi et al. 2019,
arXiv:1909.08053, sec. 3. Departs: logits are gathered, which that list leaves out.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.device import Device
from hwmodels.network.architecture import Architecture
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.network.operators import OperatorWork, busiest_load
from hwmodels.network.operators.steps import StepShape
from hwmodels.network.routing import Routing
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.parallel.collectives import COLLECTIVES, Collective, collective_work
from hwmodels.parallel.group import DeviceGroup, fullest_stage, share_of_architecture, share_of_step
from hwmodels.parallel.network_link import collective_time
from hwmodels.step.energy import idle_energy
from hwmodels.step.step_cost import StepCost, step_cost

__all__ = ["group_step"]

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
    work = share.operators(own, routing)
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
    rows = as_float(step.batch) * as_float(step.tokens)
    row_bytes = as_float(architecture.hidden_size) * _ELEMENT_BYTES
    logits = as_float(step.batch) * as_float(step.logit_tokens) * as_float(architecture.vocab_size) * _ELEMENT_BYTES
    # With experts beyond the devices that share a matrix, rows travel to them and back.
    # A step that skips blocks skips what joins them.
    run = jnp.asarray(as_float(step.feed_forward_share))
    away = run * jnp.where(expert > tensor, moe, 0.0)
    joined = layers * as_float(step.attention_share) + layers * run - away
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
