"""Acceptance by kind of draft where a user gives none: measured on a real network, or published; one table for all commands.

`known_acceptance.toml` is written by `python -m experiments.field.acceptance`.
"""

from __future__ import annotations

import functools
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from jaxspec.errors import InputError
from jaxspec.report.formatting import NOT_KNOWN
from jaxspec.results import Quantity
from jaxspec.results.quantity import Status
from jaxspec.settings.draft import knob_values
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.schemes import KNOBS
from jaxspec.studies.given_acceptance import GivenRates, given_rates

__all__ = ["TABLE", "KnownAcceptance", "acceptance_line", "known_acceptance", "rates_or_known"]

#: Kind of draft, or scheme of the target's compressed copy -> acceptance, its scatter, and of what it is.
TABLE = Path(__file__).with_suffix(".toml")

#: How a user gives acceptance, by where settings come from.
_FLAGS = "--acceptance, --acceptance-log or --acceptance-trace"


class KnownAcceptance(NamedTuple):
    """What is known of a kind of draft.

    Attributes:
        alpha_token: the same at every position.
        deviation: over published rows, or over kinds of text.
        status: "measured" on a network that ran, or "input": published.
        source: of which network, text and decoding, in words.
    """

    alpha_token: float
    deviation: float
    status: Status
    source: str


@functools.cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def known_acceptance(kind: str, scheme: str = "", *, differs: str = "", give: str = _FLAGS) -> KnownAcceptance:
    """What is known of a draft; of a scheme that nobody measured, what is known of the nearest one.

    Args:
        kind: what drafts, as engines call it; `SELF` is the target's compressed copy, by `scheme`.
        differs: in what the draft is known to be another than the measured one, in words.
        give: how a user gives another number, in words.
    Raises:
        InputError: nothing is known of a kind like it.
    """
    table = _table()
    measured = [name for name, row in table.items() if row["status"] == "measured"]
    near = next((name for name in measured if scheme.startswith(name)), measured[0])
    name = near if kind == SELF else kind
    if name not in table:
        raise InputError(
            f"no acceptance of draft {kind!r} is published with this program; give --acceptance, or --run with a run that "
            "counted it"
        )
    row = table[name]
    if kind == SELF and near != scheme:
        differs = f"scheme {scheme} was not measured, {near} is the nearest"
    source = (
        f"{row['title']} on {', '.join(row['targets'])}; {', '.join(row['texts'])}, decoding {row['decoding']}; "
        f"{row['counted']}, scatter {row['deviation']:g}{f'; {differs}' if differs else ''}; your own: {give}"
    )
    return KnownAcceptance(row["alpha_token"], row["deviation"], row["status"], source)


def rates_or_known(config: Any, kind: str, *, longest: int) -> GivenRates:
    """Conditional rates as they were given; otherwise those that are known of the kind of draft.

    Args:
        config: `AcceptanceSettings` with `scheme` and its knobs.
        longest: see `given_rates`.
        kind: see `known_acceptance`.
    """
    given = given_rates(config, longest=longest)
    if given is not None:
        return given
    others = [name for name, value in knob_values(config).items() if KNOBS[name].default != value]
    others += ["draft_bits"] * (getattr(config, "draft_bits", None) is not None)
    differs = f"this draft has another {', '.join(others)}" if others and kind == SELF else ""
    known = known_acceptance(kind, config.scheme, differs=differs)
    return GivenRates([known.alpha_token], source=known.source, status=known.status)


def acceptance_line(rates: Quantity[list], source: str | None) -> str:
    """The first line of an output: the acceptance that everything below is computed with."""
    numbers = rates.value or []
    few = ", ".join(f"{rate:.3g}" for rate in numbers[:4]) + ", ..." * (len(numbers) > 4)
    told = f"{numbers[0]:.3g} at every position" if len(set(numbers)) == 1 else f"{few} by position"
    return f"acceptance (alpha_token) {told}, {rates.status}: {source or NOT_KNOWN}"
