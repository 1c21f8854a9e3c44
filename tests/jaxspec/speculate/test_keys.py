import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.speculate.sampling import Purpose, draw_keys

SEED = jax.random.key(3)


def draws(purpose, prompts, positions, seed=SEED):
    return jax.random.key_data(draw_keys(seed, purpose, jnp.asarray(prompts), jnp.asarray(positions)))


def test_purposes_keep_their_numbers():
    # A seed means the same in every version: numbers are added, never changed.
    assert {purpose.name: purpose.value for purpose in Purpose} == {
        "ACCEPT": 0,
        "DRAFT": 1,
        "NEXT": 2,
        "AUTOREGRESSIVE": 3,
        "BOOTSTRAP": 4,
        "BRANCH": 5,
        "SAMPLE": 6,
        "FOLLOW": 7,
    }


def test_no_two_purposes_prompts_or_positions_share_a_key():
    prompts, positions = map(list, zip(*itertools.product([0, 1, 7, 8], [0, 1, 7, 8])))
    keys = np.concatenate([draws(purpose, prompts, positions) for purpose in Purpose])
    assert len(np.unique(keys, axis=0)) == len(Purpose) * 16


@pytest.mark.network
def test_a_key_does_not_depend_on_its_place_in_a_batch():
    whole = draws(Purpose.DRAFT, [5, 9, 2], [1, 4, 4])
    np.testing.assert_array_equal(draws(Purpose.DRAFT, [2, 5], [4, 1]), whole[np.array([2, 0])])
    assert np.any(whole != draws(Purpose.DRAFT, [5, 9, 2], [1, 4, 4], jax.random.key(4)))
