"""`jaxspec scale`: accuracy against budget, what each plan costs, and whether its rows were better spent on drafted tokens.

Source: Scaling LLM test-time compute with mobile NPU, Sec. 2 and 7; Snell et al. 2024, arXiv:2408.03314.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from hwmodels import DraftCost, Footprint
from hwmodels.speculation.draft_cost import with_pool
from jaxspec.compress.expert_pool import pool_share
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.models.embedded import check_model
from jaxspec.report.assumptions import architecture_data, device_facts
from jaxspec.results import Quantity, given, measured, predicted
from jaxspec.results.network_results import DecodingSettings, RunningModel, WorkloadSettings
from jaxspec.results.records import quantities
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.execute import execute_record_run
from jaxspec.runs.processes import shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.scaling.branches import PROMPT_STEP, WIDTH
from jaxspec.settings import expect
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.acceptance import acceptance_rates
from jaxspec.speculate.drafts.factory import own_knobs
from jaxspec.studies.draft_widths import target_widths, widths_beside
from jaxspec.studies.engine_pricing import copy_by_scheme, engine_scatter, engine_used, kind_of_draft, noted
from jaxspec.studies.feasibility import unaccepted_notes
from jaxspec.studies.given_acceptance import GivenRates
from jaxspec.studies.headline_intervals import coverage_in_words, covered_by
from jaxspec.studies.measured.common_fields import versions
from jaxspec.studies.measured.memory import (
    COMPUTED,
    ONE_DEVICE,
    ROOM_BYTES,
    DraftNeed,
    MemoryNeed,
    MemoryPlan,
    decoding_bytes,
    draft_need,
    network_bytes,
    plan_by,
    process_bytes,
)
from jaxspec.studies.release import release_notes
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.inputs import Checked, Network, check_scale
from jaxspec.studies.scale.planning import (
    Plan,
    all_positions,
    cheapest,
    curve_point,
    exchange_rows,
    measured_method,
    most_accurate,
    plan_rows,
    with_fronts,
)
from jaxspec.studies.scale.result import Curve, NetworkCurves, ScaleResult, Speculation, TaskSettings
from jaxspec.studies.scale.stages import ScaleStages
from jaxspec.studies.scale.view import write_scale_report


def scale_need(
    config: ScaleConfig, checked: Checked, *, stream: bool, mesh: tuple[int, int] = ONE_DEVICE
) -> MemoryNeed:
    """An estimate from shapes and settings: all networks are held, each with its draft, and the judge; one works at a time.

    Args:
        mesh: devices along data, which share problems that are decoded with a draft and compute all samples, and along tensor.
    """
    tensor, held, work = mesh[1], 0, 0
    for network in checked.networks.values():
        drafts = (
            [] if config.draft == SELF else [draft_need(config.draft, network.config, stream=stream, tensor=tensor)]
        )
        own = network_bytes(network.config, stream=stream, tensor=tensor, model=network.name)
        held += own + sum(each.network for each in drafts)
        work = max(work, _work_bytes(config, checked, network, drafts, mesh))
    if config.judging is not None:
        held += network_bytes(check_model(config.judging), stream=False, model=config.judging)
    return MemoryNeed(held, 0, ROOM_BYTES + work + process_bytes())


def _work_bytes(
    config: ScaleConfig, checked: Checked, network: Network, drafts: list[DraftNeed], mesh: tuple[int, int]
) -> int:
    """Samples of one problem over one copy of its prompt's KV, or all problems with drafted tokens."""
    shape, most = network.config, config.most_tokens
    prompts = [len(network.encoded(prompt)) for prompt in checked.problems.prompts]
    places = -(-max(prompts) // PROMPT_STEP) * PROMPT_STEP
    cached = COMPUTED * shape.num_layers * shape.cached_shape.elements * 3 * (places + WIDTH * most)
    sampling = cached + COMPUTED * (shape.scored_heads * places**2 + 3 * WIDTH * shape.vocab_size)
    drafted = decoding_bytes(shape, prompts, most, drafts, mesh) if drafts and config.acceptance_form is None else 0
    return max(sampling, drafted)


def plan_scale(config: ScaleConfig, checked: Checked) -> MemoryPlan:
    """Whether the networks that answer stream, or how they are split; a judge is whole, on the first device.

    Raises:
        InputError: a mesh of more devices than there are.
    """
    kv_heads = math.gcd(*(network.config.num_kv_heads for network in checked.networks.values()))
    savers = "fewer models at a time, shorter --output-tokens or a smaller draft"
    return plan_by(config, lambda stream, mesh: scale_need(config, checked, stream=stream, mesh=mesh), kv_heads, savers)


def task_part(config: ScaleConfig, problems: int) -> TaskSettings:
    """What was answered."""
    return TaskSettings(
        name=config.task,
        check=config.check if config.task == "python" else None,
        score=config.score,
        judge=config.judging,
        problems=given(problems),
        samples=given(max(config.samples)),
        output_tokens=given(config.most_tokens),
    )


def head_parts(
    config: ScaleConfig,
    checked: Checked,
    device: str,
    footprints: Sequence[Footprint],
    accepted: Mapping[str, float | None],
) -> dict[str, Any]:
    """Fields of `MeasuredResult`; of several networks the names stand together, and numbers begin with a network's name.

    Args:
        accepted: see `unaccepted_notes`.
    """
    pricings, several = checked.pricings[device], len(config.model) > 1
    shapes = {
        f"{name}.{field}" if several else field: number
        for name, architecture in config.priced.items()
        for field, number in architecture_data(architecture, pricings[name].architecture).items()
    }
    first = checked.networks[config.model[0]].config
    parameters = given(None if several else first.num_parameters())
    priced_on = next(iter(pricings.values())).device
    # Of several networks the one with experts and the one with linear attention, where one has any.
    shapes_priced = [one.architecture for one in pricings.values()]
    largest = max(shapes_priced, key=lambda shape: float(shape.num_experts))
    linear = max(shapes_priced, key=lambda shape: float(shape.num_linear_layers))
    sequences = [batch * samples for batch in (config.batch, *config.batches) for samples in (1, *config.samples)]
    about = [
        *(note for name in dict.fromkeys(config.priced.values()) for note in release_notes(name)),
        *checked.notes,
        *unaccepted_notes(accepted),
    ]
    fields = noted(
        priced_on,
        list(footprints),
        config.engine,
        about=about,
        named=device,
        batches=sequences,
        architecture=largest,
        draft=linear,
        texts={
            model if name == "own" else name: float(config.context + config.most_tokens)
            for model, name in config.priced.items()
        },
    )
    return {
        "model": RunningModel(name=", ".join(config.model), parameters=parameters),
        "architecture": ", ".join(dict.fromkeys(config.priced.values())),
        "architecture_data": shapes,
        "device": device,
        **device_facts(device, config, config),
        "workload": WorkloadSettings(
            batch=given(config.batch), context_tokens=given(config.context), prompt_tokens=given(config.context)
        ),
        "decoding": DecodingSettings(
            **quantities(given, config, "temperature", "top_k", "top_p"),
            prompts=given(len(checked.problems.prompts)),
            output_tokens=given(config.most_tokens),
        ),
        "scheme": config.scheme,
        "text": None if checked.text is None else checked.text.source,
        "seed": config.seed,
        "statement": f"accuracy measured on {', '.join(config.model)}, cost predicted for "
        f"{', '.join(dict.fromkeys(config.priced.values()))}; tokens are counted as the networks that ran have them",
        "versions": versions(),
        "engine": engine_used(config.engine, device),
        **fields,
    }


#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = ("pays", "most_accurate.samples", "most_accurate.accuracy", "most_accurate.total_s")


def scale_results(config: ScaleConfig, checked: Checked, stages: ScaleStages) -> list[ScaleResult]:
    """All that is measured, then one result per device."""
    plans = {name: _plans(stages, name) for name in config.model}
    acceptance = {name: _acceptance(stages, name, checked.rates) for name in config.model}
    # Given numbers are no news to who gave them.
    rates = [rate or 0.0 for chances in acceptance.values() for rate in chances.known]
    accepted = {config.draft: max(rates) if checked.rates is None else None}
    networks = [_curves(config, stages, name, network_plans) for name, network_plans in plans.items()]
    stages.reporter.line("pricing ...")
    footprints = {name: _footprint(config, network) for name, network in checked.networks.items()}
    batches = list(dict.fromkeys((config.batch, *config.batches)))
    results = []
    for device, pricings in checked.pricings.items():
        rows, exchanges, scatters = [], [], []
        for name, pricing in pricings.items():
            of_network = plan_rows(
                config, pricing, plans[name], footprint=footprints[name], judge=checked.judge, batches=batches
            )
            draft = _draft_cost(stages, checked, name, device)
            conditional = acceptance[name].known
            parts = {"footprint": footprints[name], "draft": draft, "conditional": conditional}
            exchanges += exchange_rows(config, pricing, of_network, **parts)
            scatters.append(engine_scatter(config.engine, kind_of_draft(draft), device=pricing.device))
            rows += of_network
        rows = with_fronts(rows)
        covers = covered_by(next(iter(pricings.values())).device, scatter=max(scatters) if exchanges else 0.0)
        results.append(
            ScaleResult(
                **head_parts(config, checked, device, list(footprints.values()), accepted),
                pays=predicted(_pays(networks)),
                task=task_part(config, len(checked.problems.prompts)),
                networks=networks,
                plans=rows,
                most_accurate=most_accurate(rows, config.batch),
                target=None if config.accuracy is None else cheapest(rows, config.accuracy, config.batch),
                speculation=Speculation(draft=config.draft, conditional=acceptance, rows=exchanges),
                interval_statement=coverage_in_words(covers) if covers else None,
                timing_s={stage: measured(seconds) for stage, seconds in stages.stages.timing_s.items()},
            )
        )
    return results


def _plans(stages: ScaleStages, name: str) -> list[Plan]:
    """Every method with every budget; that of one sample is first, whether asked for or not."""
    config = stages.config
    one = measured_method(stages, name, "pass-at-n", 1)
    plans = []
    for method in config.methods:
        # A program that looks at Python is there when a user chooses; the value of a sum is not.
        attainable = method != "pass-at-n" or config.task == "python"
        for samples in dict.fromkeys((1, *config.samples)):
            reached = measured_method(stages, name, method, samples)
            point = curve_point(one, reached, samples)
            plans.append(Plan(name, method, samples, attainable or samples == 1, reached, point))
    return plans


def _curves(config: ScaleConfig, stages: ScaleStages, name: str, plans: Sequence[Plan]) -> NetworkCurves:
    ended = stages.samples(name)["ended"]
    return NetworkCurves(
        name=name,
        architecture=config.priced[name],
        parameters=given(stages.networks[name].config.num_parameters()),
        ended=measured(float(ended.mean())),
        curves=[
            Curve(
                method=method,
                attainable=all(plan.attainable for plan in plans if plan.method == method),
                points=[plan.point for plan in plans if plan.method == method],
            )
            for method in config.methods
        ],
    )


def _pays(networks: Sequence[NetworkCurves]) -> bool:
    """Whether some plan that a user could follow is surely better than one sample."""
    points = [point for network in networks for curve in network.curves if curve.attainable for point in curve.points]
    return any(point.samples > 1 and point.gain_low.known > 0 for point in points)


def _acceptance(stages: ScaleStages, name: str, known: GivenRates | None) -> Quantity[list]:
    """By position of a draft."""
    if known is not None:
        return given(all_positions(known.rates, max(MAX_DRAFT_LENGTH, len(known.rates))))
    counts = stages.drafted(name)
    counted: dict[str, Any] = acceptance_rates(
        counts["accepted_at"], counts["ended_at"], counts["cycles"], MAX_DRAFT_LENGTH
    )
    return measured(all_positions(counted["conditional"], MAX_DRAFT_LENGTH))


def _footprint(config: ScaleConfig, network: Network) -> Footprint:
    """Bits read of a network as it is stored, and of the draft: of a container or another network, its own."""
    scheme, codes = find_scheme(config.scheme), network.config.in_codes
    stored = target_widths(network.name) if codes else scheme.expected_footprint(knob_defaults(scheme))
    if config.draft == SELF:
        return stored
    own = widths_beside(config.draft, network.name, codes=codes)
    return dataclasses.replace(stored, draft_weight_bits=own.draft_weight_bits, draft_kv_bits=stored.target_kv_bits)


def _draft_cost(stages: ScaleStages, checked: Checked, name: str, device: str) -> DraftCost:
    config, network = stages.config, stages.networks[name]
    priced = checked.pricings[device][name].architecture
    if config.draft == SELF:
        return dataclasses.replace(copy_by_scheme(config.scheme, priced), statement="")
    draft = network.drafted_by(config.draft, sharing=config.batch).draft
    cost = draft.cost(network.config, priced, config.priced[name])
    cost = with_pool(cost, priced, pool_share(own_knobs(config.draft, network.config), network.config))
    # The statement is for readers: it must not compile anew.
    return dataclasses.replace(cost, statement="")


def scale(
    config: ScaleConfig, *, out: str | None = None, force: bool = False, reporter: Reporter | None = None
) -> tuple[list[ScaleResult], RunDirectory]:
    """Measure and price test-time scaling for every device of the configuration, or return the result of a finished run.

    Returns:
        One result per device, as in result.json, and the run directory, which also holds the report.
    Raises:
        InputError: bad input; nothing is lost.
    """
    expect(ScaleConfig, config)
    processes = shared_processes()
    checked = cache(lambda: check_scale(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[ScaleResult]]:
        inputs = checked()
        memory = plan_scale(config, inputs)
        reporter.line(memory.line)
        for note in inputs.notes:
            reporter.line(f"note: {note}")
        networks = {
            name: dataclasses.replace(network, stream=memory.stream, mesh=memory.mesh)
            for name, network in inputs.networks.items()
        }
        kept = Stages(directory.checkpoints, processes, directory.check_inputs)
        stages = ScaleStages(config, inputs.problems, networks, kept, reporter)

        results = lambda: scale_results(config, inputs, stages)
        return lambda: [dataclasses.replace(each, inputs=directory.inputs) for each in results()]

    how: dict[str, Any] = dict(out=out, force=force, reporter=reporter, headline=_HEADLINE, processes=processes)
    return execute_record_run(
        "scale", config, prepare, check=checked, kind=ScaleResult, write=write_scale_report, **how
    )
