"""What a technology node does to area and energy: power laws between printed nodes, and beyond them.

Node names are lengths: 7 nm is 7e-9. Below the smallest printed node the last two go on. Energies are printed at 45 nm
(Horowitz 2014) and at 7 nm (Jouppi et al. 2021), and lie on a power law between; above 45 nm they follow Stillmaker and Baas.

Departs: the energies of Stillmaker and Baas fall by a factor of 15 from 45 nm to 7 nm, those of the two tables of whole
operations by 2.1 to 4.3. The tables are taken.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels.chip.published import AREA_FACTORS, BITCELLS_M2, ENERGY_COEFFICIENTS, NOMINAL_V
from hwmodels.numerics.scalars import Number, as_float
from hwmodels.numerics.units import NANO

__all__ = ["bitcell_area", "energy_at", "logic_area_factor", "power_law"]

#: nm; between the two, energies are printed at both ends.
_OLDER, _NEWER = 45, 7


def power_law(table: Mapping[int, float] | Mapping[float, float], at: Number) -> Float[Array, "*b"]:
    """A table of positive numbers, read in double logarithms: straight between entries and beyond the ends.

    Args:
        table: static; positive place -> positive value, at least two.
        at: "*b", > 0.
    Gradient: right but at the entries, where it jumps.
    """
    places = sorted(float(place) for place in table)
    values = [value for _, value in sorted(table.items())]
    at = jnp.asarray(as_float(at))
    logs = [jnp.asarray(np.log(one), at.dtype) for one in (places, values)]
    return jnp.exp(jnp.interp(jnp.log(at), *logs, left="extrapolate", right="extrapolate"))


def logic_area_factor(node_m: Number) -> Float[Array, "*b"]:
    """Area of logic over its area at 45 nm, "*b". Source: Stillmaker and Baas 2017; extrapolated below 7 nm.

    At 5 nm it is 0.61 of that at 7 nm, where TSMC names densities of 1.84, which is 0.54.
    """
    return power_law({node * NANO: factor for node, factor in AREA_FACTORS.items()}, node_m)


def bitcell_area(node_m: Number) -> Float[Array, "*b"]:
    """Area of a high-density SRAM cell, "*b", in m^2."""
    return power_law({node * NANO: area for node, area in BITCELLS_M2.items()}, node_m)


def energy_at(node_m: Number, *, at_45_j: Number, at_7_j: Number) -> Float[Array, "*b"]:
    """Energy of an operation at a node, from what it takes at 45 nm and at 7 nm.

    Args:
        node_m: "*b", > 0.
        at_45_j, at_7_j: "*b", > 0.
    Returns:
        "*b"; a power law through both, beyond 7 nm too, and above 45 nm Stillmaker and Baas at nominal voltages.
    """
    node, older, newer = jnp.asarray(as_float(node_m)), as_float(at_45_j), as_float(at_7_j)
    share = jnp.log(node / (_OLDER * NANO)) / np.log(_NEWER / _OLDER)
    below = older * jnp.exp(share * jnp.log(jnp.asarray(newer / older)))
    factors = {
        name * NANO: float(np.polyval(ENERGY_COEFFICIENTS[name], voltage)) for name, voltage in NOMINAL_V.items()
    }
    above = older * power_law(factors, node) / factors[_OLDER * NANO]
    return jnp.where(node > _OLDER * NANO, above, below)
