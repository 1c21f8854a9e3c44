"""Which experts the tokens of a step chose."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Int

__all__ = ["NO_EXPERT", "RouterChoices"]

#: Stands for a choice that could not be made, because fewer experts are allowed than a token chooses.
NO_EXPERT = -1


class RouterChoices(NamedTuple):
    """Experts by number, best first.

    Attributes:
        original: what the router chooses among all experts.
        used: what is computed with: the same, unless only some experts are allowed. `NO_EXPERT` where none is left.
    """

    original: Int[Array, "batch token *layer chosen"]
    used: Int[Array, "batch token *layer chosen"]
