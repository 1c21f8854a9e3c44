"""Parameters in the forms that programs hold: 16 bits, widened where they are used, or float32 to decode with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jaxtyping import Array, Float

from jaxspec.models.apart import columns_first
from jaxspec.models.matrix import is_matrix, matrix_of, stack_of
from jaxspec.models.rounded_inputs import rounded_input
from jaxspec.models.streamed import is_streamed
from jaxspec.settings.compressions import RoundedInputs

__all__ = ["SMALL", "as_computed", "as_stored", "biased_rows", "stored_dtypes"]

#: Parameters up to which a network is widened once and for all, which costs 4 bytes each and saves widening them in every step.
SMALL = 1 << 26


def stored_dtypes(params: Any) -> set[str]:
    """Names of the number formats of parameters as they were loaded, but for codes."""
    leaves = jax.tree.leaves(params, is_leaf=is_matrix)
    return {str(leaf.dtype) for leaf in leaves if not matrix_of(leaf).in_codes}


def as_stored(params: Any) -> Any:
    """Parameters with stacks in the place of matrices and stacked vectors; single vectors stay arrays."""
    return jax.tree.map(lambda leaf: stack_of(leaf) if len(leaf.shape) > 1 else leaf, params, is_leaf=is_matrix)


def as_computed(params: Any, *, small: int = SMALL) -> Any:
    """Parameters to decode with: float32 values of a small network, in the form that products of few rows read fastest; those
    of a large or streamed one, and codes, as they are stored.

    Args:
        small: most parameters of a small network.
    """
    if is_streamed(params) or sum(leaf.size for leaf in jax.tree.leaves(params, is_leaf=is_matrix)) > small:
        return params
    return _widened(params)


@jax.jit
def _widened(params: Any) -> Any:
    return columns_first(jax.tree.map(lambda leaf: matrix_of(leaf).to_decode(), params, is_leaf=is_matrix))


def biased_rows(
    x: Float[Array, "*b column"],
    weights: Mapping[str, Any],
    kind: str,
    biased: bool,
    dot_dtype: Any = None,
    rounded: RoundedInputs | None = None,
) -> Float[Array, "*b row"]:
    """Product of `x` and a layer's matrix, in the dtype of `x`, plus its bias.

    Args:
        weights: of one layer, arrays or matrices; the bias of `kind` is called `<kind>_bias`.
        biased: static; whether there is one.
        rounded: static; form to which `x` is rounded first (see `rounded_input`).
    """
    product = matrix_of(weights[kind]).dot(rounded_input(x, rounded, weights, kind), dot_dtype)
    if not biased:
        return product
    return product + jax.lax.broadcast_to_rank(weights[f"{kind}_bias"].astype(x.dtype), product.ndim)
