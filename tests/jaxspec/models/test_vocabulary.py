"""Whether a draft and a target mean the same by every token: by the names of tokenizers, and by their files."""

import json

import pytest

from hwmodels import catalog
from jaxspec.errors import InputError
from jaxspec.models.tokenizer import Vocabulary, shared_vocabulary, vocabulary_beside


def tokenizer(words, special=(), merges=(), kind=dict):
    vocab = {word: i for i, word in enumerate(words)} if kind is dict else [[word, -1.0] for word in words]
    added = [{"id": len(words) + i, "content": word, "special": True} for i, word in enumerate(special)]
    return json.dumps({"model": {"vocab": vocab, "merges": list(merges)}, "added_tokens": added}).encode()


WORDS = [f"w{i}" for i in range(29)]


def pair(draft, target, *, sizes=(40, 40)):
    return shared_vocabulary(
        Vocabulary("draft 'd'", sizes[0], content=draft), Vocabulary("target 't'", sizes[1], content=target)
    )


def named(draft, target):
    of = lambda role, name: Vocabulary(
        f"{role} {name!r}", int(catalog.architecture(name).vocab_size), catalog.architecture_tokenizer(name)
    )
    return shared_vocabulary(of("draft", draft), of("target", target))


@pytest.mark.parametrize(
    ("draft", "target"),
    [
        ("qwen2.5-0.5b", "llama-3.1-8b"),
        ("llama-2-13b", "mixtral-8x7b"),  # both 32,000
        ("phi-4", "olmo-2-0325-32b"),  # both 100,352
        ("qwen3.5-27b", "qwen3-32b"),
        ("gpt-oss-20b", "deepseek-v3"),
        ("granite-3.3-2b", "smollm3-3b"),
    ],
)
def test_pairs_of_other_tokenizers_are_refused_by_name(draft, target):
    with pytest.raises(InputError, match=rf"draft '{draft}' has a vocabulary of .*, target '{target}' has .* give a"):
        named(draft, target)
    with pytest.raises(InputError, match="needs the target's tokens"):
        named(target, draft)


def test_llama_cpp_refuses_larger_differences():
    one = Vocabulary("draft 'd'", 1000, "x")
    (note,) = shared_vocabulary(one, Vocabulary("target 't'", 1129, "x"))
    assert "llama.cpp refuses it, as the sizes differ by more than 128" in note


def test_unknown_tokenizers_pass_at_equal_sizes_with_a_note():
    unknown, known = Vocabulary("draft 'd'", 128_256), Vocabulary("target 'llama-3.1-8b'", 128_256, "llama-3")
    (note,) = shared_vocabulary(unknown, known)
    assert "was not compared, without a tokenizer.json of draft 'd' and target" in note
    with pytest.raises(InputError, match=r"put its tokenizer\.json beside each config\.json"):
        shared_vocabulary(Vocabulary("draft 'd'", 128_255), known)


def test_equal_sizes_do_not_hide_permuted_ids():
    same = tokenizer(WORDS, ["<end>"])
    assert pair(same, tokenizer(WORDS, ["<end>"]) + b"\n") == ()
    swapped = tokenizer([WORDS[0], WORDS[2], WORDS[1], *WORDS[3:]], ["<end>"])
    message = r"different tokens by their tokenizer\.json: 1 is 'w2' and 'w1' \(2 of 30 differ\); a draft needs"
    with pytest.raises(InputError, match=message):
        pair(swapped, same)
    with pytest.raises(InputError, match="different tokens"):
        pair(tokenizer(WORDS[::-1], kind=list), same)
    assert pair(tokenizer(WORDS, ["<end>"], kind=list), same) == ()


def test_rows_behind_the_tokens_are_padding():
    one = tokenizer(WORDS)
    (note,) = pair(one, one, sizes=(32, 40))
    assert "pad the draft's embedding and head to 40 rows" in note
    notes = pair(tokenizer(WORDS[:21]), one, sizes=(24, 40))
    assert notes[0] == "8 of 29 tokens of target 't' are none of draft 'd''s, which never drafts them"
    # Tokens without a row cannot occur.
    assert "9 of 29" in pair(one, one + b" ", sizes=(20, 40))[0]


def test_a_broken_file_is_one_line():
    for content in (b"{", b'{"model": {}}', b"[]", b'{"model": {"vocab": {"a": "x"}}}'):
        with pytest.raises(InputError, match=r"tokenizer\.json of draft 'd' is not readable") as caught:
            pair(content, tokenizer(WORDS))
        assert "\n" not in str(caught.value)


def test_bytes_need_no_file(tmp_path):
    assert shared_vocabulary(vocabulary_beside("a", 256, tmp_path), vocabulary_beside("b", 256, tmp_path)) == ()
    assert vocabulary_beside("a", 257, tmp_path).tokenizer is None
