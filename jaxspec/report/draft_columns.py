"""Numbers of a configuration that are shown, on a page and in a terminal."""

from __future__ import annotations

from collections.abc import Callable

from jaxspec.report.columns import Column
from jaxspec.report.formatting import fixed, times
from jaxspec.results import UNKNOWN
from jaxspec.results.network_results import Configuration

__all__ = ["LARGEST_GAP", "PAGE_COLUMNS", "TERMINAL_COLUMNS", "gap_in_standard_errors"]

#: A gap between predicted and counted tokens per cycle beyond this many standard errors is a defect.
LARGEST_GAP = 3.0


def _digits(count: int) -> Callable[[float], str]:
    return lambda value: fixed(value, count)


_VS_BF16 = Column[Configuration](
    "speedup vs bf16 AR",
    "speedup\nvs\nbf16\nAR",
    "over autoregressive decoding of the uncompressed 16-bit model",
    lambda found: found.speedup_vs_bf16_ar,
    times,
    interval=lambda found: found.intervals and found.intervals.speedup_vs_bf16_ar,
)
_VS_STORED = Column[Configuration](
    "speedup vs stored AR",
    "speedup\nvs\nstored\nAR",
    "over autoregressive decoding of the same stored form",
    lambda found: found.speedup_vs_stored_ar,
    times,
    interval=lambda found: found.intervals and found.intervals.speedup_vs_stored_ar,
)
_ALPHA_TOKEN = Column[Configuration](
    "alpha_token",
    "alpha\ntoken",
    "probability that one draft token is accepted, given that all before it were",
    lambda found: found.acceptance.alpha_token,
    _digits(3),
)
_ALPHA_FRACTION = Column[Configuration](
    "alpha_fraction",
    "alpha\nfraction",
    "accepted draft tokens over drafted ones",
    lambda found: found.acceptance.alpha_fraction,
    _digits(3),
)
_KL = Column[Configuration](
    "KL to the target",
    "KL",
    "nats per token, from the target's distribution to the draft's",
    lambda found: found.kl,
    _digits(4),
    optional=True,
)
_BITS = Column[Configuration](
    "bits per weight, draft",
    "bits\nper\nweight",
    "read per stored weight in one draft step",
    lambda found: found.bits_per_weight,
    _digits(2),
)
_BITS_VERIFY = Column[Configuration](
    "bits per weight, verification",
    "bits\nper weight\nverify",
    "read per stored weight in one verification",
    lambda found: found.bits_per_weight_verify,
    _digits(2),
)
_BITS_KV = Column[Configuration](
    "bits per KV element, draft",
    "bits\nper KV\nelement",
    "read per cached element in one draft step",
    lambda found: found.bits_per_kv,
    _digits(2),
)
_BITS_KV_VERIFY = Column[Configuration](
    "bits per KV element, verification",
    "bits\nper KV\nverify",
    "read per cached element in one verification",
    lambda found: found.bits_per_kv_verify,
    _digits(2),
    optional=True,
)
_BITS_HEAD = Column[Configuration](
    "bits per weight of the LM head, draft",
    "bits\nper head\nweight",
    "read per weight of the LM head in one draft step",
    lambda found: found.bits_per_head_weight or UNKNOWN,
    _digits(2),
    optional=True,
)
_BITS_HEAD_VERIFY = Column[Configuration](
    "bits per weight of the LM head, verification",
    "bits per\nhead weight\nverify",
    "read per weight of the LM head in one verification",
    lambda found: found.bits_per_head_weight_verify or UNKNOWN,
    _digits(2),
    optional=True,
)
_LENGTH = Column[Configuration](
    "draft length",
    "draft\nlength",
    "tokens drafted per cycle",
    lambda found: found.draft_length,
    _digits(0),
    choice=True,
)
_PREDICTED = Column[Configuration](
    "tokens per cycle, predicted",
    "tokens\nper cycle\npredicted",
    "expected from the measured acceptance, including the verification's own token",
    lambda found: found.tokens_per_cycle_predicted,
    _digits(2),
)
_COUNTED = Column[Configuration](
    "tokens per cycle, counted",
    "tokens\nper cycle\ncounted",
    "in decoding of the same prompts, ± one standard error",
    lambda found: found.tokens_per_cycle_counted,
    _digits(2),
)

#: Rows of the page's table.
PAGE_COLUMNS = (
    *(_VS_BF16, _VS_STORED, _ALPHA_TOKEN, _ALPHA_FRACTION, _KL, _BITS, _BITS_VERIFY, _BITS_KV, _BITS_KV_VERIFY),
    *(_BITS_HEAD, _BITS_HEAD_VERIFY),
    *(_LENGTH, _PREDICTED, _COUNTED),
)

#: Columns of the terminal's table, which fit into 80 characters.
TERMINAL_COLUMNS = (
    *(_ALPHA_TOKEN, _ALPHA_FRACTION, _BITS, _BITS_HEAD, _LENGTH, _PREDICTED, _COUNTED, _VS_BF16, _VS_STORED),
)


def gap_in_standard_errors(found: Configuration) -> float | None:
    """How far the counted tokens per cycle lie from the predicted ones, in standard errors."""
    given = found.tokens_per_cycle_gap_in_standard_errors.number
    if given is not None:
        return abs(given)
    expected, counted = found.tokens_per_cycle_predicted.number, found.tokens_per_cycle_counted.number
    error = found.tokens_per_cycle_counted.standard_error
    if expected is None or counted is None or not error:
        return None
    return abs(counted - expected) / error
