"""Changes to sections and directory behind which all checksums are computed anew: files that lie on purpose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.fuzz_container.mutations import (
    CHANGES,
    NESTED,
    ODD_NUMBERS,
    Apart,
    Random,
    flip,
    near,
    overwrite,
    some,
)

__all__ = ["mutated_and_signed"]

#: What may stand where a directory has something else.
_ODD_VALUES = [
    None,
    True,
    False,
    0.5,
    1e308,
    float("nan"),
    "",
    "raw",
    "\ud800\n\x1b[2J",
    "9" * 5000,
    [],
    {},
    [[]],
    [None],
]

_ITEM_BYTES = {"F8_E4M3": 1, "F8_E5M2": 1, "BF16": 2, "F16": 2, "F32": 4}

_DTYPES = [*_ITEM_BYTES, "F64", "I8", "U64", "BOOL", "none"]

_CODECS = ["huffman", "huffllm", "cassandra1", "cassandra1-coded", "cassandra2", "any-precision", "bit-slices", "raw"]

_ROLES = ["bitmap", "sign", "exponent", "scale", "high", "low", "pruned", "pruned_rest", "bytes", "plane0", "field1"]


def _odd_value(rng: Random, apart: Apart) -> None:
    node = some(rng, apart.nodes())
    old = node.get()
    if type(old) is int and rng.integers(4):
        node.set(near(rng, old))
    elif isinstance(old, str) and old and rng.integers(2):
        place = int(rng.integers(len(old)))
        node.set(old[:place] + some(rng, "0f/.\n\\é") + old[place + 1 :] if rng.integers(2) else old[:place])
    else:
        node.set(copy.deepcopy(some(rng, _ODD_VALUES) if rng.integers(3) else some(rng, ODD_NUMBERS)))


def _nested(rng: Random, apart: Apart) -> None:
    """Lists in lists, near and beyond what JSON readers follow."""
    depth = some(rng, [3, 90, int(rng.integers(900, 1000)), 100_000])
    some(rng, apart.nodes()).set(f"{NESTED}{depth}")


def _remove_or_repeat(rng: Random, apart: Apart) -> None:
    node = some(rng, apart.nodes())
    if isinstance(node.parent, list) and rng.integers(2):
        node.parent.insert(int(rng.integers(len(node.parent) + 1)), copy.deepcopy(node.get()))
    elif isinstance(node.parent, dict) and rng.integers(2):
        node.parent[some(rng, [*node.parent, *_ROLES, "../x", "1", "-1"])] = node.parent.pop(node.key)
    else:
        del node.parent[node.key]


def _swap_values(rng: Random, apart: Apart) -> None:
    """Two values of the same kind: offsets, names, chunks, tensors."""
    nodes = apart.nodes()
    one = some(rng, nodes)
    same = [other for other in nodes if type(other.get()) is type(one.get())]
    other = some(rng, same)
    first, second = copy.deepcopy(one.get()), copy.deepcopy(other.get())
    try:
        other.set(first)
        one.set(second)
    except (KeyError, IndexError):
        pass  # one lay inside the other


def _section(rng: Random, apart: Apart) -> None:
    sections = apart.sections()
    if not sections:
        return
    section = some(rng, sections)
    kind = rng.integers(3)
    if kind == 0:
        section[int(rng.integers(2))] = near(rng, section[int(rng.integers(2))])
    elif kind == 1:
        section[:] = some(rng, sections)
    elif section[1]:
        piece = bytearray(apart.body[section[0] : section[0] + section[1]])
        (flip if rng.integers(2) else overwrite)(rng, piece)
        apart.body[section[0] : section[0] + section[1]] = piece[: section[1]].ljust(section[1], b"\0")


def _shape(rng: Random, apart: Apart) -> None:
    """Another form of a tensor, mostly one that agrees with itself."""
    entry = some(rng, apart.tensors() or [{}])
    elements = some(rng, [1220, 1219, 1221, 61, 0, 1 << 20, 1 << 40, 1 << 60, int(rng.integers(1, 5000))])
    rows = some(rng, [1, 2, 20, 61, elements or 1, int(rng.integers(1, 99))])
    dtype = some(rng, _DTYPES) if rng.integers(2) else entry.get("dtype")
    entry["shape"] = [rows, elements // rows] if rng.integers(2) else [elements]
    size = _ITEM_BYTES.get(str(dtype), 1)
    if rng.integers(4):
        entry["dtype"], entry["bytes"] = dtype, int(np.prod(entry["shape"], dtype=object)) * size
        entry["chunk_elements"] = max(1, -(-entry["bytes"] // size // max(1, len(apart.chunks(entry)))))
        if rng.integers(4) == 0:
            entry["chunk_elements"] = near(rng, entry["chunk_elements"])


def _fewer_rows(rng: Random, apart: Apart) -> None:
    """A tensor of one chunk with fewer elements, and sections about as short as they then are."""
    entry = some(rng, apart.tensors() or [{}])
    chunks, size = apart.chunks(entry), _ITEM_BYTES.get(str(entry.get("dtype")), 1)
    if len(chunks) != 1 or entry.get("bytes") != 1220 * size:
        return
    rows = int(rng.integers(1, 20))
    entry |= {"shape": [rows, 61], "bytes": 61 * rows * size}
    for role, section in chunks[0].items():
        if not isinstance(section, list) or len(section) != 3 or role == "field1":
            continue
        # Planes end in whole words, but for those of whole bytes; unary codewords anywhere.
        exact = section[1] * rows / 20 if type(section[1]) is int else 0
        words = role in ("sign", "high", "low", "pruned_rest") and rng.integers(8)
        section[1] = 4 * int(np.ceil(exact / 4)) if words else int(np.ceil(exact))


def _entries(rng: Random, apart: Apart) -> None:
    """Tensors swapped, removed, added, or renamed in the directory, not in the headers."""
    listed = apart.directory.get("tensors") if isinstance(apart.directory, dict) else None
    entries = apart.tensors()
    if not isinstance(listed, list) or len(entries) < 2 or len(entries) != len(listed):
        return
    one, other = (int(i) for i in rng.choice(len(listed), size=2, replace=False))
    kind = rng.integers(5)
    if kind == 0:
        listed[one], listed[other] = listed[other], listed[one]
    elif kind == 1:
        listed[one]["name"], listed[other]["name"] = listed[other].get("name"), listed[one].get("name")
    elif kind == 2:
        del listed[one]
    elif kind == 3:
        more = copy.deepcopy(listed[one]) | {"name": "one more"}
        nothing = {"shape": [0], "bytes": 0, "codec": "raw", "coding": {}, "chunks": []}
        listed.insert(other, more | nothing if rng.integers(2) else more)
    else:
        listed[one]["file"] = near(rng, 0)


def _header(rng: Random, apart: Apart) -> None:
    """Another header than the directory lists: tensors swapped, removed, added, of another form, or elsewhere."""
    files = apart.files()
    if not files:
        return
    file = some(rng, files)
    header = apart.header(file)
    names = [name for name, entry in header.items() if isinstance(entry, dict)] if isinstance(header, dict) else []
    if not names:
        return
    one, other, kind = some(rng, names), some(rng, names), rng.integers(6)
    if kind == 0:
        header[one], header[other] = header[other], header[one]
    elif kind == 1:
        del header[one]
    elif kind == 2:
        header["one more"] = copy.deepcopy(header[one]) | ({"shape": [0]} if rng.integers(2) else {})
    elif kind == 3:
        header[one]["shape"] = [near(rng, 61)] if rng.integers(2) else [61, near(rng, 20)]
    elif kind == 4:
        header[one]["dtype"] = some(rng, _DTYPES)
    else:
        header[one]["data_offsets"] = [near(rng, 1220), near(rng, 2440)]
    apart.set_header(file, header)


def _overlap(rng: Random, apart: Apart) -> None:
    """A section that begins within another."""
    sections = [section for section in apart.sections() if section[1]]
    if len(sections) > 1:
        one, other = some(rng, sections), some(rng, sections)
        one[0] = other[0] + int(rng.integers(other[1]))
        one[1] = min(one[1], len(apart.body) - one[0])


def _coding(rng: Random, apart: Apart) -> None:
    """Code tables and parameters of a tensor, or another codec."""
    entry = some(rng, apart.tensors() or [{}])
    coding = entry.get("coding")
    if not isinstance(coding, dict) or rng.integers(6) == 0:
        entry["codec"] = some(rng, _CODECS)
        return
    kind = rng.integers(6)
    if "slice_bits" in coding and rng.integers(2):
        coding["slice_bits"] = some(rng, [2, 3, 5, 6, 1, 7, 8, -1, 1 << 40, None, 4.0, True])
        coding["packed_dtype"] = some(rng, _DTYPES)
    elif kind == 0:
        coding["kept_per_row"] = near(rng, 37)
    elif kind == 5:
        constants = coding.get("constants")
        fields = ["0", "1", "2", "3", *(constants if isinstance(constants, dict) else ())]
        coding["constants"] = {some(rng, fields): near(rng, 5) for _ in range(rng.integers(4))}
    elif kind == 1:
        coding["cut_bits"] = some(rng, [0, 3, 5, 7, 8, 9, 10, 11, 16, -1, 1 << 40, None, 4.0, True])
    elif kind == 2:
        coding["widths"] = some(
            rng,
            [[1, 8, 7], [1, 5, 10], [1, 7, 8], [16], [1] * 16, [15, 1], [8, 8], [1, 8, 7, 8, 8], [1, 4, 3], [0, 16]],
        )
    elif kind == 3:
        lengths = coding.get("code_lengths")
        lengths = lengths if isinstance(lengths, dict) else {}
        coding["code_lengths"] = lengths
        field = some(rng, [*lengths, "0", "1", "2", "-1", "01", "x"])
        lengths[field] = _table(rng, lengths.get(field))
    else:
        key = some(rng, ["codebook", "pruned_codebook"])
        coding[key] = _table(rng, coding.get(key))


def _table(rng: Random, old: Any) -> Any:
    """A table in hexadecimal digits: symbols swapped, cut, repeated, replaced, all of one kind."""
    try:
        table = bytearray(bytes.fromhex(old))
    except (TypeError, ValueError):
        table = bytearray()
    kind = rng.integers(6)
    if kind == 0:
        return "".join(some(rng, [f"{n:02x}" for n in (0, 1, 2, 8, 12, 13)]) * some(rng, [1, 2, 16, 32, 256, 1 << 16]))
    if table and kind == 1:
        first, second = rng.integers(len(table), size=2)
        table[first], table[second] = table[second], table[first]
    elif table and kind == 2:
        del table[int(rng.integers(len(table))) :]
    elif table and kind == 3:
        table[int(rng.integers(len(table)))] = int(rng.integers(256 if rng.integers(2) else 13))
    elif kind == 4:
        table += table[: int(rng.integers(1, 300))]
    else:
        return rng.integers(1, 13, size=int(some(rng, [2, 16, 32, 256]))).astype(np.uint8).tobytes().hex()
    return table.hex()


def _roles(rng: Random, apart: Apart) -> None:
    """Sections of a chunk under other names, missing, or those of another chunk."""
    chunks = [chunk for entry in apart.tensors() for chunk in apart.chunks(entry)]
    chunk = some(rng, chunks or [{}])
    if not chunk:
        return
    role, kind = some(rng, list(chunk)), rng.integers(3)
    if kind == 0:
        chunk[some(rng, _ROLES)] = chunk.pop(role)
    elif kind == 1:
        other = some(rng, list(chunk))
        chunk[role], chunk[other] = chunk[other], chunk[role]
    else:
        chunk |= copy.deepcopy(some(rng, chunks))


_OF_DIRECTORY: list[Callable[[Random, Apart], None]] = [
    *[_section, _coding, _shape, _fewer_rows] * 3,
    *[_odd_value, _roles, _entries, _header] * 2,
    _overlap,
    _nested,
    _remove_or_repeat,
    _swap_values,
]


def mutated_and_signed(content: bytes, rng: Random) -> tuple[bytes, str]:
    """A container with one to three changes of sections and directory whose checksums all agree, and what was done."""
    apart, names = Apart(content), []
    for _ in range(some(rng, CHANGES)):
        change = some(rng, _OF_DIRECTORY)
        if apart.nodes():
            change(rng, apart)
            names.append(change.__name__.strip("_"))
    # What changes a form, say, would otherwise never get past the headers.
    if not {"header", "entries"} & set(names) and rng.integers(3):
        apart.agree()
        names.append("headers that agree")
    if rng.integers(3) == 0:
        apart.sign_raw_tensors()
        names.append("digests of raw tensors")
    return apart.signed(), ", ".join(names)
