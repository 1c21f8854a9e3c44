"""Lossy compressions that are fitted to text: what each keeps to, and single ones by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress.fitted import fitted_footprint, fitted_network
from jaxspec.compress.fitted.methods import wanda_half
from jaxspec.compress.fitted.networks import _function
from jaxspec.models.rounded_inputs import rotate_rows
from jaxspec.settings.compressions import COMPRESSIONS

pytestmark = pytest.mark.scheme_matrix

RNG = np.random.default_rng(3)
MATRIX = jnp.asarray(RNG.standard_normal((5, 96)) * RNG.lognormal(0, 1, 96), jnp.float32)
NORMS = jnp.asarray(RNG.lognormal(0, 2, 96), jnp.float32)


#: Functions of the registry by the names of tests: how matrices are made, and how those are that go to the residual stream.
PLACES = {f"{name}{mark}": facts.of(kind).place for name, facts in COMPRESSIONS.items()
          for mark, kind in (("", "up"), ("-residual", "down")) if mark == "" or facts.residual is not None}  # fmt: skip


@pytest.mark.parametrize("name", PLACES)
def test_a_compression_stays_near_the_matrix_and_below_16_bits(name):
    made = jax.jit(_function(PLACES[name]))(MATRIX, NORMS)
    assert made.values.shape == MATRIX.shape
    weigh = lambda matrix: float(jnp.sum(jnp.square(matrix * NORMS[None])))
    assert 0 < weigh(made.values - MATRIX) < 0.1 * weigh(MATRIX)
    assert float(made.bits.draft) == float(made.bits.target) < 16
    # A channel that nothing flows through, and a matrix of zeros, give numbers all the same.
    assert np.isfinite(jax.jit(_function(PLACES[name]))(MATRIX, NORMS.at[7].set(0.0)).values).all()
    np.testing.assert_array_equal(jax.jit(_function(PLACES[name]))(jnp.zeros_like(MATRIX), NORMS).values, 0)


def test_half_of_a_row_is_pruned_by_size_times_norm():
    row, norms = jnp.asarray([[4.0, -3.0, 2.0, 0.5]]), jnp.asarray([0.1, 1.0, 1.0, 5.0])
    made = wanda_half(row, norms)  # scores 0.4, 3, 2, 2.5
    np.testing.assert_array_equal(made.values, [[0.0, -3.0, 0.0, 0.5]])
    assert float(made.bits.target) == 9.0


def test_a_rotation_is_undone_and_keeps_lengths():
    turned = jax.jit(rotate_rows)(MATRIX)
    np.testing.assert_allclose(jnp.linalg.norm(turned, axis=1), jnp.linalg.norm(MATRIX, axis=1), rtol=1e-5)
    np.testing.assert_allclose(rotate_rows(turned, back=True), MATRIX, rtol=1e-4, atol=1e-4)
    spread = lambda matrix: float(jnp.max(jnp.abs(matrix)) / jnp.std(matrix))
    assert spread(turned) < spread(MATRIX)


def test_a_network_is_compressed_layer_by_layer(random_network):
    kinds = {"q": (2, 4, 32), "down": (2, 4, 64)}
    layers = {kind: jnp.asarray(RNG.standard_normal(shape), jnp.bfloat16) for kind, shape in kinds.items()}
    norms = {"qkv": np.ones((2, 32), np.float32), "down": np.ones((2, 64), np.float32)}
    made = fitted_network("rotated-int4", {"layers": layers, "embed": 7}, norms)
    assert made["embed"] == 7
    alone = jax.jit(_function(COMPRESSIONS["rotated-int4"].place))(
        layers["down"][1].astype(jnp.float32), jnp.ones(64)
    ).values
    np.testing.assert_array_equal(made["layers"]["down"].values()[1], alone.astype(jnp.bfloat16))
    assert float(fitted_footprint("rotated-int4").target_weight_bits["q"]) == 4.5
