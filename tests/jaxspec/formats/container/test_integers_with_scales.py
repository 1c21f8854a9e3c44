"""Containers of 8-bit integers with scales: the float32 values of their scheme, in as many bytes as it foretells."""

import functools
import json

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from container_samples import (
    ByMagnitude,
    agreeing,
    directory_of,
    pack_to,
    signed_again,
    tensor,
    weights,
    write_checkpoint,
)
from damage_samples import refused

from jaxspec.compress.schemes import SCHEMES
from jaxspec.formats.container import Container, packed_form, unpack

SCHEME = SCHEMES["any-precision"]
VALUES = {"BF16": ml_dtypes.bfloat16, "F16": np.float16}

#: Scheme -> codec: of one reading of the upper bits each.
CODEC_OF = {"any-precision": "any-precision", "bit-slices": "bit-slices", "elastic": "bit-slices"}

target = jax.jit(SCHEME.matrix.target)


@functools.partial(jax.jit, static_argnums=2)
def draft(values, bits, scheme="any-precision"):
    return SCHEMES[scheme].matrix.hard(values, None, {"slice_bits": bits}).values


def matrix(shape, dtype="BF16", *, seed=1, scale=0.02):
    """Patterns."""
    return weights(shape, seed=seed, dtype=VALUES[dtype], scale=scale)


def values_of(patterns, dtype="BF16"):
    return jnp.asarray(patterns.view(VALUES[dtype]))


def packed_matrix(folder, patterns, dtype="BF16", cut_bits=4, scheme="any-precision"):
    """A container of a matrix, an embedding and a vector."""
    tensors = [
        tensor("embed", "BF16", matrix((20, 61))),
        tensor("matrix", dtype, patterns),
        tensor("norm", "BF16", weights((61,), seed=2)),
    ]
    source = write_checkpoint(folder / "source" / "model.safetensors", tensors, metadata={"format": "pt"})
    pack_to(folder / "a.jspk", source, scheme, ByMagnitude(1.0, cut_bits))
    return folder / "a.jspk", source


SHAPES = [(20, 61), (20, 64), (1, 3000), (300, 1), (3, 5), (1, 1), (7, 33)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("dtype", "slice_bits", "scheme"),
    [("BF16", 4, "any-precision"), ("F16", 2, "bit-slices"), ("BF16", 6, "any-precision"), ("BF16", 3, "elastic")],
)
def test_values_are_those_of_the_scheme(everything_coded, shape, dtype, slice_bits, scheme, tmp_path):
    patterns = matrix(shape, dtype)
    patterns[0, :1] = 0
    path, _ = packed_matrix(tmp_path, patterns, dtype, 8 - slice_bits, scheme)
    found = {
        "target": target(values_of(patterns, dtype)),
        "draft": draft(values_of(patterns, dtype), float(slice_bits), scheme),
    }
    with Container(path) as container:
        assert container.tensors["matrix"].codec == CODEC_OF[scheme]
        for part, expected in found.items():
            read = container.read("matrix", part)
            assert read.dtype == np.uint32
            np.testing.assert_array_equal(read.reshape(shape), np.asarray(expected).view(np.uint32))
            # Whatever is no matrix stays as it is.
            np.testing.assert_array_equal(container.read("embed", part), matrix((20, 61)).reshape(-1))


@pytest.mark.scheme_matrix(1)
@pytest.mark.parametrize("scheme", ["any-precision", "bit-slices"])
def test_odd_scales(everything_coded, scheme, tmp_path):
    """Groups of zeros, of values too small for a float16 scale, and of large ones."""
    patterns = np.concatenate(
        [matrix((2, 64), "BF16", scale=scale) for scale in (1e-30, 1e-8, 1e-5, 1e3)] + [np.zeros((1, 64), np.uint16)]
    )
    path, _ = packed_matrix(tmp_path, patterns, scheme=scheme)
    expected, drafted = (np.asarray(x) for x in (target(values_of(patterns)), draft(values_of(patterns), 4.0, scheme)))
    assert (expected[:2] == 0).all()
    assert np.abs(expected[6:8]).max() > 500
    with Container(path) as container:
        np.testing.assert_array_equal(container.read("matrix").reshape(9, 64), expected.view(np.uint32))
        # Signs of zeros too: the draft may read a negative multiple of a scale of 0.
        np.testing.assert_array_equal(container.read("matrix", "draft").reshape(9, 64), drafted.view(np.uint32))
        assert (drafted[8] == 0).all()


