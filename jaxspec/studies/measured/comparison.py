"""Configurations of a draft on one device: measured, decoded, priced, compared, and one of them proven lossless."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import hwmodels
from hwmodels import Case
from hwmodels.analysis.uncertainty.cycle_errors import CycleTimes as InheritedTimes
from hwmodels.analysis.uncertainty.cycle_errors import cycle_times
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.step.step_cost import seconds_by_part
from jaxspec.compress.knobs import Knobs, knobs_to_json
from jaxspec.compress.weights import HEAD
from jaxspec.host.stopwatch import chain_way
from jaxspec.models.config import DecoderConfig, kinds_of
from jaxspec.partial_files import to_json
from jaxspec.results import Quantity, given, measured, predicted
from jaxspec.results.network_results import (
    AcceptanceRates,
    CategoryCycles,
    Configuration,
    ConfigurationsResult,
    CycleTimes,
    Ratio,
)
from jaxspec.runs.stages import Arrays
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import acceptance_rates, compare_cycles, speedup_ratio
from jaxspec.speculate.chunks import Prompts, chunk_size
from jaxspec.speculate.drafts.self_draft import SelfDraftParams
from jaxspec.speculate.predicted_cycles import predict_cycles
from jaxspec.speculate.proof import continuation_length, continue_texts, decode_chains
from jaxspec.speculate.sampling import GREEDY, Decoding
from jaxspec.studies.engine_pricing import engine_scatter
from jaxspec.studies.headline_intervals import headline_intervals
from jaxspec.studies.measured.common_fields import common_fields, lossless
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.run_context import sampling_mode
from jaxspec.studies.measured.stopwatch import stopwatch_part
from jaxspec.tuning.compression_objective import best_length
from jaxspec.tuning.objective import DraftMeasurement, priced_draft, priced_footprint

#: Counts up with the fields that a stage stores, so that nothing reads what an earlier version left.
_FORM = 5


@dataclasses.dataclass(frozen=True, eq=False)
class ChainDecoding:
    """Decoding of a run's held-out prompts with hard drafts.

    Attributes:
        longest: draft length that all decoding, autoregressive too, has room for in each step: wider steps take longer.
        gains: draft length whose gains at each start predictions also have; None: they have none, and take less time.
    """

    drafts: HardDrafts
    longest: int = MAX_DRAFT_LENGTH
    gains: int | None = None

    @property
    def room(self) -> int:
        """Tokens of a held-out text behind its prompt; a calibration text may have more."""
        return continuation_length(self.drafts.work.config.output_tokens)

    def compile(self) -> None:
        """Compile what decodes, with a draft or without, and what predicts its cycles: one token of a few prompts is decoded,
        one draft step predicted. For a thread."""
        setup, few = self.drafts.work.setup, chunk_size(len(self.drafts.work.setup.prompts))
        asked = self.drafts.work.asked(1, setup.decoding)
        asked = asked._replace(tokens=asked.tokens[:few], lengths=asked.known_lengths[:few])
        decode_chains(setup.params, setup.config, self.drafts.none, asked, 0, longest=self.longest, room=self.room)
        texts = np.zeros((few, asked.tokens.shape[1] + self.room), np.int32)
        asked = asked._replace(num_tokens=self.drafts.work.config.output_tokens)
        self._predict(self.drafts.none.params, asked, texts, 1, lambda: None)

    def name_of(self, drafts: Mapping[str, Knobs]) -> str:
        """Name of a stage about several drafts, by their knobs."""
        network = self.drafts.work.setup.config
        every = [f"{name} {_digest(knobs, network)}" for name, knobs in drafts.items()]
        return hashlib.sha256("\n".join(every).encode()).hexdigest()[:12]

    def autoregressive(self, decoding: Decoding) -> Arrays:
        """Held-out prompts without a draft, long enough for predictions at every start."""
        work, drafts = self.drafts.work, self.drafts
        setup = work.setup

        def compute() -> Arrays:
            with work.bar("decoding without a draft", len(setup.prompts)) as bar:
                asked = work.asked(self.room, decoding)
                if not decoding.greedy:  # no output is compared with it, token by token
                    return continue_texts(setup.params, setup.config, asked, advance=bar.advance)
                how = {"longest": self.longest, "advance": bar.advance}
                return decode_chains(setup.params, setup.config, drafts.none, asked, 0, **how)

        width = "" if self.longest == MAX_DRAFT_LENGTH or not decoding.greedy else f"-{self.longest + 1}"
        return work.stages.run(f"decoded/{sampling_mode(decoding)}-autoregressive{width}", compute)

    def speculative(self, knobs: Knobs, decoding: Decoding, what: str) -> Arrays:
        """Held-out prompts with a hard draft. Stages are named by the knobs: what two devices share is decoded once."""
        work, drafts = self.drafts.work, self.drafts
        setup = work.setup

        def compute() -> Arrays:
            with work.bar(f"decoding with the {what} draft", len(setup.prompts)) as bar:
                return decode_chains(
                    setup.params,
                    setup.config,
                    drafts.ready(knobs),
                    work.asked(work.config.output_tokens, decoding),
                    knobs.draft_length,
                    longest=self.longest,
                    room=self.room,
                    advance=bar.advance,
                )

        return work.stages.run(f"decoded/{sampling_mode(decoding)}-{_digest(knobs, setup.config)}", compute)

    def predicted(self, knobs: Knobs, what: str) -> Arrays:
        """Cycles of the held-out prompts, expected without decoding them."""
        work, drafts = self.drafts.work, self.drafts
        setup, config = work.setup, work.config

        def compute() -> Arrays:
            texts = self.autoregressive(setup.decoding)["tokens"][:, : setup.prompts.shape[1] + self.room]
            with work.bar(f"predicting tokens per cycle, {what}", len(texts)) as bar:
                given = SelfDraftParams(drafts.params(knobs), knobs), work.asked(config.output_tokens, setup.decoding)
                return self._predict(*given, texts, knobs.draft_length, bar.advance)

        return work.stages.run(f"predicted/{sampling_mode(setup.decoding)}-{_digest(knobs, setup.config)}", compute)

    def _predict(
        self,
        draft: SelfDraftParams,
        asked: Prompts,
        texts: np.ndarray,
        draft_length: int,
        advance: Callable[[], None],
    ) -> Arrays:
        return predict_cycles(
            self.drafts.work.setup.params,
            draft.network,
            self.drafts.work.setup.config,
            asked,
            texts,
            knobs=draft.knobs,
            draft_length=draft_length,
            longest=self.gains,
            sharing=self.drafts.work.config.batch,
            advance=advance,
        )


def _digest(knobs: Knobs, network: DecoderConfig) -> str:
    """Name of a stage by its knobs and the form in which it is stored."""
    named = [_FORM, knobs_to_json(knobs, network.matrix_kinds)]
    return hashlib.sha256(to_json(named).encode()).hexdigest()[:12]


@jit_fast_compile
def _priced(
    pricing: Case, measured: DraftMeasurement, draft_length: Array
) -> tuple[Array, dict[str, hwmodels.PricedStep], Array, InheritedTimes]:
    """Seconds of a cycle, the four steps that it and its baselines consist of, what the engine adds, and their errors."""
    read, draft_cost = priced_footprint(measured.footprint, pricing.architecture), priced_draft(pricing, measured)
    case = dataclasses.replace(pricing, footprint=read, draft=draft_cost)
    found = hwmodels.price(case, hwmodels.chain_plan(draft_length))
    draft = jax.tree.map(lambda leaf: leaf[0], found.draft)  # the only kind of draft step that a chain has
    plain = {"ar_bf16": found.baselines.bf16, "ar_stored": found.baselines.stored}
    times = cycle_times(
        pricing.device,
        bf16=plain["ar_bf16"],
        stored=plain["ar_stored"],
        cycle=[(draft_length, draft), (1.0, found.verify)],
        engine_s=found.engine_s,
    )
    return found.total_s, {"draft": draft, "verify": found.verify, **plain}, found.engine_s, times


def priced_cycle(pricing: Case, measurement: DraftMeasurement, draft_length: int) -> dict[str, Any]:
    """Times of a cycle and its baselines, time per operator, operating points on the roofline; as in `Configuration`.

    Its `times`, with the errors of kernels, are for intervals.
    """
    found = jax.device_get(_priced(pricing, measurement, jnp.asarray(draft_length, jnp.float32)))
    cycle_s, steps, engine_s, times = found
    total = {name: float(step.cost.total_s) for name, step in steps.items()}
    return {
        "times": times,
        "cycle": CycleTimes(
            draft_step_s=predicted(total["draft"]),
            verify_s=predicted(total["verify"]),
            total_s=predicted(float(cycle_s)),
            engine_s=predicted(float(engine_s)),
            ar_bf16_s=predicted(total["ar_bf16"]),
            ar_stored_s=predicted(total["ar_stored"]),
        ),
        "operators": predicted({name: seconds_by_part(step.cost) for name, step in steps.items()}),
        "roofline": predicted(
            {
                name: {
                    "flop_per_byte": float(step.work.flops.sum() / step.work.memory_bytes.sum()),
                    "flops_per_s": float(step.work.flops.sum() / total[name]),
                }
                for name, step in steps.items()
            }
        ),
    }


def configuration(
    knobs: Knobs,
    *,
    measurement: DraftMeasurement,
    counts: Arrays,
    expected: Arrays,
    pricing: Case,
    choices: Collection[str] = (),
    scatter: float = 0.0,
    categories: Sequence[str] = (),
) -> Configuration:
    """One configuration of a result.

    Args:
        knobs: hard.
        measurement: of the hard draft on calibration text (its footprint, KL).
        counts: of decoding; expected: predicted for the same prompts.
        choices: "knobs" and "draft_length" where the program chose them, by predicted times; otherwise they were given.
        scatter: of the engine's cycles, standard deviation of the logarithm; 0: not known.
        categories: of the prompts, empty where a prompt has none.
    """
    length = knobs.draft_length
    tokens, cycles = counts["generated"].astype(float), counts["cycles"].astype(float)
    compared = compare_cycles(tokens, cycles, expected["generated"], expected["cycles"])
    priced = priced_cycle(pricing, measurement, length)
    times = priced["cycle"]
    inherited = dataclasses.replace(priced.pop("times"), scatter=scatter)
    beside_first, batch = [compared.counted - 1.0], float(pricing.workload.batch)
    per_token_s = times.total_s.known / compared.counted
    chosen = lambda name, value: predicted(value) if name in choices else given(value)
    rates: dict[str, Any] = acceptance_rates(counts["accepted_at"], counts["ended_at"], counts["cycles"], length)
    read, priced_bits = measurement.footprint, priced_footprint(measurement.footprint, pricing.architecture)
    return Configuration(
        speedup_vs_bf16_ar=predicted(times.ar_bf16_s.known / per_token_s),
        speedup_vs_stored_ar=predicted(times.ar_stored_s.known / per_token_s),
        acceptance=AcceptanceRates(**{name: measured(rate) for name, rate in rates.items()}),
        bits_per_weight=measured(priced_mean(priced_bits.draft_weight_bits, pricing)),
        bits_per_weight_verify=measured(priced_mean(priced_bits.target_weight_bits, pricing)),
        bits_per_kv=measured(float(np.mean(read.draft_kv_bits))),
        bits_per_kv_verify=measured(float(np.mean(read.target_kv_bits))),
        **head_bits(read),
        kl=measured(float(measurement.kl)),
        draft_length=chosen("draft_length", length),
        draft_length_predicted_best=predicted(best_length(pricing, measurement)[0]),
        tokens_per_cycle_predicted=predicted(compared.predicted),
        tokens_per_cycle_counted=measured(compared.counted, compared.standard_error),
        tokens_per_cycle_gap_in_standard_errors=measured(compared.gap_in_standard_errors),
        knobs=chosen("knobs", knobs_to_json(knobs, kinds_of(read.draft_weight_bits))),
        intervals=headline_intervals(inherited, beside_first, [compared.standard_error], batch=batch),
        by_category={
            name: _of_category(np.asarray(categories) == name, counts, expected, length, times)
            for name in sorted(set(categories))
            if name
        },
        **priced,
    )


def _of_category(
    chosen: np.ndarray, counts: Arrays, expected: Arrays, draft_length: int, times: CycleTimes
) -> CategoryCycles:
    """What a configuration does on some of its prompts.

    Args:
        chosen: " prompt", which.
    """
    names = ("generated", "cycles", "accepted_at", "ended_at")
    own = {name: np.asarray(counts[name])[chosen] for name in names}
    predictions = [np.asarray(expected[name])[chosen] for name in ("generated", "cycles")]
    compared = compare_cycles(own["generated"], own["cycles"], *predictions)
    rates: dict[str, Any] = acceptance_rates(own["accepted_at"], own["ended_at"], own["cycles"], draft_length)
    return CategoryCycles(
        prompts=given(int(chosen.sum())),
        alpha_token=measured(rates["alpha_token"]),
        tokens_per_cycle_predicted=predicted(compared.predicted),
        tokens_per_cycle_counted=measured(compared.counted, compared.standard_error),
        tokens_per_cycle_gap_in_standard_errors=measured(compared.gap_in_standard_errors),
        speedup_vs_bf16_ar=predicted(times.ar_bf16_s.known * compared.counted / times.total_s.known),
    )


def head_bits(
    read: hwmodels.Footprint, status: Callable[[float], Quantity[float]] = measured
) -> dict[str, Quantity[float]]:
    """Bits per weight of the LM head by a result's names; none where it is left at 16 bits."""
    if read.draft_weight_bits.get(HEAD, UNCOMPRESSED_BITS) == UNCOMPRESSED_BITS:
        return {}
    found = {"": read.draft_weight_bits, "_verify": read.target_weight_bits}
    return {f"bits_per_head_weight{step}": status(float(bits[HEAD])) for step, bits in found.items()}


