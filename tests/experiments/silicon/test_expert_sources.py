"""Where the numbers of a file's experts are from: kernels that a table mixes, and numbers that another table lends."""

import numpy as np
import pytest
from kernel_samples import write_tables

from experiments.silicon import refit_experts
from experiments.silicon.refit_experts import (
    EXPERTS,
    ExpertSource,
    fit_sources,
    judge_experts,
    seconds_of,
)
from hwmodels.analysis.calibration.experts import expert_table
from hwmodels.analysis.calibration.kernel_tables import DataSheet, KernelTableError, TableName
from hwmodels.catalog.calibrated import calibrated_experts
from hwmodels.catalog.calibrations import calibration_record
from hwmodels.compute.gpu_experts import ExpertCoefficients, GpuExperts

TOY = TableName("toy", "engine", "1.0", "moe")
OPTIONS = {"multiprocessors": 100.0}
#: Of the made-up data sheet; two networks, large enough for the launches to be above no roofline by a factor of 4.
SHEET = DataSheet(300e12, 2e12, 100.0)
COEFFICIENTS = ExpertCoefficients(
    launch_s=3e-5,
    pass_cost=2.0,
    memory_efficiency=0.8,
    operand_cost=60.0,
    compute_cost=2.0,
    prologue_elements=0.0,
    wave_rounding=0.5,
)


def unit(**changes):
    sizes = SHEET.peak_flops_per_s, SHEET.bandwidth_bytes_per_s, SHEET.multiprocessors
    return GpuExperts(*sizes, COEFFICIENTS.replace(**changes))


def columns(kernels=("main", "main", "other"), kind="w4a16_mxfp4"):
    """Launches of three networks, each by a kernel; the third is half as wide."""
    sizes = [(2048, 1536, 4, 32), (2048, 3072, 4, 64), (2048, 768, 4, 32)]
    rows = [
        (tokens, *size, distribution, kernel)
        for size, kernel in zip(sizes, kernels)
        for tokens in (1, 4, 16, 64, 300, 2000, 9000)
        for distribution in ("power_law_1.2", "balanced")
    ]
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "distribution", "kernel_source")
    same = {"moe_dtype": kind, "moe_tp_size": 1, "moe_ep_size": 1, "latency": 1.0}
    found = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return found | {name: [value] * len(rows) for name, value in same.items()}


def table_of(folder, of, **changes):
    """A table on disk whose launches take as long as a unit's, times a factor for each row of the kernel called other."""
    given = columns(**changes)
    write_tables(folder, moe=given)
    rows = expert_table(TOY, given["moe_dtype"][0], root=folder)
    slower = np.where(rows.kernel == "other", 1.25, 1.0)
    given["latency"] = (1e3 * slower * seconds_of(of, rows, rows.weight_bits)).tolist()
    write_tables(folder, moe=given)
    return folder


def lender(**changes):
    entry = calibration_record("h200-sxm", "vllm")["experts"]["bfloat16"]
    numbers = {name: float(value) for name, value in vars(COEFFICIENTS).items()}
    return entry | {"coefficients": numbers | changes}


def test_what_a_file_lends_is_what_has_just_been_fitted(monkeypatch, tmp_path, capsys):
    """Sixteen bits first, then four by the same numbers; a format that cannot be fitted is named."""
    folder = table_of(tmp_path, unit(read_bits=16.0), kernels=("main",) * 3)
    fitted = judge_experts(TOY, "w4a16_mxfp4", lender(), read_bits=16.0, root=folder, **OPTIONS)

    def refit(table, kind, **options):
        if kind == "int4_wo":
            raise KernelTableError("toy holds too few rows")
        return fitted

    monkeypatch.setattr(refit_experts, "refit_experts", refit)
    sources = {
        "bfloat16": ExpertSource("engine", "1.0"),
        "int4_wo": ExpertSource("engine", "1.0"),
        "w4a16_mxfp4": ExpertSource("engine", "1.0", lent_by=("gpu", "engine", "bfloat16"), read_bits=16.0),
    }
    found = fit_sources("toy", sources, {"root": folder, **OPTIONS}, own=("gpu", "engine"))
    assert list(found) == ["bfloat16", "w4a16_mxfp4"]
    assert max(found["w4a16_mxfp4"].record["held_out_halves"]) < 1e-5
    assert "too few rows" in capsys.readouterr().err


@pytest.mark.parametrize("gpu", EXPERTS)
def test_files_of_the_catalog_are_from_these_tables(gpu):
    for engine, sources in EXPERTS[gpu].items():
        held = calibration_record(gpu, engine)["experts"]
        assert sorted(held) == sorted(sources)
        for kind, source in sources.items():
            entry, table = held[kind], f"/{source.engine}/{source.version}"
            assert entry["judged_on" if source.lent_by else "table"].endswith(table), (engine, kind)
            assert float(entry["coefficients"].get("read_bits", 0.0)) == source.read_bits
            if source.lent_by:
                whose, other, lent = source.lent_by
                own = calibration_record(whose, other)["experts"][lent]
                numbers = own["coefficients"] | {"read_bits": source.read_bits}
                assert entry["coefficients"] == pytest.approx(numbers)
            unit = calibrated_experts(gpu, engine)[float(entry["weight_bits"])]
            assert unit.coefficients.read_bits == source.read_bits
