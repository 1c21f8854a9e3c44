"""Problems as a network sees them: where answers end, which are right, and what is cut out of a text."""

import dataclasses

import numpy as np

from jaxspec.models import DecoderConfig
from jaxspec.models.tokenizer import ByteTokenizer
from jaxspec.settings import build_config
from jaxspec.studies import ScaleConfig
from jaxspec.studies.scale.inputs import NO_ANSWER, Network, make_problems
from jaxspec.text import TextSplit

CODE = "x = 1\ndef one(a,\n        b):\n    return a\n\n\ndef two() -> int:\n    return 2\n"
SHAPE = DecoderConfig(
    vocab_size=256, hidden_size=8, intermediate_size=8, num_layers=1, num_heads=2, num_kv_heads=2, head_dim=4
)
#: Tokens of two and three characters, one of which crosses the end of an answer.
WORDS = ("8", "5", ";", "9", "6.", ".", "7;", "\n")


class WordTokenizer(ByteTokenizer):
    """Tokens are words."""

    of_bytes = False

    def decode(self, ids):
        return "".join(WORDS[i] for i in ids)

    def encode(self, text, *, special_tokens=True):
        return np.array([WORDS.index(c) for c in text], np.int32)


def settings(**given):
    return build_config(ScaleConfig, {"prompts": 4} | ({} if "task" in given else {"prompt_bytes": 20}) | given)


def split(*documents):
    starts = np.cumsum([0, *(len(text.encode()) for text in documents[:-1])])
    tokens = ByteTokenizer().encode("".join(documents))
    return TextSplit(tokens, tokens, "text", held_out_starts=tuple(starts.tolist()))


def test_prompts_end_with_heads_and_are_of_one_length_where_they_can_be():
    found = make_problems(settings(), split("before = 2  # long\n" + CODE, "def three():\n    pass\n"), ByteTokenizer())
    one, two, three = found.prompts
    assert one == b"def one(a,\n        b):\n"  # longer than a prompt, and whole
    assert (len(two), two[-17:]) == (20, b"def two() -> int:\n"[-17:])
    assert three == b"def three():\n"  # nothing of the document before


def test_functions_end_where_something_begins_at_the_margin():
    found = make_problems(settings(), split(CODE), ByteTokenizer())
    body = b"    return a +\\\n        1\n"
    assert found.answer_bytes(0, body + b"\n\nclass A") == len(body) + 3
    assert found.answer_bytes(0, body) is None
    assert found.answer_bytes(0, body + b"x") == len(body) + 1
    texts = [body + b"x", b"    return (\nx", body, b"nothing"]
    assert found.right([0, 1], [texts, texts]).tolist() == [[True, False, False, False]] * 2
    assert found.answers(0, texts).tolist() == [NO_ANSWER] * 4
    assert found.right([], []).shape == (0, 0)


def test_doctests_are_stricter():
    check = make_problems(settings(check="doctests", unsafe_run_code=True), split(CODE), ByteTokenizer())
    good = b'    """\n    >>> two()\n    2\n    """\n    return 2\nx'
    assert check.right([1], [[good, good.replace(b"return 2", b"return 3"), b"    return 2\nx"]]).tolist() == [
        [True, False, False]
    ]


def test_sums_end_with_their_stop():
    found = make_problems(settings(task="arithmetic", seed=3), None, None)
    value = found.problems[1].value
    texts = [f"{value}.".encode(), f"{value}.junk".encode(), f"{value}".encode(), f"{value + 1}.".encode()]
    assert found.right([1], [texts]).tolist() == [[True, True, False, False]]
    assert found.answers(1, texts).tolist() == [value, value, NO_ANSWER, value + 1]
    assert found.answer_bytes(1, texts[1]) == len(texts[0])
    assert len(found.prompts) == 4
    assert found.prompts != make_problems(settings(task="arithmetic", seed=4), None, None).prompts


def test_word_problems_end_with_the_text_and_their_last_number_counts():
    found = make_problems(settings(task="word-problems", seed=3), None, None)
    value = found.right_answer(1)
    texts = [
        f"{value + 1} and {value}.\n\0".encode(),
        f"{value}.".encode(),
        f"{value}, so {value + 1}\0".encode(),
        b"\0",
    ]
    assert found.right([1], [texts]).tolist() == [[True, False, False, False]]
    assert found.answers(1, texts).tolist() == [value, NO_ANSWER, value + 1, NO_ANSWER]
    assert found.answer_bytes(1, texts[0] + b"junk") == len(texts[0])


class Asked:
    """In place of a chat template."""

    def render(self, messages, *, begin_answer):
        assert begin_answer
        return "".join(f"<{message['role']}>{message['content']}<bot>" for message in messages)


def test_a_network_with_a_template_is_asked_and_ends_with_its_own_token():
    sums = make_problems(settings(task="word-problems"), None, None)
    chat = Network("chat", SHAPE, ByteTokenizer(), "bf16", (7,), Asked())
    assert bytes(chat.encoded(b"1 + 1?").astype(np.uint8)) == b"<user>1 + 1?<bot>"
    answer = np.array([*b"so 2.", 7])
    assert chat.decoded(answer) == b"so 2.\n\0"
    assert chat.spent(sums, 0, answer) == 6
    assert chat.spent(sums, 0, answer[:-1]) is None
    assert chat.stop(sums).tolist() == [0, 7]


def test_ends_are_found_in_tokens_of_any_kind():
    sums = make_problems(settings(task="arithmetic"), None, None)
    words = Network("words", dataclasses.replace(SHAPE, vocab_size=len(WORDS)), WordTokenizer(), "bf16")
    answer = np.array([0, 1, 2, 3, 4, 0, 5])  # 85;96.8.
    assert words.spent(sums, 0, answer) == 5
    assert words.spent(sums, 0, answer[:4]) is None
    assert words.tokens_with(b";").tolist() == [2, 6]
    assert words.tokens_with(b".;").tolist() == [2, 4, 5, 6]
    plain = Network("bytes", SHAPE, ByteTokenizer(), "bf16")
    assert plain.spent(sums, 0, np.frombuffer(b"85;96.8.", np.uint8).astype(np.int32)) == 6
    assert plain.tokens_with(b";.").tolist() == [ord("."), ord(";")]
    assert plain.stop(sums).tolist() == [ord(".")]
    # A cut within a character.
    assert plain.encoded("é".encode()[1:] + b"a").tolist() == [0xA9, ord("a")]
    assert words.encoded("é".encode()[1:] + b"8;").tolist() == [0, 2]
