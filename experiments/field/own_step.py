"""What a group's own step without speculation says of the machine that it ran on: its bandwidth, or a time beside the kernels.

A name does not always say which memory a card has: two H100s differ by 1.4 in how fast they decode. Then the bandwidth is
solved for. Where the name does say it, a step that takes longer than its kernels took that time elsewhere: it waited for the
engine's host, and each pass of the target waits for it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax

from experiments.field.gpus import at_bandwidth, memory_is_known, solved_bandwidth
from experiments.field.networks import named_architecture
from experiments.field.ran import what_ran
from experiments.field.rows import FieldRow
from hwmodels import Architecture, Device, DraftCost, Footprint, Workload
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.speculation.steady_state import serving_step

__all__ = ["ASSUMED_CONTEXT", "OwnStep", "OwnSteps", "step_s", "workload_of"]

#: Context of rows that do not say one, in tokens; decoding of short answers to short questions.
ASSUMED_CONTEXT = 512.0


class OwnStep(NamedTuple):
    """What a group's step without speculation says.

    Attributes:
        bandwidth_scale: over the catalog's.
        rest_s: seconds of each pass of the target beside its kernels; 0 where the bandwidth explains the step.
    """

    bandwidth_scale: float = 1.0
    rest_s: float = 0.0


@quick_jit
def step_s(device: Device, architecture: Architecture, footprint: Footprint, workload: Workload) -> jax.Array:
    """Seconds of a step without speculation in steady serving, of its kernels."""
    return serving_step(device, architecture, footprint=footprint, workload=workload)


def workload_of(row: FieldRow, batch: float) -> Workload:
    """Half of the answer stands behind the prompt on average; prompts enter where both lengths are known."""
    known = row.prompt_tokens is not None and row.output_tokens is not None
    context = ASSUMED_CONTEXT
    if row.prompt_tokens is not None or row.output_tokens is not None:
        context = (row.prompt_tokens or 0.0) + (row.output_tokens or 0.0) / 2.0
    return Workload(
        batch=batch,
        context_tokens=max(context, 1.0),
        prompt_tokens=(row.prompt_tokens or 0.0) if known else 0.0,
        output_tokens=row.output_tokens or 1.0,
    )


class OwnSteps:
    """Bandwidth and rest of each group of rows, from its own steps without speculation."""

    def __init__(self, rows: Sequence[FieldRow]) -> None:
        self._first: dict[str, FieldRow] = {}
        for row in rows:
            held = self._first.get(row.group)
            if row.ar_s is not None and not row.excluded and (held is None or row.ar_batch < held.ar_batch):
                self._first[row.group] = row
        self._found: dict[str, OwnStep] = {}

    def is_from(self, row: FieldRow) -> bool:
        """Whether a row's step without speculation is the one that its group's numbers come from: runs of several draft lengths
        are compared with one such step."""
        first = self._first.get(row.group)
        return first is not None and (row.ar_s, row.ar_batch) == (first.ar_s, first.ar_batch)

    def of(self, row: FieldRow) -> OwnStep:
        """The numbers for a row: those of the catalog where its group published no step without speculation.

        Raises:
            NotPricedError: no bandwidth near the catalog's explains the step.
        """
        first = self._first.get(row.group)
        if first is None:
            return OwnStep()
        if row.group not in self._found:
            target, work = named_architecture(first.target), workload_of(first, first.ar_batch)
            ran = what_ran(first, target, DraftCost(passes=0.0))
            measured_s = first.ar_s
            assert measured_s is not None
            kernels_s = lambda scale: float(step_s(at_bandwidth(ran.gpu.device, scale), target, ran.footprint, work))
            rest_s = measured_s - kernels_s(1.0)
            if rest_s > 0.0 and memory_is_known(first.device, first.device_count):
                self._found[row.group] = OwnStep(rest_s=rest_s)
            else:
                self._found[row.group] = OwnStep(solved_bandwidth(kernels_s, measured_s))
        return self._found[row.group]
