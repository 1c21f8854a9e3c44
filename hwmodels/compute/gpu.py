"""Matrix products on a GPU: a data sheet, and for each weight format eight or nine numbers fitted to measured kernels.

One product of m x k activations by k x n weights takes, in seconds,

    t      = launch + busy,  busy = (memory^4 + arithmetic^4)^(1/4)
    memory = (n k w + m k a + 2 m n) / (memory_efficiency · bandwidth)         w, a: bytes per weight, per activation
    arithmetic = (max(soft minimum over tilings of tiling time, 2 m n k / peak)^4 + feeding^4)^(1/4)
    tiling = waves · sag · tile · (k / S + prologue) + [S > 1] 4 S m n / bandwidth
    waves  = w' + wave_rounding · (ceil(w') - w'),   w' = ceil(m / Tm) · ceil(n / Tn) · S / multiprocessors
    tile   = sqrt((2 Tm Tn / compute_efficiency)^2 + (operand_cost · (b Tm + w Tn))^2) · multiprocessors / peak
                                                             b: bytes per activation as it is multiplied
    sag    = (1 + 2 m n k / 1e10)^sag_exponent
    launch = launch_s + split(split_s, k, busy) + depth_s · log2(1 + q) + switch_s / (1 + (6 / m)^3)
             + row_cost · n k w / bandwidth · m / (m + 4)
             + pass_cost · 2 m (k + pass_elements) / bandwidth,                     q = k / 1024

over the tilings Tm in 16, 32, 64, 128; Tn in 64, 128, 256; S in 1, 4 parts of k (whose partial sums of 4 bytes are written
and read, half of it within the cache). What the terms are for: sums too deep for the few tiles of a narrow product are split,
which needs a second kernel (split_s); kernels of packed weights go along k instead (depth_s),
and change from vector to matrix instructions within the first rows (switch_s), which at 16 bits costs streaming instead
(row_cost); sag is the clock that gives way under load. The soft minimum is (sum of t^-16)^(-1/16).

Eight numbers per format are fitted. `split_s`, `sag_exponent` and `row_cost` belong to 16-bit weights, whose
`prologue_elements` is 200; `depth_s`, `switch_s` and a fitted `prologue_elements` to packed ones. What a format lacks is 0.

Formats that multiply in 8 or 4 bits have the data sheet's peak of that width and fewer bytes per activation (b); activations
come and go at 16 bits and are quantized by a kernel of its own before the product (pass_cost, in place of row_cost).

Engines that bring kernels of their own choose rows of a tile by m alone and do not split k:
nine numbers are fitted to theirs: no split_s, but a prologue, and a pass that costs `pass_elements` more per row. Where a
table was measured without a CUDA graph, two more are the host's, whose time a product lasts at least (`gpu_host`). Where both
operands outgrow the cache, some kernels are fed from memory again and again: `reread_cost` (`gpu_rereads`), else feeding is 0.

Source: form and constants chosen on the GEMM tables of aiconfigurator-core 0.12.0; numbers by `experiments.silicon`.
Departs: weights stream from DRAM. What a cache still holds of them from the last call is not modelled.

At a width that was not measured, `gemm_time` mixes the times of whole formats (`format_shares`), so that fewer bits never take
longer; narrower than all measured formats, it scales the bytes of the narrowest one's kernel.

Tiles of GPU kernels that an engine chooses by the number of rows alone, as CUTLASS kernels of vLLM and SGLang are.

A library measures and picks among tilings; an engine's own table says: 64 rows a tile up to 64, 128 up to 128, and beyond that
128 in each of two neighbouring multiprocessors that share their columns, so that rows come in 256 (GPUs without such clusters:
128). No sum over k is split. Such a pair is counted as one tile on one multiprocessor, which is nearer to the tables.

    rows of a tile = clip(padded, 64, L)        padded = 64 ceil(m / 64) up to 128 rows, L ceil(m / L) beyond, L: largest rows

Source: form and constants chosen on the FP8 tables of aiconfigurator-core 0.12.0: row 257 costs at least what row 512 does.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import flax.struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from hwmodels.compute.gpu_experts import GemmCoefficients, format_shares, width_in_format
from hwmodels.compute.tile_counts import Ceiling, exact_ceiling, of_tilings, soft_minimum, tile_counts
from hwmodels.numerics.folds import smooth_ceil_div
from hwmodels.numerics.gradients import share_cotangent
from hwmodels.numerics.scalars import Leaf, Number, as_float
from hwmodels.numerics.smoothing import smooth_largest, wider_temperature
from hwmodels.numerics.units import BITS_PER_BYTE

__all__ = [
    "DISPATCHED_ROWS",
    "TILINGS",
    "GpuGemm",
    "at_width",
    "dispatched_tile",
    "gemm_time",
]

_HOST_SWITCH_ROWS = 24.0
#: Beyond which the eighth power is 1 in single precision, and might overflow.
_MOST_SWITCHES = 1e3
#: Of the maximum of host and GPU, as of that of arithmetic and memory.
_HOST_TEMPERATURE = 0.25


def host_wait(m: Number, *, host_s: Leaf, host_rows_s: Leaf, product_s: Number) -> Float[Array, "*b"]:
    """Seconds that the host adds to a product.

    Args:
        m: "*b", >= 0, real; rows.
        host_s: "*b", >= 0; of the host, for a product of few rows. 0 with `host_rows_s`: a graph, which never waits.
        host_rows_s: "*b", >= 0; what many rows take the host longer.
        product_s: "*b", >= 0; of the product without a host.
    Returns:
        "*b"; with `product_s` a sum that never falls as m or `product_s` rise.
    Gradient: smooth.
    """
    share = jnp.minimum(jnp.asarray(as_float(m)) / _HOST_SWITCH_ROWS, _MOST_SWITCHES)
    for _ in range(3):
        share = share * share
    host, product = as_float(host_s) + host_rows_s * (share / (1.0 + share)), jnp.asarray(as_float(product_s))
    return smooth_largest(host, product, temperature=_HOST_TEMPERATURE) - product


_BAND = 256.0
_CACHE_SHARE = 0.5
#: Beyond which the fourth power is 1 in single precision, and might overflow.
_MOST_CACHES = 1e3
#: Of the maximum of arithmetic and feeding, as of that of arithmetic and memory.
_REREAD_TEMPERATURE = 0.25


def feeding_time(
    c: GemmCoefficients, m: Number, k: Number, n: Number, *, weight_bits: Number, bandwidth_bytes_per_s: Leaf
) -> Float[Array, "*b"]:
    """Seconds of reading operands again, as the module's heading has it.

    Args:
        c: leaves "*b"; `reread_cost` 0 is no such time, `cache_bytes` 0 no cache.
        m, k, n: "*b", > 0, real.
        weight_bits: "*b", > 0.
        bandwidth_bytes_per_s: "*b", > 0; of the data sheet.
    Returns:
        "*b"; never falls as m, k, n, bits or `reread_cost` rise, nor as `cache_bytes` or the bandwidth fall.
    Gradient: smooth, and 0 by the sizes where an operand is 1000 times what counts of the cache.
    """
    m, k, n, bits = (jnp.asarray(as_float(value)) for value in (m, k, n, weight_bits))
    activations, weights = m * k * c.activation_bytes, k * n * (bits / BITS_PER_BYTE)
    cache = _CACHE_SHARE * as_float(c.cache_bytes)
    bands = (activations * n + weights * m) / _BAND
    both = _missed(activations, cache) * _missed(weights, cache)
    return c.reread_cost * both * (bands / as_float(bandwidth_bytes_per_s))


def while_fed(arithmetic_s: Leaf, feeding_s: Leaf) -> Float[Array, "*b"]:
    """Seconds of arithmetic that waits for its operands: (arithmetic^4 + feeding^4)^(1/4).

    Args:
        arithmetic_s, feeding_s: "*b", >= 0.
    Gradient: smooth.
    """
    return smooth_largest(as_float(arithmetic_s), as_float(feeding_s), temperature=_REREAD_TEMPERATURE)


def _missed(operand: Leaf, cache: Leaf) -> Leaf:
    """Share of an operand that the cache does not hold."""
    some = cache > 0
    share = jnp.minimum(operand / jnp.where(some, cache, 1.0), _MOST_CACHES)
    share = share * share * share * share
    return jnp.where(some, share / (1.0 + share), 1.0)


_FILLING_COLUMNS = 48.0
#: Over which a decline of 1 / (1 + x^2), at most 3^(3/2) / 8 per unit of x, outpaces x itself.
_STEEPEST = 8.0 / 3.0**1.5


def filling_time(k: Leaf, *, multiprocessors: Leaf, weight_s: Leaf) -> Float[Array, "*b"]:
    """Seconds of reading the columns that fill a GPU.

    Args:
        k: "*b", >= 0; depth.
        multiprocessors: "*b", > 0.
        weight_s: "*b", > 0; seconds of reading one weight as kernels do.
    """
    return _FILLING_COLUMNS * multiprocessors * k * weight_s


def split_time(split_s: Leaf, k: Number, *, busy_s: Number, filling_s: Leaf) -> Float[Array, "*b"]:
    """Seconds that splitting sums over k adds to a product.

    Args:
        split_s: "*b", >= 0; of splitting the deepest sums.
        k: "*b", >= 0, real; depth.
        busy_s: "*b", >= 0; of arithmetic and memory of the same product.
        filling_s: "*b", >= 0, see `filling_time`; where it is 0 there is nothing to split.
    Returns:
        "*b"; with `busy_s` a sum that never falls as `busy_s`, k or `filling_s` rise.
    Gradient: smooth.
    """
    q, busy = jnp.asarray(as_float(k)) / _DEPTH_ELEMENTS, jnp.asarray(as_float(busy_s))
    second = split_s * (q * q / (q * q + 2.0))
    some = filling_s > 0
    filling = jnp.where(some, filling_s, 1.0)
    # Ratios, as fourth powers of seconds are beyond single precision.
    over, filled = second / (_STEEPEST * filling), busy / filling
    limit = second / jnp.sqrt(jnp.sqrt(1.0 + over * over * over * over))
    return jnp.where(some, limit / (1.0 + filled * filled), 0.0)


_TILE_ROWS, _TILE_COLUMNS, _SPLITS = (16.0, 32.0, 64.0, 128.0), (64.0, 128.0, 256.0), (1.0, 4.0)

#: Rows and columns of an output tile and parts of k, among which the kernel library is taken to choose.
TILINGS = tuple((rows, columns, parts) for rows in _TILE_ROWS for columns in _TILE_COLUMNS for parts in _SPLITS)

_OUTPUT_BYTES = 2.0
_STORED_ACTIVATION_BYTES = 2.0
_SAG_FLOPS = 1e10
_DEPTH_ELEMENTS = 1024.0
_SWITCH_ROWS = 6.0
_VECTOR_ROWS = 4.0
#: Bytes of DRAM traffic per partial sum: 4 written and 4 read, half of them in the cache.
_PARTIAL_SUM_BYTES = 4.0


@flax.struct.dataclass
class GpuGemm:
    """A GPU's data sheet and the coefficients of each weight format; leaves "*b", those of `coefficients` "*b width".

    Raises:
        ValueError: `weight_widths` is empty or not increasing.
    """

    peak_flops_per_s: Leaf  # dense 16-bit matrix products of the data sheet, > 0; a multiply-add counts 2
    bandwidth_bytes_per_s: Leaf  # of the data sheet, > 0
    multiprocessors: Leaf  # > 0
    coefficients: GemmCoefficients
    #: Bits per weight of the formats, as the coefficients' last axis has them, increasing.
    weight_widths: tuple[float, ...] = flax.struct.field(pytree_node=False, default=(16.0,))
    #: Of the smooth maximum that joins arithmetic and memory; the coefficients were fitted with it.
    overlap_temperature: float = flax.struct.field(pytree_node=False, default=0.25)
    #: Formats whose tiles an engine chooses by rows alone: bits per weight, and the most rows of a tile, of `DISPATCHED_ROWS`.
    #: Of all others a library chooses the tiling.
    dispatched_rows: tuple[tuple[float, float], ...] = flax.struct.field(pytree_node=False, default=())

    def __post_init__(self) -> None:
        widths = self.weight_widths
        if not widths or any(one >= next_one for one, next_one in itertools.pairwise(widths)):
            raise ValueError(
                f"weight_widths {widths} must be one or more increasing numbers of bits, as in (4.0, 16.0)"
            )

    @property
    def memory_efficiency(self) -> Leaf:
        """Share of the bandwidth that the widest format's kernels reach."""
        return at_width(self, self.weight_widths[-1]).memory_efficiency

    def product_time(
        self, m: Number, k: Number, n: Number, *, weight_bits: Number = 16.0, temperature: Number = 0.0
    ) -> Float[Array, "*b"]:
        """Seconds of arithmetic alone of one m x k by k x n product; see `product_time` of the module."""
        return _product_time(self, m, k, n, weight_bits=weight_bits, temperature=temperature)

    def busy_time(
        self, arithmetic_s: Number, moved_bytes: Number, *, weight_bits: Number = 16.0, temperature: Number = 0.0
    ) -> Float[Array, "*b"]:
        """Seconds of arithmetic and memory, joined as they were where the numbers were fitted.

        Args:
            arithmetic_s: "*b", >= 0, see `product_time`.
            moved_bytes: "*b", >= 0; from and to memory.
            weight_bits: "*b", > 0.
            temperature: "*b", in [0, 1]; of the maximum, where it is above `overlap_temperature`.
        Gradient: smooth.
        """
        rate = at_width(self, weight_bits).memory_efficiency * as_float(self.bandwidth_bytes_per_s)
        overlap = wider_temperature(temperature, self.overlap_temperature)
        return smooth_largest(as_float(arithmetic_s), as_float(moved_bytes) / rate, temperature=overlap)

    def launch_time(
        self, m: Number, k: Number, n: Number, *, busy_s: Number, weight_bits: Number = 16.0
    ) -> Float[Array, "*b"]:
        """Seconds of one launch that overlap with nothing.

        Args:
            m, k, n: "*b", > 0, real.
            busy_s: "*b", >= 0; what else the launch takes, arithmetic and memory joined. Their sum never falls as sizes rise.
            weight_bits: "*b", > 0.
        Gradient: smooth.
        """
        m, k, n, bits = (jnp.asarray(as_float(value)) for value in (m, k, n, weight_bits))
        c = at_width(self, weight_bits)
        weight_s = bits / (BITS_PER_BYTE * as_float(self.bandwidth_bytes_per_s))
        q = k / _DEPTH_ELEMENTS
        filling_s = filling_time(
            k, multiprocessors=as_float(self.multiprocessors), weight_s=weight_s / c.memory_efficiency
        )
        cube = m * m * m
        started_s = (
            c.launch_s
            + split_time(c.split_s, k, busy_s=busy_s, filling_s=filling_s)
            + c.depth_s * (jnp.log1p(q) / math.log(2.0))
            + c.switch_s * (cube / (cube + _SWITCH_ROWS**3))
            + c.row_cost * (n * k * weight_s) * (m / (m + _VECTOR_ROWS))
            + c.pass_cost
            * (m * (k + c.pass_elements))
            * (_STORED_ACTIVATION_BYTES / as_float(self.bandwidth_bytes_per_s))
        )
        whole_s = as_float(busy_s) + started_s
        return started_s + host_wait(m, host_s=c.host_s, host_rows_s=c.host_rows_s, product_s=whole_s)


