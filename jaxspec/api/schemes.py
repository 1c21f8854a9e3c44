"""Storage schemes as a user asks about them: what one is, its knobs, and the bits that it reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hwmodels import Footprint
from jaxspec.compress.knobs import checked_values
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.errors import InputError
from jaxspec.report.terminal import Table
from jaxspec.settings.coercion import coerce

__all__ = ["SchemeCard", "scheme"]


@dataclasses.dataclass(frozen=True, repr=False)
class SchemeCard:
    """A storage scheme with its knobs.

    Attributes:
        scheme: the object that compresses.
    """

    scheme: Scheme

    @property
    def name(self) -> str:
        """As commands take it."""
        return self.scheme.name

    @property
    def knobs(self) -> dict[str, float]:
        """Default of each knob."""
        return checked_values(self.scheme, {})

    def footprint(self, knobs: Mapping[str, float] | None = None, /, **more: float) -> Footprint:
        """Bits read per weight and per KV element on Gaussian weights, by a draft step and by a verification.

        Args:
            knobs, more: knob -> value, the same for all matrices; those not given keep their defaults.
        Raises:
            InputError: an unknown knob, or a value out of its range.
        """
        if knobs is not None and not isinstance(knobs, Mapping):
            raise InputError(f"knobs are {knobs!r}; give a mapping from knob to number, as {self.knobs}")
        given = {name: coerce(f"knob {name}", value, float) for name, value in {**(knobs or {}), **more}.items()}
        return self.scheme.expected_footprint(checked_values(self.scheme, given))

    def table(self) -> Table:
        """The knobs, a row each."""
        found = self.scheme
        kind = "lossless" if found.lossless else "not lossless"
        table = Table(f"{found.name}: {found.title}", f"{kind}; knobs: {len(found.knob_specs) or 'none'}")
        for heading in ("knob", "default", "range", "meaning"):
            table.add_column(heading)
        for spec in found.knob_specs:
            table.add_row(spec.name, f"{spec.default:g}", f"{spec.low:g} to {spec.high:g}", spec.help)
        return table

    def __repr__(self) -> str:
        knobs = ", ".join(f"{name}={value:g}" for name, value in self.knobs.items())
        return f"<scheme {self.name}: {knobs or 'no knobs'}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def scheme(name: str) -> SchemeCard:
    """A storage scheme by name. Raises InputError: an unknown name."""
    return SchemeCard(find_scheme(name))
