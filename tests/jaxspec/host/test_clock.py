"""Rounds of a clock that is not the machine's, and what repeats say."""

import jax.numpy as jnp
import numpy as np

from jaxspec.host.stopwatch import interleave


def test_calls_are_warmed_then_timed_in_changing_order():
    now, order, advanced = [0.0], [], []

    def calls(name, *seconds):
        def call(took):
            now[0] += took
            order.append((name, took))
            return jnp.asarray(took)

        return [lambda took=took: call(took) for took in seconds]

    blocks = [{"a": calls("a", 1.0, 3.0), "b": calls("b", 7.0)}, {"c": calls("c", 0.5)}]
    found = interleave(blocks, 6, advance=lambda: advanced.append(1), clock=lambda: now[0])
    assert found.first_s == {"a": [1.0, 3.0], "b": [7.0], "c": [0.5]}
    np.testing.assert_array_equal(found.seconds["a"], [[1.0, 3.0]] * 6)
    np.testing.assert_array_equal(found.seconds["c"], [[0.5]] * 6)
    assert [float(one) for one in found.results["a"]] == [1.0, 3.0]
    assert len(advanced) == 3 + 6 * 2
    # What belongs to one name stays together, and a block ends before the next begins.
    rounds = [order[4 + 4 * i : 8 + 4 * i] for i in range(6)]
    forms = {tuple(name for name, _ in one) for one in rounds}
    assert forms == {("a", "a", "b", "c"), ("b", "a", "a", "c")}