def at_width(unit: GpuGemm, weight_bits: Number) -> GemmCoefficients:
    """Coefficients at any width: those of a format at its width, those of the nearest one outside all widths.

    Of parts of a product. Its whole time mixes times of formats, not their coefficients: see `gemm_time`.

    Between two widths each coefficient rises or falls from one format's value to the other's along 3 u^2 - 2 u^3.

    Args:
        unit: coefficients "*b width".
        weight_bits: "*b", > 0.
    Returns:
        leaves "*b".
    Gradient: continuous, and 0 by `weight_bits` at the widths themselves: a kernel does not change there.
    """
    widths = unit.weight_widths
    if isinstance(weight_bits, (int, float)) and (weight_bits in widths or not widths[0] < weight_bits < widths[-1]):
        nearest = min(range(len(widths)), key=lambda index: abs(widths[index] - weight_bits))
        return jax.tree.map(lambda leaf: jnp.asarray(as_float(leaf))[..., nearest], unit.coefficients)
    bits = jnp.asarray(as_float(weight_bits))
    shares = [jnp.clip((bits - low) / (high - low), 0.0, 1.0) for low, high in itertools.pairwise(widths)]
    shares = [share * share * (3.0 - 2.0 * share) for share in shares]

    def joined(leaf: Leaf) -> Leaf:
        leaf = jnp.asarray(as_float(leaf))
        steps = (share * (leaf[..., i + 1] - leaf[..., i]) for i, share in enumerate(shares))
        return sum(steps, start=leaf[..., 0])

    return jax.tree.map(joined, unit.coefficients)


