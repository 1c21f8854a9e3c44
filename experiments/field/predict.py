"""Predictions for measured rows: step, cycle and decode speedup, from shapes, published acceptance and an engine's terms."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.field.engines import engine_of
from experiments.field.gpus import (
    Gpu,
    at_bandwidth,
    device_of_group,
    least_bandwidth,
    likely_cards,
    named_device,
    solved_bandwidth,
)
from experiments.field.networks import A_NETWORK, draft_of, is_block, named_architecture, shape_notes
from experiments.field.rows import FieldRow
from experiments.field.stored import BESIDES, SIXTEEN_BITS, NotPricedError, Stored, stored, weight_bits
from hwmodels import Architecture, Case, Device, DraftCost, Footprint, Plan, Workload, catalog, chain_plan
from hwmodels.analysis.kernel_widths import kernel_remarks
from hwmodels.compute.roofline import unit_of
from hwmodels.numerics.fast_compile import jit_fast_compile
from hwmodels.numerics.scalars import Leaf
from hwmodels.parallel.group import sharing_devices
from hwmodels.speculation.chains import entering_tokens, serving_cycle, serving_step
from hwmodels.speculation.engine_logs import NO_ENGINE, EngineTerms, engine_time, prompts_time
from hwmodels.speculation.plan import block_plan

__all__ = [
    "ASSUMED_CONTEXT",
    "OwnStep",
    "OwnSteps",
    "Parts",
    "Predicted",
    "Ran",
    "predict",
    "price_rows",
    "step_s",
    "what_ran",
    "workload_of",
]

# What a published row ran on: kernels of its engine and its weights' formats, widths, and what of that is not measured.


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a row ran on: the target's kernels and the draft's, widths of both, and what is not measured of that.

    Attributes:
        draft_format: of kernels that also quantize a draft's activations; None: they keep 16 bits.
    """

    gpu: Gpu
    draft_gpu: Gpu
    draft_format: str | None
    footprint: Footprint
    notes: tuple[str, ...]


def what_ran(row: FieldRow, target: Architecture, draft: DraftCost) -> Ran:
    """Kernels and widths of a row. A draft is stored in 16 bits unless its row says otherwise, as heads and small networks are
    published; a head within the target's own file as the target."""
    how, drafts = _target_stored(row), float(draft.passes) > 0.0
    of_draft = stored(row.draft_precision) if drafts and not _in_target(row) else how
    own = target if draft.architecture is None else draft.architecture
    bits = weight_bits(how, target)
    draft_bits = dict(bits) if drafts and _in_target(row) else weight_bits(of_draft, own)
    if float(draft.shares_ends):  # they are the target's, as it stores them
        draft_bits |= {end: bits[end] for end in ("embed", "lm_head")}
    footprint = Footprint(
        target_weight_bits=bits,
        draft_weight_bits=draft_bits,
        target_kv_bits=row.kv_bits,
        draft_kv_bits=row.kv_bits,
    )
    gpu = _gpu_of(row, how, target, draft)
    # Weights of 16 bits have one kernel, which every format's device holds.
    apart = drafts and of_draft != SIXTEEN_BITS and of_draft != how
    draft_gpu = _gpu_of(row, of_draft, target, draft) if apart else gpu
    draft_format = draft_gpu.weight_format if drafts and of_draft.formats else None
    remarks = [*gpu.notes, *_of_widths(gpu, footprint.target_weight_bits, row, target)]
    if drafts:
        remarks += [*draft_gpu.notes, *_of_widths(draft_gpu, footprint.draft_weight_bits, row, own)]
    if drafts and not row.draft_precision and not _in_target(row) and how.bits < SIXTEEN_BITS.bits:
        remarks.append("draft_precision is empty: 16 bits are assumed")
    if not row.target_precision and how != SIXTEEN_BITS:
        remarks.append("target_precision is empty: Q4_K is assumed, as most files of llama.cpp have")
    remarks += shape_notes(row.target, *([row.draft] if draft.statement == A_NETWORK else []))
    return Ran(gpu, draft_gpu, draft_format, footprint, tuple(dict.fromkeys(remarks)))


