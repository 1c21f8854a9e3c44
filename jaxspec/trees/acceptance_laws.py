"""Chances by depth and rank as a law of three numbers, for trees on drafts that have not been measured rank by rank.

At every depth the chance of rank r falls as a power, (1 + r)^−f, or geometrically, e^(−f r), and each further depth multiplies
all chances by one factor:  a[d, r] = first · factor^d · fall(r), rows scaled down where they would sum to more than 1.

Source: Sequoia, arXiv:2402.12374, 3.1 (acceptance falls with the rank as a power); the geometric law is the
    usual alternative.
Departs: the factor by depth is ours; Sequoia's chances do not depend on the depth.
"""

from __future__ import annotations

import dataclasses
from types import ModuleType
from typing import Any, Literal, TypeAlias, get_args

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from flax import struct
from jaxtyping import Array, Float

from jaxspec.errors import InputError

__all__ = ["AcceptanceLaw", "AcceptanceLawFit", "Falloff", "fit_acceptance_law", "law_table"]

#: How chances fall with the rank.
Falloff: TypeAlias = Literal["power", "geometric"]

#: Largest exponent that is fitted: beyond it only rank 0 is ever accepted.
_STEEPEST = 50.0


@struct.dataclass
class AcceptanceLaw:
    """Three numbers, each perhaps a batch "*b", as for several drafts.

    Attributes:
        first_chance: chance of rank 0 at depth 0, in [0, 1].
        exponent: f >= 0; 0 for ranks that are all alike.
        depth_factor: chance at one depth over that at the one before; 1 for no change.
        falloff: static.
    """

    first_chance: Any
    exponent: Any
    depth_factor: Any
    falloff: Falloff = struct.field(pytree_node=False, default="power")


@dataclasses.dataclass(frozen=True)
class AcceptanceLawFit:
    """A law fitted to a table.

    Attributes:
        law: the estimates, Python floats.
        r_squared: share of the entries' variance that the law explains, each entry with its weight; 1 is perfect, 0 as good as
            their mean. NaN for a table of equal entries.
        residual_scatter: root of the weighted mean square of what is left, a chance.
    """

    law: AcceptanceLaw
    r_squared: float
    residual_scatter: float


def law_table(law: AcceptanceLaw, *, depth: int, ranks: int) -> Float[Array, "*b depth rank"]:
    """The table of chances of a law.

    Args:
        law: leaves broadcast against each other; differentiable in all three.
        depth, ranks: static, >= 1. Rows that sum to at most 1 do not depend on the number of ranks.
    Returns:
        "*b depth rank", P(child of that rank accepted | parent accepted), rows sum to at most 1. The gradient has a kink where
        a row's unscaled sum is 1; the one given there is that of the unscaled row.
    Raises:
        ValueError: an unknown falloff, or a shape below 1.
    """
    leaves = (jnp.asarray(leaf) for leaf in (law.first_chance, law.exponent, law.depth_factor))
    floats = (leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf.astype(float) for leaf in leaves)
    first, exponent, factor = jnp.broadcast_arrays(*floats)
    return _table(jnp, first, exponent, factor, depth=depth, ranks=ranks, falloff=law.falloff)


def _table(xp: ModuleType, first: Any, exponent: Any, factor: Any, *, depth: int, ranks: int, falloff: Falloff) -> Any:
    """In JAX, and for the fit in NumPy's double precision, which JAX has not by default."""
    if falloff not in get_args(Falloff):
        raise ValueError(f"falloff is {falloff!r}; it must be one of {', '.join(get_args(Falloff))}")
    if depth < 1 or ranks < 1:
        raise ValueError(f"depth is {depth} and ranks {ranks}; both must be at least 1")
    rank = xp.arange(ranks).astype(first.dtype).reshape((1,) * first.ndim + (ranks,))
    fall = xp.exp(-exponent[..., None] * (xp.log1p(rank) if falloff == "power" else rank))
    # A product of factors, not a power, so that the gradient is right at a factor of 0.
    repeated = xp.broadcast_to(factor[..., None], (*factor.shape, depth - 1))
    by_depth = xp.cumprod(xp.concatenate([xp.ones_like(factor)[..., None], repeated], axis=-1), axis=-1)
    table = first[..., None, None] * by_depth[..., :, None] * fall[..., None, :]
    total = xp.sum(table, axis=-1, keepdims=True)
    return table / xp.where(total > 1, total, xp.ones_like(total))


def fit_acceptance_law(
    table: Float[npt.ArrayLike, "depth rank"],
    *,
    falloff: Falloff = "power",
    weight: Float[npt.ArrayLike, "depth rank"] | None = None,
) -> AcceptanceLawFit:
    """Fit a law to a measured table by least squares of the chances, on the host.

    Args:
        table: "depth rank", in [0, 1], three or more entries; in falling order of ranks, as drafts rank.
        weight: "depth rank", >= 0, of each entry's squared error, as the number of roots that it was counted from, or
            1 / standard error²; without it all count alike. 0 leaves an entry out.
    Raises:
        InputError: a table that is not a matrix of chances, weights of another shape or negative, or fewer than three entries.
        ValueError: an unknown falloff.
    """
    chances = np.asarray(table, np.float64)
    if chances.ndim != 2 or not ((chances >= 0) & (chances <= 1)).all():
        raise InputError(
            f"the table has shape {chances.shape}; it must be a matrix, depth by rank, of chances from 0 to 1"
        )
    weights = np.ones_like(chances) if weight is None else np.asarray(weight, np.float64)
    if weights.shape != chances.shape or not (np.isfinite(weights) & (weights >= 0)).all():
        raise InputError(
            f"weights have shape {weights.shape}; give one finite number >= 0 per entry of {chances.shape}"
        )
    if np.count_nonzero(weights) < 3:
        raise InputError(f"{np.count_nonzero(weights)} entries have a weight; three numbers need three or more")
    from scipy.optimize import least_squares

    depth, ranks = chances.shape
    share = weights / weights.sum()
    model = lambda numbers: _table(np, *map(np.asarray, numbers), depth=depth, ranks=ranks, falloff=falloff)
    residuals = lambda numbers: (np.sqrt(share) * (model(numbers) - chances)).ravel()
    bounds = ([0.0, 0.0, 0.0], [1.0, _STEEPEST, np.inf])
    # Several starts: where rows are scaled, the first chance has no slope, and a bad start would stay there.
    starts = [(max(chances[0].max(), 1e-3), exponent, 0.9) for exponent in (0.3, 1.0, 3.0)]
    solved = [
        least_squares(residuals, start, bounds=bounds, x_scale=(0.1, 1.0, 0.1), xtol=1e-12, ftol=1e-14)
        for start in starts
    ]
    best = min(solved, key=lambda fit: fit.cost)
    left = 2 * float(best.cost)
    spread = float(np.sum(share * (chances - np.sum(share * chances)) ** 2))
    return AcceptanceLawFit(
        law=AcceptanceLaw(*map(float, best.x), falloff=falloff),
        r_squared=1 - left / spread if spread > 0 else float("nan"),
        residual_scatter=left**0.5,
    )
