"""One declaration of a number serves the terminal and the page."""

import pytest

from jaxspec.host.result import FittedPart
from jaxspec.host.view import PART_COLUMNS
from jaxspec.report.columns import Cell, Column, Grid, fill, terminal_columns
from jaxspec.report.configurations import PAGE_COLUMNS as CONFIGURATION_COLUMNS
from jaxspec.report.page import device_slugs
from jaxspec.report.stopwatch import _COLUMNS as STOPWATCH_COLUMNS
from jaxspec.report.terminal import Table
from jaxspec.results import measured
from jaxspec.results.network_results import AcceptanceRates, ClockedWay, Configuration, CycleEnds, Ends
from jaxspec.studies.advise.result import AdvisedBatch
from jaxspec.studies.advise.view import BATCH_COLUMNS as ADVICE_COLUMNS
from jaxspec.studies.compare.result import Contestant
from jaxspec.studies.compare.view import PAGE_COLUMNS as CONTESTANT_COLUMNS
from jaxspec.studies.predict.result import BatchRow, LengthRow, StepTotals
from jaxspec.studies.predict.view import BATCH_COLUMNS, LENGTH_COLUMNS, STEP_COLUMNS
from jaxspec.studies.scale.result import Exchange, PlanRow
from jaxspec.studies.scale.view import EXCHANGE_COLUMNS, PLAN_COLUMNS
from jaxspec.studies.serve.result import LoadEnds, LoadRow
from jaxspec.studies.serve.view import _COLUMNS as LOAD_COLUMNS
from jaxspec.studies.tree.result import ContextRow
from jaxspec.studies.tree.view import CONTEXT_COLUMNS

FULL = (
    (Configuration(), CONFIGURATION_COLUMNS),
    (ClockedWay(), STOPWATCH_COLUMNS),
    (AdvisedBatch(), ADVICE_COLUMNS),
    (FittedPart(), PART_COLUMNS),
    (Contestant(), CONTESTANT_COLUMNS),
    (LengthRow(intervals=CycleEnds()), LENGTH_COLUMNS),
    (BatchRow(intervals=CycleEnds()), BATCH_COLUMNS),
    (StepTotals(), STEP_COLUMNS),
    (PlanRow(), PLAN_COLUMNS),
    (Exchange(), EXCHANGE_COLUMNS),
    (LoadRow(intervals=LoadEnds()), LOAD_COLUMNS),
    (ContextRow(), CONTEXT_COLUMNS),
)

ALPHA = Column[Configuration]("al-\npha", "accepted", "acceptance.alpha_token", 3, terminal=2, page_title="alpha")
SPEED = Column[Configuration]("speed", "", "speedup_vs_bf16_ar", 2, interval=True, terminal=1)
ONE = Configuration(acceptance=AcceptanceRates(alpha_token=measured(0.75, 0.01)), speedup_vs_bf16_ar=measured(1.5))


@pytest.mark.parametrize(("record", "columns"), FULL, ids=lambda part: type(part).__name__)
def test_paths_of_columns_are_fields_of_their_records(record, columns):
    for column in columns:
        for path in (column.read, column.interval):
            if isinstance(path, str):
                part = record
                for name in path.split("."):
                    assert part is None or hasattr(part, name), f"{column.title}: {path}"
                    part = None if part is None else getattr(part, name)


def test_terminal_and_page_show_the_same_numbers():
    table = fill(Table("title"), terminal_columns((ALPHA, SPEED)), {"a": ONE}, corner="draft")
    assert [column.heading for column in table.columns] == ["draft", "speed", "al-\npha"]
    assert table.rows[0].cells == ("a", "1.50", "0.750±0.010")
    grid = Grid({"a": ONE}, (ALPHA, SPEED), more=[("more", "", [Cell("x")])])
    assert grid.names == ["a"]
    assert [title for title, _, _ in grid.rows] == ["alpha", "speed", "more"]
    assert grid.rows[0][2] == [Cell("0.750 ± 0.010", "measured")]


def test_an_interval_stands_behind_its_number():
    ends = Ends(low=measured(1.25), high=measured(1.75))
    record = LengthRow(speedup_vs_bf16_ar=measured(1.5), intervals=CycleEnds(speedup_vs_bf16_ar=ends))
    assert SPEED.text(record) == "1.50 [1.25, 1.75]"
    assert SPEED.text(LengthRow(speedup_vs_bf16_ar=measured(1.5))) == "1.50"


def test_slugs_of_devices_are_safe_and_unlike_one_another():
    names = ["RTX-4090", "rtx_4090", "my/chip v2.toml", "???"]
    assert device_slugs(names) == ["rtx-4090", "rtx-4090-2", "my-chip-v2-toml", "device"]
