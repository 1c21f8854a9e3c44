"""What calibration text promises stands in one order, whether a run was just finished or is read from a file of sorted keys."""

from jaxspec.results import predicted
from jaxspec.studies.tune.result import OnCalibration, TuneResult
from jaxspec.studies.tune.view import promises


def test_the_order_is_that_of_all_other_tables():
    one = OnCalibration(tuned_vs_this=predicted(1.5), optimism=predicted(0.1))
    read = TuneResult(on_calibration=dict.fromkeys(("grid", "j_grid", "tuned", "uniform"), one))
    assert [name for name, *_ in promises(read)] == ["j_grid", "grid", "uniform"]
