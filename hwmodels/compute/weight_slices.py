"""What the stored width of a weight means to an arithmetic unit: slices of the unit's own width, modes for narrow weights.

Source: ELMoE-3D, 4.3 and Table 1: a multiplier takes a slice of a weight, so that 8-bit weights run at half the rate of
4-bit ones. "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 5.2.2: a lookup takes a 4-bit code.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.axes import as_arrays
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Number

__all__ = ["METADATA_BITS", "share_narrower", "weight_slices"]

#: Stored bits per weight that may be scales and padding: 0.5 for 16-bit scales of 32 weights, rounded up.
METADATA_BITS = 1.0


def weight_slices(
    weight_bits: Number, slice_bits: Number, *, metadata_bits: Number = METADATA_BITS, temperature: Number = 0.0
) -> Float[Array, "*b"]:
    """Slices that cover the value of a stored weight.

    Args:
        weight_bits: "*b", > 0; bits stored per weight, scales and padding included.
        slice_bits: "*b", > 0; bits of a value that the unit takes at a time.
        metadata_bits: "*b", >= 0; so many stored bits may belong to no value: 4.5 bits are one slice of 4 bits, not two. A
            value without metadata is taken for a narrower one by this: 5 bits are one slice too, as 4 bits with scales of
            groups of 16.
        temperature: "*b", in [0, 1], of `smooth_ceil_div`.
    Returns:
        "*b", >= 1 at every temperature, increasing in `weight_bits`; whole at temperature 0.
    Gradient: as `smooth_ceil_div`; 0 where one slice is enough, with a kink where it just is.
    """
    stored_bits, slice_bits, metadata_bits = as_arrays(weight_bits, slice_bits, metadata_bits)
    value_bits = stored_bits - metadata_bits
    # One slice is never taken in part: a relaxed count below one would be a rate above the peak.
    one_is_enough = value_bits <= slice_bits
    count = smooth_ceil_div(jnp.where(one_is_enough, slice_bits, value_bits), slice_bits, temperature)
    return jnp.where(one_is_enough, 1.0, count)


def share_narrower(weight_bits: Number, limit_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
    """Whether stored weights are narrower than a limit (1) or not (0), relaxed to a share.

    Args:
        weight_bits: "*b", > 0; bits stored per weight.
        limit_bits: "*b"; weights just this wide are not narrower.
        temperature: "*b", in [0, 1]; bits below the limit over which the share falls.
    Returns:
        "*b", in [0, 1]; 1 up to limit - temperature, 0 from the limit on, decreasing.
    Gradient: continuous at temperature > 0; at 0 there is a jump at the limit, which no gradient shows.
    """
    weight_bits, limit_bits, temperature = as_arrays(weight_bits, limit_bits, temperature)
    below = limit_bits - weight_bits
    smooth = temperature > jnp.finfo(temperature.dtype).tiny
    # Where the smooth form is not used it is fed a number at which its gradient is finite: NaN times 0 would be NaN.
    position = jnp.clip(below / jnp.where(smooth, temperature, 1.0), 0.0, 1.0)
    # The cubic that is level at both ends.
    return jnp.where(smooth, position**2 * (3.0 - 2.0 * position), jnp.where(below > 0, 1.0, 0.0))
