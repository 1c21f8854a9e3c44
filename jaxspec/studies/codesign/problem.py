"""A problem whose names and numbers are known to be right, as functions that a search calls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from hwmodels import Plan, price
from hwmodels.analysis.design_point import DIE_AREA, CostTerm, cost_names, design_costs, leaf_names
from hwmodels.catalog.entries import near_matches
from hwmodels.chip.blocks import Technology
from hwmodels.device import Device
from hwmodels.network.architecture import Footprint
from hwmodels.numerics.compensated_sums import EXACT, exact_matmul
from hwmodels.numerics.fields import Rule
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import GIGA, MILLI
from hwmodels.speculation.plan import ROOT, chain_plan, node_depths, plan_family, tree_plan
from hwmodels.step.capacity import held_bytes
from jaxspec.compress.footprint_table import FootprintTable, expected_widths, footprint_table
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.studies.codesign.config import BUDGETS, Bounds, CodesignConfig, Cost
from jaxspec.studies.design_tree import case_of, check_value, design_tree, footprint_of, knob_name, number_rules
from jaxspec.studies.given_acceptance import FoundLaw, resolve_acceptance
from jaxspec.trees.searches import optimal_tree, optimal_trees
from jaxspec.tuning.acceptance_law import AcceptanceByKnobs

#: Last parts of the names of numbers that count something.
COUNTED = frozenset(
    ("block_columns", "block_depth", "columns", "count", "macs_per_pe", "parallel_tokens", "pe_columns", "pe_rows", "pes",
     "reuse", "rows")
)  # fmt: skip


@struct.dataclass
class Variables:
    """Ends and scales; leaves are " variable".

    Attributes:
        low, high: ends, multiples of the step where there is one.
        log: 1 where the scale is logarithmic, 0 where it is linear because an end is 0 or below.
        names: static.
        steps: static; values are multiples of it; None: any value.
    """

    low: Float[np.ndarray, " variable"]
    high: Float[np.ndarray, " variable"]
    log: Float[np.ndarray, " variable"]
    names: tuple[str, ...] = struct.field(pytree_node=False)
    steps: tuple[float | None, ...] = struct.field(pytree_node=False)

    def values(self, place: Float[Array, " variable"]) -> Float[Array, " variable"]:
        """Numbers at a place of the unit cube, for programs."""
        low, high, log = map(jnp.asarray, (self.low, self.high, self.log))
        ratio = jnp.where(log > 0, high / jnp.where(log > 0, low, 1.0), 1.0)
        return jnp.where(log > 0, jnp.where(log > 0, low, 1.0) * ratio**place, low + place * (high - low))

    def places(self, values: np.ndarray) -> np.ndarray:
        """Places of numbers, on the host, in double precision; outside of the ends the nearest one."""
        clipped = np.clip(values, self.low, self.high)
        safe = np.where(self.log > 0, self.low, 1.0)
        top = np.where(self.log > 0, self.high, np.e)
        logarithmic = np.log(np.where(self.log > 0, clipped, 1.0) / safe) / np.log(top / safe)
        return np.where(self.log > 0, logarithmic, (clipped - self.low) / (self.high - self.low))

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """Numbers at places of the unit cube, on the host, in double precision."""
        safe = np.where(self.log > 0, self.low, 1.0)
        ratio = np.where(self.log > 0, self.high / safe, 1.0)
        return np.where(self.log > 0, safe * ratio**places, self.low + places * (self.high - self.low))

    def stepped(self, places: np.ndarray) -> np.ndarray:
        """As `numbers`, those with a step at their nearest multiples."""
        stepped = self.numbers(places)
        for i, step in enumerate(self.steps):
            if step is not None:
                stepped[..., i] = np.clip(np.round(stepped[..., i] / step) * step, self.low[i], self.high[i])
        return stepped

    def neighbours(self, i: int, value: float) -> list[float]:
        """The multiples of a variable's step on both sides of a value, within its ends; one where it is one of them."""
        step = self.steps[i]
        if step is None:
            return [value]
        below, above = np.floor(value / step + 1e-6) * step, np.ceil(value / step - 1e-6) * step
        return sorted({float(np.clip(one, self.low[i], self.high[i])) for one in (below, above)})


