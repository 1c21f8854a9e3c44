"""Figures 5 and 10 in our setting: accuracy measured on shipped networks, decoding latency predicted on the paper's NPUs.

Each figure has two networks for each task. Functions are written by the two sizes of the embedded network, priced as the
paper's two sizes of Qwen2.5. Sums are worked out by one network in 4-bit tile groups and in 8-bit ones, both priced as the
smaller size: what a larger network is for the paper, more bits of the same one are here.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments.papers.mobile_npu.versions import GENERATIONS, MODELS
from jaxspec.models.embedded import ARITHMETIC_NAME, EMBEDDED_NAME, SMALL_NAME
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.settings import build_config
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.inputs import check_scale
from jaxspec.studies.scale.result import CurvePoint, PlanRow, ScaleResult
from jaxspec.studies.scale.run import scale_results
from jaxspec.studies.scale.stages import ScaleStages

__all__ = ["METHODS", "PHONES", "Line", "functions_that_parse", "scaling", "scaling_statements", "sums_in_steps"]

#: Rows of Fig. 10.
METHODS = {"best-of-n": "Best-of-N", "beam": "Beam search"}

#: Phones of Fig. 10: the oldest one cannot address the larger network.
PHONES = ("V75", "V79")

_SMALL, _LARGE = "Qwen2.5-1.5B", "Qwen2.5-3B"
_TILES, _WIDE = "tile-q4_0-down8", "tile-q8_0"

_COMMON: Mapping[str, Any] = {
    "device": ",".join(GENERATIONS[phone] for phone in PHONES),
    "samples": "1,4,16",
    "method": ",".join(METHODS),
    "batches": "1",
    # Nothing is drafted here, and so nothing of a draft is measured.
    "acceptance": "0",
}


class Line(NamedTuple):
    """A network on a task, the less costly of two first.

    Attributes:
        label: what figures call it.
        results: one for each of `PHONES`.
    """

    label: str
    model: str
    results: Sequence[ScaleResult]

    def curve(self, method: str) -> list[CurvePoint]:
        """Accuracy over budgets, one sample first."""
        network = next(one for one in self.results[0].networks if one.name == self.model)
        return next(curve.points for curve in network.curves if curve.method == method)

    def plans(self, phone: str, method: str) -> list[PlanRow]:
        """Priced budgets, one sample first."""
        result = self.results[PHONES.index(phone)]
        return [row for row in result.plans if (row.model, row.method) == (self.model, method)]


@functools.cache
def functions_that_parse(problems: int = 24, seed: int = 0) -> tuple[Line, Line]:
    """Functions, by the two sizes of the embedded network: two minutes on two cores."""
    models, sizes = (SMALL_NAME, EMBEDDED_NAME), (_SMALL, _LARGE)
    names = {"model": ",".join(models), "architecture": ",".join(MODELS[size] for size in sizes)}
    results = _results(task="python", scheme=_TILES, prompts=problems, seed=seed, **names)
    small, large = (Line(f"{model}, as {size}", model, results) for model, size in zip(models, sizes, strict=True))
    return small, large


@functools.cache
def sums_in_steps(problems: int = 48, seed: int = 0) -> tuple[Line, Line]:
    """Sums, by the arithmetic network in 4 and in 8 bits: two minutes on two cores."""
    names = {"model": ARITHMETIC_NAME, "architecture": MODELS[_SMALL]}
    narrow, wide = (
        Line(
            f"{bits} bits, as {_SMALL}",
            ARITHMETIC_NAME,
            _results(
                task="arithmetic", scheme=scheme, prompts=problems, seed=seed, temperature=1.0, score="judge", **names
            ),
        )
        for bits, scheme in ((4, _TILES), (8, _WIDE))
    )
    return narrow, wide


def scaling() -> dict[str, tuple[Line, Line]]:
    """Both tasks, measured and priced."""
    return {"functions that parse": functions_that_parse(), "sums in steps": sums_in_steps()}


def _results(**settings: Any) -> list[ScaleResult]:
    config = build_config(ScaleConfig, {**_COMMON, **settings})
    checked = check_scale(config)
    with tempfile.TemporaryDirectory() as folder:
        stages = ScaleStages(config, checked.problems, checked.networks, Stages(Path(folder)), Reporter())
        return scale_results(config, checked, stages)


def scaling_statements(tasks: Mapping[str, tuple[Line, Line]]) -> list[dict[str, Any]]:
    """What the text says of both figures, and what was found.

    Args:
        tasks: of `scaling`.
    """
    rows = []
    for task, lines in tasks.items():
        for line in lines:
            point = line.curve("best-of-n")[-1]
            gain, low, high = (quantity.known for quantity in (point.gain, point.gain_low, point.gain_high))
            rows.append(
                {
                    "where": "Fig. 5",
                    "says": f"{task}, {line.label}: accuracy rises with the budget",
                    "ours": f"{point.samples} samples for one: {gain:+.1%} ({low:+.1%} to {high:+.1%})",
                    "holds": low > 0.0,
                }
            )
        rows += [_matched(task, lines, phone, method) for method in METHODS for phone in PHONES]
    return rows


def _matched(task: str, lines: tuple[Line, Line], phone: str, method: str) -> dict[str, Any]:
    """Whether the less costly network reaches one sample of the other in less time."""
    base = lines[1].plans(phone, method)[0]
    plans = lines[0].plans(phone, method)
    reach = [row for row in plans if row.fits.value and row.accuracy.known >= base.accuracy.known]
    best = min(reach, key=lambda row: row.decode_s.known, default=None)
    other = f"{base.accuracy.known:.1%} in {base.decode_s.known:.2f} s"
    if best is None:
        ours = f"{max(row.accuracy.known for row in plans):.1%} at most, for {other}"
    else:
        ours = f"{best.samples} samples: {best.accuracy.known:.1%} in {best.decode_s.known:.2f} s, for {other}"
    return {
        "where": "Fig. 10",
        "says": f"{task}, {METHODS[method]} on {phone}: the cheaper network reaches the other one's accuracy in less time",
        "ours": ours,
        "holds": best is not None and best.decode_s.known < base.decode_s.known,
    }
