"""`jaxspec compare`: drafts of every kind and lossy compression, measured on one text and priced on one model.

A draft's chain has the length that is predicted to be the fastest on calibration text. Held-out prompts are decoded with it;
the same prompts give the predicted tokens per cycle, by the ranks that the draft gave to the target's own tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from hwmodels import Case, DraftCost, Footprint, catalog, chain_plan, price
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes, chain_times
from hwmodels.catalog.calibrations import calibrated_formats
from hwmodels.network.architecture import attention_shape
from hwmodels.numerics.fast_compile import jit_fast_compile
from jaxspec.host.stopwatch import tree_way
from jaxspec.models.config import DecoderConfig
from jaxspec.results import Quantity, given, measured, predicted
from jaxspec.results.network_results import AcceptanceRates, Lossless, Ratio, Stopwatch
from jaxspec.runs.directory import ACCEPTANCE_TRACE, ACCEPTANCE_TRACES, RunDirectory
from jaxspec.runs.execute import execute_record_run
from jaxspec.runs.processes import shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect
from jaxspec.settings.compressions import COMPRESSIONS, UNROUNDED_BITS, CompressionFacts
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.acceptance import acceptance_rates, compare_cycles, speedup_ratio
from jaxspec.speculate.drafts.factory import kind_of
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.compare.config import CompareConfig
from jaxspec.studies.compare.entries import CheckedComparison, check_comparison
from jaxspec.studies.compare.result import AUTOREGRESSIVE, COMPRESSION, SELF_DRAFT, CompareResult, Contestant
from jaxspec.studies.compare.stages import CompareStages, Drafted, announced, begin_drafts
from jaxspec.studies.compare.view import write_compare_report
from jaxspec.studies.draft_widths import run_form, target_widths
from jaxspec.studies.engine_pricing import engine_scatter, kind_of_draft
from jaxspec.studies.feasibility import capacity_bytes
from jaxspec.studies.headline_intervals import headline_intervals
from jaxspec.studies.measured.common_fields import common_fields, lossless
from jaxspec.studies.measured.comparison import head_bits, priced_mean
from jaxspec.studies.measured.pricing import resolve_pricing
from jaxspec.studies.measured.run_context import begin_run, write_gains
from jaxspec.studies.measured.stopwatch import stopwatch_part


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


def price_chains(case: Case, longest: int) -> ChainPrices:
    """Price chains of up to `longest` drafted tokens at the workload's own context."""
    priced = jax.device_get(_priced(case.unstated, jnp.arange(1.0, longest + 1.0)))
    draft_step_s, cycle_s, energy_j, plain_s, plain_j, ar_bf16_s, held, errors = priced
    energy = None if energy_j is None or plain_j is None else np.concatenate([[plain_j], energy_j]).astype(np.float64)
    cycle_s = np.concatenate([[plain_s], cycle_s]).astype(np.float64)
    return ChainPrices(float(draft_step_s), cycle_s, energy, float(ar_bf16_s), float(held), errors)


def with_own_kernels(
    config: CompareConfig, device: str, pricing: Case, network: DecoderConfig, facts: CompressionFacts | None
) -> tuple[Case, str | None]:
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


@jit_fast_compile
def _priced(case: Case, lengths: Float[jax.Array, " length"]) -> tuple[Any, ...]:
    priced, passes = price(case, chain_plan(lengths)), case.draft.passes
    of_length = lambda length: chain_times(case.device, priced, length, passes=passes)
    plain = priced.baselines.stored.cost
    return (
        priced.draft.cost.total_s[0] * passes,  # the only kind of draft step that a chain has
        priced.total_s,
        priced.energy_j,
        plain.total_s,
        None if plain.energy is None else plain.energy.total_j,
        priced.baselines.bf16.cost.total_s,
        case.held_bytes,
        jax.vmap(of_length)(jnp.concatenate([jnp.zeros(1), lengths])),
    )


def joined_clocks(clocks: Sequence[Stopwatch]) -> Stopwatch | None:
    """All ways of them; None without any.

    Targets differ in what they store, not in how they are decoded here, so that decoding without speculation is that of the
    first one; each speedup is over the draft's own. Noise and load are those of the noisiest: where the noise of one is not
    known, that is the noisiest.
    """
    if not clocks:
        return None
    known = lambda name: [number for clock in clocks if (number := getattr(clock, name).number) is not None]
    noise = max(known("noise"), default=None) if len(known("noise")) == len(clocks) else None
    turns = "each draft is timed in turns with its own target alone, of which the first one's stands here"
    return dataclasses.replace(
        clocks[0],
        statement=f"{clocks[0].statement}; {turns}",
        unknown=next((clock.unknown for clock in clocks if clock.unknown), None),
        noise=measured(noise),
        believable=measured(all(bool(clock.believable.value) for clock in clocks)),
        load=measured(max(known("load"), default=None)),
        ways={name: way for clock in clocks for name, way in clock.ways.items()},
    )


