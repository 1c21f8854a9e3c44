"""Everything that one design point is judged by: speed, energy, memory and area, at the best draft length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels.chip.bill import (
    chip_area_parts,
    chip_bill,
    decoder_power,
    die_price,
    encoder_power,
    memory_price,
    path_power,
)
from hwmodels.compute.roofline import unit_of
from hwmodels.device import Device
from hwmodels.network.operators import prefill_step
from hwmodels.numerics.fast_compile import priced_at_once
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE
from hwmodels.parallel.group import held_share
from hwmodels.speculation.acceptance import Acceptance
from hwmodels.speculation.chains import PricedChains, SpeculationResult, best, priced_chains
from hwmodels.speculation.cycle import Case, CycleCost, baseline_steps, plan_steps, price
from hwmodels.speculation.plan import chain_plan
from hwmodels.step.capacity import held_bytes, longest_context
from hwmodels.step.priced_steps import PricedStep, price_steps

__all__ = [
    "DIE_AREA",
    "ELEMENTS",
    "CostTerm",
    "DesignCosts",
    "DesignPoint",
    "Steps",
    "changed_trees",
    "changes_by_name",
    "chip_area",
    "cost_names",
    "design_costs",
    "design_page",
    "design_point",
    "elasticities",
    "leaf_names",
    "page_steps",
    "priced_steps",
]

# Which number of the hardware matters: elasticities of a result by every leaf it depends on.

Tree = TypeVar("Tree")

#: By how much a number of a step function is changed, up and down.
CHANGE = 0.1


def leaf_names(tree: Any) -> list[str]:
    """Names of a tree's leaves in order, as in "memory.bandwidth_bytes_per_s" or "spill.0.capacity_bytes"."""
    return [_name(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def elasticities(metrics: Callable[[Tree], Any], tree: Tree) -> Any:
    """d log(metric) / d log(leaf) for every leaf: by how many percent a metric grows if a number grows by one percent.

    Args:
        metrics: tree -> positive numbers in any form, one number or a dictionary of them; pure, differentiable.
        tree: leaves are single numbers, a Device for instance.
    Returns:
        in the form of `metrics`: name of the leaf -> elasticity; 0 where the metric does not depend on the leaf, and where
        the leaf is 0 or infinite.
    Gradient: itself of the metrics; where one has a kink, a value between the slopes of both sides.
    """
    leaves, treedef = jax.tree.flatten(tree)
    values = [jnp.asarray(as_float(leaf)) for leaf in leaves]
    names = leaf_names(tree)

    def log_metrics(values: list[Array]) -> Any:
        return jax.tree.map(jnp.log, metrics(treedef.unflatten(values)))

    jacobian = jax.jacrev(log_metrics)(values)

    def by_name(gradient: list[Array]) -> dict[str, Float[Array, ""]]:
        # An infinite leaf ("no limit") has elasticity 0, not infinity times zero.
        products = [jnp.where(jnp.isfinite(v), v * g, 0.0) for v, g in zip(values, gradient, strict=True)]
        return dict(zip(names, products, strict=True))

    return jax.tree.map(by_name, jacobian, is_leaf=lambda node: isinstance(node, list))


def changed_trees(tree: Tree, names: Sequence[str], change: float = CHANGE) -> Tree:
    """The tree with each of some leaves grown, then shrunk, one at a time; leaves "two".

    For elasticities of numbers that a derivative says nothing of, such as the sides of an array: tiles are counted in steps.

    Args:
        tree: leaves are single numbers.
        names: static; of the leaves that are changed, as `leaf_names` has them.
        change: static, > 0.
    """
    leaves, treedef = jax.tree.flatten(tree)
    known = leaf_names(tree)
    factors = np.ones((len(leaves), 2 * len(names)), np.float32)
    for place, name in enumerate(names):
        factors[known.index(name), 2 * place : 2 * place + 2] = 1.0 + change, 1.0 / (1.0 + change)
    return treedef.unflatten([as_float(leaf) * row for leaf, row in zip(leaves, factors, strict=True)])


def changes_by_name(logs: Any, names: Sequence[str], change: float = CHANGE) -> Any:
    """Elasticities from logarithms of metrics on `changed_trees`, "two": in their form, name of the leaf -> elasticity.

    log(metric at leaf * (1 + change) / metric at leaf / (1 + change)) / (2 log(1 + change)).
    """
    step = 2.0 * math.log1p(change)
    return jax.tree.map(lambda each: dict(zip(names, (each[::2] - each[1::2]) / step, strict=True)), logs)


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(getattr(key, "name", getattr(key, "idx", getattr(key, "key", key)))) for key in path)


@flax.struct.dataclass
class Steps:
    """The steps that decoding consists of, each of all sequences together."""

    prefill: PricedStep
    ar_bf16: PricedStep  # autoregressive, uncompressed
    ar_stored: PricedStep  # autoregressive, as it is stored
    draft: PricedStep
    verify: PricedStep


@flax.struct.dataclass
class DesignPoint:
    """Results of one design point; leaves are "*b". Energies and area are None where the device's are not known."""

    draft_length: Int[Array, "*b"]  # 0: no draft pays
    tokens_per_cycle: Float[Array, "*b"]
    cycle_s: Float[Array, "*b"]
    tokens_per_s: Float[Array, "*b"]  # of all sequences together
    speedup_vs_bf16_ar: Float[Array, "*b"]
    speedup_vs_stored_ar: Float[Array, "*b"]
    ar_bf16_s: Float[Array, "*b"]  # per token of one sequence
    ar_stored_s: Float[Array, "*b"]
    held_bytes: Float[Array, "*b"]  # weights and KV as they are stored, on one device
    capacity_bytes: Float[Array, "*b"]  # of all memories of one device
    longest_context_tokens: Float[Array, "*b"]  # per sequence, with this batch
    output_s: Float[Array, "*b"]  # to decode a sequence's output tokens, at this context
    energy_per_token_j: Float[Array, "*b"] | None  # per token and sequence
    energy_per_token_ar_bf16_j: Float[Array, "*b"] | None
    area_m2: Float[Array, "*b"] | None  # of the chip with its decoders; None where it is not known: see `chip_area`


@priced_at_once
def priced_steps(case: Case, draft_length: Number, *, temperature: Number = 0.0) -> Steps:
    """Work, time and energy of every step, with a draft of the target's shapes.

    Args:
        draft_length: >= 0; a verification has one token more.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
    """
    prefill, plan = prefill_step(case.workload, footprint=case.footprint), case.draft.plan(draft_length)
    steps = [prefill, *baseline_steps(case), *plan_steps(case, plan)]
    priced = price_steps(case.device, case.architecture, steps, routing=case.routing, temperature=temperature)
    prefill, bf16, stored, drafts, verify = priced
    return Steps(prefill, bf16, stored, jax.tree.map(lambda leaf: leaf[0], drafts), verify)


@priced_at_once
def design_point(
    case: Case, result: SpeculationResult, *, temperature: Number = 0.0, cycle: CycleCost | None = None
) -> DesignPoint:
    """Speed, energy and memory at the best draft length, "do not speculate" among them.

    Args:
        result: of `priced_chains` for the same case and temperature.
        temperature: one number in [0, 1], of the smooth maximum; 0 is exact.
        cycle: of the same chains, where its energies of all lengths are to be used; None: those of the chosen length are
            priced on their own, which takes less time where many points are priced, and compiles for longer.
    Gradient: that of the chosen draft length, which itself is piecewise constant.
    """
    device, architecture, workload, footprint = case.device, case.architecture, case.workload, case.footprint
    chosen = best(result)
    batch = as_float(workload.batch)
    stored = {"weight_bits": footprint.target_weight_bits, "kv_bits": footprint.target_kv_bits}
    share, load = held_share(device.group, architecture, workload)
    capacity = sum(as_float(tier.capacity_bytes) for tier in device.tiers)
    energy = ar_energy = None
    if device.knows_energy:
        if cycle is None:
            cycle = price(case, case.draft.plan(chosen.draft_length), temperature=temperature)
            cycle_j = cycle.energy_j
        else:
            cycle_j = None if cycle.energy_j is None else cycle.energy_j[jnp.maximum(chosen.draft_length - 1, 0)]
        ar, plain = cycle.baselines.bf16.cost.energy, cycle.baselines.stored.cost.energy
        if cycle_j is not None and plain is not None:
            # A cycle without a draft is a step of what is stored.
            energy = jnp.where(chosen.draft_length > 0, cycle_j, plain.total_j) / chosen.tokens_per_cycle / batch
        ar_energy = None if ar is None else ar.total_j / batch
    return DesignPoint(
        **vars(chosen),
        tokens_per_s=batch * chosen.tokens_per_cycle / chosen.cycle_s,
        ar_bf16_s=result.ar_bf16_s,
        ar_stored_s=result.ar_stored_s,
        held_bytes=_held(case),
        capacity_bytes=jnp.asarray(capacity),
        longest_context_tokens=longest_context(share, budget_bytes=capacity, batch=load.batch, **stored),
        output_s=as_float(workload.output_tokens) * chosen.cycle_s / chosen.tokens_per_cycle,
        energy_per_token_j=energy,
        energy_per_token_ar_bf16_j=ar_energy,
        area_m2=chip_area(device),
    )


def _held(case: Case) -> Float[Array, "*b"]:
    """Bytes on one device; a second copy of the target's weights for the draft is not among them."""
    if case.draft.architecture is not None:
        return case.held_bytes
    workload, footprint = case.workload, case.footprint
    share, load = held_share(case.device.group, case.architecture, workload)
    return held_bytes(
        share,
        batch=load.batch,
        context_tokens=workload.context_tokens,
        shared_tokens=workload.shared_tokens,
        weight_bits=footprint.target_weight_bits,
        kv_bits=footprint.target_kv_bits,
    ).total


def design_page(case: Case, acceptance: Acceptance, *, temperature: Number = 0.0) -> tuple[PricedChains, DesignPoint]:
    """Chains of all lengths with what `page_steps` needs, and the design point, all priced in one map; within a program.

    Args:
        acceptance: conditional " position".
        temperature: as of `design_point`.
    """
    case = case.pooled
    _, undrafted = plan_steps(case, chain_plan(0.0))
    also = prefill_step(case.workload, footprint=case.footprint), undrafted
    chains = priced_chains(case, acceptance, temperature=temperature, also=also)
    return chains, design_point(case, chains.result, temperature=temperature, cycle=chains.cycle)


def page_steps(chains: PricedChains, draft_length: int) -> Steps:
    """Steps of one draft length among chains of `design_page`, on the host."""
    prefill, undrafted = chains.cycle.also
    # Chains have one kind of draft step; blocks have one for each length.
    kind = max(draft_length - 1, 0) if chains.cycle.draft.cost.total_s.shape[0] > 1 else 0
    return Steps(
        prefill,
        chains.cycle.baselines.bf16,
        chains.cycle.baselines.stored,
        draft=jax.tree.map(lambda leaf: leaf[kind], chains.cycle.draft),
        verify=jax.tree.map(lambda leaf: leaf[draft_length - 1], chains.cycle.verify) if draft_length else undrafted,
    )


def chip_area(device: Device) -> Float[Array, "*b"] | None:
    """Area of the die: its fixed part, the elements of its matrix unit, decoders, encoders; by technology, `chip_area_parts`.

    Args:
        device: leaves "*b".
    Returns:
        "*b", m^2; None without a `chip` or its area, and where the device has a matrix unit but no area of its elements: a
        constant would say that a larger array costs nothing.
    Gradient: smooth, by the number of elements too.
    """
    if device.technology is not None:
        return chip_area_parts(device, device.technology).total
    if device.chip is None or device.chip.area_m2 is None:
        return None
    coders = [one.total_area_m2 for one in (device.decoder, device.encoder) if one is not None]
    fixed = jnp.asarray(sum(coders, start=as_float(device.chip.area_m2)))
    if device.matrix_unit is None:
        return fixed
    elements = unit_of(device).elements
    if elements is None or device.chip.element_area_m2 is None:
        return None
    return fixed + as_float(elements) * as_float(device.chip.element_area_m2)


# What a device costs as a function of its numbers: area of the die, power at full load, off-package bandwidth, a price.

#: Name of the number of equal elements of the matrix unit.
ELEMENTS = "elements"

#: Name of the area of the die, its terms included; itself in terms of power and price only.
DIE_AREA = "die_area_m2"


@flax.struct.dataclass
class CostTerm:
    """What a product of powers of numbers costs; the coefficients are leaves, "*b"."""

    of: tuple[tuple[str, float], ...] = flax.struct.field(pytree_node=False)  # name of `cost_names` and its exponent
    area_m2: Leaf = 0.0
    power_w: Leaf = 0.0
    price: Leaf = 0.0


@flax.struct.dataclass
class DesignCosts:
    """Costs of a device; each "*b"."""

    area_m2: Float[Array, "*b"]  # of the die, as far as device and terms say
    power_w: Float[Array, "*b"]  # with everything busy at once
    bandwidth_bytes_per_s: Float[Array, "*b"]  # of memories outside: neither bonded to compute units nor on the chip
    price: Float[Array, "*b"]


def cost_names(device: Device) -> list[str]:
    """Numbers that terms may name: the device's leaves, the elements of its matrix unit where it has any, the die's area."""
    elements = [] if unit_of(device).elements is None else [ELEMENTS]
    return [*leaf_names(device), *elements, DIE_AREA]


def design_costs(device: Device, terms: Sequence[CostTerm] = ()) -> DesignCosts:
    """Costs of a device.

    Args:
        device: leaves "*b".
        terms: beside what the device itself says; static number.
    Returns:
        costs; with a technology, a die that terms make larger leaks and is priced as a whole. A term by the die's area adds
        none to it.
    Raises:
        ValueError: a term names something else than `cost_names`.
    Gradient: smooth.
    """
    numbers = dict(zip(leaf_names(device), map(as_float, jax.tree.leaves(device)), strict=True))
    elements = unit_of(device).elements
    if elements is not None:
        numbers[ELEMENTS] = as_float(elements)
    own_area = area = _own_area(device)
    for term in terms:
        if all(name != DIE_AREA for name, _ in term.of):
            area = area + as_float(term.area_m2) * _product(term, numbers)
    numbers[DIE_AREA] = area
    power, price = _own_power(device), jnp.zeros(())
    if device.technology is not None:
        power = power + (area - own_area) * as_float(device.technology.static_w_per_m2)
        price = die_price(area, device.technology) + memory_price(device, device.technology)
    for term in terms:
        product = _product(term, numbers)
        power = power + as_float(term.power_w) * product
        price = price + as_float(term.price) * product
    tiers = [tier for tier in device.tiers if not (tier.coupled or tier.on_chip)]
    bandwidth = sum((as_float(tier.bandwidth_bytes_per_s) for tier in tiers), jnp.zeros(()))
    return DesignCosts(*map(jnp.asarray, (area, power, bandwidth, price)))


def _product(term: CostTerm, numbers: dict[str, Leaf]) -> Leaf:
    product: Leaf = 1.0
    for name, exponent in term.of:
        if name not in numbers:
            raise ValueError(f"a cost names {name!r}; known are {', '.join(numbers)}")
        product = product * numbers[name] ** exponent
    return product


def _own_area(device: Device) -> Leaf:
    """Of the die as far as the device says: terms add what its elements take where it does not."""
    whole = chip_area(device)
    if whole is not None:
        return whole
    fixed = 0.0 if device.chip is None or device.chip.area_m2 is None else as_float(device.chip.area_m2)
    coders = [one.total_area_m2 for one in (device.decoder, device.encoder) if one is not None]
    return jnp.asarray(sum(coders, start=fixed))


def _own_power(device: Device) -> Leaf:
    """By technology; else static power, decoders, encoders, memories, links and a roofline's arithmetic at full rate."""
    if device.technology is not None:
        return chip_bill(device).power_w
    power: Leaf = path_power(device)
    for tier in device.tiers:
        if tier.energy_j_per_bit is not None:
            power = power + as_float(tier.bandwidth_bytes_per_s) * BITS_PER_BYTE * as_float(tier.energy_j_per_bit)
    if device.decoder is not None:
        power = power + decoder_power(device.decoder)
    if device.encoder is not None:
        power = power + encoder_power(device.encoder)
    if device.chip is not None:
        power = power + as_float(device.chip.static_power_w)
        if device.matrix_unit is None:
            power = power + as_float(device.peak_flops_per_s) * as_float(device.chip.energy_j_per_flop)
    return jnp.asarray(power)
