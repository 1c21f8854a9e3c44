"""Verdicts on texts (hostile ones: `test_sandbox.py`)."""

import numpy as np
import pytest

from jaxspec.scaling.verifiers import Limits, Verdict, compiles, doctests_hold, isolation, parses, run_sandboxed

LIMITS = Limits(seconds=1.0)
isolated = pytest.mark.skipif(isolation(unsafe=True) == "nothing", reason="nothing isolates code here")

GOOD = 'def f(x):\n    """\n    >>> f(1)\n    2\n    """\n    return x + 1\n'
IN_CLASS = 'class A:\n    """\n    >>> A().x\n    3\n    """\n    x = 3\n'


@pytest.mark.signals
def test_three_checks_one_after_the_other():
    texts = ["x = ", "return 1", "x = 1", GOOD.replace("2\n", "3\n"), GOOD, IN_CLASS, "\0", "(" * 5000, "'\ud800'"]
    assert parses(texts, LIMITS).tolist() == [0, 1, 1, 1, 1, 1, 0, 0, 0]
    assert compiles(texts, LIMITS).tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0]
    assert doctests_hold(texts, LIMITS, unsafe=True).tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert doctests_hold([], LIMITS).tolist() == []


@isolated
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("while True: pass", Verdict.TIMED_OUT),
        ("import time; time.sleep(60)", Verdict.TIMED_OUT),
        ("x = 'a' * 10 ** 10", Verdict.FAILS),
        ("import sys; sys.exit(0)", Verdict.FAILS),
        ("import os; os._exit(0)", Verdict.CRASHED),
        ("print('holds')", Verdict.HOLDS),
    ],
)
def test_limits(text, verdict):
    assert run_sandboxed("doctests", GOOD + text, LIMITS) is verdict
    # Without a doctest there is nothing to run a text for.
    assert run_sandboxed("doctests", text, LIMITS) is Verdict.FAILS


def test_equal_texts_have_equal_scores():
    np.testing.assert_array_equal(parses(["x", "(", "x"], LIMITS), [1, 0, 1])


def test_bad_arguments():
    with pytest.raises(ValueError, match="check is 'runs'"):
        run_sandboxed("runs", "x")
    with pytest.raises(ValueError, match="limits of 0 s"):
        Limits(seconds=0)
