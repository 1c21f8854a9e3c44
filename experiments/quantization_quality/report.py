"""Scores of all variants turned into rows with intervals, tables and statements."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from experiments.quantization_quality.intervals import bootstrap
from experiments.quantization_quality.measuring import TaskScores, Text, TextScores
from experiments.quantization_quality.variants import COMPARISONS, FLOAT, Variant
from jaxspec.report.terminal import Table, new_console
from jaxspec.speculate.statistics import Interval

__all__ = ["TILE_BAR", "Scores", "comparison_rows", "show", "statements", "variant_rows"]

#: Largest relative difference in bits per byte between tile groups and conventional groups of the same size.
TILE_BAR = 0.01


class Scores(NamedTuple):
    """Of one variant.

    Attributes:
        bits_per_weight: of the network whose text was scored. task: None where no arithmetic was.
    """

    bits_per_weight: float
    text: TextScores
    task: TaskScores | None


def _plain(found: Interval) -> dict[str, float]:
    return {"value": found.ratio, "low": found.low, "high": found.high}


def variant_rows(scores: Mapping[Variant, Scores], text: Text) -> list[dict[str, Any]]:
    """A row for each variant: bits per byte, agreement with the float network, share of arithmetic solved."""
    exact = scores[FLOAT].text.likeliest
    places = np.full(len(exact), exact.shape[1])
    rows = []
    for variant, found in scores.items():
        same = np.sum(found.text.likeliest == exact, axis=-1)
        row = {
            "variant": variant.name,
            "bits_per_weight": found.bits_per_weight,
            "bits_per_byte": _plain(bootstrap(np.divide, found.text.bits, text.num_bytes)),
            "agreement": _plain(bootstrap(np.divide, same, places)),
        }
        if found.task is not None:
            ones = np.ones(len(found.task.greedy))
            row["arithmetic_greedy"] = _plain(bootstrap(np.divide, found.task.greedy, ones))
            row["arithmetic_sampled"] = _plain(bootstrap(np.divide, found.task.chance, ones))
        rows.append(row)
    return rows


def comparison_rows(scores: Mapping[Variant, Scores]) -> list[dict[str, Any]]:
    """A row for each pair: relative difference in bits per byte, differences in shares, over the same windows and problems."""
    rows = []
    for one, other in COMPARISONS:
        if one not in scores or other not in scores:
            continue
        mine, theirs = scores[one], scores[other]
        relative = bootstrap(lambda a, b: a / b - 1.0, mine.text.bits, theirs.text.bits)
        row = {"variant": one.name, "beside": other.name, "bits_per_byte_relative": _plain(relative)}
        if mine.task is not None and theirs.task is not None:
            ones = np.ones(len(mine.task.greedy))
            for name in ("greedy", "chance"):
                difference = getattr(mine.task, name).astype(float) - getattr(theirs.task, name)
                row[f"arithmetic_{'sampled' if name == 'chance' else name}_difference"] = _plain(
                    bootstrap(np.divide, difference, ones)
                )
        rows.append(row)
    return rows


def statements(comparisons: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is claimed of the pairs, what was measured, and whether it holds with the whole interval."""
    found = []
    for row in comparisons:
        one, other, relative = row["variant"], row["beside"], row["bits_per_byte_relative"]
        span = f"{relative['value']:+.2%} ({relative['low']:+.2%} to {relative['high']:+.2%})"
        if one.startswith("tile-") and other == one.removeprefix("tile-"):
            says = f"{one} is within {TILE_BAR:.0%} bits per byte of {other}"
            holds = max(abs(relative["low"]), abs(relative["high"])) <= TILE_BAR
        elif one == "int4-channel":
            says, holds = (
                f"{one} is worse than {other}, on text and where measured on arithmetic",
                relative["low"] > 0.0,
            )
            if (task := row.get("arithmetic_sampled_difference")) is not None:
                span += f", {task['value']:+.1%} ({task['low']:+.1%} to {task['high']:+.1%}) of arithmetic"
                holds = holds and task["high"] < 0.0
        else:
            continue
        found.append({"says": says, "ours": span, "holds": bool(holds), "status": "measured"})
    return found


def show(result: Mapping[str, Any]) -> None:
    """Tables on standard output."""
    console = new_console()
    span = lambda found, form: f"{found['value']:{form}} ({found['low']:{form}} to {found['high']:{form}})"
    table = Table(title=f"{result['model']}: accuracy as stored (measured; 95 % intervals)")
    shares = {"arithmetic_greedy": "arithmetic, greedy", "arithmetic_sampled": "one sample"}
    shares = {key: title for key, title in shares.items() if any(key in row for row in result["variants"])}
    for column in ("variant", "bits/weight", "bits/byte", "same next token", *shares.values()):
        table.add_column(column, justify="left" if column == "variant" else "right")
    for row in result["variants"]:
        table.add_row(
            row["variant"],
            f"{row['bits_per_weight']:.2f}",
            span(row["bits_per_byte"], ".4f"),
            f"{row['agreement']['value']:.2%}",
            *(span(row[key], ".1%") for key in shares),
        )
    console.print(table)
    table = Table(title="pairs, over the same windows and problems (measured)")
    for column in ("variant", "beside", "bits/byte", *shares.values()):
        table.add_column(column, justify="left" if column in ("variant", "beside") else "right")
    for row in result["comparisons"]:
        table.add_row(
            row["variant"],
            row["beside"],
            span(row["bits_per_byte_relative"], "+.2%"),
            *(span(row[f"{key}_difference"], "+.1%") for key in shares),
        )
    console.print(table)
    for one in result["statements"]:
        console.print(f"  {'holds' if one['holds'] else 'DOES NOT HOLD'}: {one['says']}: {one['ours']}")
