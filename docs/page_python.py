"""Python blocks of a page: executed statement by statement; a comment behind a `print` must be what it prints."""

from __future__ import annotations

import ast
import contextlib
import io
import math
import re
import tokenize

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def _printed_comments(source: str) -> dict[int, str]:
    """Comments behind code that prints, by line: the line of a `print(`, or the last one of a call that takes several."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = source.splitlines()
    comments = {
        t.start[0]: t.string[1:].strip()
        for t in tokens
        if t.type == tokenize.COMMENT and lines[t.start[0] - 1][: t.start[1]].strip()
    }
    ends = {
        node.end_lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    return {line: text for line, text in comments.items() if "print(" in lines[line - 1] or line in ends}


def same_output(printed: str, stated: str) -> bool:
    """Whether a comment states what was printed.

    Line breaks may be commas in the comment, numbers may differ by their last digits, and an explanation may follow behind
    a colon.
    """
    printed = ", ".join(printed.strip().splitlines())
    words = lambda text: re.sub(r"[\s,]", "", _NUMBER.sub("#", text))
    for candidate in (stated, stated.split(":")[0]):
        if words(printed) == words(candidate):
            pairs = zip(_NUMBER.findall(printed), _NUMBER.findall(candidate), strict=True)
            if all(math.isclose(float(a), float(b), rel_tol=1e-4) for a, b in pairs):
                return True
    return False


def run_python(source: str, namespace: dict, *, path: str = "<example>", first_line: int = 1) -> None:
    """Execute a block statement by statement.

    Args:
        first_line: of the block in its page, for tracebacks.
    Raises:
        AssertionError: something else was printed than the comment says. Whatever the code raises goes through.
    """
    comments = _printed_comments(source)
    for node in ast.parse(source).body:
        stated = [
            comments[line] for line in range(node.lineno, (node.end_lineno or node.lineno) + 1) if line in comments
        ]
        ast.increment_lineno(node, first_line - 1)
        code = compile(ast.Module([node], []), path, "exec", dont_inherit=True)
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, namespace)
        if stated and not same_output(output.getvalue(), " ".join(stated)):
            raise AssertionError(f"{path}:{node.lineno} prints {output.getvalue()!r}, its comment says {stated}")
