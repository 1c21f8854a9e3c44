"""Targets whose values share exponents in blocks: against the MX specification, by hand, in containers and decoded."""

import dataclasses

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import compress_cache, stored_kv
from jaxspec.compress.schemes import SCHEMES
from jaxspec.compress.weights import hard_draft, target_network
from jaxspec.formats import mx, mx_truncated
from jaxspec.formats.container import Container, open_checkpoint, pack
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import forward_text
from jaxspec.models.hf_export import save_directory
from jaxspec.models.hf_load import load_container
from jaxspec.models.layerwise import open_network
from jaxspec.models.stored import as_computed, as_stored
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import compressed_copy
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.pack.draft_split import MatrixSplit, matrix_names, named_knobs
from jaxspec.testing.schemes import prepare_at_once

pytestmark = pytest.mark.scheme_matrix

BLOCKS = [SCHEMES["cassandra2"], SCHEMES["mxint8"]]
both = pytest.mark.parametrize("scheme", BLOCKS, ids=lambda scheme: scheme.name)

#: Rows of more and of less than a block, none of them whole blocks.
CONFIG = DecoderConfig(
    vocab_size=13, hidden_size=44, intermediate_size=70, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=10
)


def test_mxint8_is_that_of_the_specification_without_its_smallest_code():
    values = np.random.default_rng(1).standard_normal((64, 96)).astype(ml_dtypes.bfloat16)
    values[3, 40], values[7, 0] = (
        -255 / 32,
        255 / 64,
    )  # the largest of their blocks, and nearer to 128 than to 127 steps
    # Programs, here and below: operation by operation a matrix is dozens.
    found = np.asarray(jax.jit(SCHEMES["mxint8"].matrix.target)(values), np.float32)
    codes = jax.jit(lambda x: mx.encode(x, mx.INT8))(values)
    expected = np.asarray(jax.jit(mx.decode)(codes))
    smallest = np.asarray(codes.elements).reshape(64, 96) == 0x80
    np.testing.assert_array_equal(found[~smallest], expected[~smallest])
    assert smallest.sum() == 1
    np.testing.assert_array_equal(found[smallest], expected[smallest] * 127 / 128)


def test_bits_by_hand():
    # 70 columns: three exponents of 8 bits. 40 % pruned, 4 of 8 mantissa bits cut: a bit of bitmap, 0.6 times sign and 4 bits.
    found = mx_truncated.nested_bits(0.6, 4.0, bitmap=1.0, columns=70)
    assert found.draft == pytest.approx(1 + 24 / 70 + 0.6 * 5)
    assert found.target == pytest.approx(1 + 24 / 70 + 9)
    assert mx_truncated.nested_bits(1.0, 0.0, bitmap=0.0, columns=64).draft == pytest.approx(9.25)


@pytest.fixture(scope="module")
def network(random_network):
    """Stored in bfloat16, confident."""
    return jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), random_network(CONFIG, 3, sharpness=3.0))


@pytest.fixture(scope="module")
def channel_norms():
    rng = np.random.default_rng(4)
    sizes = {"qkv": 44, "o": 40, "gate_up": 44, "down": 70}
    return {name: jnp.asarray(rng.uniform(0.3, 3, (2, size)), jnp.float32) for name, size in sizes.items()}


def patterns(x):
    return np.asarray(x).astype(ml_dtypes.bfloat16).view(np.uint16)


