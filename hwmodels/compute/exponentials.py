"""How a vector unit takes the exponentials of a register of 16-bit scores: from a table on chip, or by a polynomial.

* `GatheredTable`: one entry for each non-positive 16-bit pattern; a gather fetches a register of them, and its unit waits.
* `Polynomial`: exp(x) = 2^k 2^f, 2^f by Horner's rule. Each step needs the one before, so that registers which are worked on
  side by side (the two that a register of 16-bit scores becomes in 32 bits) take no longer than one.

Source: "Scaling LLM Test-Time Compute with Mobile NPU on Smartphones", 5.2.1.
Departs: neither the degree nor a step's packets are printed.
"""

from __future__ import annotations

import math
from typing import Protocol

import flax.struct

from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, number, tag
from hwmodels.numerics.scalars import Leaf, as_float

__all__ = ["EXPONENTIALS", "Exponential", "GatheredTable", "Polynomial", "polynomial_steps", "taylor_degree"]

#: Steps beside Horner's: k of x, f = x - k, and adding k to the exponent field.
_OTHER_STEPS = 3


class Exponential(Protocol):
    """A tree of leaves, "*b", that says what a register of exponentials takes."""

    @property
    def register_packets(self) -> Leaf:
        """Instruction packets of a register of 16-bit scores, "*b"."""
        ...

    @property
    def on_chip_bytes(self) -> Leaf:
        """On-chip memory that is taken all the time, "*b"."""
        ...


@flax.struct.dataclass
class GatheredTable:
    """A table on chip."""

    gather_packets: Leaf = number(POSITIVE)  # that a unit waits for a gather, > 0
    table_bytes: Leaf = number(NOT_NEGATIVE)  # >= 0
    kind: str = tag("gathered_table")

    @property
    def register_packets(self) -> Leaf:
        """A gather."""
        return as_float(self.gather_packets)

    @property
    def on_chip_bytes(self) -> Leaf:
        """The table."""
        return as_float(self.table_bytes)


@flax.struct.dataclass
class Polynomial:
    """A chain of steps."""

    steps: Leaf = number(POSITIVE)  # one after the other, see `polynomial_steps`, > 0
    step_packets: Leaf = number(POSITIVE)  # from a step to the next one that needs it, > 0
    kind: str = tag("polynomial")

    @property
    def register_packets(self) -> Leaf:
        """All steps."""
        return as_float(self.steps) * as_float(self.step_packets)

    @property
    def on_chip_bytes(self) -> Leaf:
        """Nothing."""
        return 0.0


#: kind of a device's file -> its class.
EXPONENTIALS = {"gathered_table": GatheredTable, "polynomial": Polynomial}


def taylor_degree(significand_bits: int) -> int:
    """Least degree of the Taylor polynomial of 2^f, f in [0, 1), whose first omitted term is below 2^-significand_bits.

    Args:
        significand_bits: static int >= 1, the hidden one included: 11 in float16, 24 in float32.
    Raises:
        ValueError: significand_bits < 1.
    Source: mobile NPU, 5.2.1 (the fractional part, a Taylor polynomial); the degree is ours.
    """
    if significand_bits < 1:
        raise ValueError(f"significand_bits is {significand_bits}; it must be >= 1")
    degree, term = 0, math.log(2.0)
    while term >= 2.0**-significand_bits:
        degree += 1
        term *= math.log(2.0) / (degree + 1)
    return degree


def polynomial_steps(significand_bits: int) -> int:
    """Steps of an exponential, one after the other: Horner's, and three for splitting x and putting it together again."""
    return taylor_degree(significand_bits) + _OTHER_STEPS
