"""Kinds that may stand in the same place of a device differ in structure, or jaxlib may run one's program for the other."""

import itertools

import flax.struct
import jax
import pytest
from narrow_devices import one_of_each_form

from hwmodels import Workload, catalog, decode_operators, uniform_footprint
from hwmodels.catalog.units import UNITS
from hwmodels.compute.calibrated_gpu import CalibratedGpu
from hwmodels.compute.fpga_array import FpgaArray
from hwmodels.compute.host_and_near import HostAndNear
from hwmodels.compute.matrix_vector_npu import MatrixVectorNpu
from hwmodels.compute.measured_host import MeasuredHost
from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.compute.roofline import unit_of
from hwmodels.compute.systolic.unit import SystolicUnit
from hwmodels.compute.vector_array import EXPONENTIALS, VectorArray
from hwmodels.compute.vector_tile_kernels import VectorTileKernels
from hwmodels.compute.weight_layouts import LAYOUTS
from hwmodels.memory.expert_hits import HIT_RULES
from hwmodels.memory.placement import PLACEMENTS
from hwmodels.numerics.fields import tag


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


def test_units_differ():
    measured = [CalibratedGpu, MeasuredHost]
    kernels = [*measured, VectorTileKernels]
    classes = [FpgaArray, HostAndNear, MatrixVectorNpu, NearMemoryUnit, SystolicUnit, VectorArray, *kernels]
    assert len(classes) == len(UNITS)
    for one, other in itertools.combinations(classes, 2):
        assert structure(one) != structure(other), (one, other)


@pytest.mark.parametrize("name", one_of_each_form())
def test_kernels_of_a_unit_differ(name):
    # `step_cost` gives them to one program, one after the other.
    work = decode_operators(catalog.architecture("qwen3-30b-a3b"), Workload(), footprint=uniform_footprint(16.0))
    kernels = [kernel for kernel, _ in unit_of(catalog.device(name)).kernels(work)]
    for one, other in itertools.combinations(kernels, 2):
        assert type(one) is type(other) or jax.tree.structure(one) != jax.tree.structure(other), (one, other)


def test_two_of_a_structure_are_told_apart_by_a_tag():
    @flax.struct.dataclass
    class First:
        value: float = 1.0

    @flax.struct.dataclass
    class Second:
        value: float = 1.0
        kind: str = tag("second")

    assert structure(First) != structure(Second)
