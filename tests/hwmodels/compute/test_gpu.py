import math

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.compute.gpu import TILINGS, GpuGemm, gemm_time
from hwmodels.compute.gpu_experts import GemmCoefficients, stack_widths

pytestmark = pytest.mark.device_matrix


def coefficients(**changes):
    numbers = {
        "launch_s": 4e-6,
        "split_s": 1.1e-6,
        "depth_s": 0.0,
        "switch_s": 0.0,
        "memory_efficiency": 0.77,
        "compute_efficiency": 0.97,
        "operand_cost": 48.0,
        "wave_rounding": 0.7,
        "sag_exponent": 0.02,
        "prologue_elements": 190.0,
        "row_cost": 0.04,
    }
    return GemmCoefficients(**(numbers | changes))


PACKED = coefficients(split_s=0.0, depth_s=4.7e-6, switch_s=5e-6, sag_exponent=0.0, row_cost=0.0, memory_efficiency=0.9)


def unit_of(*formats, widths=(16.0,), **changes):
    sheet = {"peak_flops_per_s": 3.1e14, "bandwidth_bytes_per_s": 2.1e12, "multiprocessors": 107.0} | changes
    return GpuGemm(**sheet, coefficients=stack_widths(formats or [coefficients()]), weight_widths=widths)


# Each compiled once: outside of jit a product is 300 small operations.
product = jax.jit(lambda unit, m, k, n, bits=16.0: unit.product_time(m, k, n, weight_bits=bits))
smooth_product = jax.jit(lambda unit, m, k, n, t: unit.product_time(m, k, n, temperature=t))
whole = jax.jit(lambda unit, m, k, n, bits=16.0: gemm_time(unit, m, k, n, weight_bits=bits))


def witness(unit, c, m, k, n, weight_bits):
    """The heading of the module, number by number, in double precision."""
    peak, bandwidth, processors = unit.peak_flops_per_s, unit.bandwidth_bytes_per_s, unit.multiprocessors
    w = weight_bits / 8
    sag = (1 + 2 * m * n * k / 1e10) ** c.sag_exponent
    total = 0.0
    for rows, columns, parts in TILINGS:
        tile = math.hypot(2 * rows * columns / c.compute_efficiency, c.operand_cost * (2 * rows + w * columns))
        filled = math.ceil(m / rows) * math.ceil(n / columns) * parts / processors
        waves = filled + c.wave_rounding * (math.ceil(filled) - filled)
        time = waves * sag * tile * processors / peak * (k / parts + c.prologue_elements)
        total += (time + (4 * parts * m * n / bandwidth if parts > 1 else 0)) ** -16
    arithmetic = max(total ** (-1 / 16), 2 * m * n * k / peak)
    memory = (n * k * w + 2 * m * k + 2 * m * n) / (c.memory_efficiency * bandwidth)
    busy, filling = (arithmetic**4 + memory**4) ** 0.25, 48 * processors * k * w / (c.memory_efficiency * bandwidth)
    q = k / 1024
    launch = c.launch_s + c.depth_s * math.log2(1 + q) + c.switch_s / (1 + (6 / m) ** 3)
    launch += c.row_cost * n * k * w / bandwidth * m / (m + 4)
    if c.split_s:
        limit = ((c.split_s * q**2 / (q**2 + 2)) ** -4 + (8 / 3**1.5 * filling) ** -4) ** -0.25
        launch += limit / (1 + (busy / filling) ** 2)
    return arithmetic, busy, launch, busy + launch


SHAPES = [(1, 4096, 6144), (17, 14336, 4096), (2049, 8192, 5121)]


@pytest.mark.parametrize(("m", "k", "n"), SHAPES)
@pytest.mark.parametrize(("c", "bits"), [(coefficients(), 16.0), (PACKED, 4.0)])
def test_against_plain_python(m, k, n, c, bits):
    unit = unit_of(c, widths=(bits,))
    arithmetic, busy, launch, total = witness(unit, c, m, k, n, bits)
    assert float(product(unit, float(m), k, n, bits)) == pytest.approx(arithmetic, rel=1e-4)
    assert float(unit.launch_time(m, k, n, busy_s=busy, weight_bits=bits)) == pytest.approx(launch, rel=1e-5)
    assert float(whole(unit, float(m), k, n, bits)) == pytest.approx(total, rel=1e-4)


def test_by_hand():
    # Without operands, prologue, sag or rounding a tiling takes its filled tiles' FLOP: 96 rows fill 6 x 16 or 3 x 32 but
    # 2 x 64 and 1 x 128; 512 columns fill all. Of 24 tilings the 6 unsplit ones of 16 and 32 rows take 2·96·512·K / F, the
    # 3 each of 64 and 128 rows 4/3 of that; partial sums make the split ones take twice and more: 2^-16 is nothing.
    c = coefficients(
        operand_cost=0.0, prologue_elements=0.0, sag_exponent=0.0, wave_rounding=0.0, compute_efficiency=0.5
    )
    unit = unit_of(c, bandwidth_bytes_per_s=1e9)
    exact = 2 * 96 * 512 * 3000 / 3.1e14 / 0.5 * (6 + 6 * (3 / 4) ** 16) ** (-1 / 16)
    assert float(unit.product_time(96, 3000, 512)) == pytest.approx(exact, rel=1e-5)


SIZES = st.floats(1.0, 3e4)


@settings(max_examples=40)
@given(m=st.integers(1, 5000), k=SIZES, n=SIZES, temperature=st.sampled_from([0.0, 0.2]))
def test_never_faster_than_the_peak(m, k, n, temperature):
    unit = unit_of(coefficients(compute_efficiency=1.25, operand_cost=0.1, prologue_elements=0.0))
    assert float(smooth_product(unit, float(m), k, n, temperature)) >= 2 * m * k * n / 3.1e14 * (1 - 1e-5)


@pytest.mark.parametrize(("m", "k", "n", "temperature"), [(3.3, 4100.0, 6100.0, 0.0), (150.0, 1700.0, 3100.0, 0.2)])
def test_gradient(m, k, n, temperature, check_gradient):
    unit = unit_of(PACKED, coefficients(), widths=(4.0, 16.0))
    timed = lambda u, m, k, n, bits: gemm_time(u, m, k, n, weight_bits=bits, temperature=temperature)
    if temperature:
        check_gradient(lambda both: timed(*both), (unit, m, k, n, 11.0), step=1e-6)
    else:
        check_gradient(lambda u: timed(u, m, k, n, 11.0), unit, step=1e-6)
