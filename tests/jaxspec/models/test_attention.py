import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models import attention
from jaxspec.models.attention import KVSource

pytestmark = pytest.mark.network

attend = jax.jit(attention.attend)
attend_sequentially = jax.jit(attention.attend_sequentially, static_argnums=2)

BATCH, TOKENS, HEADS, KV_HEADS, HEAD_DIM = 2, 5, 6, 3, 4


def make(slots, seed=0, share_seen=0.4):
    """A query and one source per entry of `slots`; every row sees a slot of the last source."""
    rng = np.random.default_rng(seed)
    normal = lambda *shape: jnp.asarray(rng.standard_normal(shape, np.float32))
    sources = [
        KVSource(
            key=normal(BATCH, KV_HEADS, HEAD_DIM, count),
            value=normal(BATCH, KV_HEADS, count, HEAD_DIM),
            mask=jnp.asarray(rng.random((BATCH, TOKENS, count)) < share_seen),
        )
        for count in slots
    ]
    sources[-1] = sources[-1]._replace(mask=sources[-1].mask.at[:, :, 1].set(True))
    return normal(BATCH, TOKENS, HEADS, HEAD_DIM), sources


def by_hand(query, sources):
    """One query, one head, one visible slot at a time, in float64."""
    query = np.asarray(query, np.float64)
    output = np.zeros((BATCH, TOKENS, HEADS, HEAD_DIM))
    for b, t, h in np.ndindex(BATCH, TOKENS, HEADS):
        kv_head = h * KV_HEADS // HEADS
        seen = [
            (np.asarray(source.key, np.float64)[b, kv_head, :, s], np.asarray(source.value, np.float64)[b, kv_head, s])
            for source in sources
            for s in range(source.mask.shape[2])
            if source.mask[b, t, s]
        ]
        weights = np.exp([query[b, t, h] @ key / np.sqrt(HEAD_DIM) for key, _ in seen])
        output[b, t, h] = sum(w * value for w, (_, value) in zip(weights, seen)) / weights.sum()
    return output.reshape(BATCH, TOKENS, HEADS * HEAD_DIM)


@pytest.mark.parametrize("slots", [(5,), (1, 3, 4)])
@pytest.mark.parametrize("function", [attend, attend_sequentially])
def test_equals_attention_by_hand(function, slots):
    query, sources = make(slots)
    np.testing.assert_allclose(function(query, sources), by_hand(query, sources), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("function", [attend, attend_sequentially])
def test_a_source_of_one_sequence_is_shared_by_all(function):
    query, (shared, own) = make((7, 5), seed=7)
    one = shared._replace(key=shared.key[:1], value=shared.value[:1])
    repeated = KVSource(*(jnp.repeat(part, BATCH, axis=0) for part in one[:2]), shared.mask)
    np.testing.assert_allclose(function(query, [one, own]), by_hand(query, [repeated, own]), rtol=2e-5, atol=2e-6)


def test_both_ways_have_the_same_gradients():
    query, sources = make((7, 5), seed=3)
    masks = [source.mask for source in sources]
    weight = jnp.asarray(np.random.default_rng(4).standard_normal((BATCH, TOKENS, HEADS * HEAD_DIM), np.float32))

    def gradients(function):
        def of(query, keys, values):
            rebuilt = [KVSource(*parts) for parts in zip(keys, values, masks)]
            return jnp.sum(weight * function(query, rebuilt))

        gradient = jax.jit(jax.grad(of, argnums=(0, 1, 2)))
        return gradient(query, [s.key for s in sources], [s.value for s in sources])

    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        gradients(attention.attend),
        gradients(attention.attend_sequentially),
    )


@pytest.mark.parametrize("function", [attend, attend_sequentially])
def test_a_row_that_sees_nothing_gets_the_mean_and_a_finite_gradient(function):
    query, sources = make((7, 5))
    sources = [source._replace(mask=source.mask.at[1, 2].set(False)) for source in sources]
    values = np.concatenate([source.value for source in sources], axis=2)[1]  # kv_head, slot, head_dim
    mean = np.repeat(values.mean(1), HEADS // KV_HEADS, axis=0).reshape(-1)
    np.testing.assert_allclose(function(query, sources)[1, 2], mean, rtol=1e-4, atol=1e-6)
    gradient = jax.jit(jax.grad(lambda q: function.__wrapped__(q, sources).sum()))(query)
    assert np.isfinite(gradient).all()


def test_a_sink_takes_its_share_and_gives_nothing():
    query, sources = make((7, 5), seed=8)
    sinks = jnp.asarray(np.random.default_rng(9).standard_normal(HEADS), jnp.float32)
    plain = by_hand(query, sources).reshape(BATCH, TOKENS, HEADS, HEAD_DIM)
    # A slot of score `sink` and value 0: what the others get is multiplied by their share of the sum.
    logsum = np.zeros((BATCH, TOKENS, HEADS))
    for b, t, h in np.ndindex(BATCH, TOKENS, HEADS):
        scores = [
            float(np.asarray(query)[b, t, h] @ np.asarray(source.key)[b, h // 2, :, s]) / np.sqrt(HEAD_DIM)
            for source in sources
            for s in range(source.mask.shape[2])
            if source.mask[b, t, s]
        ]
        logsum[b, t, h] = np.log(np.sum(np.exp(scores)))
    share = 1 / (1 + np.exp(np.asarray(sinks) - logsum))
    expected = (share[..., None] * plain).reshape(BATCH, TOKENS, -1)
    for function in (attend, attend_sequentially):
        np.testing.assert_allclose(function(query, sources, sinks=sinks), expected, rtol=2e-5, atol=2e-6)
    # A cap and a scale concern the scores alone.
    large = jnp.full(HEADS, 30.0)
    both = (attention.attend, attention.attend_sequentially)
    capped = [function(query, sources, scale=0.7, cap=0.5, sinks=large) for function in both]
    np.testing.assert_allclose(*capped, atol=1e-10)
    assert np.abs(capped[0]).max() < 1e-10
    blind = [source._replace(mask=jnp.zeros_like(source.mask)) for source in sources]
    np.testing.assert_array_equal(attend(query, blind, sinks=sinks), 0)
