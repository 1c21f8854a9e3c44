"""Terms of engines: those of the catalog are the fitted ones; a step that its kernels do not explain took time beside them."""

import dataclasses
import json

import numpy as np
import pytest

from experiments.field import predict as pricing
from experiments.field.answers import CALIBRATION_ROWS, answers, fitted
from experiments.field.fit import CALIBRATION_CELLS, FITTED_TERMS, calibration_rows
from experiments.field.rows import OTHER_MACHINES, read_rows
from hwmodels import catalog
from hwmodels.speculation.engine_terms import EngineTerms

ROWS = read_rows()
BY_ID = {row.id: row for row in ROWS}


def test_rows_that_are_fitted_to_are_those_of_the_rule():
    chosen = {engine: calibration_rows(ROWS, engine) for engine in FITTED_TERMS}
    assert json.loads(CALIBRATION_ROWS.read_text()) == sorted(set().union(*chosen.values()))
    assert {engine: len(names) for engine, names in chosen.items()} == {
        engine: sum(cells.values()) for engine, cells in CALIBRATION_CELLS.items()
    }
    # Half of the sources and more of the rows stay unseen.
    assert 3 * len(chosen["sglang"]) < sum(row.engine.startswith("SGLang") for row in ROWS)


@pytest.mark.device_matrix
@pytest.mark.parametrize("engine", FITTED_TERMS)
def test_terms_of_the_catalog_are_the_fitted_ones(engine):
    elsewhere = read_rows(OTHER_MACHINES)
    further = list(zip(elsewhere, pricing.price_rows(elsewhere), strict=True))
    terms, scatter, rows = fitted(ROWS, pricing.price_rows(ROWS), engine, further)
    np.testing.assert_allclose(
        dataclasses.astuple(terms), dataclasses.astuple(catalog.engine(engine)), rtol=0.02, atol=1e-12
    )
    assert scatter == pytest.approx(catalog.engine_scatter(engine), rel=0.02)
    assert set(rows) <= set(json.loads(CALIBRATION_ROWS.read_text()))


def test_terms_that_are_not_fitted_are_0():
    for engine, names in FITTED_TERMS.items():
        terms = dataclasses.asdict(catalog.engine(engine))
        assert all(terms[name] > 0.0 for name in names)
        assert not any(value for name, value in terms.items() if name not in names)


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


def test_an_engine_that_spends_more_on_a_cycle_gains_less():
    row, parts = BY_ID["SGL01"], pricing.price_rows([BY_ID["SGL01"]])[0]
    alone, spent = (pricing.predict(row, parts, terms) for terms in (EngineTerms(), catalog.engine("sglang")))
    assert spent.ar_s == alone.ar_s
    assert spent.cycle_s > alone.cycle_s + 2e-3
    assert spent.speedup < 0.85 * alone.speedup


def test_networks_on_another_machine_lie_in_their_intervals():
    """No term was fitted to these rows: the interval that is shown for every machine has to hold them."""
    rows = read_rows(OTHER_MACHINES)
    assert {row.group for row in rows}.isdisjoint(row.group for row in ROWS)
    found = answers(rows, pricing.price_rows(rows))
    inside = [one["low"] <= one["measured_speedup"] <= one["high"] for one in found]
    assert len(rows) == 12
    # All rows of the machine that terms were fitted to lie inside; both machines count alike.
    assert (1.0 + np.mean(inside)) / 2.0 > 0.85
    assert catalog.engine_scatter("vllm")["small network"] > 0.1