#: Per weight beside MXFP4 experts in files of llama.cpp and MLX, whose other matrices are Q8_0 or have 8 bits in groups of 64.
_BESIDE_EXPERTS = 8.5


def _target_stored(row: FieldRow) -> Stored:
    """A target's format; llama.cpp's files are of 4 bits unless their name says otherwise."""
    engine = engine_of(row.engine)
    how = stored(row.target_precision or ("q4_k" if (engine.name or "").startswith("llama.cpp") else ""))
    own_files = how.experts_alone and engine.name is not None and engine.rows is not None
    return dataclasses.replace(how, others_bits=_BESIDE_EXPERTS) if own_files else how


def _in_target(row: FieldRow) -> bool:
    """Whether a draft is stored in the target's file, whose precision then is its own."""
    return not row.draft_precision and re.search(r"\bin gguf\b", row.draft.lower()) is not None


def _of_widths(gpu: Gpu, bits: Mapping[str, Leaf], row: FieldRow, network: Architecture) -> list[str]:
    """Widths of one of a row's networks that its device has no measured kernel for."""
    measured = unit_of(gpu.device).measured
    if measured is None:
        return []
    alone = Footprint(
        target_weight_bits=dict(bits),
        draft_weight_bits=dict(bits),
        target_kv_bits=row.kv_bits,
        draft_kv_bits=row.kv_bits,
    )
    # The other network of the row may be the one that a format's kernels are for.
    remarks = kernel_remarks(gpu.device, alone, experts=bool(float(network.num_experts)), unused_format=False)
    return [one for one in remarks if one not in measured.remarks]


def _gpu_of(row: FieldRow, how: Stored, target: Architecture, draft: DraftCost) -> Gpu:
    """A row's device, alone or as one of several: those that share matrices as its notes say, else all of them."""
    engine = engine_of(row.engine)
    one = named_device(
        row.device, engine.kernels, how.formats, rows=engine.name is not None and engine.rows is not None
    )
    if row.device_count == 1 and row.tensor_parallel in (None, 1):
        return one
    tensor = row.tensor_parallel or row.device_count
    own = draft.architecture if draft.statement == A_NETWORK else None
    return device_of_group(row.device, one, tensor=tensor, devices=row.device_count, target=target, draft=own)


#: Context of rows that do not say one, in tokens; decoding of short answers to short questions.
ASSUMED_CONTEXT = 512.0


class OwnStep(NamedTuple):
    """What a group's steps without speculation say.

    Attributes:
        bandwidth_scale: over the catalog's.
        rest_s: seconds of each pass of the target beside its kernels; 0 where the bandwidth explains the step.
        device: the card that its name means, where it may mean several; None: as the row has it.
    """

    bandwidth_scale: float = 1.0
    rest_s: float = 0.0
    device: str | None = None


@jit_fast_compile
def step_s(device: Device, architecture: Architecture, footprint: Footprint, workload: Workload) -> jax.Array:
    """Seconds of a step without speculation in steady serving, of its kernels."""
    return serving_step(Case(device, architecture, workload=workload, footprint=footprint))


