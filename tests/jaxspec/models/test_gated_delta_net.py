"""Linear attention by hand, on texts and on trees, with its cache through whatever a cache goes through."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_cases import CLOSE, forward_of
from linear_cases import HYBRID, HYBRID_PARAMS, delta_net_by_hand

from jaxspec.models import decoder
from jaxspec.models.blocks import GatedDeltaNet, StepInput
from jaxspec.models.blocks.gated_delta_net import Decays, Remembered, delta_rule
from jaxspec.models.decoder import causal_mask
from jaxspec.models.kv_cache import CachedKV, empty_cache, take_sequences, take_slots, write_cache
from jaxspec.trees import tree_from_parents, tree_mask

pytestmark = [pytest.mark.usefixtures("exact_products"), pytest.mark.network]

TOKENS = np.random.default_rng(1).integers(13, size=(2, 9)).astype(np.int32)
#: Two roots, branches at several depths, a path that is longer than the convolution.
PARENTS = [-1, 0, 0, 1, 1, 2, 3, 6, 7, 7, -1, 10]
run = jax.jit(forward_of, static_argnames=("config", "frugal"))


def positions(first, count):
    return np.broadcast_to(first + np.arange(count, dtype=np.int32), (2, count))


def whole(tokens=TOKENS, **options):
    count = tokens.shape[1]
    return run(
        HYBRID_PARAMS, HYBRID, tokens=tokens, positions=positions(0, count), mask=causal_mask(2, count), **options
    )


def of_block(layer=1):
    block = GatedDeltaNet()
    names = {**block.matrices(HYBRID), **block.vectors(HYBRID)}
    return block, {name: HYBRID_PARAMS["layers"][name][layer] for name in names}


@pytest.mark.parametrize("parents", [list(range(-1, 8)), PARENTS], ids=["text", "tree"])
def test_equals_the_recurrence_by_hand(parents):
    block, weights = of_block()
    normed = jnp.asarray(np.random.default_rng(2).standard_normal((1, len(parents), 20), np.float32))
    tree = tree_from_parents(parents)
    depth = np.asarray(tree.depth)[None]  # 1 for roots
    step = StepInput(jnp.asarray(depth), tree_mask(tree)[None])
    apply = jax.jit(lambda normed, weights: block.apply(normed, weights, HYBRID, step))
    result = apply(normed, weights)
    expected = delta_net_by_hand(normed[0], weights, HYBRID, parents)
    np.testing.assert_allclose(result.output[0], expected, rtol=2e-4, atol=2e-5)
    assert {name: value.shape[-1] for name, value in result.inputs.items()} == {"linear_in": 20, "linear_out": 20}
    key, value = result.written
    assert (key.shape, value.shape) == ((1, 1, 6 + 2 * 4 + 20 + 32, len(parents)), (1, 1, len(parents), 0))


def test_gradient_agrees_with_central_differences():
    block, weights = of_block(0)
    with jax.enable_x64(True):
        wide = lambda tree: jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), tree)
        normed = np.random.default_rng(3).standard_normal((2, 6, 20))
        step = StepInput(jnp.asarray(positions(0, 6)), causal_mask(2, 6))

        @jax.jit
        def loss_and_gradient(arguments):
            loss = lambda of: jnp.sum(jnp.sin(3 * block.apply(of[0], of[1], HYBRID, step).output))
            return jax.value_and_grad(loss)(arguments)

        start = wide((normed, weights))
        gradient = loss_and_gradient(start)[1]
        for seed in range(3):
            rng = np.random.default_rng(seed)
            direction = jax.tree.map(lambda leaf, rng=rng: rng.standard_normal(leaf.shape), start)
            at = lambda step, direction=direction: float(
                loss_and_gradient(jax.tree.map(lambda p, d: p + step * d, start, direction))[0]
            )
            slope = (at(1e-5) - at(-1e-5)) / 2e-5
            ours = sum(jax.tree.leaves(jax.tree.map(lambda g, d: float((g * d).sum()), gradient, direction)))
            assert abs(ours - slope) < 1e-5 * abs(slope)


def test_training_frugally_has_the_same_gradient():
    def loss(params, frugal):
        logits = decoder.forward_text(params, HYBRID, TOKENS, frugal=frugal).logits
        return jnp.mean(jax.nn.logsumexp(logits, -1) - logits[:, :, 3])

    both = [jax.jit(jax.grad(partial(loss, frugal=f)))(HYBRID_PARAMS) for f in (False, True)]
    largest = max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(both[0]))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=5e-5 * largest), *both)
    assert all(float(jnp.abs(leaf).max()) > 0 for leaf in jax.tree.leaves(both[0]))


def test_decoding_through_the_cache_is_one_pass_over_the_text():
    # Prompts of 4 and 2 tokens at slots 3 and 1, then single tokens and a step of two.
    expected = whole()
    cache, length, first = empty_cache(HYBRID, 2, 14), np.array([4, 2]), np.array([3, 1])
    # 6 keys, 2 x 4 sums of decay, 20 updates and 32 projections in the room of two heads' keys.
    assert (cache.key.shape, cache.value.shape) == ((3, 2, 2, 33, 14), (3, 2, 2, 14, 6))
    cache = write_cache(cache, whole(TOKENS[:, :4]).cache, first)
    for width in (1, 2, 1):
        slots = np.arange(14)
        seen = (slots >= first[:, None]) & (slots < (first + length)[:, None])
        at = length[:, None] + np.arange(width)
        result = run(
            HYBRID_PARAMS,
            HYBRID,
            tokens=np.take_along_axis(TOKENS, at, axis=1),
            positions=at,
            mask=causal_mask(2, width),
            sources=[CachedKV(cache, np.broadcast_to(seen[:, None], (2, width, 14)))],
        )
        for row in range(2):
            np.testing.assert_allclose(result.logits[row], expected.logits[row, at[row]], **CLOSE)
        cache, length = write_cache(cache, result.cache, first + length), length + width


def test_a_tree_over_a_shared_prefix_and_a_path_of_its_own():
    # Tokens 0 to 3 are one source that both sequences share, 4 and 5 another one; 6 and 7 do not see each
    # other, and 8 follows 7.
    tokens = np.concatenate([np.repeat(TOKENS[:1, :4], 2, axis=0), TOKENS[:, 4:9]], axis=1)
    text = whole(tokens)
    part = lambda first, stop: take_slots(text.cache, np.broadcast_to(np.arange(first, stop), (2, stop - first)))
    shared = take_sequences(part(0, 4), np.array([0]))
    sees = lambda count: np.ones((2, 3, count), bool)
    result = run(
        HYBRID_PARAMS,
        HYBRID,
        tokens=tokens[:, 6:9],
        positions=np.broadcast_to([6, 6, 7], (2, 3)),
        mask=np.broadcast_to(np.array([[1, 0, 0], [0, 1, 0], [0, 1, 1]], bool), (2, 3, 3)),
        sources=[CachedKV(shared, sees(4)), CachedKV(part(4, 6), sees(2))],
    )
    for node, path in enumerate(([6], [7], [7, 8])):
        text = np.concatenate([tokens[:, :6], tokens[:, path]], axis=1)
        np.testing.assert_allclose(result.logits[:, node], whole(text).logits[:, -1], **CLOSE)


def test_sums_of_decay_stay_exact_over_long_texts():
    """One token after ten thousand that forget much: neighbours are as far apart as they are near the beginning."""
    tokens, seed = 10_000, np.random.default_rng(4)
    log_decay = -3 * seed.random(tokens).astype(np.float32)
    unit = np.ones((1, 1, tokens, 1), np.float32)
    blank = np.zeros((1, 1, 1, 0), np.float32)
    rule = partial(delta_rule, mask=jnp.ones((1, 1, 1), bool))
    ones = lambda count: jnp.asarray(unit[:, :, :count])

    @jax.jit
    def after(carry, decay):
        # Each token is a step of its own over the one before.
        whole, rest = carry
        known = Remembered(jnp.ones((1, 1, 1, 1)), Decays(whole, rest), jnp.zeros((1, 1, 1, 1)), jnp.asarray(blank[0]))
        source = (known, jnp.ones((1, 1, 1), bool), jnp.zeros((1, 1), jnp.int32))
        _, decays, _ = rule(
            ones(1), ones(1), decay[None, None, None], decay[None, None, None], ones(1), sources=[source]
        )
        return tuple(decays), tuple(decays)

    zero = jnp.zeros((1, 1, 1))
    _, (sums, rests) = jax.lax.scan(after, (zero, zero), jnp.asarray(log_decay))
    exact = np.cumsum(log_decay.astype(np.float64))
    found = np.asarray(sums, np.float64).ravel() + np.asarray(rests, np.float64).ravel()
    assert exact[-1] < -14_000
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5)
    assert np.abs(np.cumsum(log_decay) - exact).max() > 1e-2  # what one float32 would have
