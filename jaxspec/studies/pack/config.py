"""Settings of `jaxspec pack`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.common import CommonConfig
from jaxspec.settings.draft_kinds import PackedKnobSettings, knobs_of_other_schemes, packed_knobs
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, SCHEME_FACTS, PackScheme, names_that
from jaxspec.studies.study import Out, Study, checked_later

#: How the values that a draft keeps are chosen.
Importance = Literal["auto", "wanda", "magnitude"]


def _scheme_help() -> str:
    changing = names_that(lambda facts: facts.packs and not facts.lossless)
    return f"How tensors are coded; not lossless: {', '.join(changing)}."


_TEXT = ("text", "calibration_windows", "window_tokens", "seed")


#: Settings of how values are ranked.
RANKING = ("importance", *_TEXT)


def _no_draft(config: PackConfig) -> str | None:
    return None if SCHEME_FACTS[config.scheme].has_draft else f"scheme {config.scheme} has no draft"


def _no_ranks(config: PackConfig) -> str | None:
    prunes = SCHEME_FACTS[config.scheme].prunes
    return _no_draft(config) or (None if prunes else f"scheme {config.scheme} prunes nothing")


def _no_text(config: PackConfig) -> str | None:
    return _no_ranks(config) or ("importance magnitude reads no text" if config.importance == "magnitude" else None)


@dataclasses.dataclass(frozen=True)
class PackConfig(PackedKnobSettings, Settings, stated_beside=__file__):
    """Settings of `jaxspec pack`.

    Attributes:
        model: "embedded", a safetensors file, or a folder with a checkpoint.
        one field for each knob of weights: of every matrix, and every layer's experts, of the draft.
        knobs: result.json of a tuning run, whose knobs are taken instead, matrix by matrix.
        importance: wanda runs the network on text; magnitude does not; auto takes wanda where the network is known. Of schemes
            that prune.
        text, calibration_windows, window_tokens, seed: what wanda is measured on.
    """

    model: str = same_as(CommonConfig, "model")
    scheme: PackScheme = setting(DEFAULT_SCHEME_NAME, help=_scheme_help, objects="scheme")
    knobs: str | None = setting(None)
    importance: Importance = setting("auto")
    text: str = setting("stdlib")
    calibration_windows: int = setting(96)
    window_tokens: int = setting(128)
    seed: int = same_as(CommonConfig, "seed")

    unused = (
        lambda: (Unused((*packed_knobs(), "knobs"), _no_draft),),
        Unused(("importance",), _no_ranks),
        knobs_of_other_schemes,
        lambda: (
            Unused(packed_knobs(), lambda config: config.knobs is not None, "knobs takes them from a tuning run"),
        ),
        Unused(_TEXT, _no_text, refused=False),
    )


#: The study that writes a container.
PACK = Study(
    name="pack",
    config=PackConfig,
    run="jaxspec.studies.pack.run:pack_checkpoint",
    figures="jaxspec.studies.pack.figures:figures",
    out=Out(
        "The container.",
        "<name of the checkpoint>.jspk here",
        "Replace a container that is there.",
        names=("-o",),
        check=checked_later,
    ),
    argument="model",
    argument_name="checkpoint",
)