def variables_of(bounds: dict[str, Bounds], whole: set[str]) -> Variables:
    """Variables from their settings.

    Args:
        whole: names whose step is 1 unless given.
    Raises:
        InputError: fewer than two multiples of the step between the ends.
    """
    lows, highs, steps = [], [], []
    for name, ends in bounds.items():
        step = 1.0 if ends.step is None and (name in whole or name.rpartition(".")[2] in COUNTED) else ends.step
        low, high = ends.first, ends.last
        if step is not None:
            low, high = np.ceil(low / step - 1e-9) * step, np.floor(high / step + 1e-9) * step
            if not low < high:
                raise InputError(
                    f"variables.{name} has no two multiples of {step:g} from {ends.first:g} to {ends.last:g}; widen it"
                )
        lows.append(float(low) + 0.0)  # not −0
        highs.append(float(high) + 0.0)
        steps.append(step)
    low, high = np.array(lows), np.array(highs)
    return Variables(low, high, (low > 0).astype(float), tuple(bounds), tuple(steps))


#: Chances are kept off 0, whose logarithm has no slope.
_LEAST = 1e-9


@struct.dataclass
class Family:
    """Drafts to choose from.

    Attributes:
        plan: leaves "draft".
        passes: how often the path to a node passes each depth and rank.
        member: 1 where a node belongs to a draft.
        nodes: drafted tokens of each.
        shares: of what the first choice misses, by rank from the second on.
    """

    plan: Plan
    passes: Float[np.ndarray, "node depth rank"]
    member: Float[np.ndarray, "draft node"]
    nodes: Float[np.ndarray, " draft"]
    shares: Float[np.ndarray, " other"]

    @property
    def depth(self) -> int:
        """Deepest node."""
        return self.passes.shape[1]

    def tokens(self, conditional: Float[Array, " depth"]) -> Float[Array, " draft"]:
        """Expected tokens per cycle of each draft, bonus token included.

        Args:
            conditional: chance of the first choice at each depth, given that its parent is accepted.
        """
        others = (1.0 - conditional)[:, None] * jnp.asarray(self.shares)[None]
        chances = jnp.concatenate([conditional[:, None], others], axis=1)
        logs = jnp.log(jnp.maximum(chances, _LEAST))
        reached = jnp.exp(jnp.einsum("ndr,dr->n", jnp.asarray(self.passes), logs, precision=EXACT))
        return 1.0 + exact_matmul(jnp.asarray(self.member), reached)


def _family(trees: Sequence[tuple[np.ndarray, np.ndarray]], plans: Sequence[Plan], shares: np.ndarray) -> Family:
    """From (parent, rank) of each draft."""
    depth = max(int(node_depths(parent).max()) for parent, _ in trees)
    passes, member = [], np.zeros((len(trees), sum(len(parent) for parent, _ in trees)), np.float32)
    for row, (parent, rank) in enumerate(trees):
        begin = len(passes)
        depths = node_depths(parent)
        for node, above in enumerate(parent.tolist()):
            path = np.zeros((depth, 1 + len(shares)), np.float32) if above == ROOT else passes[begin + above].copy()
            path[depths[node] - 1, rank[node]] += 1
            passes.append(path)
        member[row, begin : len(passes)] = 1
    return Family(
        plan=plan_family(plans),
        passes=np.stack(passes),
        member=member,
        nodes=np.array([len(parent) for parent, _ in trees], np.float32),
        shares=shares.astype(np.float32),
    )


def chain_family(longest: int) -> Family:
    """Chains of 1 to `longest` drafted tokens."""
    lengths = range(1, longest + 1)
    trees = [(np.arange(length) - 1, np.zeros(length, np.int64)) for length in lengths]
    return _family(trees, [chain_plan(float(length)) for length in lengths], np.zeros(0))


