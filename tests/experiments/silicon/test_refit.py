"""Which rows a fit of products sees."""

import numpy as np
import pytest

from experiments.silicon import refit
from hwmodels.analysis.calibration.kernel_tables import DataSheet, GemmTable, TableName
from hwmodels.catalog.calibrations import calibration_record


def test_no_fit_of_a_table_sees_them(monkeypatch):
    """Of three small and five large matrices; the judged rows are the large ones' alone."""
    k, n = (
        np.array([1024, 2048, 4096, 4096, 8192, 8192, 5120, 10240]),
        np.array([1024, 3584, 2560, 8192, 6144, 8192, 5120, 7168]),
    )
    table, seen = GemmTable(np.full(8, 16.0), 1.0 * k, 1.0 * n, 1e-4 + 1e-12 * k * n, 8.0, "fp8"), []

    class Fitted:
        unit, fit = None, type("Fit", (), {"estimates": {}, "standard_errors": {}})()

        def __init__(self, train):
            seen.append(train)
            self.predicted_s = table.seconds * 1.1

    monkeypatch.setattr(refit, "gemm_table", lambda *args, **options: table)
    monkeypatch.setattr(refit, "data_sheet", lambda *args, **options: DataSheet(3e14, 8.6e11, 142.0))
    monkeypatch.setattr(refit, "fit_gemm", lambda table, sheet, train, **options: Fitted(train))
    found = refit.refit(TableName("l40s", "sglang", "0.5.14", "gemm"), "fp8")
    assert len(seen) == refit.GEMM_FITS
    assert not any(train[:3].any() for train in seen)
    assert seen[0].tolist() == found.held_out.tolist() == [False] * 3 + [True] * 5
    assert found.report.errors["all shapes fitted"].rows == 5
    assert any("3 rows of 3 shapes are left out" in note for note in found.report.notes)


@pytest.mark.parametrize("name", refit.CATALOG)
def test_files_of_the_catalog_are_fitted_as_it_says(name):
    """Formats named there leave rows out, beside a note; no other file says so."""
    gpu = refit.CATALOG[name]
    for engine in gpu.versions:
        for kind, record in calibration_record(name, engine)["formats"].items():
            named = kind in (*gpu.streamed.get(engine, ()), *gpu.streamed_rows.get(engine, ()))
            assert (kind in gpu.without_graph.get(engine, ())) == (record["coefficients"]["host_s"] > 0)
            again = {name: record["coefficients"].get(name, 0.0) > 0 for name in ("reread_cost", "cache_bytes")}
            assert set(again.values()) == {kind in gpu.rereads.get(engine, ())}
            assert named == any("may have come, from a cache" in note for note in record["notes"]), (engine, kind)
            assert not named or record["errors"]["all shapes fitted"]["rows"] < record["rows"]
        for kind, record in calibration_record(name, engine)["attention"].items():
            limited = refit.limited_by_blocks(TableName(gpu.system, engine, gpu.versions[engine], "attention"), kind)
            assert limited == (kind in gpu.blocks.get(engine, ())) == ("block_byte_s" in record["coefficients"])
