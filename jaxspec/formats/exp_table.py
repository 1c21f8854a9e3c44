"""Exponentials of non-positive float16 values from a table of 32,768 entries.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 5.2.1 and Algorithm 1.

In a safe softmax no input of exp is positive, so the sign bit says nothing: the other 15 bits are the index, and twice the
index is a byte offset of 16 bits, which is as far as the gather instruction reaches. The table fills 64 KiB.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float16, UInt16

__all__ = ["build_table", "exp_nonpositive", "index", "num_bits"]

NUM_ENTRIES = 1 << 15

ENTRY_BITS = 16

INFINITY_PATTERN = 0x7C00

QUIET_NAN_PATTERN = 0x7E00


def build_table() -> Float16[Array, " entry"]:
    """The 32,768 entries; entry k is exp(−v), correctly rounded, where v ≥ 0 is the float16 value of pattern k.

    Entry 0 is 1 and entry 0x7C00 (minus infinity) 0. The entries above it belong to NaNs and all hold one quiet NaN, so that
    NaN stays NaN. Computed on the host in float64.
    """
    patterns = np.arange(INFINITY_PATTERN + 1, dtype=np.uint16)
    table = np.full(NUM_ENTRIES, QUIET_NAN_PATTERN, np.uint16)
    table[: INFINITY_PATTERN + 1] = (
        np.exp(-patterns.view(np.float16).astype(np.float64)).astype(np.float16).view(np.uint16)
    )
    return jnp.asarray(table.view(np.float16))


def index(x: Float16[Array, "*b"]) -> UInt16[Array, "*b"]:
    """Which entry holds exp(x), 0 to 32,767: the pattern of x without its sign bit.

    Raises:
        ValueError: x is not float16.
    """
    if x.dtype != jnp.float16:
        raise ValueError(f"values of type {x.dtype}; the table is indexed by float16 patterns: convert with astype")
    return jax.lax.bitcast_convert_type(x, jnp.uint16) & jnp.uint16(NUM_ENTRIES - 1)


@jax.custom_jvp
def exp_nonpositive(x: Float16[Array, "*b"], table: Float16[Array, " entry"]) -> Float16[Array, "*b"]:
    """exp(x) for x ≤ 0 by lookup.

    The table is a step function; as its derivative by x its own value is given, since that is the derivative of exp. It is
    linear in the table.

    Args:
        x: not positive. A positive x is not noticed: its sign is ignored and it gives exp(−x), with that as derivative.
        table: from `build_table`.
    Raises:
        ValueError: x is not float16.
    """
    return table[index(x).astype(jnp.int32)]


@exp_nonpositive.defjvp
def _exp_nonpositive_jvp(primals, tangents):
    (x, table), (x_dot, table_dot) = primals, tangents
    value = exp_nonpositive(x, table)
    return value, value * x_dot + table_dot[index(x).astype(jnp.int32)]


def num_bits() -> int:
    """Bits of the table: 64 KiB, whatever the data."""
    return NUM_ENTRIES * ENTRY_BITS
