import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.models.apart import Parts
from jaxspec.models.kv_cache import (
    KVCache,
    first_slots,
    in_parts,
    take_sequences,
    take_slots,
    write_cache,
)


def random_cache(slots, seed, dtype=np.float32):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.standard_normal((3, *shape), np.float32)).astype(dtype)
    return KVCache(key=draw(4, 2, 6, slots), value=draw(4, 2, slots, 6))


def slots_first(cache):
    """[keys, values], each "layer batch slot kv_head head_dim"."""
    key, value = (np.stack(node.parts) if isinstance(node, Parts) else node for node in (cache.key, cache.value))
    return np.moveaxis(np.asarray(key), 4, 2), np.moveaxis(np.asarray(value), 3, 2)


forms = pytest.mark.parametrize("form", [lambda cache: cache, in_parts], ids=["stacked", "parts"])


@pytest.mark.parametrize("starts", [(0, 6, 2, 5), (6, 6, 6, 6), (1, 0, 3, 1)])
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@forms
def test_each_sequence_is_written_at_its_own_offset_and_nowhere_else(starts, jit, form):
    cache, update = form(random_cache(9, 1)), random_cache(3, 2)
    written = (jax.jit(write_cache) if jit else write_cache)(cache, update, jnp.asarray(starts))
    for before, new, after in zip(*map(slots_first, (cache, update, written))):
        expected = before.copy()
        for sequence, start in enumerate(starts):
            expected[:, sequence, start : start + 3] = new[:, sequence]
        np.testing.assert_array_equal(after, expected)


@pytest.mark.network
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


@pytest.mark.network
@forms
def test_positions_go_where_their_slots_go(form):
    position = jnp.asarray(np.random.default_rng(4).permutation(3 * 4 * 9).reshape(3, 4, 9), jnp.int32)
    cache = dataclasses.replace(random_cache(9, 1), position=position)
    slots, sequences, starts = (
        jnp.array([[8, 0], [2, 5], [1, 1], [0, 3]]),
        jnp.array([3, 0, 3]),
        jnp.array([7, 0, 2, 6]),
    )
    taken = np.take_along_axis(np.asarray(position), np.asarray(slots)[None], axis=2)
    update = take_slots(form(cache), slots)
    written = np.array(position)
    for row, start in enumerate(starts):
        written[:, row, start : start + 2] = taken[:, row]
    cases = [
        (update, taken),
        (write_cache(form(cache), update, starts), written),
        (first_slots(form(cache), 4), position[..., :4]),
        (take_sequences(form(cache), sequences), position[:, sequences]),
    ]
    for found, expected in cases:
        parts = found.position.parts if isinstance(found.position, Parts) else found.position
        np.testing.assert_array_equal(np.stack(list(parts)), expected)
