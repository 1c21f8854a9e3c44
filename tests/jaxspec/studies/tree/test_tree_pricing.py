"""Cycles of all sizes and contexts at once, against one tree after the other; and whose shapes a draft is priced by."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwmodels import Case, DraftCost, baselines, price, tree_plan, uniform_footprint
from jaxspec.compress import find_scheme
from jaxspec.errors import InputError
from jaxspec.models import DecoderConfig
from jaxspec.models.architecture import architecture_of
from jaxspec.settings import CommonConfig, build_config
from jaxspec.speculate.drafts import NetworkDraft, NGramDraft, SelfDraft
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.tree.config import TreeConfig
from jaxspec.studies.tree.run import cycle_times_of, price_growths
from jaxspec.studies.tree.stages import TreeStages
from jaxspec.trees.topology import NestedTrees

pytestmark = pytest.mark.study

TARGET = DecoderConfig(
    vocab_size=256, hidden_size=16, intermediate_size=24, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=6
)
PRICING = resolve_pricing(CommonConfig(batch=3), "rtx-4090", None)
#: Draft steps of 1, 2 and 3 tokens, some of them more than once.
GROWTH = NestedTrees(np.array([-1, -1, 0, 1, 2, 0, 5, 3]), np.array([0, 2, 0, 1, 0, 3, 0, 0]))


@pytest.mark.parametrize("name", ["copy", "network", "lookup"])
def test_times_are_those_of_one_tree_after_the_other(name):
    pricing, growth = PRICING, GROWTH
    bits = uniform_footprint(11.0).replace(draft_kv_bits=5.0)
    own = jax.tree.map(lambda size: 0.5 * jnp.asarray(size, jnp.float32), pricing.architecture)
    draft = {
        "copy": SelfDraft(TARGET).cost(TARGET, pricing.architecture, "a network"),
        "network": DraftCost(own),
        "lookup": NGramDraft(256).cost(TARGET, pricing.architecture, "a network"),
    }[name]
    contexts = (33, 5000)
    (times,) = price_growths(pricing.replace(footprint=bits, draft=draft), [growth], contexts=contexts)
    for i, context in enumerate(contexts):
        workload = pricing.workload.replace(context_tokens=float(context))
        case = Case(pricing.device, pricing.architecture, workload, bits, draft)
        for size in (8,) if name == "network" else (6,):
            found = jax.jit(price)(case, tree_plan(growth.parent[:size]))
            assert times.verify_s[i, size - 1] == pytest.approx(float(found.verify_s), rel=1e-5)
            assert times.draft_s[i, size - 1] == pytest.approx(float(found.draft_s), rel=1e-5)
        plain = jax.jit(baselines)(case)
        assert times.ar_bf16_s[i] == pytest.approx(float(plain.bf16.cost.total_s), rel=1e-5)
        assert times.ar_stored_s[i] == pytest.approx(float(plain.stored.cost.total_s), rel=1e-5)
    assert times.fits.all()


def test_a_draft_network_is_priced_with_the_measured_ratios():
    target = dataclasses.replace(TARGET, num_layers=2)
    small = DecoderConfig(
        vocab_size=256,
        hidden_size=8,
        intermediate_size=36,
        num_layers=1,
        num_heads=2,
        num_kv_heads=1,
        head_dim=4,
        tie_embeddings=True,
    )
    draft = NetworkDraft(small, "small")
    # Priced as the target itself, the draft is itself.
    own = draft.cost(target, architecture_of(target), "own").architecture
    for name, value in vars(architecture_of(small)).items():
        assert float(getattr(own, name)) == pytest.approx(value), name
    llama = PRICING.architecture
    found = draft.cost(target, llama, "llama-3.1-8b")
    assert float(found.architecture.num_layers) == 16  # 1 of 2
    assert float(found.architecture.intermediate_size) == pytest.approx(1.5 * 14336)
    assert not found.shares_ends


def test_a_scheme_that_changes_the_target_counts_beside_another_draft():
    config = TreeConfig(scheme="q4_0", draft="ngram")
    setup = SimpleNamespace(scheme=find_scheme("q4_0"), config=SimpleNamespace(in_codes=False))
    work = SimpleNamespace(setup=setup)
    found = TreeStages(config, work, copies=None, made=object()).widths
    assert float(found.target_weight_bits["q"]) == 4.5
    assert float(found.target_weight_bits["lm_head"]) == 16.0
    whole = TreeStages(TreeConfig(draft="ngram"), work, copies=None, made=object()).widths
    assert float(whole.target_weight_bits["q"]) == 16.0
    quantized = TreeStages(TreeConfig(scheme="q8_0", draft="q4"), work, copies=None, made=object()).widths
    assert float(quantized.draft_weight_bits["q"]) == 4.5
    for scheme in ("cassandra1-coded",):  # lossless: nothing of it would be left
        with pytest.raises(InputError, match="leaves the target as it is"):
            build_config(TreeConfig, {"scheme": scheme, "draft": "ngram"})
    with pytest.raises(InputError, match="is not a compressed copy"):
        build_config(TreeConfig, {"scheme": "cassandra2", "draft": "ngram", "weight_prune": 0.2})


def test_cycles_of_a_tree_have_all_their_steps():
    bits, draft = uniform_footprint(11.0), DraftCost()
    (times,) = price_growths(PRICING.replace(footprint=bits, draft=draft), [GROWTH], contexts=(33, 5000))
    for size in (0, 5):
        one = cycle_times_of(times, context=1, size=size, scatter=0.1)
        step_s = one.part_s.sum(axis=1)
        expected = times.verify_s[1, size] + times.draft_s[1, size]
        assert float(one.cycle @ step_s) == pytest.approx(expected, rel=1e-5)
        assert float(one.stored @ step_s) == pytest.approx(times.ar_stored_s[1], rel=1e-5)
        assert float(one.scatter) == 0.1


def test_trees_that_are_priced_together_cost_what_each_costs():
    growths = (GROWTH, NestedTrees(np.arange(3) - 1, np.zeros(3, int)))
    case = PRICING.replace(footprint=uniform_footprint(11.0), draft=DraftCost())
    together = price_growths(case, growths, contexts=(33, 5000))
    for found, growth in zip(together, growths, strict=True):
        (alone,) = price_growths(case, [growth], contexts=(33, 5000))
        for name in ("verify_s", "draft_s", "engine_s", "ar_bf16_s", "ar_stored_s", "fits"):
            np.testing.assert_allclose(getattr(found, name), getattr(alone, name), rtol=1e-6, err_msg=name)
        cycles = [cycle_times_of(one, context=1, size=growth.parent.size - 1, scatter=0.0) for one in (found, alone)]
        own, expected = (float(one.cycle @ one.part_s.sum(axis=1)) for one in cycles)
        assert own == pytest.approx(expected, rel=1e-6)