def test_readings_share_all_sections(tmp_path):
    """What a draft takes the upper bits for is no part of the bytes."""
    patterns, found = matrix((40, 61)), {}
    for scheme in CODEC_OF:
        path, _ = packed_matrix(tmp_path / scheme, patterns, scheme=scheme)
        with Container(path) as container:
            found[scheme] = dict(container.tensors["matrix"].chunks[0])
            drafted = container.read("matrix", "draft").view(np.float32)
            whole = container.read("matrix").view(np.float32)
        # Half a step of 16 further up, and so nearer to the target in the mean.
        found[scheme]["error"] = np.mean(drafted - whole) / np.abs(whole).mean()
    sections = [{role: each[role] for role in ("scale", "high", "low")} for each in found.values()]
    assert sections[0] == sections[1] == sections[2]
    assert found["any-precision"]["error"] < -0.1
    assert abs(found["bit-slices"]["error"]) < 0.02
    assert found["elastic"] == found["bit-slices"]


@pytest.mark.scheme_matrix
@pytest.mark.parametrize("slice_bits", [2, 4, 6])
def test_bytes_are_those_of_the_footprint(slice_bits, tmp_path):
    patterns = matrix((96, 200))
    path, _ = packed_matrix(tmp_path, patterns, cut_bits=8 - slice_bits)
    bits = SCHEME.matrix.hard(values_of(patterns), None, {"slice_bits": jnp.asarray(float(slice_bits))}).bits
    with Container(path) as container:
        lengths = {role: 8 * where.length for role, where in container.tensors["matrix"].chunks[0].items()}
        assert {role: SCHEME.codec.part(role) for role in lengths} == {
            "scale": "draft",
            "high": "draft",
            "low": "target",
        }
    assert lengths == {
        "scale": 96 * 7 * 16,
        "high": slice_bits * patterns.size,
        "low": (8 - slice_bits) * patterns.size,
    }
    read = lengths["scale"] + lengths["high"]
    assert read / patterns.size == pytest.approx(float(bits.draft), rel=1e-6)
    assert sum(lengths.values()) / patterns.size == pytest.approx(float(bits.target), rel=1e-6)


@pytest.mark.scheme_matrix
def test_unpacking_writes_float32_under_a_header_that_says_so(tmp_path):
    patterns = matrix((40, 61))
    path, source = packed_matrix(tmp_path, patterns)
    with Container(path) as container:
        unpack(container, tmp_path / "out.safetensors")
        assert packed_form(container.tensors["matrix"]).dtype == "BF16"
        assert packed_form(container.tensors["embed"]) == container.tensors["embed"].form
    found, before = (safetensors.numpy.load_file(file) for file in (tmp_path / "out.safetensors", source))
    assert found["matrix"].dtype == np.float32
    np.testing.assert_array_equal(found["matrix"], target(before["matrix"]))
    for name in ("embed", "norm"):
        assert found[name].tobytes() == before[name].tobytes()
        assert found[name].dtype == before[name].dtype
    content = (tmp_path / "out.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    assert json.loads(content[8 : 8 + length])["__metadata__"] == {"format": "pt"}


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda entry: entry["coding"].update(slice_bits=5), "'high' should hold 764, has 612"),
        (lambda entry: entry["coding"].update(slice_bits=7), "7 upper bits"),
        (lambda entry: entry["coding"].update(packed_dtype="F32"), "packed as 'F32'"),
        (lambda entry: entry.update(dtype="BF16", bytes=2440), "cannot be coded so"),
        (lambda entry: entry.update(codec="cassandra1"), "cannot be coded so"),
        (lambda entry: entry.update(codec="raw"), "has another|should hold|lacks its bytes"),
        (lambda entry: entry.update(shape=[61, 20]), "another|should hold|no whole rows|damaged"),
        (lambda entry: entry["chunks"][0].pop("scale"), "'scale' should hold 80, has none"),
        (lambda entry: entry.update(sha256="0" * 64), "another SHA-256"),
    ],
)
@pytest.mark.parametrize("codec", ["any-precision", "bit-slices"])
def test_a_directory_that_lies(packed, codec, edit, match, tmp_path):
    content, _ = packed[codec]
    directory, _ = directory_of(content)
    edit(directory["tensors"][0])
    refused(tmp_path / "a.jspk", signed_again(*agreeing(content, directory)), match)
