"""Four numbers of V75, each fitted to one printed number, one after the other.

The catalog's `hexagon-v75` has them as they come out here; `tests` compares the two.
"""

from __future__ import annotations

import functools

import numpy as np
from scipy.optimize import root_scalar

from experiments.papers.mobile_npu.decoding import decode
from experiments.papers.mobile_npu.kernels import gemv_seconds, softmax_seconds
from experiments.papers.mobile_npu.printed import CONTEXT, claim, printed
from experiments.papers.mobile_npu.versions import Fitted, calibrated_device, networks

__all__ = ["FITTED_NAMES", "fit", "fitted_numbers", "slowdown", "softmax_speedups"]

#: What each number was fitted to, by its name in print.
FITTED_NAMES = {
    "register_packets": "packets of a full register of codes, to 27 % slower than without dequantization",
    "step_packets": "packets of a polynomial's step, to the softmax's highest speedup over 32 bits",
    "row_packets": "packets of a softmax row, to its lowest speedup over 32 bits",
    "static_power_w": "power of the phone beside NPU, memory and CPU work, W, to 4.3 W with the 3B network",
}

_OVER = "32-bit floating-point exp"


def slowdown(fitted: Fitted) -> float:
    """Time over that without dequantization, mean over all matrices."""
    seconds = gemv_seconds(calibrated_device(fitted))
    return float(np.mean(seconds["ours"] / seconds["no dequantization"]))


def softmax_speedups(fitted: Fitted, version: str = "float32") -> np.ndarray:
    """Of the table over a polynomial, "query key"."""
    seconds = softmax_seconds(calibrated_device(fitted), fitted.step_packets)
    return seconds[version] / seconds["table"]


def _root(error, low: float, high: float) -> float:
    # Kernels are priced in single precision.
    return float(root_scalar(error, method="brentq", bracket=(low, high), xtol=1e-4, rtol=1e-5).root)


@functools.cache
def fit() -> Fitted:
    """The four numbers. The two of the softmax determine each other, so that one is solved within the other."""
    start = Fitted(18.0, 8.0, 500.0, 0.0)
    aim = 1.0 + claim("NPU005") / 100.0
    start = start._replace(
        register_packets=_root(lambda x: slowdown(start._replace(register_packets=x)) - aim, 10.0, 40.0)
    )
    low, high = (printed("fig14", over=_OVER, end=end) for end in ("lowest", "highest"))

    def with_row(row_packets: float) -> Fitted:
        try_step = lambda x: start._replace(row_packets=row_packets, step_packets=x)
        return try_step(_root(lambda x: softmax_speedups(try_step(x)).max() - high, 1.0, 40.0))

    row_packets = _root(lambda x: softmax_speedups(with_row(x)).min() - low, 0.0, 5000.0)
    found = with_row(row_packets)
    power = decode(calibrated_device(found), networks()["Qwen2.5-3B"], (int(CONTEXT),)).power_w()
    assert power is not None
    return found._replace(static_power_w=claim("NPU019") - float(np.mean(power)))


def fitted_numbers() -> dict[str, float]:
    """The four numbers by what they are and what they were fitted to."""
    return {FITTED_NAMES[name]: value for name, value in fit()._asdict().items()}
