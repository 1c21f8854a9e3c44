"""A network with linear attention from tuning to its files: measured, decoded without loss, packed and exported."""

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny_hybrids import DENSE, saved, settings_of

from jaxspec.errors import InputError
from jaxspec.models import load_container, load_directory
from jaxspec.settings import build_config
from jaxspec.speculate.drafts.container_draft import container_footprint
from jaxspec.studies import (
    ExportConfig,
    TreeConfig,
    TuneConfig,
    export_draft,
    search_tree,
    tune,
)
from jaxspec.studies.pack.run import PackConfig, pack_checkpoint, unpack_container

pytestmark = pytest.mark.study


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory):
    return saved(DENSE, tmp_path_factory.mktemp("models") / "hybrid")


@pytest.fixture(scope="module")
def shared(hybrid, some_text, small):
    return dict(small) | {
        "model": str(hybrid),
        "text": str(some_text),
        "device": "rtx-4090",
        "architecture": "qwen3.5-27b",
    }


@pytest.fixture(scope="module")
def tuned(shared, tmp_path_factory):
    config = build_config(TuneConfig, shared, {"steps": 2, "uniform_steps": 2})
    return tune(config, out=str(tmp_path_factory.mktemp("runs") / "tuned"))


def test_what_is_tuned_is_decoded_without_loss_as_it_was_measured(tuned):
    result = tuned[0][0]
    assert result.lossless.mismatches.value == 0
    found = result.plain()["configurations"]["tuned"]
    assert set(found["knobs"]["weight_cut_bits"]) == {"q", "k", "v", "o", "in_qkv", "in_z", "out", "gate", "up", "down"}
    lengths = {kind: len(values) for kind, values in found["knobs"]["weight_cut_bits"].items()}
    assert lengths["q"] == lengths["out"] == 4
    assert abs(found["tokens_per_cycle_gap_in_standard_errors"]) < 3


@pytest.mark.parametrize(
    ("draft", "settings"),
    [("self", {}), ("ngram", {}), ("q4", {}), ("layer-skip", {"calibration_prompts": 2})],
    ids=["self", "ngram", "q4", "layer-skip"],
)
def test_trees_of_any_draft_are_lossless(draft, settings, shared, tmp_path):
    given = {"draft": draft, "nodes": 4, "depth": 2} | settings
    config = build_config(TreeConfig, settings_of(TreeConfig, shared), given)
    result = search_tree(config, out=str(tmp_path / "run"))[0][0]
    assert result.lossless.mismatches.value == 0


def test_a_draft_that_reads_a_part_of_the_cache_is_refused(shared, tmp_path):
    config = build_config(TreeConfig, settings_of(TreeConfig, shared), {"draft": "sparse-kv-25"})
    with pytest.raises(InputError, match="reads a part of the cached tokens, and the network has linear attention"):
        search_tree(config, out=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_container_and_an_export_hold_the_tuned_draft(tuned, hybrid, tmp_path):
    path, folder = tmp_path / "hybrid.jspk", tmp_path / "draft"
    pack_checkpoint(PackConfig(model=str(hybrid), knobs=str(tuned[1].path / "result.json")), str(path))
    unpack_container(str(path), str(tmp_path / "back"))
    original, back = (load_file(at / "model.safetensors") for at in (hybrid, tmp_path / "back"))
    assert original.keys() == back.keys()
    for name, value in original.items():
        np.testing.assert_array_equal(np.asarray(back[name]).view(np.uint16), np.asarray(value).view(np.uint16))
    export_draft(ExportConfig(run=str(tuned[1].path), prompts=1), folder)
    draft, exported = load_container(path, part="draft"), load_directory(folder)
    assert exported.config == load_directory(hybrid).config == draft.config
    for name, leaf in exported.params["layers"].items():
        np.testing.assert_array_equal(
            np.asarray(leaf).view(np.uint16), np.asarray(draft.params["layers"][name]).view(np.uint16), err_msg=name
        )
    target = load_directory(hybrid).params["layers"]
    assert np.any(np.asarray(exported.params["layers"]["in_qkv"]) != np.asarray(target["in_qkv"]))
    for name in ("conv", "in_a", "in_b"):
        np.testing.assert_array_equal(np.asarray(exported.params["layers"][name]), np.asarray(target[name]))


def test_a_containers_draft_decodes_without_loss(shared, hybrid, tmp_path):
    path = str(tmp_path / "hybrid.jspk")
    pack_checkpoint(PackConfig(model=str(hybrid), importance="magnitude", weight_cut_bits=4, weight_prune=0.1), path)
    read = container_footprint(path, str(hybrid))
    assert {kind: len(bits) for kind, bits in read.draft_weight_bits.items()}["in_qkv"] == 2
    assert np.all(read.draft_weight_bits["in_z"] < read.target_weight_bits["in_z"])
    given = {"draft": path, "nodes": 3, "depth": 2}
    result = search_tree(build_config(TreeConfig, settings_of(TreeConfig, shared), given), out=str(tmp_path / "run"))
    assert result[0][0].lossless.mismatches.value == 0
