"""What elements exchange and how they divide a product: against going through every row, column and block."""

import numpy as np
import pytest

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