def priced_mean(bits: dict[str, Any], pricing: Case) -> float:
    """Bits per stored weight of the matrices of layers, kinds weighted by the priced architecture's parameters."""
    stored = hwmodels.parameters(pricing.architecture)
    weights = np.asarray([float(stored[kind]) for kind in hwmodels.ALL_LAYER_MATRICES])
    return float(np.asarray([float(bits[kind]) for kind in hwmodels.ALL_LAYER_MATRICES]) @ weights / weights.sum())


Found = TypeVar("Found", bound=ConfigurationsResult)


def compare_configurations(
    kind: type[Found],
    decoding: ChainDecoding,
    device: str,
    drafts: dict[str, Knobs],
    *,
    hero: str,
    choices: Mapping[str, Collection[str]],
    **more: Any,
) -> Found:
    """The result of one device.

    Args:
        drafts: hard knobs by configuration.
        hero: the configuration that is proven lossless and compared with the others.
        choices: configuration -> which of "knobs" and "draft_length" the program chose; the others were given.
        more: further fields of the result.
    """
    work = decoding.drafts.work
    config, setup, pricing = work.config, work.setup, work.pricings[device]
    found, speeds = {}, {}
    measured = {name: decoding.drafts.measured(knobs) for name, knobs in drafts.items()}
    for name, knobs in drafts.items():
        counts = decoding.speculative(knobs, setup.decoding, name)
        found[name] = configuration(
            knobs,
            measurement=measured[name],
            counts=counts,
            expected=decoding.predicted(knobs, name),
            pricing=pricing,
            choices=choices.get(name, ()),
            scatter=engine_scatter(config.engine, device=pricing.device),
            categories=setup.categories,
        )
        speeds[name] = (counts["generated"], counts["cycles"], found[name].cycle.total_s.known)
    # Greedy even where the run itself samples. Before the head, which tells how long the stages took.
    proof = lossless(decoding.speculative(drafts[hero], GREEDY, hero), decoding.autoregressive(GREEDY), work)
    ratios = {
        f"{hero}_vs_{other}": speedup_ratio(speeds[hero], speeds[other], config.seed)
        for other in drafts
        if other != hero
    }
    clock = stopwatch_part(
        work,
        device,
        decoding.name_of(drafts),
        lambda: {
            name: chain_way(decoding.drafts.ready(knobs), knobs.draft_length, setup.decoding)
            for name, knobs in drafts.items()
        },
    )
    return kind(
        **common_fields(
            work,
            device,
            [priced_footprint(each.footprint, pricing.architecture) for each in measured.values()],
            {name: each.acceptance.alpha_token.number for name, each in found.items()},
        ),
        pays=predicted(found[hero].speedup_vs_stored_ar.known > 1.0),
        lossless=proof,
        configurations=found,
        stopwatch=clock,
        ratios={
            name: Ratio(**{part: predicted(number) for part, number in ratio._asdict().items()})
            for name, ratio in ratios.items()
        },
        **more,
    )
