"""The further time of split sums: by hand, and that a larger product of any shipped fit never takes less time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels.catalog.calibrations import calibrated_engines, calibrated_names, calibration_record
from hwmodels.compute.gpu import GpuGemm, filling_time, gemm_time, split_time
from hwmodels.compute.gpu_experts import GemmCoefficients

#: Each shipped fit of products, used by default or not: its data sheet and its entry.
FITS = [
    (record["data_sheet"], entry)
    for name in calibrated_names()
    for engine in calibrated_engines(name)
    for record in [calibration_record(name, engine)]
    for entry in record["formats"].values()
]
#: Rows of a tile are static, 0 where a library chooses the tiling.
TILES = sorted({float(entry.get("dispatched_rows", 0.0)) for _, entry in FITS})
POINTS = 10_000


def test_by_hand():
    # 48 columns for each of 100 multiprocessors, 2000 deep, at 2 ps each.
    filling = filling_time(2000.0, multiprocessors=100.0, weight_s=2e-12)
    assert float(filling) == pytest.approx(19.2e-6)
    # q = 2: 6 µs · 4/6 = 4 µs, next to a limit of 1.5396 · 19.2 = 29.6 µs, at half of the filling time.
    seconds = split_time(6e-6, 2048.0, busy_s=9.6e-6, filling_s=filling)
    assert float(seconds) == pytest.approx((4.0**-4 + 29.56**-4) ** -0.25 * 1e-6 / 1.25, rel=1e-4)
    # A second kernel that takes long is limited: 8 / 3^1.5 times the filling time.
    seconds = split_time(1.0, 2048.0, busy_s=0.0, filling_s=filling)
    assert float(seconds) == pytest.approx(8 / 3**1.5 * 19.2e-6, rel=1e-5)
    assert float(split_time(6e-6, 0.0, busy_s=0.0, filling_s=0.0)) == 0.0


@pytest.mark.parametrize("split_s", [2e-6, 1e-3])
def test_gradient(split_s, check_gradient):
    timed = lambda p: split_time(p[0], p[1], busy_s=p[2], filling_s=p[3])
    check_gradient(timed, (jnp.float32(split_s), 3000.0, 2e-5, 1.3e-5), step=1e-6)


timed = jax.jit(lambda unit, m, k, n, bits: gemm_time(unit, m, k, n, weight_bits=bits))


def units_at(rows, draw, count):
    """Shipped fits with tiles of so many rows, drawn at random as one unit with leaves "count", and their bits."""
    fits = [fit for fit in FITS if float(fit[1].get("dispatched_rows", 0.0)) == rows]
    chosen = draw.integers(len(fits), size=count)
    sheets, entries = ([fit[i] for fit in fits] for i in (0, 1))
    drawn = lambda numbers: np.asarray(numbers, float)[chosen]
    numbers = {
        name: drawn([entry["coefficients"].get(name, 0.0) for entry in entries])[:, None]
        for name in GemmCoefficients.__dataclass_fields__
    }
    sheet = {
        name: drawn([sheet[name] for sheet in sheets])
        for name in ("peak_flops_per_s", "bandwidth_bytes_per_s", "multiprocessors")
    }
    unit = GpuGemm(**sheet, coefficients=GemmCoefficients(**numbers), dispatched_rows=((16.0, rows),) if rows else ())
    return unit, drawn([entry["weight_bits"] for entry in entries])


@pytest.mark.parametrize("rows", TILES)
def test_a_larger_product_never_takes_less_time(rows):
    share = sum(float(entry.get("dispatched_rows", 0.0)) == rows for _, entry in FITS) / len(FITS)
    draw, count = np.random.default_rng(11), round(POINTS * share)
    with jax.enable_x64(True):
        unit, bits = units_at(rows, draw, count)
        sizes = [np.round(2.0 ** draw.uniform(*ends, count)) for ends in ((0, 12), (7, 15), (6, 16))]
        point = dict(zip(("m", "k", "n", "bits"), [*sizes, bits], strict=True))
        once = np.asarray(timed(unit, **point))
        for name in point:
            # By a little as often as by much: one more tile hides what comes before.
            more = point[name] * (1.0 + draw.exponential(np.where(draw.random(count) < 0.5, 0.01, 0.3)))
            grown = point | {name: more if name == "bits" else np.ceil(more + 1e-9)}
            ratio = np.asarray(timed(unit, **grown)) / once
            worst = int(np.argmin(ratio))
            assert ratio[worst] >= 1.0 - 1e-12, (name, grown[name][worst], {k: v[worst] for k, v in point.items()})
        # And at other rates than those of the fit: the limit follows the bandwidth.
        fast = unit.replace(bandwidth_bytes_per_s=3.0 * unit.bandwidth_bytes_per_s)
        wider = point | {"n": np.ceil(1.02 * point["n"])}
        assert np.all(np.asarray(timed(fast, **wider)) >= np.asarray(timed(fast, **point)) * (1.0 - 1e-12))
        assert np.all(np.asarray(timed(fast, **point)) <= once * (1.0 + 1e-12))