def gemm_time(
    unit: GpuGemm,
    m: Number,
    k: Number,
    n: Number,
    *,
    weight_bits: Number = 16.0,
    activation_bits: Number = 16.0,
    temperature: Number = 0.0,
) -> Float[Array, "*b"]:
    """Seconds of one whole product, its operands and its result from and to DRAM: what the coefficients were fitted to.

    Args:
        unit: leaves "*b".
        m, k, n: "*b", > 0, real.
        weight_bits, activation_bits: "*b", > 0; bits read per weight and per activation.
        temperature: "*b", in [0, 1]; of the tile counts, as in `GpuGemm.product_time`.
    Returns:
        "*b"; never longer for fewer bits per weight, see `format_shares`.
    Gradient: as `GpuGemm.product_time`; by `weight_bits` as `format_shares`.
    """
    m, k, n, weight_bits, activation_bits = (as_float(value) for value in (m, k, n, weight_bits, activation_bits))
    widths = unit.weight_widths
    times = []
    for index, width in enumerate(widths):
        leaves = jax.tree.map(lambda leaf, i=index: jnp.asarray(as_float(leaf))[..., i : i + 1], unit.coefficients)
        alone = dataclasses.replace(unit, coefficients=leaves, weight_widths=(width,))
        bits = width_in_format(widths, index, weight_bits)
        times.append(_kernel_time(alone, m, k, n, bits, activation_bits, temperature))
    if len(widths) == 1:
        return times[0]
    stacked = jnp.stack(jnp.broadcast_arrays(*times), axis=-1)
    bits = jnp.broadcast_to(weight_bits, stacked.shape[:-1])
    return jnp.sum(format_shares(widths, bits, stacked) * stacked, axis=-1)


