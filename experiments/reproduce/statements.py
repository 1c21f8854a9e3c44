"""Statements of a paper's text on its figures, without a number for each mark: what the model has, and whether it holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from experiments.reproduce.paper import Detail, Outcome

__all__ = ["Statement", "missed_statements", "statements_detail"]


@dataclasses.dataclass(frozen=True)
class Statement:
    """One statement.

    Attributes:
        where: section or figure.
        says: the statement, with the bar that it is held to where the text gives none.
        ours: what the model, or a measurement, has.
        status: "predicted", "measured", or "calibrated": a number or a choice of the model was made in its sight.
    """

    where: str
    says: str
    ours: str
    holds: bool
    status: str = "predicted"

    def entry(self) -> dict[str, Any]:
        """As in the JSON."""
        return dataclasses.asdict(self) | {"used": self.status == "calibrated"}


def statements_detail(find: Callable[[Any], Iterable[Statement]]) -> Detail:
    """All statements of a paper, from what `Paper.solve` returned."""
    return Detail(
        "statements",
        "Statements of the text on its figures",
        lambda outcome: [one.entry() for one in find(outcome.solved)],
        {"where": "{where}", "statement": "{says}", "model": "{ours}", "holds": "{holds}", "status": "{status}"},
    )


def missed_statements(outcome: Outcome) -> list[str]:
    """A line for each statement that does not hold, of the details that were computed."""
    return [
        f"does not hold: {one['says']} ({one['where']}): {one['ours']}"
        for one in outcome.details.get("statements", ())
        if not one["holds"]
    ]
