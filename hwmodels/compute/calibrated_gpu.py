"""A GPU whose matrix products and attention are calibrated to measured kernels, as the matrix unit of a device.

Peak rate and bandwidth are the device's own, so that changing them changes the kernels. Products of stored matrices take what
`hwmodels.compute.gpu` says, attention streams the cache as `hwmodels.compute.gpu_attention` says, and everything else runs at
the device's roof.

Of the formats that were measured each operator is timed with each one's kernels, and the times are mixed as
`hwmodels.compute.gpu.format_shares` says: so that fewer bits never take longer. `hwmodels.analysis.kernel_widths` says
which widths of a footprint have no kernel of their own.
"""

from __future__ import annotations

import dataclasses

import flax.struct
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.compute import gpu_attention
from hwmodels.compute.gpu import GemmCoefficients, GpuGemm, at_width, format_shares, stack_widths, width_in_format
from hwmodels.compute.gpu_attention import GpuAttention
from hwmodels.device import Device
from hwmodels.network.operators import MATRIX_OPERATORS, OPERATORS, OperatorWork
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = ["CalibratedGpu"]

_MATRICES = np.array([OPERATORS.index(name) for name in MATRIX_OPERATORS], np.int32)
_ATTENTION = OPERATORS.index("attention")
#: Whether an operator has a launch at the device's own latency beside its products.
_BESIDE_PRODUCTS = np.array([name.endswith("gate_up") or name not in MATRIX_OPERATORS for name in OPERATORS])


@flax.struct.dataclass
class CalibratedGpu:
    """Fitted numbers of a GPU; leaves are single numbers: `vmap` for more."""

    multiprocessors: Leaf  # > 0
    formats: tuple[GemmCoefficients, ...]  # one for each of `weight_widths`
    attention: GpuAttention | None  # without a bandwidth of its own; None: attention runs at the roof
    #: Bits per weight of the formats, increasing.
    weight_widths: tuple[float, ...] = flax.struct.field(pytree_node=False, default=(16.0,))
    #: Of the smooth maximum that joins arithmetic and memory; the coefficients were fitted with it.
    overlap_temperature: float = flax.struct.field(pytree_node=False, default=0.25)
    #: What a reader of its times should know of the fits, one sentence each.
    remarks: tuple[str, ...] = flax.struct.field(pytree_node=False, default=())

    @property
    def elements(self) -> Leaf:
        """Multiprocessors, "*b": what `Chip.element_area_m2` is the area of one of."""
        return as_float(self.multiprocessors)

    def kernels(self, work: OperatorWork) -> list[tuple[CalibratedGpu, OperatorWork]]:
        """For each format this GPU with that format alone, and the work with weights as its kernels read them."""
        if len(self.weight_widths) == 1:
            return [(self, work)]
        return [
            (
                dataclasses.replace(self, formats=(self.formats[i],), weight_widths=(width,)),
                _stored_at(work, width_in_format(self.weight_widths, i, _weight_bits(work))),
            )
            for i, width in enumerate(self.weight_widths)
        ]

    def kernel_shares(
        self, work: OperatorWork, times: Float[Array, "... operator kernel"]
    ) -> Float[Array, "... operator kernel"]:
        """How much each of `kernels` counts; see `format_shares`."""
        return format_shares(self.weight_widths, _weight_bits(work), times)

    def gemm(self, device: Device) -> GpuGemm:
        """The model of single products on this device."""
        return GpuGemm(
            peak_flops_per_s=as_float(device.peak_flops_per_s),
            bandwidth_bytes_per_s=as_float(device.memory.bandwidth_bytes_per_s),
            multiprocessors=as_float(self.multiprocessors),
            coefficients=stack_widths(self.formats),
            weight_widths=self.weight_widths,
            overlap_temperature=self.overlap_temperature,
        )

    def attention_on(self, device: Device) -> GpuAttention:
        """The model of attention on this device."""
        assert self.attention is not None
        return dataclasses.replace(self.attention, bandwidth_bytes_per_s=as_float(device.memory.bandwidth_bytes_per_s))

    def operator_compute_time(
        self, device: Device, work: OperatorWork, roof_s: Float[Array, "... operator"], *, temperature: Number = 0.0
    ) -> Float[Array, "... operator"]:
        """Seconds of arithmetic of each operator; `roof_s` is what the device's roof says."""
        shapes = work.shapes
        assert shapes is not None
        m, k, n, bits, products = (
            x[..., _MATRICES] for x in (shapes.m, shapes.k, shapes.n, shapes.weight_bits, shapes.products)
        )
        product_s = self.gemm(device).product_time(m, k, n, weight_bits=bits, temperature=temperature)
        return roof_s.at[..., _MATRICES].set(product_s * products * work.launches[..., _MATRICES])

    def streaming_share(self, device: Device, work: OperatorWork) -> Float[Array, "... operator"]:
        """Share of the memory's bandwidth that each operator reaches, in (0, 1]."""
        shapes = work.shapes
        assert shapes is not None
        share = jnp.full_like(work.flops, as_float(device.memory.efficiency))
        bits = shapes.weight_bits[..., _MATRICES]
        share = share.at[..., _MATRICES].set(at_width(self.gemm(device), bits).memory_efficiency)
        if self.attention is None:
            return share
        launches = jnp.maximum(work.launches[..., _ATTENTION], 1.0)
        # All that attention moves: a share by the cache alone would let a smaller cache slow down everything else.
        moved = (work.kv_bytes + work.activation_bytes)[..., _ATTENTION] / launches
        return share.at[..., _ATTENTION].set(gpu_attention.streaming_share(self.attention_on(device), moved))

    def operator_launch_time(self, device: Device, work: OperatorWork) -> Float[Array, "... operator"]:
        """Seconds per launch of each operator, beside arithmetic and traffic.

        The measured products do not include the gated product, which is a launch of its own behind the one of "gate_up".
        """
        shapes = work.shapes
        assert shapes is not None
        launch_s = jnp.full_like(work.flops, as_float(device.operator_latency_s))
        m, k, n, bits = (x[..., _MATRICES] for x in (shapes.m, shapes.k, shapes.n, shapes.weight_bits))
        products_s = self.gemm(device).launch_time(m, k, n, weight_bits=bits)
        launch_s = jnp.where(_BESIDE_PRODUCTS, launch_s, 0.0)
        launch_s = launch_s.at[..., _MATRICES].add(products_s)
        if self.attention is None:
            return launch_s
        attention_s = gpu_attention.launch_time(self.attention_on(device), shapes.n[..., _ATTENTION])
        return launch_s.at[..., _ATTENTION].set(attention_s)


def _weight_bits(work: OperatorWork) -> Float[Array, "... operator"]:
    assert work.shapes is not None
    return jnp.asarray(work.shapes.weight_bits)


def _stored_at(work: OperatorWork, bits: Float[Array, "... operator"]) -> OperatorWork:
    """The same work with each stored matrix read at other bits per weight."""
    shapes = work.shapes
    assert shapes is not None
    m = _MATRICES
    elements = (shapes.k * shapes.n * shapes.products)[..., m] * work.launches[..., m]
    as_given = bits[..., m] == shapes.weight_bits[..., m]
    moved = jnp.where(as_given, work.weight_bytes[..., m], elements * (bits[..., m] / BITS_PER_BYTE))
    weight_bytes = jnp.broadcast_to(work.weight_bytes, bits.shape).at[..., m].set(moved)
    return dataclasses.replace(work, weight_bytes=weight_bytes, shapes=dataclasses.replace(shapes, weight_bits=bits))