#: Tokens and cycles of each prompt, and seconds of a cycle.
Speed = tuple[np.ndarray, np.ndarray, float]


class Contest(NamedTuple):
    """All contestants of a device.

    Attributes:
        contestants: by name.
        footprints: that were priced.
        best: contestant that is the fastest one of those that change no output.
        clocks: of the drafts that were timed, in their order.
    """

    contestants: dict[str, Contestant]
    footprints: list[Footprint]
    best: str
    clocks: list[Stopwatch]


def contest_on(stages: CompareStages, device: str) -> Contest:
    """All contestants on one device."""
    pricing, config = stages.work.pricings[device], stages.config
    plain = target_widths(config.model, codes=stages.work.setup.config.in_codes)
    contestants: dict[str, Contestant] = {AUTOREGRESSIVE: _undrafted(stages, pricing, AUTOREGRESSIVE, plain)}
    footprints, speeds = [plain], dict[str, Speed]()
    clocks = []
    head_elements = float(attention_shape(pricing.architecture).score_size)
    for number, drafted in enumerate(stages.drafts, 1):
        name = drafted.entry.name
        stages.work.reporter.line(f"draft {name}, {number} of {len(stages.drafts)}, for {device}:")
        contestants[name], speeds[name] = _drafted(stages, drafted, device)
        footprints.append(drafted.stages.widths)
        clocks.append(_timed(drafted, device, contestants[name].draft_length.known))
        if device == next(reversed(stages.work.pricings)):
            drafted.stages.release()  # on no further device is it asked for
    for name in stages.compressions:
        footprint = stages.footprint_of_compression(name, head_elements)
        own, words = with_own_kernels(config, device, pricing, stages.work.setup.config, COMPRESSIONS.get(name))
        contestants[name] = _undrafted(stages, own, name, footprint, words)
        footprints.append(footprint)
    contestants = _against_best(contestants, speeds, config.seed)
    unchanged = {name: each.speedup_vs_bf16_ar.known for name, each in contestants.items() if not each.changes_output}
    best = max(unchanged, key=lambda name: unchanged[name])
    return Contest(contestants, footprints, best, [clock for clock in clocks if clock is not None])


def _timed(drafted: Drafted, device: str, length: int) -> Stopwatch | None:
    """A chain against the clock, in turns with its own target alone; None where the settings do not ask for it."""
    entry, trees = drafted.entry, drafted.stages
    return stopwatch_part(
        trees.work,
        device,
        f"chain-{length}",
        lambda: {entry.name: tree_way(trees.draft, trees.growth.first(length).tree())},
        cost=trees.cost_here,
        takes_in=kind_of(entry.config.draft).takes_in,
    )


def _drafted(stages: CompareStages, drafted: Drafted, device: str) -> tuple[Contestant, Speed]:
    """A chain of the length that is the fastest on calibration text, and its counts."""
    entry, trees = drafted.entry, drafted.stages
    setup, pricing = drafted.setup, stages.work.pricings[device]
    cost = trees.cost_on(device)
    case = dataclasses.replace(pricing, footprint=trees.widths, draft=cost)
    prices = price_chains(case, entry.config.depth)
    chosen_on, here = drafted.on_calibration_text, drafted.on_held_out_text
    length = _fastest(chosen_on.aat.mean, prices)
    counts = trees.decode_with(length, setup.decoding)
    expected = trees.expected_with(length)
    tokens, cycles = (counts[name].astype(np.float64) for name in ("generated", "cycles"))
    compared = compare_cycles(tokens, cycles, expected["generated"], expected["cycles"])
    speed = tokens, cycles, float(prices.cycle_s[length])
    interval = speedup_ratio(speed, (tokens, tokens, prices.ar_bf16_s), stages.config.seed)
    vs_stored = interval.ratio * float(prices.cycle_s[0]) / prices.ar_bf16_s
    rates: dict[str, Any] = acceptance_rates(counts["accepted_at"], counts["ended_at"], counts["cycles"], length)
    proof = lossless(trees.decode_with(length, GREEDY), trees.decode_autoregressively(GREEDY), trees.work)
    if proof.mismatches.known:
        # Another draft's program decoded the target alone, whose last bits may differ: only the own one's count.
        own = trees.decode_autoregressively(GREEDY, beside=length)
        proof = lossless(trees.decode_with(length, GREEDY), own, trees.work)
    facts = SCHEME_FACTS[entry.config.scheme]
    other = trees.other
    return Contestant(
        kind=entry.kind,
        statement=cost.statement,
        scheme=facts.name if entry.kind == SELF_DRAFT else None,
        activation_bits=given(float(UNROUNDED_BITS)),
        changes_output=not facts.lossless,
        pays=predicted(vs_stored > 1.0),
        speedup_vs_bf16_ar=predicted(interval.ratio),
        speedup_low=predicted(interval.low),
        speedup_high=predicted(interval.high),
        speedup_vs_stored_ar=predicted(vs_stored),
        draft_length=predicted(length),
        draft_length_held_out=predicted(None if here is None else _fastest(here.aat.mean, prices)),
        acceptance=AcceptanceRates(**{name: measured(rate) for name, rate in rates.items()}),
        tokens_per_cycle_calibration=measured(float(np.asarray(chosen_on.aat.mean)[length - 1])),
        tokens_per_cycle_predicted=predicted(compared.predicted),
        tokens_per_cycle_counted=measured(compared.counted, compared.standard_error),
        tokens_per_cycle_gap_in_standard_errors=measured(compared.gap_in_standard_errors),
        draft_parameters=given(None if other is None else other.draft.num_parameters(other.params)),
        **_of_prices(case, prices, length, compared.counted),
        draft_step_s=predicted(prices.draft_step_s),
        intervals=headline_intervals(
            prices.times(length, engine_scatter(stages.config.engine, kind_of_draft(cost), device=pricing.device)),
            [compared.counted - 1.0],
            [compared.standard_error],
            batch=float(pricing.workload.batch),
        ),
        **_bits(case, measured if entry.kind == SELF_DRAFT else given, drafts=True),
        quality=stages.quality_of_scheme(facts.name),
        lossless=proof,
    ), speed


