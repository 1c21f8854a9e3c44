"""`jaxspec serve`: requests, device, network and acceptance in; latencies and throughput out. Runs no network."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels import DraftCost, Footprint, uniform_footprint
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from hwmodels.serving.latencies import Latencies, crossing_rate, latencies
from hwmodels.serving.requests import Requests, poisson_requests, with_rate
from hwmodels.serving.simulation import Engine
from hwmodels.serving.simulation import serve as serve_requests
from hwmodels.serving.step_table import StepTable, capacity_tokens, priced_table
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.report.assumptions import architecture_data, device_facts
from jaxspec.results import given, predicted
from jaxspec.results.network_results import PricedNumber
from jaxspec.runs.inputs import input_digests
from jaxspec.settings import build_config, expect, knob_values
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.measured.pricing import resolve_architecture, resolve_pricing
from jaxspec.studies.serve.config import ServeConfig
from jaxspec.studies.serve.loads import DECODING, best_lengths, default_rates, longest_request
from jaxspec.studies.serve.result import Crossing, LoadRow, ServedWorkload, ServeResult
from jaxspec.studies.serve.trace import read_trace
from jaxspec.tuning.objective import Pricing

__all__ = ["serve"]


def serve(config: ServeConfig | None = None, **settings: Any) -> list[ServeResult]:
    """One result per device.

    Args:
        config: what to serve; or
        settings: the fields of `ServeConfig` by name, with its defaults: serve(device="h100-sxm", rates=(1, 4, 16)).
    Raises:
        InputError: a name, a number or a file that cannot be used; a request that no engine on the device has room for.
    """
    if config is not None and settings:
        raise InputError(f"a configuration came, and {', '.join(sorted(settings))} beside it; give one or the other")
    named = [name for name, value in settings.items() if value is not None]
    config = build_config(ServeConfig, settings, given=named) if config is None else config
    expect(ServeConfig, config)
    # Every name is resolved, and every request checked for room, before the first device is priced.
    parts = {name: _Parts.of(config, name) for name in config.device}
    return [_served(config, name, part) for name, part in parts.items()]


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What one device serves."""

    pricing: Pricing
    footprint: Footprint
    draft: DraftCost
    requests: Requests  # at their own rate, or at one per second
    capacity_tokens: float

    @classmethod
    def of(cls, config: ServeConfig, name: str) -> _Parts:
        pricing = resolve_pricing(config, name, None)
        device, architecture = pricing.device, pricing.architecture
        footprint = find_scheme(config.scheme).expected_footprint(knob_values(config))
        draft = DraftCost(statement="")
        if config.draft_architecture is not None:
            own, plain = resolve_architecture(config.draft_architecture, None), uniform_footprint(UNCOMPRESSED_BITS)
            draft = DraftCost(architecture=own, statement="")
            footprint = dataclasses.replace(
                footprint, draft_weight_bits=plain.draft_weight_bits, draft_kv_bits=plain.draft_kv_bits
            )
        requests = _requests(config)
        room = float(capacity_tokens(device, architecture, footprint=footprint, draft_cost=draft))
        if (needed := longest_request(requests)) > room:
            raise InputError(
                f"device {name!r} has room for the keys and values of {room:,.0f} tokens beside the weights, and a request "
                f"needs {needed:,.0f}; give shorter prompts and outputs, a smaller network, or another device"
            )
        return cls(pricing, footprint, draft, requests, room)


def _requests(config: ServeConfig) -> Requests:
    if config.trace is not None:
        return read_trace(config.trace)
    return poisson_requests(
        jax.random.key(config.seed),
        config.requests,
        rate_per_s=1.0,
        prompt_tokens=float(config.prompt_tokens),
        output_tokens=float(config.output_tokens),
        prompt_variation=config.prompt_variation,
        output_variation=config.output_variation,
    )


