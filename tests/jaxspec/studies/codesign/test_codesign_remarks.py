"""What a co-design says of widths without measured kernels, and of numbers of [set] that change nothing."""

import dataclasses

from jaxspec.results import predicted
from jaxspec.studies.codesign.result import CodesignResult, DesignRow
from jaxspec.studies.codesign.view import codesign_tables, headline


def test_no_draft_pays_is_an_answer():
    """The row of drafted tokens was left out where it was 0."""
    row = DesignRow(feasible=True, tokens_per_s=predicted(2.0), draft_tokens=predicted(0.0), acceptance=predicted(0.5))
    result = CodesignResult(architecture="a", device="d", scheme="s", gain=predicted(1.5), before=row, after=row)
    assert headline(result).endswith(
        "times the design before; no draft pays there, so that tokens are decoded one by one."
    )
    assert [cells.cells[1:] for cells in codesign_tables(result)[0].rows if cells.cells[0].startswith("drafted")] == [
        ("0", "0")
    ]
    drafted = dataclasses.replace(result, after=dataclasses.replace(row, draft_tokens=predicted(3.0)))
    assert headline(drafted).endswith("times the design before.")
