"""A GPU whose matrix products, experts and attention are calibrated to measured kernels, as the matrix unit of a device.

Peak rate and bandwidth are the device's own, so that changing them changes the kernels. Products of stored matrices take what
`hwmodels.compute.gpu` says, a layer's routed experts what `hwmodels.compute.gpu_experts` says, attention what
`hwmodels.compute.gpu_attention` and `gpu_prefill` say, and everything else runs at the device's roof. A GPU whose experts
nobody measured multiplies by them one after the other. Engines of such GPUs add the residual stream where they normalize, and
form the gated product in a kernel of its own.

Of the formats that were measured each operator is timed with each one's kernels, and the times are mixed as
`hwmodels.compute.gpu_experts.format_shares` says: so that fewer bits never take longer. `hwmodels.analysis.kernel_widths` says
which widths of a footprint have no kernel of their own.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.blocks import HardwareBlock, Technology
from hwmodels.compute.gpu import GpuGemm, at_width
from hwmodels.compute.gpu_attention import GpuAttention, GpuPrefill, attention_parts, prefill_parts, unsplit_time
from hwmodels.compute.gpu_experts import (
    ExpertCoefficients,
    GemmCoefficients,
    GpuExperts,
    padded_shares,
    stack_widths,
    stored_at,
    width_in_format,
)
from hwmodels.compute.roofline import ROOFLINE
from hwmodels.compute.tile_counts import products_of
from hwmodels.compute.unit import OWN_UNPACKING, ROUNDED_ROWS, ErrorInterval, FitRemark, MeasuredKernels, UnitTimes
from hwmodels.device import Device
from hwmodels.network.operators.work import EXPERT_OPERATORS, MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.fields import POSITIVE, number
from hwmodels.numerics.gradients import share_cotangent
from hwmodels.numerics.scalars import Leaf, Number, as_arrays, as_float, same_rank, select, with_last_axis
from hwmodels.numerics.smoothing import smooth_largest
from hwmodels.numerics.units import KIB

__all__ = ["CalibratedGpu"]

_MATRICES = np.array([OPERATORS.index(name) for name in MATRIX_OPERATORS], np.int32)
_EXPERTS = np.array([OPERATORS.index(name) for name in EXPERT_OPERATORS], np.int32)
_IS_MATRIX = np.array([name in MATRIX_OPERATORS for name in OPERATORS])
_IS_EXPERT = np.array([name in EXPERT_OPERATORS for name in OPERATORS])
#: Registers and first-level cache of a multiprocessor: NVIDIA A100 whitepaper, 256 and 192 KiB.
_MULTIPROCESSOR_BYTES = 448 * KIB
#: A layer's experts are one launch, which stands with the first of their operators.
_STARTS = np.array([True, False])
_IS_ATTENTION = np.array([name == "attention" for name in OPERATORS])
_ATTENTION, _NORM = OPERATORS.index("attention"), OPERATORS.index("norm")
#: Products whose gated activation is a kernel of its own, and where its output goes.
_GATED = (("gate_up", "down"), ("shared_gate_up", "shared_down"))
_ACTIVATION_BYTES = 2.0
#: Stands for the width of a single format, which nothing but dispatched rows depends on: formats share a program then.
_ONE_WIDTH = (16.0,)
#: Whether an operator has a launch at the device's own latency beside its products.
_BESIDE_PRODUCTS = np.array([name.endswith("gate_up") or name not in MATRIX_OPERATORS for name in OPERATORS])


@flax.struct.dataclass
class CalibratedGpu:
    """Fitted numbers of a GPU; leaves are single numbers: `vmap` for more."""

    short_title: ClassVar[str] = "calibrated"
    title: ClassVar[str] = "a GPU with measured kernels"
    unpacking: ClassVar[str] = OWN_UNPACKING

    formats: tuple[GemmCoefficients, ...]  # one for each of `weight_widths`
    experts: tuple[ExpertCoefficients, ...]  # one for each of `expert_widths`; none: products one after the other
    attention: tuple[GpuAttention, ...]  # one for each of `kv_widths`, without data sheets of their own
    prefill: GpuPrefill | None  # None: nothing is known of many new tokens, whose arithmetic runs at the roof
    multiprocessors: Leaf = number(POSITIVE)  # > 0
    #: Rows of a tile of queries that one block takes along a whole context where sequences have several new tokens; 0: their
    #: contexts are cut as those of one token are.
    unsplit_rows: float = flax.struct.field(pytree_node=False, default=0.0)
    #: Bits per weight of the formats, increasing.
    weight_widths: tuple[float, ...] = flax.struct.field(pytree_node=False, default=(16.0,))
    #: As `GpuGemm` has them.
    dispatched_rows: tuple[tuple[float, float], ...] = flax.struct.field(pytree_node=False, default=())
    #: Bits per weight of the formats of experts, increasing.
    expert_widths: tuple[float, ...] = flax.struct.field(pytree_node=False, default=())
    #: Bits per element of keys and values that attention has kernels for, increasing; none: attention runs at the roof.
    kv_widths: tuple[float, ...] = flax.struct.field(pytree_node=False, default=())
    #: Whose kernels these are, and the format that was asked for.
    engine: str = flax.struct.field(pytree_node=False, default="")
    weight_format: str | None = flax.struct.field(pytree_node=False, default=None)
    #: Whether they are another chip's, as nobody measured this one's.
    lent: bool = flax.struct.field(pytree_node=False, default=False)
    #: Of the smooth maximum that joins arithmetic and memory; the coefficients were fitted with it.
    overlap_temperature: float = flax.struct.field(pytree_node=False, default=0.25)
    #: What a reader of its times should know of the fits.
    remarks: tuple[FitRemark, ...] = flax.struct.field(pytree_node=False, default=())
    #: How far measured times lie from each fit's.
    spreads: tuple[ErrorInterval, ...] = flax.struct.field(pytree_node=False, default=())

    @property
    def elements(self) -> Leaf:
        """Multiprocessors, "*b": what `Chip.element_area_m2` is the area of one of."""
        return as_float(self.multiprocessors)

    def hardware(self, device: Device, technology: Technology) -> tuple[HardwareBlock, ...]:
        """As many multipliers as the device's peak takes, and the memory of each multiprocessor."""
        frequency_hz = as_float(technology.frequency_hz)
        return (
            HardwareBlock(
                macs=as_float(device.peak_flops_per_s) / (2.0 * frequency_hz),
                frequency_hz=frequency_hz,
                sram_bytes=self.elements * _MULTIPROCESSOR_BYTES,
            ),
        )

    def growth_remarks(self, *, memories: int, experts: bool) -> list[str]:
        """Of experts that run as products one after the other, where none were measured."""
        return [ROUNDED_ROWS] if experts and not self.experts else []

    @property
    def measured(self) -> MeasuredKernels:
        """Widths of the fitted formats, those of keys and values, and the remarks."""
        remarks = tuple(one.text for one in self.remarks)
        own = remarks, self.expert_widths, self.spreads, self.weight_format
        of_experts = tuple(one for one in self.remarks if one.part == "experts")
        return MeasuredKernels(self.weight_widths, self.kv_widths, *own, of_experts, self.lent)

    def kernels(self, work: OperatorWork) -> list[tuple[CalibratedGpu, OperatorWork]]:
        """For each format this GPU with that format alone, and the work with weights as its kernels read them.

        Products and experts have their own formats, which go side by side; what has fewer repeats its last one.
        """
        count = max(len(self.weight_widths), len(self.expert_widths))
        if count == 1:
            return [(self, work)]
        bits = products_of(work).weight_bits
        kernels = []
        for index in range(count):
            one, own = min(index, len(self.formats) - 1), min(index, len(self.experts) - 1)
            read, alone = width_in_format(self.weight_widths, one, bits), slice(own, own + 1)
            if self.experts:
                expanded = jnp.maximum(width_in_format(self.expert_widths, own, bits), self.experts[own].read_bits)
                read = select(_IS_EXPERT, expanded, read)
            width = self.weight_widths[one]
            dispatched = tuple(entry for entry in self.dispatched_rows if entry[0] == width)
            unit = dataclasses.replace(
                self,
                formats=(self.formats[one],),
                weight_widths=(width,) if dispatched else _ONE_WIDTH,
                dispatched_rows=dispatched,
                experts=self.experts[alone] if self.experts else (),
                expert_widths=_ONE_WIDTH if self.experts else (),
            )
            kernels.append((unit, stored_at(work, read)))
        return kernels

    def kernel_shares(
        self, work: OperatorWork, total_s: Float[Array, "... operator kernel"]
    ) -> Float[Array, "... operator kernel"]:
        """How much each of `kernels` counts; see `format_shares`."""
        bits = products_of(work).weight_bits
        shares = padded_shares(self.weight_widths, bits, total_s)
        if self.experts:
            both = zip(padded_shares(self.expert_widths, bits, total_s), shares, strict=True)
            shares = [select(_IS_EXPERT, *kernel) for kernel in both]
        return jnp.stack(shares, axis=-1)

    def gemm(self, device: Device) -> GpuGemm:
        """The model of single products on this device."""
        return GpuGemm(
            peak_flops_per_s=as_float(device.peak_flops_per_s),
            bandwidth_bytes_per_s=as_float(device.memory.bandwidth_bytes_per_s),
            multiprocessors=as_float(self.multiprocessors),
            coefficients=stack_widths(self.formats),
            weight_widths=self.weight_widths,
            dispatched_rows=self.dispatched_rows,
            overlap_temperature=self.overlap_temperature,
        )

    def experts_on(self, device: Device) -> GpuExperts:
        """The model of a layer's experts on this device, of the first format."""
        return GpuExperts(
            peak_flops_per_s=as_float(device.peak_flops_per_s),
            bandwidth_bytes_per_s=as_float(device.memory.bandwidth_bytes_per_s),
            multiprocessors=as_float(self.multiprocessors),
            coefficients=self.experts[0],
            overlap_temperature=self.overlap_temperature,
        )

    def attention_on(self, device: Device) -> list[GpuAttention]:
        """The model of decoding attention on this device, for each width of keys and values."""
        bandwidth, processors = as_float(device.memory.bandwidth_bytes_per_s), as_float(self.multiprocessors)
        sheet = {"bandwidth_bytes_per_s": bandwidth, "multiprocessors": processors}
        return [dataclasses.replace(unit, **sheet) for unit in self.attention]

    def operator_times(self, work: OperatorWork, device: Device, *, temperature: Number = 0.0) -> UnitTimes:
        """Products and attention as their fitted kernels, everything else at the device's roofline; see `ComputeUnit`.

        The measured products do not include the gated product, which is a launch of its own behind the one of "gate_up" and
        reads what that wrote; the measured experts do.
        """
        roof, gemm, shapes = ROOFLINE.operator_times(work, device), self.gemm(device), products_of(work)
        m, k, n, bits, products = (
            leaf[..., _MATRICES] for leaf in (shapes.m, shapes.k, shapes.n, shapes.weight_bits, shapes.products)
        )
        launches, moved = (leaf[..., _MATRICES] for leaf in (work.launches, work.weight_bytes + work.activation_bytes))
        # Two terms need the arithmetic, and the launch needs it again: read back from where it was written, it is evaluated
        # once. Elementwise, XLA on CPUs would evaluate all tilings for each reader, and so would each leaf's gradient.
        product_s = gemm.product_time(m, k, n, weight_bits=bits, temperature=temperature) * products
        product_s = share_cotangent(jnp.zeros_like(roof.compute_s).at[..., _MATRICES].set(product_s))
        compute_s = select(_IS_MATRIX, product_s * work.launches, roof.compute_s)
        product_s, moved = product_s[..., _MATRICES], moved / jnp.where(launches > 0, launches, 1.0)
        busy_s = gemm.busy_time(product_s, moved, weight_bits=bits, temperature=temperature)
        launch_s = select(_BESIDE_PRODUCTS, roof.launch_s, 0.0) + _beside_time(work, device)
        launch_s = launch_s.at[..., _MATRICES].add(gemm.launch_time(m, k, n, busy_s=busy_s, weight_bits=bits))
        share = jnp.broadcast_to(roof.memory_share[0], compute_s.shape)
        share = share.at[..., _MATRICES].set(at_width(gemm, bits).memory_efficiency)
        if self.experts:
            experts, e = self.experts_on(device), _EXPERTS
            m, k, n, bits, products = (
                leaf[..., e] for leaf in (shapes.m, shapes.k, shapes.n, shapes.weight_bits, shapes.products)
            )
            grouped_s = experts.product_time(m, k, n, products=products, weight_bits=bits, temperature=temperature)
            m, k, products, choices = same_rank(m, k, products, _choices(work))
            passes_s = experts.pass_time(m, k, products=products, choices=choices)
            compute_s = compute_s.at[..., e].set(grouped_s * work.launches[..., e])
            started_s = select(_STARTS, as_float(experts.coefficients.launch_s), 0.0)
            launch_s = launch_s.at[..., e].set(started_s + passes_s)
            share = share.at[..., e].set(as_float(experts.coefficients.memory_efficiency))
        if self.attention:
            at = _ATTENTION
            launches = jnp.maximum(work.launches[..., at], 1.0)
            bits = jnp.broadcast_to(_given(work.kv_bits), launches.shape)
            cached = jnp.broadcast_to(_given(work.kv_elements), launches.shape) / launches
            # All that attention moves: a share by the cache alone would let a smaller cache slow down everything else.
            moved = (work.kv_bytes + work.activation_bytes)[..., at] / launches
            units, sizes = self.attention_on(device), (shapes.n[..., at], shapes.products[..., at])
            joined_s, stream_s = attention_parts(units, self.kv_widths, moved, cached, *sizes, bits)
            bandwidth = as_float(device.memory.bandwidth_bytes_per_s)
            share = _with_attention(share, jnp.where(moved > 0, moved / (bandwidth * stream_s), 1.0))
            if self.prefill is not None:
                many = prefill_parts(
                    self.prefill,
                    rows=shapes.m[..., at] * shapes.products[..., at],
                    depth=shapes.k[..., at],
                    tokens=_given(work.new_tokens),
                    visible_tokens=shapes.n[..., at],
                    moved_bytes=moved,
                    peak_flops_per_s=device.peak_flops_per_s,
                    bandwidth_bytes_per_s=bandwidth,
                )
                compute_s = _with_attention(compute_s, many.compute_s * work.launches[..., at])
                joined_s = joined_s + many.launch_s
            if self.unsplit_rows:
                walk_s = unsplit_time(
                    self.unsplit_rows,
                    rows=shapes.m[..., at] * shapes.products[..., at],
                    tokens=_given(work.new_tokens),
                    visible_tokens=shapes.n[..., at],
                    depth=shapes.k[..., at],
                    multiprocessors=self.multiprocessors,
                    peak_flops_per_s=device.peak_flops_per_s,
                )
                walk_s = walk_s * _given(work.uncut) * work.launches[..., at]
                busy_s = smooth_largest(compute_s[..., at], walk_s, temperature=self.overlap_temperature)
                compute_s = _with_attention(compute_s, busy_s)
            launch_s = _with_attention(launch_s, joined_s)
        return dataclasses.replace(
            roof,
            compute_s=compute_s,
            launch_s=launch_s,
            memory_share=(share, *roof.memory_share[1:]),
            overlap_temperature=self.overlap_temperature,
        )


