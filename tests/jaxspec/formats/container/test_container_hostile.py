"""Containers whose directory lies, and whose digests agree: odd values, nesting, names, codings, sections."""

import copy
import io
import json
import zlib

import numpy as np
import pytest
from container_samples import (
    agreeing,
    directory_of,
    signed_again,
    under_text,
)
from damage_samples import or_one_line, refused
from rich.console import Console

from jaxspec.errors import InputError
from jaxspec.formats.container import CODECS
from jaxspec.partial_files import to_json
from jaxspec.runs.progress import Reporter
from jaxspec.studies.pack.result import PackResult
from jaxspec.studies.pack.run import inspect_file
from jaxspec.studies.pack.view import code_tables, tensor_table


def inspected(path):
    """Everything that `inspect` writes and shows of a file; or the one line of an InputError."""
    quiet = Console(file=io.StringIO())
    try:
        summary = inspect_file(str(path), reporter=Reporter(quiet))
    except InputError as error:
        return str(error)
    to_json(summary.plain()).encode()
    quiet.print(tensor_table(summary, every=True))
    for entry in summary.tensors:
        for table in code_tables(summary, entry.name) if entry.code_tables else ():
            quiet.print(table)
    return summary


#: What may stand where a directory has something else.
ODD_VALUES = [None, True, -1, 1.5, 1e308, 1 << 61, 1 << 63, 10**4000, "", "é\n\x1b[2J\ud800", "x" * 5000, [], {}, [[]]]


