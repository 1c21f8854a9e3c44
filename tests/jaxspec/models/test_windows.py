"""Windows and rotations that differ from layer to layer: rules about positions, whatever slots tokens lie in."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import CLOSE, CONFIG, POSITIONS, TOKENS, forward_of, random_params

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.models import decoder
from jaxspec.models.decoder import causal_mask
from jaxspec.models.kv_cache import CachedKV, empty_cache, write_cache
from jaxspec.models.rope import DynamicScaling, Rope
from jaxspec.speculate.drafts import SelfDraft, SelfDraftParams
from jaxspec.speculate.engine import autoregressive_tree, decode
from jaxspec.speculate.expansion import tree_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import Decoding
from jaxspec.trees import tree_from_parents

pytestmark = pytest.mark.network

#: A window of three tokens in layers 0 and 2, with a rotation of their own; layer 1 is not rotated; the base of layer 3 grows
#: from the sixth token on.
MIXED = dataclasses.replace(
    CONFIG,
    num_layers=4,
    windows=(3, None, 3, None),
    rotated=(True, False, True, True),
    local_rope=Rope(40.0),
    rope_scaling=DynamicScaling(4.0, 5),
)
PARAMS = random_params(MIXED)
forward = jax.jit(forward_of, static_argnames="config")


def test_layers_of_one_kind_are_one_program_whatever_their_windows_and_rotations():
    assert len(MIXED.runs) == 1
    assert MIXED.ropes == (Rope(40.0), None, Rope(500.0, DynamicScaling(4.0, 5)))
    programs = [
        len(jax.jit(decoder.forward_text, static_argnums=1).lower(params, config, TOKENS).as_text())
        for layers in (4, 8)
        if (config := dataclasses.replace(MIXED, num_layers=layers)) and (params := random_params(config))
    ]
    assert programs[1] < 1.02 * programs[0]


def test_a_window_is_a_band_of_the_mask():
    config = dataclasses.replace(MIXED, windows=(3,), local_rope=None)
    whole = dataclasses.replace(config, windows=(None,))
    band = np.asarray(causal_mask(2, 9)) & ~np.tril(np.ones((9, 9), bool), -3)
    step = {"tokens": TOKENS, "positions": POSITIONS}
    ours = forward(PARAMS, config, mask=causal_mask(2, 9), **step)
    np.testing.assert_allclose(ours.logits, forward(PARAMS, whole, mask=band, **step).logits, **CLOSE)
    assert np.abs(ours.logits - forward(PARAMS, whole, mask=causal_mask(2, 9), **step).logits).max() > 0.1


def test_token_by_token_from_any_slot_equals_all_at_once():
    expected = forward(PARAMS, MIXED, tokens=TOKENS, positions=POSITIONS, mask=causal_mask(2, 9))
    # Sequence 0 lies in slots 2, 3, ...; sequence 1 backwards from slot 14: slots say nothing about positions.
    slot = np.stack([2 + np.arange(9), 14 - np.arange(9)])
    cache, seen = empty_cache(MIXED, 2, 16), np.zeros((2, 1, 16), bool)
    for place in range(9):
        result = forward(
            PARAMS,
            MIXED,
            tokens=TOKENS[:, place : place + 1],
            positions=POSITIONS[:, place : place + 1],
            mask=np.ones((2, 1, 1), bool),
            sources=[CachedKV(cache, seen.copy())],
        )
        np.testing.assert_allclose(result.logits[:, 0], expected.logits[:, place], **CLOSE)
        cache = write_cache(cache, result.cache, slot[:, place])
        seen[np.arange(2), 0, slot[:, place]] = True
    np.testing.assert_array_equal(cache.position[3, 1, slot[1]], np.arange(9))


def test_a_tree_decodes_the_text_that_decoding_alone_does():
    # Nodes of one depth lie in different slots at one position; texts grow beyond the window and the trained length.
    tree = tree_from_parents([-1, -1, 0, 0, 2, 1])
    limits = tree_limits(tree)
    prompts = np.random.default_rng(5).integers(13, size=(3, 4)).astype(np.int32)
    near = jax.tree.map(lambda x: x + 0.1 * jnp.sign(x) * jnp.abs(x).mean(), PARAMS)
    knobs = uniform_knobs(CASSANDRA1, MIXED, kv_prune=0.2, kv_cut_bits=3.0)
    static = {"draft": SelfDraft(MIXED), "config": MIXED, "limits": limits}
    request = Request(prompts, np.arange(3), jax.random.key(0), 12)
    greedily = Decoding(greedy=True, temperature=jnp.float32(1.0))
    of = lambda shape: decode(PARAMS, SelfDraftParams(near, knobs), request, shape, greedily, **static)
    drafted, alone = of(tree), of(autoregressive_tree(limits))
    np.testing.assert_array_equal(drafted.tokens[:, :16], alone.tokens[:, :16])
    np.testing.assert_array_equal(drafted.margin[:, :16], alone.margin[:, :16])
    assert int(drafted.cycles.sum()) < int(alone.cycles.sum())
