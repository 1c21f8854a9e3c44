"""When a reader is told that devices of a group have nothing to do."""

import numpy as np
import pytest

from hwmodels import catalog
from hwmodels.analysis.remarks import group_remarks


def group(**division):
    return catalog.grouped(catalog.device_entry("h100-sxm"), catalog.Division(**division), "h100-sxm").device


@pytest.mark.parametrize(
    ("division", "batch", "said"),
    [
        ({"data": 8}, 8, None),
        ({"data": 8}, 3, "3 sequences for 8 replicas: 5 of 8 have nothing to do at any moment"),
        ({"data": 2, "pipeline": 4}, 1, "1 sequence for 2 replicas x 4 stages: 7 of 8 have nothing to do"),
        ({"pipeline": 2}, 2, None),
        ({"tensor": 8}, 1, None),
        ({}, 1, None),
    ],
)
def test_idle_devices(division, batch, said):
    lines = [line for line in group_remarks(group(**division), [batch]) if "pipeline" not in line]
    assert len(lines) == (said is not None)
    assert all(line.startswith(said) for line in lines)


def test_of_several_batches_those_with_too_few_sequences_are_told():
    (line,) = group_remarks(group(data=8), [1, np.array([4.0, 8.0]), 64])
    assert line.startswith("1 to 4 sequences for 8 replicas: 4 to 7 of 8 have nothing to do at any moment, and what")
    assert group_remarks(group(data=8), [8, 64]) == []
    (line,) = group_remarks(group(data=2), [1.25], when="on average")
    assert line.startswith("1.25 sequences for 2 replicas: 0.75 of 2 have nothing to do on average")


def test_of_several_numbers_of_replicas_the_largest_counts():
    one = group(data=2)
    varied = one.replace(group=one.group.replace(data_parallel=np.array([1.0, 4.0])))
    (line,) = group_remarks(varied, [2])
    assert line.startswith("2 sequences for 4 replicas: 2 of 4")


def test_devices_beyond_a_link_are_noted_where_counts_vary():
    one = group(tensor=8)
    varied = one.replace(group=one.group.replace(tensor_parallel=np.array([1.0, 16.0])))
    (line,) = group_remarks(varied, [2])
    assert line.startswith("16 devices exchange in every layer, and the link joins 8: the others are in further hosts")
    beyond, stages = group_remarks(group(tensor=8, pipeline=2), [2])
    assert beyond.startswith("stages are spread over 16 devices, and the link joins 8")
    assert "priced as if an engine took both" in stages
    assert group_remarks(group(tensor=16, link="infiniband-ndr"), [2]) == []
