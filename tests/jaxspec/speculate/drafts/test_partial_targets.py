"""Drafts that are the target without a part of it: some blocks, or some of the KV cache."""

import dataclasses
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import catalog
from hwmodels.networks import FAMILIES
from jaxspec.models.blocks import StepInput
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import causal_mask, forward, forward_text, init_params
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.kv_cache import CachedKV
from jaxspec.models.layer_loops import without_blocks
from jaxspec.speculate.drafts import layer_skip_draft as layer_skip_draft_module
from jaxspec.speculate.drafts.interface import Root
from jaxspec.speculate.drafts.layer_skip_draft import (
    CalibrationText,
    block_weights,
    eliminate,
    eliminate_in_order,
    layer_skip_draft,
    search_layer_skip,
)
from jaxspec.speculate.drafts.sparse_kv_draft import sparse_kv_draft, visible_slots
from jaxspec.speculate.measured_ranks import trace_target

pytestmark = pytest.mark.network

TARGET = DecoderConfig(
    vocab_size=11, hidden_size=16, intermediate_size=12, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=4
)
TEXT = np.random.default_rng(1).integers(11, size=(3, 14)).astype(np.int32)


@pytest.fixture(scope="module")
def params(random_network):
    return random_network(TARGET, 0, sharpness=3.0)


