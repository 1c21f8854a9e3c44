"""Steps of an engine in the steady state: kernels alone are the one pricing path's, prompts and terms come on top."""

import dataclasses

import jax
import numpy as np
import pytest

from hwmodels import Case, DraftCost, Workload, catalog, chain_plan, eagle_head, price, uniform_footprint
from hwmodels.network.architecture import weights_per_token
from hwmodels.parallel.group import sharing_devices
from hwmodels.speculation import EAGLE3_VOCABULARY
from hwmodels.speculation.chains import entering_tokens, serving_cycle, serving_step
from hwmodels.speculation.engine_logs import EngineTerms, engine_time, prompts_time
from hwmodels.speculation.plan import Plan, block_plan

pytestmark = pytest.mark.device_matrix

DEVICE, TARGET = catalog.device("rtx-4090"), catalog.architecture("llama-3.1-8b")
SMALL = DraftCost(architecture=catalog.architecture("llama-3.2-1b"))
WIDTHS = uniform_footprint(16.0)
ALONE = Workload(batch=8.0, context_tokens=700.0, prompt_tokens=0.0, output_tokens=200.0)
TERMS = EngineTerms(cycle_s=1e-3, draft_pass_s=1e-4, drafted_token_s=1e-5, prompt_weight_s=1e-15)
PROMPT_S = 1e-15 * float(weights_per_token(TARGET))


@jax.jit
def priced(draft_length, workload, terms):
    cycle = serving_cycle(
        Case(DEVICE, TARGET, workload=workload, footprint=WIDTHS, draft=SMALL, engine=terms),
        chain_plan(draft_length),
        tokens_per_cycle=2.5,
    )
    return cycle, serving_step(Case(DEVICE, TARGET, workload=workload, footprint=WIDTHS, engine=terms))


def test_without_prompts_and_terms_it_is_the_pricing_path():
    cycle, step = priced(3.0, ALONE, EngineTerms())
    expected = jax.jit(price)(Case(DEVICE, TARGET, ALONE, WIDTHS, SMALL), chain_plan(3.0))
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
    expected = 1e-3 + 3 * 1e-4 + 3 * 8 * 1e-5 + prompts * PROMPT_S
    np.testing.assert_allclose(with_terms.engine_s, expected, rtol=1e-5)
    np.testing.assert_allclose(with_terms.total_s - without.total_s, expected, rtol=1e-2)
    np.testing.assert_allclose(step - step_without, 8 * 0.5 * PROMPT_S, rtol=1e-1)


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


def test_prompts_take_time_by_the_weights_that_they_meet_on_a_device():
    terms = EngineTerms(prompt_weight_s=2e-15)
    spent = lambda name, devices: float(prompts_time(terms, catalog.architecture(name), 3.0, devices))
    of_llama = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert spent("llama-3.1-8b", 1.0) == pytest.approx(3 * 2e-15 * of_llama)
    assert spent("llama-3.1-8b", 2.0) == pytest.approx(3 * 1e-15 * of_llama)
    # 8 of 128 experts of 768 inner channels, in each of 48 layers.
    of_experts = 48 * (2048 * 4096 * 2 + 2 * 2048 * 512 + 8 * 3 * 2048 * 768)
    assert spent("qwen3-30b-a3b", 1.0) == pytest.approx(3 * 2e-15 * of_experts, rel=1e-3)


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


def test_lookups_spend_by_their_sequences_and_other_drafts_on_launches():
    # 1 ms for every cycle; 2 ms where layers run; 0.5 ms and 3 times 7 us where a text is searched.
    terms = EngineTerms(cycle_s=1e-3, launched_cycle_s=2e-3, lookup_cycle_s=5e-4, lookup_sequence_s=7e-6)
    target = catalog.architecture("llama-3.1-8b")
    spent = lambda draft: float(engine_time(terms, chain_plan(4.0), target=target, draft_cost=draft, batch=3.0))
    assert spent(eagle_head(target)) == pytest.approx(3e-3)
    assert spent(DraftCost(passes=0.0)) == pytest.approx(1.5e-3 + 3 * 7e-6)


def test_each_layer_of_a_draft_adds_for_each_drafted_token_of_a_sequence():
    # 4 tokens of 3 sequences in 28 layers, in one of a head, and in none of a lookup.
    terms = EngineTerms(drafted_token_s=1e-6, drafted_token_layer_s=1e-7)
    target = catalog.architecture("llama-3.1-8b")
    spent = lambda draft: float(engine_time(terms, chain_plan(4.0), target=target, draft_cost=draft, batch=3.0))
    assert spent(DraftCost(architecture=catalog.architecture("qwen3-1.7b"))) == pytest.approx(12 * (1e-6 + 28 * 1e-7))
    assert spent(eagle_head(target)) == pytest.approx(12 * (1e-6 + 1e-7))
    assert spent(DraftCost(passes=0.0)) == pytest.approx(12 * 1e-6)


def test_each_further_device_adds_to_a_cycle():
    # 2 devices beyond the first of 3, whatever is drafted; one alone has none.
    terms = EngineTerms(cycle_s=1e-3, further_device_s=8e-4)
    shared = {"target": TARGET, "draft_cost": SMALL, "batch": 3.0}
    spent = [float(engine_time(terms, chain_plan(4.0), devices=devices, **shared)) for devices in (1.0, 3.0)]
    assert spent == pytest.approx([1e-3, 1e-3 + 2 * 8e-4])
    parallelism = catalog.Parallelism(tensor=2, link="pcie4")
    pair = catalog.grouped(catalog.device_entry("rtx-4090"), parallelism, "rtx-4090").device
    assert (float(sharing_devices(pair)), float(sharing_devices(DEVICE))) == (2.0, 1.0)
    cycle = price(Case(pair, TARGET, workload=ALONE, footprint=WIDTHS, draft=SMALL, engine=terms), chain_plan(1.0))
    assert float(cycle.engine_s) == pytest.approx(1e-3 + 8e-4)


def test_a_block_is_one_step_of_all_its_places():
    # 4 tokens: one pass of 5 places; of 1, 2 and 4 tokens together, three kinds, of which each length takes its own.
    alone, family = block_plan(4.0), block_plan(np.array([1.0, 2.0, 4.0]))
    np.testing.assert_array_equal(alone.draft_tokens, [5.0])
    np.testing.assert_array_equal(alone.draft_repeats, [1.0])
    np.testing.assert_array_equal(family.draft_tokens, [2.0, 3.0, 5.0])
    np.testing.assert_array_equal(family.draft_repeats, np.eye(3))
    np.testing.assert_array_equal(family.verify_tokens, [2.0, 3.0, 5.0])
    np.testing.assert_array_equal(block_plan(0.0).draft_repeats, [0.0])
