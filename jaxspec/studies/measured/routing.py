"""Stage: how the running network's routers choose, measured on its own text, for the prices of mixtures of experts."""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from hwmodels import Routing
from hwmodels.network.measured_routing import measured_routing
from jaxspec.compress.kv import rounded_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.mesh import mesh_of, on_host, split_rows
from jaxspec.results import measured
from jaxspec.results.network_results import MeasuredRouting
from jaxspec.runs.stages import Arrays
from jaxspec.speculate.chunks import prompt_chunks
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.tuning.objective import Pricing

__all__ = ["routed", "routing_part"]


def routed(drafts: HardDrafts) -> HardDrafts:
    """The same drafts, priced with the routing of the target's tokens on calibration text where the settings ask for it.

    A network with another number of experts is priced with the quantiles of the measured popularity (see `Routing`).
    """
    work = drafts.work
    if work.config.routing == "even":
        return drafts
    text, setup = drafts.text, work.setup
    experts = setup.config.experts
    assert experts is not None

    def compute() -> Arrays:
        parts = []
        with work.bar("measuring the routers", len(text)) as bar:
            for chunk in prompt_chunks(text, mesh_of(setup.params)):
                (tokens,) = split_rows(setup.params, chunk.prompts)
                parts.append(np.asarray(on_host(_choices(setup.params, setup.config, tokens)))[: chunk.real])
                bar.advance()
        # Of what the target puts out, since that is what is decoded.
        found = measured_routing(
            jnp.asarray(np.concatenate(parts)[:, work.config.prompt_tokens - 1 :]), num_experts=experts.num_experts
        )
        return {"popularity": np.asarray(found.popularity), "correlation": np.asarray(found.correlation)}

    found = work.stages.run("routing", compute)
    routing = Routing(popularity=jnp.asarray(found["popularity"]), correlation=float(found["correlation"]))
    pricings = {name: dataclasses.replace(pricing, routing=routing) for name, pricing in work.pricings.items()}
    return dataclasses.replace(drafts, work=dataclasses.replace(work, pricings=pricings))


def routing_part(pricing: Pricing) -> MeasuredRouting | None:
    """The routing that was priced with; None: even and independent choices."""
    if pricing.routing.popularity is None:
        return None
    return MeasuredRouting(
        popularity=measured(np.asarray(pricing.routing.popularity).tolist()),
        correlation=measured(float(pricing.routing.correlation)),
    )


@partial(jax.jit, static_argnums=1)
def _choices(
    params: Params, config: DecoderConfig, tokens: Int[Array, "batch token"]
) -> Int[Array, "batch token layer chosen"]:
    extras = forward_text(params, config, tokens, kv_codec=rounded_kv(config), logits_from=tokens.shape[1]).extras
    assert extras is not None
    return extras.original
