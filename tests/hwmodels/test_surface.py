"""The package as a whole: what it may import, and that its public names say what they are."""

import ast
import inspect
import typing
from pathlib import Path

import pytest

import hwmodels
import hwmodels.catalog

SOURCES = sorted(Path(hwmodels.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_hardware_models_know_no_networks(source):
    nodes = list(ast.walk(ast.parse(source.read_text(encoding="utf-8"))))
    imported = [n.module or "" for n in nodes if isinstance(n, ast.ImportFrom)]
    imported += [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    assert not [name for name in imported if name.split(".")[0] in ("jaxspec", "experiments")]


@pytest.mark.parametrize("package", [hwmodels, hwmodels.catalog], ids=lambda package: package.__name__)
def test_public_names_have_docstrings(package):
    for name in package.__all__:
        public = getattr(package, name)
        # A union of texts has no docstring of its own.
        if callable(public) and typing.get_origin(public) is not typing.Literal:
            doc = inspect.getdoc(public) or ""
            # A dataclass without a docstring gets its signature as one.
            assert doc, name
            assert not doc.startswith(f"{name}("), name


def imports_of(source):
    """Modules of the package that a module names in its imports; a package's own listing of its parts is no use of them."""
    here = ".".join(source.relative_to(Path(hwmodels.__file__).parents[1]).with_suffix("").parts)
    nodes = [n for n in ast.walk(ast.parse(source.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
    named = [f"{n.module}.{alias.name}" for n in nodes for alias in n.names] + [n.module or "" for n in nodes]
    return here, {name for name in named if name.startswith("hwmodels.")}


def test_no_module_imports_itself_through_others():
    graph = dict(imports_of(source) for source in SOURCES if source.name != "__init__.py")
    graph = {module: {name for name in used if name in graph} for module, used in graph.items()}
    while free := [module for module, used in graph.items() if not used & graph.keys()]:
        for module in free:
            del graph[module]
    assert not graph, f"a circle among {sorted(graph)}"
