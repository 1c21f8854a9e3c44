"""What a co-design says of widths without measured kernels, and of numbers of [set] that change nothing."""

import dataclasses

import pytest

from jaxspec.errors import InputError
from jaxspec.results import predicted
from jaxspec.settings.base import Layer, build_config
from jaxspec.studies.codesign.config import CodesignConfig
from jaxspec.studies.codesign.problem import make_problem
from jaxspec.studies.codesign.result import CodesignResult, DesignRow
from jaxspec.studies.codesign.view import codesign_tables, headline

BANDWIDTH = "device.memory.bandwidth_bytes_per_s"


def problem_of(device, numbers=None, **settings):
    given = {
        "architecture": "llama-3.2-1b",
        "device": device,
        "max_draft_length": 2,
        "set": {"workload.batch": 4.0} | (numbers or {}),
        "variables": {BANDWIDTH: {"from": 1e11, "to": 1e13}},
        "budgets": {"bandwidth_gb_per_s": 1e5},
        **settings,
    }
    return make_problem(build_config(CodesignConfig, Layer(given)))


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ({"workload.output_tokens": 64.0}, "no whole answer is timed"),
        ({"acceptance.alpha_token": 0.3}, r"acceptance comes from the table \[acceptance\]"),
    ],
)
def test_a_number_that_no_design_depends_on_is_refused(numbers, reason):
    ((name, _),) = numbers.items()
    with pytest.raises(InputError, match=f"^set.{name} would have no effect: {reason}; leave it out$"):
        problem_of("rtx-4090", numbers)


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
