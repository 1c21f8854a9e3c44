"""Heads of functions, and where a completion ends."""

import pytest

from jaxspec.scaling.tasks import function_of, function_prompts

TEXT = b"""import os


def one(x):
    return x


class A:
    def method(self):
        pass


def two(
    x: int,
    y=3,
) -> dict[str, int]:
    return {}
"""


def test_heads_of_functions_with_what_stands_before():
    found = function_prompts(TEXT, 5, context=10)
    assert len(found) == 2
    assert found[0].endswith(b"\n\ndef one(x):\n")
    assert found[0].startswith(b"port os")
    assert found[1].endswith(b"def two(\n    x: int,\n    y=3,\n) -> dict[str, int]:\n")
    assert len(function_prompts(TEXT, 1)) == 1
    assert function_prompts(b"x = 1\n", 3) == []


@pytest.mark.parametrize(
    ("completion", "body"),
    [
        (b"    return 1\n\n\ndef g():", b"    return 1\n\n\n"),
        (b"    return 1\n# more\n    x\ny", b"    return 1\n# more\n    x\n"),
        (b"    return (\n)\nx", b"    return (\n)\n"),
        (b"    return 1\n", None),
        (b"x = 1\n", None),
        (b"", None),
    ],
)
def test_where_a_function_ends(completion, body):
    head = b"def one(x):\n"
    assert function_of(b"y = 2\n\n\n" + head, completion) == (None if body is None else head + body)
