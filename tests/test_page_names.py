"""Names in the README and the guide: modules, functions and files exist, and tables have all that a registry has."""

import functools
import importlib
import pkgutil
import re

import code_blocks
import pytest

import jaxspec.formats
from hwmodels.catalog.units import UNITS
from hwmodels.memory.placement import PLACEMENTS
from jaxspec.cli.app import cli
from jaxspec.runs.directory import kept_files
from jaxspec.settings.draft_kinds import draft_names
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.studies import TuneConfig
from jaxspec.studies.compare.config import LOSSY_NAMES

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


ANSWERS = PAGES["architecture.md"].partition("## Where is ...?")[2]


@pytest.mark.parametrize(
    "question", ["Huffman decoding", "the Jetson", "Wanda", "the acceptance rule", "the price of a verification"]
)
def test_the_architecture_ends_with_answers_by_path(question):
    answer = re.search(rf"^\| {question} \| (.*) \|$", ANSWERS, re.MULTILINE)
    assert answer
    paths = [code for code in INLINE.findall(answer[1]) if PATH.fullmatch(code)]
    assert paths
    assert all((code_blocks.ROOT / path).is_file() for path in paths)
    for path, name in re.findall(r"`([^`]+)`: `(\w+)`", answer[1]):
        assert f"def {name}(" in (code_blocks.ROOT / path).read_text(encoding="utf-8")


def test_names_that_are_gone_are_found():
    text = "`jaxspec.tune.gradient`, `hwmodels.step_cost(x)`, `jaxspec/tune/gradient`, `jaxspec/tuning/gradient`, `hwmodels.no`"
    assert unknown(text) == ["jaxspec.tune.gradient", "hwmodels.no", "jaxspec/tune/gradient"]


def test_the_guide_lists_what_a_run_keeps():
    (block,) = (found for found in BLOCK.findall(PAGES["guide.md"]) if "\nrun.json " in found)
    listed = {line.split()[0].removesuffix("/") for line in block.splitlines()[1:-1]}
    assert listed == {path.name for path in kept_files("tune", TuneConfig())}


def rows(page):
    """First cells of a page's tables, with the names in them; a name that begins with a dash continues the one before."""
    found = set()
    for cell in re.findall(r"^\| ([^|]*) \|", PAGES[page], flags=re.MULTILINE):
        whole = ""
        for name in INLINE.findall(cell):
            whole = re.sub(r"-\d+$", name, whole) if name.startswith("-") and whole else name
            found.add(whole)
    return found


#: Formats that are part of containers, and no encodings by themselves.
NO_FORMATS = {"shard_index"}


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("trees.md", draft_names()),
        ("compare.md", LOSSY_NAMES),
        ("containers.md", [facts.name for facts in SCHEME_FACTS.values() if facts.packs]),
        ("hardware.md", UNITS),
        ("hardware.md", PLACEMENTS),
        ("formats.md", {module.name for module in pkgutil.iter_modules(jaxspec.formats.__path__)} - NO_FORMATS),
    ],
    ids=["drafts", "lossy", "containers", "units", "placements", "formats"],
)
def test_tables_have_all_that_can_be_named(page, names):
    assert set(names) - rows(page) == set()


def test_the_readme_has_every_command():
    assert [name for name in cli.list_commands(None) if f"jaxspec {name}" not in PAGES["README.md"]] == []
