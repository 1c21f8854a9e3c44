import io
import math

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


def test_bits_of_the_head_are_shown_where_a_scheme_compresses_it(make_entry):
    entry = make_entry()
    assert "head" not in printed(tables([entry])[0])
    for bits, configuration in enumerate(entry["configurations"].values(), start=4):
        configuration["bits_per_head_weight"] = bits + 0.17
        configuration["status"]["bits_per_head_weight"] = "measured"
    (table,) = tables([entry])
    lines = printed(table, 100).splitlines()
    rows = {
        line.split()[0]: line.split()[3:5] for line in lines if line.startswith(("default", "grid", "uni", "tuned"))
    }
    assert rows == {
        "default": ["5.11", "4.17"],
        "grid": ["4.22", "5.17"],
        "uniform": ["4.13", "6.17"],
        "tuned": ["3.64", "7.17"],
    }
    assert "bits per weight, bits per head weight, tokens per cycle counted" in table.caption.plain


def test_caption_gives_each_columns_status_and_what_ran(make_entry):
    entry = make_entry()
    entry["configurations"]["grid"]["status"]["speedup_vs_stored_ar"] = "calibrated"
    caption = tables([entry])[0].caption.plain.splitlines()
    assert caption == [
        "measured: alpha token, alpha fraction, bits per weight, tokens per cycle counted",
        "predicted: tokens per cycle predicted, speedup vs bf16 AR",
        "predicted or calibrated: speedup vs stored AR",
        "acceptance measured on embedded (3.08 M parameters), cost predicted for Llama 3.1 8B on NVIDIA GeForce RTX 4090",
    ]


def test_a_large_gap_is_called_a_defect(make_entry):
    entry = make_entry()
    assert "DEFECT" not in tables([entry])[0].caption.plain
    entry["configurations"]["tuned"]["tokens_per_cycle_gap_in_standard_errors"] = 4.25
    assert "differ by more than 3 standard errors: tuned 4.2" in tables([entry])[0].caption.plain


def test_no_draft_pays_is_said_and_nothing_is_bold(make_entry):
    (table,) = tables([make_entry(pays=False)])
    assert table.title.plain.endswith(": no draft pays here")
    assert [row.style for row in table.rows] == [None] * 4
    assert [row.style for row in tables([make_entry()])[0].rows] == [None, None, None, "bold"]


def test_several_devices_get_a_summary(make_entry):
    entries = [make_entry(), make_entry(device="jetson-agx-orin", layers=5, pays=False)]
    *_, summary = found = tables(entries)
    assert len(found) == 3
    lines = [line.split() for line in printed(summary, width=100).splitlines()]
    assert ["NVIDIA", "GeForce", "RTX", "4090", "2.33x", "1.96x", "1.14x", "1.21x", "tuned"] in lines
    assert ["1.11", "to", "1.16", "1.18", "to", "1.24"] in lines
    assert any(line[:2] == ["NVIDIA", "Jetson"] and line[-1] == "none" for line in lines)


def test_unknown_numbers_and_names_in_brackets(make_entry):
    entry = make_entry(device="board [rev b]")
    entry["configurations"]["grid"]["speedup_vs_bf16_ar"] = math.nan
    entry["configurations"]["tuned"]["tokens_per_cycle_standard_error"] = None
    text = printed(tables([entry])[0])
    assert "board [rev b]" in text
    assert "n/a" in text
    assert " 5.84 " in text


def test_an_empty_entry_is_an_empty_table():
    (table,) = tables([{}])
    assert table.row_count == 0
    assert "unnamed device" in printed(table)
    assert "no draft pays" not in table.title.plain
