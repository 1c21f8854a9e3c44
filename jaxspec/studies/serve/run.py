"""`jaxspec serve`: requests, device, network and acceptance in; latencies and throughput out. Runs no network."""

from __future__ import annotations

import csv
import dataclasses
import math
from array import array
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from hwmodels import Case, uniform_footprint
from hwmodels.analysis.uncertainty.cycle_errors import COVERAGE
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.serving.simulation import (
    Latencies,
    Requests,
    begin_serving,
    capacity_tokens,
    crossing_rate,
    latencies,
    poisson_requests,
    sequence_tokens,
    serve_further,
    served_so_far,
    with_rate,
)
from hwmodels.serving.step_table import Engine, Serving, StepTable, priced_table, step_seconds
from jaxspec.errors import InputError
from jaxspec.report.assumptions import priced_facts
from jaxspec.results import Quantity, given, predicted
from jaxspec.results.network_results import Ends
from jaxspec.results.records import quantities
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.execute import Tell, execute_per_device
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.settings import expect, knob_values
from jaxspec.settings.acceptance import MAX_PREDICTED_LENGTH
from jaxspec.settings.coercion import shown
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.knobs import EXPERT_POOL
from jaxspec.settings.schemes import RELEASED
from jaxspec.studies.advise.inputs import draft_weight_bits, file_draft
from jaxspec.studies.config_files import head_in_file, kind_in_file
from jaxspec.studies.engine_flags import idle_draft_notes
from jaxspec.studies.engine_pricing import (
    engine_scatter,
    engine_used,
    kind_of_draft,
    noted,
    placed,
    placement_name,
    with_experts,
)
from jaxspec.studies.feasibility import check_positions, priced_pair
from jaxspec.studies.given_acceptance import GivenRates, rates_or_known
from jaxspec.studies.headline_intervals import coverage_in_words, covered_by
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.release import (
    draft_notes,
    no_narrower_draft,
    release_in_words,
    release_notes,
    scheme_footprint,
    with_release_kernels,
)
from jaxspec.studies.serve.config import DRAFTED, ServeConfig
from jaxspec.studies.serve.result import DECODING, Crossing, LoadEnds, LoadRow, ServedWorkload, ServeResult
from jaxspec.studies.serve.view import write_serving

_TRACE_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")


#: From the first arrival to the last: what float32 tells apart, a second in four months.
_SPAN_S = (1e-6, 1e7)


def read_trace(path: str) -> Requests:
    """The requests of a CSV, the first of which comes at 0 s.

    Raises:
        InputError: not such a file; a line that is no request; requests out of order, or fewer than two.
    """
    try:
        # Spreadsheets begin a CSV with a byte-order mark.
        with Path(path).open(encoding="utf-8-sig", newline="") as stream:
            lines, (arrival, prompt, output) = _request_columns(path, csv.reader(stream))
    except InputError:
        raise
    except (OSError, ValueError, csv.Error) as error:
        raise InputError(f"trace {path!r} cannot be read as a CSV in UTF-8 ({error}); give another file") from error
    if len(arrival) < 2:
        raise InputError(f"trace {path!r} has {len(arrival)} requests; give at least two")
    if np.any(np.diff(arrival) < 0):
        late = int(np.flatnonzero(np.diff(arrival) < 0)[0])
        raise InputError(
            f"trace {path!r}, line {lines[late + 1]}: a request comes at {arrival[late + 1]:.9g} s, before the one above "
            f"at {arrival[late]:.9g} s; sort the file by arrival_s"
        )
    span_s, (least, most) = arrival[-1] - arrival[0], _SPAN_S
    if not least <= span_s <= most:
        raise InputError(
            f"trace {path!r}: its requests come within {span_s:g} s; allowed is {least:g} to {most:g} s from the first to the "
            "last: give arrivals in seconds, and spread requests that come all at once over a moment"
        )
    return Requests(*(jnp.asarray(column, jnp.float32) for column in (arrival - arrival[0], prompt, output)))