def _with_attention(
    values: Float[Array, "... operator"], attention: Float[Array, "*b"]
) -> Float[Array, "... operator"]:
    """The same values but for those of attention. A choice for all operators is vectorised, which writing at one is not."""
    return select(_IS_ATTENTION, attention[..., None], values)


def _choices(work: OperatorWork) -> Array:
    """Choices of experts by all tokens of the step, wherever those are held, "*b 1"; 0 where the work does not say."""
    reads = work.experts
    if reads is None:
        return jnp.zeros(1)
    tokens, sequences, chosen = as_arrays(reads.tokens, reads.sequences, reads.per_token)
    return (tokens * sequences * chosen)[..., None]


def _given(value: Float[Array, "*b"] | None) -> Float[Array, "*b"]:
    """What `products_of` has found the work to say."""
    if value is None:
        raise ValueError("the work does not say its new tokens and bits of the cache; build it with step_operators")
    return value


def _beside_time(work: OperatorWork, device: Device) -> Float[Array, "... operator"]:
    """Seconds of elementwise kernels that the step counts as fused: per launch of their operator."""
    shapes = products_of(work)
    moved = jnp.zeros_like(work.flops)
    for name, inner in _GATED:
        up, down = OPERATORS.index(name), OPERATORS.index(inner)
        elements = shapes.m[..., up] * (shapes.n[..., up] + shapes.k[..., down])
        moved = moved.at[..., up].set(jnp.where(work.launches[..., up] > 0, _ACTIVATION_BYTES * elements, 0.0))
    # The residual stream is read and written where the sum is normalized, beside what the norm itself moves.
    norms = jnp.maximum(work.launches[..., _NORM], 1.0)
    moved = moved.at[..., _NORM].set(work.activation_bytes[..., _NORM] / norms)
    memory = device.memory
    return moved / with_last_axis(as_float(memory.bandwidth_bytes_per_s) * as_float(memory.efficiency))