def tree_family(
    conditional: Float[Array, " depth"], shares: Sequence[float], sizes: Sequence[int], *, deepest: int
) -> Family:
    """The best tree of each size at one acceptance.

    Args:
        conditional: chances of the first choice that shapes are made for.
        shares: of what it misses, by rank from the second on.
        sizes: numbers of nodes; those that a full tree does not reach are left out.
        deepest: <= depths of `conditional`.
    """
    first = np.asarray(jax.device_get(conditional), np.float32)[:deepest]
    other = (1.0 - first)[:, None] * np.asarray(shares, np.float32)
    table = jnp.asarray(np.concatenate([first[:, None], other], axis=1))
    capacity = sum((1 + len(shares)) ** depth for depth in range(1, deepest + 1))
    sizes = sorted({min(int(size), capacity) for size in sizes})
    optimal = jax.device_get(optimal_trees(table, max_nodes=sizes[-1]))
    trees = [(tree.parent, tree.rank) for tree in (optimal_tree(optimal, size) for size in sizes)]
    return _family(trees, [tree_plan(parent) for parent, _ in trees], np.asarray(shares, float))


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
    case = case_of({**tree, "footprint": bits})
    device, workload, footprint = case.device, case.workload, case.footprint
    cycle = price(case, model.family.plan, temperature=temperature)
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
        case.architecture,
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


#: Hazard along a knob that is none: the last digit of acceptance that points have.
_LEAST_HAZARD = 1e-4


#: Numbers of a design point that no number of a co-design depends on, with the reason.
_UNREAD = {
    "acceptance.alpha_token": "acceptance comes from the table [acceptance]",
    "workload.output_tokens": "no whole answer is timed",
}


def checked_costs(config: CodesignConfig, known: list[str]) -> list[Cost]:
    """The costs, of known numbers. Raises InputError: one of something else, or an area by the whole die's."""
    for called, cost in config.costs.items():
        for name in cost.of:
            if name not in known:
                raise InputError(
                    f"costs.{called} is of {name!r};{near_matches(name, known, cutoff=0.5)} known are {', '.join(known)}"
                )
        if cost.area_mm2 and DIE_AREA in cost.of:
            raise InputError(
                f"costs.{called} has area_mm2 by {DIE_AREA}, which all areas add up to; give power_w or price by it"
            )
    return list(config.costs.values())


def check_set(config: CodesignConfig, widths: Sequence[str]) -> None:
    """Every number of [set] may have an effect. Raises InputError: otherwise.

    Args:
        widths: bits that knobs among the variables decide, by name.
    """
    for name in config.set:
        if (reason := _UNREAD.get(name)) is not None:
            raise InputError(f"set.{name} would have no effect: {reason}; leave it out")
    if both := sorted({f"footprint.{width}" for width in widths} & {*config.set}):
        raise InputError(
            f"{', '.join(both)} follows from knobs of the draft among the variables, and is set; leave one of them out"
        )


def check_variables(
    config: CodesignConfig, variables: Variables, rules: Mapping[str, Rule], knobs: Mapping[str, str]
) -> None:
    """Variables are numbers of a design, and both ends are allowed. Raises InputError: otherwise."""
    own = {name: rule for name, rule in rules.items() if name in knobs or name.startswith(("device.", "draft."))}
    for name, low, high in zip(variables.names, variables.low, variables.high, strict=True):
        if name in rules and name not in own:
            raise InputError(
                f"variables.{name} is no part of a design: change knobs of the draft (draft.…) and numbers of the device "
                "(device.…), and give the rest in [set]"
            )
        for end in (low, high):
            check_value(f"variables.{name}", float(end), own, config.device)


def check_law(
    config: CodesignConfig,
    fit: FoundLaw,
    knobs: Mapping[str, str],
    widths: Callable[[Mapping[str, float]], Mapping[str, float]],
) -> None:
    """Acceptance is known wherever a knob may go, and falls along each knob where less is read. Raises InputError: otherwise.

    Args:
        widths: bits that knobs of these values read, by name; those of pools of experts are not among them.
    """
    for name, knob in knobs.items():
        if knob not in fit.law.names:
            known = ", ".join(f"draft.{known}" for known in fit.law.names) or "no knob"
            raise InputError(
                f"variables.{name} is a free lunch: acceptance ({fit.source}) depends on {known}, so that nothing would "
                "speak against its cheapest value; give points that differ in it, or take it out"
            )
        low, high = fit.ranges[knob]
        bounds = config.variables[name]
        if bounds.first < low - 1e-6 or bounds.last > high + 1e-6:
            raise InputError(
                f"variables.{name} is from {bounds.first:g} to {bounds.last:g}, and acceptance is known from {low:g} to "
                f"{high:g}; stay within, or give points beyond"
            )
        place = fit.law.names.index(knob)
        if float(fit.law.coefficients[place].sum()) < _LEAST_HAZARD:
            raise InputError(
                f"variables.{name} is a free lunch: acceptance ({fit.source}) is the same along it, so that nothing would "
                "speak against its cheapest value; give points that differ in it, or take it out"
            )
        best, other = (low, high) if float(fit.law.way[place]) > 0 else (high, low)
        read, saved = (sum(widths({knob: end}).values()) for end in (best, other))
        if read < saved:
            raise InputError(
                f"variables.{name} is a free lunch: acceptance ({fit.source}) is highest at {best:g}, where the least bits "
                "are read; check the points, or take it out"
            )


