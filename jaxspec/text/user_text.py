"""A file of text that a user gives: checked for being text and long enough, and cut into two halves.

A plain text file is one document, cut at a line end near its middle. A JSON lines file has many; its halves are cut between
documents.
"""

from __future__ import annotations

import codecs
import itertools
import os
from pathlib import Path
from typing import NamedTuple

from jaxspec.errors import InputError
from jaxspec.text.documents import Document, check_plain, is_json_lines, parse_documents

__all__ = ["STDLIB", "Halves", "check_text", "read_halves", "read_text_file"]

#: Stands for the committed snapshot.
STDLIB = "stdlib"

#: Byte-order marks of other encodings; that of UTF-32 begins with that of UTF-16.
_WIDE = {"UTF-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE), "UTF-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)}

_HALVES = ("first half, which calibrates,", "second half, which is held out,")


class Halves(NamedTuple):
    """Documents that calibrate, and those that are held out; neither is empty of bytes unless a file has one byte."""

    calibration: list[Document]
    held_out: list[Document]

    @property
    def bytes(self) -> tuple[int, int]:
        """Of each half."""
        return tuple(sum(document.size for document in half) for half in self)  # pyright: ignore[reportReturnType]


def read_text_file(source: str, what: str, otherwise: str) -> bytes:
    """Content of a file of UTF-8 text without zero bytes: a network of bytes would take anything, and its numbers would mean
    nothing. A byte-order mark is left out.

    Args:
        what: the setting that names it, for messages. otherwise: what may be given instead.
    Raises:
        InputError: the file cannot be read, is empty or is not UTF-8 text.
    """
    # A run reads its files several times, and its digests are of files: a pipe gives its text once, some devices never end.
    if os.path.exists(source) and not os.path.isfile(source):
        kind = "a directory" if os.path.isdir(source) else "a pipe or a device"
        raise InputError(f"{what} {source!r} cannot be read: it is {kind}; give {otherwise} or a readable text file")
    try:
        data = Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"{what} {source!r} cannot be read ({reason}); give {otherwise} or a readable text file"
        ) from error
    data = data.removeprefix(codecs.BOM_UTF8)
    if not data:
        raise InputError(f"{what} {source!r} is empty; give {otherwise} or a text file with something in it")
    if wide := next((name for name, mark in _WIDE.items() if data.startswith(mark)), None):
        raise InputError(f"{what} {source!r} is {wide}; allowed is UTF-8: convert it, with iconv for example")
    line = lambda place: data.count(b"\n", 0, place) + 1
    if (place := data.find(b"\0")) >= 0:
        raise InputError(
            f"{what} {source!r} is binary: byte {place} is zero (line {line(place)}); give a plain text file in UTF-8"
        )
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} {source!r} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x} ({error.reason}, line "
            f"{line(error.start)}); give a plain text file in UTF-8, or convert it"
        ) from error
    return data


def read_halves(source: str) -> Halves:
    """The two halves of a file.

    Raises:
        InputError: see `read_text_file` and `parse_documents`; a JSON lines file of a single document; documents of JSON in a
            file that by its name is text.
    """
    data, what = read_text_file(source, "text", repr(STDLIB)), f"text {source!r}"
    if is_json_lines(source):
        return _between_documents(parse_documents(data, what), source)
    check_plain(source, data, what, "keys and braces too")
    parts = _between_lines(data)
    return Halves(*([Document(what, part.decode("utf-8"), len(part))] for part in parts))


def _between_lines(data: bytes) -> tuple[bytes, bytes]:
    """Cut at a line end near the middle, or else between two characters."""
    # So that no half is a torn word: the first line end behind the middle, or the last before it.
    half = len(data) // 2
    middle = data.find(b"\n", half) + 1
    if middle in (0, len(data)):
        middle = data.rfind(b"\n", 0, half) + 1 or _character(data, half)
    return data[:middle], data[middle:]


def _between_documents(documents: list[Document], source: str) -> Halves:
    """Cut behind the document that the middle lies in."""
    if len(documents) < 2:
        raise InputError(
            f"text {source!r} has one document, and its halves are cut between documents; give two or more, or a text file"
        )
    upto = list(itertools.accumulate(document.size for document in documents))
    middle = next(i for i, size in enumerate(upto, start=1) if 2 * size >= upto[-1])
    middle = min(middle, len(documents) - 1)
    return Halves(documents[:middle], documents[middle:])


def _character(data: bytes, place: int) -> int:
    """The place itself or, inside a character, where the next one begins."""
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place += 1
    return place


def check_text(source: str, needed: tuple[int, int]) -> None:
    """Refuse a text before any work that needs it: one that is not text, or has fewer bytes than tokens are needed.

    Args:
        source: "stdlib", which is always good, or a file.
        needed: tokens of one window of calibration text and of held-out text.
    Raises:
        InputError: it cannot be used.
    """
    if source != STDLIB:
        halves = read_halves(source)
        if not is_json_lines(source):  # a template may write more than a line's bytes
            check_lengths(source, halves.bytes, halves.bytes, needed)


def check_lengths(source: str, size: tuple[int, int], lengths: tuple[int, int], needed: tuple[int, int]) -> None:
    """Both halves of a user's text must hold a window each.

    Args:
        size: bytes of the halves. lengths: their tokens.
        needed: tokens of one window of each.
    Raises:
        InputError: one half is too short.
    """
    for name, tokens, window in zip(_HALVES, lengths, needed):
        if tokens < window:
            total, per_token = sum(size), max(1.0, sum(size) / max(1, sum(lengths)))
            raise InputError(
                f"text {source!r} has {total} bytes, too few: its {name} has {tokens} tokens at most and one window "
                f"needs {window}; give a text of {round(2 * per_token * max(needed))} bytes or more, or ask for shorter windows"
            )
