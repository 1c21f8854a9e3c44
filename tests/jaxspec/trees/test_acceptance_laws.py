import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.errors import InputError
from jaxspec.trees import AcceptanceLaw, expected_tokens, fit_acceptance_law, law_table, node_acceptance, public_tree


def test_tables_by_hand():
    # Ranks fall as 1, 2^-2, 3^-2; the second depth has half of each.
    power = law_table(AcceptanceLaw(0.6, 2.0, 0.5), depth=2, ranks=3)
    np.testing.assert_allclose(power, [[0.6, 0.15, 0.6 / 9], [0.3, 0.075, 0.3 / 9]], rtol=1e-6)
    # A third of the rank before: 0.6 + 0.2 + 0.6/9 < 1.
    geometric = law_table(AcceptanceLaw(0.6, np.log(3), 0.5, "geometric"), depth=2, ranks=3)
    np.testing.assert_allclose(geometric, [[0.6, 0.2, 0.6 / 9], [0.3, 0.1, 0.3 / 9]], rtol=1e-6)
    # 0.9 + 0.45 + 0.3 = 1.65: scaled to 1; a depth on, 0.66 is left as it is.
    full = law_table(AcceptanceLaw(0.9, 1.0, 0.4), depth=2, ranks=3)
    np.testing.assert_allclose(full[0], np.array([0.9, 0.45, 0.3]) / 1.65, rtol=1e-6)
    np.testing.assert_allclose(full[1], [0.36, 0.18, 0.12], rtol=1e-6)


@pytest.mark.parametrize("falloff", ["power", "geometric"])
def test_limits(falloff):
    flat = law_table(AcceptanceLaw(0.05, 0.0, 1.0, falloff), depth=3, ranks=7)
    np.testing.assert_allclose(flat, np.full((3, 7), 0.05), rtol=1e-6)
    steep = law_table(AcceptanceLaw(0.8, 45.0, 0.0, falloff), depth=3, ranks=4)
    np.testing.assert_allclose(steep, np.eye(1, 12).reshape(3, 4) * 0.8, atol=1e-12)
    assert not np.any(law_table(AcceptanceLaw(0.0, 1.0, 1.0, falloff), depth=2, ranks=2))


@settings(max_examples=40)
@given(
    seed=st.integers(0, 9999),
    shape=st.sampled_from([(1, 1), (1, 6), (5, 1), (4, 9)]),
    falloff=st.sampled_from(["power", "geometric"]),
)
def test_rows_are_chances_that_fall(seed, shape, falloff):
    rng = np.random.default_rng(seed)
    numbers = rng.uniform(0, 1), rng.uniform(0, 3), rng.uniform(0, 1)
    table = np.asarray(law_table(AcceptanceLaw(*numbers, falloff), depth=shape[0], ranks=shape[1]))
    assert table.shape == shape
    assert np.all(table >= 0)
    assert np.all(table.sum(axis=1) <= 1 + 1e-6)
    assert np.all(np.diff(table, axis=1) <= 0)
    assert np.all(np.diff(table.sum(axis=1)) <= 1e-6)


def test_batches_are_the_single_laws(jit):
    first, exponent = jnp.asarray([[0.3, 0.9, 0.5]]), jnp.asarray([[1.0], [0.2]])
    many = jit(lambda f, e: law_table(AcceptanceLaw(f, e, 0.8), depth=3, ranks=4))(first, exponent)
    assert many.shape == (2, 3, 3, 4)
    for i, j in np.ndindex(2, 3):
        one = law_table(AcceptanceLaw(first[0, j], exponent[i, 0], 0.8), depth=3, ranks=4)
        np.testing.assert_allclose(many[i, j], one, rtol=1e-6)


@pytest.mark.parametrize("falloff", ["power", "geometric"])
def test_gradients(gradient_check, x64, falloff):
    tree = public_tree("eagle_25")

    def tokens(numbers):
        table = law_table(AcceptanceLaw(*numbers, falloff), depth=5, ranks=4)
        return expected_tokens(tree, node_acceptance(tree, table))

    check = gradient_check(tokens)
    check(jnp.asarray([0.6, 1.3, 0.8]))  # no row is scaled
    check(jnp.asarray([0.95, 0.3, 0.7]))  # the first rows are
    check(jnp.asarray([0.5, 0.9, 0.0]))  # nothing below the first level
    check(jnp.asarray([0.2, 0.0, 1.0]), side=jnp.asarray([0, 1, -1]))
    # At a sum of exactly 1 there is a kink; the gradient is that of the row as it is, from below.
    check(jnp.asarray([0.25, 0.0, 0.0]), side=jnp.asarray([-1, 1, 1]))


