"""Intervals of predictions beside the stopwatch: which errors they hold, and that every number has its own."""

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest

from hwmodels import NO_ENGINE, DraftCost, catalog
from hwmodels.analysis.uncertainty.kernel_errors import loop_scatter
from hwmodels.compute.unit import ErrorInterval
from jaxspec.studies.measured.stopwatch import predict_ways

pytestmark = pytest.mark.study

NETWORK = catalog.architecture("embedded")
PARENTS = [np.arange(2) - 1, np.arange(5) - 1]
#: Ends of whole steps: 1.2 times slower or faster with 90 %.
LOW, HIGH = 1 / 1.2, 1.2
STEP = math.log(HIGH) / NormalDist().inv_cdf(0.95)


def machine(*spreads):
    """A device whose kernels err as given."""
    device = catalog.device("h100-sxm")
    return dataclasses.replace(device, matrix_unit=dataclasses.replace(device.matrix_unit, spreads=spreads))


def told(device, draft=None, terms=NO_ENGINE):
    cost = DraftCost(architecture=catalog.architecture("embedded-small")) if draft is None else draft
    options = {"takes_in": 1, "batch": 2, "slots": 64.0, "bits": 16.0}
    return predict_ways(device, NETWORK, cost, PARENTS, terms=terms, **options)


WHOLE = machine(ErrorInterval("steps", 16.0, LOW, HIGH, 0.90))


def test_a_cycle_errs_as_cycles_that_were_held_out():
    """Beyond what its steps err by; of a step without speculation nothing changes."""
    plain = told(WHOLE)[0].errors
    twice = machine(WHOLE.matrix_unit.spreads[0], ErrorInterval("cycles", 32.0, LOW**2, HIGH**2, 0.90))
    assert loop_scatter(twice) == pytest.approx(math.sqrt(3.0) * STEP, rel=1e-4)
    found = told(twice)[0].errors
    assert found.step_s == plain.step_s
    for name in ("cycle_s", "speedup", "draft_s", "verify_s"):
        both = math.hypot(getattr(plain, name), math.sqrt(3.0) * STEP)
        assert getattr(found, name) == pytest.approx(both, rel=1e-3), name
    # Cycles that err less than steps add nothing, and neither does a file without them.
    assert loop_scatter(machine(WHOLE.matrix_unit.spreads[0], ErrorInterval("cycles", 32.0, 0.99, 1.01, 0.90))) == 0.0
    assert loop_scatter(WHOLE) == loop_scatter(machine()) == 0.0