def _served(config: ServeConfig, name: str, parts: _Parts) -> ServeResult:
    pricing, requests = parts.pricing, parts.requests
    numbers = list(config.acceptance)
    conditional = np.array((numbers * config.draft_length)[: config.draft_length], np.float32)
    table = priced_table(
        pricing.device,
        pricing.architecture,
        footprint=parts.footprint,
        max_batch=config.max_batch,
        max_context=max(int(longest_request(requests)), 1),
        max_chunk=config.chunk_tokens,
        draft_length=config.draft_length,
        draft_cost=parts.draft,
    )
    by_batch = best_lengths(table, conditional, requests)
    fixed = np.full(config.max_batch + 1, config.draft_length)
    lengths = np.stack([np.zeros_like(fixed), fixed, by_batch]).astype(np.int32)
    rates = _rates(config, table, parts)
    engine = Engine(
        chunk_tokens=float(config.chunk_tokens),
        capacity_tokens=parts.capacity_tokens,
        draft_lengths=jnp.asarray(lengths),
        conditional=jnp.asarray(conditional),
        slots=config.max_batch,
    )
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    found = jax.device_get(_loads(requests, jnp.asarray(rates, jnp.float32), table, engine, key))
    facts, shape = device_facts(name, config), architecture_data(config.architecture, pricing.architecture)
    crossings = [_crossing(decoding, rates, found, place) for place, decoding in enumerate(DECODING) if place]
    prompt, output = (np.asarray(tokens) for tokens in (requests.prompt_tokens, requests.output_tokens))
    return ServeResult(
        architecture=config.architecture,
        architecture_data={field: PricedNumber(**number) for field, number in shape.items()},
        device=name,
        device_title=facts["device_title"],
        device_data={field: PricedNumber(**number) for field, number in facts["device_data"].items()},
        assumptions=facts["assumptions"],
        inputs=input_digests(config),
        scheme=given(config.scheme),
        draft=config.draft_architecture or f"within the target, by {config.scheme}",
        draft_length=given(config.draft_length),
        acceptance=given([float(rate) for rate in conditional]),
        workload=ServedWorkload(
            requests=given(len(prompt)),
            prompt_tokens=given(float(prompt.mean())),
            output_tokens=given(float(output.mean())),
            max_batch=given(config.max_batch),
            chunk_tokens=given(config.chunk_tokens),
            capacity_tokens=predicted(parts.capacity_tokens),
        ),
        pays=predicted(any(crossing.pays_at.known for crossing in crossings)),
        lengths_by_batch=predicted([int(length) for length in by_batch[1:]]),
        rows=[
            _row(decoding, float(rate), jax.tree.map(lambda leaf, at=(place, column): leaf[at], found))
            for place, decoding in enumerate(DECODING)
            for column, rate in enumerate(rates)
        ],
        crossings=crossings,
        **kernel_notes(pricing.device, [parts.footprint]),
    )


@jax.jit
def _loads(requests: Requests, rates: jax.Array, table: StepTable, engine: Engine, key: jax.Array) -> Latencies:
    """Latencies "decoding rate": every way to decode at every rate, all in one program."""

    def one(lengths: jax.Array, rate: jax.Array) -> Latencies:
        arriving = with_rate(requests, rate)
        served = serve_requests(arriving, table, dataclasses.replace(engine, draft_lengths=lengths), key)
        return latencies(arriving, served)

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(engine.draft_lengths, rates)


def _rates(config: ServeConfig, table: StepTable, parts: _Parts) -> np.ndarray:
    if config.rates is not None:
        return np.array(config.rates)
    if config.trace is not None:
        arrival = np.asarray(parts.requests.arrival_s)
        return np.array([(len(arrival) - 1) / (arrival[-1] - arrival[0])])
    return default_rates(table, parts.requests, parts.capacity_tokens, config.max_batch, config.chunk_tokens)


def _row(decoding: str, rate: float, seen: Latencies) -> LoadRow:
    percentiles = {
        f"{what}_p{place}_s": predicted(float(getattr(seen, f"{what}_s")[index]))
        for what in ("ttft", "tpot", "request")
        for index, place in enumerate((50, 90, 99))
    }
    sums = ("tokens_per_s", "requests_per_s", "mean_batch", "utilisation")
    others = {name: predicted(float(getattr(seen, name))) for name in sums}
    return LoadRow(decoding=decoding, rate_per_s=given(rate), **others, **percentiles)


def _crossing(decoding: str, rates: np.ndarray, found: Latencies, place: int) -> Crossing:
    without, with_draft = (np.asarray(found.request_s)[at, :, 0] for at in (0, place))
    return Crossing(
        decoding=decoding,
        pays_at=predicted([float(rate) for rate in rates[with_draft < without]]),
        rate_per_s=predicted(crossing_rate(rates, without, with_draft)),
    )
