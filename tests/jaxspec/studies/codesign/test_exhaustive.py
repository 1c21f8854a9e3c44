"""Array size and draft together: the search against all designs of a grid."""

import tomllib

import numpy as np
import pytest

from jaxspec.settings.base import Layer, build_config
from jaxspec.studies.codesign.config import CodesignConfig
from jaxspec.studies.codesign.problem import make_problem
from jaxspec.studies.codesign.search import best_that_differ, climb, draw, harden, merit

PROBLEM = """
architecture = "llama-3.1-8b"
device = "cassandra-npu"
scheme = "bit-slices"
max_draft_length = 4
starts = 2
iterations = 20
[set]
"workload.batch" = 4
[variables]
"draft.slice_bits" = { from = 2, to = 6 }
"device.decoder.count" = { from = 16, to = 96, step = 16 }
"device.memory.bandwidth_bytes_per_s" = { from = 64e9, to = 512e9, step = 64e9 }
"device.matrix_unit.rows" = { from = 16, to = 256, step = 16 }
"device.matrix_unit.columns" = { from = 64, to = 1024, step = 64 }
[budgets]
area_mm2 = 120
power_w = 30
[costs.interface]
of = { "memory.bandwidth_bytes_per_s" = 1 }
area_mm2 = 6e-11
power_w = 4e-11
source = "made up"
[acceptance.points]
slice_bits = [2, 3, 4, 5, 6]
alpha_token = [0.45, 0.72, 0.88, 0.95, 0.985]
"""
#: What a value with all its gradients counts as, in evaluations, as on the page of co-design.
GRADIENT_COST = 5


def every_design(problem):
    variables = problem.variables
    axes = [
        np.arange(low, high + step / 2, step)
        for low, high, step in zip(variables.low, variables.high, variables.steps, strict=True)
    ]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


@pytest.mark.slow
def test_array_and_draft_within_1_percent_of_all_designs():
    """With a fiftieth of their evaluations, gradients counted."""
    problem = make_problem(build_config(CodesignConfig, Layer(tomllib.loads(PROBLEM))))
    designs = every_design(problem)
    quick = np.concatenate([merit(problem.tabled(part)) for part in np.array_split(designs, len(designs) // 4096)])
    best = merit(problem.values(designs[np.argsort(quick)[:64]])).min()
    assert np.mean(quick < 1e5) > 0.01  # some keep the limits
    allowed = len(designs) // 50
    drawn = draw(problem, allowed // 4, np.random.default_rng(0))
    starts = best_that_differ(problem, drawn, problem.batch)
    asked = allowed // 4 // GRADIENT_COST // len(starts)
    places = problem.variables.places(starts)
    ends = climb(problem.smooth, places, iterations=20, size=problem.batch, questions=asked)
    spent = len(drawn.values) + GRADIENT_COST * sum(len(one.path) for one in ends)
    found = harden(
        problem,
        np.stack([one.place for one in ends]),
        drawn=drawn.values[:1],
        allowed=allowed - spent,
        gradient_cost=GRADIENT_COST,
    )
    assert spent + found.evaluations + GRADIENT_COST * found.questions <= allowed
    (reached,) = merit(problem.values(found.values[None]))
    assert np.exp(reached - best) < 1.01
