"""Terms of engines: those of the catalog are the fitted ones; a step that its kernels do not explain took time beside them."""

import dataclasses
import json

import numpy as np
import pytest
from code_blocks import ROOT

from experiments.field import predict as pricing
from experiments.field.answers import LEFT_OUT, answers, fitted
from experiments.field.fit import FAMILIES, FITTED_TERMS, group_of, scatter_of
from experiments.field.gpus import memory_is_known
from experiments.field.rows import read_rows
from hwmodels import catalog
from hwmodels.speculation.engine_terms import EngineTerms

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


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_numbers_of_the_catalog_are_the_fitted_ones(family):
    parts = pricing.price_rows(ROWS)
    numbers, left_out = fitted(ROWS, parts, family, 0.0)
    for engine, terms in numbers.terms.items():
        np.testing.assert_allclose(
            dataclasses.astuple(terms), dataclasses.astuple(catalog.engine(engine)), rtol=0.02, atol=1e-12
        )
        assert scatter_of([one["errors"] for one in left_out.values()]) == pytest.approx(
            catalog.engine_scatter(engine), rel=0.3
        )
        if (rows := catalog.engine_rows(engine)) is not None:
            assert rows.value == pytest.approx(numbers.instructions, rel=0.02)


def test_terms_that_are_not_fitted_are_0():
    for engine, names in FITTED_TERMS.items():
        terms = dataclasses.asdict(catalog.engine(engine))
        assert not any(value for name, value in terms.items() if name not in names)


@pytest.mark.parametrize(
    ("name", "devices", "known"),
    [
        ("NVIDIA H100 SXM", 1, True),
        ("NVIDIA H200", 1, True),
        ("NVIDIA H100", 1, False),
        ("NVIDIA H100", 8, True),
        ("NVIDIA H100 PCIe", 8, True),
        ("NVIDIA H100 NVL", 2, True),
        ("NVIDIA GH200", 1, False),
        ("NVIDIA A100 40GB SXM", 1, False),
        ("NVIDIA RTX 4090", 2, False),
    ],
)
def test_names_that_say_which_memory_a_card_has(name, devices, known):
    assert memory_is_known(name, devices) == known


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


def test_pages_have_the_terms_and_the_number_of_rows():
    words = {
        name: " ".join((ROOT / "docs" / "pages" / f"{name}.md").read_text(encoding="utf-8").split())
        for name in ("advise", "does-it-come-true")
    }
    vllm, sglang = catalog.engine("vllm"), catalog.engine("sglang")
    table = words["does-it-come-true"]
    for what, value in (
        ("per cycle", f"{vllm.cycle_s * 1e3:.2f} ms"),
        ("per cycle and layer of the draft", f"{vllm.draft_layer_s * 1e3:.3f} ms"),
        ("per drafted token of each sequence", f"{vllm.drafted_token_s * 1e6:.0f} µs"),
        ("per prompt token processed during decoding", f"{vllm.prompt_token_s * 1e6:.0f} µs"),
        ("(EAGLE-3)", f"{catalog.engine('vllm-2025').mapped_pass_s * 1e3:.2f} ms"),
    ):
        assert f"{what} | {value} |" in table
    cycle, each_pass = (f"{seconds * 1e3:.2f} ms per" for seconds in (sglang.cycle_s, sglang.draft_pass_s))
    token = f"{sglang.drafted_token_s * 1e6:.1f} µs per drafted token"
    for page in words.values():
        assert f"{cycle} cycle, {each_pass} pass of the draft" in page
        assert token in page
    small, heads, other = (
        f"{100 * catalog.engine_scatter(engine)[kind]:.{digits}f} %"
        for engine, kind, digits in (
            ("vllm", "small network", 1),
            ("vllm", "other drafts", 1),
            ("sglang", "other drafts", 0),
        )
    )
    assert f"of vLLM {small} with a small network as draft, {heads} with heads, of SGLang {other}" in words["advise"]


def test_an_intervals_width_is_that_of_groups_left_out():
    few, many = scatter_of([{"other drafts": 0.1}]), scatter_of([{"other drafts": 0.1}] * 9)
    assert few["other drafts"] > 0.3 > 0.12 > many["other drafts"] > 0.1
    assert scatter_of([])["several devices"] > 0.3
