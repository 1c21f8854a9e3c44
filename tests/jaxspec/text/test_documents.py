"""JSON lines and prompt files: what is a document, where halves and windows are cut, and what is refused with its line."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from jaxspec.errors import InputError
from jaxspec.models.chat_template import ChatTemplate
from jaxspec.models.tokenizer import ByteTokenizer
from jaxspec.text import Encoder, load_text, read_prompts, windows

CHAT = ChatTemplate(
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
    Path("tokenizer_config.json"),
    {},
)
BYTES = Encoder(ByteTokenizer())


def write(path, *lines):
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return str(path)


def texts(tokens):
    return [ByteTokenizer().decode(row) for row in tokens]


def test_documents_stay_apart_and_halves_are_whole_documents(tmp_path):
    documents = [f"{letter}" * size for letter, size in zip("abcdefgh", (30, 50, 20, 64, 70, 10, 33, 40))]
    path = write(tmp_path / "t.jsonl", *({"text": text} for text in documents), "", "")
    split = load_text(path, ByteTokenizer(), needed=(25, 25))
    ours, theirs = ({texts([[token]])[0] for token in half} for half in (split.calibration, split.held_out))
    assert (ours, theirs) == (set("abcd"), set("efgh"))
    assert not split.notes
    for stream, starts in ((split.calibration, split.calibration_starts), (split.held_out, split.held_out_starts)):
        for count in (1, 3, 40):
            cut = windows(stream, count, 25, 5, document_starts=starts)
            assert cut.shape == (count, 25)
            assert np.all(cut == cut[:, :1])  # of one letter
        assert len({row[0] for row in cut}) >= 3  # of all documents that hold a window


def test_short_documents_are_joined_with_a_note(tmp_path):
    path = write(tmp_path / "t.jsonl", *({"text": "ab"} for _ in range(40)))
    split = load_text(path, ByteTokenizer(), needed=(10, 2))
    assert texts([split.calibration])[0] == "\n".join(["ab"] * 20)
    assert split.calibration_starts == (0,)
    assert len(split.held_out_starts) == 20
    assert len(split.notes) == 1
    assert "no calibration document of t.jsonl holds a window of 10 tokens" in split.notes[0]
    with pytest.raises(InputError, match=r"first half.* has 59 tokens at most and one window needs 60"):
        load_text(path, ByteTokenizer(), needed=(60, 2))


def test_conversations_go_through_the_template(tmp_path):
    said = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    path = write(tmp_path / "t.jsonl", {"messages": said}, {"prompt": said[:1]}, {"text": "plain", "prompt": "other"})
    split = load_text(path, ByteTokenizer(), chat=CHAT)
    assert texts([split.calibration])[0] == "<user>one<assistant>two"
    assert texts([split.held_out])[0] == "<user>oneplain"
    prompts = read_prompts(path, Encoder(ByteTokenizer(), CHAT)).tokens
    assert texts(prompts) == ["<user>one<assistant>two", "<user>one<assistant>", "other"]
    with pytest.raises(InputError, match=r"t\.jsonl', line 1: it has messages, and the model has no chat template"):
        load_text(path, ByteTokenizer())


def test_public_forms_of_conversations(tmp_path):
    shared = [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}]
    own = [{"role": "user", "content": "three"}]
    lines = {"turns": ["first", "second"], "category": "writing"}, {"conversations": shared}, {"conversations": own}
    prompts = read_prompts(write(tmp_path / "t.jsonl", *lines), Encoder(ByteTokenizer(), CHAT))
    expected = ["<user>first<assistant>", "<user>one<assistant>two", "<user>three<assistant>"]
    assert texts(prompts.tokens) == expected
    assert prompts.categories[0] == "writing"


@pytest.mark.parametrize("needed", [20, 200], ids=["apart", "joined"])
def test_windows_of_conversations_begin_answers(tmp_path, needed):
    asked = lambda i: {"role": "user", "content": f"question {i:02}"}
    said = [{"messages": [asked(i), {"role": "assistant", "content": f"answer {i:02}: so it is"}]} for i in range(80)]
    split = load_text(write(tmp_path / "t.jsonl", *said), ByteTokenizer(), needed=(needed, 2), chat=CHAT)
    cut = split.calibration_windows(9, 60, 3, ahead=27)
    between = split.calibration_between(9, 60, 3, ahead=27)
    found = [
        re.fullmatch(r".*question (\d\d)<assistant>answer (\d\d): so.*", row, re.DOTALL)
        for row in texts([*cut, *between])
    ]
    assert all(match and match[1] == match[2] and match.start(2) == 34 for match in found)
    numbers = [int(match[1]) for match in found]
    assert len(set(numbers)) == len(numbers) > 14
    # A window is longer than a conversation, so that neighbours would share some of it.
    assert all(abs(a - b) > 1 for a in numbers[:9] for b in numbers[9:])
    # There are forty answers.
    few = split.calibration_windows(43, 20, 3, ahead=12)
    np.testing.assert_array_equal(few[40:], split.calibration_windows(3, 20, 3))
    assert all(row[1:18] == "<assistant>answer" for row in texts(few[:40]))
    assert len(few) == 43
    assert not len(split.calibration_between(43, 20, 3, ahead=12))
    assert "40 of 43" in split.answers_note(43, 20, 12)[0]
    assert not split.answers_note(40, 20, 12)


def test_prompts_of_a_text_file_are_its_lines(tmp_path):
    path = tmp_path / "p.txt"
    path.write_bytes("\ufefffirst\r\n\n   \n  second é\n".encode())
    assert texts(read_prompts(str(path), BYTES).tokens) == ["first", "  second é"]


GOOD = {"text": "good"}
BAD_LINES = [
    ("{", r"line 2 is no JSON \("),
    ('"a text"', "line 2 is a JSON str"),
    ("{}", "line 2 has nothing in it"),
    ({"txt": "a", "id": 3}, "line 2 has 'txt', 'id'; give"),
    ({"text": ""}, "line 2: text is empty"),
    ({"text": "a\0b"}, "line 2: text has a zero character"),
    ('{"text": "a\\ud800"}', "line 2: text has half a surrogate pair at character 1"),
    ({"messages": "hello"}, "line 2: messages is of type str"),
    ({"messages": [{"role": "user"}]}, "line 2: messages, message 1 has no role or no content"),
    ({"turns": "a"}, "line 2: turns is of type str"),
    ({"turns": [3]}, "line 2: turns, message 1 has no role or no content"),
    ({"conversations": [{"from": "human"}]}, "line 2: conversations, message 1"),
    ({"prompt": [{"role": "user", "content": "a"}, "b"]}, "line 2: prompt, message 2 has no role or no content"),
    ("[" * 100_000, "line 2 is no JSON"),
]


@pytest.mark.parametrize(("line", "words"), BAD_LINES)
def test_a_bad_line_is_named(tmp_path, line, words):
    path = write(tmp_path / "t.jsonl", GOOD, line, GOOD)
    for read in (lambda: load_text(path, ByteTokenizer(), chat=CHAT), lambda: read_prompts(path, BYTES)):
        with pytest.raises(InputError, match=words) as caught:
            read()
        assert str(caught.value).isprintable()
        assert "t.jsonl" in str(caught.value)


def test_files_without_a_document(tmp_path):
    with pytest.raises(InputError, match="has no document"):
        load_text(write(tmp_path / "t.jsonl", " ", ""), ByteTokenizer())
    with pytest.raises(InputError, match="has one document, and its halves are cut between documents"):
        load_text(write(tmp_path / "t.ndjson", GOOD), ByteTokenizer())
    with pytest.raises(InputError, match="has no prompt: all lines are empty"):
        read_prompts(write(tmp_path / "p.txt", " ", ""), BYTES)
    with pytest.raises(InputError, match=r"prompts 'absent\.txt' cannot be read .*; give a number or a readable"):
        read_prompts("absent.txt", BYTES)
    (tmp_path / "b.txt").write_bytes(b"one\ntwo\xff\n")
    with pytest.raises(InputError, match=r"is not UTF-8: byte 7 is 0xff .*line 2"):
        read_prompts(str(tmp_path / "b.txt"), BYTES)
