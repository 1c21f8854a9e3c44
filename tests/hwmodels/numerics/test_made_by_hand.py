"""Numbers of trees and plans that somebody makes are checked where they are priced; what JAX makes of them passes."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hwmodels
import jaxspec as js
from hwmodels import Case, DraftCost, EngineTerms, Plan, Routing, Workload, catalog, chain_plan
from hwmodels.numerics.fields import check_numbers

DEVICE, NETWORK = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")
CASE = Case(DEVICE, NETWORK, Workload(batch=4.0))

#: Each of a kind with allowed numbers; all of their numbers are tried.
MADE = (CASE.workload, chain_plan(2.0), DraftCost(), EngineTerms(), Routing(), NETWORK, DEVICE, DEVICE.memory)
BAD = (-1, -1.0, math.nan, np.float32(-2.0), np.array([1.0, -2.0]), "8", [1.0, 2.0])


def priced(workload, **changed):
    return js.price(Case(DEVICE, NETWORK.replace(**changed), workload), chain_plan(1))


@pytest.mark.parametrize("tree", MADE, ids=lambda tree: type(tree).__name__)
def test_each_number_of_a_tree_is_checked(tree):
    name = type(tree).__name__
    for field in (field for field in dataclasses.fields(tree) if "rule" in field.metadata):
        for value in (math.nan, math.inf, "8") if field.name == "vectors_per_layer" else BAD:
            with pytest.raises(ValueError, match=rf"^{name}\.{field.name}[.0-9]* is .*; it must be ") as caught:
                check_numbers(dataclasses.replace(tree, **{field.name: value}), name)
            assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: priced(js.Workload(batch=0.0)), "Case.workload.batch is 0; it must be a finite number > 0"),
        (lambda: priced(js.Workload(batch=math.inf)), "Case.workload.batch is inf"),
        (lambda: priced(js.Workload(batch=None)), "Case.workload.batch is None; it must be a finite number > 0"),
        (lambda: js.chain_plan(-1), "draft_length is -1; it must be a number >= 0"),
        (lambda: hwmodels.block_plan(math.nan), "draft_length is nan"),
        (lambda: js.architecture("llama-3.1-8b", num_layers=0), "num_layers is 0; it must be a number >= 1"),
        (lambda: js.price(Case(DEVICE, NETWORK.replace(num_layers=0), Workload()), chain_plan(1)), "num_layers is 0"),
        (lambda: priced(Workload(), num_kv_heads=64.0), "num_kv_heads is 64 and num_heads is 32; .* at most"),
        (lambda: priced(Workload(), num_experts=4, experts_per_token=8), "experts_per_token is 8 and num_experts is 4"),
        (lambda: js.price("rtx-4090", chain_plan(1)), "case is 'rtx-4090'; it must be of type Case"),
        (lambda: js.price(chain_plan(1), CASE), "case is Plan.*; it must be of type Case"),
        (lambda: js.price(dataclasses.replace(CASE, device=None), chain_plan(1)), "Case.device is None"),
        (lambda: js.price(CASE, chain_plan(1), temperature=2), "temperature is 2; it must be a number from 0 to 1"),
        (lambda: js.price(CASE, Plan(1, 1, -1, 2, 2)), "Plan.draft_repeats is -1"),
        (
            lambda: js.price(Case("rtx-4090", NETWORK, Workload()), chain_plan(1)),
            "Case.device is 'rtx-4090'; it must be of",
        ),
        (lambda: hwmodels.uniform_footprint("16"), "bits is '16'"),
        (lambda: hwmodels.zipf_routing(1.0, num_experts=0, experts_per_token=2, entries=8), "num_experts is 0"),
        (lambda: catalog.device(4090), "name is 4090; it must be a text"),
    ],
)
@pytest.mark.wrong_arrays
def test_what_cannot_be_is_one_line(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert len(str(caught.value).splitlines()) == 1


def test_what_jax_makes_of_trees_passes():
    seconds = lambda case, length: js.price(case, chain_plan(length)).total_s
    slope = jax.grad(seconds)(CASE, 3.0)
    assert jax.tree.map(float, slope).workload.shared_tokens < 0  # a gradient is no workload
    axes = Case(None, None, Workload(0, None, None, None, None), None, None, None, None)
    batches = dataclasses.replace(CASE, workload=Workload(batch=jnp.array([1.0, 8.0])))
    # Trees are made while programs are traced: most of these need not be compiled.
    assert jax.eval_shape(jax.vmap(seconds, (axes, 0)), batches, jnp.array([0.0, 2.0])).shape == (2,)
    by_batch = jax.grad(lambda batch: seconds(dataclasses.replace(CASE, workload=Workload(batch=batch)), 3.0))
    assert jax.eval_shape(by_batch, 4.0).shape == ()
    assert jax.tree.map(str, CASE).workload.batch == "4.0"
    traces = []
    program = jax.jit(lambda case, length: (traces.append(1), seconds(case, length))[1])
    for batch in (1.0, 2.0, 3.0):
        program.trace(dataclasses.replace(CASE, workload=Workload(batch=batch)), batch)
    assert len(traces) == 1
