"""The rule by which every table and sentence fits its terminal: nothing is cut, and no number is broken."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from what_is_shown import NUMBER, WIDTHS, numbers_are_whole

import jaxspec.report.terminal as terminal
from jaxspec.report.terminal import Table, fold, show

WORDS = st.text(st.sampled_from("abcXYZ_./-()"), min_size=1, max_size=30)
NUMBERS = st.one_of(
    st.floats(-1e9, 1e9).map(lambda x: f"{x:,.3f}"),
    st.floats(-1e30, 1e30).map(lambda x: f"{x:.4g}"),
    st.integers(0, 10**12).map(str),
    st.floats(0, 99).map(lambda x: f"{x:.2f}x"),
    st.floats(0, 99).map(lambda x: f"{x:.2f}±0.06"),
)
SENTENCES = st.lists(st.one_of(WORDS, NUMBERS), max_size=6).map(" ".join)


@st.composite
def some_tables(draw):
    columns, rows = draw(st.integers(1, 7)), draw(st.integers(0, 3))
    table = Table(draw(SENTENCES), draw(SENTENCES))
    for _ in range(columns):
        table.add_column(draw(SENTENCES), justify=draw(st.sampled_from(["left", "right"])))
    for _ in range(rows):
        table.add_row(*(draw(st.one_of(NUMBERS, SENTENCES)) for _ in range(columns)))
    return table


@pytest.mark.study
@settings(max_examples=25, deadline=None)
@given(some_tables())
def test_no_table_cuts_a_number_at_any_width(table):
    numbers_are_whole(table, (20, 60, 100, WIDTHS[-1]))


@settings(max_examples=60, deadline=None)
@given(SENTENCES, st.integers(1, 90), st.booleans())
@example("speedup_vs_stored_ar over 1,024.5e-06", 7, True)
def test_folding_loses_nothing_and_breaks_no_number(text, width, break_words):
    lines = fold(text, width, break_words=break_words)
    assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)
    assert NUMBER.findall("\n".join(lines)) == NUMBER.findall(text)
    if not break_words:
        assert " ".join(lines).split() == text.split()
    for line in lines:
        assert len(line) <= width or not line.count(" ")


def numbered(columns, rows=2, heading="speedup vs {} AR"):
    table = Table("a title", "a caption")
    table.add_column("device")
    for i in range(columns):
        table.add_column(heading.format(i), justify="right")
    for row in range(rows):
        table.add_row(f"board {row}", *(f"{row + 1}.{i:05d}" for i in range(columns)))
    return table


def test_a_pipe_has_no_width_unless_told(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    show(numbered(20))
    assert len(capsys.readouterr().out.splitlines()) == 6 + 1
    monkeypatch.setenv("COLUMNS", "60")
    show(numbered(20))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 60
    assert out.count("1.00019") == 1


@pytest.mark.study(3)
@pytest.mark.parametrize("command", ["devices", "models"])
@pytest.mark.parametrize("width", [60, None])
def test_catalogs_at_every_width(command, width, monkeypatch, capsys):
    from jaxspec.cli import catalogs

    seen = []
    monkeypatch.setattr(terminal, "show", lambda *found, console=None: seen.extend(found))
    monkeypatch.delenv("COLUMNS", raising=False)
    if width is not None:
        monkeypatch.setenv("COLUMNS", str(width))
    getattr(catalogs, command).main(["--sources", "--json", "x.json"], standalone_mode=False)
    numbers_are_whole(seen[0], (width or WIDTHS[-1],))
    for line in capsys.readouterr().out.splitlines():
        assert len(line) <= (width or WIDTHS[-1]) or " " not in line.strip()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