def _kernel_time(
    unit: GpuGemm, m: Leaf, k: Leaf, n: Leaf, weight_bits: Leaf, activation_bits: Leaf, temperature: Number
) -> Float[Array, "*b"]:
    """One whole product by the kernel of a unit's only format."""
    moved = (n * k * weight_bits + m * k * activation_bits) / BITS_PER_BYTE + _OUTPUT_BYTES * m * n
    arithmetic = unit.product_time(m, k, n, weight_bits=weight_bits, temperature=temperature)
    busy = unit.busy_time(arithmetic, moved, weight_bits=weight_bits)
    return busy + unit.launch_time(m, k, n, busy_s=busy, weight_bits=weight_bits)


def _product_time(
    unit: GpuGemm, m: Number, k: Number, n: Number, *, weight_bits: Number, temperature: Number
) -> Float[Array, "*b"]:
    """Seconds of arithmetic, as the module's heading has it.

    Args:
        unit: leaves "*b".
        m, k, n: "*b", > 0, real.
        weight_bits: "*b", > 0.
        temperature: "*b", in [0, 1]; 0 counts tiles and waves exactly, above they are smooth (`smooth_ceil_div`). A Python 0
            is faster than a traced one.
    Returns:
        "*b", at least 2 m n k / peak. Of a unit with several formats the library's choice of tilings.
    Gradient: continuous at temperature > 0, but for a kink where the peak is reached. At 0 the counts are constants.
    """
    m, k, n, bits = (jnp.asarray(as_float(value)) for value in (m, k, n, weight_bits))
    peak, bandwidth, processors = map(
        as_float, (unit.peak_flops_per_s, unit.bandwidth_bytes_per_s, unit.multiprocessors)
    )
    c = at_width(unit, weight_bits)
    peak = peak * c.arithmetic_rate
    exact = isinstance(temperature, (int, float)) and temperature == 0
    ceiling: Ceiling = exact_ceiling if exact else lambda one, other: smooth_ceil_div(one, other, temperature)

    flops = 2.0 * m * n * k
    sag = jnp.exp(c.sag_exponent * jnp.log1p(flops / _SAG_FLOPS))
    alone = len(unit.weight_widths) == 1
    largest = dict(unit.dispatched_rows).get(unit.weight_widths[0], 0.0) if alone else 0.0
    row_tiles = [dispatched_tile(m, largest, ceiling)] if largest else tile_counts(ceiling, m, _TILE_ROWS)
    # What leaves meet the tilings by: else the loop of each leaf's gradient would evaluate all tilings again.
    splits = [
        (
            parts,
            share_cotangent((k / parts + c.prologue_elements) * sag / peak),
            share_cotangent(m * n * (_PARTIAL_SUM_BYTES * parts / bandwidth)) if parts > 1 else jnp.zeros_like(flops),
        )
        for parts in ((1.0,) if largest else _SPLITS)
    ]

    def tiling_time(row_tile: tuple[Leaf, ...], column_tile: tuple[Leaf, ...], split: tuple[Leaf, ...]) -> Leaf:
        (rows, tiles_of_rows), (columns, tiles_of_columns), (parts, elements, partial_sums) = (
            row_tile,
            column_tile,
            split,
        )
        products = 2.0 * rows * columns / c.compute_efficiency
        operands = c.operand_cost * (c.activation_bytes * rows + bits * (columns / BITS_PER_BYTE))
        tile = jnp.sqrt(products * products + operands * operands)
        tiles = tiles_of_rows * tiles_of_columns
        # Waves times multiprocessors, so that nothing is divided twice.
        filled, parts_tiles = ceiling(tiles * parts, processors) * processors, tiles * parts
        occupied = parts_tiles + c.wave_rounding * (filled - parts_tiles)
        return occupied * tile * elements + partial_sums

    times = of_tilings(tiling_time, row_tiles, tile_counts(ceiling, n, _TILE_COLUMNS), splits)
    feeding_s = feeding_time(c, m, k, n, weight_bits=bits, bandwidth_bytes_per_s=bandwidth)
    return while_fed(jnp.maximum(soft_minimum(times), flops / peak), feeding_s)


#: Rows that many rows are padded to: of one multiprocessor, and of two that work together.
DISPATCHED_ROWS = (128.0, 256.0)

_FEW, _MANY = 64.0, 128.0


def dispatched_tile(m: Leaf, largest: float, ceiling: Ceiling) -> tuple[Leaf, Leaf]:
    """Rows of a tile within a multiprocessor, and how many tiles cover the rows.

    Args:
        m: "*b", > 0, real.
        largest: static, of `DISPATCHED_ROWS`.
        ceiling: counts tiles, exactly or smoothly.
    Returns:
        "*b" each; neither rows of a tile nor rows in all tiles fall as m rises.
    Gradient: of the counts; kinks where the rows of a tile reach an end of their range.
    """
    beyond = jnp.clip(ceiling(m, _MANY) - 1.0, 0.0, 1.0)
    further = jnp.maximum(largest * ceiling(m, largest) - _MANY, 0.0)
    padded = _FEW * jnp.minimum(ceiling(m, _FEW), _MANY / _FEW) + beyond * further
    rows = jnp.clip(padded, _FEW, largest)
    return rows, padded / rows
