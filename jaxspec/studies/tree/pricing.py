"""What a cycle costs with a tree of every size, at every context, and what plain decoding costs there.

All sizes of all growing trees are one family of plans, so that a draft step is priced once for each number of tokens that
any of them expands.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from hwmodels import CycleCost, DraftCost, Footprint, Plan, plan_family, price_cycle, tree_plan
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, cycle_times
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.speculation.draft_cost import held_with_draft
from jaxspec.studies.feasibility import capacity_bytes
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.tuning.objective import Pricing

__all__ = ["GrowthTimes", "cycle_times_of", "price_growths"]


class GrowthTimes(NamedTuple):
    """Times at each context, sizes 1, 2, ... nodes; on the host.

    Attributes:
        verify_s: one verification.
        draft_s: all draft steps of a cycle.
        engine_s: what the engine adds to a cycle.
        ar_bf16_s, ar_stored_s: a step of plain decoding, of the uncompressed network and as it is stored.
        errors: steps of all cycles with those of their kernels, leaves "context size ...", for `cycle_times_of`.
        fits: whether weights and KV of the target, and of a draft network, fit the device's memories.
    """

    verify_s: Float[np.ndarray, "context size"]
    draft_s: Float[np.ndarray, "context size"]
    ar_bf16_s: Float[np.ndarray, " context"]
    ar_stored_s: Float[np.ndarray, " context"]
    engine_s: Float[np.ndarray, "context size"]
    fits: Bool[np.ndarray, " context"]
    errors: CycleTimes


def price_growths(
    pricing: Pricing,
    growths: Sequence[RankedTree],
    *,
    footprint: Footprint,
    contexts: tuple[int, ...],
    draft: DraftCost,
) -> list[GrowthTimes]:
    """Price the first 1, 2, ... nodes of growing trees at every context.

    Args:
        footprint: read by draft and verification; of a draft network, its own widths stand under the draft's.
        contexts: cached tokens; the workload's own is not used.
    """
    parents = [growth.parent[:count] for growth in growths for count in range(1, growth.parent.size + 1)]
    sizes = plan_family([tree_plan(parent) for parent in parents])
    # The statement is for readers: it must not compile anew.
    cost = dataclasses.replace(draft, statement="")
    priced, held, errors = jax.device_get(_priced(pricing, footprint, cost, jnp.asarray(contexts, jnp.float32), sizes))
    plain = priced.baselines
    double = lambda seconds: np.asarray(seconds, np.float64)
    ends = np.cumsum([growth.parent.size for growth in growths])
    of_sizes = priced.verify_s, priced.draft_s, priced.engine_s, errors

    def own(end: int, growth: RankedTree) -> GrowthTimes:
        verify_s, draft_s, engine_s, err = jax.tree.map(lambda leaf: leaf[:, end - growth.parent.size : end], of_sizes)
        return GrowthTimes(
            verify_s=double(verify_s),
            draft_s=double(draft_s),
            ar_bf16_s=double(plain.bf16.cost.total_s),
            ar_stored_s=double(plain.stored.cost.total_s),
            engine_s=double(engine_s),
            fits=double(held) <= capacity_bytes(pricing.device),
            errors=err,
        )

    return [own(int(end), growth) for end, growth in zip(ends, growths, strict=True)]


def cycle_times_of(times: GrowthTimes, *, context: int, size: int, scatter: float) -> CycleTimes:
    """One cycle's steps, for its interval; on the host.

    Args:
        context, size: places among those of `times`.
        scatter: of the engine's cycles.
    """
    one: CycleTimes = jax.tree.map(lambda leaf: leaf[context, size], times.errors)
    return dataclasses.replace(one, scatter=scatter)


@quick_jit
def _priced(
    pricing: Pricing, footprint: Footprint, draft: DraftCost, contexts: Float[Array, " context"], sizes: Plan
) -> tuple[CycleCost, Array, CycleTimes]:
    """Cost of all cycles, bytes held, and what errs in each cycle."""
    device, target = pricing.device, pricing.architecture
    runs = jnp.asarray(sizes.draft_repeats) * draft.passes

    def at_context(context: Array) -> tuple[CycleCost, Array, CycleTimes]:
        parts = {
            "footprint": footprint,
            "draft_cost": draft,
            "workload": dataclasses.replace(pricing.workload, context_tokens=context),
        }
        priced = price_cycle(device, target, plan=sizes, routing=pricing.routing, engine=pricing.engine, **parts)
        plain: dict[str, Any] = {"bf16": priced.baselines.bf16, "stored": priced.baselines.stored}
        of_size = lambda often, verify, engine_s: cycle_times(
            device, **plain, cycle=[*priced.draft_runs(often), (1.0, verify)], engine_s=engine_s
        )
        errors = jax.vmap(of_size)(runs, priced.verify, priced.engine_s)
        return priced, held_with_draft(target, **parts, group=device.group), errors

    return jax.vmap(at_context)(contexts)