def places(value, path=()):
    """Where a JSON value has values, as paths of keys."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def with_value(directory, path, value):
    """A copy with another value at a place; `KeyError` as the value leaves the place out."""
    if not path:
        return value
    changed = copy.deepcopy(directory)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if value is KeyError:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return changed


def signed_text(content, directory):
    """As `signed_again`, for directories that `directory_bytes` would refuse to write: surrogates escaped."""
    return under_text(content, json.dumps(directory).encode())


@pytest.mark.scheme_matrix(1)
@pytest.mark.parametrize("scheme_name", CODECS)
def test_odd_values_everywhere_in_the_directory(packed, scheme_name, tmp_path):
    content, target = packed[scheme_name]
    directory, _ = directory_of(content)
    # One tensor and one file: the others have the same fields.
    directory["tensors"] = directory["tensors"][:1]
    content, directory = agreeing(content, directory)
    name = directory["tensors"][0]["name"]
    path, rng, refusals = tmp_path / "a.jspk", np.random.default_rng(3), 0
    for place in places(directory):
        values = [ODD_VALUES[i] for i in rng.choice(len(ODD_VALUES), size=5, replace=False)]
        for value in [*values, KeyError]:
            if value is KeyError and not place:
                continue
            path.write_bytes(signed_text(content, with_value(directory, place, value)))
            found = or_one_line(path)
            refusals += isinstance(found, str)
            # Inspecting refuses what reading refuses, and no more.
            shown = inspected(path)
            assert isinstance(shown, str) == isinstance(found, str), (place, value, shown)
            assert isinstance(shown, PackResult) or shown.isprintable()
            if isinstance(found, dict) and name in found:
                assert found[name].tobytes() == target[name].tobytes() or "shape" in place, (place, value)
            elif isinstance(found, dict):
                assert {"tensors", "name"} & set(place), (place, value)
    assert refusals > 100


HOSTILE_NAMES = ["../x", "/etc/passwd", "a/b", "..", ".", "", "a\0b", "a\\b", "a\nb", "\ud800", "x" * 256, "é" * 128, 7]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_names_cannot_leave_the_folder(packed, name, tmp_path):
    content, _ = packed["raw"]
    directory, _ = directory_of(content)
    for_file = with_value(directory, ("files", 0, "name"), name)
    beside = with_value(directory, ("beside",), {str(name): directory["beside"]["config.json"]})
    (tmp_path / "deep").mkdir()
    for changed in (for_file, beside) if isinstance(name, str) else (for_file,):
        path = tmp_path / "a.jspk"
        path.write_bytes(signed_text(content, changed))
        assert "it names a file" in or_one_line(path, tmp_path / "deep" / "out")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.jspk", "deep"]


def change(content, edit):
    """A container whose directory was edited in place and signed."""
    directory, _ = directory_of(content)
    edit(directory["tensors"], directory)
    return signed_again(content, directory)


def _swap_sections(tensors, _):
    chunk = tensors[0]["chunks"][0]
    chunk["sign"], chunk["bitmap"] = chunk["bitmap"], chunk["sign"]


def _claim(elements):
    """One byte per element is listed, and many more elements."""

    def edit(tensors, _):
        tensors[0] |= {"dtype": "BF16", "shape": [1, elements], "bytes": 2 * elements, "chunk_elements": elements}
        tensors[0]["coding"] |= {"kept_per_row": elements}

    return edit


def _many_chunks(tensors, _):
    """The first chunk is sound; after it come more than there can be."""
    entry = tensors[0]
    entry |= {"shape": [20 << 40, 61], "bytes": 2 * (61 * 20 << 40), "chunks": entry["chunks"] + [{}] * 3}
    entry["chunk_elements"] = entry["bytes"] // 2 // 4


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (_swap_sections, "should hold 153, has 93|bitmap"),
        (_claim(1 << 60), "more elements than its sections have bits"),
        (_many_chunks, "out of range"),
        (lambda tensors, _: tensors[0]["chunks"][0].pop("sign"), "'sign' should hold .* has none"),
        (lambda tensors, _: tensors[0].update(chunk_elements=1), "out of range"),
        (lambda tensors, _: tensors[0].update(shape=[61, 20]), "another number|has no whole rows|damaged"),
        (lambda tensors, _: tensors[0].update(dtype="F16"), "damaged"),
        (lambda tensors, _: tensors[0].update(dtype="x\n\x1b", chunk_elements=2440), "a tensor of x .*cannot be coded"),
        (lambda tensors, _: tensors[0].update(codec="zip"), "listed twice, or by 'zip'"),
        (lambda tensors, _: tensors[0].update(sha256="0" * 64), "another SHA-256"),
        (lambda tensors, _: tensors[0]["coding"].update(kept_per_row=36), "bitmap keeps another number"),
        (lambda tensors, _: tensors[0]["coding"].update(cut_bits=3), "'high' should hold"),
        (lambda tensors, _: tensors[0]["coding"].update(codebook="787878"), "lists an exponent twice"),
        (lambda _, whole: whole.update(scheme="zip"), "scheme 'zip' is unknown"),
        (lambda _, whole: whole["files"][0].update(header=[1 << 40, 8, 0]), "outside the file"),
        (lambda tensors, _: tensors[2].update(inline=tensors[2]["inline"] + "\n"), "cannot be read"),
        (lambda tensors, _: tensors[2].pop("inline"), "cannot be read"),
    ],
)
def test_a_directory_that_lies(packed, edit, match, tmp_path):
    refused(tmp_path / "a.jspk", change(packed["cassandra1"][0], edit), match)


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda coding: coding.update(widths=[1, 7, 8]), "128|256|code lengths|should hold"),
        (lambda coding: coding.update(widths=[1, 8, 8]), "do not make up"),
        (lambda coding: coding.update(code_lengths={}), "should hold 2440, has 1220 bytes"),
        (lambda coding: coding["code_lengths"].update({"1": "01" * 256}), "overlap"),
        (lambda coding: coding["code_lengths"].update({"1": "0c" * 256}), "does not end where|another SHA-256"),
        (lambda coding: coding.update(constants={"1": 120}), "field 1 cannot be 120 throughout"),
        (lambda coding: coding.update(constants={"0": 0}), "'plane0' should hold"),
        (lambda coding: coding.update(constants={"0": 0, "1": 1, "2": 2}, code_lengths={}), "no plane"),
    ],
)
def test_a_coding_that_lies(packed, edit, match, tmp_path):
    content = change(packed["huffman"][0], lambda tensors, _: edit(tensors[0]["coding"]))
    refused(tmp_path / "a.jspk", content, match)


def replace_section(content, tensor_name, role, new):
    """A section with other bytes of the same length, and its checksum."""
    directory, _ = directory_of(content)
    chunk = next(e for e in directory["tensors"] if e["name"] == tensor_name)["chunks"][0]
    place, length, _ = chunk[role]
    old = np.frombuffer(content[place : place + length], np.uint8)
    new = new(old).astype(np.uint8).tobytes()
    assert len(new) == length
    chunk[role][2] = zlib.crc32(new)
    return signed_again(content[:place] + new + content[place + length :], directory)


@pytest.mark.parametrize("scheme_name", CODECS)
def test_sections_that_lie_give_no_wrong_values(packed, scheme_name, tmp_path):
    """Other bytes with a right checksum: what they decode to is compared with the tensor's own digest."""
    content, _ = packed[scheme_name]
    rng, path = np.random.default_rng(4), tmp_path / "a.jspk"
    directory, _ = directory_of(content)
    for entry in directory["tensors"]:
        for role in entry["chunks"][0] if entry["chunks"] else ():  # an inline tensor has no section
            for new in (
                lambda old: old * 0,
                lambda old: old * 0 + 255,
                lambda old: old[::-1].copy(),
                lambda old: np.roll(old, 1),
                lambda old: rng.integers(256, size=old.size),
            ):
                changed = replace_section(content, entry["name"], role, new)
                if changed[64:] != content[64:]:
                    refused(path, changed, "damaged")
