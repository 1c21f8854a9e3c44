"""Terms of engines: those of the catalog are the fitted ones; a step that its kernels do not explain took time beside them."""

import dataclasses
import json

import numpy as np
import pytest
from code_blocks import ROOT

from experiments.field import predict as pricing
from experiments.field.__main__ import LEFT_OUT, all_fitted, answers
from experiments.field.fit import FAMILIES, FITTED_TERMS, fit_numbers, group_of, likes, scatter_of
from experiments.field.gpus import memory_is_known
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


def test_terms_that_are_not_fitted_are_0_but_those_of_lookups():
    for engine, names in FITTED_TERMS.items():
        terms = dataclasses.asdict(catalog.engine(engine))
        given = {name for name, value in terms.items() if value and name not in names}
        assert given <= {"lookup_cycle_s", "lookup_sequence_s"}
        assert not given or engine.startswith("vllm")


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


def test_pages_have_the_terms_and_the_number_of_rows():
    words = {
        name: " ".join((ROOT / "docs" / "pages" / f"{name}.md").read_text(encoding="utf-8").split())
        for name in ("advise", "does-it-come-true")
    }
    vllm, sglang = catalog.engine("vllm"), catalog.engine("sglang")
    table = words["does-it-come-true"]
    for what, value in (
        ("per cycle in which a network or a head drafts", f"{vllm.launched_cycle_s * 1e3:.2f} ms"),
        ("per cycle of a lookup, for each sequence", f"{vllm.lookup_sequence_s * 1e6:.1f} µs"),
        ("and once", f"{vllm.lookup_cycle_s * 1e3:.2f} ms"),
        ("per cycle and layer of the draft", f"{vllm.draft_layer_s * 1e3:.3f} ms"),
        (
            "per drafted token of each sequence and layer of the draft",
            f"{vllm.drafted_token_layer_s * 1e6:.2f} µs",
        ),
        ("for each prompt token processed during decoding", f"{vllm.prompt_weight_s * 1e15:.2f} µs"),
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


def test_few_groups_of_a_kind_take_the_wider_scatter_of_all_kinds_and_of_like_engines():
    own = [{"small network": 0.03}, {"small network": 0.05}, {"other drafts": 0.02}]
    alone = scatter_of(own)
    assert alone["unmeasured kernels"] == pytest.approx(alone["other drafts"])
    wider = scatter_of(own, [{"other drafts": 0.2}] * 3)
    assert wider["other drafts"] > 0.2 > 0.05 > alone["other drafts"]
    assert wider["small network"] == alone["small network"]
    # Narrow scatters of like engines narrow nothing, and an engine without a group of its own shows nothing.
    assert scatter_of(own, [{"other drafts": 0.001}] * 9) == alone
    assert scatter_of([], [{"other drafts": 0.01}] * 9) == scatter_of([])
