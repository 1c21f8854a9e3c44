import io

from made_results import read
from rich.console import Console

from jaxspec.report.configurations import tables as tables_of


def tables(entries):
    return tables_of([read(entry) for entry in entries])


def printed(table, width=80):
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    return console.file.getvalue()


def test_one_device_is_one_table_with_all_numbers_in_80_columns(make_entry):
    (table,) = tables([make_entry()])
    lines = printed(table).splitlines()
    assert lines[0].strip() == "Llama 3.1 8B on NVIDIA GeForce RTX 4090"
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith(("default", "grid", "uni", "tuned"))}
    assert rows == {
        "default": ["0.952", "0.851", "5.11", "5", "5.26", "5.21±0.06", "1.93x", "1.69x"],
        "grid": ["0.931", "0.796", "4.22", "4", "4.98", "4.95±0.07", "2.04x", "1.75x"],
        "uniform": ["0.935", "0.778", "4.13", "6", "5.67", "5.64±0.08", "2.09x", "1.77x"],
        "tuned": ["0.948", "0.814", "3.64", "7", "5.89", "5.84±0.09", "2.33x", "1.96x"],
    }
    assert "…" not in "".join(lines)


def test_no_draft_pays_is_said_and_nothing_is_bold(make_entry):
    (table,) = tables([make_entry(pays=False)])
    assert table.title.plain.endswith(": no draft pays here")
    assert [row.style for row in table.rows] == [None] * 4
    assert [row.style for row in tables([make_entry()])[0].rows] == [None, None, None, "bold"]
