import json
import shutil

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from container_samples import (
    LOSSLESS,
    ByMagnitude,
    Tensor,
    assert_survives,
    directory_of,
    pack_to,
    tensor,
    weights,
    write_checkpoint,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxspec.formats.container import Container, unpack

#: Bytes of an element of every dtype that safetensors names.
ITEM_BYTES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "F64": 8,
    "I64": 8,
    "U64": 8,
}

ALL_PATTERNS = np.arange(1 << 16, dtype=np.uint16)


@pytest.mark.parametrize("scheme_name", LOSSLESS)
def test_every_pattern_of_16_bits(everything_coded, scheme_name, tmp_path):
    """NaN payloads, infinities, signed zeros and subnormal values, in rows and in a vector."""
    shuffled = np.random.default_rng(0).permutation(ALL_PATTERNS)
    tensors = [
        tensor("matrix", "BF16", shuffled.reshape(512, 128)),
        tensor("half", "F16", shuffled.reshape(512, 128)),
        tensor("vector", "BF16", ALL_PATTERNS),
        tensor("half vector", "F16", ALL_PATTERNS),
    ]
    source = write_checkpoint(tmp_path / "model.safetensors", tensors)
    path = assert_survives(source, tmp_path, scheme_name)
    codecs = {entry["name"]: entry["codec"] for entry in directory_of(path.read_bytes())[0]["tensors"]}
    # Patterns that are all equally frequent cannot become fewer bits; a split, asked for, does not care.
    assert codecs["vector"] == codecs["half vector"] == "raw"
    assert codecs["matrix"] == codecs["half"] == (scheme_name if scheme_name.startswith("cassandra") else "raw")


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("scheme_name", ["huffman", "huffllm"])
def test_every_pattern_among_ordinary_weights(scheme_name, tmp_path):
    """What is rare has long codewords: each pattern once among many values of few exponents."""
    tensors = []
    for name, dtype, values in (("a", "BF16", ml_dtypes.bfloat16), ("b", "F16", np.float16)):
        mixed = np.concatenate([ALL_PATTERNS, weights((3 << 16,), seed=1, dtype=values)])
        mixed = np.random.default_rng(2).permutation(mixed)
        tensors += [tensor(f"{name} matrix", dtype, mixed.reshape(1024, 256)), tensor(f"{name} vector", dtype, mixed)]
    source = write_checkpoint(tmp_path / "model.safetensors", tensors)
    path = assert_survives(source, tmp_path, scheme_name)
    codecs = {entry["name"]: entry["codec"] for entry in directory_of(path.read_bytes())[0]["tensors"]}
    for name in ("a", "b"):
        assert codecs[f"{name} matrix"] == codecs[f"{name} vector"] == scheme_name


@pytest.mark.parametrize(("kept", "cut_bits"), [(0.0, 0), (1 / 3, 7), (1.0, 0), (1.0, 7)])
@pytest.mark.parametrize("scheme_name", ["cassandra1", "cassandra1-coded"])
def test_all_kept_none_kept_all_cut_none_cut(scheme_name, kept, cut_bits, tmp_path):
    source = write_checkpoint(tmp_path / "model.safetensors", [tensor("a", "BF16", weights((20, 61), seed=3))])
    assert_survives(source, tmp_path, scheme_name, split=ByMagnitude(kept, cut_bits))


def rounded_float32(n, *, seed):
    """Float32 that was bfloat16 once: its two low bytes are zeros."""
    return np.random.default_rng(seed).standard_normal(n).astype(ml_dtypes.bfloat16).astype(np.float32).view(np.uint32)


@pytest.mark.scheme_matrix
def test_other_number_formats_are_coded_where_that_pays(tmp_path):
    rng = np.random.default_rng(11)
    narrow = lambda dtype: rng.standard_normal(3001).astype(dtype).view(np.uint8)
    tensors = [
        tensor("f32", "F32", rng.standard_normal(3001).astype(np.float32).view(np.uint32)),
        tensor("was bf16", "F32", rounded_float32(3001, seed=12)),
        tensor("e4m3", "F8_E4M3", narrow(ml_dtypes.float8_e4m3fn)),
        tensor("e5m2", "F8_E5M2", narrow(ml_dtypes.float8_e5m2)),
        tensor("u8", "U8", rng.integers(256, size=3001).astype(np.uint8)),
    ]
    source = write_checkpoint(tmp_path / "model.safetensors", tensors)
    path = assert_survives(source, tmp_path, "huffman")
    with Container(path) as container:
        codecs = {name: found.codec for name, found in container.tensors.items()}
        stored = {name: sum(s.length for c in t.chunks for s in c.values()) for name, t in container.tensors.items()}
        coded = {name: sorted(t.coding.get("code_lengths", ())) for name, t in container.tensors.items()}
    assert codecs == {"f32": "huffman", "was bf16": "huffman", "e4m3": "huffman", "e5m2": "huffman", "u8": "raw"}
    # Of float32 the exponent alone; where the low bytes are zeros, nothing is left of them.
    assert coded["f32"] == ["1"]
    assert coded["was bf16"] == ["1"]
    assert stored["was bf16"] < 3001 * (8 + 3) / 8
    assert stored["f32"] < 3001 * (24 + 3) / 8
    assert stored["u8"] == 3001