def workload_of(row: FieldRow, batch: float) -> Workload:
    """Half of the answer stands behind the prompt on average; prompts enter where both lengths are known, but beside a sequence
    alone, whose kernels would process them before it."""
    known = row.prompt_tokens is not None and row.output_tokens is not None
    known = known and (batch > 1.0 or engine_of(row.engine).rows is None)
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
    """Bandwidth, rest and card of each group of rows, from its own steps without speculation."""

    def __init__(self, rows: Sequence[FieldRow]) -> None:
        self._rows: dict[str, list[FieldRow]] = {}
        for row in rows:
            if row.ar_s is not None and not row.excluded:
                self._rows.setdefault(row.group, []).append(row)
        self._found: dict[str, OwnStep] = {}

    def _first(self, group: str) -> FieldRow | None:
        """The row with the fewest sequences without speculation, the first of several."""
        return min(self._rows.get(group, []), key=lambda row: row.ar_batch, default=None)

    def is_from(self, row: FieldRow) -> bool:
        """Whether a row's step without speculation is the one that its group's numbers come from: runs of several draft lengths
        are compared with one such step."""
        first = self._first(row.group)
        return first is not None and (row.ar_s, row.ar_batch) == (first.ar_s, first.ar_batch)

    def of(self, row: FieldRow) -> OwnStep:
        """The numbers for a row: those of the catalog where its group published no step without speculation.

        A name that may mean several cards means the one that explains the group's steps over sequences best, with the bandwidth
        nearest to its data sheet's.

        Raises:
            NotPricedError: no bandwidth near the catalog's explains the step.
        """
        first = self._first(row.group)
        if first is None:
            return OwnStep()
        if row.group not in self._found:
            names, found = likely_cards(first.device, first.device_count), []
            refused: NotPricedError | None = None
            for name in names:
                try:
                    found.append(self._as(dataclasses.replace(first, device=name), compare=len(names) > 1))
                except NotPricedError as reason:
                    if len(names) == 1:
                        raise
                    refused = reason
            if not found and refused is not None:
                raise refused
            self._found[row.group] = min(found, key=lambda one: one[0])[1]
        return self._found[row.group]

    def _as(self, first: FieldRow, *, compare: bool) -> tuple[float, OwnStep]:
        """How far a group's steps are from those of a card, and its numbers then.

        Args:
            first: with the card's name. compare: whether the distance is wanted.
        """
        target, measured_s = named_architecture(first.target), first.ar_s
        assert measured_s is not None
        ran = what_ran(first, target, DraftCost(passes=0.0))

        def kernels_s(scale: float, row: FieldRow = first) -> float:
            work = workload_of(row, row.ar_batch)
            return float(step_s(at_bandwidth(ran.gpu.device, scale), target, ran.footprint, work))

        least = _least_bandwidth(first, ran.gpu, target)
        rest_s = measured_s - kernels_s(least) if least else 0.0
        if rest_s > 0.0:
            found, distance = OwnStep(least, rest_s), rest_s / measured_s + abs(math.log(least))
        else:
            scale = solved_bandwidth(kernels_s, measured_s)
            found, distance = OwnStep(scale), abs(math.log(scale))
        if not compare:
            return distance, found
        others = {
            (row.ar_s, row.ar_batch): row for row in self._rows[first.group] if row.ar_batch > 1.5 * first.ar_batch
        }
        misses = [
            abs(math.log((kernels_s(found.bandwidth_scale, row) + found.rest_s) / row.ar_s))
            for row in others.values()
            if row.ar_s
        ]
        return distance + float(np.mean(misses or [0.0])), found._replace(device=first.device)


def _least_bandwidth(row: FieldRow, gpu: Gpu, target: Architecture) -> float:
    """Bandwidth over the catalog's below which a step takes a rest; 0: it takes none, whatever explains it.

    Kernels that take instructions for each row reach any bandwidth, but those of experts: a step of a mixture launches several
    times as many kernels for each byte.
    """
    engine = engine_of(row.engine)
    if engine.name is not None and engine.rows is not None:
        return BOUND_BY_INSTRUCTIONS / float(gpu.device.memory.efficiency) if float(target.num_experts) else 0.0
    any_bandwidth = gpu.kernels is None and engine.name is None and not engine.eager
    return 0.0 if any_bandwidth else least_bandwidth(row.device, row.device_count)


#: Tokens per cycle by which published numbers, rounded as they are, may exceed the most there can be.
_ROUNDED = 0.02


