"""Table 3: fitted numbers anew, limits of the model, choices that lose; the declared tables, details, bars and figures.

One module, since the program that prices all cells is compiled once.
"""

import dataclasses

import numpy as np
import pytest

from experiments.papers.elmoe3d import details, printed, results
from experiments.papers.elmoe3d.fitted import BOUNDS, PER_MODEL, Fitted, from_names, names_of
from experiments.papers.elmoe3d.model import speedups
from experiments.papers.elmoe3d.paper import PAPER
from experiments.papers.elmoe3d.printed import METHODS, MODELS, table_three
from experiments.reproduce.run import run_paper

#: Seconds of the fit are spent once.
ELASTIC, QUANT, SMALL = (METHODS.index(name) for name in ("Elastic-SD", "Quant-SD", "SLM-SD"))


@pytest.fixture(scope="module")
def solved():
    return results.solve()


def test_three_numbers_per_target_and_five_shared_at_most():
    assert len(PER_MODEL) <= 3
    assert len(BOUNDS) - len(PER_MODEL) <= 5
    assert len(names_of()) == len(PER_MODEL) * len(MODELS) + len(BOUNDS) - len(PER_MODEL)


@pytest.mark.paper
def test_the_committed_numbers_are_found_anew(solved):
    # From a general start, on the 8 GB half alone.
    assert solved.fit.half_gb == 8
    committed = np.hstack(list(results.COMMITTED.values()))
    # What all targets share lies in a flat valley, in which single precision decides.
    np.testing.assert_allclose(list(solved.fit.numbers.values()), committed, rtol=0.1)
    found = speedups(from_names(_numbers()), 8)
    np.testing.assert_allclose(found.speculative, solved.halves[8].speculative, rtol=0.03)
    np.testing.assert_allclose(found.autoregressive, solved.halves[8].autoregressive, rtol=0.01)


@pytest.mark.paper
def test_fitted_half_within_its_bars(solved):
    errors = results.errors_of(solved, 8)
    for field in errors._fields:
        found = results.spread(getattr(errors, field))
        assert all(value <= bar for value, bar in zip(found.values(), details.BARS[field, 8], strict=True)), found


@pytest.mark.paper
def test_predicted_half(solved):
    errors = results.errors_of(solved, 4)
    alone, together = (results.spread(getattr(errors, field)) for field in errors._fields)
    assert alone["median"] < 0.02
    assert together["median"] < 0.055
    assert together["p90"] < 0.16
    # One flagged cell is not counted.
    assert np.isnan(errors.autoregressive).sum() == 1
    assert table_three(4).flagged.sum() == 1


@pytest.mark.paper
def test_without_a_cache_the_bonded_memory_holds_what_is_static():
    """Quant-SD's step of one request by hand: static weights and KV at one rate, eight experts of each layer at the other."""
    found = speedups(from_names(_numbers()), 8)
    a = printed.target("Qwen3-30B-A3B")
    experts = 48 * 8 * 3 * 2048 * 768 * 8.5 / 8
    dense = (48 * (2048 * (4096 + 2 * 512) + 4096 * 2048 + 2048 * 128) + 151936 * 2048) * 8.5 / 8
    kv = 48 * 2 * 4 * 128 * 1024 * 2
    assert a.num_experts == 128
    step = (dense + kv) / (1638.4e9 * 0.97) + experts / (102.4e9 * 0.99)
    alone = (dense + kv + experts) / (102.4e9 * 0.99)
    assert float(found.baseline.seconds[0, 0]) == pytest.approx(alone, rel=0.01)
    assert found.autoregressive[0, QUANT, 0] == pytest.approx(alone / step, rel=0.01)


@pytest.mark.paper
def test_cached_experts_by_hand():
    found = speedups(from_names(_numbers()), 8)
    expert = 46 * 3 * 2048 * 1536 * 8.5 / 8
    # GLM, one request: 8 GB less static weights and KV leave 12.9 experts of each layer.
    assert 5.94e9 / expert == pytest.approx(12.9, abs=0.1)
    assert found.steps["Quant-SD"].autoregressive.cached_experts[1, 0] > 12  # copies of half the size
    # A head of about half a gigabyte takes the room of one.
    assert found.steps["EAGLE3"].autoregressive.cached_experts[1, 0] == 11
    # Leading halves: more than twice as many fit.
    assert found.steps["Elastic-SD"].verify.cached_experts[1, 0] == 24


def _numbers():
    values = dict(zip(names_of(), np.hstack(list(results.COMMITTED.values())), strict=True))
    assert isinstance(from_names(values), Fitted)
    return values


@pytest.fixture(scope="module")
def result():
    some = tuple(detail for detail in PAPER.details if detail.name != "variants")
    return run_paper(dataclasses.replace(PAPER, details=some), readings=False)


@pytest.mark.paper
def test_every_cell_that_is_covered(result):
    counts = {name: summary["covered"] for name, summary in result.summary.items()}
    assert counts["table3_sd_schemes"] == 384
    assert counts["table2_models"] == 18
    statuses = {
        (row["metric"], row["conditions"]["hb_capacity_gb"]): row["status"] for row in result.of("table3_sd_schemes")
    }
    assert statuses == {
        ("acceptance_rate_alpha", "4"): "input",
        ("acceptance_rate_alpha", "8"): "input",
        ("speedup_ar_phi_ar", "4"): "predicted",
        ("speedup_ar_phi_ar", "8"): "calibrated",
        ("speedup_sd_phi_sd", "4"): "predicted",
        ("speedup_sd_phi_sd", "8"): "calibrated",
    }
    assert [row["conditions"] for row in result.of("table3_sd_schemes") if row["doubt"]] == [
        {"model": "GPT-OSS-20B", "method": "EAGLE3", "benchmark": "MT-Bench", "hb_capacity_gb": "4", "batch_size": "16"}
    ]


@pytest.mark.paper
def test_table_one_is_exact(result):
    rows = result.of("table1_system_spec")
    assert {row["metric"] for row in rows} >= {"bandwidth", "throughput_w4a8", "throughput_w8a8", "num_banks"}
    assert max(row["relative_error"] for row in rows) < 1e-12
