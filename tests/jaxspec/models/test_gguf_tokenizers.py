"""Tokenizers, templates and end tokens of GGUF files, beside the tokenizers that the files were made of."""

import itertools
import json

import numpy as np
import pytest
from gguf_cases import checkpoint, write_gguf
from test_gguf import HF
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from jaxspec.errors import InputError
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.special_tokens import end_tokens, json_beside
from jaxspec.models.tokenizer import load_tokenizer

TEXTS = (
    "Hello world! It's 12345 o'clock, isn't it?\n\n  two  spaces\t\tand tabs \r\n",
    "def f(x):\n    return x**2  # naïve café, 漢字かな 🙂 'LL we'Re",
    "x=[1,22,333];  <|end|> done <|end|>",
    " ",
    "",
)
CORPUS = [*TEXTS, "the cat sat on the mat; they'll say that's the end of 2024 and 1999. " * 3, "naïve café 漢字 " * 4]

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern):
    cut = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


#: Kind -> how released tokenizers of that kind cut text.
RELEASED = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "llama-bpe": split(LLAMA3),
    "qwen2": split(LLAMA3.replace("{1,3}", "")),
    "tekken": split(TEKKEN),
}


def trained(cut):
    """A small byte-level tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = cut, decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        CORPUS, trainers.BpeTrainer(vocab_size=360, initial_alphabet=alphabet, show_progress=False)
    )
    return tokenizer


def file_with_words(path, tokens, types, more=lambda writer: None, *, model="gpt2", pre=None):
    """A GGUF file with these words, and rows of an embedding for them."""
    config, tensors = checkpoint(HF / "llama_bfloat16")
    config["vocab_size"] = len(tokens)
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name] = np.resize(tensors[name], (len(tokens), tensors[name].shape[1]))

    def words(writer):
        writer.add_tokenizer_model(model)
        if pre is not None:
            writer.add_tokenizer_pre(pre)
        writer.add_token_list(tokens)
        writer.add_token_types(types)
        more(writer)

    return write_gguf(path, config, tensors, more=words)


def bytes_file(path, tokenizer, pre, more=lambda writer: None):
    """A file of a byte-level tokenizer, with two special tokens behind its words."""
    content = json.loads(tokenizer.to_str())["model"]
    tokens = [*sorted(content["vocab"], key=content["vocab"].get), "<|end|>", "<|start|>"]
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in content["merges"]]

    def both(writer):
        writer.add_token_merges(merges)
        writer.add_eos_token_id(len(tokens) - 2)
        writer.add_bos_token_id(len(tokens) - 1)
        more(writer)

    return file_with_words(path, tokens, [1] * (len(tokens) - 2) + [3, 3], both, pre=pre), len(tokens)


@pytest.mark.parametrize("kind", RELEASED)
def test_byte_level_words_are_those_of_the_release(tmp_path, kind):
    released = trained(RELEASED[kind])
    file, size = bytes_file(tmp_path / "a.gguf", released, kind, lambda writer: writer.add_add_bos_token(False))
    found = load_tokenizer(file, vocab_size=size)
    for text in TEXTS:
        parts = [[size - 2, *released.encode(part).ids] for part in text.split("<|end|>")]
        assert found.encode(text).tolist() == [*itertools.chain(*parts)][1:], text
        assert found.decode(found.encode(text)) == text.replace("<|end|>", "")


def test_a_text_begins_as_the_kind_or_the_file_says(tmp_path):
    released = trained(RELEASED["llama-bpe"])
    by_kind, size = bytes_file(tmp_path / "a.gguf", released, "llama-bpe")
    assert load_tokenizer(by_kind, vocab_size=size).encode("the cat")[0] == size - 1
    plain = load_tokenizer(by_kind, vocab_size=size).encode("the cat", special_tokens=False)
    assert plain.tolist() == released.encode("the cat").ids
    add = lambda writer: (writer.add_add_bos_token(False), writer.add_add_eos_token(True))
    by_file, size = bytes_file(tmp_path / "b.gguf", released, "llama-bpe", add)
    assert load_tokenizer(by_file, vocab_size=size).encode("the cat").tolist() == [*plain, size - 2]


PIECES = {"▁": -1, "a": -2, "b": -3, "c": -4, "ab": -5, "bc": -4.5, "▁a": -7, "abc": -6, "▁abc": -8, "cc": -9}


def joined(text):
    """SentencePiece's rule, word for word: of all neighbours that make a piece, the first of the highest score."""
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        pairs = [(-PIECES[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in PIECES]
        if not pairs:
            return parts
        _, i = min(pairs)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


@pytest.mark.parametrize("text", ["abc", "ab bc", "ccab abcabc", "bca  cab", "aabbcc"])
def test_pieces_are_joined_by_their_scores(tmp_path, text):
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    types = [2, 3, 3, *[6] * 256, *[1] * len(PIECES)]

    def more(writer):
        writer.add_token_scores([0.0] * 259 + [float(score) for score in PIECES.values()])
        writer.add_unk_token_id(0)
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)

    file = file_with_words(tmp_path / "a.gguf", tokens, types, more, model="llama")
    found = load_tokenizer(file, vocab_size=len(tokens))
    assert found.encode(text).tolist() == [1, *(tokens.index(piece) for piece in joined(text))]
    assert found.decode(found.encode(text)) == text
    # A letter that no piece has is its bytes.
    assert found.encode("é", special_tokens=False).tolist() == [tokens.index("▁"), 3 + 0xC3, 3 + 0xA9]
    assert found.decode(found.encode("é")) == "é"


def test_the_template_and_the_ends_are_those_of_the_file(tmp_path):
    def more(writer):
        writer.add_chat_template("{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}")
        writer.add_eot_token_id(7)

    file, size = bytes_file(tmp_path / "a.gguf", trained(RELEASED["gpt-2"]), "gpt-2", more)
    assert load_chat_template(file).render([{"role": "user", "content": "hi"}], begin_answer=False) == (
        "<|start|>hi<|end|>"
    )
    assert end_tokens(file, vocab_size=size) == (7, size - 2)
    assert json_beside(file, "config.json")["eos_token_id"] == size - 2


@pytest.mark.parametrize(
    ("model", "pre", "said"),
    [("gpt2", "kimi-k2", "tokenizer.ggml.pre 'kimi-k2'"), ("rwkv", None, "tokenizer.ggml.model 'rwkv'")],
)
def test_an_unknown_kind_of_words_is_one_line(tmp_path, model, pre, said):
    file = file_with_words(tmp_path / "a.gguf", ["a", "b"], [1, 1], model=model, pre=pre)
    with pytest.raises(InputError, match=said) as found:
        load_tokenizer(file, vocab_size=2)
    assert "\n" not in str(found.value)