@both
def test_a_container_holds_this_target_and_this_draft(scheme, network, channel_norms, tmp_path):
    """Bit for bit, and in as many bytes as the footprint says."""
    save_directory(network, CONFIG, tmp_path / "model", max_positions=64)
    target = target_network(scheme, as_stored(network))
    # Of the stored matrices and of the target's own: the same draft.
    knobs = uniform_knobs(scheme, CONFIG, weight_prune=0.35, weight_cut_bits=3.0)
    prepared = prepare_at_once(scheme, target, channel_norms)
    draft = hard_draft(target, prepared, knobs)
    model = open_network(tmp_path / "model")
    norms = {name: np.asarray(prepared[kinds[0]][layer]) for name, (layer, kinds) in matrix_names(model).items()}
    split = MatrixSplit(0.0, 0, named_knobs(model, knobs), norms, frozenset(matrix_names(model)), scheme)
    path = tmp_path / "model.jspk"
    pack(open_checkpoint(tmp_path / "model"), path, scheme.name, split=split)
    found, drafted = load_container(path), load_container(path, part="draft")
    wanted = jax.jit(lambda layers: {kind: layers[kind].values() for kind in CONFIG.matrix_kinds})(target["layers"])
    for kind in CONFIG.matrix_kinds:
        np.testing.assert_array_equal(patterns(found.params["layers"][kind]), patterns(wanted[kind]))
        np.testing.assert_array_equal(
            patterns(drafted.params["layers"][kind]), patterns(draft["layers"][kind].values())
        )
    bits = jax.jit(scheme.matrix.hard)(
        network["layers"]["down"][0],
        prepared["down"][0],
        {"weight_prune": jnp.asarray(0.35), "weight_cut_bits": jnp.asarray(3.0)},
    ).bits
    with Container(path) as container:
        sections = container.tensors["model.layers.0.mlp.down_proj.weight"].chunks[0]
        lengths = {role: section.length for role, section in sections.items()}
    values = 44 * 70
    read = sum(length for role, length in lengths.items() if scheme.codec.part(role) == "draft")
    # Whole words: each packed section ends with up to 31 empty bits.
    assert 0 <= 8 * read - float(bits.draft) * values < 3 * 32
    assert 0 <= 8 * sum(lengths.values()) - float(bits.target) * values < 5 * 32


@both
def test_decoding_is_that_of_the_same_target_and_its_kv_is_nested_too(scheme, network, channel_norms):
    config = dataclasses.replace(CONFIG, shared_kv_exponents=scheme.facts.shared_exponents)
    target = as_computed(target_network(scheme, as_stored(network)))
    prepared = prepare_at_once(scheme, target_network(scheme, as_stored(network)), channel_norms)
    knobs = uniform_knobs(scheme, config, weight_prune=0.2, weight_cut_bits=2.0, kv_prune=0.3, kv_cut_bits=2.0)
    compressed = as_computed(hard_draft(as_stored(network), prepared, knobs))
    ready = compressed_copy(config, compressed, knobs)
    prompts = np.random.default_rng(5).integers(13, size=(3, 6)).astype(np.int32)
    options = {"num_tokens": 12, "decoding": GREEDY, "seed": 0}
    alone = decode_chains(target, config, ready, Prompts(prompts, **options), 0)
    both_ways = decode_chains(target, config, ready, Prompts(prompts, **options), 3)
    np.testing.assert_array_equal(both_ways["tokens"][:, :18], alone["tokens"][:, :18])
    assert both_ways["cycles"].sum() < alone["cycles"].sum()
    # What the target writes is in blocks; in bfloat16 alone it is another network.
    cache = jax.jit(lambda tokens: forward_text(target, config, tokens, kv_codec=stored_kv(config)).cache)(prompts)
    plain = jax.jit(lambda tokens: forward_text(target, config, tokens, kv_codec=stored_kv(CONFIG)).cache)(prompts)
    assert np.any(patterns(cache.value) != patterns(plain.value))
    rows = np.asarray(cache.value).swapaxes(2, 3).reshape(2, 3, 6, 20).astype(ml_dtypes.bfloat16)
    again = jax.jit(lambda x: mx_truncated.round_to(x, scheme.facts.shared_exponents))(rows)
    np.testing.assert_array_equal(patterns(again), patterns(rows))
    read = jax.jit(compress_cache)(cache, knobs)
    assert not np.any(patterns(read.value) & ~patterns(cache.value))
    assert not np.any(patterns(read.key) & ~patterns(cache.key))
