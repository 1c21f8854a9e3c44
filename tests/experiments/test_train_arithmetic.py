"""What the networks of arithmetic learn from: verdicts after each step, and solutions with a slip."""

import numpy as np
import pytest

from experiments.train_arithmetic.train import ROW, judged, solver_batch, with_a_slip
from jaxspec.scaling.tasks.arithmetic import Problem, answer_of, problems, right_steps, solution


def shown(row, learned):
    return "".join(chr(byte) if here else "_" for byte, here in zip(row, learned, strict=True)).rstrip("_")


@pytest.mark.parametrize(
    ("answer", "learned"),
    [
        # Verdicts stand at the marks; elsewhere, the right next byte up to the first wrong one.
        (b"9-4;5.", "9-4;Y.Y"),
        (b"8-4;4.", "9___N_N"),
        (b"9-4;6.", "9-4;Y_N"),
        (b"9-4.", "9-4;N"),
        (b"9-4;5", "9-4;Y."),
        (b"", "9"),
    ],
)
def test_verdicts_by_hand(answer, learned):
    problem = Problem(b"12-3-4;", 5)
    found = judged([problem], [answer])
    assert shown(found.targets[0], found.learned[0]) == "_" * (len(problem.text) - 1) + learned


def test_a_slip_is_one_wrong_step_and_what_follows_from_it():
    rng = np.random.default_rng(0)
    for problem in problems(200, seed=4):
        text, clean = with_a_slip(problem, rng), solution(problem)
        good, whole = right_steps(problem, text)
        assert good < whole
        assert text.endswith(b".")
        steps, wanted = text[:-1].split(b";"), clean[:-1].split(b";")
        assert steps[:good] == wanted[:good]
        # One digit differs in the first wrong step.
        pairs = zip(steps[good], wanted[good], strict=True)
        assert sum(a != b for a, b in pairs) == 1
        if answer_of(text) is not None:
            # Negative values end what follows.
            left = Problem(steps[good] + b";", 0)
            assert text.endswith(solution(left)) or left.text[:-1].isdigit()


def test_the_solver_learns_whole_solutions_and_a_step_is_a_function_of_its_number():
    tokens, targets, learned = solver_batch(3, 0)
    assert tokens.shape == targets.shape == learned.shape == (128, ROW)
    np.testing.assert_array_equal(tokens, solver_batch(3, 0)[0])
    assert not np.array_equal(tokens, solver_batch(4, 0)[0])
    for row in range(5):
        assert bytes(targets[row, learned[row]].astype(np.uint8)).endswith(b".")
