"""Tables that experiments write in pages."""

import pytest

from experiments.command_line import write_table
from jaxspec.errors import InputError


def test_a_table_takes_the_place_of_the_one_before_it_and_leaves_the_rest(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("above\n<!-- from here: python -m x -->\n| old |\n<!-- to here -->\nbelow\n")
    for _ in range(2):
        write_table(page, "python -m x", ("name", "s"), [("a", "1.5"), ("b", "2")])
    table = "| name | s |\n|---|---:|\n| a | 1.5 |\n| b | 2 |\n"
    assert page.read_text() == f"above\n<!-- from here: python -m x -->\n{table}<!-- to here -->\nbelow\n"


@pytest.mark.parametrize(
    "text", ["no lines", "<!-- from here: python -m y -->\n<!-- to here -->", "<!-- from here: python -m x -->"]
)
def test_a_page_without_the_lines_stays_as_it_is(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(InputError, match="put them where the table belongs"):
        write_table(page, "python -m x", ("name",), [])
    assert page.read_text() == text