#: Said where a step is slower than the card's own memory explains.
_RESTS = "each pass of the target takes {:.2f} ms beside its kernels, as the group's own step without speculation did"

#: Said where a step is slower than memory explains.
_BOUND = (
    "a step reads its weights at {:.0f} % of the data sheet's bandwidth: it is bound by instructions, of which half come back "
    "with each row"
)

#: A network in whose place no other can be.
_ANY = "llama-3.1-8b"

#: Drafted tokens beyond which a row is a slip: the longest published lookups draft some dozens.
_LONGEST = 512.0


#: Share of the data sheet's bandwidth below which a step is taken to be bound by instructions instead. Calibrated: chosen with
#: an M1 Ultra, which is (0.29), an RX 7900 XTX and an M5 Max, which are not (0.44 and 0.48), in view.
BOUND_BY_INSTRUCTIONS = 0.4

#: Then as much of a step comes back with each row: kernels execute as many instructions to unpack a weight as for a row
#: (counted in MLX: `unpack_instructions` and `row_instructions` of m3-ultra).
_BOUND_SHARE = 0.5


class RowTimes(NamedTuple):
    """Seconds of further rows for each instruction per weight and row, of a step without speculation and of a cycle.

    Attributes:
        bound: instructions that explain a step which is bound by them; None: it is bound by memory.
    """

    ar_s: float
    cycle_s: float
    bound: float | None = None


@dataclasses.dataclass(frozen=True)
class Parts:
    """Times of a row without the engine's terms, and what these are multiplied by.

    Attributes:
        ar_s, cycle_s: seconds of kernels, and of what each pass of the target takes beside them.
        ar_counts, cycle_counts: how often each term of `EngineTerms` is spent, in its order.
        bandwidth_scale: over the catalog's.
        step_rest_s: of each pass of the target beside its kernels, in `ar_s` and `cycle_s`.
        device: name in the catalog.
        draft: what was priced as the draft.
        kernels: engine whose measured kernels count; None: the device's rates do.
        weight_format, draft_weight_format: of kernels that also quantize activations; None: activations keep 16 bits.
        notes: what is not measured of this row, sentences for a reader.
        step_given: whether bandwidth or rest come from this row's own step without speculation, which then is no prediction.
        rows: of an engine that takes instructions for each further row of a product, which `ar_s` and `cycle_s` leave out.
        mixture: whether the target has routed experts.
    """

    ar_s: float
    cycle_s: float
    ar_counts: np.ndarray
    cycle_counts: np.ndarray
    bandwidth_scale: float
    device: str
    draft: str
    step_rest_s: float = 0.0
    step_given: bool = False
    kernels: str | None = None
    weight_format: str | None = None
    draft_weight_format: str | None = None
    notes: tuple[str, ...] = ()
    rows: RowTimes | None = None
    mixture: bool = False


@dataclasses.dataclass(frozen=True)
class Predicted:
    """Seconds and ratios of one row."""

    ar_s: float
    cycle_s: float
    speedup: float


@jit_fast_compile
def _cycle_parts(
    device: Device,
    architecture: Architecture,
    footprint: Footprint,
    draft: DraftCost,
    workload: Workload,
    plan: Plan,
    tokens: float,
) -> tuple[jax.Array, jax.Array]:
    found = serving_cycle(
        Case(device, architecture, workload=workload, footprint=footprint, draft=draft), plan, tokens_per_cycle=tokens
    )
    return found.draft_s, found.verify_s


def price_rows(rows: Sequence[FieldRow]) -> list[Parts | str]:
    """Kernel times of each row, or why it has none."""
    steps = OwnSteps(rows)
    found: list[Parts | str] = []
    for row in rows:
        try:
            priced = _price(row, steps)
            if not math.isfinite(priced.ar_s + priced.cycle_s):
                raise NotPricedError("its numbers are beyond what the model can price: check batch and lengths")
            found.append(priced)
        except NotPricedError as reason:
            found.append(str(reason))
    return found


