"""Drafts step by step against the same networks over each branch of a tree at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from draft_cycles import BATCH, HEAD, LENGTH, SMALL, TARGET, largest_error, play

from jaxspec.models.decoder import forward_text
from jaxspec.models.draft_head import abstract_head_params, target_ends
from jaxspec.speculate.drafts.head_draft import HeadDraft, HeadDraftParams
from jaxspec.speculate.drafts.network_draft import NetworkDraft

pytestmark = pytest.mark.usefixtures("exact_products")

CLOSE = {"rtol": 3e-4, "atol": 3e-5}


@pytest.fixture(scope="module")
def target_params(random_network):
    return random_network(TARGET, 0, sharpness=3.0)


@pytest.fixture(scope="module")
def text():
    return np.random.default_rng(1).integers(11, size=(BATCH, LENGTH)).astype(np.int32)


@pytest.fixture(scope="module")
def hidden(target_params, text):
    return np.asarray(jax.jit(forward_text, static_argnums=1)(target_params, TARGET, text).hidden)


def drafts(target_params, random_network):
    rng = np.random.default_rng(2)
    head = jax.tree.map(
        lambda leaf: jnp.asarray(leaf.shape[-1] ** -0.5 * rng.standard_normal(leaf.shape, np.float32)),
        abstract_head_params(HEAD),
    )
    return {
        "head": (HeadDraft(HEAD), HeadDraftParams(head, target_ends(target_params))),
        "network": (NetworkDraft(SMALL), random_network(SMALL, 3, sharpness=3.0)),
    }


@pytest.fixture(params=["head", "network"], scope="module")
def drafting(request, target_params, random_network):
    return drafts(target_params, random_network)[request.param]


@pytest.mark.network(1)
def test_every_node_gets_what_its_branch_alone_would(drafting, text, hidden):
    error, nodes = largest_error(drafting, text, hidden)
    assert nodes == 3 * 3 * 7
    assert error < 2e-4


@pytest.mark.network(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda level: level._replace(depth=level.depth + 1),
        lambda level: level._replace(ancestors=np.zeros_like(level.ancestors)),
        lambda level: level._replace(ancestors=np.ones_like(level.ancestors)),
        lambda level: level._replace(first=level.first + 1),
        lambda level: level._replace(tokens=(level.tokens + 1) % 11),
    ],
    ids=["depth", "no ancestors", "all ancestors", "numbers", "tokens"],
)
def test_the_check_notices_a_wrong_level(drafting, text, hidden, change):
    error, _ = largest_error(drafting, text, hidden, change=change)
    assert error > 1e-2


@pytest.mark.network
def test_a_sequence_does_not_know_its_batch(drafting, text, hidden):
    together = list(play(drafting, text, hidden))
    for b in (0, 2):
        alone = list(play(drafting, text, hidden, rows=slice(b, b + 1)))
        for one, all_of_them in zip(alone, together):
            np.testing.assert_allclose(one[2][0], all_of_them[2][b], **CLOSE)
            for (*_, width), mine, ours in zip(one[1], one[3], all_of_them[3]):
                np.testing.assert_allclose(mine[0, :width], ours[b, :width], **CLOSE)
