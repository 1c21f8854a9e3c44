"""What every compute unit is to a device: times of whole operators, and what a reader should know of it.

A unit is one module and one line of `hwmodels.catalog.units`. Most units know how long one product of matrices takes:
`hwmodels.compute.tile_counts.with_products` makes times of operators of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology, peak_hardware
from hwmodels.device import Device
from hwmodels.network.operators.work import OperatorWork
from hwmodels.numerics.scalars import Leaf, Number

__all__ = [
    "OWN_UNPACKING",
    "ROUNDED_ROWS",
    "SPREAD_PARTS",
    "ComputeUnit",
    "ErrorInterval",
    "FitRemark",
    "MeasuredKernels",
    "Rated",
    "SingleKernel",
    "UnitTimes",
    "WholePasses",
]

#: What a fit may be of: products, experts, attention (decoding), prefill, whole steps, or whole cycles.
SPREAD_PARTS = ("products", "experts", "attention", "prefill", "steps", "cycles")


@flax.struct.dataclass
class UnitTimes:
    """What a unit takes for each operator and how it uses the memories; arrays broadcast to "... operator"."""

    compute_s: Float[Array, "... operator"]  # if only arithmetic took time
    launch_s: Float[Array, "... operator"]  # of one launch, overlapped with nothing
    memory_share: tuple[Float[Array, "... operator"], ...]  # of each memory's bandwidth that streams reach, in (0, 1]
    energy_j: Float[Array, "... operator"] | None  # of arithmetic with its on-chip traffic; None: not known
    #: If only exchanging partial sums between the unit's parts took time, overlapped with all else; None: nothing is exchanged.
    exchange_s: Float[Array, "... operator"] | None = None
    link_j: Float[Array, "... operator"] | None = (
        None  # of links between the unit's parts or to a memory; None: not known
    )
    #: Least temperature of the smooth maximum over computing, moving and decoding: fits hold with their own smoothing.
    overlap_temperature: float = flax.struct.field(pytree_node=False, default=0.0)


@dataclasses.dataclass(frozen=True)
class ErrorInterval:
    """How far measured times lie from a fit's, on shapes that were held out of it.

    Attributes:
        part: one of `SPREAD_PARTS`, or a collective of several devices.
        bits: per weight, or per element of keys and values.
        low, high: ends of the interval as factors of a predicted time.
        coverage: probability that the interval is for.
        borrowed_from: the engine, its version and the system of the table, where that is not the unit's own engine's.
    """

    part: str
    bits: float
    low: float
    high: float
    coverage: float
    borrowed_from: str = ""

    @property
    def one_sided(self) -> bool:
        """Whether measured times lie on one side of the model's: the fit is biased there."""
        return self.low > 1.0 or self.high < 1.0

    @property
    def ends(self) -> tuple[float, float]:
        """The interval with the predicted time itself, so that a printed time never lies outside: wider where one-sided."""
        return min(self.low, 1.0), max(self.high, 1.0)


class FitRemark(NamedTuple):
    """What a reader of a unit's times should know of one of its fits.

    Attributes:
        text: a sentence.
        part: one of `SPREAD_PARTS`, what the fit is of.
        bits: per weight of the fit, where only weights of this width or fewer bits are read by its kernel; None: of any.
    """

    text: str
    part: str
    bits: float | None = None


@dataclasses.dataclass(frozen=True)
class MeasuredKernels:
    """Which kernels a unit's times are fitted to.

    Attributes:
        weight_widths: bits per weight that have a kernel, increasing.
        kv_widths: bits per KV element that attention has a kernel for, increasing; none: attention is not fitted.
        remarks: what a reader of the times should know of the fits, one sentence each.
        expert_widths: bits per weight that routed experts have kernels of their own for, increasing; none: those of other
            products.
        spreads: of each fit; none where they are not known.
        weight_format: whose kernels were asked for, for weights narrower than the widest; None: none by name.
        expert_remarks: those of the remarks that only a reader of routed experts' times should know, with the bits per weight
            from which on nobody else needs them.
        lent: whether they were measured on another chip, since nobody measured them on this one.
    """

    weight_widths: tuple[float, ...]
    kv_widths: tuple[float, ...]
    remarks: tuple[str, ...]
    expert_widths: tuple[float, ...] = ()
    spreads: tuple[ErrorInterval, ...] = ()
    weight_format: str | None = None
    expert_remarks: tuple[FitRemark, ...] = ()
    lent: bool = False


