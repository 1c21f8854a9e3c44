"""The buffers of a vector array, and how its weights come in.

Weights enter the grid through its *weight lanes*, a weight each per cycle, and stay in a PE's registers while its rows of
inputs pass ("local weight stationary"). Where a decoder sits between weight memory and multipliers there is one per lane.

Source: Huff-LLM, 2.2 and the table Simba_specs.
Departs: the paper prints neither the global buffer nor how PEs are fed; both are arguments here.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.vector_array import VectorArray
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number
from hwmodels.numerics.scalars import Leaf, Number, as_float

__all__ = ["BufferedArray", "weight_load_time"]


@flax.struct.dataclass
class BufferedArray(VectorArray):
    """A vector array with buffers in every PE and a global one. Every field is a leaf, "*b"."""

    weight_buffer_bytes: Leaf = number(POSITIVE)  # of each PE, > 0
    input_buffer_bytes: Leaf = number(POSITIVE)  # of each PE, > 0
    accumulator_buffer_bytes: Leaf = number(POSITIVE)  # of each PE, > 0
    global_buffer_bytes: Leaf = number(NOT_NEGATIVE)  # shared, for inputs and partial sums, >= 0
    weight_lanes: Leaf = number(POSITIVE)  # weights that enter the grid in a cycle, > 0


def weight_load_time(array: BufferedArray, k: Number, n: Number) -> Float[Array, "*b"]:
    """Seconds in which all weights of a k x n matrix enter the grid once, through all its lanes, "*b"."""
    return jnp.asarray(as_float(k) * as_float(n) / (as_float(array.weight_lanes) * as_float(array.frequency_hz)))