def predict(row: FieldRow, parts: Parts, terms: EngineTerms = NO_ENGINE, instructions: float = 0.0) -> Predicted:
    """Step, cycle and speedup of one row with an engine's terms, and its instructions per weight and further row."""
    spent = np.array(dataclasses.astuple(terms), float)
    ar_s = parts.ar_s + float(parts.ar_counts @ spent)
    cycle_s = parts.cycle_s + float(parts.cycle_counts @ spent)
    if parts.rows is not None:
        own = instructions if parts.rows.bound is None else max(instructions, parts.rows.bound)
        ar_s, cycle_s = ar_s + own * parts.rows.ar_s, cycle_s + own * parts.rows.cycle_s
    assert row.tokens_per_cycle is not None
    # Runs with and without speculation held other numbers of sequences; a sequence's own speedup is what was published.
    return Predicted(ar_s=ar_s, cycle_s=cycle_s, speedup=row.tokens_per_cycle * ar_s / cycle_s)


def _price(row: FieldRow, steps: OwnSteps) -> Parts:
    if causes := _causes(row):
        raise NotPricedError(BESIDES.join(causes))
    assert row.tokens_per_cycle is not None
    counted = float(row.tokens_per_cycle)
    own = steps.of(row)
    row = row if own.device is None else dataclasses.replace(row, device=own.device)
    target, plan = named_architecture(row.target), _plan(row)
    draft = draft_of(row, target)
    ran = what_ran(row, target, draft)
    workload, without = workload_of(row, row.batch), workload_of(row, row.ar_batch)
    tokens = counted
    entering = entering_tokens(workload, tokens)

    def cycle(gpu: Gpu, instructions: float) -> np.ndarray:
        device = _instructed(at_bandwidth(gpu.device, own.bandwidth_scale), instructions)
        found = _cycle_parts(device, target, ran.footprint, draft, workload, plan, tokens)
        return np.array([float(part) for part in found])

    def both(instructions: float) -> float:
        """Seconds of drafting and verifying, each by the kernels of its own format."""
        found = cycle(ran.gpu, instructions)
        drafted = found if ran.draft_gpu is ran.gpu else cycle(ran.draft_gpu, instructions)
        return float(drafted[0] + found[1])

    def step(work: Workload, instructions: float) -> float:
        device = _instructed(at_bandwidth(ran.gpu.device, own.bandwidth_scale), instructions)
        return float(step_s(device, target, ran.footprint, work))

    ar_s, cycle_s, notes, rows = step(without, 0.0), both(0.0), list(ran.notes), None
    if ran.gpu.device.extra_rows is not None:
        rows = RowTimes(step(without, 1.0) - ar_s, both(1.0) - cycle_s)
        reached = own.bandwidth_scale * float(ran.gpu.device.memory.efficiency)
        if reached < BOUND_BY_INSTRUCTIONS * (1.0 - 1e-6):
            alone, two = (dataclasses.replace(without, batch=batch) for batch in (1.0, 2.0))
            row_s = step(two, 1.0) - step(two, 0.0)
            rows = rows._replace(bound=_BOUND_SHARE * step(alone, 0.0) / row_s)
            notes.append(_BOUND.format(100.0 * reached))
    # Without graphs the rest is the host's, which launches a draft's layers one by one too.
    passes = float(draft.passes) * (1.0 if draft.block else row.draft_length) if engine_of(row.engine).eager else 0.0
    layers = 0.0 if draft.architecture is None else float(draft.architecture.num_layers)
    drafting_rest_s = own.rest_s * passes * layers / float(target.num_layers)
    plain_tokens, devices = row.ar_batch * entering_tokens(without, 1.0), sharing_devices(ran.gpu.device)
    if own.rest_s:
        notes.append(_RESTS.format(own.rest_s * 1e3))
    if own.device is not None:
        notes.append(f"its steps without speculation are those of {ran.gpu.name}")
    return Parts(
        ar_s=ar_s + own.rest_s,
        cycle_s=cycle_s + own.rest_s + drafting_rest_s,
        ar_counts=np.asarray(prompts_time(_UNIT_TERMS, target, plain_tokens, devices)),
        cycle_counts=np.asarray(
            engine_time(
                _UNIT_TERMS,
                plan,
                target=target,
                draft_cost=draft,
                batch=row.batch,
                prompt_tokens=entering * row.batch,
                devices=devices,
            )
        ),
        bandwidth_scale=own.bandwidth_scale,
        device=ran.gpu.name,
        draft=draft.statement,
        step_rest_s=own.rest_s,
        step_given=steps.is_from(row),
        kernels=ran.gpu.kernels,
        weight_format=ran.gpu.weight_format,
        draft_weight_format=ran.draft_format,
        notes=tuple(notes),
        rows=rows,
        mixture=bool(float(target.num_experts)),
    )


