"""Steps of an engine in the steady state: kernels alone are the one pricing path's, prompts and terms come on top."""

import dataclasses

import jax
import numpy as np
import pytest

from hwmodels import (
    EAGLE3_VOCABULARY,
    DraftCost,
    Workload,
    catalog,
    chain_plan,
    eagle_head,
    price_cycle,
    uniform_footprint,
)
from hwmodels.speculation.engine_terms import EngineTerms, engine_time
from hwmodels.speculation.plan import Plan
from hwmodels.speculation.steady_state import entering_tokens, serving_cycle, serving_step

pytestmark = pytest.mark.device_matrix

DEVICE, TARGET = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")
SMALL = DraftCost(architecture=catalog.architecture("llama-3.2-1b"))
WIDTHS = uniform_footprint(16.0)
ALONE = Workload(batch=8.0, context_tokens=700.0, prompt_tokens=0.0, output_tokens=200.0)
TERMS = EngineTerms(cycle_s=1e-3, draft_pass_s=1e-4, drafted_token_s=1e-5, prompt_token_s=1e-6)


@jax.jit
def priced(draft_length, workload, terms):
    cycle = serving_cycle(
        DEVICE,
        TARGET,
        footprint=WIDTHS,
        draft_cost=SMALL,
        workload=workload,
        plan=chain_plan(draft_length),
        tokens_per_cycle=2.5,
        engine=terms,
    )
    return cycle, serving_step(DEVICE, TARGET, footprint=WIDTHS, workload=workload, engine=terms)


def test_without_prompts_and_terms_it_is_the_pricing_path():
    cycle, step = priced(3.0, ALONE, EngineTerms())
    parts = {"footprint": WIDTHS, "draft_cost": SMALL, "workload": ALONE, "plan": chain_plan(3.0)}
    expected = jax.jit(price_cycle)(DEVICE, TARGET, **parts)
    np.testing.assert_allclose(cycle.total_s, expected.total_s, rtol=1e-6)
    np.testing.assert_allclose(step, expected.baselines.bf16.cost.total_s, rtol=1e-6)


def test_prompts_make_every_step_longer():
    entering = dataclasses.replace(ALONE, prompt_tokens=4000.0)
    (alone, step_alone), (beside, step_beside) = priced(3.0, ALONE, EngineTerms()), priced(3.0, entering, EngineTerms())
    assert float(beside.draft_s) > float(alone.draft_s)
    assert float(beside.verify_s) > float(alone.verify_s)
    assert float(step_beside) > float(step_alone)
    assert entering_tokens(entering, 2.5) == pytest.approx(2.5 * 4000 / 200)


def test_terms_are_added_as_often_as_they_are_spent():
    entering = dataclasses.replace(ALONE, prompt_tokens=100.0)
    (without, step_without), (with_terms, step) = priced(3.0, entering, EngineTerms()), priced(3.0, entering, TERMS)
    prompts = 8 * 2.5 * 100 / 200
    expected = 1e-3 + 3 * 1e-4 + 3 * 8 * 1e-5 + prompts * 1e-6
    np.testing.assert_allclose(with_terms.engine_s, expected, rtol=1e-5)
    np.testing.assert_allclose(with_terms.total_s - without.total_s, expected, rtol=1e-2)
    np.testing.assert_allclose(step - step_without, 8 * 0.5 * 1e-6, rtol=1e-1)


def test_lookups_and_trees():
    tree = Plan(
        draft_tokens=np.array([1.0, 4.0]),
        draft_visible=np.ones(2),
        draft_repeats=np.array([1.0, 2.0]),
        verify_tokens=10.0,
        verify_visible=2.0,
    )
    spent = lambda terms, draft: float(engine_time(terms, tree, target=TARGET, draft_cost=draft, batch=2.0))
    assert spent(TERMS, DraftCost()) == pytest.approx(1e-3 + 3e-4 + 9 * 2 * 1e-5)
    assert spent(TERMS, DraftCost(passes=0.0)) == pytest.approx(1e-3 + 9 * 2 * 1e-5)


def test_layers_and_mapped_logits_of_a_draft():
    # A cycle of 4 draft steps: layers count once, mapped logits in each pass, and a lookup has neither.
    terms = EngineTerms(cycle_s=1e-3, draft_layer_s=5e-5, mapped_pass_s=7e-4)
    target = catalog.architecture("llama-3.1-8b")
    spent = lambda draft: float(engine_time(terms, chain_plan(4.0), target=target, draft_cost=draft, batch=3.0))
    network = DraftCost(architecture=catalog.architecture("qwen3-1.7b"))
    assert spent(network) == pytest.approx(1e-3 + 28 * 5e-5)
    assert spent(DraftCost()) == pytest.approx(1e-3 + 32 * 5e-5)
    assert spent(eagle_head(target)) == pytest.approx(1e-3 + 5e-5)
    assert spent(eagle_head(target, EAGLE3_VOCABULARY)) == pytest.approx(1e-3 + 5e-5 + 4 * 7e-4)
    assert spent(DraftCost(passes=0.0)) == pytest.approx(1e-3)


@pytest.mark.parametrize("name", ["trtllm"])
def test_engines_without_a_source_have_no_terms(name):
    assert name not in catalog.engine_names()
    assert catalog.engine_gap(name).startswith("no source: ")
    assert set(catalog.engine_sources(name).values()) == {catalog.engine_gap(name)}
    with pytest.raises(
        catalog.UnknownNameError,
        match=r"are not known \(no source: .*allowed: jax, llama.cpp, mlx, mlx-cuda, sglang, vllm",
    ):
        catalog.engine(name)


def test_a_gap_is_that_of_an_engine_of_the_catalog():
    assert (catalog.engine_gap("vllm"), catalog.engine_gap("nobody")) == (None, None)


@pytest.mark.parametrize("name", catalog.engine_names())
def test_engines_of_the_catalog(name):
    terms, sources = catalog.engine(name.upper()), catalog.engine_sources(name)
    assert set(sources) == {field.name for field in dataclasses.fields(EngineTerms)}
    assert all(value >= 0.0 for value in vars(terms).values())
    with pytest.raises(catalog.UnknownNameError, match="unknown engine 'vlmm'; did you mean 'vllm'"):
        catalog.engine("vlmm")
