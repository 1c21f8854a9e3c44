"""Kinds that may stand in the same place of a device differ in structure, or jaxlib may run one's program for the other."""

import itertools

import jax
import pytest
from narrow_devices import one_of_each_form

from hwmodels import Workload, catalog, decode_operators, uniform_footprint
from hwmodels.compute.roofline import unit_of
from hwmodels.compute.vector_array import EXPONENTIALS
from hwmodels.compute.weight_layouts import LAYOUTS
from hwmodels.memory.expert_hits import HIT_RULES
from hwmodels.memory.placement import PLACEMENTS


def structure(kind):
    """Of an instance whose dynamic fields are single leaves: the least that tells kinds apart."""
    fields = kind.__dataclass_fields__.values()
    made = object.__new__(kind)
    for field in fields:
        object.__setattr__(made, field.name, 0.0 if field.metadata.get("pytree_node", True) else field.default)
    return jax.tree.structure(made)


@pytest.mark.parametrize("kinds", [EXPONENTIALS, LAYOUTS, HIT_RULES, PLACEMENTS], ids=lambda kinds: next(iter(kinds)))
def test_kinds_of_one_place_differ(kinds):
    for one, other in itertools.combinations(dict.fromkeys(kinds.values()), 2):
        assert structure(one) != structure(other), (one, other)


@pytest.mark.parametrize("name", one_of_each_form())
def test_kernels_of_a_unit_differ(name):
    # `step_cost` gives them to one program, one after the other.
    work = decode_operators(catalog.architecture("qwen3-30b-a3b"), Workload(), footprint=uniform_footprint(16.0))
    kernels = [kernel for kernel, _ in unit_of(catalog.device(name)).kernels(work)]
    for one, other in itertools.combinations(kernels, 2):
        assert type(one) is type(other) or jax.tree.structure(one) != jax.tree.structure(other), (one, other)
