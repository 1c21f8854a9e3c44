"""The program of a process that looks at generated text or runs it (see `sandbox`): one request in, one answer of JSON out.

It is given to the interpreter as text and imports nothing but the standard library. Looking runs no code of the text: it takes
doctests out of it, with what they expect. Running gets the code without what is expected, and answers what came out.
"""

import ast
import base64
import contextlib
import doctest
import io
import json
import marshal
import os
import resource
import sys
import types

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _limit(seconds: float, memory_bytes: int) -> None:
    whole = max(1, int(-(-seconds // 1)))
    limits = {
        resource.RLIMIT_CPU: whole + 1,  # the clock of the parent is first
        resource.RLIMIT_AS: memory_bytes,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 32,
        resource.RLIMIT_NPROC: 0,  # one process is all of its memory and time
    }
    for kind, most in limits.items():
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


def _looked_at(check: str, text: str) -> object:
    """Whether a text parses or compiles; of doctests its code without what is expected, and [source, output, exception, flags]
    of each example of each test. False where there is nothing to run.
    """
    try:
        tree = ast.parse(text)
        if check == "parses":
            return True
        tests = _doctests(tree) if check == "doctests" else []
        code = compile(tree, "<sample>", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    if check == "compiles":
        return True
    return bool(tests) and {"code": base64.b64encode(marshal.dumps(code)).decode(), "tests": tests}


def _doctests(tree: ast.Module) -> list[list[tuple[str, str, str | None, int]]]:
    """Examples of each docstring, in the order in which doctest runs them; what they expect is taken out of the tree."""
    texts: dict[str, ast.Constant] = {}
    named: dict[str, ast.AST] = {}
    _name(tree, "sample", named)
    for name, node in named.items():
        first = next(iter(getattr(node, "body", ())), None)
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            texts[name] = first.value
    for line in tree.body:
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Dict) and "__test__" in map(_id, line.targets):
            for key, value in zip(line.value.keys, line.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    texts[f"sample.__test__.{key.value}"] = value
    doctests = []
    for _, constant in sorted(texts.items(), key=lambda item: item[0]):
        text = str(constant.value)
        examples = doctest.DocTestParser().get_examples(text)
        lines = text.split("\n")
        for example in reversed(examples):
            behind = example.lineno + example.source.count("\n")
            del lines[behind : behind + example.want.count("\n")]
        constant.value = "\n".join(lines)
        if examples:
            doctests.append([_parts(example) for example in examples if not example.options.get(doctest.SKIP)])
    return doctests


def _id(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _name(node: ast.AST, name: str, named: dict[str, ast.AST]) -> None:
    """Name all that may have a docstring as doctest does: what stands in no function, and of equal names the last."""
    for old in [old for old in named if old == name or old.startswith(name + ".")]:
        del named[old]
    named[name] = node
    inner = [] if isinstance(node, _FUNCTIONS) else list(ast.iter_child_nodes(node))
    while inner:
        child = inner.pop(0)
        if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            # A property's setter has the docstring of the property.
            if not any(isinstance(by, ast.Attribute) and _id(by.value) == child.name for by in child.decorator_list):
                _name(child, f"{name}.{child.name}", named)
        elif isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            inner[:0] = ast.iter_child_nodes(child)


def _parts(example: doctest.Example) -> tuple[str, str, str | None, int]:
    return example.source, example.want, example.exc_msg, sum(flag for flag, on in example.options.items() if on)


class _Recorder(doctest.OutputChecker):
    """Keeps what examples write, or the exception that they raise."""

    def __init__(self):
        self.rows: list[list[tuple[bool, str]]] = []

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """All are right here: the parent compares."""
        self.rows[-1].append((bool(want), got))
        return True


def _outputs(code: str, tests: list[list[str]]) -> object:
    """[whether it is an exception, text] of each example of each test; None where the code itself raises."""
    module = sys.modules["sample"] = types.ModuleType("sample")
    sink = io.StringIO()
    sys.stdout = sys.stderr = sink
    recorder = _Recorder()
    runner = doctest.DocTestRunner(recorder, verbose=False)
    try:
        exec(marshal.loads(base64.b64decode(code)), module.__dict__)
        for sources in tests:
            recorder.rows.append([])
            # An example that expects an exception asks for one that is raised, and for the output of all others.
            examples = [doctest.Example(source, "", "any\n") for source in sources]
            runner.run(doctest.DocTest(examples, module.__dict__, "sample", None, 0, None), out=sink.write)
    except BaseException:  # SystemExit and KeyboardInterrupt of the text are failures like any other
        return None
    return recorder.rows


def main() -> None:
    """Answer one request."""
    request = json.loads(sys.stdin.buffer.read())
    answers = os.dup(1)
    os.dup2(2, 1)
    _limit(request["seconds"], request["memory_bytes"])
    sys.setrecursionlimit(2000)
    os.write(answers, b" ")  # the clock begins
    asked = request["asked"]
    answer = json.dumps(_outputs(**asked) if "code" in asked else _looked_at(**asked)).encode("ascii")
    while answer:
        answer = answer[os.write(answers, answer) :]
    os._exit(0)


if __name__ == "__main__":
    main()