PLAIN_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9)


@st.composite
def any_tensors(draw):
    """A few tensors of any dtype and few shapes, with bytes from nothing but zeros to noise."""
    names = draw(st.lists(PLAIN_NAMES.filter(lambda name: name != "__metadata__"), max_size=4, unique=True))
    tensors = []
    for name in names:
        dtype = draw(st.sampled_from(sorted(ITEM_BYTES)))
        shape = draw(st.sampled_from([(), (0,), (0, 5), (5, 0), (1,), (1, 1), (3, 7, 11), (17, 61)]))
        size = int(np.prod(shape, dtype=int)) * ITEM_BYTES[dtype]
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        kind = draw(st.sampled_from(["zeros", "few", "noise"]))
        most = {"zeros": 1, "few": 5, "noise": 256}[kind]
        # BOOL has no other bytes than 0 and 1.
        data = rng.integers(min(most, 2) if dtype == "BOOL" else most, size=size).astype(np.uint8)
        tensors.append(Tensor(name, dtype, shape, data.tobytes()))
    return tensors


@pytest.mark.scheme_matrix
@settings(max_examples=40)
@given(
    tensors=any_tensors(),
    scheme_name=st.sampled_from(LOSSLESS),
    metadata=st.none() | st.dictionaries(PLAIN_NAMES, PLAIN_NAMES, max_size=2),
    padding=st.integers(0, 9),
)
def test_any_tensors(tmp_path_factory, tensors, scheme_name, metadata, padding):
    folder = tmp_path_factory.mktemp("any")
    source = write_checkpoint(folder / "any name.safetensors", tensors, metadata=metadata, padding=padding)
    try:
        assert_survives(source, folder, scheme_name)
    finally:
        shutil.rmtree(folder)


def test_names_headers_and_copies_stay_as_they_are(tmp_path):
    same = weights((9, 41), seed=13)
    tensors = [
        tensor("z: last by name, first by place", "BF16", same),
        tensor('Ω ≠ \u2028 "quoted" \\ / \t 🜨', "BF16", same),
        tensor("x" * 5000, "BF16", same),
        tensor("", "BF16", weights((1, 1), seed=14)),
    ]
    source = write_checkpoint(
        tmp_path / "model.safetensors", tensors, metadata={"format": "pt", "ключ": "é"}, padding=5
    )
    path = assert_survives(source, tmp_path, "huffman")
    with Container(path) as container:
        assert list(container.tensors) == [found.name for found in tensors]


def test_a_library_reads_what_is_unpacked(tmp_path):
    arrays = {"a": np.arange(12, dtype=np.int32).reshape(3, 4), "b": np.float16([0.5, -np.inf, np.nan])}
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors")
    with_draft = pack_to(tmp_path / "a.jspk", tmp_path / "model.safetensors", "cassandra1")
    assert with_draft.tensor_bytes == 12 * 4 + 3 * 2
    with Container(tmp_path / "a.jspk") as container:
        assert unpack(container, tmp_path / "out.safetensors") == [tmp_path / "out.safetensors"]
    found = safetensors.numpy.load_file(tmp_path / "out.safetensors")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def sharded(folder):
    """Two shards with their index, and small files of which one does not belong to the checkpoint."""
    first = [tensor("b", "BF16", weights((20, 61), seed=15)), tensor("d", "F32", rounded_float32(7, seed=16))]
    second = [tensor("a", "BF16", weights((20, 61), seed=17)), tensor("c", "F16", np.zeros((0, 3), np.uint16))]
    names = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    weight_map = {}
    for name, tensors in zip(names, (first, second)):
        write_checkpoint(folder / name, tensors, metadata={"format": "pt"})
        weight_map |= {found.name: name for found in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (folder / "config.json").write_text('{"model_type": "none"}\n')
    (folder / "tokenizer.json").write_bytes(b"\xff\x00 no JSON at all\r\n")
    (folder / "empty.txt").write_bytes(b"")
    return folder


@pytest.mark.parametrize("scheme_name", LOSSLESS)
def test_several_files(scheme_name, tmp_path):
    source = sharded(tmp_path / "source")
    path = assert_survives(source, tmp_path, scheme_name)
    with Container(path) as container:
        assert [name for name, _ in container.files] == sorted(p.name for p in source.glob("*.safetensors"))
        assert container.read_file("config.json") == (source / "config.json").read_bytes()
        assert container.read_file("empty.txt") == b""
        assert container.read_file("model") is None
        assert [found.file for found in container.tensors.values()] == [0, 0, 1, 1]


def test_packing_twice_gives_the_same_bytes(tmp_path):
    source = write_checkpoint(tmp_path / "model.safetensors", [tensor("a", "BF16", weights((20, 61), seed=18))])
    for scheme_name in ("huffllm", "cassandra2"):
        for name in ("one.jspk", "two.jspk"):
            pack_to(tmp_path / name, source, scheme_name)
        assert (tmp_path / "one.jspk").read_bytes() == (tmp_path / "two.jspk").read_bytes()
