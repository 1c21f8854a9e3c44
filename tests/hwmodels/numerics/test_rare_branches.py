"""Work that is left out where no lane needs it."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from hwmodels.serving.simulation import change_if_needed

STEPS, LANES = jnp.array([2.0, 0.0, -1.0]), jnp.arange(12.0).reshape(3, 4)


def added(kept, step, row):
    """Adds where the step is positive, and so changes nothing where it need not."""
    return {"row": jnp.where(step > 0, kept["row"] + jnp.cumsum(step * row), kept["row"]), "count": kept["count"] + 0.0}


def one(step, row, count=7.0):
    return change_if_needed(step > 0, added, {"row": row, "count": jnp.asarray(count)}, step, row)


def outside_branches(jaxpr):
    """Names of all primitives but those of a condition's branches."""
    found = set()
    for equation in jaxpr.eqns:
        found.add(equation.primitive.name)
        if equation.primitive.name != "cond":
            for each in jaxprs_in_params(equation.params):
                found |= outside_branches(each)
    return found


def test_it_changes_what_needs_it_alone_and_side_by_side():
    expected = [LANES[0] + 2.0 * jnp.cumsum(LANES[0]), LANES[1], LANES[2]]
    for step, row, wanted in zip(STEPS, LANES, expected, strict=True):
        np.testing.assert_array_equal(one(step, row)["row"], wanted)
    mapped = jax.vmap(one)(STEPS, LANES)
    np.testing.assert_array_equal(mapped["row"], jnp.stack(expected))
    np.testing.assert_array_equal(mapped["count"], jnp.full(3, 7.0))  # what no lane has of its own
    # Two maps, of which one has the steps and the other the rows.
    both = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(STEPS, LANES)["row"]
    for place, step in enumerate(STEPS):
        np.testing.assert_array_equal(both[place], jax.vmap(one, (None, 0))(step, LANES)["row"])


def test_mapped_work_stays_in_a_branch():
    twice = jax.vmap(jax.vmap(one, (None, 0)), (0, None))
    found = outside_branches(jax.make_jaxpr(twice)(STEPS, LANES).jaxpr)
    assert "cond" in found
    assert "cumsum" not in found
    plain = jax.vmap(lambda step, row: jax.lax.cond(step > 0, jnp.cumsum, lambda row: row, row))
    assert "cumsum" in outside_branches(jax.make_jaxpr(plain)(STEPS, LANES).jaxpr)  # which is why
