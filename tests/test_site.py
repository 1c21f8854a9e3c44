"""The site without building it: navigation names every page, links lead somewhere, generated pages say what is committed."""

import json
import re
import tomllib

import pytest
from code_blocks import ROOT
from generated import calibrations, decisions, papers, reference
from generated.notebooks import notebooks
from generated.page import percent

PAGES = ROOT / "docs" / "pages"
LINK = re.compile(r"(?<!`)\]\(([^)\s]+)\)")
FENCED = re.compile(r"^[ ]*```.*?^[ ]*```$", re.MULTILINE | re.DOTALL)

#: Pages that exist in the site alone, and folders that its navigation names.
GENERATED = {
    *(page.uri for page in (*decisions.pages(), *papers.pages(), *reference.pages())),
    *(f"notebooks/{path.stem}.md" for path in notebooks()),
}

SOURCES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES.glob("*.md"), *(ROOT / "docs/decisions").glob("*.md")]


def navigation():
    text = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    block = text[text.index("\nnav:") : text.index("\nhooks:")]
    return re.findall(r"^ +- [^:#\n]+: (\S+)$", block, flags=re.MULTILINE)


def test_navigation_names_every_page_once():
    named = navigation()
    assert sorted(name for name in named if name.endswith(".md")) == sorted(path.name for path in PAGES.glob("*.md"))
    folders = {uri.split("/")[0] + "/" for uri in GENERATED}
    assert sorted(name for name in named if not name.endswith(".md")) == sorted(folders)


def anchors(text):
    """Anchors of a page's headings, as the site makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", text), flags=re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def broken_links(source, text):
    """Pages are read in the repository too, so a link names the file there, which the site turns into its own address."""
    found = []
    for link in LINK.findall(FENCED.sub("", text)):
        name, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        target = (source.parent / name).resolve() if name else source
        if not target.exists():
            found.append(f"{source.name}: {link} leads nowhere")
        elif target.is_file() and anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            found.append(f"{source.name}: {link} has no such heading")
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_links_lead_somewhere(source):
    assert broken_links(source, source.read_text(encoding="utf-8")) == []


#: Words of the field that the pages use without defining them where they stand.
WORDS = """token; KV cache; AR; draft; target; `alpha_token`; `alpha_fraction`; acceptance rate; draft length; cycle;
root; verification; verification length; tokens per cycle, AAT; speculation data; verification data; footprint;
superblock; hotness, expert pool; MSB slice, LSB slice; kernel; engine; measured; predicted; calibrated; input"""


def test_the_glossary_defines_each_word_once():
    text = (PAGES / "glossary.md").read_text(encoding="utf-8")
    defined = [word.lower() for word in re.findall(r"^(\S[^\n]*)\n:   ", text, flags=re.MULTILINE)]
    assert len(defined) == len(set(defined))
    assert {" ".join(word.split()).lower() for word in WORDS.split(";")} <= set(defined)


def test_each_name_of_the_reference_is_on_the_page_of_its_room():
    shown = [name for members in reference.rooms().values() for name in members]
    assert sorted(shown) == sorted(reference.listed())
    assert all(
        name == room or name.startswith(f"{room}.") for room, names in reference.rooms().items() for name in names
    )
    assert reference.room("hwmodels.compute.systolic.unit") == "hwmodels.compute"
    assert reference.room("jaxspec.errors") == "jaxspec"
    assert all(reference.sentence(room) for room in reference.rooms())


def test_each_calibrated_kernel_has_a_row():
    shown = calibrations.error_tables()
    for path in calibrations.FOLDER.glob("*/*.toml"):
        record = tomllib.loads(path.read_text(encoding="utf-8"))
        section = next(part for part in shown.split("\n## ") if part.removeprefix("## ").startswith(path.parent.name))
        for name, entry in calibrations.kernels(record):
            row = next(line for line in section.splitlines() if line.startswith(f"| {path.stem} | {name} |"))
            assert percent(calibrations.held_out(entry["errors"])["mean"]) in row
    assert calibrations.held_out({"fitted": {"mean": 1}, "a, held out": {"mean": 2}, "b held out": {"mean": 3}}) == {
        "mean": 3
    }


@pytest.mark.parametrize("name", papers.papers())
def test_residuals_are_those_of_the_declared_tables(name):
    """Written anew where a paper's tables, titles or choices change: `docs/write_residuals.py` says how."""
    from experiments.reproduce.run import find_paper

    kept = json.loads((papers.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    declared = {f"{name}/{table.name}": table for table in find_paper(name).tables}
    assert list(kept["summary"]) == sorted(declared)
    for key, summary in kept["summary"].items():
        assert summary["title"] == declared[key].title
        assert summary["choices"] == [choice.in_words() for choice in declared[key].choices]
        assert list(summary["inherits"]) == sorted(declared[key].inherits)
        by_outcome = {choice.name: choice for choice in declared[key].choices if choice.seen}
        assert [choice["name"] for choice in summary["choices_by_outcome"]] == list(by_outcome)
        for choice in summary["choices_by_outcome"]:
            assert bool(choice["printed_reading"]) == bool(by_outcome[choice["name"]].as_printed)
        assert summary["doubts"] == list(declared[key].doubts)
    (page, *figures) = [page for page in papers.pages() if name.replace("_", "-") in page.uri or name in page.uri]
    assert all(summary["title"].replace("|", "&#124;") in page.content for summary in kept["summary"].values())
    assert f"papers/{name}_errors.png" in [figure.uri for figure in figures]
