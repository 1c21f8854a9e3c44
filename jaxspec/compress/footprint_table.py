"""Expected footprints of a scheme as a differentiable function of its knobs: a table, read between its entries.

Knobs of matrices decide the bits of weights, knobs of layers those of KV and knobs of the head the head's, so that there are
two or three tables of few dimensions.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import flax.struct
import jax.numpy as jnp
import numpy as np
from jax.scipy.ndimage import map_coordinates
from jaxtyping import Array, Float

from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import Scheme

__all__ = ["HEAD_WIDTHS", "WIDTHS", "FootprintTable", "expected_widths", "footprint_table", "knob_grid", "tabulate"]

#: Bits read per weight of the layers' matrices and per KV element, by draft and verification: parameters of `uniform`.
WIDTHS: tuple[str, ...] = ("draft_weight_bits", "target_weight_bits", "draft_kv_bits", "target_kv_bits")

#: Bits read per weight of the LM head, where a scheme compresses it.
HEAD_WIDTHS: tuple[str, ...] = ("draft_head_bits", "target_head_bits")

#: Widths that knobs of a kind decide; pools of experts change what is read, not its width.
_DECIDED = {"matrix": WIDTHS[:2], "layer": WIDTHS[2:], "experts": (), "head": HEAD_WIDTHS}

#: Entries along a knob that takes any number.
_ENTRIES = 33


def expected_widths(scheme: Scheme, knobs: Mapping[str, float]) -> dict[str, float]:
    """Bits by name of `WIDTHS`, and of `HEAD_WIDTHS` where the scheme compresses the head; knobs that are not given keep their
    defaults."""
    read = scheme.expected_footprint(knob_defaults(scheme) | dict(knobs))
    draft, target = read.draft_weight_bits, read.target_weight_bits
    widths = {"draft_weight_bits": draft["q"], "target_weight_bits": target["q"]}
    widths |= {"draft_kv_bits": read.draft_kv_bits, "target_kv_bits": read.target_kv_bits}
    if scheme.facts.head:
        widths |= {"draft_head_bits": draft["lm_head"], "target_head_bits": target["lm_head"]}
    return {name: float(bits) for name, bits in widths.items()}


def tabulate(
    scheme: Scheme, knobs: Mapping[str, float], values: Mapping[str, Sequence[float]]
) -> list[tuple[tuple[str, ...], dict[str, np.ndarray]]]:
    """Bits for every combination of some knobs' values, those of weights apart from those of KV.

    Args:
        knobs: values of the others.
        values: knob -> its values.
    Returns:
        for each kind of knob that is varied: names of its knobs, and widths by name, an axis for each of them.
    """
    per = {spec.name: spec.per for spec in scheme.knob_specs}
    tables = []
    for kind, widths in _DECIDED.items():
        names = tuple(name for name in values if per[name] == kind)
        if not names or not widths:
            continue
        rows = [
            expected_widths(scheme, {**knobs, **dict(zip(names, point, strict=True))})
            for point in itertools.product(*(map(float, values[name]) for name in names))
        ]
        shape = tuple(len(values[name]) for name in names)
        tables.append((names, {width: np.array([row[width] for row in rows]).reshape(shape) for width in widths}))
    return tables


def knob_grid(scheme: Scheme, name: str, low: float, high: float) -> np.ndarray:
    """Entries of a table along a knob: all whole numbers where it is one, else evenly spaced."""
    spec = next(spec for spec in scheme.knob_specs if spec.name == name)
    return np.arange(np.floor(low), np.ceil(high) + 1) if spec.whole else np.linspace(low, high, _ENTRIES)


@flax.struct.dataclass
class FootprintTable:
    """Widths between the entries of a table, linearly.

    Attributes:
        fixed: widths that no knob of the table decides.
        tables: width -> its entries, an axis for each knob.
        names: static; width -> knobs of its axes.
        first, spacing: knob -> first entry and distance of the entries.
    """

    fixed: dict[str, Array]
    tables: dict[str, Float[Array, ...]]
    first: dict[str, Array]
    spacing: dict[str, Array]
    names: tuple[tuple[str, tuple[str, ...]], ...] = flax.struct.field(pytree_node=False)

    def widths(self, knobs: Mapping[str, Float[Array, ""]]) -> dict[str, Float[Array, ""]]:
        """Bits by name, as `expected_widths`.

        Args:
            knobs: those that the table varies, within its ends.
        Gradient: of the linear pieces.
        """
        widths = dict(self.fixed)
        for width, names in self.names:
            place = [(jnp.asarray(knobs[n], jnp.float32) - self.first[n]) / self.spacing[n] for n in names]
            widths[width] = map_coordinates(self.tables[width], place, order=1, mode="nearest")
        return widths


def footprint_table(
    scheme: Scheme, knobs: Mapping[str, float], ranges: Mapping[str, tuple[float, float]]
) -> FootprintTable:
    """Tabulate a scheme's expected footprint over the ranges of some knobs; some milliseconds an entry.

    Args:
        knobs: values of the others.
        ranges: knob -> its ends.
    """
    values = {name: knob_grid(scheme, name, *ends) for name, ends in ranges.items()}
    tables, names = {}, []
    for axes, widths in tabulate(scheme, knobs, {name: grid.tolist() for name, grid in values.items()}):
        tables |= {width: jnp.asarray(entries, jnp.float32) for width, entries in widths.items()}
        names += [(width, axes) for width in widths]
    fixed = {k: jnp.float32(v) for k, v in expected_widths(scheme, knobs).items() if k not in tables}
    spacing = {name: float(grid[1] - grid[0]) if len(grid) > 1 else 1.0 for name, grid in values.items()}
    return FootprintTable(
        fixed=fixed,
        tables=tables,
        first={name: jnp.float32(grid[0]) for name, grid in values.items()},
        spacing={name: jnp.float32(value) for name, value in spacing.items()},
        names=tuple(names),
    )
