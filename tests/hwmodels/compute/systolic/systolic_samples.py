"""Arrays and shapes that the tests of systolic arrays share."""

import itertools
import random

from hypothesis import strategies as st

from hwmodels.compute.systolic.array import CONVENTIONS, DATAFLOWS, OnChipBuffer, SystolicArray

KINDS = list(itertools.product(DATAFLOWS, CONVENTIONS))

#: Each dataflow and each convention at least once: for what is compiled anew for each kind.
SOME_KINDS = [("os", "scale_sim"), ("ws", "pipelined"), ("is", "huffllm"), ("ws", "double_buffered")]

SIDES = st.integers(1, 300)
SIZES = st.integers(1, 5000)


def array_of(rows, columns, dataflow="ws", convention="huffllm"):
    """An array whose every leaf differs from every other."""
    return SystolicArray(
        rows=rows,
        columns=columns,
        frequency_hz=7e8,
        mac_energy_j=0.9e-12,
        input_buffer=OnChipBuffer(bandwidth_bytes_per_s=3.1e10, access_bytes=2.0, access_energy_j=1.1e-12),
        weight_buffer=OnChipBuffer(bandwidth_bytes_per_s=5.3e10, access_bytes=4.0, access_energy_j=2.3e-12),
        output_buffer=OnChipBuffer(bandwidth_bytes_per_s=2.9e10, access_bytes=8.0, access_energy_j=3.7e-12),
        dataflow=dataflow,
        convention=convention,
    )


def drawn_shapes(seed, count, largest=6):
    """Rows, columns, m, k, n: drawn ones after some with all alike, one row, one column."""
    draw = random.Random(seed)
    drawn = [tuple(draw.randint(1, largest) for _ in range(5)) for _ in range(count)]
    return [
        (1, 1, 1, 1, 1),
        (3, 3, 3, 3, 3),
        (5, 2, 1, 6, 5),
        (2, 5, 6, 1, 3),
        (1, 6, 5, 3, 2),
        (6, 1, 2, 5, 6),
        *drawn,
    ]