#: The limit that every problem has: what is stored fits the memories.
FITS = "held_share"


#: Starts that climb together.
_MOST_TOGETHER = 8


#: Designs that are priced together exactly.
_PRICED_TOGETHER = 64


@dataclasses.dataclass(frozen=True)
class Problem:
    """A co-design problem.

    Attributes:
        limits: name of a number of `DesignNumbers` -> its largest value.
        before: values of the variables as device and scheme have them.
        acceptance: the law and where it comes from.
        counted: widths of knobs that were counted already.
    """

    config: CodesignConfig
    model: Model
    limits: dict[str, float]
    before: np.ndarray
    acceptance: FoundLaw
    counted: dict[tuple[float, ...], dict[str, float]] = dataclasses.field(default_factory=dict, compare=False)

    @property
    def variables(self) -> Variables:
        """What may change."""
        return self.model.variables

    @property
    def device(self) -> Device:
        """The device that it begins with."""
        return self.tree(self.before)["device"]

    def tree(self, values: np.ndarray) -> dict[str, Any]:
        """All numbers of a design. Args: values: " variable"."""
        return self.model.tree(jnp.asarray(values, jnp.float32))

    def footprints(self, values: np.ndarray) -> list[Footprint]:
        """What designs read. Args: values: "design variable"."""
        _, widths = self._exact(values)
        own = lambda i: {width: column[i] for width, column in widths.items()}
        return [footprint_of(self.tree(row)["footprint"] | own(i)) for i, row in enumerate(values)]

    @property
    def batch(self) -> int:
        """Places that one program prices with gradients."""
        return min(self.config.starts, _MOST_TOGETHER)

    @property
    def by_energy(self) -> bool:
        """Whether energy is the objective."""
        return self.config.objective == "tokens_per_j"

    def values(self, values: np.ndarray) -> np.ndarray:
        """−log objective, then the log of each limited number over its limit, exactly: "design 1 + limit".

        Logarithms are of double precision, so that a limit is kept or not to the last digit that a number has.
        """
        numbers = self.numbers(values)
        objective = numbers.tokens_per_j if self.by_energy else numbers.tokens_per_s
        limited = [getattr(numbers, name) / limit for name, limit in self.limits.items()]
        return np.stack([-np.log(np.asarray(objective)), *(np.log(np.maximum(one, 1e-300)) for one in limited)], axis=1)

    def tabled(self, values: np.ndarray) -> np.ndarray:
        """As `values`, in single precision, with footprints from the table between whose entries knobs lie: quicker, off by a
        hundredth of a bit."""
        places = jnp.asarray(values, jnp.float32)
        table_values = jax.device_get(_tabled_values(self.model, places, self.by_energy, tuple(self.limits)))
        return table_values.astype(float) - self._offsets

    def numbers(self, values: np.ndarray) -> DesignNumbers:
        """All numbers of designs, exactly; "design variable" in, leaves "design" in double precision.

        They are priced in batches of one size, so that one program serves.
        """
        count, parts = len(values), []
        padded = np.concatenate([values, np.repeat(values[:1], -count % _PRICED_TOGETHER, axis=0)])
        for part in np.split(padded, len(padded) // _PRICED_TOGETHER):
            parts.append(jax.device_get(_exact_numbers(self.model, *self._exact(part), self.by_energy)))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves).astype(float)[:count], *parts)

    def _exact(self, values: np.ndarray) -> tuple[Array, dict[str, Array]]:
        """Values, and widths that each scheme's expected footprint says, where knobs decide them."""
        if not self.model.table.names:
            return jnp.asarray(values, jnp.float32), {}
        rows = [self._widths(row) for row in np.asarray(values, float)]
        widths = [width for width, _ in self.model.table.names]
        return jnp.asarray(values, jnp.float32), {w: jnp.asarray([row[w] for row in rows], jnp.float32) for w in widths}

    def _widths(self, row: np.ndarray) -> dict[str, float]:
        scheme = find_scheme(self.config.scheme)
        base = {
            k: float(v) for k, v in self.model.treedef.unflatten(self.model.leaves)["draft"].items() if v is not None
        }
        own = {knob: float(v) for n, v in zip(self.variables.names, row, strict=True) if (knob := knob_name(n, scheme))}
        key = tuple(own.values())
        if key not in self.counted:
            self.counted[key] = expected_widths(scheme, base | own)
        return self.counted[key]

    def smooth(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Objective and limits with their gradients at places of the unit cube.

        Returns:
            "design 1 + limit" as of `values`, and "design 1 + limit variable".
        """
        priced = _smooth_values(
            self.model,
            jnp.asarray(places, jnp.float32),
            jnp.float32(self.config.temperature),
            self.by_energy,
            tuple(self.limits),
        )
        values, slopes = (np.asarray(one, float) for one in jax.device_get(priced))
        return values - self._offsets, slopes

    @property
    def _offsets(self) -> np.ndarray:
        return np.array([0.0, *np.log(list(self.limits.values()))])


def _values_of(numbers: DesignNumbers, by_energy: bool, limits: tuple[str, ...]) -> Float[Array, " number"]:
    """−log objective, then the log of each number that is limited: all of order 1, whatever their units."""
    objective = numbers.tokens_per_j if by_energy else numbers.tokens_per_s
    assert objective is not None
    return jnp.stack([-jnp.log(objective), *(jnp.log(jnp.maximum(getattr(numbers, name), 1e-30)) for name in limits)])


@partial(jax.jit, static_argnums=3)
def _exact_numbers(model: Model, values: Array, bits: dict[str, Array], by_energy: bool) -> DesignNumbers:
    def one(values: Array, bits: dict[str, Array]) -> DesignNumbers:
        tree = model.tree(values)
        return price_tree(model, tree, tree["footprint"] | bits, temperature=0.0, by_energy=by_energy)

    return jax.vmap(one)(values, bits)


@partial(jax.jit, static_argnums=(2, 3))
def _tabled_values(model: Model, values: Array, by_energy: bool, limits: tuple[str, ...]) -> Array:
    def one(values: Array) -> Array:
        tree = model.tree(values)
        bits = tree["footprint"] | model.table.widths(tree["draft"])
        return _values_of(price_tree(model, tree, bits, temperature=0.0, by_energy=by_energy), by_energy, limits)

    return jax.vmap(one)(values)


@partial(jax.jit, static_argnums=(3, 4))
def _smooth_values(
    model: Model, places: Array, temperature: Array, by_energy: bool, limits: tuple[str, ...]
) -> tuple[Array, Array]:
    def one(place: Array) -> tuple[Array, Array]:
        def values(place: Array) -> Array:
            return _values_of(price_at(model, place, temperature=temperature, by_energy=by_energy), by_energy, limits)

        here, pullback = jax.vjp(values, place)
        (slopes,) = jax.vmap(pullback)(jnp.eye(here.shape[0], dtype=here.dtype))
        return here, slopes

    return jax.vmap(one)(places)


def make_problem(config: CodesignConfig) -> Problem:
    """Names resolved, tables counted, law fitted.

    Raises:
        InputError: an unknown name, a number out of its range, a knob that acceptance does not depend on, a budget that
            nothing of the problem takes from.
    """
    scheme = find_scheme(config.scheme)
    node = config.technology
    technology = None if node is None else Technology(**dataclasses.asdict(node))
    tree = design_tree(config, config.architecture, config.device, technology=technology)
    costs = checked_costs(config, cost_names(tree["device"]))
    rules = number_rules(tree["architecture"], tree["device"], scheme)
    knobs = {name: knob for name in config.variables if (knob := knob_name(name, scheme)) is not None}
    whole = {f"draft.{spec.name}" for spec in scheme.knob_specs if spec.whole}
    variables = variables_of(config.variables, whole)
    check_variables(config, variables, rules, knobs)
    acceptance = resolve_acceptance(config.acceptance, scheme)
    own = {name: float(value) for name, value in tree["draft"].items() if value is not None}
    check_law(config, acceptance, knobs, lambda changed: expected_widths(scheme, own | dict(changed)))
    leaves, treedef = jax.tree.flatten(tree)
    names = leaf_names(tree)
    places = tuple(names.index(name) for name in variables.names)
    widths = {
        name: bounds
        for name, bounds in config.variables.items()
        if knobs.get(name, EXPERT_POOL.name) != EXPERT_POOL.name
    }
    ranges = {knobs[name]: (bounds.first, bounds.last) for name, bounds in widths.items()}
    table = footprint_table(scheme, own, ranges)
    check_set(config, [width for width, _ in table.names])
    # Widths of [set] that no knob decides stay.
    table = dataclasses.replace(table, fixed={width: jnp.float32(tree["footprint"][width]) for width in table.fixed})
    terms = tuple(
        CostTerm(tuple(sorted(cost.of.items())), cost.area_mm2 * _MM2, cost.power_w, cost.price) for cost in costs
    )
    family = chain_family(config.max_draft_length)
    if config.trees is not None:
        at_start = acceptance.law.conditional(tree["draft"], config.max_draft_length)
        sizes = [int(size) for size in config.trees.sizes]
        family = tree_family(at_start, config.trees.ranks, sizes, deepest=config.max_draft_length)
    model = Model(
        leaves=tuple(np.float32(leaf) if np.ndim(leaf) == 0 else jnp.asarray(leaf, jnp.float32) for leaf in leaves),
        variables=variables,
        table=table,
        law=acceptance.law,
        family=family,
        terms=jax.tree.map(np.float32, terms),
        treedef=treedef,
        places=places,
    )
    given = {name: limit for name in BUDGETS if (limit := getattr(config.budgets, name)) is not None}
    before = np.array([float(leaves[place]) for place in places])
    problem = Problem(config, model, given | {FITS: 1.0}, before, acceptance)
    _check_energy(problem)
    _check_budgets(problem, given)
    return problem


def _check_energy(problem: Problem) -> None:
    if problem.by_energy and problem.numbers(problem.before[None]).tokens_per_j is None:
        raise InputError(
            f"objective is tokens_per_j, and the energy of device {problem.config.device!r} is not known; give one with a "
            "[technology] or [chip] and energy_j_per_bit of each memory, or tokens_per_s"
        )


def _check_budgets(problem: Problem, given: dict[str, float]) -> None:
    """Every budget is of something that costs, and one that a design can keep. Raises InputError: otherwise."""
    variables = problem.variables
    middle = np.clip(problem.before, variables.low, variables.high)
    ends = np.repeat(middle[None], 1 + 2 * len(middle), axis=0)
    for i in range(len(middle)):
        ends[1 + 2 * i, i], ends[2 + 2 * i, i] = variables.low[i], variables.high[i]
    numbers = problem.numbers(ends)
    for name, limit in given.items():
        spent = getattr(numbers, name)
        if not spent[0] > 0:
            raise InputError(
                f"budgets.{name} came, and nothing of this device takes from it; give costs with it in a table [costs.…]"
            )
        if np.ptp(spent) == 0 and spent[0] > limit:
            raise InputError(
                f"budgets.{name} is {limit:g}, and the device takes {spent[0]:.4g} whatever the variables are; raise it, add "
                "a variable that it depends on, or leave it out"
            )
    # Sums of what rises or falls with each number: where each variable alone is cheapest, all together are. Power is not.
    for name, limit in given.items():
        if name == "power_w":
            continue
        spent = getattr(numbers, name)
        corner = np.where(spent[1::2] <= spent[2::2], variables.low, variables.high)
        least = getattr(problem.numbers(corner[None]), name)[0]
        if least > limit:
            raise InputError(
                f"budgets.{name} is {limit:g}, and the cheapest of all designs takes {least:.4g}; raise it, or widen the "
                "ranges of variables"
            )
