"""Chains of every length and plain decoding on a device: seconds, joules, bytes held."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hwmodels import DraftCost, Footprint, catalog, chain_plan, price_cycle
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, chain_times
from hwmodels.catalog.calibrations import calibrated_formats
from hwmodels.numerics.quick_jit import quick_jit
from hwmodels.speculation.draft_cost import held_with_draft
from jaxspec.models.config import DecoderConfig
from jaxspec.settings.compressions import CompressionFacts
from jaxspec.studies.compare.config import CompareConfig
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.tuning.objective import Pricing

__all__ = ["ChainPrices", "price_chains", "with_own_kernels"]


class ChainPrices(NamedTuple):
    """Of one draft, or of a compression, on the host.

    Attributes:
        draft_step_s: one draft step.
        cycle_s, energy_j: of chains of 0, 1, 2, ... drafted tokens, all sequences together; 0 is a step of plain decoding of
            what is stored. Energy is None where the device's is not known.
        ar_bf16_s: a step of plain decoding of the 16-bit network.
        held_bytes: weights and KV of target and draft, on each device.
        errors: steps of the same cycles with the errors of their kernels, leaves "length ...".
    """

    draft_step_s: float
    cycle_s: Float[np.ndarray, " length"]
    energy_j: Float[np.ndarray, " length"] | None
    ar_bf16_s: float
    held_bytes: float
    errors: CycleTimes

    def times(self, length: int, scatter: float) -> CycleTimes:
        """One cycle's steps, for its interval. Args: scatter: of the engine's cycles; without a draft there is none."""
        one: CycleTimes = jax.tree.map(lambda leaf: leaf[length], self.errors)
        return dataclasses.replace(one, scatter=np.float32(scatter if length else 0.0))


def price_chains(pricing: Pricing, footprint: Footprint, draft: DraftCost, longest: int) -> ChainPrices:
    """Price chains of up to `longest` drafted tokens at the workload's own context.

    Args:
        footprint: read by draft and verification; of a draft network, its own widths stand under the draft's.
    """
    # The statement is for readers: it must not compile anew.
    cost = dataclasses.replace(draft, statement="")
    found = jax.device_get(_priced(pricing, footprint, cost, jnp.arange(1.0, longest + 1.0)))
    draft_step_s, cycle_s, energy_j, plain_s, plain_j, ar_bf16_s, held, errors = found
    energy = None if energy_j is None or plain_j is None else np.concatenate([[plain_j], energy_j]).astype(np.float64)
    return ChainPrices(
        float(draft_step_s),
        np.concatenate([[plain_s], cycle_s]).astype(np.float64),
        energy,
        float(ar_bf16_s),
        float(held),
        errors,
    )


def with_own_kernels(
    config: CompareConfig, device: str, pricing: Pricing, network: DecoderConfig, facts: CompressionFacts | None
) -> tuple[Pricing, str | None]:
    """What a compression is priced on, and in words what that says of its activations; None where these keep 16 bits.

    A device with measured kernels that round activations as the compression does has these; on others the arithmetic is that of
    16 bits, and the weights' bytes alone are fewer. A weight format of the settings' own holds for all.

    Args:
        network: that runs. facts: None: of a storage scheme.
    """
    if facts is None or facts.inputs is None:
        return pricing, None
    if config.weight_format is not None:
        return pricing, f"priced with the kernels of weight_format {config.weight_format}"
    calibration = catalog.device_entry(device).calibration
    # This package's own loop has no kernels of the catalog's, whatever the machine it was measured on.
    own_loop = config.engine == catalog.OWN_ENGINE
    measured = () if calibration is None or own_loop else calibrated_formats(calibration, config.engine)
    if facts.kernels in measured:
        own = resolve_pricing(dataclasses.replace(config, weight_format=facts.kernels), device, network)
        said = f"priced with measured kernels of {facts.activation_bits}-bit weights and activations ({facts.kernels})"
        # The kernels alone: where things lie, and with how many devices, is as for all others.
        kernels = dataclasses.replace(pricing.device, matrix_unit=own.device.matrix_unit)
        return dataclasses.replace(pricing, device=kernels), said
    return pricing, (
        "priced by the bits of its weights with 16-bit arithmetic, as the device has no measured kernels for it: rounded "
        "activations neither cost nor save time"
    )


@quick_jit
def _priced(
    pricing: Pricing, footprint: Footprint, draft: DraftCost, lengths: Float[jax.Array, " length"]
) -> tuple[Any, ...]:
    parts = {"footprint": footprint, "draft_cost": draft, "workload": pricing.workload}
    shared: dict[str, Any] = {"routing": pricing.routing, "engine": pricing.engine}
    priced = price_cycle(pricing.device, pricing.architecture, plan=chain_plan(lengths), **shared, **parts)
    of_length = lambda length: chain_times(pricing.device, priced, length, passes=draft.passes)
    plain = priced.baselines.stored.cost
    return (
        priced.draft.cost.total_s[0] * draft.passes,  # the only kind of draft step that a chain has
        priced.total_s,
        priced.energy_j,
        plain.total_s,
        None if plain.energy is None else plain.energy.total_j,
        priced.baselines.bf16.cost.total_s,
        held_with_draft(pricing.architecture, **parts, group=pricing.device.group),
        jax.vmap(of_length)(jnp.concatenate([jnp.zeros(1), lengths])),
    )
