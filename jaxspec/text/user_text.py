"""A text file that a user gives: checked for being text and long enough, and cut into two halves."""

from __future__ import annotations

from pathlib import Path

from jaxspec.errors import InputError

__all__ = ["STDLIB", "check_text", "read_halves"]

#: Stands for the committed snapshot.
STDLIB = "stdlib"

_HALVES = ("first half, which calibrates,", "second half, which is held out,")


def read_halves(source: str) -> tuple[bytes, bytes]:
    """The first and the second half of a text, cut at a line end near its middle, or else between two characters.

    Raises:
        InputError: the file cannot be read, is empty or is not UTF-8 text.
    """
    try:
        data = Path(source).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(
            f"text {source!r} cannot be read ({reason}); give {STDLIB!r} or a readable text file"
        ) from error
    _check_utf8(data, source)
    # Cut at a line end, so that no half is a torn word: the first behind the middle, or the last before it.
    half = len(data) // 2
    middle = data.find(b"\n", half) + 1
    if middle in (0, len(data)):
        middle = data.rfind(b"\n", 0, half) + 1 or _character(data, half)
    return data[:middle], data[middle:]


def _check_utf8(data: bytes, source: str) -> None:
    """UTF-8 without zero bytes: a network of bytes would take anything, and its numbers would mean nothing."""
    if not data:
        raise InputError(f"text {source!r} is empty; give {STDLIB!r} or a text file with something in it")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError(f"text {source!r} is UTF-16; allowed is UTF-8: convert it, with iconv for example")
    if (place := data.find(b"\0")) >= 0:
        raise InputError(f"text {source!r} is binary: byte {place} is zero; give a plain text file in UTF-8")
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"text {source!r} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x} ({error.reason}); give a plain "
            "text file in UTF-8, or convert it"
        ) from error


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
        check_lengths(source, halves, (len(halves[0]), len(halves[1])), needed)


def check_lengths(source: str, halves: tuple[bytes, bytes], found: tuple[int, int], needed: tuple[int, int]) -> None:
    """Both halves of a user's text must hold a window each.

    Args:
        found: tokens of the halves.
        needed: tokens of one window of each.
    Raises:
        InputError: one half is too short.
    """
    for name, tokens, window in zip(_HALVES, found, needed):
        if tokens < window:
            total, per_token = sum(map(len, halves)), max(1.0, sum(map(len, halves)) / max(1, sum(found)))
            raise InputError(
                f"text {source!r} has {total} bytes, too few: its {name} has {tokens} tokens at most and one window "
                f"needs {window}; give a text of {round(2 * per_token * max(needed))} bytes or more, or ask for shorter windows"
            )
