"""Steps that run some of the blocks, or read some of the cached tokens."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import OPERATORS, Case, Workload, catalog, chain_plan, price, uniform_weight_bits
from hwmodels.network.operators import StepShape, step_operators
from hwmodels.speculation.draft_cost import DraftCost

pytestmark = pytest.mark.device_matrix

SHAPE = {"tokens": 2.0, "batch": 3.0, "weight_bits": uniform_weight_bits(7.0), "kv_bits": 9.0}
TOTALS = ("flops", "weight_bytes", "kv_bytes", "activation_bytes", "launches", "coded_elements", "coded_bits")


def of_layers(work):
    """Totals of all operators but the norms, whose last one belongs to no layer."""
    keep = np.array([name != "norm" for name in OPERATORS])
    return {name: np.asarray(getattr(work, name))[..., keep] for name in TOTALS}


@pytest.mark.parametrize("name", ["qwen3-30b-a3b", "llama-3.1-8b"])
def test_half_of_all_blocks_is_a_network_of_half_the_layers(name):
    whole = catalog.architecture(name)
    half = dataclasses.replace(whole, num_layers=whole.num_layers / 2, num_moe_layers=whole.num_moe_layers / 2)
    part = step_operators(whole, StepShape(context_tokens=40.0, attention_share=0.5, feed_forward_share=0.5, **SHAPE))
    wanted = step_operators(half, StepShape(context_tokens=40.0, **SHAPE))
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-6), of_layers(part), of_layers(wanted)
    )
    np.testing.assert_allclose(part.kv_elements, wanted.kv_elements)
    # Held, and shaped, as the whole one.
    everything = step_operators(whole, StepShape(context_tokens=40.0, **SHAPE))
    np.testing.assert_array_equal(part.stored.total, everything.stored.total)
    np.testing.assert_array_equal(part.shapes.n, everything.shapes.n)


def test_a_share_of_the_tokens_is_a_shorter_context_of_which_all_is_held(small):
    part = step_operators(small, StepShape(context_tokens=44.0, shared_tokens=8.0, visible_share=0.25, **SHAPE))
    shorter = step_operators(small, StepShape(context_tokens=11.0, shared_tokens=2.0, **SHAPE))
    jax.tree.map(np.testing.assert_array_equal, of_layers(part), of_layers(shorter))
    whole = step_operators(small, StepShape(context_tokens=44.0, shared_tokens=8.0, **SHAPE))
    np.testing.assert_array_equal(part.stored.kv, whole.stored.kv)
    assert float(part.kv_bytes.sum()) < float(whole.kv_bytes.sum())


def test_a_draft_of_some_blocks_is_faster_and_has_gradients():
    device, network = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")

    @jax.jit
    def draft_s(shares):
        cost = DraftCost(attention_share=shares[0], feed_forward_share=shares[1], visible_share=shares[2])
        load = Workload(context_tokens=30_000.0)
        return price(Case(device, network, load, draft=cost), chain_plan(3.0)).draft_s

    start = jnp.asarray([0.7, 0.6, 0.4])
    slopes, step = np.asarray(jax.grad(draft_s)(start)), 2e-2
    for place in range(3):
        move = step * jnp.eye(3)[place]
        numeric = (draft_s(start + move) - draft_s(start - move)) / (2 * step)
        np.testing.assert_allclose(slopes[place], numeric, rtol=2e-2)
        assert slopes[place] > 0
    assert draft_s(start) < draft_s(jnp.ones(3))
