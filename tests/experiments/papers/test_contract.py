"""What every paper keeps: rows of printed cells with statuses, summaries that follow from them, and the verdict's rule."""

import ast
import csv
import dataclasses
import math
import re

import pytest

from experiments.reproduce.paper import CAUSES, STATUSES, spread_by_status
from experiments.reproduce.run import find_paper, paper_names, run_paper

ROW = {
    "paper",
    "table",
    "conditions",
    "metric",
    "unit",
    "paper_value",
    "model_value",
    "relative_error",
    "status",
    "note",
    "doubt",
    "by_outcome",
    "as_printed",
}


#: Two papers of seconds in every run; arrays of the others take longer.
FEW = pytest.mark.paper("fpga_tree_sd", "mobile_npu")


@pytest.fixture(scope="module", params=paper_names())
def paper(request):
    return find_paper(request.param)


@pytest.fixture(scope="module")
def outcome(paper):
    return run_paper(dataclasses.replace(paper, details=()), readings=False)


def test_declaration(paper):
    assert paper.folder.name == paper.name
    assert paper.title
    assert paper.minutes > 0
    names = [table.name for table in paper.tables]
    assert len(set(names)) == len(names)
    readme = (paper.folder / "README.md").read_text(encoding="utf-8")
    assert "differs from the paper" in readme.lower()
    assert "minute" in readme or "second" in readme
    # The printed numbers say where they are from.
    source = (paper.folder / "data" / "README.md").read_text(encoding="utf-8")
    for path in (paper.folder / "data").glob("*.csv"):
        assert path.name.startswith(f"{paper.name}_")
        assert path.name in source
    for table in paper.tables:
        assert table.title
        assert table.label
        assert table.simplest, f"{table.name} names no simplest predictor"
        assert (paper.folder / "data" / f"{paper.name}_{table.source or table.name}.csv").is_file()
        assert table.name.startswith(("fig", table.source)), "a table is named after its figure or CSV"


def test_printed_numbers_are_read_from_the_csvs(paper):
    texts = []
    for path in (paper.folder / "data").glob("*.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            for cell in csv.DictReader(file):
                texts += [cell.get(column) or "" for column in ("value", "value_low", "value_high")]
    # Three digits or more, of them some behind the point: no other number is that by chance.
    printed = {float(text) for text in texts if re.fullmatch(r"\d+\.\d+", text) and len(text.strip("0.")) > 3}
    for path in paper.folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, float):
                assert node.value not in printed, f"{path.name}:{node.lineno}: {node.value}"


@FEW
def test_rows(paper, outcome):
    assert outcome.rows
    for row in outcome.rows:
        assert set(row) == ROW
        assert row["paper"] == paper.name
        assert row["status"] in STATUSES
        assert math.isfinite(row["model_value"])
        if row["paper_value"]:
            error = abs(row["model_value"] - row["paper_value"]) / abs(row["paper_value"])
            assert math.isclose(row["relative_error"], error, abs_tol=1e-12)
    keys = [(row["table"], row["metric"], *sorted(row["conditions"].items())) for row in outcome.rows]
    assert len(set(keys)) == len(keys)


@FEW
def test_each_row_is_a_printed_cell(paper, outcome):
    for table in paper.tables:
        path = paper.folder / "data" / f"{paper.name}_{table.source or table.name}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            cells = [cell for cell in csv.DictReader(file) if cell.get("status", "printed") == "printed"]
        for row in outcome.of(table.name):
            same = [
                cell
                for cell in cells
                if (cell.get("metric") or cell["quantity"]) == row["metric"]
                and cell["unit"] == row["unit"]
                and all(cell[key] == text for key, text in row["conditions"].items())
            ]
            assert len(same) == 1, row
            (cell,) = same
            assert row["paper_value"] == float(cell.get("value") or cell.get("value_low") or cell["value_high"])


