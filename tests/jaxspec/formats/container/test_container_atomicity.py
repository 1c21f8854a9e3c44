"""Files appear whole or not at all, whatever happens while they are written."""

import os

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


@pytest.fixture
def container(source, tmp_path):
    pack_to(tmp_path / "a.jspk", source, "huffman")
    with Container(tmp_path / "a.jspk") as opened:
        yield opened


def test_unpacking_that_is_stopped_leaves_old_files(container, tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("model-1.safetensors", "model-2.safetensors", "config.json", "own notes"):
        (tmp_path / "out" / name).write_text(f"old {name}")
    before = listing(tmp_path / "out")
    with pytest.raises(Stop):
        unpack(container, tmp_path / "out", force=True, on_bytes=stopping_at(1))
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


def test_an_unreadable_header_stops_before_anything_is_written(container, tmp_path):
    content = container.path.read_bytes()
    content, directory = in_sections(content, directory_of(content)[0])
    directory["files"][1]["header"][2] ^= 1
    (tmp_path / "b.jspk").write_bytes(signed_again(content, directory))
    with pytest.raises(InputError, match="checksum of the section"), Container(tmp_path / "b.jspk") as damaged:
        unpack(damaged, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]
