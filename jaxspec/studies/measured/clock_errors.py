"""How far measured times of decoding may lie from those predicted for this machine, by what its calibration held out."""

from __future__ import annotations

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from hwmodels import CycleCost, Device
from hwmodels.analysis.uncertainty.cycle_errors import cycle_numbers, cycle_times
from hwmodels.analysis.uncertainty.kernel_errors import loop_scatter, times_have_errors, without_spreads
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.step.priced_steps import PricedStep

__all__ = ["WayErrors", "way_errors"]


@flax.struct.dataclass
class WayErrors:
    """Standard deviations of the logarithms of a way's predicted numbers, leaves " way"; of what takes no time no number."""

    step_s: Float[Array, " way"]  # of decoding without speculation
    draft_s: Float[Array, " way"]
    verify_s: Float[Array, " way"]
    cycle_s: Float[Array, " way"]  # and of tokens per second
    speedup: Float[Array, " way"]


def way_errors(
    device: Device,
    cycle: CycleCost,
    runs: Float[np.ndarray, "way kind"],
    *,
    draft_engine_s: Float[np.ndarray, " way"],
    engine_s: Float[np.ndarray, " way"],
) -> list[WayErrors] | None:
    """Errors of each way of a family, by `cycle_numbers`; None where nobody measured how far the device's times lie off.

    Args:
        device: of this machine.
        cycle: of the family, as priced.
        runs: how often the draft runs each kind of its steps in a cycle.
        draft_engine_s, engine_s: what the loop adds to draft steps, and to the rest of a cycle. Whole cycles err by
            `loop_scatter` beside their steps; of the parts' shares in it nothing is known, so that each errs by all of it.
    """
    scatter = loop_scatter(device)
    if not times_have_errors(device) and not scatter:
        return None
    of_steps = without_spreads(device, "cycles")  # what those say is in the scatter
    found = jax.device_get(_errors(of_steps, cycle, runs, draft_engine_s, engine_s, np.float32(scatter)))
    return [jax.tree.map(lambda leaf, at=at: float(leaf[at]), found) for at in range(len(runs))]


@quick_jit
def _errors(
    device: Device,
    cycle: CycleCost,
    runs: Float[Array, "way kind"],
    draft_engine_s: Float[Array, " way"],
    engine_s: Float[Array, " way"],
    scatter: Float[Array, ""],
) -> WayErrors:
    stored = cycle.baselines.stored

    def of_way(verify: PricedStep, often: Array, of_draft: Array, of_rest: Array) -> WayErrors:
        def numbers(steps, added_s: Array):
            times = cycle_times(device, bf16=stored, stored=stored, cycle=steps, engine_s=added_s, scatter=scatter)
            return cycle_numbers(times, jnp.zeros(1), jnp.zeros((1, 0)))  # tokens are counted: one stands for all

        drafts, rest = cycle.draft_runs(often), (1.0, verify)
        whole = numbers([*drafts, rest], of_draft + of_rest)
        return WayErrors(
            step_s=whole["ar_stored_s"].log_deviation,
            draft_s=numbers(drafts, of_draft)["cycle_s"].log_deviation,
            verify_s=numbers([rest], of_rest)["cycle_s"].log_deviation,
            cycle_s=whole["cycle_s"].log_deviation,
            speedup=whole["speedup_vs_stored_ar"].log_deviation,
        )

    return jax.vmap(of_way)(cycle.verify, runs, draft_engine_s, engine_s)
