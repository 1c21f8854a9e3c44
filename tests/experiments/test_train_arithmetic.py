"""What the networks of arithmetic learn from."""

import numpy as np

from experiments.train_arithmetic import ROW, ROWS, batch_at


def test_solutions_are_learned_and_a_step_is_a_function_of_its_number():
    tokens, targets, learned = batch_at(3, 0)
    assert tokens.shape == targets.shape == learned.shape == (ROWS, ROW)
    np.testing.assert_array_equal(tokens, batch_at(3, 0)[0])
    assert not np.array_equal(tokens, batch_at(4, 0)[0])
    for row in range(ROWS):
        text = bytes(tokens[row].astype(np.uint8)).rstrip(b"\0")
        problem, _, answer = text.partition(b";")
        assert bytes(targets[row, learned[row]].astype(np.uint8)) == answer
        assert answer.endswith(str(eval(problem)).encode() + b".")
