"""What elements exchange and how they divide a product: against going through every row, column and block."""

import dataclasses

import numpy as np
import pytest

from hwmodels.compute.near_memory import NearMemoryUnit
from hwmodels.parallel import ElementLinks, divide, sum_exchange

LINKS = ElementLinks(
    aggregation_bytes_per_s=3e9, streamline_bytes_per_s=7e9, activation_bits=8.0, partial_sum_bits=24.0
)


def owner(place, size, elements):
    return place * elements // size


@pytest.mark.parametrize(("m", "k", "n", "elements"), [(6, 5, 9, 3), (8, 3, 4, 4), (10, 7, 5, 5), (4, 3, 5, 1)])
def test_sums_that_are_sent_by_counting(m, k, n, elements):
    sent = received = 0
    for row in range(m):
        here = owner(row, m, elements)
        # Its k activations of a byte go to every other element, its sums of three bytes come from the owners of the columns.
        sent += k * (elements - 1)
        received += 3 * sum(owner(column, elements * n, elements) != here for column in range(elements * n))
    found = sum_exchange(LINKS, m, k, elements * n, elements=elements)
    assert float(found.volume_bytes) == pytest.approx(sent + received)
    # Spread evenly, each link receives its share of it.
    assert float(found.time_s) == pytest.approx((sent + received) / elements / 3e9)


def test_gradient_of_an_exchange(check_gradient):
    links = dataclasses.replace(LINKS, energy_j_per_bit=0.0)

    def seconds(x):
        m, k, n, count, rate = x
        there = links.replace(aggregation_bytes_per_s=rate)
        exchange = sum_exchange(there, m, k, n, elements=count)
        return 1e9 * exchange.time_s + exchange.volume_bytes

    check_gradient(seconds, (5.0, 70.0, 33.0, 7.0, 2e9))


@pytest.mark.parametrize("phase", ["tensor", "data"])
@pytest.mark.parametrize(
    ("m", "blocks", "elements", "reuse"), [(9, 7, 3, 2), (5, 12, 4, 8), (17, 3, 5, 3), (1, 4, 8, 2)]
)
def test_phases_by_dealing_out_work(phase, m, blocks, elements, reuse):
    rows, held = [0] * elements, [0] * elements
    for block in range(blocks):
        held[block % elements] += 1
    for row in range(m):
        rows[row % elements] += 1
    work = [(m, h) for h in held] if phase == "tensor" else [(r, blocks) for r in rows]
    found = divide(phase, float(m), float(blocks), elements=float(elements), reuse=float(reuse))
    busiest = max(-(-r // reuse) * b for r, b in work)
    assert float(found.passes * found.blocks) == busiest
    # On average over the fullest element's rows or blocks.
    done = [r * b for r, b in work]
    assert float(found.active_share) == pytest.approx(np.mean(done) / max(done))
    assert 0 < float(found.active_share) <= 1


def test_other_phases_are_refused_and_few_rows_leave_elements_idle():
    with pytest.raises(ValueError, match="phase is 'pipeline'; allowed are 'tensor' and 'data'"):
        divide("pipeline", 1.0, 1.0, elements=1.0, reuse=1.0)
    unit = NearMemoryUnit(pes=8.0, reuse=4.0, block_depth=16.0, block_columns=16.0, frequency_hz=1e9)
    # 4 rows fill one pass of every element by columns; by rows, 4 of 8 elements see one row each.
    by_columns = unit.product_time(4.0, 64.0, 512.0, weight_bits=8.0)
    by_rows = unit.product_time(4.0, 64.0, 512.0, weight_bits=8.0, phase="data")
    assert (float(by_columns), float(by_rows)) == pytest.approx((16e-9, 128e-9))
    # With rows for all of them both take as long.
    many = [float(unit.product_time(64.0, 64.0, 512.0, weight_bits=8.0, phase=p)) for p in ("tensor", "data")]
    assert many[0] == many[1]