#: Of units with measured kernels.
OWN_UNPACKING = (
    "The measured kernels unpack their own weights; unpacking any other format is taken to cost no more, which is "
    "optimistic."
)

#: Of units that round the mean rows of an expert up.
ROUNDED_ROWS = (
    "experts: each counts with their mean rows, rounded up to whole passes of the unit, so that more experts, with fewer rows "
    "each, may take a pass less and less time"
)


class ComputeUnit(Protocol):
    """What computes on a device: a tree of leaves with these members.

    A unit may have several kernels for the same work. `operator_times` is asked of each of them alone, and whole times,
    traffic included, are mixed by `kernel_shares`: parts of different kernels would add up to one that does not exist.
    """

    short_title: ClassVar[str]  # in a column of a table
    title: ClassVar[str]  # in a sentence, with its article
    unpacking: ClassVar[str]  # what converting weights of few bits costs without a decoder, a sentence

    @property
    def elements(self) -> Leaf | None:
        """Equal parts, "*b", that `Chip.element_area_m2` is the area of one of; None: the unit has none."""
        ...

    def hardware(self, device: Device, technology: Technology) -> Sequence[HardwareBlock]:
        """What the unit is built of, leaves "*b": more of anything that makes it faster is more of one of these."""
        ...

    @property
    def measured(self) -> MeasuredKernels | None:
        """Kernels that the times are fitted to; None: the times follow from shapes and rates."""
        ...

    def growth_remarks(self, *, memories: int, experts: bool) -> Sequence[str]:
        """Where more work may take less time, a sentence each; none where it never does.

        Args:
            memories: of the device. experts: whether the network has any.
        """
        ...

    def kernels(self, work: OperatorWork) -> Sequence[tuple[ComputeUnit, OperatorWork]]:
        """The kernels to choose from: for each a unit that has no other, and the work as that kernel reads it."""
        ...

    def kernel_shares(
        self, work: OperatorWork, total_s: Float[Array, "... operator kernel"]
    ) -> Float[Array, "... operator kernel"]:
        """How much each kernel counts in an operator's time, from each one's time alone; sums to 1."""
        ...

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Times of each operator on this device by the unit's only kernel.

        Args:
            work: "*b operator".
            device: leaves "*b"; the one that the unit is part of.
            temperature: one number in [0, 1], of counts of tiles; 0 is exact.
        """
        ...


class Rated:
    """Members of a unit that has rates instead of measured kernels."""

    unpacking: ClassVar[str] = "The device has no decoders: decompressing values costs nothing, which is optimistic."

    @property
    def elements(self) -> Leaf | None:
        """Not known."""
        return None

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """The unit's elements, or as many multipliers as the device's peak takes, at the technology's clock."""
        if self.elements is None:
            return (peak_hardware(device.peak_flops_per_s, technology.frequency_hz),)
        return (HardwareBlock(macs=self.elements, frequency_hz=technology.frequency_hz),)

    @property
    def measured(self) -> MeasuredKernels | None:
        """None: times follow from shapes and rates."""
        return None

    def growth_remarks(self, *, memories: int, experts: bool) -> list[str]:
        """None: more never takes less."""
        return []


class WholePasses:
    """Such a unit's member where rows are rounded up to whole passes; stands before the others."""

    def growth_remarks(self, *, memories: int, experts: bool) -> list[str]:
        """Of experts, whose rows are a mean."""
        return [ROUNDED_ROWS] if experts else []


class SingleKernel(Rated):
    """Members of such a unit that has one way to do its work."""

    def kernels(self, work: OperatorWork) -> list:
        """The unit itself, and the work as it is."""
        return [(self, work)]

    def kernel_shares(
        self, work: OperatorWork, total_s: Float[Array, "... operator kernel"]
    ) -> Float[Array, "... operator kernel"]:
        """All of it."""
        del work
        return jnp.ones_like(total_s)
