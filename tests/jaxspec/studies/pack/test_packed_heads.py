"""Containers whose draft has an LM head of its own: the tuned one, from its own bytes, beside an embedding that stays whole."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from packed_runs import CONFIG, pack_run, patterns

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes import SCHEMES
from jaxspec.formats.container import Container
from jaxspec.models.decoder import forward_text
from jaxspec.models.hf_load import load_container, load_directory
from jaxspec.models.layerwise import open_network
from jaxspec.models.special_tokens import head_input
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import make_draft
from jaxspec.speculate.drafts.container_draft import container_footprint
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.pack.config import PackConfig
from jaxspec.studies.pack.draft_split import measured_norms
from jaxspec.studies.pack.run import pack_checkpoint, unpack_container
from jaxspec.text import load_text, windows

pytestmark = pytest.mark.scheme_matrix

HEADS = {False: "lm_head.weight", True: "model.embed_tokens.weight"}


@pytest.fixture(scope="module", params=[("cassandra1-head", False), ("cassandra2-head", True)], ids=str)
def packed(request, random_network, tmp_path_factory):
    """Folder with a container and what it was packed from; the hard draft of the run; whether the head is tied."""
    scheme, tie = SCHEMES[request.param[0]], request.param[1]
    folder, config = tmp_path_factory.mktemp("heads"), dataclasses.replace(CONFIG, tie_embeddings=tie)
    knobs = uniform_knobs(scheme, config, weight_cut_bits=2.0, head_prune=0.3, head_cut_bits=3.0)
    return folder, pack_run(folder, random_network(config, 3, sharpness=3.0), config, knobs), tie


def test_the_packed_head_is_the_tuned_one_and_the_target_is_whole(packed):
    folder, draft, tie = packed
    path = folder / "model.jspk"
    found, target, stored = load_container(path, part="draft"), load_container(path), load_directory(folder / "model")
    assert found.config == target.config
    np.testing.assert_array_equal(patterns(found.params["lm_head"]), patterns(draft["lm_head"].values()))
    assert 0.25 < np.mean(patterns(found.params["lm_head"]) == 0) < 0.35
    np.testing.assert_array_equal(patterns(found.params["embed"]), patterns(stored.params["embed"]))
    for name in {"embed", "lm_head"} & set(target.params):
        np.testing.assert_array_equal(patterns(target.params[name]), patterns(stored.params[name]))
    assert ("lm_head" in target.params) != tie
    for kind in CONFIG.matrix_kinds:
        np.testing.assert_array_equal(
            patterns(found.params["layers"][kind]), patterns(draft["layers"][kind].values()), err_msg=kind
        )
    with Container(path) as container:
        if container.lossless:
            unpack_container(path, folder / "again", force=True)
            again, whole = (each / "model.safetensors" for each in (folder / "again", folder / "model"))
            assert again.read_bytes() == whole.read_bytes()
        # The target's head is as it is stored in either scheme, so both code it alike.
        assert container.tensors[HEADS[tie]].codec == "cassandra1"
        assert container.options["scheme"] == container.scheme


def test_it_decodes_what_the_target_decodes_in_fewer_cycles(packed):
    folder, _, _ = packed
    target = load_container(folder / "model.jspk")
    ready = make_draft(str(folder / "model.jspk"), target)
    prompts = np.random.default_rng(5).integers(256, size=(3, 6)).astype(np.int32)
    params, options = as_computed(as_stored(target.params)), {"num_tokens": 10, "decoding": GREEDY, "seed": 0}
    alone, drafted = (decode_chains(params, target.config, ready, Prompts(prompts, **options), k) for k in (0, 3))
    np.testing.assert_array_equal(drafted["tokens"][:, :16], alone["tokens"][:, :16])
    assert drafted["cycles"].sum() < alone["cycles"].sum()


def test_widths_of_the_head_are_the_bytes_of_the_file(packed):
    folder, _, tie = packed
    found = container_footprint(*[str(folder / "model.jspk")] * 2)
    with Container(folder / "model.jspk") as container:
        lengths = {role: section.length for role, section in container.tensors[HEADS[tie]].chunks[0].items()}
    read = sum(length for role, length in lengths.items() if role not in ("low", "pruned"))
    assert {"low", "pruned"} < set(lengths)
    assert float(found.draft_weight_bits["lm_head"]) == pytest.approx(8 * read / (256 * 24))
    assert float(found.target_weight_bits["lm_head"]) == pytest.approx(8 * sum(lengths.values()) / (256 * 24))


def test_without_a_run_the_head_is_ranked_by_what_enters_it(packed):
    folder, _, tie = packed
    network, scheme = open_network(folder / "model"), SCHEMES["cassandra1-head"]
    options = {"num_windows": 3, "window_tokens": 20}
    found = measured_norms(network, "stdlib", **options, seed=0, head=True)
    tokens = windows(load_text("stdlib", network.tokenizer).calibration, 3, 20, 0)
    params = as_stored(load_directory(folder / "model").params)
    hidden = forward_text(params, network.config, jnp.asarray(tokens)).hidden
    inputs = np.asarray(head_input(hidden, params, network.config), np.float64)
    np.testing.assert_allclose(found[HEADS[tie]], np.sqrt(np.sum(inputs**2, axis=(0, 1))), rtol=1e-4)
    settings = PackConfig(
        model=str(folder / "model"), scheme=scheme.name, head_prune=0.5, head_cut_bits=1, calibration_windows=3
    )
    pack_checkpoint(settings, folder / "given.jspk", force=True)
    head = patterns(load_container(folder / "given.jspk", part="draft").params["lm_head"])
    assert set(np.count_nonzero(head, axis=1)) <= {11, 12}  # a kept value may be zero
    with Container(folder / "given.jspk") as container:
        assert (container.options["head_prune"], container.options["head_cut_bits"]) == (0.5, 1)
    assert not np.any(head & 1)
    assert np.any(head & 2)
