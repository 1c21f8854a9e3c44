"""The statistical model of values on which widths are counted where there is no network.

Gaussian rows whose scales differ log-normally, rounded to 16 bits; pruning drops the smallest of a row. Trained weights are
close to it (exponent entropy 2.6 bits, mean unary codeword 2.85). What a network's own values take is measured by
`jaxspec evaluate`, `tune` and `pack`.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt16

from jaxspec.formats.patterns import BFLOAT16, NumberFormat

#: Rows and columns of the model: enough for a hundredth of a bit, few enough for a blink.
GAUSSIAN_SHAPE = 64, 2048
#: Spread of the logarithm of a row's scale. 0.25 gives the exponent entropy of 2.6 bits that trained networks show.
_ROW_SPREAD = 0.25
_SCALE = 0.02


def gaussian_patterns(number_format: NumberFormat = BFLOAT16) -> UInt16[np.ndarray, "row column"]:
    """Patterns of the model's values in bfloat16 or float16, always the same."""
    rng = np.random.default_rng(0)
    scale = _SCALE * np.exp(_ROW_SPREAD * rng.standard_normal((GAUSSIAN_SHAPE[0], 1)))
    values = (scale * rng.standard_normal(GAUSSIAN_SHAPE)).astype(np.float32).astype(number_format.value_dtype)
    return values.view(np.uint16)
