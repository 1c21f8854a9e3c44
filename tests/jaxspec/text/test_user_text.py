"""A user's text: what is no text, and what is too short, is said in one line before anything else happens."""

import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.models.tokenizer import ByteTokenizer
from jaxspec.studies import TuneConfig
from jaxspec.studies.measured.run_context import load_inputs
from jaxspec.text import check_text, load_text
from jaxspec.text.documents import read_halves

GOOD = "line\n" * 4000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\x7fELF\x02\x01\0\0" + bytes(range(256)) * 9, "is binary: byte 6 is zero"),
        (GOOD.encode() + b"\0", "is binary: byte 20000 is zero"),
        (b"caf\xe9 au lait" * 900, "is not UTF-8: byte 3 is 0xe9"),
        (GOOD.encode("utf-16"), "is UTF-16; allowed is UTF-8"),
        (b"six by", "has 6 bytes, too few: its first half, which calibrates, has 3 tokens at most and one window"),
    ],
)
def test_what_is_no_text_or_too_short(tmp_path, content, words):
    path = tmp_path / "some.txt"
    path.write_bytes(content)
    config = TuneConfig(text=str(path))
    calls = [lambda: check_text(str(path), (96, 64)), lambda: load_inputs(config)]
    for call in [*calls, lambda: load_text(str(path), ByteTokenizer(), needed=(96, 64))]:
        with pytest.raises(InputError, match=words) as caught:
            call()
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["absent.txt", ".", "a\0b"])
def test_what_cannot_be_read(tmp_path, name):
    with pytest.raises(InputError, match="cannot be read"):
        check_text(str(tmp_path / name), (1, 1))


def test_each_half_must_hold_its_window(tmp_path):
    path = tmp_path / "some.txt"
    path.write_text("x" * 200)
    check_text(str(path), (100, 100))
    with pytest.raises(InputError, match=r"first half.* has 100 tokens at most and one window needs 101; .* 202 bytes"):
        check_text(str(path), (101, 100))
    with pytest.raises(InputError, match="second half, which is held out"):
        load_text(str(path), ByteTokenizer(), needed=(100, 101))


@pytest.mark.parametrize("text", [GOOD, "x" * 999 + "\n", "é" * 501, "a\nb", "no line ends", "\n" + "x" * 50])
def test_halves_are_whole_characters_and_neither_is_empty(tmp_path, text):
    path = tmp_path / "some.txt"
    path.write_bytes(text.encode())
    first, second = (b"".join(document.content.encode() for document in half) for half in read_halves(str(path)))
    assert first + second == text.encode()
    assert first.decode()
    assert second.decode()
    split = load_text(str(path), ByteTokenizer())
    np.testing.assert_array_equal(
        np.concatenate([split.calibration, split.held_out]), np.frombuffer(first + second, "u1")
    )
