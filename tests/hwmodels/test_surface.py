"""The package as a whole: what it may import, and that its public names say what they are."""

import ast
import inspect
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
        if callable(public):
            doc = inspect.getdoc(public) or ""
            # A dataclass without a docstring gets its signature as one.
            assert doc, name
            assert not doc.startswith(f"{name}("), name