def _undrafted(
    stages: CompareStages, pricing: Case, name: str, footprint: Footprint, priced: str | None = None
) -> Contestant:
    """Plain decoding: of the network as it is, or of a compressed one.

    Args:
        priced: what its times assume, in words, where that is not what all others assume.
    """
    case = dataclasses.replace(pricing, footprint=footprint, draft=DraftCost())
    prices = price_chains(case, 1)
    compressed = name != AUTOREGRESSIVE
    speedup = prices.ar_bf16_s / float(prices.cycle_s[0])
    if compressed:
        title = COMPRESSIONS[name].title if name in COMPRESSIONS else SCHEME_FACTS[name].title
    else:
        form = run_form(stages.config.model, codes=stages.work.setup.config.in_codes)
        title = "16 bits" if form is None else form.name
    return Contestant(
        kind=COMPRESSION if compressed else AUTOREGRESSIVE,
        statement=title if priced is None else f"{title}; {priced}",
        activation_bits=given(float(COMPRESSIONS[name].activation_bits if name in COMPRESSIONS else UNROUNDED_BITS)),
        changes_output=compressed,
        pays=predicted(speedup > 1.0),
        speedup_vs_bf16_ar=predicted(speedup),
        speedup_vs_stored_ar=predicted(1.0),
        **_of_prices(case, prices, 0, 1.0),
        draft_step_s=predicted(None),
        intervals=headline_intervals(prices.times(0, 0.0), [0.0], [0.0], batch=float(pricing.workload.batch)),
        **_bits(case, predicted if compressed else given, drafts=False),
        quality=stages.quality_of_compression(name) if compressed else stages.quality_of_scheme("bf16"),
    )


def _of_prices(case: Case, prices: ChainPrices, length: int, tokens: float) -> dict[str, Any]:
    """Fields that follow from prices. Args: tokens: of a cycle and sequence."""
    batch = float(case.workload.batch)
    energy = None if prices.energy_j is None else float(prices.energy_j[length]) / (batch * tokens)
    return {
        "cycle_s": predicted(float(prices.cycle_s[length])),
        "ar_stored_s": predicted(float(prices.cycle_s[0])),
        "held_bytes": predicted(prices.held_bytes),
        "fits": predicted(prices.held_bytes <= capacity_bytes(case.device)),
        "energy_j_per_token": predicted(energy),
    }


def _bits(case: Case, status: Callable[[float], Quantity[float]], *, drafts: bool) -> dict[str, Any]:
    """Bits per weight that are read, none by a draft that does not run as a network; and per KV element."""
    read = case.footprint
    bits = {
        "bits_per_weight_verify": status(priced_mean(read.target_weight_bits, case)),
        "bits_per_kv_verify": status(float(np.mean(read.target_kv_bits))),
    }
    if drafts and float(np.max(np.asarray(case.draft.passes))) > 0:
        bits["bits_per_weight"] = status(priced_mean(read.draft_weight_bits, case))
        bits |= head_bits(read, status)
    return bits


def _fastest(gained: Any, prices: ChainPrices) -> int:
    """Draft length of 1 or more with the shortest time per token."""
    tokens: Float[np.ndarray, " length"] = np.asarray(jax.device_get(gained), np.float64)
    return int(np.nanargmax(tokens / prices.cycle_s[1:])) + 1


