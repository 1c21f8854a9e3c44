"""Networks with linear attention and experts: how checkpoints store them, and what a wrong reading would be."""

import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from test_hf_golden import GOLDEN, TOLERANCE, loaded, wide_error

from hwmodels import catalog
from hwmodels.networks import FAMILIES
from jaxspec.models.architecture import architecture_of
from jaxspec.models.config import decoder_config
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_directory
from jaxspec.models.layerwise import open_network
from jaxspec.models.stored_parameters import layer_parameters
from jaxspec.studies.pack.run import PackConfig, pack_checkpoint, unpack_container

pytestmark = pytest.mark.usefixtures("exact_products")

NEXT, DECODER, STACKED = "qwen3_next_experts", "qwen3_5_moe_decoder", "qwen3_5_moe_multimodal"


def exchanged(one, other):
    return lambda layers: layers | {one: layers[other], other: layers[one]}


MUTANTS = {
    "the shared expert's gate is half open": lambda layers: (
        layers | {"shared_router": jnp.zeros_like(layers["shared_router"])}
    ),
    "it closes where it opens": lambda layers: layers | {"shared_router": -layers["shared_router"]},
    "no shared expert": lambda layers: layers | {"shared_down": jnp.zeros_like(layers["shared_down"])},
    "gates of experts exchanged": exchanged("expert_gate", "expert_up"),
    "rates exchanged": exchanged("in_a", "in_b"),
    "experts in reverse": lambda layers: layers | {"expert_down": layers["expert_down"][:, ::-1]},
}


@pytest.mark.network(4)
@pytest.mark.parametrize("case", [NEXT, STACKED])
@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_sees_a_wrong_network(mutant, case):
    model, expected = loaded(case)
    layers = MUTANTS[mutant](dict(model.params["layers"]))
    assert wide_error(model.config, model.params | {"layers": layers}, expected) > 1000 * TOLERANCE


def test_projections_lie_key_head_by_key_head():
    # Two key heads of four elements; to each belong three value heads of five.
    tensor = np.arange(2 * (4 + 4 + 15 + 15))
    stored = layer_parameters(loaded(NEXT)[0].config, FAMILIES["qwen3_next"].running)
    rows = lambda name: stored["layers", name].fused.indices
    of_head = lambda first, count: [*range(first, first + count), *range(38 + first, 38 + first + count)]
    np.testing.assert_array_equal(tensor[rows("in_qkv")], of_head(0, 4) + of_head(4, 4) + of_head(8, 15))
    np.testing.assert_array_equal(tensor[rows("in_z")], of_head(23, 15))
    rates = np.arange(12)
    np.testing.assert_array_equal(rates[rows("in_b")], [0, 1, 2, 6, 7, 8])
    np.testing.assert_array_equal(rates[rows("in_a")], [3, 4, 5, 9, 10, 11])


@pytest.mark.network(1)
@pytest.mark.parametrize("case", [NEXT, DECODER, STACKED])
def test_streamed_layers_and_written_files_are_the_same(case, tmp_path):
    model, expected = loaded(case)
    streamed = load_directory(GOLDEN / case, stream=True)
    assert wide_error(streamed.config, streamed.params, expected) < TOLERANCE
    layer = [dict(layer) for layer in open_network(GOLDEN / case).layers()][2]
    # In bfloat16, as layers are read one by one and files are written; in these, each expert's matrices are apart.
    rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), model.params)
    place = model.config.router.before(2)
    np.testing.assert_array_equal(layer["expert_up"], rounded["layers"]["expert_up"][place])
    save_directory(rounded, model.config, tmp_path, max_positions=64, family=model.family)
    again = load_directory(tmp_path)
    assert again.config == model.config
    jax.tree.map(np.testing.assert_array_equal, again.params, rounded)
    names = load_file(tmp_path / "model.safetensors")
    assert any("mlp.experts.1.up_proj" in name for name in names)
    assert not any(name.endswith("experts.gate_up_proj") for name in names)


@pytest.mark.network(1)
@pytest.mark.parametrize("case", [NEXT, STACKED])
def test_a_container_gives_the_tensors_back(case, tmp_path):
    model, packed = tmp_path / "model", tmp_path / "packed.jspk"
    shutil.copytree(GOLDEN / case, model)
    if case == NEXT:  # files to pack are in 16 bits
        source = loaded(case)[0]
        rounded = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), source.params)
        save_directory(rounded, source.config, model, max_positions=64, family=source.family)
    pack_checkpoint(PackConfig(model=str(model), importance="magnitude", weight_cut_bits=4), str(packed))
    unpack_container(str(packed), str(tmp_path / "back"))
    original, back = (load_file(at / "model.safetensors") for at in (model, tmp_path / "back"))
    assert original.keys() == back.keys()
    for name, value in original.items():
        np.testing.assert_array_equal(np.asarray(back[name]).view(np.uint16), np.asarray(value).view(np.uint16))


def released(name):
    """Sizes of a release, from the catalog."""
    found = catalog.architecture(name)
    number = lambda field: int(getattr(found, field))
    return {
        **{"num_hidden_layers": number("num_layers"), "hidden_size": number("hidden_size")},
        **{"num_attention_heads": number("num_heads"), "num_key_value_heads": number("num_kv_heads")},
        **{"head_dim": number("head_dim"), "vocab_size": number("vocab_size"), "num_experts": number("num_experts")},
        **{"num_experts_per_tok": number("experts_per_token"), "tie_word_embeddings": False},
        "moe_intermediate_size": number("expert_intermediate_size"),
        "shared_expert_intermediate_size": number("shared_intermediate_size"),
        "full_attention_interval": 4,
        **{"linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_conv_kernel_dim": 4},
        **{"linear_key_head_dim": 128, "linear_value_head_dim": 128},
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
    }


@pytest.mark.parametrize(
    ("family", "name"), [("qwen3_next", "qwen3-next-80b-a3b"), ("qwen3_5_moe_text", "qwen3.5-35b-a3b")]
)
def test_releases_are_read_as_the_catalog_has_them(family, name):
    config = decoder_config({"model_type": family} | released(name))
    assert architecture_of(config) == catalog.architecture(name)
    assert (config.rotary_dim, config.norm, config.attention_gate) == (64, "shifted_rms", True)
    # Two bodies, whatever the depth: one loop over the repetitions.
    (loop,) = config.loops
    assert (loop.times, [run.stop - run.start for run in loop.runs]) == (config.num_layers // 4, [3, 1])
