"""The tests themselves: each asserts something, and none is skipped because the library could not do its work. And the root."""

import ast
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
from check_kinds import NUM_PARTS, SECONDS, are_beyond, parts_of
from longest_units import LONGEST_S

TESTS = Path(__file__).parent

#: Beginnings of the names of what fails a test: `assert_allclose`, `raises`, `warns`, `fail`, `check_unit` of a benchmark.
ASSERTING = ("assert", "check_", "raises", "warns", "deprecated_call", "fail")


class Definition(NamedTuple):
    """A function or a class: whether it asserts by itself, and all names that it uses."""

    name: str
    is_class: bool
    asserts: bool
    uses: frozenset[str]


def definitions(text: str) -> list[Definition]:
    """All of a file, whatever they stand in, in the order of the file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, kinds)]
    return [_definition(node) for node in sorted(nodes, key=lambda node: node.lineno)]


def _definition(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> Definition:
    # Without its decorators: `parametrize` may name an asserting function without calling it.
    inner = [child for statement in node.body for child in ast.walk(statement)]
    uses = {child.id for child in inner if isinstance(child, ast.Name)}
    uses |= {child.attr for child in inner if isinstance(child, ast.Attribute)}
    own = any(isinstance(child, ast.Assert) for child in inner) or any(name.startswith(ASSERTING) for name in uses)
    return Definition(node.name, isinstance(node, ast.ClassDef), own, frozenset(uses))


def asserting(nodes: list[Definition], known: frozenset[str] | set[str] = frozenset()) -> set[str]:
    """Names of the definitions, other than tests, that assert: fixtures, functions and classes, at any remove."""
    helpers, rest = set(known), [node for node in nodes if not node.name.startswith(("test_", "Test"))]
    while True:
        found = {node.name for node in rest if node.asserts or node.uses & helpers} - helpers
        if not found:
            return helpers
        helpers |= found


def unasserted_tests(sources: dict[str, str]) -> list[str]:
    """Tests that assert nothing, among files given by name."""
    files = {name: definitions(text) for name, text in sources.items()}
    is_test_file = lambda name: Path(name).name.startswith("test_")
    shared = asserting([node for name, nodes in files.items() if not is_test_file(name) for node in nodes])
    found = []
    for name, nodes in files.items():
        helpers = asserting(nodes, shared)
        for node in nodes:
            is_test = node.name.startswith("test_") and not node.is_class
            if is_test and not node.asserts and not node.uses & helpers:
                found.append(f"{name}: {node.name}")
    return found


def skips_on_errors(sources: dict[str, str]) -> list[str]:
    """Places where a test is skipped in an `except`: what failed there is what the test is for."""
    return [
        f"{name}:{call.lineno}"
        for name, text in sources.items()
        for handler in ast.walk(ast.parse(text))
        if isinstance(handler, ast.ExceptHandler)
        for call in ast.walk(handler)
        if isinstance(call, ast.Attribute) and call.attr in ("skip", "xfail")
    ]


@pytest.fixture(scope="module")
def sources():
    """With the contracts, which ship."""
    contracts = TESTS.parent / "jaxspec" / "testing"
    found = [*sorted(TESTS.rglob("*.py")), *sorted(contracts.glob("*.py"))]
    return {str(path.relative_to(TESTS.parent)): path.read_text(encoding="utf-8") for path in found}


def test_every_test_asserts_something(sources):
    assert len(sources) > 100
    assert unasserted_tests(sources) == []


def test_no_two_test_files_share_a_name(sources):
    """One pytest process imports them side by side, as top-level modules."""
    names = Counter(Path(name).name for name in sources if Path(name).name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_test_is_skipped_by_what_it_tests(sources):
    assert skips_on_errors(sources) == []


def test_no_package_of_others_lies_in_the_root():
    """Downloads of pip were committed there once, 36 MB of them."""
    assert [path.name for path in TESTS.parent.iterdir() if path.suffix in (".whl", ".gz", ".zip")] == []


def test_the_longest_units_are_there():
    assert [unit for unit in LONGEST_S if not (TESTS.parent / unit.partition("::")[0]).is_file()] == []


def test_kinds_choose_what_is_beyond_the_fast_suite():
    def case(name, *marks):
        case_id = name.partition("[")[2].removesuffix("]")
        return SimpleNamespace(nodeid=name, callspec=SimpleNamespace(id=case_id), iter_markers=lambda: iter(marks))

    first, named, whole = pytest.mark.network(1).mark, pytest.mark.paper("y").mark, pytest.mark.signals.mark
    items = [case("m::a[x]", first), case("m::a[y]", first), case("m::b[x]", named), case("m::b[y]", named)]
    items += [case("m::c", whole), case("m::d", pytest.mark.wrong_arrays.mark)]
    assert list(are_beyond(items)) == [False, True, True, False, True, False]


def test_eighths_take_about_as_long():
    units = {f"module {i}": 3 + i % 11 for i in range(90)}
    parts = parts_of(units)
    assert parts == parts_of(dict(reversed(units.items())))
    loads = [sum(units[name] for name, part in parts.items() if part == each) for each in range(NUM_PARTS)]
    assert max(loads) - min(loads) <= 3


def test_kinds_are_registered(pytestconfig):
    registered = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert set(SECONDS) <= registered
