"""No container grows by coding: what gains nothing is stored as it is, says so, and is read by both parts whole."""

import ml_dtypes
import numpy as np
import pytest
from container_samples import ByMagnitude, pack_to, tensor, weights, write_checkpoint

from jaxspec.formats.container import CODECS, Container, unpack
from jaxspec.studies.pack.run import describe, inspect_file
from jaxspec.studies.pack.view import whole_lines

RANDOM = np.random.default_rng(1).integers(1 << 16, size=(64, 96)).astype(np.uint16)
COLUMN = weights((4096, 1), seed=2)


def checkpoint(folder, random=RANDOM):
    tensors = [
        tensor("random", "BF16", random),
        tensor("column", "BF16", COLUMN),
        tensor("ordinary", "BF16", weights((64, 96), seed=3)),
        tensor("short", "BF16", weights((9,), seed=4)),
    ]
    return write_checkpoint(folder / "model.safetensors", tensors)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Random patterns, a matrix of one column, ordinary weights, and a vector too short to be coded."""
    return checkpoint(tmp_path_factory.mktemp("gain"))


@pytest.mark.scheme_matrix(3)
@pytest.mark.parametrize("scheme_name", CODECS)
def test_no_tensor_takes_more_than_it_is(source, tmp_path, scheme_name):
    if scheme_name in ("any-precision", "bit-slices"):
        # Scales in float16 take values below 8.3e6 alone: random patterns without the exponent's upper bit.
        source = checkpoint(tmp_path, RANDOM & 0xBFFF)
    pack_to(tmp_path / "a.jspk", source, scheme_name)
    with Container(tmp_path / "a.jspk") as container:
        entries = {entry.name: entry for entry in describe(container).tensors}
        for name, patterns in (("random", RANDOM), ("column", COLUMN)):
            assert entries[name].stored_bytes <= entries[name].bytes
            parts = ("target", "draft") if entries[name].codec == "raw" else ("target",) * container.lossless
            for part in parts:
                np.testing.assert_array_equal(container.read(name, part), patterns.reshape(-1))
        if container.lossless:
            unpack(container, tmp_path / "out.safetensors")
            assert (tmp_path / "out.safetensors").read_bytes() == source.read_bytes()
    # Shared exponents and scales take the same whatever the values are; unary exponents and Huffman codes do not.
    alike = ("cassandra2", "mxint8", "any-precision", "bit-slices")
    assert entries["random"].codec == (scheme_name if scheme_name in alike else "raw")
    assert entries["ordinary"].codec == scheme_name
    assert entries["short"].codec == "raw"
    assert (tmp_path / "a.jspk").stat().st_size < source.stat().st_size + 1500
    if scheme_name == "raw":
        assert not any(entry.whole for entry in entries.values())
        return
    assert entries["ordinary"].whole is None
    assert entries["short"].whole.why == "gain"
    if scheme_name in ("cassandra1", "cassandra1-coded"):
        assert entries["random"].whole.why == "gain"
        assert entries["random"].whole.coded_bytes > 2.3 * RANDOM.nbytes
    if scheme_name == "cassandra2":
        # A value alone in its row has an exponent of its own: 17 bits.
        assert entries["column"].whole.coded_bytes > 17 / 16 * COLUMN.nbytes


def test_inspect_says_which_and_why(source, tmp_path):
    tensors = [tensor("embed", "BF16", weights((9, 96), seed=5)), tensor("w", "BF16", RANDOM)]
    tensors += [tensor("cube", "BF16", weights((4, 5, 6), seed=6))]
    write_checkpoint(tmp_path / "m.safetensors", tensors)
    pack_to(tmp_path / "a.jspk", tmp_path / "m.safetensors", "cassandra1")
    summary = inspect_file(str(tmp_path / "a.jspk"))
    assert {entry.name: entry.whole.why for entry in summary.tensors} == {
        "embed": "asked",
        "w": "gain",
        "cube": "form",
    }
    gain, asked, form = whole_lines(summary)
    assert gain.startswith("1 tensor raw: coded it would be no smaller (w: ")
    assert gain.endswith("instead of 12.29 kB)")
    assert asked.startswith("1 tensor raw: to be whole in the draft")
    assert form.startswith("1 tensor raw: the scheme codes no tensor of this dtype and shape")


@pytest.mark.parametrize(("kept", "cut_bits"), [(0.05, 4), (1.0, 4)])
@pytest.mark.parametrize("scheme_name", ["cassandra1", "cassandra1-coded", "cassandra2"])
def test_a_draft_of_few_values_costs_its_mask_and_no_more(tmp_path, scheme_name, kept, cut_bits):
    """Of 95 % pruned weights in 16 bits nothing is saved; what the draft is asked to be, it is."""
    matrix = weights((16, 640), seed=7)
    path = write_checkpoint(tmp_path / "m.safetensors", [tensor("w", "BF16", matrix)])
    pack_to(tmp_path / "a.jspk", path, scheme_name, ByMagnitude(kept, cut_bits))
    with Container(tmp_path / "a.jspk") as container:
        (entry,) = describe(container).tensors
        draft = container.read("w", "draft").reshape(matrix.shape)
    assert entry.codec == scheme_name
    assert ((draft != 0).sum(axis=1) <= round(kept * 640)).all()
    assert entry.draft_bytes < 0.75 * matrix.nbytes
    assert entry.stored_bytes <= matrix.nbytes * 17 / 16


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """10,000 tensors of four values."""
    folder = tmp_path_factory.mktemp("many")
    values = np.random.default_rng(9).standard_normal((10_000, 4)).astype(ml_dtypes.bfloat16).view(np.uint16)
    tensors = [tensor(f"layers.{i}.scale[{i}]", "BF16", row) for i, row in enumerate(values)]
    source = write_checkpoint(folder / "m.safetensors", tensors)
    pack_to(folder / "a.jspk", source, "cassandra1")
    return source, folder / "a.jspk"
