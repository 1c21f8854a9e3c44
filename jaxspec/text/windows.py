"""Where text comes from, and how it is cut into windows."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from jaxspec.errors import InputError
from jaxspec.models.tokenizer import Tokenizer
from jaxspec.text.user_text import STDLIB, check_lengths, read_halves

SNAPSHOT = Path(__file__).parent

#: Stands before each file of the snapshot, as in the embedded network's training.
SEPARATOR = b"\x00"


class TextSplit(NamedTuple):
    """Token streams that never share a file (snapshot) or a passage (user's file).

    Attributes:
        calibration: int32, for activation norms and tuning.
        held_out: int32, for prompts and every reported number.
        source: what the report calls it.
    """

    calibration: np.ndarray
    held_out: np.ndarray
    source: str


def _snapshot(folder: str) -> bytes:
    return b"".join(SEPARATOR + path.read_bytes() for path in sorted((SNAPSHOT / folder).glob("*.txt")))


def load_text(source: str, tokenizer: Tokenizer, *, needed: tuple[int, int] = (0, 0)) -> TextSplit:
    """The snapshot ("stdlib"), or a file whose first half calibrates and whose second half is held out.

    Args:
        needed: tokens of one window of calibration text and of held-out text; a user's file must hold them.
    Raises:
        InputError: the file is missing, unreadable, not UTF-8 text or too short.
    """
    if source == STDLIB:
        parts = _snapshot("calibration"), _snapshot("held_out")
        name = "standard-library snapshot (calibration modules and held-out modules apart)"
    else:
        parts = read_halves(source)
        name = f"{Path(source).name} (first half calibrates, second half held out)"
    calibration, held_out = (tokenizer.encode(part) for part in parts)
    if source != STDLIB:
        check_lengths(source, parts, (len(calibration), len(held_out)), needed)
    return TextSplit(calibration, held_out, name)


def prompt_starts(num_tokens: int, count: int, length: int, seed: int) -> np.ndarray:
    """Starts of `count` windows of `length` tokens, evenly spread with a jitter drawn from the seed.

    Raises:
        InputError: the text is shorter than one window.
    """
    room = num_tokens - length
    if room < 0:
        raise InputError(
            f"the text has {num_tokens} tokens, one window needs {length}; give a longer --text or shorter prompts"
        )
    cell = room / count
    jitter = np.random.default_rng([seed, count, length]).random(count)
    return np.minimum(((np.arange(count) + jitter) * cell).astype(np.int64), room)


def windows(tokens: np.ndarray, count: int, length: int, seed: int) -> np.ndarray:
    """`count` windows of `length` tokens spread over the whole stream; they overlap where the stream is short.

    Returns:
        int32 "count length".
    """
    starts = prompt_starts(len(tokens), count, length, seed)
    return np.stack([tokens[start : start + length] for start in starts]).astype(np.int32)
