import json

import numpy as np
import pytest
from tokenizer_files import bytes_in_order, bytes_turned, spaced

from jaxspec.errors import InputError
from jaxspec.models.tokenizer import ByteTokenizer, load_tokenizer

#: Whole words, an unknown token, and a begin-of-text token that the file's post-processor puts in front.
WORDS = {
    "version": "1.0",
    "truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0},
    "padding": None,
    "added_tokens": [
        {
            "id": 0,
            "content": "<s>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "normalizer": None,
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
    },
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"<s>": 0, "?": 1, "tree": 2, "draft": 3, "éé": 7}, "unk_token": "?"},
}


def test_bytes_are_their_own_ids():
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode("aé\x00")
    assert ids.dtype == np.int32
    np.testing.assert_array_equal(ids, [97, 0xC3, 0xA9, 0])
    np.testing.assert_array_equal(tokenizer.encode(bytes(range(256))), np.arange(256))
    assert tokenizer.encode("").shape == (0,)


def test_bytes_round_trip_and_half_a_character_decodes_to_the_replacement():
    tokenizer = ByteTokenizer()
    text = "def f(x):\n\treturn 'naïve — 漢字 🙂'\r\n\0"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode([97, 0xC3]) == "a\ufffd"
    assert tokenizer.decode(np.array([], np.int32)) == ""


def test_bytes_of_text_that_begins_and_ends_inside_a_character():
    ids = ByteTokenizer().encode("漢a字")
    for first, last in ((0, 7), (1, 7), (2, 5), (1, 6), (3, 3)):
        assert ByteTokenizer().num_bytes(ids[first:last]) == last - first


@pytest.mark.parametrize("ids", [[256], [-1], [3, 1000]])
def test_ids_beyond_a_byte_are_refused(ids):
    with pytest.raises(InputError, match="a byte is 0 to 255"):
        ByteTokenizer().decode(ids)


def test_a_directory_without_a_file_has_bytes_only_where_the_vocabulary_is_256(tmp_path):
    assert isinstance(load_tokenizer(tmp_path, vocab_size=256), ByteTokenizer)
    with pytest.raises(InputError, match=r"no tokenizer\.json and a vocabulary of 257"):
        load_tokenizer(tmp_path, vocab_size=257)


class TestJson:
    @pytest.fixture
    def tokenizer(self, tmp_path):
        pytest.importorskip("tokenizers")
        (tmp_path / "tokenizer.json").write_text(json.dumps(WORDS))
        return load_tokenizer(tmp_path, vocab_size=7)

    def test_encodes_with_special_tokens_and_decodes_without(self, tokenizer):
        ids = tokenizer.encode("tree draft tree")
        assert ids.dtype == np.int32
        np.testing.assert_array_equal(ids, [0, 2, 3, 2])  # not cut to the file's max_length of 2
        assert tokenizer.decode(ids) == "tree draft tree"
        np.testing.assert_array_equal(tokenizer.encode(b"tree draft tree"), ids)
        assert tokenizer.num_bytes(ids) == len("tree draft tree")

    def test_half_a_character_counts_the_bytes_that_it_has(self, tmp_path):
        pytest.importorskip("tokenizers")
        (tmp_path / "tokenizer.json").write_text(json.dumps(bytes_in_order()))
        tokenizer = load_tokenizer(tmp_path, vocab_size=256)
        ids = tokenizer.encode("éa漢")
        assert len(ids) == 6
        assert [tokenizer.num_bytes(ids[first:]) for first in range(6)] == [6, 5, 4, 3, 2, 1]

    def test_what_stands_behind_other_text_keeps_its_first_space(self, tmp_path):
        pytest.importorskip("tokenizers")
        (tmp_path / "tokenizer.json").write_text(json.dumps(spaced()))
        tokenizer = load_tokenizer(tmp_path, vocab_size=64)
        ids = tokenizer.encode("a  b c")  # <s>, a space that is none of the text's, a, two spaces, b, a space, c
        assert len(ids) == 8
        assert tokenizer.decode(ids) == "a  b c"
        assert [tokenizer.continuation(ids[first:]) for first in (3, 4, 5, 6, 8)] == ["  b c", " b c", "b c", " c", ""]
        assert tokenizer.decode(ids[3:]) == " b c"
        assert [tokenizer.num_bytes(ids, behind=first) for first in (0, 1, 3, 4, 5, 8)] == [6, 6, 5, 4, 3, 0]

    @pytest.mark.parametrize(("content", "own"), [(bytes_in_order(), True), (bytes_turned(), False), (spaced(), False)])
    def test_bytes_are_known_by_their_numbers(self, content, own, tmp_path):
        pytest.importorskip("tokenizers")
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        tokenizer = load_tokenizer(tmp_path, vocab_size=256)
        assert tokenizer.of_bytes == own
        assert (
            tokenizer.decode(tokenizer.encode("ab c"))
            == tokenizer.continuation(tokenizer.encode("ab c")).strip()
            == "ab c"
        )

    def test_a_token_beyond_the_vocabulary_is_refused(self, tokenizer):
        with pytest.raises(InputError, match="gave token 7; the network has 7"):
            tokenizer.encode("éé")

    def test_bytes_that_are_no_utf8_are_refused(self, tokenizer):
        with pytest.raises(InputError, match="not UTF-8"):
            tokenizer.encode(b"\xff")

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 3}', b"\xff\xfe"])
    def test_a_damaged_file_is_one_line(self, content, tmp_path):
        pytest.importorskip("tokenizers")
        (tmp_path / "tokenizer.json").write_bytes(content)
        with pytest.raises(InputError, match=r"tokenizer\.json") as caught:
            load_tokenizer(tmp_path, vocab_size=7)
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "form"),
    [("tiktoken.model", "tiktoken"), ("tokenizer.model", "SentencePiece"), ("tekken.json", "Mistral's")],
)
def test_a_tokenizer_in_another_form_is_named(tmp_path, name, form):
    (tmp_path / name).write_bytes(b"IQ== 0\n")
    with pytest.raises(
        InputError, match=rf"tokenizer in {name} \({form}.*needed is a tokenizer.json of the same"
    ) as caught:
        load_tokenizer(tmp_path, vocab_size=163_840)
    assert "\n" not in str(caught.value)
    # Where bytes do, or the file is there, nothing else is looked at.
    assert load_tokenizer(tmp_path, vocab_size=256).of_bytes
