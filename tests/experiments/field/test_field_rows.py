"""Rows of a stranger: numbers in notes are read whole or refused, and what contradicts itself is told."""

import csv

import pytest

from experiments.field.__main__ import answers
from experiments.field.predict import price_rows
from experiments.field.rows import PUBLISHED, read_rows


@pytest.fixture
def written(tmp_path):
    """Writes a file with the first published row, changed."""

    def write(**changes):
        with PUBLISHED.open(encoding="utf-8") as file:
            table = csv.DictReader(file)
            row = next(iter(table)) | changes
        path = tmp_path / "rows.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, table.fieldnames)
            writer.writeheader()
            writer.writerow(row)
        return path

    return write


@pytest.mark.device_matrix
def test_a_network_is_a_network_by_any_name(written):
    """Its interval has the scatter of small networks, also where the row calls it an assistant."""
    widths = []
    for name in ("separate_model", "assistant"):
        rows = read_rows(written(draft_kind=name))
        (answer,) = answers(rows, price_rows(rows))
        widths.append(answer["high"] / answer["low"])
    assert widths[0] == widths[1]
