"""Annotations of arrays are checked, and functions without arrays are left alone."""

import jax.numpy as jnp
import jaxtyping
import pytest
from array_hints import jaxtyped
from jaxtyping import Array, Float

from hwmodels.numerics.scalars import as_float
from jaxspec.trees.rank_traces import error_of_mean

checked = jaxtyped(typechecker=None)


def doubled(x: Float[Array, " n"], factor: int = 2) -> Float[Array, " n"]:
    return factor * x


def named(name: str, count: int = 2) -> str:
    return name * count


def test_only_functions_of_arrays_are_wrapped():
    assert checked(named) is named
    assert checked(doubled)(jnp.ones(3)).shape == (3,)
    with pytest.raises(jaxtyping.TypeCheckError, match="doubled"):
        checked(doubled)(jnp.ones((3, 2)))


def test_a_wrong_result_is_found():
    def flat(x: Float[Array, "n m"]) -> Float[Array, "n m"]:
        return x.reshape(-1)

    with pytest.raises(jaxtyping.TypeCheckError, match="return value"):
        checked(flat)(jnp.ones((3, 2)))


def test_the_libraries_are_checked():
    with pytest.raises(jaxtyping.TypeCheckError, match="error_of_mean"):
        error_of_mean(jnp.ones(3, int))
    assert as_float(2) == 2.0