@pytest.mark.parametrize("falloff", ["power", "geometric"])
@pytest.mark.parametrize("numbers", [(0.4, 1.2, 0.93), (0.35, 1.1, 0.5), (0.15, 0.9, 1.1)])
def test_a_fit_finds_the_law_again(x64, falloff, numbers):
    table = np.asarray(law_table(AcceptanceLaw(*numbers, falloff), depth=6, ranks=8))
    assert table.sum(axis=1).max() < 1
    fit = fit_acceptance_law(table, falloff=falloff)
    np.testing.assert_allclose((fit.law.first_chance, fit.law.exponent, fit.law.depth_factor), numbers, rtol=1e-5)
    assert fit.r_squared == pytest.approx(1, abs=1e-9)
    assert fit.residual_scatter < 1e-6
    other = fit_acceptance_law(table, falloff="power" if falloff == "geometric" else "geometric")
    assert other.r_squared < 0.999


def test_a_fit_to_counts_is_near_and_states_its_error():
    rng = np.random.default_rng(8)
    truth = np.asarray(law_table(AcceptanceLaw(0.5, 1.4, 0.8), depth=4, ranks=5), np.float64)
    roots = np.array([[4000], [1000], [300], [40]])
    counted = np.array([rng.multinomial(n, [*row, 1 - row.sum()])[:5] / n for n, row in zip(roots[:, 0], truth)])
    fit = fit_acceptance_law(counted, weight=np.broadcast_to(roots, counted.shape))
    found = law_table(fit.law, depth=4, ranks=5)
    assert np.max(np.abs(found - truth)) < 0.03
    assert 0.97 < fit.r_squared < 1
    # By its own definition, in plain NumPy.
    share = np.broadcast_to(roots, counted.shape) / (5 * roots.sum())
    left = np.sum(share * (counted - np.asarray(found, np.float64)) ** 2)
    total = np.sum(share * (counted - np.sum(share * counted)) ** 2)
    assert fit.r_squared == pytest.approx(1 - left / total, abs=1e-4)
    assert fit.residual_scatter == pytest.approx(left**0.5, rel=1e-3)
    # An entry without weight does not count, whatever it says.
    spoiled = counted.copy()
    spoiled[3] = 0.9
    weight = np.broadcast_to(roots, counted.shape) * np.array([[1], [1], [1], [0]])
    assert fit_acceptance_law(spoiled, weight=weight).law.first_chance == pytest.approx(0.5, abs=0.03)


def test_no_trace_for_new_numbers(jit):
    traces = []

    @jit
    def table(law):
        traces.append(None)
        return law_table(law, depth=2, ranks=3)

    for first in (0.2, 0.7):
        table(AcceptanceLaw(jnp.float32(first), jnp.float32(1.0), jnp.float32(0.5)))
    assert len(traces) == 1
    assert jax.tree.structure(AcceptanceLaw(1, 2, 3)) != jax.tree.structure(AcceptanceLaw(1, 2, 3, "geometric"))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: law_table(AcceptanceLaw(0.5, 1.0, 1.0, "linear"), depth=1, ranks=1), ValueError, "power, geometric"),
        (lambda: law_table(AcceptanceLaw(0.5, 1.0, 1.0), depth=0, ranks=1), ValueError, "at least 1"),
        (lambda: fit_acceptance_law([0.5, 0.2, 0.1]), InputError, "matrix"),
        (lambda: fit_acceptance_law([[0.5, 0.2, 1.1]]), InputError, "from 0 to 1"),
        (lambda: fit_acceptance_law([[0.5, 0.2]]), InputError, "three or more"),
        (lambda: fit_acceptance_law([[0.5, 0.2, 0.1]], weight=[[1, 1]]), InputError, "per entry"),
        (lambda: fit_acceptance_law([[0.5, 0.2, 0.1]], weight=[[1, 1, -1]]), InputError, ">= 0"),
        (lambda: fit_acceptance_law([[0.5, 0.2, 0.1]], falloff="linear"), ValueError, "power, geometric"),
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
