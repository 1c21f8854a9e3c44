"""The draft of a container: the one that was tuned, read from its own bytes alone, and decoded losslessly."""

import dataclasses

import jax
import numpy as np
import pytest
from packed_runs import CONFIG, pack_run, patterns

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes import SCHEMES
from jaxspec.errors import InputError
from jaxspec.formats.container import Container
from jaxspec.models.hf_load import load_container
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import check_draft, make_draft
from jaxspec.speculate.drafts.container_draft import container_footprint
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.pack.config import PackConfig
from jaxspec.studies.pack.run import pack_checkpoint

pytestmark = pytest.mark.network


@pytest.fixture(scope="module", params=["cassandra1", "cassandra2"])
def packed(request, random_network, tmp_path_factory):
    """A container packed with the knobs and norms of a run, and the hard draft that the run had."""
    folder, scheme = tmp_path_factory.mktemp("container"), SCHEMES[request.param]
    knobs = uniform_knobs(scheme, CONFIG, weight_prune=0.3, weight_cut_bits=2.0, kv_prune=0.25, kv_cut_bits=3.0)
    knobs = knobs.replace_values(weight_prune=knobs.values["weight_prune"].at[1, 3].set(0.1))
    draft = pack_run(folder, random_network(CONFIG, 3, sharpness=3.0), CONFIG, knobs)
    return folder / "model.jspk", draft, knobs


@pytest.fixture(scope="module")
def half(packed):
    """A copy whose verification data are gone: what only the target reads is zero."""
    path, content = packed[0], bytearray(packed[0].read_bytes())
    with Container(path) as container:
        for section in container.sections("target"):
            content[section.offset : section.offset + section.length] = bytes(section.length)
    copy = path.with_name("half.jspk")
    copy.write_bytes(content)
    return copy


def test_the_packed_draft_is_the_tuned_one(packed, half):
    path, draft, knobs = packed
    target = load_container(path)
    with pytest.raises(InputError, match="is a damaged container"):
        load_container(half)
    check_draft(str(half), target.config)
    ready = make_draft(str(half), target)
    assert ready.draft.name == "half.jspk"
    for kind in CONFIG.matrix_kinds:
        found = ready.params.network["layers"][kind].values()
        np.testing.assert_array_equal(patterns(found), patterns(draft["layers"][kind].values()))
    for name in ("kv_prune", "kv_cut_bits"):
        np.testing.assert_array_equal(ready.params.knobs.values[name], knobs.values[name])
    prompts = np.random.default_rng(5).integers(256, size=(3, 6)).astype(np.int32)
    params, options = as_computed(as_stored(target.params)), {"num_tokens": 10, "decoding": GREEDY, "seed": 0}
    alone = decode_chains(params, target.config, ready, Prompts(prompts, **options), 0)
    drafted = decode_chains(params, target.config, ready, Prompts(prompts, **options), 3)
    np.testing.assert_array_equal(drafted["tokens"][:, :16], alone["tokens"][:, :16])
    assert drafted["cycles"].sum() < alone["cycles"].sum()


def test_widths_are_the_bytes_of_the_file(packed):
    path = packed[0]
    found = container_footprint(str(path), str(path))
    with Container(path) as container:
        chunk = container.tensors["model.layers.1.mlp.up_proj.weight"].chunks[0]
        parts = [container.sections(part) for part in ("draft", "target")]
        outside = sum(t.form.bytes for name, t in container.tensors.items() if "proj" not in name and t.chunks)
        stored = [sum(section.length for section in sections) for sections in parts]
    lengths = {role: section.length for role, section in chunk.items()}
    assert float(found.target_weight_bits["up"][1]) == pytest.approx(8 * sum(lengths.values()) / (24 * 38))
    elements = {kind: np.prod(CONFIG.matrix_shape(kind)) for kind in CONFIG.matrix_kinds}
    read = [
        sum(float(bits[kind].sum()) * elements[kind] for kind in CONFIG.matrix_kinds) / 8
        for bits in (found.draft_weight_bits, found.target_weight_bits)
    ]
    assert read[0] == pytest.approx(stored[0] - outside)
    assert read[1] == pytest.approx(sum(stored) - outside)


@pytest.fixture(scope="module")
def others(packed):
    """The same network packed by a scheme that keeps it and by one that changes it."""
    folder, paths = packed[0].parent, {}
    for scheme in ("cassandra1", "cassandra2", "huffman"):
        paths[scheme] = folder / f"other-{scheme}.jspk"
        of_draft = {"importance": "magnitude"} if scheme != "huffman" else {}
        pack_checkpoint(PackConfig(model=str(folder / "model"), scheme=scheme, **of_draft), paths[scheme])
    return {scheme: str(path) for scheme, path in paths.items()} | {"directory": str(folder / "model")}


@pytest.mark.parametrize(
    ("draft", "model", "read"),
    [
        ("cassandra1", "directory", "cassandra1"),  # which holds the directory's bits
        ("cassandra2", "directory", None),
        ("cassandra2", "cassandra1", "cassandra1"),
        ("cassandra1", "cassandra2", "cassandra2"),
        ("cassandra1", "huffman", "huffman"),
    ],
)
def test_a_target_is_read_from_its_own_file(others, draft, model, read):
    found = container_footprint(others[draft], others[model])
    own = container_footprint(others[draft], others[draft])
    for name in ("draft_weight_bits", "draft_kv_bits"):
        jax.tree.map(np.testing.assert_array_equal, getattr(found, name), getattr(own, name))
    for kind in CONFIG.matrix_kinds:
        bits = 16.0 if read is None else container_footprint(others[read], others[read]).target_weight_bits[kind]
        np.testing.assert_array_equal(found.target_weight_bits[kind], np.broadcast_to(bits, CONFIG.num_layers))


def test_what_is_no_draft_of_this_network(packed, tmp_path):
    path = packed[0]
    other = dataclasses.replace(CONFIG, num_layers=3)
    with pytest.raises(InputError, match="draft of another network"):
        check_draft(str(path), other)
    with pytest.raises(InputError, match="is unknown"):
        check_draft(str(tmp_path / "absent.jspk"), CONFIG)
    plain = tmp_path / "plain.jspk"
    pack_checkpoint(PackConfig(model=str(path.parent / "model"), scheme="huffman"), plain)
    with pytest.raises(InputError, match="scheme 'huffman', which has no draft"):
        check_draft(str(plain), CONFIG)
