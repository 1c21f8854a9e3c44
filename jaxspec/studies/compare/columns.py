"""Numbers of a contestant that are shown, on the page and in the terminal."""

from __future__ import annotations

from hwmodels.numerics.units import GB
from jaxspec.report.columns import Column
from jaxspec.report.formatting import NOT_KNOWN, fixed, fixed_or_small, milliseconds, times
from jaxspec.results import UNKNOWN
from jaxspec.studies.compare.result import Contestant

__all__ = ["PAGE_COLUMNS", "TERMINAL_COLUMNS", "interval", "output_in_words"]


def interval(found: Contestant) -> str:
    """The interval of the speedup."""
    if found.speedup_low.number is None:
        return NOT_KNOWN
    return f"{fixed(found.speedup_low.number, 2)} to {fixed(found.speedup_high.number, 2)}"


def output_in_words(found: Contestant) -> str:
    """Whose output is decoded, and whether speculation changed it."""
    mismatches = found.lossless.mismatches.number
    if mismatches:
        return f"NOT lossless: {mismatches:.0f} tokens"
    return "changed" if found.changes_output else "exact"


def _change(found: Contestant) -> str:
    task = found.quality.task
    if task is None or task.change.number is None:
        return NOT_KNOWN
    return f"{task.change.number:+.3f} ± {fixed(task.change.standard_error, 3)}"


