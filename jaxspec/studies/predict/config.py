"""Settings of `jaxspec predict`, which runs no network."""

from __future__ import annotations

import dataclasses

from jaxspec.errors import InputError
from jaxspec.settings.acceptance import ACCEPTANCE_UNUSED, MAX_PREDICTED_LENGTH, AcceptanceSettings
from jaxspec.settings.base import Unused
from jaxspec.settings.catalog_names import catalog_architectures
from jaxspec.settings.common import CommonConfig
from jaxspec.settings.draft import KnobSettings, knobs_of_other_schemes
from jaxspec.settings.experts import POOLS_UNUSED, ExpertSettings
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.parallel import DRAFT_WITHIN_TARGET, ParallelSettings
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, PricedScheme, all_knobs, scheme_facts
from jaxspec.studies.config_files import own_scheme
from jaxspec.studies.study import Plot, Study

_WIDTH_LIMITS = {"low": 0, "high": 64, "above": True, "unset": "the scheme's"}


def _no_network(name: str) -> None:
    if name == "own":
        raise InputError("architecture 'own' needs a network; give a catalog name or a config.json")


def _all_widths_given(config: PredictConfig) -> str | None:
    widths = (config.draft_bits, config.verify_bits, config.draft_kv_bits, config.verify_kv_bits)
    return None if None in widths else "all four widths are given"


def _all_widths_given_and_no_head(config: PredictConfig) -> str | None:
    facts = scheme_facts(config.scheme)
    return None if facts is not None and facts.head else _all_widths_given(config)


@dataclasses.dataclass(frozen=True)
class PredictConfig(ParallelSettings, ExpertSettings, KnobSettings, AcceptanceSettings):
    """`jaxspec predict`."""

    architecture: str = same_as(
        CommonConfig,
        "architecture",
        "Network whose cost is predicted: catalog name, or a Hugging Face config.json.",
        names=catalog_architectures,
    )
    device: tuple[str, ...] = same_as(CommonConfig, "device")
    engine: str | None = same_as(CommonConfig, "engine")
    weight_format: str | None = same_as(CommonConfig, "weight_format")
    batch: int = same_as(CommonConfig, "batch")
    context: int = same_as(CommonConfig, "context")
    prompt_tokens: int = same_as(CommonConfig, "prompt_tokens", "Tokens of a prompt, for the prefill.")
    acceptance: tuple[float, ...] | None = same_as(
        AcceptanceSettings,
        "acceptance",
        unset="measured or published for drafts of that kind, as the first line says",
    )
    acceptance_cycles: int | None = setting(
        None,
        "Cycles over which the acceptance was counted; sets the part of the intervals due to acceptance.",
        low=1,
        high=10**9,
        unset="those of the log, elsewhere not known: intervals then leave this error out",
    )
    scheme: PricedScheme = setting(
        None,
        "Storage scheme of weights and KV; bits are counted on Gaussian weights. released: as the release stores them.",
        unset=f"{DEFAULT_SCHEME_NAME}, or released where a config.json states a quantized form",
        objects="scheme",
    )
    draft_bits: float | None = setting(
        None, "Bits that a draft step reads per weight of the layers; overrides --scheme.", **_WIDTH_LIMITS
    )
    verify_bits: float | None = setting(
        None, "Bits that a verification reads per weight of the layers.", **_WIDTH_LIMITS
    )
    draft_kv_bits: float | None = setting(None, "Bits that a draft step reads per KV element.", **_WIDTH_LIMITS)
    verify_kv_bits: float | None = setting(None, "Bits that a verification reads per KV element.", **_WIDTH_LIMITS)
    max_draft_length: int = setting(
        8, "Longest draft considered, if one acceptance holds for every position.", low=1, high=MAX_PREDICTED_LENGTH
    )

    unused = (
        knobs_of_other_schemes,
        *ACCEPTANCE_UNUSED,
        *POOLS_UNUSED,
        DRAFT_WITHIN_TARGET,
        lambda: (
            Unused(tuple(name for name, spec in all_knobs().items() if spec.per != "head"), _all_widths_given),
            Unused(
                ("scheme", *(name for name, spec in all_knobs().items() if spec.per == "head")),
                _all_widths_given_and_no_head,
            ),
        ),
    )

    def __post_init__(self):
        self.settle("scheme", own_scheme(self.architecture, DEFAULT_SCHEME_NAME))
        super().__post_init__()
        _no_network(self.architecture)


_HELP = """Predict speedup, time, energy and memory; no network runs.

The inputs are the shapes of a network, a device, a storage scheme and an acceptance.

\b
jaxspec predict --device cassandra-npu --acceptance 0.9
jaxspec predict --architecture qwen3-30b-a3b --device elmoe3d-hb8 --scheme elastic --batch 4
jaxspec predict --architecture qwen3-30b-a3b --device elmoe3d-hb8 --scheme elastic --placement by_mode --pool-fits
jaxspec predict --architecture path/to/config.json --device my-chip.toml --scheme q4_0 --plot predict.png

Draft length 0 is autoregressive decoding of the stored format; if it is the fastest, no draft pays.
"""


#: The study that runs no network.
PREDICT = Study(
    name="predict",
    config=PredictConfig,
    first=("weight_prune", "weight_cut_bits"),
    help=_HELP,
    run="jaxspec.studies.predict.run:predict",
    present="jaxspec.studies.predict.view:shown",
    on_processor=True,
    figures="jaxspec.studies.predict.figures:figures",
    plot=Plot(
        "Write a figure: speedups, operators, sensitivities.", "jaxspec.studies.predict.figures:prediction_figure"
    ),
)
