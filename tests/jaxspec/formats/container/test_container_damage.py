"""Whatever a file holds, reading it ends in the tensors that were packed or in one line."""

import numpy as np
import pytest
from container_samples import (
    directory_of,
    under_text,
)
from damage_samples import or_one_line, read_all, refused

from jaxspec.errors import InputError
from jaxspec.formats.container import CODECS, Container


def same(found, target):
    return found.keys() == target.keys() and all(found[name].tobytes() == target[name].tobytes() for name in target)


def covered(content):
    """Which bytes mean something: prelude, directory and sections, without what lies between."""
    directory, offset = directory_of(content)
    meaning = np.zeros(len(content), bool)
    meaning[:64] = meaning[offset:] = True
    listed = [*directory["beside"].values()]
    listed += [where for entry in directory["tensors"] for chunk in entry["chunks"] for where in chunk.values()]
    for place, length, _ in listed:
        meaning[place : place + length] = True
    return meaning


@pytest.mark.scheme_matrix
@pytest.mark.parametrize(("scheme_name", "step"), [("raw", 1), ("huffman", 7), ("cassandra1", 53)])
def test_every_changed_byte_is_noticed(packed, scheme_name, step, tmp_path):
    content, target = packed[scheme_name]
    meaning = covered(content)
    assert 0.8 < meaning.mean() < 1
    rng = np.random.default_rng(0)
    path = tmp_path / "a.jspk"
    for place in [*range(64), *range(64, len(content), step)]:
        changed = bytearray(content)
        changed[place] ^= 1 << rng.integers(8)
        path.write_bytes(changed)
        found = or_one_line(path)
        assert isinstance(found, str) == bool(meaning[place]), place
        assert isinstance(found, str) or same(found, target)


@pytest.mark.parametrize("scheme_name", CODECS)
def test_what_is_cut_or_longer_is_refused(packed, scheme_name, tmp_path):
    content, target = packed[scheme_name]
    path = tmp_path / "a.jspk"
    for length in [*range(70), *range(70, len(content), 97), len(content) - 1]:
        refused(path, content[:length])
    for more in (b"\0", b"\n", content):
        refused(path, content + more, "damaged")
    refused(path, b"\0" + content, "is no container")
    path.write_bytes(content)
    assert same(read_all(path, tmp_path / "out"), target)


def test_other_files_are_no_containers(packed, tmp_path):
    content, _ = packed["raw"]
    path = tmp_path / "a.jspk"
    refused(path, b"", "is no container: it does not begin as one")
    refused(path, b"PK\x03\x04 a zip file", "is no container")
    # A transfer as text changes the ends of lines, which is what the magic is there to show.
    refused(path, content.replace(b"\r\n", b"\n"), "is no container")
    refused(path, content.replace(b"\n", b"\r\n"), "is no container")
    refused(path, content[:63], "ends after 63 bytes")
    with pytest.raises(InputError, match="cannot be opened"):
        Container(tmp_path)
    with pytest.raises(InputError, match="cannot be opened"):
        Container(tmp_path / "absent.jspk")
    with pytest.raises(InputError, match="cannot be opened"):
        Container("nul\0.jspk")


@pytest.mark.parametrize("version", [0, 5, 2**32 - 1])
def test_another_version_is_named(packed, version, tmp_path):
    content, _ = packed["raw"]
    changed = content[:8] + version.to_bytes(4, "little") + content[12:]
    message = refused(tmp_path / "a.jspk", changed, f"layout version {version}; this release reads 1 to 4")
    assert "damaged" not in message


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"7", b"{", b'"x"', b"\xff\xfe{}", b"[" * 100_000, b'{"a": 1e999}', b"{}"]
)
def test_a_directory_that_is_none(packed, text, tmp_path):
    refused(tmp_path / "a.jspk", under_text(packed["raw"][0], text), "damaged")
