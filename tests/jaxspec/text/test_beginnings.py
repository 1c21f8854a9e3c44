"""Windows begin as the tokenizer begins a text, wherever they are cut; those of bytes are what they were."""

import json

import numpy as np
import pytest

from jaxspec.models.tokenizer import ByteTokenizer, JsonTokenizer, beginning
from jaxspec.text import load_text, without_beginning

#: Put before and behind every text.
FIRST, SECOND, LAST = 256, 257, 258


class Framed(ByteTokenizer):
    """Bytes with two tokens in front of each text and one behind, as tokenizers of some families have them."""

    def encode(self, text, *, special_tokens=True):
        found = super().encode(text)
        around = ([FIRST, SECOND], [LAST]) if special_tokens else ([], [])
        return np.concatenate([around[0], found, around[1]]).astype(np.int32)


def test_what_begins_a_text_is_found():
    assert beginning(ByteTokenizer()).tolist() == []
    assert beginning(Framed()).tolist() == [FIRST, SECOND]
    text = Framed().encode("xyz")
    assert without_beginning(text, [FIRST, SECOND]).tolist() == [*b"xyz", LAST]
    assert without_beginning(text[2:], [FIRST, SECOND]).tolist() == [*b"xyz", LAST]


@pytest.mark.parametrize("single", [["<s>", None], [None], ["<s>", "<s>", None, "<s>"]])
def test_of_a_tokenizer_json_it_is_what_its_post_processor_adds(tmp_path, single):
    pytest.importorskip("tokenizers")
    pieces = [
        {"Sequence": {"id": "A", "type_id": 0}} if token is None else {"SpecialToken": {"id": token, "type_id": 0}}
        for token in single
    ]
    content = {
        "added_tokens": [
            {"id": 0, "content": "<s>", "special": True}
            | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        ],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": pieces,
            "pair": pieces,
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        },
        "model": {"type": "WordLevel", "vocab": {"<s>": 0, "?": 1, "tree": 2}, "unk_token": "?"},
    }
    tokenizer = JsonTokenizer(json.dumps(content).encode(), tmp_path, vocab_size=3)
    assert beginning(tokenizer).tolist() == [0] * single.index(None)


@pytest.mark.parametrize("kind", ["txt", "jsonl"])
def test_every_window_begins_so_and_goes_on_with_text(tmp_path, kind):
    path = tmp_path / f"t.{kind}"
    texts = [f"document {i}: " + "abcdefghij" * (3 + i) for i in range(8)]
    path.write_text("\n".join(json.dumps({"text": text}) if kind == "jsonl" else text for text in texts))
    split = load_text(str(path), Framed(), needed=(12, 12))
    for half, found in (
        (split.calibration, split.calibration_windows(40, 12, 3)),
        (split.held_out, split.held_out_windows(40, 12, 3)),
        (split.calibration, split.calibration_between(4, 12, 3)),
    ):
        assert FIRST not in half
        assert found.shape[1] == 12
        assert len(found)
        np.testing.assert_array_equal(found[:, :2], np.broadcast_to([FIRST, SECOND], (len(found), 2)))
        assert not np.isin(found[:, 2:], [FIRST, SECOND]).any()
        pieces = np.lib.stride_tricks.sliding_window_view(half, 10).tolist()
        assert all(row.tolist() in pieces for row in found[:, 2:])
    assert len(np.unique(split.calibration_windows(40, 12, 3), axis=0)) > 12  # spread, not one window again and again
