"""Modules, functions and files that the README and the guide name within sentences exist."""

import functools
import importlib
import re

import code_blocks
import pytest

#: Without those that tell what once was.
PAGES = {
    path.name: path.read_text(encoding="utf-8")
    for path in code_blocks.pages()
    if path.parent.name != "decisions" and path.name != "CHANGELOG.md"
}
BLOCK = re.compile(r"^[ ]*```.*?^[ ]*```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
DOTTED = re.compile(r"((?:jaxspec|hwmodels|experiments)(?:\.\w+)+)(?:\(.*\))?")
PATH = re.compile(r"(?:jaxspec|hwmodels|experiments|docs|tests)/[\w/.-]*")

#: Files that a page tells how to write, or stands for.
TO_BE_WRITTEN = {"jaxspec/compress/schemes/int6.py", "docs/decisions/NNNN-slug.md"}


@functools.cache
def resolves(name):
    """Whether a dotted name is a module, or something within one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as missing:
            if name != missing.name and not name.startswith(f"{missing.name}."):
                raise  # one of its own imports
            continue
        return all(hasattr(found, part) and [found := getattr(found, part)] for part in parts[length:])
    return False


def exists(place):
    """A file, a folder, or a module without its ending."""
    path = code_blocks.ROOT / place
    return place in TO_BE_WRITTEN or path.exists() or path.with_name(f"{path.name}.py").exists()


def unknown(text):
    """Names and paths of a page that lead nowhere."""
    codes = [" ".join(code.split()) for code in INLINE.findall(BLOCK.sub("", text))]
    names = [match[1] for code in codes if (match := DOTTED.fullmatch(code))]
    paths = [code for code in codes if PATH.fullmatch(code)]
    return [name for name in names if not resolves(name)] + [place for place in paths if not exists(place)]


@pytest.mark.parametrize("page", PAGES)
def test_names_within_sentences_exist(page):
    code_blocks.ensure_importable()
    assert unknown(PAGES[page]) == []


def test_names_that_are_gone_are_found():
    text = "`jaxspec.tune.gradient`, `hwmodels.step_cost(x)`, `jaxspec/tune/gradient`, `jaxspec/tuning/gradient`, `hwmodels.no`"
    assert unknown(text) == ["jaxspec.tune.gradient", "hwmodels.no", "jaxspec/tune/gradient"]
