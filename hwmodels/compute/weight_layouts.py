"""How quantized weights lie in memory, and what that costs the vector units that make tiles of 16-bit weights of them.

A pass loads a vector register, unpacks and looks up its codes, multiplies by the scales and stores.

* `CoalescedGroups`: groups lie in the order of the matrix unit's tiles, and as many of them side by side as fill a register:
  a pass takes 256 codes of 4 bits, or 128 of 8.
* `TileGroups`: the same order, but codes and scales of a group lie together: a pass takes one group, most of its register idle.
* `ScatteredGroups`: groups along a column of the matrix, whose elements belong to places far apart: a pass takes one group, and
  then waits for a scatter.
* `Unconverted`: weights are copied as they are; the bound of all others, with which nothing can be computed.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 5.1, 5.2.2, 7.4 (the four versions of Fig. 15).
Departs: the paper prints none of the packets.
"""

from __future__ import annotations

from typing import Protocol

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.scalars import Leaf, Number, as_arrays, as_float

__all__ = [
    "LAYOUTS",
    "METADATA_BITS",
    "CoalescedGroups",
    "ScatteredGroups",
    "TileGroups",
    "Unconverted",
    "WeightLayout",
    "share_narrower",
    "weight_slices",
]

# What the stored width of a weight means to an arithmetic unit: slices of the unit's own width, modes for narrow weights.

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


class WeightLayout(Protocol):
    """A tree of leaves, "*b", that says what converting weights takes."""

    def packets(self, weights: Number, *, weight_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
        """Instruction packets to convert weights.

        Args:
            weights: "*b", >= 0; whole registers or groups as a rule, parts of one count as parts.
            weight_bits: "*b", > 0; bits stored per weight, scales included.
            temperature: "*b", in [0, 1], of the bits of a code; 0 is exact.
        """
        ...


@flax.struct.dataclass
class CoalescedGroups:
    """Groups that fill registers."""

    register_bits: Leaf = number(POSITIVE)  # of a vector register, > 0
    register_packets: Leaf = number(POSITIVE)  # of a pass, > 0
    code_bits: Leaf = number(POSITIVE, default=4.0)  # of one lookup; wider codes are whole multiples of it, > 0
    metadata_bits: Leaf = number(
        NOT_NEGATIVE, default=METADATA_BITS
    )  # stored bits per weight that may belong to no code, >= 0

    def packets(self, weights: Number, *, weight_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
        """See `WeightLayout`. Gradient: at temperature 0 the bits of a code are constant."""
        lookups = weight_slices(weight_bits, self.code_bits, metadata_bits=self.metadata_bits, temperature=temperature)
        passes = as_float(weights) * (lookups * as_float(self.code_bits)) / as_float(self.register_bits)
        return passes * as_float(self.register_packets)


@flax.struct.dataclass
class TileGroups:
    """Groups one by one, in the order of tiles."""

    group_weights: Leaf = number(POSITIVE)  # > 0
    group_packets: Leaf = number(POSITIVE)  # of a pass, whatever the width of its codes, > 0

    def packets(self, weights: Number, *, weight_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
        """See `WeightLayout`; the bits do not matter, as a group fills no register."""
        del temperature
        passes = as_float(weights) / as_float(self.group_weights)
        return passes * as_float(self.group_packets) + 0.0 * jnp.asarray(as_float(weight_bits))


@flax.struct.dataclass
class ScatteredGroups:
    """Groups one by one, along the columns of the matrix."""

    group_weights: Leaf = number(POSITIVE)  # > 0
    group_packets: Leaf = number(POSITIVE)  # of a pass, > 0
    scatter_packets: Leaf = number(POSITIVE)  # that a unit waits for a group's scatter, > 0

    def packets(self, weights: Number, *, weight_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
        """See `WeightLayout`."""
        each = as_float(self.group_packets) + as_float(self.scatter_packets)
        return TileGroups(self.group_weights, each).packets(weights, weight_bits=weight_bits, temperature=temperature)


@flax.struct.dataclass
class Unconverted:
    """Weights copied as they are."""

    def packets(self, weights: Number, *, weight_bits: Number, temperature: Number = 0.0) -> Float[Array, "*b"]:
        """None; see `WeightLayout`."""
        del temperature
        return 0.0 * jnp.asarray(as_float(weights)) * as_float(weight_bits)


#: kind of a device's file -> its class.
LAYOUTS = {
    "coalesced": CoalescedGroups,
    "tile_groups": TileGroups,
    "scattered": ScatteredGroups,
    "unconverted": Unconverted,
}
