"""Sums in words: their values, and which number of an answer counts."""

import re

import pytest

from jaxspec.scaling.tasks.word_problems import last_number, word_problems


def test_values_are_those_of_the_stories():
    drawn = word_problems(200, seed=3)
    for problem in drawn:
        story = re.fullmatch(r"(\w+) has (\d) (\w+) and (gets|gives away) (\d)(.*)\. How .*", problem.text.decode())
        assert story is not None
        more, less = int(story[2]), int(story[5])
        assert more > less > 1
        assert problem.value == (more + less if story[4] == "gets" else more - less)
        assert problem.text.decode().endswith(f"How many {story[3]} does {story[1]} have now?")
    assert {problem.text.count(b"gets") for problem in drawn} == {0, 1}
    assert word_problems(5, seed=3) == drawn[:5] != word_problems(5, seed=4)


@pytest.mark.parametrize(
    ("answer", "number"),
    [
        (b"8 - 5 = 3 coins.\n\0", 3),
        (b"8 - 5 = 3 coins.", None),  # not finished
        (b"It is 1,204.\0", 1204),
        (b"3.00\0", 3),
        (b"3.5\0", None),
        (b"none\0", None),
        (b"\0", None),
        (b"9" * 5000 + b"\0", None),
    ],
)
def test_the_last_number_of_a_finished_answer_counts(answer, number):
    assert last_number(answer) == number
