"""Axes of a network's sizes: each value may be possible, and two together not."""

import pytest

from jaxspec.errors import InputError
from jaxspec.studies import SweepConfig, sweep
from jaxspec.studies.sweep.grid import plan_sweep


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"architecture.num_kv_heads": [1, 64]}, "num_kv_heads is 64 and num_heads is 32; num_kv_heads must be at"),
        ({"architecture.num_heads": [32, 28]}, "num_heads is 28 and num_kv_heads is 8; key-value heads must divide"),
        (
            {"architecture.num_heads": [8, 16], "architecture.num_kv_heads": [2, 16]},
            "num_kv_heads is 16 and num_heads is 8; num_kv_heads must be at most",
        ),
    ],
)
def test_they_are_refused_before_a_directory_is_claimed(tmp_path, axes, message):
    with pytest.raises(InputError, match=message):
        sweep(SweepConfig(axes=axes, architecture=("llama-3.1-8b",)), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_number_that_is_set_is_judged_too():
    config = SweepConfig(axes={"workload.batch": [1.0]}, set={"architecture.num_kv_heads": 64.0})
    with pytest.raises(InputError, match="num_kv_heads is 64"):
        plan_sweep(config)


def test_axes_are_judged_with_each_other_and_not_with_what_they_replace():
    # 4 heads over the 8 key-value heads of the network as it is cannot be; no point has both.
    axes = {"architecture.num_heads": [4, 16], "architecture.num_kv_heads": [2, 4]}
    grid = plan_sweep(SweepConfig(axes=axes, architecture=("llama-3.1-8b",))).grid
    assert grid.points_of(range(grid.chunks_per_pair)) == 4