@FEW
def test_summaries_follow_from_rows(paper, outcome):
    assert list(outcome.summary) == [table.name for table in paper.tables]
    for table in paper.tables:
        rows, summary = outcome.of(table.name), outcome.summary[table.name]
        assert summary["cells"] == len(paper.cells(table))
        assert 0 < summary["covered"] == len(rows) <= summary["cells"]
        assert summary["relative_error"] == spread_by_status(rows)
        assert set(summary["by_metric"]) == {row["metric"] for row in rows}
        judged = [row for row in rows if row["status"] == "predicted" and not row["doubt"]]
        assert (summary["judged"] or {"cells": 0})["cells"] == len(judged)
        # Where numbers were fitted, they are told with their values; where a cell is calibrated, something was.
        assert all(isinstance(value, float) for value in summary["fitted"].values())
        assert bool(summary["fitted"]) == bool(summary["fitted_to"])
        # Inputs of one cell each have none: a constant can but repeat them.
        assert summary["simplest_predictors"] or set(summary["relative_error"]) == {"input"}


@FEW
def test_cells_in_view_of_a_choice_are_no_predictions(paper, outcome):
    for table in paper.tables:
        summary, rows = outcome.summary[table.name], outcome.of(table.name)
        declared = {choice.name: choice for choice in table.choices if choice.seen}
        assert [choice["name"] for choice in summary["choices_by_outcome"]] == list(declared)
        assert summary["choices"] == [choice.in_words() for choice in table.choices]
        for choice in summary["choices_by_outcome"]:
            assert choice["used"]
            assert choice["seen"]
            assert choice["cells"] == sum(choice["name"] in row["by_outcome"] for row in rows)
        for row in rows:
            assert set(row["by_outcome"]) <= set(declared)
            assert not (row["by_outcome"] and row["status"] == "predicted")


@FEW
def test_inherited_fits_have_values_and_their_cells(paper, outcome):
    for table in paper.tables:
        for cells, numbers in outcome.summary[table.name]["inherits"].items():
            assert cells
            assert numbers
            assert all(isinstance(value, float) and math.isfinite(value) for value in numbers.values())


@FEW
def test_a_verdict_is_earned(paper, outcome):
    for table in paper.tables:
        summary = outcome.summary[table.name]
        judged = 0
        for metric, found in summary["by_metric"].items():
            rows = [row for row in outcome.of(table.name) if row["metric"] == metric]
            predicted = [row for row in rows if row["status"] == "predicted" and not row["doubt"]]
            judged += len(predicted)
            peers = found["simplest_predictors"].get("predicted", {})
            if not predicted:
                assert not found["reproduced"]
                assert not peers
                continue
            assert peers, f"{table.name}: nothing simpler to compare {metric} with"
            for peer in peers.values():
                assert peer["cells"] == peer["model"]["cells"] <= len(predicted)
                better = peer["model"]["median"] < peer["median"] and peer["model"]["max"] < peer["max"]
                assert better or not found["reproduced"]
            assert max(peer["cells"] for peer in peers.values()) > 0
        tested = [found for found in summary["by_metric"].values() if found["judged"]]
        assert summary["reproduced"] == (bool(tested) and all(found["reproduced"] for found in tested))
        assert summary["verdict"].startswith("reproduced" if summary["reproduced"] else "NOT reproduced")
        assert not (summary["reproduced"] and judged == 0)


@FEW
def test_a_table_that_is_not_reproduced_gives_its_cause(paper, outcome):
    readme = (paper.folder / "README.md").read_text(encoding="utf-8")
    for table in paper.tables:
        summary = outcome.summary[table.name]
        kind, _, arithmetic = summary["cause"].partition(": ")
        assert summary["reproduced"] == (not table.cause), f"{table.name}: {summary['verdict']}"
        assert summary["reproduced"] or (kind in CAUSES and arithmetic), f"{table.name}: {summary['cause']}"
        # The paper's page has the same verdict in its table.
        row = next(line for line in readme.splitlines() if line.startswith("|") and f"`{table.name}`" in line)
        assert f"| {kind or 'reproduced'} |" in row, f"{table.name}: {row}"
        # Arithmetic is computed: a cause that is written down has no measured figure.
        assert callable(table.cause) or not re.search(r"\d\.\d|\d %", table.cause), f"{table.name}: {table.cause}"
