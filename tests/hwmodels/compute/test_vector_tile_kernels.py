"""Vector kernels for few rows and tiles for more: instructions counted one by one, the switch, and what has no such kernels."""

import itertools

import flax.struct
import numpy as np
import pytest
import unit_checks

from hwmodels import OPERATORS, catalog, step_operators, uniform_weight_bits
from hwmodels.compute.roofline import ROOFLINE
from hwmodels.compute.vector_tile_kernels import VectorTileKernels
from hwmodels.network.operators import StepShape
from hwmodels.numerics.scalars import Leaf

PEAK = 3e12
KERNELS = VectorTileKernels(
    rows_per_pass=3.0,
    unpack_instructions=3.0,
    row_instructions=2.4,
    switch_rows=6.0,
    tile_rows=7.0,
    tile_columns=5.0,
    tile_efficiency=0.8,
    fill_rows=2.0,
    wide_tile_rows=14.0,
)


@flax.struct.dataclass
class Rated:
    """Kernels with the peak that they take from their device, as the checks of all units want it."""

    kernels: VectorTileKernels
    peak_flops_per_s: Leaf

    def product_time(self, m, k, n, *, weight_bits, temperature):
        return self.kernels.product_time(
            m, k, n, peak_flops_per_s=self.peak_flops_per_s, weight_bits=weight_bits, temperature=temperature
        )


RATED = Rated(KERNELS, PEAK)


def rows_of(m, k, n, bits=4.5, kernels=KERNELS):
    """Time of a product in multiply-adds of all its weights."""
    return np.asarray(unit_checks.product_time(Rated(kernels, PEAK), m, k, n, bits, 0.0)) * PEAK / (2 * k * n)


def test_by_hand():
    # Two rows: one pass. Three for unpacking, 2.4 for each row.
    assert rows_of(2, 11, 10) == pytest.approx(3 + 4.8)
    # Four: two passes, 15.6; but a tile of 7 rows, with 2 rows of filling, takes (7 + 2) / 0.8.
    assert rows_of(4, 11, 10) == pytest.approx(11.25)
    # From 6 rows on tiles, although 20.4 would be more than one tile anyway; 8 rows fill two of them.
    assert rows_of(8, 11, 10) == pytest.approx(20.0)
    # Eleven columns are computed as 15.
    assert rows_of(8, 11, 11) == pytest.approx(20.0 * 15 / 11)
    # Weights of 16 bits: tiles of 14 rows, one of them.
    assert rows_of(8, 11, 10, 16.0) == pytest.approx(20.0)
    assert rows_of(15, 11, 10, 16.0) == pytest.approx(37.5)
    assert rows_of(15, 11, 10, 15.9) == pytest.approx(28.75)


def counted(m, k, n):
    """Both kernels in loops: instructions, one of which takes as long as a multiply-add."""
    vector = tile = 0.0
    for first in range(0, m, 3):
        vector += k * n * (3.0 + sum(2.4 for _ in range(first, min(first + 3, m))))
    for _ in itertools.product(range(0, m, 7), range(0, n, 5)):
        tile += 7 * 5 * k / 0.8
    tile += 2.0 * k * 5 * len(range(0, n, 5)) / 0.8
    return vector, tile


def test_instructions_counted_one_by_one():
    for m, (k, n) in itertools.product(range(1, 30), ((13, 10), (4, 23), (31, 7))):
        vector, tile = counted(m, k, n)
        seconds = float(unit_checks.product_time(RATED, m, k, n, 4.5, 0.0))
        assert seconds * PEAK / 2 == pytest.approx(min(vector, tile) if m < 6 else tile, rel=1e-5), (m, k, n)


def test_experts_and_attention_are_the_rooflines():
    device = catalog.device("m3-ultra")
    work = step_operators(
        catalog.architecture("glm-4.5-air"),
        StepShape(tokens=4.0, batch=3.0, context_tokens=500.0, weight_bits=uniform_weight_bits(4.5), kv_bits=16.0),
    )
    own, roof = (np.asarray(unit.operator_times(work, device).compute_s) for unit in (device.matrix_unit, ROOFLINE))
    same = [name for name, one, other in zip(OPERATORS, own, roof, strict=True) if one == other != 0]
    assert same == ["attention", "expert_gate_up", "expert_down", "norm"]
    # Of 12 rows a tile of 32 is computed.
    assert own[OPERATORS.index("lm_head")] > 2.5 * roof[OPERATORS.index("lm_head")]
