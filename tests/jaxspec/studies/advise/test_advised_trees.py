"""`jaxspec advise` beyond chains on one device: trees, compressed copies, several devices, and their flags."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxspec as js
from hwmodels import Workload, catalog, price_steps, uniform_footprint
from hwmodels.network.operators import decode_step
from jaxspec.errors import InputError
from jaxspec.studies.advise.pricing import _causes, chance_table, grow_tree, served_tree
from jaxspec.studies.engine_flags import Range, ServedDraft, ServedTree, engines_for
from jaxspec.trees.searches import optimal_trees

FOUR = {"device": "h100-sxm", "architecture": "qwen2.5-72b", "tensor_parallel": 4}
FOUR |= {"draft": "qwen2.5-0.5b", "acceptance": 0.5}


def test_several_devices_reach_the_engines():
    parallelism = catalog.Parallelism(tensor=4, draft_tensor=1, pipeline=2)
    found = {each.title: each for each in engines_for("t", ServedDraft("network", "d"), 3, parallelism=parallelism)}
    assert "--tensor-parallel-size 4 --pipeline-parallel-size 2" in found["vLLM"].shown
    assert json.loads(found["vLLM"].content)["draft_tensor_parallel_size"] == 1
    assert "--tp-size 4 --pp-size 2" in found["SGLang"].content
    assert "--split-mode row" in found["llama.cpp"].content
    # Replicas of vLLM would disagree on a length by batch: they all take one.
    schedule = [Range(1, 15, 5), Range(16, 31, 0)]
    asked = {"schedule": schedule, "parallelism": catalog.Parallelism(data=2)}
    vllm = next(each for each in engines_for("t", ServedDraft("eagle3", "d"), 4, **asked) if each.title == "vLLM")
    assert json.loads(vllm.content)["num_speculative_tokens"] == 4
    assert "per_batch_size" not in vllm.content


def test_heads_follow_the_batch_in_sglang():
    schedule = [Range(1, 15, 5), Range(16, 31, 2), Range(32, 64, 0)]
    found = engines_for("t", ServedDraft("eagle3", "d"), 2, schedule=schedule)
    sglang = next(each for each in found if each.title == "SGLang")
    assert "--speculative-num-steps 5 --speculative-eagle-topk 1" in sglang.content
    assert "--speculative-num-draft-tokens 6" in sglang.content
    (name,) = sglang.more_files
    assert name in sglang.content
    steps = json.loads(sglang.more_files[name])
    assert steps == {"1": {"candidate_steps": [5]}, "16": {"candidate_steps": [2]}, "32": {"candidate_steps": [0]}}


def test_a_tree_reaches_the_engine_that_grows_one():
    asked = {"tree": ServedTree(nodes=12, depth=4, branching=3)}
    found = {each.title: each for each in engines_for("t", ServedDraft("eagle3", "d"), 2, **asked)}
    assert "--speculative-num-steps 4 --speculative-eagle-topk 3" in found["SGLang"].content
    assert "--speculative-num-draft-tokens 13" in found["SGLang"].content
    assert json.loads(found["vLLM"].content)["num_speculative_tokens"] == 2
    assert engines_for("t", ServedDraft("self"), 2) == []


def test_grown_trees_are_the_best_ones():
    table = chance_table(np.array([0.7, 0.6, 0.5]), (0.2, 0.15))
    np.testing.assert_allclose(table[0], [0.7, 0.2 * 0.3 / 0.35, 0.15 * 0.3 / 0.35])  # a row sums to at most 1
    np.testing.assert_allclose(table[2], [0.5, 0.2, 0.15])
    grown = grow_tree(table, 9)
    best = optimal_trees(jnp.asarray(table), max_nodes=9, max_branching=3)
    np.testing.assert_allclose(1 + np.cumsum(grown.chance), np.asarray(best.expected_tokens)[1:], rtol=1e-5)
    assert grown.parent[:3] == [-1, 0, 1]
    shape = served_tree(grown, 9)
    assert shape == ServedTree(
        nodes=9, depth=max(grown.depth) + 1, branching=max(map(grown.parent.count, grown.parent))
    )


@pytest.mark.study
def test_copies_and_trees_are_advised(tmp_path):
    given = {
        "device": "rtx-4090",
        "architecture": "llama-3.1-8b",
        "draft": "self",
        "scheme": "cassandra1",
        "batch": (2,),
    }
    given |= {"acceptance": 0.7, "acceptance_cycles": 800, "max_draft_length": 3, "context": 300}
    found = js.advise(**given, branch_acceptance=(0.1, 0.05), tree_nodes=4, out=tmp_path / "run")
    (row,) = found.by_batch
    assert "batches below 2 were not priced and are given the draft length of 2; begin --batch with 1" in found.notes
    assert found.draft.priced_as == "a compressed copy of the target"
    assert found.commands == {}
    assert row.tree.nodes.value == len(row.tree.parent)
    assert row.tree.speedup_vs_stored_ar.value > 0.5
    assert "best" in str(found.table())
    # Of chains in the tree the price is that of the chain: the first nodes are one.
    assert row.best_draft_speedup.value > 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"draft": "self", "acceptance": 0.5, "draft_weights": "d"}, "a compressed copy lies within the target"),
        ({"tree_nodes": 8}, "trees need branch_acceptance"),
        ({"branch_acceptance": (0.6, 0.6)}, "sum to at most 1"),
        ({"draft": "ngram", "acceptance": 0.5, "branch_acceptance": 0.1}, "a lookup proposes no second token"),
        ({"device": "h100-sxm", "tensor_parallel": 3}, "llama-3.1-8b has 32 heads"),
        (FOUR, "tensor_parallel is 4, but qwen2.5-0.5b has 14 heads; give one of .* as draft_tensor_parallel"),
        (FOUR | {"draft_tensor_parallel": 4}, "draft_tensor_parallel is 4, but qwen2.5-0.5b has 14 heads"),
    ],
)
def test_what_cannot_be_advised_is_one_line(settings, message, tmp_path):
    with pytest.raises(InputError, match=message) as caught:
        js.advise(**settings, out=tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.study
@pytest.mark.parametrize("parallelism", [{"tensor": 4}, {"data": 2, "pipeline": 3}])
def test_the_parts_of_a_step_of_several_devices_are_the_whole_step(parallelism):
    together = catalog.Parallelism(**parallelism, link="pcie5")
    device = catalog.grouped(catalog.device_entry("rtx-4090"), together, "rtx-4090").device
    step = decode_step(Workload(batch=3.0, context_tokens=700.0), footprint=uniform_footprint(16.0))
    (priced,) = jax.device_get(price_steps(device, catalog.architecture("llama-3.2-1b"), [step]))
    parts = _causes(priced, "decode", 1.0)
    assert parts["decode: other devices"] > 0.0
    assert sum(parts.values()) == pytest.approx(float(priced.cost.total_s), rel=1e-5)
