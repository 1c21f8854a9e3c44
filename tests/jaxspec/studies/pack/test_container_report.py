"""What `jaxspec inspect` shows, from summaries made by hand."""

import io

from rich.console import Console

from jaxspec.studies.pack.result import PackResult
from jaxspec.studies.pack.view import tensor_table


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


def test_the_table_says_what_is_measured_and_whether_it_is_lossless():
    shown = text(tensor_table(summary(*LAYERS, *OTHERS)))
    assert "model.layers.*.q.weight (3)" in shown
    assert "13.00" in shown
    assert "measured: 12.800 bits per weight, ratio 1.250x; the draft reads 3.200 bits" in " ".join(shown.split())
    assert ", lossless," in shown
    assert "NOT lossless" in text(tensor_table(summary(*LAYERS, lossless=False)))
    assert "model.layers.2.q.weight" in text(tensor_table(summary(*LAYERS), every=True))
