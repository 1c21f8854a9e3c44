"""Fields that all results of networks that ran begin with: what ran, what was priced, with which settings, in which time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from hwmodels import Case, Routing
from hwmodels.network.routing import measured_routing
from hwmodels.speculation.draft_cost import COMPRESSED_COPY
from jaxspec.compress.kv import rounded_kv
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.mesh import mesh_of, on_host, split_rows
from jaxspec.report.assumptions import priced_facts
from jaxspec.results import given, measured
from jaxspec.results.network_results import DecodingSettings, Lossless, MeasuredRouting, RunningModel, WorkloadSettings
from jaxspec.results.records import quantities
from jaxspec.runs.run_index import versions
from jaxspec.runs.stages import Arrays
from jaxspec.speculate.chunks import prompt_chunks
from jaxspec.speculate.proof import count_mismatches
from jaxspec.studies.engine_pricing import engine_used, noted, placement_name
from jaxspec.studies.feasibility import unaccepted_notes
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.pricing import longest_text
from jaxspec.studies.measured.run_context import RunContext
from jaxspec.studies.release import release_notes


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
        routing = measured_routing(
            jnp.asarray(np.concatenate(parts)[:, work.config.prompt_tokens - 1 :]), num_experts=experts.num_experts
        )
        return {"popularity": np.asarray(routing.popularity), "correlation": np.asarray(routing.correlation)}

    stored = work.stages.run("routing", compute)
    routing = Routing(popularity=jnp.asarray(stored["popularity"]), correlation=float(stored["correlation"]))
    pricings = {name: dataclasses.replace(pricing, routing=routing) for name, pricing in work.pricings.items()}
    return dataclasses.replace(drafts, work=dataclasses.replace(work, pricings=pricings))


def routing_part(pricing: Case) -> MeasuredRouting | None:
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


def common_fields(
    work: RunContext, device: str, footprints: list[Any], accepted: Mapping[str, float | None]
) -> dict[str, Any]:
    """Fields of `MeasuredResult`, but whether it pays and is lossless.

    Args:
        footprints: all that were priced on the device.
        accepted: see `unaccepted_notes`.
    """
    config, setup, pricing = work.config, work.setup, work.pricings[device]
    fields = noted(
        pricing.device,
        footprints,
        config.engine,
        about=[*release_notes(config.architecture), *unaccepted_notes(accepted)],
        named=device,
        batches=[config.batch],
        architecture=pricing.architecture,
        texts={config.model if config.architecture == "own" else config.architecture: float(longest_text(config))},
        held=_held(pricing, footprints, config.context),
    )
    return {
        "model": RunningModel(
            name=setup.model_name,
            parameters=given(setup.config.num_parameters()),
            vocabulary=given(setup.config.vocab_size),
            layers=given(setup.config.num_layers),
        ),
        **priced_facts(device, config.architecture, pricing.architecture, config, config),
        "engine": engine_used(config.engine, device),
        "placement": placement_name(config, pricing),
        "routing": routing_part(pricing),
        "workload": WorkloadSettings(
            context_tokens=given(config.context),
            **quantities(given, config, "batch", "prompt_tokens", "output_tokens"),
        ),
        "decoding": DecodingSettings(
            **quantities(given, config, "temperature", "top_k", "top_p", "output_tokens"),
            prompts=given(len(setup.prompts)),
            prompt_tokens=given(_mean(setup.prompt_lengths)),
            stop_tokens=given(list(setup.stop) or None),
        ),
        "prompts": Path(str(config.prompts)).name if config.own_prompts else None,
        "scheme": config.scheme,
        "text": setup.text.source,
        "seed": config.seed,
        "statement": f"acceptance measured on {setup.model_name}, cost predicted for {config.architecture}",
        "inputs": work.inputs,
        "timing_s": {stage: measured(seconds) for stage, seconds in work.stages.timing_s.items()},
        "versions": versions(),
        **fields,
    }


def _held(pricing: Case, footprints: list[Any], context: int) -> dict[str, float]:
    """Bytes of the target, and of its copies, in the narrowest form that is priced: no draft network is counted."""
    sizes = [dataclasses.replace(pricing, footprint=one, draft=COMPRESSED_COPY).held_bytes for one in footprints]
    batch = float(pricing.workload.batch)
    return {f"batch {batch:g} at {context:,} cached tokens": min(float(np.max(size)) for size in sizes)}


def _mean(lengths: np.ndarray) -> int | float:
    """The length that all have, or their mean."""
    return int(lengths[0]) if np.ptp(lengths) == 0 else float(lengths.mean())


def lossless(speculative: Arrays, autoregressive: Arrays, work: RunContext) -> Lossless:
    """Equality of two greedy outputs."""
    counts = count_mismatches(speculative, autoregressive, work.setup.prompt_lengths, work.config.output_tokens)
    numbers: dict[str, Any] = {name: measured(value) for name, value in counts.items()}
    return Lossless(**numbers)
