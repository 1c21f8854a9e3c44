"""Problems, their solutions, and what counts as right."""

import pytest

from jaxspec.scaling.tasks.arithmetic import Problem, answer_of, problems, solution

PROBLEM = Problem(b"47+38-9+20;", 96)
SOLVED = b"85-9+20;76+20;96."


def test_values_are_those_of_python():
    drawn = problems(300, seed=3, terms=(2, 9))
    for problem in drawn:
        expression = problem.text[:-1].decode()
        assert eval(expression) == problem.value
        assert set(expression) <= set("0123456789+-")
        values = [eval(step) for step in solution(problem)[:-1].decode().split(";")]
        assert set(values) == {problem.value}
        assert answer_of(solution(problem)) == problem.value
    lengths = {problem.text.count(b"+") + problem.text.count(b"-") + 1 for problem in drawn}
    assert lengths == set(range(2, 10))
    assert problems(5, seed=3, terms=(2, 9)) == drawn[:5] != problems(5, seed=4, terms=(2, 9))


@pytest.mark.parametrize(
    ("completion", "answer"),
    [
        (SOLVED, 96),
        (SOLVED[:-1], None),
        (b"85-9+20;75+20;96.", 96),  # right by a wrong step
        (b"86-9+20;", None),
        (b"85-9+20;76+20;97.", 97),
        (b"96.", 96),
        (b"85-9+20.", None),
        (b"", None),
        (b"85-9+20;76+20;96.7", None),
        (b"85-9+20;76+20;-96.", None),
    ],
)
def test_what_counts_as_right(completion, answer):
    assert answer_of(completion) == answer
    assert solution(PROBLEM) == SOLVED


@pytest.mark.parametrize(("count", "terms"), [(-1, (3, 4)), (3, (1, 4)), (3, (5, 4))])
def test_problems_that_are_none(count, terms):
    with pytest.raises(ValueError, match=f"{count} problems of {terms[0]} to {terms[1]} terms"):
        problems(count, seed=0, terms=terms)
