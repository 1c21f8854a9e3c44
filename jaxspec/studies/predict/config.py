"""Settings of `jaxspec predict`, which runs no network."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.errors import InputError
from jaxspec.settings.acceptance import ACCEPTANCE_UNUSED, MAX_PREDICTED_LENGTH, AcceptanceSettings
from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.catalog_names import catalog_architectures
from jaxspec.settings.common import (
    POOLS_UNUSED,
    CommonConfig,
    ExpertSettings,
    ParallelSettings,
    refuse_own_architecture,
)
from jaxspec.settings.draft_kinds import SELF, KnobSettings, knobs_of_other_schemes
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.schemes import PricedScheme, all_knobs, scheme_facts
from jaxspec.studies.config_files import NETWORK, kind_in_file, own_scheme
from jaxspec.studies.study import Plot, Study

#: Drafts that are a head on the target,
HEADS = ("eagle", "eagle3", "medusa", "mtp")

#: a lookup in the text,
LOOKUP = "ngram"

#: and one that drafts all tokens of a cycle in one pass.
BLOCK = "block"

#: Pairs of batch and context of one command: a minute's worth.
MAX_POINTS = 1000


@dataclasses.dataclass(frozen=True)
class NamedDraft(Settings):
    """Settings that name a draft, for a table over batches and contexts."""

    def __post_init__(self):
        own: Any = self
        own.settle("scheme", own_scheme(own.architecture, copied=own.draft == SELF))
        super().__post_init__()
        refuse_own_architecture(own.architecture)
        if (points := len(own.batch) * len(own.context)) > MAX_POINTS:
            raise InputError(
                f"batch and context make {points:,} pairs; allowed are {MAX_POINTS:,}: give fewer, or jaxspec sweep, which "
                "prices millions"
            )

    @property
    def kind(self) -> str:
        """What drafts, as engines call it: a head, `LOOKUP`, `BLOCK` or `NETWORK`; or `SELF`, which none of them knows."""
        named: Any = self
        return named.draft if named.draft in (*HEADS, LOOKUP, BLOCK, SELF) else kind_in_file(named.draft)


def _all_widths_given(config: PredictConfig) -> str | None:
    widths = (config.draft_bits, config.verify_bits, config.draft_kv_bits, config.verify_kv_bits)
    return None if None in widths else "all four widths are given"


def _all_widths_given_and_no_head(config: PredictConfig) -> str | None:
    facts = scheme_facts(config.scheme)
    return None if facts is not None and facts.head else _all_widths_given(config)


@dataclasses.dataclass(frozen=True)
class PredictConfig(
    NamedDraft, ParallelSettings, ExpertSettings, KnobSettings, AcceptanceSettings, stated_beside=__file__
):
    """`jaxspec predict`."""

    architecture: str = same_as(CommonConfig, "architecture", names=catalog_architectures)
    device: tuple[str, ...] = same_as(CommonConfig, "device")
    engine: str | None = same_as(CommonConfig, "engine")
    weight_format: str | None = same_as(CommonConfig, "weight_format")
    batch: tuple[int, ...] = same_as(CommonConfig, "batch", default=(CommonConfig.batch,))
    context: tuple[int, ...] = same_as(CommonConfig, "context", default=(CommonConfig.context,))
    prompt_tokens: int = same_as(CommonConfig, "prompt_tokens")
    acceptance: tuple[float, ...] | None = same_as(AcceptanceSettings, "acceptance")
    acceptance_cycles: int | None = setting(None)
    scheme: PricedScheme = setting(None, objects="scheme")
    draft: str = setting(
        SELF,
        names=lambda: (SELF, LOOKUP, *HEADS, BLOCK, *catalog_architectures()),
        objects="architecture",
    )
    draft_bits: float | None = setting(None)
    verify_bits: float | None = setting(None)
    draft_kv_bits: float | None = setting(None)
    verify_kv_bits: float | None = setting(None)
    max_draft_length: int = setting(8, low=1, high=MAX_PREDICTED_LENGTH)

    unused = (
        knobs_of_other_schemes,
        *ACCEPTANCE_UNUSED,
        *POOLS_UNUSED,
        Unused(
            ("draft_tensor_parallel",),
            lambda config: config.kind != NETWORK,
            "the draft is no network of its own, and is shared as the target",
        ),
        Unused(("draft_bits", "draft_kv_bits"), lambda config: config.draft == LOOKUP, "a lookup has no weights"),
        lambda: (
            Unused(
                ("pool_fits", *all_knobs()),
                lambda config: config.draft != SELF and f"draft {config.draft} is no copy of the target",
            ),
            Unused(tuple(name for name, spec in all_knobs().items() if spec.per != "head"), _all_widths_given),
            Unused(
                ("scheme", *(name for name, spec in all_knobs().items() if spec.per == "head")),
                _all_widths_given_and_no_head,
            ),
        ),
    )


#: The study that runs no network.
PREDICT = Study(
    name="predict",
    config=PredictConfig,
    first=("weight_prune", "weight_cut_bits"),
    on_processor=True,
    figures="jaxspec.studies.predict.figures:figures",
    points="jaxspec.studies.predict.view:points",
    plot=Plot(
        "Write a figure: speedups, operators, sensitivities.", "jaxspec.studies.predict.figures:prediction_figure"
    ),
)
