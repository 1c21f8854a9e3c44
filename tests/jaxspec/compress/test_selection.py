import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxspec.compress import selection
from jaxspec.compress.selection import num_pruned
from jaxspec.formats.patterns import BFLOAT16, from_bits

# Programs: operation by operation each shape is dozens.
hard_mask, keep_largest, log_of, ordered_pattern, soft_mask, threshold = (
    jax.jit(getattr(selection, name))
    for name in ("hard_mask", "keep_largest", "log_of", "ordered_pattern", "soft_mask", "threshold")
)

COLUMNS = 19
RATIOS = np.concatenate([np.arange(0, 0.96, 0.05), np.random.default_rng(0).uniform(0, 0.95, 20)]).astype(np.float32)


def random_scores(seed, shape=(3, 5, COLUMNS), dtype=np.float32):
    return jnp.asarray(np.exp(np.random.default_rng(seed).standard_normal(shape)).astype(dtype))


@pytest.mark.parametrize(("prune", "expected"), [(0.0, 0), (0.02, 0), (0.4, 8), (0.5, 10), (0.95, 18)])
def test_num_pruned_by_hand(prune, expected):
    # 0.38, 7.6, 9.5 (to even) and 18.05 of 19.
    assert num_pruned(prune, COLUMNS) == expected


@pytest.mark.parametrize("prune", RATIOS)
def test_the_lowest_of_each_row_are_pruned(prune):
    scores = random_scores(1)
    pruned = ~np.asarray(hard_mask(log_of(scores), jnp.full(3, prune)))
    count = np.rint(prune * np.float32(COLUMNS))
    np.testing.assert_array_equal(pruned.sum(axis=-1), count)
    lowest = np.argsort(np.argsort(scores, axis=-1), axis=-1) < count
    np.testing.assert_array_equal(pruned, lowest)


def test_ties_and_zeros_are_pruned_from_the_left():
    scores = log_of(jnp.array([[2.0, 0.0, 2.0, 0.0, 0.0, 2.0, 1.0]]))
    kept = lambda count: np.asarray(hard_mask(scores, jnp.asarray(count / 7))).astype(int)[0].tolist()
    assert kept(2) == [1, 0, 1, 0, 1, 1, 1]
    assert kept(5) == [0, 0, 1, 0, 0, 1, 0]


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("distinct", [1, 3, 12, 30_000])
def test_bisection_keeps_what_the_ranks_keep(distinct):
    rng = np.random.default_rng(distinct)
    # Patterns of normal bfloat16 values and of zero: arithmetic on CPUs takes subnormal ones for zero.
    patterns = np.append(rng.integers(0x0080, 0x7F80, size=distinct - 1), 0)
    magnitude = rng.choice(patterns, size=(40, 13)).astype(np.uint16)
    scores = log_of(jnp.asarray(from_bits(jnp.asarray(magnitude), BFLOAT16), jnp.float32)[:, None, :])
    for pruned in range(14):
        ranked = hard_mask(scores, jnp.full(40, pruned / 13))[:, 0]
        kept = keep_largest(jnp.asarray(magnitude), jnp.asarray(13 - pruned))
        np.testing.assert_array_equal(kept, ranked)
        np.testing.assert_array_equal(np.sum(kept, axis=-1), 13 - pruned)


@pytest.mark.parametrize("prune", [0.0, 0.01, 0.137, 0.33, 0.4, 0.62, 0.9, 0.95])
def test_soft_mask_tends_to_the_hard_one(prune):
    scores = log_of(random_scores(3, dtype=np.float64))
    ratio = jnp.full(3, prune)
    hard = np.asarray(hard_mask(scores, ratio)).astype(float)
    distance = [np.max(np.abs(soft_mask(scores, ratio, t) - hard)) for t in (0.3, 0.03, 1e-3, 1e-5)]
    assert distance == sorted(distance, reverse=True)
    assert distance[-1] < 1e-6


def tied_scores(seed, shape, dtype=np.float64, some=(0.5, 1.0, 1.25, 7.0)):
    """Few distinct scores in a row."""
    return log_of(jnp.asarray(np.random.default_rng(seed).choice(some, size=shape), dtype))


