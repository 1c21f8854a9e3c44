import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.compress.footprint import bits_per_value as bits_of
from jaxspec.compress.footprint import count_exponents, soft_bitmap

pytestmark = pytest.mark.scheme_matrix


def bits_per_value(bits, kept, cut_bits, bitmap, pruned_exponents="raw"):
    """What a draft step reads, and what a verification reads in all."""
    return bits_of(count_exponents(bits, kept, pruned_exponents), bits.shape[-1], cut_bits, bitmap)


def patterns(values):
    return jnp.asarray(np.asarray(values).astype(ml_dtypes.bfloat16).view(np.uint16))


def test_footprint_by_hand():
    # Kept are 1, 1.5, 2 and 1.25, with exponents 127 three times and 128 once; 0.5 is pruned, 4 mantissa bits are cut.
    # Draft: 5 of bitmap, 4 signs, codes 3 x "1" + "01" = 5, a codebook of 2 x 8, 4 x 3 of mantissa: 42 bits of 5 values.
    # Target: 4 x 4 cut bits more, and the pruned value: 16 raw, or 8 + "1" + its codebook's 8 = 17.
    bits, kept = patterns([1.0, 1.5, 2.0, 0.5, 1.25]), jnp.array([1.0, 1.0, 1.0, 0.0, 1.0])
    raw = bits_per_value(bits, kept, jnp.asarray(4.0), jnp.asarray(1.0), "raw")
    coded = bits_per_value(bits, kept, jnp.asarray(4.0), jnp.asarray(1.0), "coded")
    np.testing.assert_allclose(raw, [42 / 5, (42 + 16 + 16) / 5], rtol=1e-6)
    np.testing.assert_allclose(coded, [42 / 5, (42 + 16 + 17) / 5], rtol=1e-6)


def test_an_uncompressed_draft_reads_what_the_target_reads():
    bits = patterns(np.random.default_rng(0).standard_normal(301))
    draft, target = bits_per_value(bits, jnp.ones(301), jnp.asarray(0.0), jnp.asarray(0.0))
    assert draft == target
    assert draft < 16


class TestPaperPoint:
    """Cassandra's "40 %/4 bits" on Gaussian rows, whose exponents take L = 2.85 bits (see tests of the unary code).

    Draft: 1 of bitmap + 0.6 (1 sign + L + 3 of mantissa) = 5.11. Target: + 0.6 x 4 cut bits + 0.4 of the pruned values, each
    16 as it stands = 13.91, or 1 + 7 + L with a code of its own = 11.85.
    """

    ROWS, COLUMNS = 256, 1000

    def values(self):
        rng = np.random.default_rng(11)
        scale = 0.02 * np.exp(0.3 * rng.standard_normal((self.ROWS, 1)))
        return scale * rng.standard_normal((self.ROWS, self.COLUMNS))

    def bits(self, kept, pruned_exponents):
        result = bits_per_value(
            patterns(self.values()).reshape(-1),
            jnp.asarray(kept.reshape(-1), jnp.float32),
            jnp.asarray(4.0),
            jnp.asarray(1.0),
            pruned_exponents,
        )
        return float(result[0]), float(result[1])

    def test_pruned_at_random(self):
        order = np.random.default_rng(12).random((self.ROWS, self.COLUMNS)).argsort(axis=1)
        kept = order >= 400
        np.testing.assert_allclose(self.bits(kept, "raw"), [5.11, 13.91], atol=0.04)
        np.testing.assert_allclose(self.bits(kept, "coded"), [5.11, 11.85], atol=0.06)

    def test_pruned_by_magnitude_the_codes_are_shorter(self):
        # The kept exponents are fewer ones: pruning by importance reads less than the paper's point says.
        kept = np.abs(self.values()).argsort(axis=1).argsort(axis=1) >= 400
        draft, target = self.bits(kept, "raw")
        assert draft < 5.11 - 0.2
        np.testing.assert_allclose(target - draft, 0.6 * 4 + 0.4 * 16, rtol=1e-5)


def test_soft_bitmap_tends_to_its_presence():
    ratios = jnp.array([0.0, 0.01, 0.4, 0.95])
    at = [np.asarray(soft_bitmap(ratios, t)) for t in (0.3, 0.05, 1e-3)]
    assert np.all(np.diff(at[0]) > 0)
    np.testing.assert_allclose(at[-1], [0, 1, 1, 1], atol=1e-6)
    assert all(values[0] == 0 for values in at)


@pytest.mark.parametrize("pruned_exponents", ["raw", "coded"])
def test_gradient(check_gradient, pruned_exponents):
    rng = np.random.default_rng(3)
    bits = patterns(rng.standard_normal((2, 37)) * [[1.0], [0.3]])
    inputs = {
        "kept": jnp.asarray(rng.uniform(0.1, 0.9, (2, 37))),
        "cut": jnp.array([3.3, 1.0]),
        "bitmap": jnp.array([0.2, 0.9]),
    }

    def scalar(x):
        draft, target = bits_per_value(bits, x["kept"], x["cut"], x["bitmap"], pruned_exponents)
        return jnp.sum(draft * jnp.array([1.0, 0.6])) - jnp.sum(target * jnp.array([0.2, 1.3]))

    check_gradient(scalar, inputs)
