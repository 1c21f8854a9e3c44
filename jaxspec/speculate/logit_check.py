"""Networks whose logits are no numbers are refused where they first decode or sample."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from jaxspec.errors import InputError

__all__ = ["check_logits"]


def check_logits(found: Float[np.ndarray, "text place"]) -> None:
    """Refuse what a network decoded with logits that are no numbers.

    Args:
        found: of each token, what follows from its logits alone, as a log-probability; NaN where they were no numbers.
    Raises:
        InputError: some were not.
    """
    if wrong := int(np.count_nonzero(np.isnan(found).any(axis=1))):
        raise InputError(
            f"the network's logits are no numbers (NaN) for {wrong} of {len(found)} texts: its weights hold NaN or "
            "infinities, or values overflow in its number format; check the checkpoint"
        )