@pytest.mark.parametrize("variant", [{}, {"norm": "layer", "post_norms": True, "o_bias": True, "ffn_bias": True}])
def test_leaving_out_a_layer_equals_a_network_without_it(variant):
    config = dataclasses.replace(TARGET, **variant)
    rng = np.random.default_rng(4)
    whole = init_params(config, jax.random.key(3))
    whole = jax.tree.map(lambda leaf: leaf + 0.1 * rng.standard_normal(leaf.shape, np.float32), whole)
    shorter = whole | {"layers": {name: leaf[np.array([0, 2])] for name, leaf in whole["layers"].items()}}
    run = jnp.asarray([[1.0, 0.0, 1.0]] * 2)
    ours = jax.jit(lambda params: forward_text(without_blocks(params, config, run), config, TEXT).logits)(whole)
    theirs = jax.jit(lambda params: forward_text(params, dataclasses.replace(config, num_layers=2), TEXT).logits)(
        shorter
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_search_finds_the_best_of_all_subsets():
    # A landscape in which the best subset is not on the path of plain elimination: two blocks replace each other.
    rng = np.random.default_rng(7)
    for _ in range(20):
        worth, pairs = rng.normal(0.3, 1.0, 6), rng.normal(0.0, 0.25, (6, 6))
        speed = lambda run, w=worth, p=pairs: float(run.reshape(-1) @ w + run.reshape(-1) @ p @ run.reshape(-1))
        everything = [np.array(bits, np.float32) for bits in itertools.product((0, 1), repeat=6) if 0 < sum(bits) < 6]
        best = max(map(speed, everything))
        found = eliminate(speed, (2, 3))
        assert found.speed == pytest.approx(speed(found.run.astype(np.float32)))
        assert found.run.sum() < 6
        assert found.evaluations <= len(everything) + 1
        spread = best - min(map(speed, everything))
        assert found.speed > best - 0.15 * spread


def test_many_blocks_go_in_the_order_of_what_each_costs():
    # Worth is lost as the square of what was removed: 0.9 is gained by the first two removals, and none after them.
    costs = np.array([5.0, 0.1, 9.0, 0.3, 7.0, 8.0])
    seen = []

    def speed(run):
        seen.append(run)
        return 1.0 + 0.3 * float((1 - run).sum()) - float(((1 - run.reshape(-1)) * costs).sum()) ** 2

    found = eliminate_in_order(speed, costs, (2, 3))
    np.testing.assert_array_equal(found.run, [[1, 0, 1], [0, 1, 1]])
    assert found.speed == pytest.approx(1.6 - 0.16)
    # Each was measured alone before; two removals more brought nothing.
    assert (len(seen), found.evaluations) == (4, 6 + 4)
    assert [int(run.sum()) for run in seen] == [5, 4, 3, 2]


@pytest.mark.parametrize("floating", [24, 0])
def test_blocks_that_do_nothing_are_the_ones_left_out(params, monkeypatch, floating):
    monkeypatch.setattr(layer_skip_draft_module, "MOST_FLOATING", floating)
    # The second layer writes nothing: a draft without it accepts all that it proposes.
    idle = {name: params["layers"][name] * np.array([1, 0, 1], np.float32)[:, None, None] for name in ("o", "down")}
    model = LoadedModel(TARGET, params | {"layers": params["layers"] | idle}, FAMILIES["llama"], Path())
    likeliest = jax.jit(
        lambda text: jnp.argmax(forward_text(model.params, TARGET, text).logits, axis=-1).astype(jnp.int32)
    )
    text = TEXT
    for _ in range(10):  # each pass makes one token more the target's own
        text = np.concatenate([text[:, :4], np.asarray(likeliest(text))[:, 3:-1]], axis=1)
    found = search_layer_skip("layer-skip", model, CalibrationText(text, 4))
    assert not found["run"][:, 1].any()
    weights, head = block_weights(TARGET), 11 * 16
    assert weights.sum() == 3 * (2 * 16 * 16 + 2 * 8 * 16 + 3 * 16 * 12)
    left = 1 - weights[:, 1].sum() / (weights.sum() + head)
    assert float(found["speed"]) >= 6 / (1 + 5 * left) - 1e-5
    draft = layer_skip_draft("layer-skip", model, {"run": np.array([[1, 0, 1], [1, 0, 0]])}).draft
    cost = draft.cost(TARGET, catalog.architecture("llama-3.1-8b"), "it")
    assert (cost.attention_share, cost.feed_forward_share) == pytest.approx((2 / 3, 1 / 3))


def test_a_sparse_draft_sees_the_first_tokens_and_the_latest(params):
    ready = sparse_kv_draft("sparse-kv-50", LoadedModel(TARGET, params, FAMILIES["llama"], Path()))
    heard = jax.jit(lambda params: trace_target(params, TARGET, TEXT, jnp.full(len(TEXT), 4), padding=4))(params)
    ends = np.array([13, 12, 9], np.int32)
    memory = ready.draft.empty(ready.params, 3, 20, 4)
    memory = ready.draft.commit(ready.params, memory, heard.committed(np.zeros(3, np.int32), 13, ends))
    root = Root(np.take_along_axis(TEXT, ends[:, None], 1)[:, 0], jnp.asarray(ends))
    logits, _ = jax.jit(lambda params, memory: ready.draft.open(params, memory, root))(ready.params, memory)
    seen = np.asarray(visible_slots(root.position, ready.params.share, memory))
    for row, end in enumerate(ends):
        # Of 13 tokens a half is 6 (ties to even): 4 and 2; of 12, 4 and 2; of 9, 4.5 is 4: 4 and the one before the root.
        wanted = [slot for slot in range(end) if slot < 4 or slot >= end - {13: 2, 12: 2, 9: 1}[int(end)]]
        assert [slot for slot in range(end) if seen[row, slot]] == wanted
        assert seen[row, end:].all()
        mask = np.zeros((1, 1, heard.target.cache.num_slots), bool)
        mask[..., wanted] = True
        cache = jax.tree.map(lambda leaf, row=row: leaf[:, row : row + 1], heard.target.cache)
        alone = forward(
            params,
            TARGET,
            root.token[row : row + 1, None],
            StepInput(np.array([[end]]), causal_mask(1, 1), sources=[CachedKV(cache, jnp.asarray(mask))]),
        )
        np.testing.assert_allclose(logits[row], alone.logits[0, 0], rtol=2e-4, atol=2e-5)