@pytest.mark.parametrize("some", [(0.0,), (1.0,), (0.0, 3.0), (0.0, 0.5, 1.0, 1.25)], ids=len)
@pytest.mark.parametrize("columns", [2, 7, 19])
def test_soft_mask_tends_to_the_hard_one_at_ties(columns, some):
    scores = tied_scores(columns, (5, 3, columns), np.float32, some)
    for prune in (0.0, 0.06, 0.137, 0.33, 0.4, 0.62, 0.9, 0.95):
        ratio = jnp.full(5, prune)
        hard = np.asarray(hard_mask(scores, ratio)).astype(float)
        distance = [np.max(np.abs(soft_mask(scores, ratio, t) - hard)) for t in (0.3, 1e-3, 1e-5)]
        assert distance == sorted(distance, reverse=True)
        assert distance[-1] < 1e-6


@pytest.mark.parametrize("temperature", [0.3, 0.02])
def test_gradient_at_ties(check_gradient, temperature):
    scores = tied_scores(9, (4, 5, 16))
    weight = jnp.asarray(np.random.default_rng(10).standard_normal((4, 5, 16)))
    scalar = lambda prune: jnp.sum(weight * soft_mask(scores, prune, temperature))
    check_gradient(scalar, jnp.array([0.27, 0.43, 0.889, 0.02]))
    assert np.all(jax.grad(scalar)(jnp.array([0.27, 0.43, 0.889, 0.1])) != 0)
    ends = jnp.array([0.0, 0.95, 6.5 / 16, 14.5 / 16])
    check_gradient(scalar, ends, side=jnp.array([1, -1, 1, 1]))


@pytest.mark.scheme_matrix
@pytest.mark.usefixtures("x64")
def test_threshold_is_continuous_and_rises_with_the_ratio():
    scores = log_of(random_scores(4, dtype=np.float64))
    ratios = jnp.linspace(0.0, 0.95, 9501)
    values = jax.vmap(lambda p: threshold(scores, jnp.full(3, p)))(ratios)[..., 0]
    steps = np.diff(values, axis=0)
    assert np.all(steps >= 0)
    # The steepest piece runs over the widest gap of neighbouring scores in 1/19 of the range, or over 3 in half of that.
    steepest = COLUMNS * max(np.max(np.diff(np.sort(scores, axis=-1), axis=-1)), 2 * 3.0)
    assert np.max(steps) <= 1.001e-4 * steepest


def test_threshold_by_hand():
    # Log scores 0, 1, 3, 7. Pruning 2 of 4 puts the threshold half-way between ranks 1 and 2: 2. One of 4: 1/2. 2.25 of 4: 2.5.
    scores = log_of(jnp.exp(jnp.array([[3.0, 0.0, 7.0, 1.0]])))
    at = lambda p: float(threshold(scores, jnp.asarray(p))[0, 0])
    np.testing.assert_allclose([at(0.5), at(0.25), at(2.25 / 4)], [2.0, 0.5, 2.5], rtol=1e-5)
    # Below half a value the threshold leaves the lowest score downwards, by 3 in all.
    np.testing.assert_allclose([at(0.125), at(0.0625), at(0.0)], [0.0, -1.5, -3.0], atol=1e-5)


def weighted_mask(seed, temperature=0.3, columns=COLUMNS):
    """A scalar that feels every entry of the mask, as a function of the ratio of each of 3 matrices."""
    scores = log_of(random_scores(seed, (3, 5, columns), np.float64))
    weight = jnp.asarray(np.random.default_rng(seed + 100).standard_normal((3, 5, columns)))
    return lambda prune: jnp.sum(weight * soft_mask(scores, prune, temperature))


@pytest.mark.parametrize("temperature", [0.3, 0.05])
def test_gradient_at_the_ends_of_the_range(check_gradient, temperature):
    ends = jnp.array([0.0, 0.95, 0.0])
    check_gradient(weighted_mask(6, temperature), ends, side=jnp.array([1, -1, 1]))
