"""A draft network whose vocabulary has other rows than its target's: decoding stays lossless, and padding is never drafted."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from draft_cycles import SMALL, TARGET

from jaxspec.models.decoder import Params
from jaxspec.speculate.drafts.network_draft import NetworkDraft
from jaxspec.speculate.engine import decode, decode_autoregressively
from jaxspec.speculate.expansion import tree_limits
from jaxspec.speculate.loop import Request
from jaxspec.speculate.sampling import GREEDY, Decoding
from jaxspec.trees import chain_tree

PROMPTS = np.random.default_rng(4).integers(11, size=(3, 6)).astype(np.int32)
#: Long enough for tokens of every row.
TOKENS = 24


@pytest.fixture(scope="module")
def target_params(random_network) -> Params:
    return random_network(TARGET, 0, sharpness=3.0)


def drafted(random_network, rows, target_rows=TARGET.vocab_size):
    own = dataclasses.replace(SMALL, vocab_size=rows)
    return NetworkDraft(own, target_rows=target_rows), random_network(own, 3, sharpness=3.0)


@pytest.mark.network(1)
@pytest.mark.parametrize("rows", [7, 14])
def test_decoding_with_other_rows_is_lossless(rows, target_params, random_network):
    draft, params = drafted(random_network, rows)
    assert draft.vocab_size == TARGET.vocab_size
    tree, shared = chain_tree(3, 4), {"draft": draft, "config": TARGET}
    run = target_params, params, Request(PROMPTS, np.arange(3, dtype=np.int32), jax.random.key(1), TOKENS)
    found = decode(*run, tree, GREEDY, **shared)
    plain = decode_autoregressively(*run, GREEDY, limits=tree_limits(tree), **shared)
    end = PROMPTS.shape[1] + TOKENS
    np.testing.assert_array_equal(np.asarray(found.tokens)[:, :end], np.asarray(plain.tokens)[:, :end])
    if rows < TARGET.vocab_size:
        assert np.asarray(plain.tokens).max() >= rows  # the draft reads tokens that it has no row for
    sampled = decode(*run, tree, Decoding(False, 0.7), law="sampled", **shared)
    assert np.asarray(sampled.tokens)[:, :end].max() < TARGET.vocab_size


def test_padding_is_never_drafted_and_further_rows_are_cut(random_network):
    draft, _ = drafted(random_network, 7)
    logits = draft._as_target(jnp.arange(14.0, dtype=jnp.float32).reshape(2, 7))
    chances = jax.nn.softmax(logits / 0.5, axis=-1)
    assert logits.shape == (2, 11)
    assert np.isfinite(np.asarray(jax.nn.log_softmax(logits))[:, :7]).all()
    assert float(chances[:, 7:].max()) == 0.0
    assert draft._known(jnp.asarray([[3, 10]])).tolist() == [[3, 6]]
    wide, _ = drafted(random_network, 14)
    assert wide._as_target(jnp.ones((2, 14))).shape == (2, 11)
