"""The Pareto front of a sweep: by comparing all pairs, and as it is shown."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from what_is_shown import all_is_shown, numbers_are_whole

from jaxspec.errors import InputError
from jaxspec.studies.sweep.config import ParetoAxes, SweepConfig
from jaxspec.studies.sweep.pareto import ParetoFront, is_pareto
from jaxspec.studies.sweep.result import SweepResult
from jaxspec.studies.sweep.run import sweep
from jaxspec.studies.sweep.view import pareto_figure, sweep_table

pytestmark = pytest.mark.study


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6) | st.just(None)), max_size=25))
def test_pareto_by_comparing_all_pairs(points):
    x = np.array([p[0] for p in points], float)
    y = np.array([np.nan if p[1] is None else p[1] for p in points], float)
    keep = is_pareto(x, y)
    for i in range(len(points)):
        better = (x <= x[i]) & (y <= y[i]) & ((x < x[i]) | (y < y[i]))
        twin_before = np.any((x[:i] == x[i]) & (y[:i] == y[i]))
        assert keep[i] == (not np.isnan(y[i]) and not np.any(better) and not twin_before)


def _columns(x, y):
    counted = {
        "fits": np.ones(len(x), bool),
        "speedup_vs_bf16_ar": y,
        "tokens_per_s": y,
        "draft_length": np.ones(len(x)),
    }
    axes = {f"device.an_axis_with_a_long_name.{i}": np.geomspace(1e-9, 1e13, len(x)) for i in range(7)}
    return (
        counted | axes | {"device": np.array(["/a/path/to/" + "x" * 70] * len(x)), "held_bytes": x, "tokens_per_s": y}
    )


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([5.0], [3.0]),
        ([1e-9, 1e-7, 1e-6], [1e-12, 1e-11, 1e-8]),
        ([1e9, 1e13, 4e14], [1.0, 7e5, 3e9]),
        ([1.0, 100.0, 0.0], [2.0, 900.0, 0.0]),
        ([2.0, 300.0, 900.0], [5.0, 400.0, 0.0]),
    ],
)
def test_no_table_cuts_a_number_and_the_figure_shows_every_point(x, y):
    front = ParetoFront("held_bytes", "tokens_per_s")
    front.add(_columns(np.array(x), np.array(y)))
    all_is_shown(pareto_figure(front))
    pareto = {"axes": front.axes, "points": front.rows()}
    raw = {"pareto": pareto, "points": 1_234_567, "points_that_fit": len(x)}
    numbers_are_whole(sweep_table(SweepResult.from_plain(raw)))


def test_points_without_a_number_of_the_front_are_told(tmp_path):
    # The RTX 4090 of the catalog has no energy data; the NPU has.
    config = SweepConfig(
        axes={"workload.batch": [1.0, 2.0]},
        device=("rtx-4090", "cassandra-npu"),
        pareto=ParetoAxes(x="energy_per_token_j", y="tokens_per_s"),
        max_draft_length=2,
    )
    result = sweep(config, out=tmp_path)
    assert [note for note in result.notes if "is not known" in note] == [
        "energy_per_token_j is not known for 2 of the 4 points that fit, and none of these is on the front: take another "
        "column, or a device whose data give it"
    ]
    assert {row["device"] for row in result.pareto.points} == {"cassandra-npu"}


def test_a_direction_without_its_column_is_refused():
    with pytest.raises(InputError, match="better_z is 'high' without z"):
        ParetoAxes(x="held_bytes", y="tokens_per_s", better_z="high")