def _instructed(device: Device, instructions: float) -> Device:
    """The device with as many instructions for each further row; as it is where its engine takes none."""
    if device.extra_rows is None:
        return device
    return dataclasses.replace(device, extra_rows=dataclasses.replace(device.extra_rows, instructions=instructions))


def _of_numbers(row: FieldRow) -> list[str]:
    """What is missing of a row's numbers, or wrong with them."""
    length, tokens = row.draft_length, row.tokens_per_cycle
    if length > _LONGEST:
        return [f"draft_length is {length:g}; drafts of up to {_LONGEST:g} tokens are priced"]
    if length >= 1 and tokens is not None and not 1.0 <= tokens <= length + 1.0 + _ROUNDED:
        return [
            f"its acceptance means {tokens:g} tokens per cycle, and drafts of {length:g} tokens give 1 to {length + 1:g}: "
            "check acceptance_definition and draft_length"
        ]
    found = [] if length >= 1 else ["no draft length was published"]
    if not row.acceptance and tokens is None:
        return ["no acceptance was published", *found]
    # A share of drafted tokens means nothing without their number, which then is missing already.
    if tokens is None and length >= 1:
        found.append(f"its acceptance is {row.acceptance}, which is no known acceptance_definition")
    return found


def _causes(row: FieldRow) -> list[str]:
    """Everything for which a row has no prediction and that its own words say; empty: it may have one."""
    found = [row.unread] if row.unread else _of_numbers(row)

    def target() -> Architecture:
        try:
            return named_architecture(row.target)
        except NotPricedError:  # named by itself; a draft's kind can be known nevertheless
            return catalog.architecture(_ANY)

    for check in (
        lambda: named_architecture(row.target),
        lambda: draft_of(row, target()),
        lambda: stored(row.target_precision),
        lambda: stored(row.draft_precision) if float(draft_of(row, target()).passes) else None,
        lambda: named_device(row.device),
    ):
        try:
            check()
        except NotPricedError as reason:
            found.append(str(reason))
    return list(dict.fromkeys(found))


#: One second of each term alone, leaves " term", so that `engine_time` counts how often each is spent.
_UNIT_TERMS = EngineTerms(*np.eye(len(dataclasses.fields(EngineTerms)), dtype=np.float32))


def _plan(row: FieldRow) -> Plan:
    if is_block(row) and (row.tree_nodes is None or row.tree_nodes <= row.draft_length):
        return block_plan(row.draft_length)
    if row.tree_nodes is None or row.tree_nodes <= row.draft_length:
        return chain_plan(row.draft_length)
    # Depth and nodes are all that is published of a tree: its levels are taken as equally wide.
    return Plan(
        draft_tokens=jnp.array([row.tree_nodes / row.draft_length]),
        draft_visible=jnp.ones(1),
        draft_repeats=jnp.array([row.draft_length]),
        verify_tokens=jnp.asarray(row.tree_nodes + 1.0),
        verify_visible=jnp.asarray((row.draft_length + 2.0) / 2.0),
    )