def _request_columns(path: str, reader: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """Number of each request's line, and what stands in it: a row at a time, since a trace of a day has millions."""
    filled = (line for line in reader if any(map(str.strip, line)))
    head = [name.strip() for name in next(filled, [])]
    if missing := [name for name in _TRACE_COLUMNS if name not in head]:
        raise InputError(
            f"trace {path!r} has no column {', '.join(missing)}; its first line is {shown(','.join(head))} and must name "
            f"{', '.join(_TRACE_COLUMNS)}, separated by commas"
        )
    if doubled := [name for name in _TRACE_COLUMNS if head.count(name) > 1]:
        raise InputError(f"trace {path!r} has column {doubled[0]} {head.count(doubled[0])} times; leave one of them")
    places = [head.index(name) for name in _TRACE_COLUMNS]
    numbers, columns = array("q"), [array("d") for _ in _TRACE_COLUMNS]
    for line in filled:
        numbers.append(reader.line_num)
        for column, value in zip(columns, _request(path, reader.line_num, line, places, len(head)), strict=True):
            column.append(value)
    return np.asarray(numbers), [np.asarray(column) for column in columns]


def _request(path: str, number: int, line: list[str], places: list[int], columns: int) -> list[float]:
    def refusal(why: str) -> InputError:
        return InputError(f"trace {path!r}, line {number}: {shown(','.join(line))} {why}")

    if any(field.strip() for field in line[columns:]):  # as of thousands that are set off by commas
        raise refusal(f"has {len(line)} fields for {columns} columns; give one for each")
    try:
        numbers = [float(line[place]) for place in places]
    except (ValueError, IndexError) as error:
        raise refusal(f"is no request; give a number for each of {', '.join(_TRACE_COLUMNS)}") from error
    if not math.isfinite(numbers[0]) or not all(value.is_integer() and 1 <= value <= 1e7 for value in numbers[1:]):
        raise refusal("is no request; arrival_s is a number, tokens are whole numbers of 1 to 10,000,000")
    return numbers


#: Of what a full engine does without a draft.
_SHARES = np.array([0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.1])


def longest_request(requests: Requests) -> float:
    """Tokens of the longest request, prompt and output."""
    return float(jnp.max(requests.prompt_tokens + requests.output_tokens))


def _mean_context(requests: Requests) -> float:
    """Of a sequence while it generates, roughly: its prompt and half of its output."""
    return float(jnp.mean(requests.prompt_tokens + requests.output_tokens / 2))


def best_lengths(table: StepTable, conditional: np.ndarray, requests: Requests) -> np.ndarray:
    """Draft length with the most tokens per second for 0, 1, 2, ... sequences at the mean context, "batch".

    With none that generates, the longest of them: its network reads the prompts.
    """
    count = table.seconds.shape[0]
    lengths, batches = np.meshgrid(np.arange(count), np.arange(1, table.seconds.shape[1]), indexing="ij")
    context = _mean_context(requests)
    at = jax.vmap(lambda length, batch: step_seconds(table, length, batch, context, 0.0))
    seconds = np.asarray(at(jnp.asarray(lengths.reshape(-1)), jnp.asarray(batches.reshape(-1)))).reshape(lengths.shape)
    tokens = 1.0 + np.concatenate([[0.0], np.cumsum(np.cumprod(conditional))])[:count]
    best = np.argmax(tokens[:, None] / seconds, axis=0)
    return np.concatenate([[best.max()], best])


def count_of_rates(config: ServeConfig) -> int:
    """How many rates are served."""
    if config.rates is not None:
        return len(config.rates)
    return 1 if config.trace is not None else len(_SHARES)


def rates_of(
    config: ServeConfig, table: StepTable, requests: Requests, capacity_tokens: float, sequence_tokens: float
) -> np.ndarray:
    """The rates that are served, "rate": those of the configuration, the trace's own, or shares of a full engine's."""
    if config.rates is not None:
        return np.array(config.rates)
    if config.trace is not None:
        arrival = np.asarray(requests.arrival_s)
        return np.array([(len(arrival) - 1) / (arrival[-1] - arrival[0])])
    mean = float(jnp.mean(requests.prompt_tokens) + jnp.mean(requests.output_tokens))
    batch = int(max(1, min(config.max_batch, capacity_tokens // (mean + sequence_tokens))))
    return _default_rates(table, requests, batch, config.chunk_tokens)


def _default_rates(table: StepTable, requests: Requests, batch: int, chunk_tokens: int) -> np.ndarray:
    """Shares of the requests per second that a full engine, of so many sequences, finishes without a draft, "rate"."""
    prompt, output = (float(jnp.mean(tokens)) for tokens in (requests.prompt_tokens, requests.output_tokens))
    # As many requests end in a step as begin, and their prompts share the step's chunk.
    ending = min(batch / output, chunk_tokens / prompt)
    length, slots = jnp.zeros((), jnp.int32), jnp.asarray(batch)
    seconds = float(step_seconds(table, length, slots, _mean_context(requests), ending * prompt))
    return _SHARES * ending / seconds


#: Steps of the engines between two words about how far they are: about a second.
_STEPS = 4096


def serve_loads(
    requests: Requests,
    rates: np.ndarray,
    table: StepTable,
    sides: np.ndarray,
    engine: Engine,
    key: PRNGKeyArray,
    *,
    tell: Callable[[int, float], object],
) -> Latencies:
    """Latencies "side decoding rate", on the host.

    Args:
        requests: none needs more than the engine's capacity.
        rates: "rate", requests per second.
        sides: "side", by how many standard deviations all steps err.
        engine: its draft lengths are "decoding batch".
        tell: gets how many requests are served, all rates together, and the rate at hand.
    """
    count, seen = requests.arrival_s.shape[-1], []
    parts = requests, table, jnp.asarray(sides), engine, key
    for place, rate in enumerate(map(float, rates)):
        at = jnp.asarray(rate, jnp.float32)
        state = _begun(requests, jnp.asarray(sides), engine)
        while (done := int(jnp.min(state.done))) < count:
            tell(place * count + done, rate)
            state = _further(state, at, *parts)
        seen.append(jax.device_get(_seen(state, requests, at)))
    return jax.tree.map(lambda *leaves: np.stack(leaves, axis=2), *seen)


@jax.jit
def _begun(requests: Requests, sides: Float[Array, " side"], engine: Engine) -> Serving:
    """Engines "side decoding"."""
    each = jax.vmap(lambda lengths: begin_serving(requests, dataclasses.replace(engine, draft_lengths=lengths)))
    return jax.vmap(lambda _: each(engine.draft_lengths))(sides)


@partial(jax.jit, donate_argnums=0)
def _further(
    states: Serving,
    rate: Float[Array, ""],
    requests: Requests,
    table: StepTable,
    sides: Float[Array, " side"],
    engine: Engine,
    key: PRNGKeyArray,
) -> Serving:
    arriving = with_rate(requests, rate)

    def one(state: Serving, side: Float[Array, ""], lengths: Array) -> Serving:
        follows = dataclasses.replace(engine, draft_lengths=lengths)
        return serve_further(state, arriving, table.erring(side), follows, key, steps=_STEPS)

    return jax.vmap(jax.vmap(one, (0, None, 0)), (0, 0, None))(states, sides, engine.draft_lengths)


@jax.jit
def _seen(states: Serving, requests: Requests, rate: Float[Array, ""]) -> Latencies:
    arriving = with_rate(requests, rate)
    return jax.vmap(jax.vmap(lambda state: latencies(arriving, served_so_far(state))))(states)


#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = ("pays",)


#: Errors of all steps, in standard deviations: none, and both ends of the interval.
_SIDES = (0.0, -NormalDist().inv_cdf(0.5 + COVERAGE / 2.0), NormalDist().inv_cdf(0.5 + COVERAGE / 2.0))


def serve(
    config: ServeConfig, *, out: str | None = None, force: bool = False, reporter: Reporter | None = None
) -> tuple[list[ServeResult], RunDirectory]:
    """Serve on every device of the configuration, or return the result of a finished run.

    Returns:
        One result per device, as in result.json, and the run directory, which also holds the report.
    Raises:
        InputError: a name, a number or a file that cannot be used; a request that no engine on the device has room for.
    """
    expect(ServeConfig, config)
    return execute_per_device(
        "serve",
        config,
        lambda: _parts_of_all(config),
        lambda name, parts, directory, tell: _served(config, name, parts, directory.inputs, tell),
        write_serving,
        kind=ServeResult,
        out=out,
        force=force,
        reporter=reporter,
        headline=_HEADLINE,
        work_units=("serving, requests at all rates", lambda parts: count_of_rates(config) * _count(parts.requests)),
    )


def _parts_of_all(config: ServeConfig) -> dict[str, _Parts]:
    """By device: every name is resolved, and every request checked for room, before the first device is priced."""
    requests = cache(lambda: _requests(config))  # a trace of millions of requests is read once
    kind = SELF if config.draft_architecture is None else kind_in_file(config.draft_architecture)
    rates = rates_or_known(config, kind, longest=config.draft_length or DRAFTED)
    accepted = rates, _draft_length(config, rates)
    return {name: _Parts.of(config, name, requests, accepted) for name in config.device}


def _draft_length(config: ServeConfig, rates: GivenRates) -> int:
    """Tokens of the fixed draft: as given, as the log counted them, or as many as the default and known positions allow."""
    positions = len(rates.rates) if len(rates.rates) > 1 else MAX_PREDICTED_LENGTH
    if (given := config.draft_length) is not None and given > positions:
        raise InputError(f"draft_length is {given}, but {config.acceptance_log} has {positions} positions; give fewer")
    own = DRAFTED if config.acceptance_log is None else math.ceil(rates.counted_length or DRAFTED)
    return given or min(own, positions)


@dataclasses.dataclass(frozen=True)
class _Parts:
    """What one device serves."""

    case: Case
    requests: Requests  # at their own rate, or at one per second
    capacity_tokens: float
    sequence_tokens: float  # see `hwmodels.serving.simulation`
    rates: GivenRates
    draft_length: int  # of the fixed draft

    @classmethod
    def of(
        cls, config: ServeConfig, name: str, draw: Callable[[], Requests], accepted: tuple[GivenRates, int]
    ) -> _Parts:
        """Args: draw: makes the requests, or reads them; accepted: the last two fields."""
        pricing = placed(resolve_pricing(with_release_kernels(config, name), name, None), config, name)
        device, architecture = pricing.device, pricing.architecture
        knobs = knob_values(config)
        read = dataclasses.replace(pricing, footprint=scheme_footprint(config, knobs))
        case = with_experts(read, config, config.architecture, knobs.get(EXPERT_POOL.name))
        footprint = case.footprint
        # A pool is what fits beside the caches of a full engine at the mean context.
        draft = case.at(context_tokens=config.prompt_tokens + config.output_tokens / 2.0).pooled.unstated.draft
        requests = draw()
        # The last token that a request generates is not read again.
        longest = longest_request(requests) - 1
        check_positions(config.architecture, architecture, longest)
        if config.draft_architecture is not None:
            own, plain = config.draft_architecture, uniform_footprint(UNCOMPRESSED_BITS)
            draft = dataclasses.replace(
                file_draft(config, own, config.architecture, architecture, longest), statement=""
            )
            bits = draft_weight_bits(own) or plain.draft_weight_bits
            footprint = dataclasses.replace(footprint, draft_weight_bits=bits, draft_kv_bits=plain.draft_kv_bits)
        stored = {"footprint": footprint, "draft_cost": draft}
        room, states = (float(of(device, architecture, **stored)) for of in (capacity_tokens, sequence_tokens))
        own_room = room / config.data_parallel - states  # a request lies in one replica
        if (needed := longest_request(requests)) > own_room:
            beside = "the weights and a sequence's states" if states else "the weights"
            where = "" if config.data_parallel == 1 else " in a replica"
            raise InputError(
                f"device {name!r} has room for the keys and values of {max(own_room, 0.0):,.0f} tokens beside {beside}{where}, "
                f"and a request needs {needed:,.0f}; give shorter prompts and outputs, a smaller network, or another device"
            )
        case = dataclasses.replace(case, footprint=footprint, draft=draft, pool_fits=False)
        return cls(case, requests, room, states, *accepted)


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


def _count(requests: Requests) -> int:
    return requests.arrival_s.shape[-1]


def _served(config: ServeConfig, name: str, parts: _Parts, inputs: dict[str, str], tell: Tell) -> ServeResult:
    case, requests = parts.case, parts.requests
    scatter = engine_scatter(config.engine, kind_of_draft(case.draft), device=case.device)
    length = parts.draft_length
    # Tokens are drawn with these chances; far out along a trace one may lie beyond them.
    conditional = np.clip(np.array(parts.rates.of_positions(length)[:length], np.float32), 0.0, 1.0)
    table = priced_table(
        case,
        max_batch=config.max_batch,
        max_context=max(int(longest_request(requests)), 1),
        max_chunk=config.chunk_tokens,
        draft_length=length,
        scatter=scatter,
    )
    by_batch = best_lengths(table, conditional, requests)
    fixed = np.full(config.max_batch + 1, length)
    lengths = np.stack([np.zeros_like(fixed), fixed, by_batch]).astype(np.int32)
    rates = rates_of(config, table, requests, parts.capacity_tokens, parts.sequence_tokens)
    engine = Engine(
        chunk_tokens=float(config.chunk_tokens),
        capacity_tokens=parts.capacity_tokens,
        draft_lengths=jnp.asarray(lengths),
        conditional=jnp.asarray(conditional),
        slots=config.max_batch,
        sequence_tokens=parts.sequence_tokens,
    )
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    errs = table.deviation is not None
    sides = serve_loads(
        requests,
        rates,
        table,
        np.array(_SIDES if errs else _SIDES[:1], np.float32),
        engine,
        key,
        tell=lambda done, rate: tell(done, f"{name} at {rate:.3g} requests/s"),
    )
    middle: Latencies = jax.tree.map(lambda leaf: leaf[0], sides)
    covers = covered_by(case.device, scatter=scatter)
    crossings = [_crossing(decoding, rates, middle, place) for place, decoding in enumerate(DECODING) if place]
    own_network = [] if config.draft_architecture is None else [config.draft_architecture]
    own, pair = case.draft.architecture, ()
    if own is not None and head_in_file(str(config.draft_architecture)) is None:
        pair = priced_pair(str(config.draft_architecture), own, config.architecture, case.architecture)
    about = release_notes(config.architecture, config.scheme)
    about += no_narrower_draft(config.scheme) if config.draft_architecture is None else []
    about += [*draft_notes(config.draft_architecture), *pair, *parts.rates.notes, *_unused_positions(parts)]
    about += idle_draft_notes(by_batch[1:].tolist())
    fields = noted(
        case.device,
        [case.footprint],
        config.engine,
        about=about,
        prompts=True,
        named=name,
        batches=np.ravel(np.asarray(middle.mean_batch)),
        architecture=case.architecture,
        draft=own,
        when="on average",
        texts=dict.fromkeys([config.architecture, *own_network], float(longest_request(requests) - 1)),
    )
    prompt, output = (np.asarray(tokens) for tokens in (requests.prompt_tokens, requests.output_tokens))
    return ServeResult(
        **priced_facts(name, config.architecture, case.architecture, with_release_kernels(config, name), config),
        inputs=inputs,
        engine=engine_used(config.engine, name),
        placement=placement_name(config, case),
        interval_statement=f"{coverage_in_words(covers)}; all steps err together" if errs else None,
        versions=versions(),
        scheme=given(config.scheme),
        release=release_in_words(config.architecture, config.scheme),
        draft=config.draft_architecture
        or ("the target itself" if config.scheme == RELEASED.name else f"within the target, by {config.scheme}"),
        draft_length=given(length),
        acceptance=Quantity([float(rate) for rate in conditional], parts.rates.status),
        acceptance_source=parts.rates.source,
        workload=ServedWorkload(
            requests=given(len(prompt)),
            prompt_tokens=given(float(prompt.mean())),
            output_tokens=given(float(output.mean())),
            **quantities(given, config, "max_batch", "chunk_tokens"),
            **quantities(predicted, parts, "capacity_tokens", "sequence_tokens"),
        ),
        pays=predicted(any(crossing.pays_at.known for crossing in crossings)),
        lengths_by_batch=predicted([int(length) for length in by_batch[1:]]),
        rows=[
            _row(decoding, float(rate), jax.tree.map(lambda leaf, at=(place, column): leaf[:, *at], sides))
            for place, decoding in enumerate(DECODING)
            for column, rate in enumerate(rates)
        ],
        crossings=crossings,
        **fields,
    )


def _unused_positions(parts: _Parts) -> list[str]:
    """What is said of acceptance that was given for more tokens than are drafted."""
    given, used = len(parts.rates.rates), parts.draft_length
    beyond = f"position {given}" if given == used + 1 else f"positions {used + 1} to {given}"
    few = "1 token" if used == 1 else f"{used} tokens"
    said = f"acceptance of {beyond} is not used: drafts have at most {few}; give a larger --draft-length to use all"
    return [said] if given > max(used, 1) else []


def _row(decoding: str, rate: float, seen: Latencies) -> LoadRow:
    """A row. Args: seen: leaves "side ...", the estimates first."""
    sides_by_name = {
        f"{what}_p{place}_s": getattr(seen, f"{what}_s")[:, index]
        for what in ("ttft", "tpot", "request")
        for index, place in enumerate((50, 90, 99))
    }
    sides_by_name |= {
        name: getattr(seen, name) for name in ("tokens_per_s", "requests_per_s", "mean_batch", "utilisation")
    }
    ends = {
        name: Ends(low=predicted(float(np.min(sides))), high=predicted(float(np.max(sides))))
        for name, sides in sides_by_name.items()
    }
    numbers = {name: predicted(float(sides[0])) for name, sides in sides_by_name.items()}
    # Decoding without a draft has no errors where only those of cycles are known.
    intervals = LoadEnds(**ends) if any(np.ptp(sides) > 0 for sides in sides_by_name.values()) else None
    return LoadRow(decoding=decoding, rate_per_s=given(rate), intervals=intervals, **numbers)


def _crossing(decoding: str, rates: np.ndarray, latencies: Latencies, place: int) -> Crossing:
    without, with_draft = (np.asarray(latencies.request_s)[at, :, 0] for at in (0, place))
    return Crossing(
        decoding=decoding,
        pays_at=predicted([float(rate) for rate in rates[with_draft < without]]),
        rate_per_s=predicted(crossing_rate(rates, without, with_draft)),
    )
