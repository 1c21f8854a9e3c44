"""What `jaxspec inspect` shows, from summaries made by hand."""

import io

import pytest
from rich.console import Console
from what_is_shown import all_is_shown, numbers_are_whole

from jaxspec.errors import InputError
from jaxspec.report.figures.style import save_figure
from jaxspec.studies.pack.figures import container_figure
from jaxspec.studies.pack.result import PackResult, TensorResult
from jaxspec.studies.pack.view import code_tables, grouped, tensor_table


def entry(name, bits, *, shape=(30, 7), codec="cassandra1", draft=0.25, exponent=2.5, **more):
    elements = 1
    for size in shape:
        elements *= size
    sections = {"high": draft * bits, "low": (1 - draft) * bits} if codec != "raw" else {"bytes": bits}
    return {
        "name": name,
        "dtype": "BF16",
        "shape": list(shape),
        "bytes": 2 * elements,
        "elements": elements,
        "codec": codec,
        "ratio": 16 / bits,
        "target_bits_per_weight": bits,
        "draft_bits_per_weight": draft * bits,
        "bits_by_section": sections,
        "code_tables": {},
        "entropy": {"sign": 1.0, "exponent": exponent, "mantissa": 7.0},
    } | more


def summary(*entries, **more):
    return PackResult.from_plain(_summary(*entries, **more))


def kinds(entries):
    return grouped([TensorResult.from_plain(entry) for entry in entries])


def _summary(*entries, **more):
    return {
        "container": "some.jspk",
        "scheme": "cassandra1",
        "lossless": True,
        "file_bytes": 12_345,
        "ratio": 1.25,
        "target_bits_per_weight": 12.8,
        "draft_bits_per_weight": 3.2,
        "tensors": list(entries),
    } | more


LAYERS = [entry(f"model.layers.{i}.q.weight", bits, exponent=2 + i) for i, bits in enumerate((10.0, 12.0, 17.0))]
OTHERS = [entry("model.layers.3.q.weight", 16.0, shape=(30, 8)), entry("embed.weight", 16.0, codec="raw")]


def text(table, width=100):
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()


def test_tensors_that_differ_in_a_number_only_are_one_row_of_means():
    rows = kinds(LAYERS + OTHERS)
    assert [(row.name, row.count) for row in rows] == [
        ("model.layers.*.q.weight", 3),
        ("model.layers.3.q.weight", 1),  # another shape
        ("embed.weight", 1),
    ]
    assert rows[0].mean.target_bits_per_weight.value == pytest.approx(13)
    assert rows[0].mean.entropy["exponent"] == pytest.approx(3)
    assert rows[0].mean.bytes == 3 * 420
    assert rows[0].mean.bits_by_section == pytest.approx({"high": 3.25, "low": 9.75})


def test_a_section_that_some_tensors_lack_counts_as_zero_there():
    without = entry("model.layers.7.q.weight", 8.0, bits_by_section={"high": 8.0})
    (row,) = kinds([LAYERS[0], without])
    assert row.mean.bits_by_section == pytest.approx({"high": (2.5 + 8) / 2, "low": 7.5 / 2})


def test_the_table_says_what_is_measured_and_whether_it_is_lossless():
    shown = text(tensor_table(summary(*LAYERS, *OTHERS)))
    assert "model.layers.*.q.weight (3)" in shown
    assert "13.00" in shown
    assert "measured: 12.800 bits per weight, ratio 1.250x; the draft reads 3.200 bits" in " ".join(shown.split())
    assert ", lossless," in shown
    assert "NOT lossless" in text(tensor_table(summary(*LAYERS, lossless=False)))
    assert "model.layers.2.q.weight" in text(tensor_table(summary(*LAYERS), every=True))


def test_the_table_fits_a_terminal_of_eighty_columns():
    assert max(map(len, text(tensor_table(summary(*LAYERS, *OTHERS)), width=80).splitlines())) <= 80
    assert "1.33x" in text(tensor_table(summary(LAYERS[1])), width=80)


def test_no_table_cuts_a_number_at_any_width():
    long = entry("model.layers.0." + "very_long_name." * 6 + "weight", 11.25, shape=(128_256, 16_384))
    coded = entry("w", 9.0, code_tables={"field1": {str(i): 3 + i % 9 for i in range(200)}})
    for found in (summary(*LAYERS, *OTHERS, long), summary(long, draft_bits_per_weight=None), summary(coded)):
        numbers_are_whole(tensor_table(found))
        numbers_are_whole(tensor_table(found, every=True))
    numbers_are_whole(code_tables(summary(coded), "w")[0])


def test_code_tables_list_symbols_by_length():
    coded = entry("w", 9.0, code_tables={"field1": {"120": 3, "121": 1, "119": 3}})
    shown = text(code_tables(summary(coded), "w")[0])
    assert "3 symbols" in shown
    assert shown.index("121") < shown.index("120 119")


@pytest.mark.parametrize(("name", "words"), [("v", "is not in this file"), ("w", "no code tables")])
def test_code_tables_that_are_not_there(name, words):
    with pytest.raises(InputError, match=words):
        code_tables(summary(entry("w", 9.0)), name)


def test_the_figure_stacks_sections_and_marks_the_entropy():
    figure = container_figure(summary(*LAYERS, *OTHERS))
    (axes,) = figure.axes
    ends = {}
    for bar in axes.patches:
        ends[round(bar.get_y() + bar.get_height() / 2)] = max(
            ends.get(round(bar.get_y() + bar.get_height() / 2), 0), bar.get_x() + bar.get_width()
        )
    assert sorted(ends.values()) == pytest.approx([13, 16, 16])
    assert sorted(line.get_xdata()[0] for line in axes.lines) == pytest.approx([10.5, 10.5, 11])
    labels = [item.get_text() for item in figure.legends[0].get_texts()] if figure.legends else []
    labels += [item.get_text() for item in (axes.get_legend().get_texts() if axes.get_legend() else [])]
    assert "high (draft)" in labels
    assert "low (target only)" in labels


@pytest.mark.scheme_matrix(2)
@pytest.mark.parametrize("bits", [1e-3, 16.0, 4e4])
def test_all_data_of_the_figure_is_shown(bits):
    many = [entry(f"model.{'deep.' * 20}{'abcdefgh'[i]}.weight", bits, draft=1e-9) for i in range(8)]
    all_is_shown(container_figure(summary(*many, entry("one", bits, shape=(1, 1), entropy=None))))


def test_a_file_without_values_has_no_figure():
    assert container_figure(summary(entry("empty", 16.0, shape=(0, 4)))) is None


@pytest.mark.scheme_matrix
def test_figures_are_saved_whole_or_not_at_all(tmp_path):
    figure = container_figure(summary(*LAYERS))
    for name in ("a.png", "b.svg", "c.pdf", "folder/d"):
        save_figure(figure, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
    with pytest.raises(InputError, match=r"\.png, \.svg or \.pdf"):
        save_figure(figure, tmp_path / "e.docx")
    assert not list(tmp_path.glob("*e.docx*"))
