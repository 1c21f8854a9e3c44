import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.models.dots import dot_rows


def make(rows=7, columns=33):
    rng = np.random.default_rng(0)
    normal = lambda *shape: jnp.asarray(rng.standard_normal(shape, np.float32))
    return normal(2, 3, columns), normal(rows, columns), normal(2, 3, rows)


def rounded(x):
    return np.asarray(jnp.asarray(x).astype(jnp.bfloat16), np.float64)


def test_narrow_product_rounds_operands_and_sums_wide():
    # Products of 8-bit significands are exact in float32, so only the order of 33 float32 sums is left free.
    x, w, _ = make()
    narrow = dot_rows(x, w, jnp.bfloat16)
    assert narrow.dtype == jnp.float32
    np.testing.assert_allclose(narrow, rounded(x) @ rounded(w).T, rtol=1e-5, atol=1e-5)


def test_narrow_gradient_is_that_of_rounded_operands_and_near_the_wide_one():
    x, w, cotangent = make()
    pull = lambda dot_dtype: jax.vjp(lambda x, w: dot_rows(x, w, dot_dtype), x, w)[1](cotangent)
    narrow, wide = pull(jnp.bfloat16), pull(None)
    by_hand = (
        rounded(cotangent) @ rounded(w),
        np.einsum("abo,abi->oi", rounded(cotangent), rounded(x)),
    )
    for ours, expected, exact, operand in zip(narrow, by_hand, wide, (x, w)):
        assert (ours.dtype, ours.shape) == (operand.dtype, operand.shape)
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
        # Two operands, each rounded by at most 2^-9 of itself: below 1 % of the norm.
        assert np.linalg.norm(ours - exact) < 0.01 * np.linalg.norm(exact)
