"""A problem whose names and numbers are known to be right, as functions that a search calls."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.analysis.design_costs import CostTerm, cost_names
from hwmodels.analysis.sensitivity import leaf_names
from hwmodels.chip.technology import Technology
from hwmodels.device import Device
from hwmodels.network.footprint import Footprint
from hwmodels.numerics.units import MILLI
from jaxspec.compress.footprint_table import expected_widths, footprint_table
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.studies.acceptance_points import FoundLaw, resolve_acceptance
from jaxspec.studies.codesign.checks import check_law, check_set, check_variables, checked_costs
from jaxspec.studies.codesign.config import BUDGETS, CodesignConfig
from jaxspec.studies.codesign.family import chain_family, tree_family
from jaxspec.studies.codesign.pricing import DesignNumbers, Model, price_at, price_tree
from jaxspec.studies.codesign.variables import Variables, variables_of
from jaxspec.studies.design_tree import design_tree, footprint_of, knob_name, number_rules

__all__ = ["FITS", "Problem", "make_problem"]

#: The limit that every problem has: what is stored fits the memories.
FITS = "held_share"

_MM2 = MILLI * MILLI

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
        found = self.numbers(values)
        objective = found.tokens_per_j if self.by_energy else found.tokens_per_s
        limited = [getattr(found, name) / limit for name, limit in self.limits.items()]
        return np.stack([-np.log(np.asarray(objective)), *(np.log(np.maximum(one, 1e-300)) for one in limited)], axis=1)

    def tabled(self, values: np.ndarray) -> np.ndarray:
        """As `values`, in single precision, with footprints from the table between whose entries knobs lie: quicker, off by a
        hundredth of a bit."""
        places = jnp.asarray(values, jnp.float32)
        found = jax.device_get(_tabled_values(self.model, places, self.by_energy, tuple(self.limits)))
        return found.astype(float) - self._offsets

    def numbers(self, values: np.ndarray) -> DesignNumbers:
        """All numbers of designs, exactly; "design variable" in, leaves "design" in double precision.

        They are priced in batches of one size, so that one program serves.
        """
        count, found = len(values), []
        padded = np.concatenate([values, np.repeat(values[:1], -count % _PRICED_TOGETHER, axis=0)])
        for part in np.split(padded, len(padded) // _PRICED_TOGETHER):
            found.append(jax.device_get(_exact_numbers(self.model, *self._exact(part), self.by_energy)))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves).astype(float)[:count], *found)

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
        found = _smooth_values(
            self.model,
            jnp.asarray(places, jnp.float32),
            jnp.float32(self.config.temperature),
            self.by_energy,
            tuple(self.limits),
        )
        values, slopes = (np.asarray(one, float) for one in jax.device_get(found))
        return values - self._offsets, slopes

    @property
    def _offsets(self) -> np.ndarray:
        return np.array([0.0, *np.log(list(self.limits.values()))])


def _values_of(found: DesignNumbers, by_energy: bool, limits: tuple[str, ...]) -> Float[Array, " number"]:
    """−log objective, then the log of each number that is limited: all of order 1, whatever their units."""
    objective = found.tokens_per_j if by_energy else found.tokens_per_s
    assert objective is not None
    return jnp.stack([-jnp.log(objective), *(jnp.log(jnp.maximum(getattr(found, name), 1e-30)) for name in limits)])


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

        found, pullback = jax.vjp(values, place)
        (slopes,) = jax.vmap(pullback)(jnp.eye(found.shape[0], dtype=found.dtype))
        return found, slopes

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
    found = problem.numbers(ends)
    for name, limit in given.items():
        spent = getattr(found, name)
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
        spent = getattr(found, name)
        corner = np.where(spent[1::2] <= spent[2::2], variables.low, variables.high)
        least = getattr(problem.numbers(corner[None]), name)[0]
        if least > limit:
            raise InputError(
                f"budgets.{name} is {limit:g}, and the cheapest of all designs takes {least:.4g}; raise it, or widen the "
                "ranges of variables"
            )
