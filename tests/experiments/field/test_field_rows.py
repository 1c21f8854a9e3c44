"""Rows of a stranger: numbers in notes are read whole or refused, and what contradicts itself is told."""

import csv

import numpy as np
import pytest

from experiments.field.__main__ import answers
from experiments.field.predict import price_rows
from experiments.field.rows import PUBLISHED, read_rows, seen_batch
from jaxspec.errors import InputError


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


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ("cycle_ms = AL*TPOT = 1,250; tp=1", "cycle_ms in the notes is '1,250'; it must be a number >= 0"),
        ("tpot_ar_ms=-3.5", "tpot_ar_ms in the notes is '-3.5'; it must be a number >= 0"),
    ],
)
def test_no_part_of_a_number_is_taken_for_all_of_it(written, notes, words):
    (row,) = read_rows(written(notes=notes))
    assert row.unread == f"row 2: {words}"
    assert row.excluded


def test_a_speedup_of_nothing_is_refused(written):
    (row,) = read_rows(written(speedup="0", notes=""))
    assert row.unread == "row 2: speedup is '0'; it must be a number >= 0.001"


@pytest.mark.parametrize("full", [0.0, 0.2, 0.75, 1.0])
def test_a_batch_is_that_of_a_token_of_an_emptying_run(full):
    """Against a run in small steps of time: 48 sequences for a share of it, then fewer and fewer."""
    place = (np.arange(20000) + 0.5) / 20000
    held = 48.0 * np.minimum((1.0 - place) / max(1.0 - full, 1e-9), 1.0)
    seen = float(np.mean(held**2) / np.mean(held))
    assert seen_batch(float(np.mean(held)), 48.0) == pytest.approx(seen, rel=1e-3)


def test_a_batch_without_a_mean_is_what_was_asked_for(written):
    def batches(notes):
        (row,) = read_rows(written(batch="64", notes=notes))
        return row.batch, row.ar_batch

    assert batches("") == (64.0, 64.0)
    # s = 0.25: (0.25 * 64^2 + 0.75 * 64^2 / 3) / 40; a mean below half of 64 is of a batch that was never full.
    assert batches("in_flight_sd=40; in_flight_ar=24") == (pytest.approx(51.2), pytest.approx(32.0))


def test_a_column_twice_is_refused(written):
    path = written()
    head, *rest = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([f"{head},batch", *(f"{line},8" for line in rest)]), encoding="utf-8")
    with pytest.raises(InputError, match="column batch stands 2 times"):
        read_rows(path)


@pytest.mark.device_matrix
def test_a_network_is_a_network_by_any_name(written):
    """Its interval has the scatter of small networks, also where the row calls it an assistant."""
    widths = []
    for name in ("separate_model", "assistant"):
        rows = read_rows(written(draft_kind=name))
        (answer,) = answers(rows, price_rows(rows))
        widths.append(answer["high"] / answer["low"])
    assert widths[0] == widths[1]


@pytest.mark.device_matrix
def test_tokens_of_a_mean_draft_length_grow_with_it(written):
    """Half a drafted token more is not none: 1 + a + a^2 at 2, and the same sum of powers between."""
    given = {"acceptance_value": "0.5", "acceptance_definition": "alpha_token", "notes": ""}
    tokens = [read_rows(written(draft_length=length, **given))[0].tokens_per_cycle for length in ("2", "2.5", "3")]
    assert tokens == pytest.approx([1.75, 2 * (1 - 0.5**3.5), 1.875])
