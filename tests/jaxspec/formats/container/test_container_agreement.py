"""The directory and the headers inside a container list the same tensors, in one order, in sections of their own."""

import lzma
import zlib
from pathlib import Path

import numpy as np
import pytest
from container_samples import directory_of, pack_to, signed_again, tensor, weights, write_checkpoint

import jaxspec
from jaxspec.errors import InputError
from jaxspec.formats.container import Container, unpack
from jaxspec.formats.container.layout import write_prelude
from jaxspec.studies.pack.run import inspect_file

VERSION_1 = Path(__file__).with_name("version_1")

SHAPE = (20, 61)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """A container of two files; two of its tensors have one form."""
    folder = tmp_path_factory.mktemp("agreement")
    first = [tensor("a", "BF16", weights(SHAPE, seed=1)), tensor("b", "BF16", weights(SHAPE, seed=2))]
    write_checkpoint(folder / "in" / "one.safetensors", [*first, tensor("c", "U8", np.arange(7, dtype=np.uint8))])
    write_checkpoint(folder / "in" / "two.safetensors", [tensor("d", "F32", np.arange(300, dtype=np.uint32))])
    (folder / "in" / "config.json").write_text("{}")
    pack_to(folder / "a.jspk", folder / "in", "cassandra1")
    return (folder / "a.jspk").read_bytes()


def refused(path, content, match):
    """By whoever opens it: unpack, inspect, load as target and as draft."""
    path.write_bytes(content)

    def unpacked():
        with Container(path) as container:
            unpack(container, path.parent / "out")

    calls = [unpacked, lambda: inspect_file(str(path)), lambda: jaxspec.load(path)]
    for call in [*calls, lambda: jaxspec.load(path, part="draft")]:
        with pytest.raises(InputError, match=match) as caught:
            call()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 1000
    assert not (path.parent / "out").exists()


def swap(key):
    def edit(tensors, _):
        tensors[0][key], tensors[1][key] = tensors[1][key], tensors[0][key]

    return edit


def swap_entries(tensors, _):
    tensors[0], tensors[1] = tensors[1], tensors[0]


def add(name):
    """One more entry, of no bytes, so that no section is used twice."""

    def edit(tensors, _):
        nothing = {
            "name": name,
            "dtype": "F32",
            "shape": [0],
            "bytes": 0,
            "codec": "raw",
            "coding": {},
            "chunks": [],
            "inline": "",
        }
        tensors.append(tensors[-1] | nothing)

    return edit


def overlap(by):
    """A section of one tensor that begins inside another's, checksum and digests as they should be."""

    def edit(tensors, _):
        tensors[1]["chunks"][0]["sign"][:2] = [tensors[0]["chunks"][0]["pruned"][0] + by, 7]

    return edit


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (swap_entries, "in another order than the headers"),
        (swap("name"), "in another order than the headers"),
        (lambda tensors, _: tensors.pop(1), "'b' is in a header and not in the directory"),
        (add("e"), "'e' is in the directory and in no header"),
        (lambda tensors, _: tensors[2].update(shape=[1, 7]), "'c' has another dtype, shape"),
        (lambda _, whole: whole["files"].reverse(), "has another dtype, shape, size or file"),
        (
            lambda tensors, whole: whole["files"][1].update(header=tensors[0]["chunks"][0]["sign"]),
            "its sections overlap",
        ),
        (overlap(0), "its sections overlap"),
        (lambda tensors, _: tensors[1].update(chunks=tensors[0]["chunks"]), "its sections overlap"),
    ],
)
def test_a_directory_that_does_not_agree_is_refused(content, edit, match, tmp_path):
    directory, _ = directory_of(content)
    edit(directory["tensors"], directory)
    refused(tmp_path / "a.jspk", signed_again(content, directory), match)


@pytest.mark.scheme_matrix
def test_a_directory_that_expands_without_end_is_refused(content, tmp_path):
    _, offset = directory_of(content)
    for text in (b" " * (1 << 26), b"[" + b"[]," * (1 << 24) + b"[]]"):
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 1}]
        for version, stored in (
            (2, zlib.compress(text, 9)),
            (3, lzma.compress(text, lzma.FORMAT_RAW, filters=filters)),
        ):
            whole = write_prelude(stored, offset, version) + content[64:offset] + stored
            refused(tmp_path / "a.jspk", whole, "not one compressed text of at most")


@pytest.mark.parametrize("scheme_name", ["cassandra1", "huffman"])
def test_files_of_version_1_are_read(scheme_name, tmp_path):
    """Written by the release that knew version 1 alone."""
    tensors = [
        tensor("matrix", "BF16", weights(SHAPE, seed=1)),
        tensor("norm", "BF16", weights((61,), seed=2)),
        tensor("empty", "F16", np.zeros((0, 3), np.uint16)),
        tensor("counts", "U8", np.arange(7, dtype=np.uint8)),
    ]
    source = write_checkpoint(tmp_path / "m.safetensors", tensors, metadata={"made": "by hand"}, padding=3)
    old = VERSION_1 / f"{scheme_name}.jspk"
    assert old.read_bytes()[8] == 1
    pack_to(tmp_path / "new.jspk", source, scheme_name)
    with Container(old) as container, Container(tmp_path / "new.jspk") as new:
        unpack(container, tmp_path / "out")
        for name in container.tensors:
            for part in ("target", "draft"):
                np.testing.assert_array_equal(container.read(name, part), new.read(name, part))
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == source.read_bytes()
    ratio = inspect_file(str(old)).ratio.known
    assert ratio == pytest.approx(inspect_file(str(tmp_path / "new.jspk")).ratio.known)
