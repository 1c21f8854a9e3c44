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

from hwmodels.compute.weight_slices import METADATA_BITS, weight_slices
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["LAYOUTS", "CoalescedGroups", "ScatteredGroups", "TileGroups", "Unconverted", "WeightLayout"]


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
