"""When a reader is told that devices of a group have nothing to do."""

import pytest

from hwmodels import catalog
from hwmodels.analysis.remarks import group_remarks


def group(**parallelism):
    return catalog.grouped(catalog.device_entry("h100-sxm"), catalog.Parallelism(**parallelism), "h100-sxm").device


@pytest.mark.parametrize(
    ("parallelism", "batch", "said"),
    [
        ({"data": 8}, 8, None),
        ({"data": 8}, 3, "3 sequences for 8 replicas: 5 of 8 have nothing to do at any moment"),
        ({"data": 2, "pipeline": 4}, 1, "1 sequence for 2 replicas x 4 stages: 7 of 8 have nothing to do"),
        ({"pipeline": 2}, 2, None),
        ({"tensor": 8}, 1, None),
        ({}, 1, None),
    ],
)
def test_idle_devices(parallelism, batch, said):
    lines = [line for line in group_remarks(group(**parallelism), [batch]) if "pipeline" not in line]
    assert len(lines) == (said is not None)
    assert all(line.startswith(said) for line in lines)
