"""A packed draft is the draft that tuning builds, its size is what the footprint predicts, and bad input says what to do."""

import json

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import jaxspec
from hwmodels.networks import FAMILIES
from jaxspec.compress.knobs import knobs_to_json, uniform_knobs
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.schemes.cassandra1 import CASSANDRA1
from jaxspec.compress.weights import hard_draft, sum_of_squares
from jaxspec.errors import InputError
from jaxspec.formats.container import Container
from jaxspec.formats.unary import CODEBOOK_ENTRY_BITS
from jaxspec.models import DecoderConfig, save_directory
from jaxspec.models.decoder import forward_text
from jaxspec.models.hf_load import load_directory
from jaxspec.models.layerwise import open_network
from jaxspec.models.stored import as_computed
from jaxspec.studies.pack.draft_split import matrix_names, measured_norms, named_knobs
from jaxspec.studies.pack.result import PackResult, UnpackResult
from jaxspec.studies.pack.run import PackConfig, inspect_file, pack_checkpoint, unpack_container
from jaxspec.testing.schemes import hard_weights, prepare_at_once
from jaxspec.text import load_text, windows
from jaxspec.tuning.calibration import target_params

pytestmark = pytest.mark.scheme_matrix

CONFIG = DecoderConfig(
    vocab_size=256, hidden_size=40, intermediate_size=72, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=10
)
WINDOWS, TOKENS = 10, 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory, random_network):
    directory = tmp_path_factory.mktemp("packing") / "model"
    save_directory(random_network(CONFIG, 3), CONFIG, directory, max_positions=64)
    return directory


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def ranked(folder):
    """The target and its Wanda ranking, from one pass over the windows that packing takes."""
    model = load_directory(folder)
    tokens = windows(load_text("stdlib", model.tokenizer).calibration, WINDOWS, TOKENS, 0)
    params = target_params(model.params)
    result = forward_text(params, CONFIG, jnp.asarray(tokens), keep_activations=sum_of_squares, logits_from=TOKENS - 1)
    return params, prepare_at_once(CASSANDRA1, params, {k: jnp.sqrt(v) for k, v in result.activations.items()})


def packed(folder, **settings):
    settings = {"calibration_windows": WINDOWS, "window_tokens": TOKENS} | settings
    summary = pack_checkpoint(PackConfig(model=str(folder), **settings), "out.jspk", force=True).plain()
    return summary, "out.jspk"


@pytest.fixture(scope="module")
def default(folder, tmp_path_factory):
    """Summary and path of the network packed with the defaults, once."""
    path = tmp_path_factory.mktemp("default") / "default.jspk"
    config = PackConfig(model=str(folder), calibration_windows=WINDOWS, window_tokens=TOKENS)
    return pack_checkpoint(config, path).plain(), str(path)


def differing_knobs(scheme=CASSANDRA1):
    knobs = uniform_knobs(scheme, CONFIG)
    shape = knobs.values["weight_prune"].shape
    size = shape[0] * shape[1]
    return knobs.replace_values(
        weight_prune=jnp.linspace(0.0, 0.95, size).reshape(shape),
        weight_cut_bits=(jnp.arange(size).reshape(shape) % 8).astype(jnp.float32),
    )


