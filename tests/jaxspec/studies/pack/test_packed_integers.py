"""Containers of integers with scales as models: target and draft of every command are those of a run on the checkpoint."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from packed_runs import pack_run

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.weights import hard_draft, target_network
from jaxspec.errors import InputError
from jaxspec.formats.container import Container
from jaxspec.models import DecoderConfig, load_directory
from jaxspec.models.hf_load import load_container
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import make_draft
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies import EvaluateConfig
from jaxspec.studies.measured.run_context import load_inputs, load_target

pytestmark = pytest.mark.scheme_matrix

SCHEME = SCHEMES["any-precision"]

#: Rows of whole groups and of others, in matrices that gain something.
CONFIG = DecoderConfig(
    vocab_size=256, hidden_size=40, intermediate_size=72, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=10
)


def patterns(x):
    values = np.asarray(x)
    assert values.dtype == np.float32
    return values.view(np.uint32)


@pytest.fixture(scope="module")
def packed(random_network, tmp_path_factory):
    """Folder with a container and what it was packed from; the hard draft of the knobs; these."""
    folder = tmp_path_factory.mktemp("integers")
    knobs = uniform_knobs(SCHEME, CONFIG)
    bits = knobs.values["slice_bits"]
    knobs = knobs.replace_values(slice_bits=2.0 + jnp.arange(bits.size).reshape(bits.shape) % 5)
    return folder, pack_run(folder, random_network(CONFIG, 3, sharpness=3.0), CONFIG, knobs), knobs


@pytest.fixture(scope="module")
def wanted(packed):
    """The target of a run on the checkpoint."""
    layers = target_network(SCHEME, as_stored(load_directory(packed[0] / "model").params))["layers"]
    return jax.jit(lambda: {kind: layers[kind].values() for kind in CONFIG.matrix_kinds})()


def test_target_and_draft_are_those_of_the_run(packed, wanted):
    folder, draft, _ = packed
    path = folder / "model.jspk"
    found, drafted = load_container(path), load_container(path, part="draft")
    before = load_directory(folder / "model")
    assert found.config == before.config
    assert found.exact == {("layers", kind) for kind in CONFIG.matrix_kinds}
    for kind in CONFIG.matrix_kinds:
        np.testing.assert_array_equal(patterns(found.params["layers"][kind]), patterns(wanted[kind]), err_msg=kind)
        np.testing.assert_array_equal(
            patterns(drafted.params["layers"][kind]), patterns(draft["layers"][kind].values()), err_msg=kind
        )
    for name in ("embed", "lm_head", "final_norm"):
        assert np.asarray(found.params[name]).tobytes() == np.asarray(before.params[name]).tobytes()


@pytest.fixture(scope="module")
def setups(packed, some_text):
    """Of a run on the checkpoint and of one on the container."""
    settings = {"scheme": "any-precision", "text": str(some_text), "prompts": 2, "prompt_tokens": 8, "output_tokens": 4}
    return [load_inputs(EvaluateConfig(model=str(packed[0] / name), **settings)) for name in ("model", "model.jspk")]


def test_evaluating_the_container_is_evaluating_the_checkpoint(packed, setups):
    knobs, found = packed[2], []
    for setup in setups:
        prepared = dict.fromkeys(CONFIG.matrix_kinds)
        draft = hard_draft(setup.stored, prepared, knobs)
        made = jax.jit(lambda params: {kind: params["layers"][kind].values() for kind in CONFIG.matrix_kinds})
        found.append((made(setup.stored), made(draft), setup.config))
    jax.tree.map(np.testing.assert_array_equal, found[0][:2], found[1][:2])
    assert found[0][2] == found[1][2]
    assert not any("rounded to bfloat16" in note for note in setups[1].notes)


def test_the_draft_needs_its_own_sections_alone_and_decodes_losslessly(packed):
    folder, _, _ = packed
    content = bytearray((folder / "model.jspk").read_bytes())
    with Container(folder / "model.jspk") as container:
        for section in container.sections("target"):
            content[section.offset : section.offset + section.length] = bytes(section.length)
    (folder / "half.jspk").write_bytes(content)
    with pytest.raises(InputError, match="is a damaged container"):
        load_container(folder / "half.jspk")
    target = load_target(str(folder / "model.jspk")).loaded
    ready = make_draft(str(folder / "half.jspk"), target)
    prompts = np.random.default_rng(5).integers(256, size=(3, 6)).astype(np.int32)
    params, options = as_computed(target.params), {"num_tokens": 10, "decoding": GREEDY, "seed": 0}
    alone, drafted = (decode_chains(params, target.config, ready, Prompts(prompts, **options), k) for k in (0, 3))
    np.testing.assert_array_equal(drafted["tokens"][:, :16], alone["tokens"][:, :16])
    assert drafted["cycles"].sum() < alone["cycles"].sum()
