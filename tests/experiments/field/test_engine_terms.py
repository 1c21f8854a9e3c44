"""Terms of engines: those of the catalog are the fitted ones; a step that its kernels do not explain took time beside them."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.field import predict as pricing
from experiments.field.__main__ import LEFT_OUT, all_fitted, answers
from experiments.field.engines import engine_of
from experiments.field.fit import FAMILIES, fit_numbers, group_of, likes, scatter_of
from experiments.field.rows import read_rows
from hwmodels import catalog
from hwmodels.speculation.engine_logs import EngineTerms

ROWS = read_rows()
BY_ID = {row.id: row for row in ROWS}


HELD = json.loads(LEFT_OUT.read_text(encoding="utf-8"))


def test_every_group_is_left_out_of_the_numbers_that_predict_it():
    assert set(HELD) == set(FAMILIES)
    for family, groups in HELD.items():
        for group, one in groups.items():
            assert {group_of(BY_ID[name]) for name in one["rows"]} == {group}
            assert set(one["terms"]) == set(FAMILIES[family])
        names = [name for one in groups.values() for name in one["rows"]]
        assert len(set(names)) == len(names)


def test_no_fitted_number_is_in_the_bandwidth_of_a_group():
    # Instructions count further rows alone, and a step of one sequence has none.
    firsts = {}
    for row in sorted((row for row in ROWS if row.ar_s is not None), key=lambda row: row.ar_batch):
        firsts.setdefault(row.group, row)
    held = {BY_ID[name].group for groups in HELD.values() for one in groups.values() for name in one["rows"]}
    assert {
        row.ar_batch for name, row in firsts.items() if name in held and engine_of(row.engine).rows is not None
    } == {1.0}


@pytest.mark.slow
def test_numbers_of_the_catalog_are_the_fitted_ones():
    fits = all_fitted(ROWS, pricing.price_rows(ROWS))
    by_family = {family: found.left_out for family, found in fits.items()}
    for family, (numbers, left_out) in fits.items():
        scatter = scatter_of([one["errors"] for one in left_out.values()], likes(family, by_family))
        for engine, terms in numbers.terms.items():
            np.testing.assert_allclose(
                dataclasses.astuple(terms), dataclasses.astuple(catalog.engine(engine)), rtol=0.02, atol=1e-12
            )
            assert scatter == pytest.approx(catalog.engine_scatter(engine), rel=0.02)
            if (rows := catalog.engine_rows(engine)) is not None:
                assert rows.value == pytest.approx(numbers.instructions, rel=0.02)


@pytest.mark.paper
def test_a_step_that_no_bandwidth_explains_leaves_a_rest_in_each_pass_of_the_target():
    row = BY_ID["SGL01"]
    known, unknown = (
        pricing.price_rows([dataclasses.replace(row, device=name, group=name)])[0]
        for name in ("NVIDIA H100 SXM", "NVIDIA H100")
    )
    for parts in (known, unknown):
        # Either way the group's own step is met.
        assert parts.step_given
        assert parts.ar_s == pytest.approx(row.ar_s, rel=1e-3)
    assert (known.bandwidth_scale, unknown.step_rest_s) == (1.0, 0.0)
    assert known.step_rest_s > 5e-4
    assert unknown.bandwidth_scale < 0.9
    # A lower bandwidth lengthens the draft's passes too, a rest only the target's.
    assert known.cycle_s < unknown.cycle_s
    assert any("beside its kernels" in note for note in known.notes)
    (answer,) = answers([row], [known])
    assert answer["step_rest_s"] == known.step_rest_s
    # A faster step than the catalog's card takes is one of a faster card, whatever the name.
    faster = dataclasses.replace(row, ar_s=0.95 * (row.ar_s - known.step_rest_s), group="faster")
    (found,) = pricing.price_rows([faster])
    assert found.bandwidth_scale > 1.0
    assert found.step_rest_s == 0.0


@pytest.mark.paper
def test_an_engine_that_spends_more_on_a_cycle_gains_less():
    row, parts = BY_ID["SGL01"], pricing.price_rows([BY_ID["SGL01"]])[0]
    alone, spent = (pricing.predict(row, parts, terms) for terms in (EngineTerms(), catalog.engine("sglang")))
    assert spent.ar_s == alone.ar_s
    assert spent.cycle_s > alone.cycle_s + 2e-3
    assert spent.speedup < 0.85 * alone.speedup


def test_a_fit_recovers_what_further_devices_add():
    # Cycles of 1, 2 and 4 devices made of 2 ms, 0.3 ms a pass and 0.5 ms for each further device.
    planted = EngineTerms(cycle_s=2e-3, draft_pass_s=3e-4, further_device_s=5e-4)
    cells = []
    for devices, length in ((1, 2.0), (1, 6.0), (2, 3.0), (4, 3.0)):
        counts = np.array([1.0, length, length, 0.0, 1.0, 0.0, devices - 1.0, length, 1.0, 0.0, 0.0])
        parts = pricing.Parts(5e-3, 9e-3, np.zeros(11), counts, 1.0, "h100-sxm", "a head", kernels="sglang")
        cycle_s = 9e-3 + float(counts @ np.array(dataclasses.astuple(planted)))
        row = dataclasses.replace(BY_ID["SGL01"], device_count=devices, cycle_s=cycle_s, ar_s=None)
        cells.append((row, parts))
    found = fit_numbers(cells, "sglang").terms["sglang"]
    assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(planted), rel=0.01, abs=1e-9)
