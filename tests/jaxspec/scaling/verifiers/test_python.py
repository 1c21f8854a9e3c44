"""Verdicts on texts, and what hostile ones may not do."""

import numpy as np
import pytest

from jaxspec.scaling.verifiers import Limits, Verdict, compiles, doctests_hold, parses, run_sandboxed

LIMITS = Limits(seconds=1.0)

GOOD = 'def f(x):\n    """\n    >>> f(1)\n    2\n    """\n    return x + 1\n'
IN_CLASS = 'class A:\n    """\n    >>> A().x\n    3\n    """\n    x = 3\n'


def refused(statement):
    """A text whose doctest holds if a statement is refused."""
    return (
        'def f():\n    """\n    >>> f()\n    \'refused\'\n    """\n    try:\n        '
        + statement
        + "\n    except (PermissionError, OSError, ImportError):\n        return 'refused'\n    return 'done'\n"
    )


def test_three_checks_one_after_the_other():
    texts = ["x = ", "return 1", "x = 1", GOOD.replace("2\n", "3\n"), GOOD, IN_CLASS, "\0", "(" * 5000, "'\ud800'"]
    assert parses(texts, LIMITS).tolist() == [0, 1, 1, 1, 1, 1, 0, 0, 0]
    assert compiles(texts, LIMITS).tolist() == [0, 0, 1, 1, 1, 1, 0, 0, 0]
    assert doctests_hold(texts, LIMITS).tolist() == [0, 0, 0, 0, 1, 1, 0, 0, 0]
    assert doctests_hold([], LIMITS).tolist() == []


@pytest.mark.parametrize(
    "statement",
    [
        "import socket; socket.socket()",
        "import os; os.fork()",
        "import os; os.remove('x')",
        "import os; os.kill(1, 0)",
        "import subprocess; subprocess.Popen(['true'])",
        "import ctypes; ctypes.CDLL(None)",
        "open('written', 'w')",
        "import os; os.open('written', os.O_CREAT | os.O_WRONLY)",
    ],
)
def test_what_a_text_may_not_do(statement):
    assert run_sandboxed("doctests", refused(statement), LIMITS) is Verdict.HOLDS
    # The same text with another answer fails: the statement itself decided.
    assert run_sandboxed("doctests", refused("pass"), LIMITS) is Verdict.FAILS


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("while True: pass", Verdict.TIMED_OUT),
        ("import time; time.sleep(60)", Verdict.TIMED_OUT),
        ("x = 'a' * 10 ** 10", Verdict.FAILS),
        ("import sys; sys.exit(0)", Verdict.FAILS),
        ("import os; os._exit(0)", Verdict.CRASHED),
        ("print('holds')", Verdict.FAILS),
    ],
)
def test_limits(text, verdict):
    assert run_sandboxed("doctests", text, LIMITS) is verdict


def test_equal_texts_have_equal_scores():
    np.testing.assert_array_equal(parses(["x", "(", "x"], LIMITS), [1, 0, 1])


def test_bad_arguments():
    with pytest.raises(ValueError, match="check is 'runs'"):
        run_sandboxed("runs", "x")
    with pytest.raises(ValueError, match="limits of 0 s"):
        Limits(seconds=0)