_VS_BF16 = Column[Contestant](
    "speedup vs bf16 AR",
    "speedup\nvs bf16\nAR",
    "over autoregressive decoding of the uncompressed 16-bit network",
    lambda found: found.speedup_vs_bf16_ar,
    times,
    interval=lambda found: found.intervals and found.intervals.speedup_vs_bf16_ar,
)
_INTERVAL = Column[Contestant](
    "95 %", "95 %", "interval of that speedup over prompts alone", lambda found: found.speedup_low, str, words=interval
)
_VS_STORED = Column[Contestant](
    "speedup vs stored AR",
    "vs\nstored\nAR",
    "over autoregressive decoding of the same stored form",
    lambda found: found.speedup_vs_stored_ar,
    times,
    interval=lambda found: found.intervals and found.intervals.speedup_vs_stored_ar,
)
_VS_SELF = Column[Contestant](
    "vs the best self-draft",
    "vs best\nself",
    "speed over that of the fastest self-draft, on the same prompts",
    lambda found: found.vs_best_self_draft.ratio if found.vs_best_self_draft else UNKNOWN,
    times,
    optional=True,
)
_LENGTH = Column[Contestant](
    "draft length",
    "draft\nlength",
    "with the highest predicted speed on calibration text",
    lambda found: found.draft_length,
    lambda value: fixed(value, 0),
)
_LENGTH_HELD_OUT = Column[Contestant](
    "draft length, held out",
    "best\nheld out",
    "the fastest length on the held-out prompts",
    lambda found: found.draft_length_held_out,
    lambda value: fixed(value, 0),
)
_ALPHA = Column[Contestant](
    "alpha_token",
    "alpha\ntoken",
    "probability that one draft token is accepted, given that all before it were",
    lambda found: found.acceptance.alpha_token,
    lambda value: fixed(value, 3),
)
_CALIBRATION = Column[Contestant](
    "tokens per cycle, calibration text",
    "tokens\ncalibr.",
    "for this draft length, on the text that chose it",
    lambda found: found.tokens_per_cycle_calibration,
    lambda value: fixed(value, 2),
)
_PREDICTED = Column[Contestant](
    "tokens per cycle, predicted",
    "tokens\npre-\ndicted",
    "from the draft's ranks of the held-out prompts' tokens",
    lambda found: found.tokens_per_cycle_predicted,
    lambda value: fixed(value, 2),
)
_COUNTED = Column[Contestant](
    "tokens per cycle, counted",
    "tokens\ncounted",
    "in decoding the same prompts, ± one standard error",
    lambda found: found.tokens_per_cycle_counted,
    lambda value: fixed(value, 2),
)
_BITS = Column[Contestant](
    "bits per weight, draft",
    "bits\ndraft",
    "read per stored weight in one draft step",
    lambda found: found.bits_per_weight,
    lambda value: fixed(value, 2),
)
_BITS_VERIFY = Column[Contestant](
    "bits per weight, target",
    "bits\ntarget",
    "read per stored weight in one verification",
    lambda found: found.bits_per_weight_verify,
    lambda value: fixed(value, 2),
)
_BITS_KV = Column[Contestant](
    "bits per KV element, target",
    "bits\nKV",
    "read per element of the KV cache by the network that is decoded, scales included",
    lambda found: found.bits_per_kv_verify,
    lambda value: fixed(value, 2),
)
_BITS_HEAD = Column[Contestant](
    "bits per weight of the LM head, draft",
    "bits\nhead",
    "read per weight of the LM head in one draft step",
    lambda found: found.bits_per_head_weight or UNKNOWN,
    lambda value: fixed(value, 2),
    optional=True,
)
_BITS_ACTIVATION = Column[Contestant](
    "bits per activation",
    "bits\nact.",
    "to which the decoded network rounds what enters the products of its layers' matrices",
    lambda found: found.activation_bits,
    lambda value: fixed(value, 0),
)
_STEP = Column[Contestant](
    "draft step, ms",
    "draft\nstep, ms",
    "time of one draft step",
    lambda found: found.draft_step_s,
    milliseconds,
)
_CYCLE = Column[Contestant](
    "cycle, ms",
    "cycle,\nms",
    "draft steps, verification and what the engine adds",
    lambda found: found.cycle_s,
    milliseconds,
    interval=lambda found: found.intervals and found.intervals.cycle_s,
)
_HELD = Column[Contestant](
    "memory, GB",
    "memory,\nGB",
    "weights and KV of target and draft",
    lambda found: found.held_bytes,
    lambda x: fixed_or_small(x / GB, 2),
)
_ENERGY = Column[Contestant](
    "energy per token, J",
    "J per\ntoken",
    "of all steps",
    lambda found: found.energy_j_per_token,
    lambda value: f"{value:.3g}",
    optional=True,
)
_BPB = Column[Contestant](
    "bits per byte",
    "bits\nper byte",
    "of the held-out prompts under the decoded network, ± one standard error",
    lambda found: found.quality.bits_per_byte,
    lambda value: fixed(value, 3),
)
_AGREEMENT = Column[Contestant](
    "agreement",
    "agree-\nment",
    "share of places where its most probable next token is the 16-bit network's, ± one standard error",
    lambda found: found.quality.agreement,
    lambda value: fixed(value, 3),
)
_ACCURACY = Column[Contestant](
    "accuracy",
    "accu-\nracy",
    "share of problems that the decoded network answers correctly, greedily, with a 95 % interval over problems",
    lambda found: found.quality.task.accuracy if found.quality.task else UNKNOWN,
    lambda value: fixed(value, 2),
    interval=lambda found: found.quality.task,
    optional=True,
)
_CHANGE = Column[Contestant](
    "accuracy minus 16 bits",
    "minus\n16 bits",
    "difference from the 16-bit network on the same problems, ± one standard error",
    lambda found: found.quality.task.change if found.quality.task else UNKNOWN,
    str,
    words=_change,
    optional=True,
)
_OUTPUT = Column[Contestant](
    "output",
    "output",
    "exact: the 16-bit network's own; changed: another network's",
    lambda found: found.lossless.mismatches,
    str,
    words=output_in_words,
)

#: Rows of the page's table.
PAGE_COLUMNS = (
    *(_VS_BF16, _INTERVAL, _VS_STORED, _VS_SELF, _OUTPUT, _LENGTH, _LENGTH_HELD_OUT, _ALPHA, _CALIBRATION, _PREDICTED),
    *(
        _COUNTED,
        _BITS,
        _BITS_VERIFY,
        _BITS_KV,
        _BITS_HEAD,
        _BITS_ACTIVATION,
        _STEP,
        _CYCLE,
        _HELD,
        _ENERGY,
        _BPB,
        _AGREEMENT,
    ),
    *(_ACCURACY, _CHANGE),
)

#: Columns of the terminal's table.
TERMINAL_COLUMNS = (
    *(_VS_BF16, _INTERVAL, _VS_STORED, _OUTPUT, _LENGTH, _PREDICTED, _COUNTED, _HELD, _ENERGY, _BPB, _AGREEMENT),
    _ACCURACY,
)
