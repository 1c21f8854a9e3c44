"""Files appear whole or not at all, whatever happens while they are written."""

import os
import resource

import numpy as np
import pytest
from container_samples import directory_of, in_sections, pack_to, signed_again, tensor, weights, write_checkpoint

from jaxspec.errors import InputError
from jaxspec.formats.container import Container, unpack
from jaxspec.formats.container.field_codec import FieldCodec


@pytest.fixture
def source(tmp_path):
    """A folder with two shards of one tensor each, and a small file."""
    for index in (1, 2):
        tensors = [tensor(f"matrix {index}", "BF16", weights((20, 61), seed=index))]
        write_checkpoint(tmp_path / "source" / f"model-{index}.safetensors", tensors)
    (tmp_path / "source" / "config.json").write_text("{}")
    return tmp_path / "source"


def listing(folder):
    """Every file below a folder with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Stop(BaseException):
    """Like an interrupt: no `Exception`."""


def stopping_at(call):
    calls = iter(range(1000))

    def on_bytes(count, name):
        if next(calls) == call:
            raise Stop

    return on_bytes


@pytest.fixture
def small_disk():
    """No file may grow beyond 4000 bytes, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("old", [None, b"what was there"])
@pytest.mark.parametrize("call", [0, 1])
def test_packing_that_is_stopped_leaves_what_was_there(source, tmp_path, call, old):
    path = tmp_path / "new folder" / "a.jspk"
    if old:
        path.parent.mkdir()
        path.write_bytes(old)
    with pytest.raises(Stop):
        pack_to(path, source, "huffman", on_bytes=stopping_at(call))
    assert listing(path.parent) == ({"a.jspk": old} if old else {})
    # And nothing is in the way of the next attempt.
    pack_to(path, source, "huffman")
    assert list(listing(path.parent)) == ["a.jspk"]


def test_packing_on_a_full_disk_leaves_what_was_there(source, tmp_path, small_disk):
    path = tmp_path / "out" / "a.jspk"
    path.parent.mkdir()
    path.write_bytes(b"what was there")
    with pytest.raises(OSError, match="File too large"):
        pack_to(path, source, "raw")
    assert listing(path.parent) == {"a.jspk": b"what was there"}


@pytest.mark.parametrize("kind", ["wrong", "raises"])
def test_a_codec_that_loses_bits_is_found_out(source, tmp_path, monkeypatch, kind):
    def decode(self, coding, form, count, sections):
        if kind == "raises":
            raise MemoryError
        return np.zeros(count, np.uint16)

    monkeypatch.setattr(FieldCodec, "decode", decode)
    with pytest.raises(AssertionError if kind == "wrong" else MemoryError):
        pack_to(tmp_path / "out" / "a.jspk", source, "huffman")
    assert listing(tmp_path / "out") == {}


def test_where_no_container_can_be_written(source, tmp_path):
    before = listing(tmp_path)
    (tmp_path / "folder.jspk").mkdir()
    for path in (tmp_path / "folder.jspk", source / "config.json" / "a.jspk", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match="cannot be written"):
            pack_to(path, source, "raw")
    assert listing(tmp_path) == before


@pytest.fixture
def container(source, tmp_path):
    pack_to(tmp_path / "a.jspk", source, "huffman")
    with Container(tmp_path / "a.jspk") as opened:
        yield opened


@pytest.mark.parametrize("call", [0, 1])
def test_unpacking_that_is_stopped_leaves_no_file(container, tmp_path, call):
    with pytest.raises(Stop):
        unpack(container, tmp_path / "out", on_bytes=stopping_at(call))
    assert not (tmp_path / "out").exists()


def test_unpacking_that_is_stopped_leaves_old_files(container, tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("model-1.safetensors", "model-2.safetensors", "config.json", "own notes"):
        (tmp_path / "out" / name).write_text(f"old {name}")
    before = listing(tmp_path / "out")
    with pytest.raises(Stop):
        unpack(container, tmp_path / "out", force=True, on_bytes=stopping_at(1))
    assert listing(tmp_path / "out") == before


def test_unpacking_on_a_full_disk_leaves_no_file(source, tmp_path, request):
    # The first shard fits below the limit and the second does not.
    write_checkpoint(source / "model-2.safetensors", [tensor("long", "BF16", weights((3000,), seed=3))])
    pack_to(tmp_path / "a.jspk", source, "raw")
    request.getfixturevalue("small_disk")
    with Container(tmp_path / "a.jspk") as opened, pytest.raises(OSError, match="File too large"):
        unpack(opened, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("force", [False, True])
def test_a_container_damaged_near_its_end_unpacks_to_nothing(source, container, tmp_path, force):
    content = bytearray(container.path.read_bytes())
    last = container.tensors["matrix 2"].chunks[0]["plane0"]
    content[last.offset] ^= 1
    (tmp_path / "b.jspk").write_bytes(content)
    (tmp_path / "out").mkdir()
    if force:
        (tmp_path / "out" / "config.json").write_text("old")
    before = listing(tmp_path / "out")
    with Container(tmp_path / "b.jspk") as damaged, pytest.raises(InputError, match="checksum of the section"):
        unpack(damaged, tmp_path / "out", force=force)
    assert listing(tmp_path / "out") == before


def test_files_that_are_there_are_replaced_only_by_force(source, container, tmp_path):
    out = tmp_path / "out"
    unpack(container, out)
    assert listing(out) == listing(source)
    # Files of other names are nobody's business.
    (out / "own notes").write_text("mine")
    (out / "config.json").unlink()
    (out / "model-2.safetensors").write_text("old")
    before = listing(out)
    with pytest.raises(InputError, match=r"model-1\.safetensors is there already; give another --out, or --force"):
        unpack(container, out)
    assert listing(out) == before
    written = unpack(container, out, force=True)
    assert sorted(path.name for path in written) == ["config.json", "model-1.safetensors", "model-2.safetensors"]
    assert listing(out) == {**listing(source), "own notes": b"mine"}


def test_one_file_is_replaced_only_by_force(tmp_path):
    one = write_checkpoint(tmp_path / "m.safetensors", [tensor("a", "U8", np.arange(7, dtype=np.uint8))])
    pack_to(tmp_path / "a.jspk", one, "raw")
    out = tmp_path / "out.safetensors"
    out.write_text("old")
    with Container(tmp_path / "a.jspk") as opened:
        with pytest.raises(InputError, match="is there already"):
            unpack(opened, out)
        assert out.read_text() == "old"
        assert unpack(opened, out, force=True) == [out]
    assert out.read_bytes() == one.read_bytes()


@pytest.mark.parametrize("force", [False, True])
def test_where_nothing_can_be_unpacked(source, container, tmp_path, force):
    (tmp_path / "file").write_text("a file")
    (tmp_path / "out" / "model-2.safetensors").mkdir(parents=True)
    before = listing(tmp_path)
    for out in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "out", tmp_path / ("x" * 300)):
        with pytest.raises(InputError, match=r"cannot be made a folder|is there already|is a folder"):
            unpack(container, out, force=force)
    assert listing(tmp_path) == before


def test_an_unreadable_header_stops_before_anything_is_written(container, tmp_path):
    content = container.path.read_bytes()
    content, directory = in_sections(content, directory_of(content)[0])
    directory["files"][1]["header"][2] ^= 1
    (tmp_path / "b.jspk").write_bytes(signed_again(content, directory))
    with pytest.raises(InputError, match="checksum of the section"), Container(tmp_path / "b.jspk") as damaged:
        unpack(damaged, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
