"""The directory and the headers inside a container list the same tensors, in one order, in sections of their own."""

import json
import lzma
import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
from container_samples import directory_of, pack_to, signed_again, tensor, weights, write_checkpoint

import jaxspec
from jaxspec.errors import InputError
from jaxspec.formats.container import Container, unpack
from jaxspec.formats.container.layout import compressed, directory_bytes, write_prelude
from jaxspec.formats.container.tensors import HeaderError, parse_header
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


def with_header(content, directory, index, edit):
    """Another header of a file of weights, behind the other sections."""
    offset = int.from_bytes(content[16:24], "little")
    entries = json.loads(directory["files"][index]["header"])
    text = edit(entries)
    text = json.dumps(entries).encode() if text is None else text
    text = len(text).to_bytes(8, "little") + text
    directory["files"][index]["header"] = [offset, len(text), zlib.crc32(text)]
    return content[:16] + (offset + len(text)).to_bytes(8, "little") + content[24:offset] + text


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


def swap_far_entries(tensors, _):
    tensors[0], tensors[3] = tensors[3], tensors[0]


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
        (swap_far_entries, "in another order than the headers"),
        (swap("name"), "in another order than the headers"),
        (lambda tensors, _: tensors.pop(1), "'b' is in a header and not in the directory"),
        (lambda tensors, _: tensors.clear(), "'a' is in a header and not in the directory"),
        (add("e"), "'e' is in the directory and in no header"),
        (lambda tensors, _: tensors[0].update(name="A"), "'a' is in a header and not in the directory"),
        (lambda tensors, _: tensors[2].update(shape=[1, 7]), "'c' has another dtype, shape"),
        (lambda tensors, _: tensors[2].update(dtype="I8"), "'c' has another dtype, shape"),
        (lambda tensors, _: tensors[3].update(dtype="I32", chunk_elements=1200), "'d' has another dtype, shape"),
        (lambda tensors, _: tensors[2].update(file=1), "'c' has another dtype, shape, size or file"),
        (lambda _, whole: whole["files"].reverse(), "has another dtype, shape, size or file"),
        (lambda _, whole: whole["files"].pop(), "damaged"),
        (
            lambda tensors, whole: whole["files"][1].update(header=tensors[0]["chunks"][0]["sign"]),
            "its sections overlap",
        ),
        (overlap(0), "its sections overlap"),
        (overlap(3), "its sections overlap"),
        (lambda tensors, _: tensors[1].update(chunks=tensors[0]["chunks"]), "its sections overlap"),
        (lambda _, whole: whole["beside"].update(x=whole["beside"]["config.json"]), "its sections overlap"),
        (lambda tensors, _: tensors[1]["chunks"][0]["sign"].__setitem__(0, 1 << 40), "outside the file"),
    ],
)
def test_a_directory_that_does_not_agree_is_refused(content, edit, match, tmp_path):
    directory, _ = directory_of(content)
    edit(directory["tensors"], directory)
    refused(tmp_path / "a.jspk", signed_again(content, directory), match)


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda e: e.update(a=e["b"], b=e["a"]), "in another order"),
        (lambda e: e.pop("c") and None, "'c' is in the directory and in no header"),
        (lambda e: e.update(z={"dtype": "F32", "shape": [0], "data_offsets": [4887, 4887]}), "'z' is in a header"),
        (lambda e: e["a"].update(shape=[61, 20]), "'a' has another dtype"),
        (lambda e: e["a"].update(dtype="F16"), "'a' has another dtype"),
        (lambda e: e["a"].update(shape=[20, 60]), "out of range"),
        (lambda e: e["c"].update(data_offsets=[4881, 4888]), "begin at 4881, not at 4880"),
        (lambda e: e["b"].update(data_offsets=[0, 2440]), "begin at 0, not at 2440"),
        (lambda e: e["c"].update(data_offsets=[4887, 4880]), "out of range"),
        (lambda e: e["c"].update(data_offsets=[4880]), "cannot be read"),
        (lambda e: e["c"].update(shape=[7.0]), "out of range"),
        (lambda e: e["c"].update(shape=None), "cannot be read"),
        (lambda e: e.update(c=7), "cannot be read"),
        (lambda e: e.update({"\ud800": e.pop("c")}), "out of range"),
        (lambda e: json.dumps(e).replace('"b"', '"a"').encode(), "lists a name twice"),
        (lambda e: b"[]", "not a JSON object"),
        (lambda e: b"{", "not valid JSON"),
        (lambda e: b"[" * 100_000, "not valid JSON"),
        (lambda e: b"\xff", "not valid JSON"),
    ],
)
def test_a_header_that_does_not_agree_is_refused(content, edit, match, tmp_path):
    directory, _ = directory_of(content)
    changed = with_header(content, directory, 0, edit)
    refused(tmp_path / "a.jspk", signed_again(changed, directory), match)


def test_headers_say_how_long_they_are():
    for header in (b"", b"\x02\0\0\0\0\0\0", b"\x03\0\0\0\0\0\0\0{}"):
        with pytest.raises(HeaderError, match="another number than it says"):
            parse_header(header)
    assert parse_header(b"\x02\0\0\0\0\0\0\0{}") == []


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


def test_a_directory_that_is_not_compressed_or_goes_on_is_refused(content, tmp_path):
    directory, offset = directory_of(content)
    text = directory_bytes(directory)
    for stored in (text, compressed(text)[:-1], compressed(text) + b"\0", b""):
        whole = write_prelude(stored, offset) + content[64:offset] + stored
        refused(tmp_path / "a.jspk", whole, "cannot be uncompressed|not one compressed text")


def test_names_that_compress_without_end_survive(tmp_path):
    """Behind a directory that would be longer than readers uncompress there are zeros, which must be there."""
    tensors = [tensor(f"{'x' * 50_000}.{i}", "U8", np.arange(1, dtype=np.uint8)) for i in range(40)]
    source = write_checkpoint(tmp_path / "m.safetensors", tensors)
    pack_to(tmp_path / "a.jspk", source, "raw")
    with Container(tmp_path / "a.jspk") as container:
        unpack(container, tmp_path / "out.safetensors")
    assert (tmp_path / "out.safetensors").read_bytes() == source.read_bytes()
    found = (tmp_path / "a.jspk").read_bytes()
    assert found.endswith(bytes(1000))
    offset = int.from_bytes(found[16:24], "little")
    for stored in (found[offset:-1], found[offset:] + b"\0", found[offset:-1] + b"\1", found[offset:].rstrip(b"\0")):
        whole = write_prelude(stored, offset) + found[64:offset] + stored
        refused(tmp_path / "b.jspk", whole, "not one compressed text|cannot be uncompressed")


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


def test_the_lies_are_refused_in_version_1_too(tmp_path):
    content = (VERSION_1 / "cassandra1.jspk").read_bytes()
    offset = int.from_bytes(content[16:24], "little")
    directory = json.loads(content[offset:])
    directory["tensors"].reverse()
    text = directory_bytes(directory)
    changed = write_prelude(text, offset, version=1) + content[64:offset] + text
    refused(tmp_path / "a.jspk", changed, "in another order than the headers")
    shutil.copy(VERSION_1 / "cassandra1.jspk", tmp_path / "b.jspk")
    assert inspect_file(str(tmp_path / "b.jspk")).scheme == "cassandra1"
