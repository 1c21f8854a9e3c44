"""One design: how fast it decodes at its best draft, what a token takes, and what the device costs. Pure and differentiable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from hwmodels.analysis.design_costs import CostTerm, design_costs
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import GIGA, MILLI
from hwmodels.speculation.cycle import price_cycle
from hwmodels.step.capacity import held_bytes
from jaxspec.compress.footprint_table import FootprintTable
from jaxspec.studies.codesign.family import Family
from jaxspec.studies.codesign.variables import Variables
from jaxspec.studies.design_tree import draft_of, footprint_of
from jaxspec.tuning.acceptance_law import AcceptanceByKnobs

__all__ = ["DesignNumbers", "Model", "price_at", "price_tree"]

_MM2 = MILLI * MILLI


@struct.dataclass
class Model:
    """All that prices designs of one problem, but the variables' values.

    Attributes:
        leaves: of the design tree, by which variables are replaced.
        places: static; number of each variable's leaf.
    """

    leaves: tuple[Any, ...]
    variables: Variables
    table: FootprintTable
    law: AcceptanceByKnobs
    family: Family
    terms: tuple[CostTerm, ...]
    treedef: Any = struct.field(pytree_node=False)
    places: tuple[int, ...] = struct.field(pytree_node=False)

    def tree(self, values: Float[Array, " variable"]) -> dict[str, Any]:
        """The design tree with these numbers."""
        leaves = list(self.leaves)
        for i, place in enumerate(self.places):
            leaves[place] = values[i]
        return self.treedef.unflatten(leaves)


@struct.dataclass
class DesignNumbers:
    """Results and costs of a design; each "*b"."""

    tokens_per_s: Float[Array, "*b"]  # of all sequences together, at the best draft
    tokens_per_j: Float[Array, "*b"] | None  # None where an energy is not known
    draft_tokens: Float[Array, "*b"]  # nodes of the best draft; 0: none pays
    tokens_per_cycle: Float[Array, "*b"]
    acceptance: Float[Array, "*b"]  # of the first position
    speedup_vs_stored_ar: Float[Array, "*b"]
    area_mm2: Float[Array, "*b"]
    power_w: Float[Array, "*b"]
    bandwidth_gb_per_s: Float[Array, "*b"]
    price: Float[Array, "*b"]
    held_share: Float[Array, "*b"]  # of all memories' capacity that weights and KV take


def price_at(
    model: Model, place: Float[Array, " variable"], *, temperature: Number, by_energy: bool = False
) -> DesignNumbers:
    """A design at a place of the unit cube, with footprints read from the table. Arguments: `price_tree`."""
    tree = model.tree(model.variables.values(place))
    bits = tree["footprint"] | model.table.widths(tree["draft"])
    return price_tree(model, tree, bits, temperature=temperature, by_energy=by_energy)


def price_tree(
    model: Model, tree: Mapping[str, Any], bits: Mapping[str, Any], *, temperature: Number, by_energy: bool = False
) -> DesignNumbers:
    """A design with these numbers.

    Args:
        tree: see `jaxspec.studies.design_tree.design_tree`; leaves are single numbers.
        bits: widths that draft and verification read.
        temperature: of maxima and tile counts; 0 is exact.
        by_energy: static; whether the best draft is the one of least energy instead of time.
    Gradient: that of the best draft, which itself is piecewise constant.
    """
    device, architecture, workload = tree["device"], tree["architecture"], tree["workload"]
    footprint, experts = footprint_of(bits), draft_of(tree)
    parts = {"workload": workload, "footprint": footprint}
    cycle = price_cycle(
        device,
        architecture,
        draft_cost=experts.draft_cost(device, architecture, **parts),
        routing=experts.routing,
        plan=model.family.plan,
        engine=tree["engine"],
        temperature=temperature,
        **parts,
    )
    conditional = model.law.conditional(tree["draft"], model.family.depth)
    stored = cycle.baselines.stored.cost
    with_none = lambda first, rest: jnp.concatenate([jnp.atleast_1d(first), rest])
    tokens = with_none(jnp.ones(()), model.family.tokens(conditional))
    nodes = with_none(jnp.zeros(()), jnp.asarray(model.family.nodes))
    seconds = with_none(stored.total_s, cycle.total_s) / tokens
    batch, joules = as_float(workload.batch), None
    tiers = device.tiers
    known = all(tier.energy_j_per_bit is not None for tier in tiers)
    if known and cycle.energy_j is not None and stored.energy is not None:
        joules = with_none(stored.energy.total_j, cycle.energy_j) / tokens / batch
    best = jnp.argmin(joules if by_energy and joules is not None else seconds)
    costs = design_costs(device, model.terms)
    held = held_bytes(
        architecture,
        batch=batch,
        context_tokens=workload.context_tokens,
        shared_tokens=workload.shared_tokens,
        weight_bits=footprint.target_weight_bits,
        kv_bits=footprint.target_kv_bits,
    )
    capacity = sum(as_float(tier.capacity_bytes) for tier in tiers)
    return DesignNumbers(
        tokens_per_s=batch / seconds[best],
        tokens_per_j=None if joules is None else 1.0 / joules[best],
        draft_tokens=nodes[best],
        tokens_per_cycle=tokens[best],
        acceptance=conditional[0],
        speedup_vs_stored_ar=seconds[0] / seconds[best],
        area_mm2=costs.area_m2 / _MM2,
        power_w=costs.power_w,
        bandwidth_gb_per_s=costs.bandwidth_bytes_per_s / GIGA,
        price=costs.price,
        held_share=jnp.asarray(held.total / capacity),
    )


def priced_rows(found: DesignNumbers) -> list[dict[str, float]]:
    """A dictionary of numbers for each of a batch of designs."""
    columns = {k: v for k, v in vars(jax.device_get(found)).items() if v is not None}
    return [{k: float(v[i]) for k, v in columns.items()} for i in range(len(columns["tokens_per_s"]))]