def _against_best(contestants: dict[str, Contestant], speeds: dict[str, Speed], seed: int) -> dict[str, Contestant]:
    """The same with every draft's speed over that of the fastest self-draft."""
    own = [name for name in speeds if contestants[name].kind == SELF_DRAFT]
    if not own:
        return contestants
    best = max(own, key=lambda name: contestants[name].speedup_vs_bf16_ar.known)

    def compared(name: str, each: Contestant) -> Contestant:
        if name == best or name not in speeds:
            return each
        ratio = speedup_ratio(speeds[name], speeds[best], seed)
        numbers = {part: predicted(number) for part, number in ratio._asdict().items()}
        return dataclasses.replace(each, vs_best_self_draft=Ratio(**numbers))

    return {name: compared(name, each) for name, each in contestants.items()}


#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = ("best", "pays", "lossless.mismatches")


def compare_results(stages: CompareStages, left_out: dict[str, str]) -> list[CompareResult]:
    """All stages; one result per device."""
    contests = {device: contest_on(stages, device) for device in stages.work.pricings}
    # Heads come last: they tell how long all stages took.
    results = [
        CompareResult(
            **common_fields(
                stages.work,
                device,
                contest.footprints,
                {name: each.acceptance.alpha_token.number for name, each in contest.contestants.items()},
            ),
            pays=predicted(contest.best != AUTOREGRESSIVE),
            lossless=_proof(contest),
            task=None if stages.task is None else stages.task.settings.task,
            problems=given(None if stages.task is None else len(stages.task.problems.prompts)),
            best=contest.best,
            contestants=contest.contestants,
            left_out=left_out,
            stopwatch=joined_clocks(contest.clocks),
        )
        for device, contest in contests.items()
    ]
    # Each contestant has a scheme of its own.
    return [dataclasses.replace(result, scheme=None) for result in results]


def _proof(contest: Contest) -> Lossless:
    """Of all drafts together."""
    proofs = [each.lossless for each in contest.contestants.values() if each.lossless.tokens.value is not None]
    if not proofs:
        return Lossless()
    total = lambda name: sum(getattr(proof, name).known for proof in proofs)
    return Lossless(
        prompts=proofs[0].prompts,
        **{name: measured(total(name)) for name in ("tokens", "mismatches", "ties")},
        smallest_margin=measured(min(proof.smallest_margin.known for proof in proofs)),
    )


def _write_traces(stages: CompareStages, folder: Path) -> None:
    """What each draft would gain: drafts of one target in one file, those of a changed one in a file with its scheme's name."""
    of_target: dict[str, list[Drafted]] = {}
    for drafted in stages.drafts:
        if drafted.stages.has_trace:
            of_target.setdefault(trace_file(drafted.entry.config.scheme), []).append(drafted)
    for file, drafts in of_target.items():
        gains = {drafted.entry.name: drafted.stages.gains for drafted in drafts}
        write_gains(drafts[0].stages.work, folder / file, gains, drafts[0].stages.trace_tokens)


def trace_file(scheme: str) -> str:
    """Name of the trace of drafts on a scheme's target."""
    return ACCEPTANCE_TRACE if SCHEME_FACTS[scheme].lossless else f"{ACCEPTANCE_TRACES}/{scheme}.jsonl"


def compare(
    config: CompareConfig, *, out: str | None = None, force: bool = False, reporter: Reporter | None = None
) -> tuple[list[CompareResult], RunDirectory]:
    """Compare everything for every device of the configuration, or return the result of a finished run.

    Returns:
        One result per device, as in result.json, and the run directory, which also holds the report.
    Raises:
        InputError: bad input; nothing is lost.
    """
    processes = shared_processes()
    checked: Callable[[], CheckedComparison] = cache(lambda: check_comparison(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[CompareResult]]:
        comparison = checked()
        for name, reason in comparison.left_out.items():
            reporter.line(f"note: {name} is left out: {reason}")
        if comparison.no_task:
            reporter.line(f"note: no problems are answered: {comparison.no_task}")
        work = begin_run(config, directory, reporter, comparison.inputs, drafts=comparison.drafts, processes=processes)
        drafts = begin_drafts(work, comparison.entries)
        stages = CompareStages(
            config, work, drafts, comparison.compressions, comparison.inputs.tokenizer, comparison.task
        )

        for text in announced(stages):
            reporter.line(text)

        def results() -> list[CompareResult]:
            compared = compare_results(stages, comparison.left_out)
            _write_traces(stages, directory.path)
            return compared

        return results

    expect(CompareConfig, config)
    how: dict[str, Any] = dict(out=out, force=force, reporter=reporter, headline=_HEADLINE, processes=processes)
    return execute_record_run(
        "compare", config, prepare, check=checked, kind=CompareResult, write=write_compare_report, **how
    )
