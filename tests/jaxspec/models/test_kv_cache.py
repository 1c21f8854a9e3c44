import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.config import DecoderConfig
from jaxspec.models.kv_cache import KVCache, empty_cache, pad_cache, write_cache

CONFIG = DecoderConfig(
    vocab_size=5, hidden_size=6, intermediate_size=4, num_layers=3, num_heads=4, num_kv_heads=2, head_dim=6
)


def random_cache(slots, seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.standard_normal((3, *shape), np.float32)).astype(dtype)
    return KVCache(key=draw(4, 2, 6, slots), value=draw(4, 2, slots, 6))


def slots_first(cache):
    """[keys, values], each "layer batch slot kv_head head_dim"."""
    return np.moveaxis(np.asarray(cache.key), 4, 2), np.moveaxis(np.asarray(cache.value), 3, 2)


def test_an_empty_cache_has_room():
    cache = empty_cache(CONFIG, 4, 9, jnp.bfloat16)
    assert (cache.num_layers, cache.num_slots) == (3, 9)
    for part in slots_first(cache):
        assert part.shape == (3, 4, 9, 2, 6)
        assert part.dtype == jnp.bfloat16
        assert not part.any()


@pytest.mark.parametrize("starts", [(0, 6, 2, 5), (6, 6, 6, 6), (1, 0, 3, 1)])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_each_sequence_is_written_at_its_own_offset_and_nowhere_else(starts, jit):
    cache, update = random_cache(9, 1), random_cache(3, 2)
    written = (jax.jit(write_cache) if jit else write_cache)(cache, update, jnp.asarray(starts))
    for before, new, after in zip(*map(slots_first, (cache, update, written))):
        expected = before.copy()
        for sequence, start in enumerate(starts):
            expected[:, sequence, start : start + 3] = new[:, sequence]
        np.testing.assert_array_equal(after, expected)


def test_the_cache_keeps_its_dtype():
    update = random_cache(3, 2)
    written = write_cache(random_cache(9, 1, jnp.bfloat16), update, jnp.array([2, 0, 1, 3]))
    assert {leaf.dtype for leaf in jax.tree.leaves(written)} == {jnp.dtype(jnp.bfloat16)}
    for new, after in zip(slots_first(update), slots_first(written)):
        np.testing.assert_array_equal(after[:, 0, 2:5], new[:, 0].astype(jnp.bfloat16))


def test_gradient_reaches_what_was_written_and_what_was_left():
    cache, update, start = random_cache(9, 1), random_cache(3, 2), jnp.array([2, 0, 1, 6])

    def half_square_of_keys(cache, update):
        return (write_cache(cache, update, start).key ** 2).sum() / 2

    of_cache, of_update = jax.grad(half_square_of_keys, argnums=(0, 1))(cache, update)
    np.testing.assert_array_equal(slots_first(of_update)[0], slots_first(update)[0])
    left = np.ones((4, 9), bool)
    for sequence, offset in enumerate(np.asarray(start)):
        left[sequence, offset : offset + 3] = False
    expected = np.where(left[None, :, :, None, None], slots_first(cache)[0], 0)
    np.testing.assert_array_equal(slots_first(of_cache)[0], expected)
    assert not slots_first(of_cache)[1].any()


def test_padding_adds_empty_slots_at_the_end():
    cache = random_cache(3, 1)
    padded = pad_cache(cache, 4)
    assert padded.num_slots == 7
    for before, after in zip(slots_first(cache), slots_first(padded)):
        np.testing.assert_array_equal(after[:, :, :3], before)
        assert not after[:, :, 3:].any()


def test_it_is_a_pytree():
    doubled = jax.tree.map(lambda leaf: 2 * leaf, random_cache(2, 0))
    assert isinstance(doubled, KVCache)
    assert len(jax.tree.leaves(doubled)) == 2


def test_a_step_of_other_layers_is_refused():
    # They would be written to the first layers alone.
    cache, update = (empty_cache(dataclasses.replace(CONFIG, num_layers=layers), 2, 3) for layers in (2, 1))
    with pytest.raises(AssertionError, match="shape"):
        write_cache(cache, update, jnp.zeros(2, jnp.int32))