def write_result(knobs, path="result.json"):
    entry = {"configurations": {"tuned": {"knobs": knobs_to_json(knobs, CONFIG.matrix_kinds)}}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump([entry], file)
    return path


@pytest.mark.parametrize("own_knobs", [False, True])
def test_the_packed_draft_is_the_draft_of_the_knobs(folder, ranked, own_knobs):
    params, scores = ranked
    knobs = differing_knobs() if own_knobs else uniform_knobs(CASSANDRA1, CONFIG, weight_prune=0.3, weight_cut_bits=5.0)
    settings = {"knobs": write_result(knobs)} if own_knobs else {"weight_prune": 0.3, "weight_cut_bits": 5}
    _, path = packed(folder, **settings)
    expected = hard_draft(params, scores, knobs)
    draft = jaxspec.load(path, part="draft").params
    for kind in CONFIG.matrix_kinds:
        np.testing.assert_array_equal(
            np.asarray(draft["layers"][kind]).view(np.uint16), expected["layers"][kind].array, err_msg=kind
        )
    np.testing.assert_array_equal(np.asarray(draft["embed"]).view(np.uint16), params["embed"].array)


@pytest.mark.parametrize("scheme", ["cassandra1", "cassandra1-coded"])
def test_the_file_has_as_many_bits_as_the_footprint_predicts(folder, ranked, scheme):
    params, scores = ranked
    knobs = differing_knobs(SCHEMES[scheme])
    summary, _ = packed(folder, knobs=write_result(knobs), scheme=scheme)
    predicted = hard_weights(as_computed(params), scores, knobs).footprint
    places = matrix_names(open_network(folder)).items()
    names = {(layer, kind): name for name, (layer, kinds) in places for kind in kinds}
    stored = {entry["name"]: entry for entry in summary["tensors"]}
    for layer in range(CONFIG.num_layers):
        for kind in CONFIG.matrix_kinds:
            entry = stored[names[layer, kind]]
            entries = {key: len(table) for key, table in entry["code_tables"].items()}
            elements = entry["elements"]
            # The directory holds the codebooks, and every section ends in a whole word.
            draft = 8 * entry["draft_bytes"] + CODEBOOK_ENTRY_BITS * entries["codebook"]
            target = 8 * entry["stored_bytes"] + CODEBOOK_ENTRY_BITS * sum(entries.values())
            assert -1 <= draft - float(predicted.draft_weight_bits[kind][layer]) * elements < 4 * 32, (layer, kind)
            assert -1 <= target - float(predicted.target_weight_bits[kind][layer]) * elements < 8 * 32


def test_matrices_that_share_a_tensor_share_their_knobs(random_network, tmp_path):
    save_directory(random_network(CONFIG, 3), CONFIG, tmp_path / "phi3", max_positions=64, family=FAMILIES["phi3"])
    fused = open_network(tmp_path / "phi3")
    names = set(matrix_names(fused))
    assert "model.layers.0.self_attn.qkv_proj.weight" in names
    assert len(names) == 4
    assert set(named_knobs(fused, uniform_knobs(CASSANDRA1, CONFIG)).values()) == {(np.float32(0.4), 4)}
    with pytest.raises(InputError, match="holds them all and is divided by"):
        named_knobs(fused, differing_knobs())
    # The same network, stored one tensor per matrix, has the same inputs.
    save_directory(random_network(CONFIG, 3), CONFIG, tmp_path / "llama", max_positions=64)
    options = {"num_windows": 3, "window_tokens": TOKENS, "seed": 0}
    whole = measured_norms(open_network(tmp_path / "llama"), "stdlib", **options)
    found = measured_norms(fused, "stdlib", **options)["model.layers.0.self_attn.qkv_proj.weight"]
    np.testing.assert_allclose(found, whole["model.layers.0.self_attn.k_proj.weight"], rtol=1e-6)


def test_wanda_and_magnitude_keep_different_values(folder, default):
    bitmaps = {}
    paths = {"wanda": default[1], "magnitude": packed(folder, importance="magnitude")[1]}
    for importance, path in paths.items():
        draft = jaxspec.load(path, part="draft").params["layers"]["down"]
        bitmaps[importance] = np.asarray(draft, np.float32) != 0
    # By magnitude: the smallest 40 % of each row's values are gone.
    whole = np.abs(np.asarray(load_directory(folder).params["layers"]["down"], np.float32))
    kept = bitmaps["magnitude"]
    assert np.all(np.where(kept, np.inf, whole).min(-1) <= np.where(kept, whole, np.inf).min(-1))
    assert np.max(np.where(kept, 0, whole).max(-1) - np.where(kept, whole, np.inf).min(-1)) <= 0
    assert (bitmaps["wanda"] != bitmaps["magnitude"]).any()


def test_tensors_of_no_network_are_ranked_by_magnitude_and_embeddings_stay_whole(tmp_path):
    rng = np.random.default_rng(0)
    matrix = lambda *shape: rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    tensors = {
        "tok_embed.weight": matrix(30, 20),
        "block.w": matrix(21, 33),
        "norm": matrix(33),
        "cube": matrix(3, 4, 5),
    }
    save_file(tensors, tmp_path / "some.safetensors")
    summary, path = packed(tmp_path / "some.safetensors")
    codecs = {entry["name"]: entry["codec"] for entry in summary["tensors"]}
    assert codecs == {"tok_embed.weight": "raw", "block.w": "cassandra1", "norm": "raw", "cube": "raw"}
    assert summary["options"]["importance"] == "magnitude"
    with Container(path) as container:
        kept = container.read("block.w", "draft").reshape(21, 33) != 0
    assert set(kept.sum(1)) == {33 - 13}  # round(0.4 * 33) = 13
    unpacked = unpack_container(path, tmp_path / "again")
    assert UnpackResult.from_plain(unpacked.plain()) == unpacked
    assert (tmp_path / "again/some.safetensors").read_bytes() == (tmp_path / "some.safetensors").read_bytes()
    with pytest.raises(InputError, match=r"config\.json"):
        jaxspec.load(path)


def test_inspecting_before_and_after_packing_gives_the_same_entropies(folder, default):
    found = [inspect_file(path) for path in (str(folder), packed(folder, scheme="huffman")[1], default[1])]
    for result in found:
        assert PackResult.from_plain(result.plain()) == result  # with its one word of status
        assert result.plain()["status"] == "measured"
    before, *others = ({entry.name: entry.entropy for entry in result.tensors} for result in found)
    for after in others:
        assert after == before
    patterns = load_file(folder / "model.safetensors")["model.embed_tokens.weight"].view(np.uint16)
    counts = np.unique((patterns >> 7) & 0xFF, return_counts=True)[1]
    share = counts / counts.sum()
    exponent = before["model.embed_tokens.weight"]["exponent"]
    np.testing.assert_allclose(exponent, -np.sum(share * np.log2(share)), rtol=1e-5)
