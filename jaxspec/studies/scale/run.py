"""`jaxspec scale`: accuracy against budget, what each plan costs, and whether its rows were better spent on drafted tokens.

Source: Scaling LLM test-time compute with mobile NPU, Sec. 2 and 7; Snell et al. 2024, arXiv:2408.03314.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hwmodels import DraftCost, Footprint
from jaxspec.compress.expert_pool import pool_share
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.schemes import find_scheme
from jaxspec.results import Quantity, given, measured, predicted
from jaxspec.runs.carrying_out import carry_out_records
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.processes import shared_processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.settings import expect
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.speculate.drafts.making import own_knobs
from jaxspec.speculate.statistics import acceptance_rates
from jaxspec.studies.draft_widths import widths_beside
from jaxspec.studies.engine_pricing import engine_scatter, kind_of_draft
from jaxspec.studies.expert_pricing import copy_by_scheme
from jaxspec.studies.given_acceptance import GivenRates
from jaxspec.studies.headline_intervals import coverage_in_words, covered_by
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.curves import curve_point, measured_method
from jaxspec.studies.scale.exchange import all_positions, exchange_rows
from jaxspec.studies.scale.inputs import Checked, check_scale
from jaxspec.studies.scale.memory import plan_scale
from jaxspec.studies.scale.parts import head_parts, task_part
from jaxspec.studies.scale.planning import Plan, cheapest, most_accurate, plan_rows, with_fronts
from jaxspec.studies.scale.report import write_scale_report
from jaxspec.studies.scale.result import Curve, NetworkCurves, ScaleResult, Speculation
from jaxspec.studies.scale.stages import ScaleStages
from jaxspec.tuning.objective import with_pool

__all__ = ["scale", "scale_results"]

#: Main numbers of a result, for `jaxspec runs`.
_HEADLINE = ("pays", "most_accurate.samples", "most_accurate.accuracy", "most_accurate.total_s")


def scale_results(config: ScaleConfig, checked: Checked, stages: ScaleStages) -> list[ScaleResult]:
    """All that is measured, then one result per device."""
    plans = {name: _plans(stages, name) for name in config.model}
    acceptance = {name: _acceptance(stages, name, checked.rates) for name in config.model}
    # Given numbers are no news to who gave them.
    rates = [rate or 0.0 for found in acceptance.values() for rate in found.known]
    accepted = {config.draft: max(rates) if checked.rates is None else None}
    networks = [_curves(config, stages, name, found) for name, found in plans.items()]
    stages.reporter.line("pricing ...")
    footprint, batches = _footprint(config), list(dict.fromkeys((config.batch, *config.batches)))
    found = []
    for device, pricings in checked.pricings.items():
        rows, exchanges, scatters = [], [], []
        for name, pricing in pricings.items():
            of_network = plan_rows(
                config, pricing, plans[name], footprint=footprint, judge=checked.judge, batches=batches
            )
            draft = _draft_cost(stages, checked, name, device)
            conditional = acceptance[name].known
            parts = {"footprint": footprint, "draft": draft, "conditional": conditional}
            exchanges += exchange_rows(config, pricing, of_network, **parts)
            scatters.append(engine_scatter(config.engine, kind_of_draft(draft), device=pricing.device))
            rows += of_network
        rows = with_fronts(rows)
        covers = covered_by(next(iter(pricings.values())).device, scatter=max(scatters) if exchanges else 0.0)
        found.append(
            ScaleResult(
                **head_parts(config, checked, device, [footprint], accepted),
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
    return found


def _plans(stages: ScaleStages, name: str) -> list[Plan]:
    """Every method with every budget; that of one sample is first, whether asked for or not."""
    config = stages.config
    one = measured_method(stages, name, "pass-at-n", 1)
    found = []
    for method in config.methods:
        # A program that looks at Python is there when a user chooses; the value of a sum is not.
        attainable = method != "pass-at-n" or config.task == "python"
        for samples in dict.fromkeys((1, *config.samples)):
            reached = measured_method(stages, name, method, samples)
            point = curve_point(one, reached, samples)
            found.append(Plan(name, method, samples, attainable or samples == 1, reached, point))
    return found


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
    found = stages.drafted(name)
    counted: dict[str, Any] = acceptance_rates(
        found["accepted_at"], found["ended_at"], found["cycles"], MAX_DRAFT_LENGTH
    )
    return measured(all_positions(counted["conditional"], MAX_DRAFT_LENGTH))


def _footprint(config: ScaleConfig) -> Footprint:
    """Bits read of the network as it is stored, and of the draft: of a container or another network, its own."""
    scheme = find_scheme(config.scheme)
    stored = scheme.expected_footprint(knob_defaults(scheme))
    if config.draft == SELF:
        return stored
    own = widths_beside(config.draft, config.model[0])
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
    config: ScaleConfig,
    *,
    out: str | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> tuple[list[ScaleResult], RunDirectory]:
    """Measure and price test-time scaling for every device of the configuration, or return what a finished run found.

    Returns:
        One result per device, as in result.json, and the run directory, which also holds the report.
    Raises:
        InputError: bad input; nothing is lost.
    """
    expect(ScaleConfig, config)
    processes = shared_processes()
    checked = cache(lambda: check_scale(config))

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[dict[str, Any]]]:
        found = checked()
        memory = plan_scale(config, found)
        reporter.line(memory.line)
        for note in found.notes:
            reporter.line(f"note: {note}")
        networks = {
            name: dataclasses.replace(network, stream=memory.stream, mesh=memory.mesh)
            for name, network in found.networks.items()
        }
        kept = Stages(directory.checkpoints, processes, directory.check_inputs)
        stages = ScaleStages(config, found.problems, networks, kept, reporter)

        def work() -> list[dict[str, Any]]:
            results = [
                dataclasses.replace(each, inputs=directory.inputs) for each in scale_results(config, found, stages)
            ]
            return [result.plain() for result in results]

        return work

    return carry_out_records(
        "scale",
        config,
        prepare,
        check=checked,
        out=out,
        force=force,
        reporter=reporter,
        kind=ScaleResult,
        write=write_scale_report,
        headline=_HEADLINE,
        processes=processes,
    )
