"""Time and energy of a matrix product on a systolic array: cycles, buffer traffic, and how the two combine.

Source: Huff-LLM, appendix A.1.
Departs: the paper prints neither how computing and moving combine nor its unit energies: the first is a named choice, the
others are leaves of the array. What fills the buffers (DRAM) and the decoders of compressed weights are priced elsewhere.
"""

from __future__ import annotations

import flax.struct
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.systolic.array import OnChipBuffer, SystolicArray, elapsed_cycles
from hwmodels.compute.systolic.buffers import PARTIAL_SUM_BITS, buffer_traffic, smooth_buffer_elements
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.smoothing import smooth_maximum

__all__ = ["COMBINATIONS", "GemmCost", "gemm_cost"]

#: How computing and the three buffers share time: one after the other, or all at once.
COMBINATIONS = ("serial", "overlapped")


@flax.struct.dataclass
class GemmCost:
    """Time and energy of one matrix product and their parts, "*b"."""

    total_s: Float[Array, "*b"]
    compute_s: Float[Array, "*b"]  # if only the array took time
    input_s: Float[Array, "*b"]  # if only the input buffer did
    weight_s: Float[Array, "*b"]
    output_s: Float[Array, "*b"]
    total_j: Float[Array, "*b"]  # sum of the four below
    mac_j: Float[Array, "*b"]
    input_j: Float[Array, "*b"]
    weight_j: Float[Array, "*b"]
    output_j: Float[Array, "*b"]


def gemm_cost(
    array: SystolicArray,
    m: Number,
    k: Number,
    n: Number,
    *,
    input_bits: Number = UNCOMPRESSED_BITS,
    weight_bits: Number = UNCOMPRESSED_BITS,
    output_bits: Number = PARTIAL_SUM_BITS,
    combination: str = "overlapped",
    temperature: Number = 0.0,
) -> GemmCost:
    """Time and energy of an m x k by k x n product.

    Args:
        array: leaves "*b".
        m, k, n: "*b", > 0, real.
        input_bits, weight_bits, output_bits: "*b", >= 0; bits per element in the buffers, as `buffer_traffic` takes them.
        combination: "serial" adds the times of computing and of each buffer; "overlapped" takes the longest.
        temperature: "*b", in [0, 1]; of the folds and of both maxima. 0 is exact.
    Returns:
        "*b", seconds and joules. Energy counts useful multiply-accumulates: idle elements and zeros of padding are free.
    Raises:
        ValueError: `combination` is not in `COMBINATIONS`.
    Gradient: right for every input. At temperature 0 the numbers of folds are constants, with a kink where the longest
        time changes; see `smooth_cycles`, `smooth_maximum`.
    Source: Huff-LLM, appendix A.1.
    """
    if combination not in COMBINATIONS:
        raise ValueError(f"combination {combination!r} is unknown; choose one of {', '.join(COMBINATIONS)}")
    traffic = buffer_traffic(
        smooth_buffer_elements(array, m, k, n, temperature),
        input_bits=input_bits,
        weight_bits=weight_bits,
        output_bits=output_bits,
    )
    buffers = (
        (array.input_buffer, traffic.input_bytes),
        (array.weight_buffer, traffic.weight_bytes),
        (array.output_buffer, traffic.output_bytes),
    )
    compute_s = elapsed_cycles(array, m, k, n, temperature) / as_float(array.frequency_hz)
    input_s, weight_s, output_s = (moved / as_float(buffer.bandwidth_bytes_per_s) for buffer, moved in buffers)
    times = jnp.stack(jnp.broadcast_arrays(compute_s, input_s, weight_s, output_s), axis=-1)

    mac_j = jnp.asarray(as_float(m) * as_float(k) * as_float(n) * as_float(array.mac_energy_j))
    input_j, weight_j, output_j = (_access_energy(buffer, moved) for buffer, moved in buffers)
    return GemmCost(
        total_s=jnp.sum(times, axis=-1) if combination == "serial" else smooth_maximum(times, temperature),
        compute_s=compute_s,
        input_s=input_s,
        weight_s=weight_s,
        output_s=output_s,
        total_j=mac_j + input_j + weight_j + output_j,
        mac_j=mac_j,
        input_j=input_j,
        weight_j=weight_j,
        output_j=output_j,
    )


def _access_energy(buffer: OnChipBuffer, moved_bytes: Float[Array, "*b"]) -> Float[Array, "*b"]:
    return moved_bytes * (as_float(buffer.access_energy_j) / as_float(buffer.access_bytes))
