"""Variables of a problem: between 0 and 1 to the search, on a logarithmic scale where their ends allow it."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from jaxspec.errors import InputError
from jaxspec.studies.codesign.config import Bounds

__all__ = ["COUNTED", "Variables", "variables_of"]

#: Last parts of the names of numbers that count something.
COUNTED = frozenset(
    ("block_columns", "block_depth", "columns", "count", "macs_per_pe", "parallel_tokens", "pe_columns", "pe_rows", "pes",
     "reuse", "rows")
)  # fmt: skip


@struct.dataclass
class Variables:
    """Ends and scales; leaves are " variable".

    Attributes:
        low, high: ends, multiples of the step where there is one.
        log: 1 where the scale is logarithmic, 0 where it is linear because an end is 0 or below.
        names: static.
        steps: static; values are multiples of it; None: any value.
    """

    low: Float[np.ndarray, " variable"]
    high: Float[np.ndarray, " variable"]
    log: Float[np.ndarray, " variable"]
    names: tuple[str, ...] = struct.field(pytree_node=False)
    steps: tuple[float | None, ...] = struct.field(pytree_node=False)

    def values(self, place: Float[Array, " variable"]) -> Float[Array, " variable"]:
        """Numbers at a place of the unit cube, for programs."""
        low, high, log = map(jnp.asarray, (self.low, self.high, self.log))
        ratio = jnp.where(log > 0, high / jnp.where(log > 0, low, 1.0), 1.0)
        return jnp.where(log > 0, jnp.where(log > 0, low, 1.0) * ratio**place, low + place * (high - low))

    def places(self, values: np.ndarray) -> np.ndarray:
        """Places of numbers, on the host, in double precision; outside of the ends the nearest one."""
        clipped = np.clip(values, self.low, self.high)
        safe = np.where(self.log > 0, self.low, 1.0)
        top = np.where(self.log > 0, self.high, np.e)
        logarithmic = np.log(np.where(self.log > 0, clipped, 1.0) / safe) / np.log(top / safe)
        return np.where(self.log > 0, logarithmic, (clipped - self.low) / (self.high - self.low))

    def numbers(self, places: np.ndarray) -> np.ndarray:
        """Numbers at places of the unit cube, on the host, in double precision."""
        safe = np.where(self.log > 0, self.low, 1.0)
        ratio = np.where(self.log > 0, self.high / safe, 1.0)
        return np.where(self.log > 0, safe * ratio**places, self.low + places * (self.high - self.low))

    def stepped(self, places: np.ndarray) -> np.ndarray:
        """As `numbers`, those with a step at their nearest multiples."""
        found = self.numbers(places)
        for i, step in enumerate(self.steps):
            if step is not None:
                found[..., i] = np.clip(np.round(found[..., i] / step) * step, self.low[i], self.high[i])
        return found

    def neighbours(self, i: int, value: float) -> list[float]:
        """The multiples of a variable's step on both sides of a value, within its ends; one where it is one of them."""
        step = self.steps[i]
        if step is None:
            return [value]
        below, above = np.floor(value / step + 1e-6) * step, np.ceil(value / step - 1e-6) * step
        return sorted({float(np.clip(one, self.low[i], self.high[i])) for one in (below, above)})


def variables_of(bounds: dict[str, Bounds], whole: set[str]) -> Variables:
    """Variables from their settings.

    Args:
        whole: names whose step is 1 unless given.
    Raises:
        InputError: fewer than two multiples of the step between the ends.
    """
    lows, highs, steps = [], [], []
    for name, ends in bounds.items():
        step = 1.0 if ends.step is None and (name in whole or name.rpartition(".")[2] in COUNTED) else ends.step
        low, high = ends.first, ends.last
        if step is not None:
            low, high = np.ceil(low / step - 1e-9) * step, np.floor(high / step + 1e-9) * step
            if not low < high:
                raise InputError(
                    f"variables.{name} has no two multiples of {step:g} from {ends.first:g} to {ends.last:g}; widen it"
                )
        lows.append(float(low) + 0.0)  # not −0
        highs.append(float(high) + 0.0)
        steps.append(step)
    low, high = np.array(lows), np.array(highs)
    return Variables(low, high, (low > 0).astype(float), tuple(bounds), tuple(steps))
