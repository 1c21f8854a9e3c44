"""Sampling with elastic drafts: the target's distribution, by enumeration and on samples, and a broken rule that is noticed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elastic_networks import elastic_pair, mixture
from every_text import NEW, START, VOCAB, all_texts, chi_square, prompts_and_ids, sampling
from test_rules import enumeration_error

from jaxspec.compress.kv import round_kv
from jaxspec.models.decoder import forward_text
from jaxspec.models.kv_cache import first_slots
from jaxspec.speculate import loop
from jaxspec.speculate.drafts import ElasticDraft
from jaxspec.speculate.drafts.interface import Committed, Level, Root
from jaxspec.speculate.expansion import chain_limits
from jaxspec.speculate.loop import LoopForm, Request
from jaxspec.trees import chain_tree

pytestmark = pytest.mark.network

SMALL = mixture(VOCAB)
SAMPLES, TEMPERATURE, DEPTH = 20_000, 0.8, 2


@pytest.fixture(scope="module")
def pair():
    return elastic_pair(SMALL, 5, sharpness=1.0, slice_bits=2, expert_pool=0.0)


def softmax(logits):
    scaled = np.exp(np.asarray(logits, np.float64) / TEMPERATURE)
    return scaled / scaled.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def heard(pair):
    """What the target says of every text: all that it computes for its tokens, and each next token's probabilities."""
    texts = all_texts(NEW)
    result = jax.jit(lambda: forward_text(pair[0], SMALL, texts[:, :-1], kv_codec=round_kv))()
    return texts, result, softmax(result.logits[:, START.size - 1 :])


@pytest.fixture(scope="module")
def text_probability(heard):
    texts, _, p = heard
    return np.prod(np.take_along_axis(p, texts[:, START.size :, None], axis=-1)[..., 0], axis=1)


def test_enumerated_outputs_have_the_targets_distribution(pair, heard):
    """Every way through a cycle after the start, with the probabilities that the networks really give."""
    draft, params = ElasticDraft(SMALL), pair[1]
    texts, result, p = heard
    count, places = len(texts), START.size - 1

    @jax.jit
    def drafted():
        told = Committed(
            tokens=jnp.asarray(texts[:, 1 : START.size]),
            hidden=result.hidden[:, :places],
            cache=first_slots(result.cache, places),
            start=jnp.zeros(count, jnp.int32),
            before=jnp.asarray(texts[:, 0]),
            valid=jnp.full(count, places),
            extras=jax.tree.map(lambda x: x[:, :places], result.extras),
        )
        memory = draft.commit(params, draft.empty(params, count, 8, 4), told)
        root = Root(jnp.asarray(texts[:, places]), jnp.full(count, places))
        first, memory = draft.open(params, memory, root)
        logits = [first]
        for depth in range(1, NEW):
            level = Level(
                tokens=jnp.asarray(texts[:, places + depth])[:, None],
                first=jnp.asarray(depth),
                depth=jnp.full((count, 1), depth),
                parent=jnp.full((count, 1), depth - 1),
                ancestors=jnp.broadcast_to(jnp.arange(4) < depth, (count, 1, 4)),
            )
            after, memory = draft.extend(params, memory, root, level)
            logits.append(after[:, 0])
        return jnp.stack(logits, axis=1)

    q = softmax(drafted())
    in_tables = lambda x: [x[:: VOCAB ** (NEW - n), n].reshape((VOCAB,) * (n + 1)) for n in range(NEW)]
    target, drafts = in_tables(p), in_tables(q)
    assert np.abs(target[0] - drafts[0]).max() > 0.01  # the draft is another distribution
    for length in range(NEW + 1):
        assert enumeration_error(target, drafts, min(length, DEPTH)) < 1e-6


@pytest.fixture(scope="module")
def sample(pair):
    def run():
        static = dict(draft=ElasticDraft(SMALL), config=SMALL, room=NEW, limits=chain_limits(DEPTH + 1), dynamic=None)
        return jax.jit(functools.partial(loop.decoding_loop.__wrapped__, form=LoopForm(law="sampled", **static)))(
            *pair,
            Request(*prompts_and_ids(SAMPLES), jax.random.key(11), jnp.asarray(NEW)),
            chain_tree(DEPTH, DEPTH + 1),
            sampling(TEMPERATURE).for_program(),
        )

    return run


def test_probabilities_of_another_pool_are_noticed(monkeypatch, sample, text_probability):
    verify = loop.verify_tree

    def wrong(tree, p, distribution, *rest):
        return verify(tree, p, jnp.roll(distribution, 1, axis=-2), *rest)

    monkeypatch.setattr(loop, "verify_tree", wrong)
    assert chi_square(sample().tokens, text_probability, cells=30) < 1e-4
