"""Configurations of a draft on one device: measured, decoded, priced, compared, and one of them proven lossless."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from jaxspec.compress.knobs import Knobs
from jaxspec.results import predicted
from jaxspec.results.network_results import ConfigurationsResult, Ratio
from jaxspec.speculate.sampling import GREEDY
from jaxspec.speculate.statistics import speedup_ratio
from jaxspec.speculate.timing import chain_way
from jaxspec.studies.engine_pricing import engine_scatter
from jaxspec.studies.measured.chains import ChainDecoding
from jaxspec.studies.measured.configuration import configuration
from jaxspec.studies.measured.head import head, lossless
from jaxspec.studies.measured.stopwatch import stopwatch_part
from jaxspec.tuning.priced_kinds import priced_footprint

__all__ = ["compare_configurations"]

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
        **head(
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
