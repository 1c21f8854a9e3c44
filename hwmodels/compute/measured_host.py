"""A machine whose kernels were measured where it stands, by `jaxspec calibrate`: a processor or a GPU that runs JAX.

Peak rate and bandwidth are the device's own, so that changing them changes the kernels; the unit has shares of them. One
product of m x k activations by k x n weights takes

    t      = factor(m) · (launch_s + join(arithmetic, streaming))
    arithmetic = 2 m n k / (compute_efficiency · peak)
    streaming  = bytes / bandwidth · (near / near_efficiency + (1 - near) / far_efficiency)
    near       = 1 / (1 + (bytes read until the same ones are read again / cache_bytes)^cache_sharpness)

`join` is the smooth maximum with the unit's own overlap: 1 adds the two up, as kernels of processors do, which copy weights
into the order of their loops before they multiply. `factor` is the measured step of so many rows
(`hwmodels.compute.roofline`), 1 where none was measured. A network whose weights stay in the cache from step to step streams
at the near rate. Until a step reads the same bytes again, all its weights, keys and values have been read, and in a
draft-verify cycle those of the other network as well: the verification and the first draft pass find less in the cache than
steps that follow their like.

Attention of a layer takes, for `scores` pairs of a query row and a key,

    launch_s + pair_s · (sequences x key heads) + slot_s · keys that a row sees
        + join(score_s · scores + arithmetic, cached elements · element_bytes / rate)

with `rate` a share of the bandwidth. `slot_s` is the pace of one head's kernel along its keys: a GPU takes as long for eight
heads as for a hundred. Keys and values are held in the width that was measured, whatever width they are priced
at. Everything else: `norm_s` for each norm, with all small kernels between two products of a layer; `element_s` for each
element that a norm or a product of a layer puts out; `turn_s` for a turn of the loop, `row_s` for looking up a token's row;
`sample_s` for each row of logits and `logit_s` for each logit, to choose tokens by.

Source: form chosen on measured products, attention and whole steps of XLA on CPUs; numbers by `jaxspec calibrate`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, TypeVar

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology
from hwmodels.compute.gpu_experts import format_shares, stored_at, width_in_format
from hwmodels.compute.roofline import ROOFLINE, RowCosts, row_factor
from hwmodels.compute.tile_counts import products_of
from hwmodels.compute.unit import OWN_UNPACKING, ErrorInterval, MeasuredKernels, UnitTimes, WholePasses
from hwmodels.device import Device
from hwmodels.network.operators.work import MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.fields import NOT_NEGATIVE, POSITIVE, SHARE, number, part, tag
from hwmodels.numerics.scalars import Leaf, Number, as_float, select, with_last_axis

__all__ = [
    "Between",
    "HostAttention",
    "HostProducts",
    "MeasuredHost",
    "arithmetic_time",
    "near_share",
    "put_out",
    "reached_share",
]

T = TypeVar("T")

_HEAD, _QKV = OPERATORS.index("lm_head"), OPERATORS.index("qkv")
_IS = {name: np.array([other == name for other in OPERATORS]) for name in ("embed", "attention", "norm", "lm_head")}
#: Products within a layer.
_INSIDE = np.array([name in MATRIX_OPERATORS and name != "lm_head" for name in OPERATORS])
#: A norm reads and writes each element in two bytes.
_NORM_BYTES = 4.0


@flax.struct.dataclass
class HostProducts:
    """Products of matrices in one weight format. Every field is a leaf, "*b"."""

    launch_s: Leaf = number(NOT_NEGATIVE)  # of one product within a compiled step, >= 0
    compute_efficiency: Leaf = number(SHARE)  # of the device's peak, that many rows reach, in (0, 1]
    near_efficiency: Leaf = number(SHARE)  # of the device's bandwidth, of weights that lie in the cache, in (0, 1]
    far_efficiency: Leaf = number(SHARE)  # of weights that do not, in (0, 1]


@flax.struct.dataclass
class HostAttention:
    """Attention over cached keys and values. Every field is a leaf, "*b"."""

    launch_s: Leaf = number(NOT_NEGATIVE)  # of a layer's attention, >= 0
    pair_s: Leaf = number(NOT_NEGATIVE)  # of a sequence's key head, >= 0
    slot_s: Leaf = number(NOT_NEGATIVE, default=0.0, kw_only=True)  # of a key that a row sees, whatever the heads, >= 0
    score_s: Leaf = number(NOT_NEGATIVE)  # of a score: its mask and its exponential, >= 0
    compute_efficiency: Leaf = number(SHARE)  # of the device's peak, in (0, 1]
    memory_efficiency: Leaf = number(SHARE)  # of the device's bandwidth, in (0, 1]
    element_bytes: Leaf = number(POSITIVE, default=4.0)  # of a cached element as it is held, > 0


@flax.struct.dataclass
class Between:
    """What a step does beside products and attention. Every field is a leaf, "*b", >= 0."""

    turn_s: Leaf = number(NOT_NEGATIVE)  # of a step: a turn of the loop over steps
    row_s: Leaf = number(NOT_NEGATIVE)  # of a token: looking up its row
    norm_s: Leaf = number(NOT_NEGATIVE)  # of a norm, with the small kernels around it
    element_s: Leaf = number(POSITIVE)  # of an element that a norm or a product of a layer puts out
    sample_s: Leaf = number(NOT_NEGATIVE)  # of a row of logits, to choose its token
    logit_s: Leaf = number(NOT_NEGATIVE)  # of a logit


@flax.struct.dataclass
class MeasuredHost(WholePasses):
    """Fitted numbers and measured row costs of a machine; leaves are single numbers: `vmap` for more."""

    short_title: ClassVar[str] = "measured"
    title: ClassVar[str] = "a machine with measured kernels"
    unpacking: ClassVar[str] = OWN_UNPACKING

    formats: tuple[HostProducts, ...]  # one for each of `weight_widths`
    cache_bytes: Leaf = number(POSITIVE)  # read in a step, of which half stays in the cache, > 0
    cache_sharpness: Leaf = number(POSITIVE)  # > 0
    attention: HostAttention = part(HostAttention)
    between: Between = part(Between)
    #: Bits per weight of the formats as they are held, increasing.
    weight_widths: tuple[float, ...] = flax.struct.field(pytree_node=False, default=(32.0,))
    #: For each format; None: its rows follow the form.
    row_costs: tuple[RowCosts | None, ...] = flax.struct.field(pytree_node=False, default=(None,))
    #: Of the smooth maximum that joins arithmetic and memory; the numbers were fitted with it.
    overlap_temperature: float = flax.struct.field(pytree_node=False, default=1.0)
    #: What a reader of its times should know of the fits, one sentence each.
    remarks: tuple[str, ...] = flax.struct.field(pytree_node=False, default=())
    #: How far measured times lie from each fit's.
    spreads: tuple[ErrorInterval, ...] = flax.struct.field(pytree_node=False, default=())
    kind: str = tag("measured_host")

    @property
    def elements(self) -> Leaf | None:
        """Not known."""
        return None

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """As many multipliers as the peak takes, at the technology's clock."""
        frequency_hz = as_float(technology.frequency_hz)
        return (
            HardwareBlock(macs=as_float(device.peak_flops_per_s) / (2.0 * frequency_hz), frequency_hz=frequency_hz),
        )

    @property
    def measured(self) -> MeasuredKernels:
        """Widths of the measured formats, and the remarks; attention takes what it takes at any width."""
        return MeasuredKernels(self.weight_widths, (), self.remarks, spreads=self.spreads)

    def kernels(self, work: OperatorWork) -> list[tuple[MeasuredHost, OperatorWork]]:
        """For each format this machine with that format alone, and the work with weights as its kernels read them."""
        if len(self.weight_widths) == 1:
            return [(self, work)]
        bits, kernels = products_of(work).weight_bits, []
        for index, width in enumerate(self.weight_widths):
            alone: dict[str, Any] = {"formats": (self.formats[index],), "weight_widths": (width,)}
            unit = dataclasses.replace(self, **alone, row_costs=(self.row_costs[index],))
            kernels.append((unit, stored_at(work, width_in_format(self.weight_widths, index, bits))))
        return kernels

    def kernel_shares(
        self, work: OperatorWork, total_s: Float[Array, "... operator kernel"]
    ) -> Float[Array, "... operator kernel"]:
        """How much each format counts; see `format_shares`."""
        return format_shares(self.weight_widths, products_of(work).weight_bits, total_s)

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Of the only format, as the module's heading has them; see `ComputeUnit`.

        Gradient: right but for the steps of rows (`row_factor`), and where a share of the bandwidth reaches 1.
        """
        roof, shapes = ROOFLINE.operator_times(work, device), products_of(work)
        every, peak = with_last_axis(self), with_last_axis(device.peak_flops_per_s)
        own, between = every.formats[0], every.between
        factor = self._row_factor(shapes.m, shapes.k * shapes.n, temperature)
        between_bytes = jnp.sum(work.weight_bytes + work.kv_bytes, axis=-1) + _of_the_other(work)
        near = near_share(every, between_bytes[..., None])
        count = shapes.products * work.launches

        scores = shapes.m * shapes.n * count
        attending_s = every.attention.score_s * scores + work.flops / (every.attention.compute_efficiency * peak)
        # As much longer as the elements are held wider than they are priced.
        priced = work.kv_bytes + work.activation_bytes
        held = jnp.maximum(_given(work.kv_elements)[..., None] * every.attention.element_bytes, priced)
        held_share = every.attention.memory_efficiency * priced / jnp.where(held > 0, held, 1.0)

        rows, logits = shapes.m[..., _HEAD, None], shapes.n[..., _HEAD, None]
        choosing_s = rows * (between.sample_s + between.logit_s * logits)
        launch_s = factor * own.launch_s
        return dataclasses.replace(
            roof,
            compute_s=_where(
                factor * arithmetic_time(own, shapes.m, shapes.k, shapes.n, peak) * count,
                attention=attending_s,
                norm=between.element_s * with_last_axis(put_out(work)),
            ),
            launch_s=_where(
                launch_s,
                embed=between.turn_s + between.row_s * shapes.m[..., _QKV, None],
                attention=every.attention.launch_s
                + every.attention.pair_s * shapes.products
                + every.attention.slot_s * shapes.n,
                norm=between.norm_s,
                lm_head=launch_s + choosing_s,
            ),
            memory_share=(
                _where(
                    jnp.minimum(reached_share(own, near) / factor, 1.0),
                    embed=1.0,
                    attention=jnp.where(priced > 0, held_share, 1.0),
                    norm=1.0,
                ),
                *roof.memory_share[1:],
            ),
            overlap_temperature=self.overlap_temperature,
        )

    def _row_factor(self, rows: Array, weights: Array, temperature: Number) -> Float[Array, "*b"]:
        costs = self.row_costs[0]
        return jnp.ones_like(rows) if costs is None else row_factor(costs, rows, weights, temperature)


def arithmetic_time(
    products: HostProducts, m: Number, k: Number, n: Number, peak_flops_per_s: Number
) -> Float[Array, "*b"]:
    """Seconds of the arithmetic of one product, by the form.

    Args:
        products, peak_flops_per_s: leaves "*b".
        m, k, n: "*b", > 0.
    """
    flops = 2.0 * jnp.asarray(as_float(m)) * as_float(k) * as_float(n)
    return flops / (as_float(products.compute_efficiency) * as_float(peak_flops_per_s))


def put_out(work: OperatorWork) -> Float[Array, "*b"]:
    """Elements that the norms and the products of layers put out, all of a step together: what `element_s` is of one of.

    Args:
        work: "*b operator".
    """
    shapes = products_of(work)
    products = select(_INSIDE, shapes.m * shapes.n * shapes.products * work.launches, 0.0)
    return jnp.sum(products + select(_IS["norm"], work.activation_bytes / _NORM_BYTES, 0.0), axis=-1)


def near_share(unit: MeasuredHost, read_bytes: Number) -> Float[Array, "*b"]:
    """Share of what a step reads that still lies in the cache, in (0, 1).

    Args:
        unit: leaves "*b".
        read_bytes: "*b", >= 0; until the same ones are read again.
    """
    # The logarithm of nothing has no slope.
    size = jnp.log(jnp.maximum(jnp.asarray(as_float(read_bytes)), 1.0) / as_float(unit.cache_bytes))
    return jax.nn.sigmoid(-as_float(unit.cache_sharpness) * size)


def reached_share(products: HostProducts, near: Number) -> Float[Array, "*b"]:
    """Share of the device's bandwidth that weights stream at, "*b", of which a share `near` lies in the cache."""
    near = jnp.asarray(as_float(near))
    return 1.0 / (near / as_float(products.near_efficiency) + (1.0 - near) / as_float(products.far_efficiency))


def _where(values: Array, **of_operator: Any) -> Float[Array, "... operator"]:
    """Other values for some operators; each broadcasts to "... operator"."""
    for name, other in of_operator.items():
        values = select(_IS[name], other, values)
    return values


def _of_the_other(work: OperatorWork) -> Float[Array, "*b"]:
    """Bytes that the other network of a cycle reads between two runs of the step."""
    reads = _given(work.experts)
    return as_float(reads.follows_other_model) * (
        as_float(reads.bytes_placed_before) + as_float(reads.bytes_before_experts)
    )


def _given(value: T | None) -> T:
    """What `products_of` has found the work to say."""
    if value is None:
        raise ValueError("the work does not say what is read of the cache; build it with step_operators")
    return value
