"""Settings of `jaxspec export`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxspec.settings.base import Settings
from jaxspec.settings.catalog_names import known_device, known_model
from jaxspec.settings.common import CommonConfig
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.studies.study import Out, Study, checked_later

#: Tokens that a model's copy drafts per cycle.
DRAFT_LENGTH = 4

#: Numbers that matrices are written in.
Type = Literal["f16", "bf16", "q8_0", "q4_0", "fp8", "w4a16"]


@dataclasses.dataclass(frozen=True)
class ExportConfig(Settings, stated_beside=__file__):
    """`jaxspec export`."""

    run: str = setting(dataclasses.MISSING, known=known_model)
    format: Literal["gguf", "compressed-tensors"] | None = setting(None)
    target_type: Type | None = setting(None)
    draft_type: Type | None = setting(None)
    draft_length: int | None = setting(None, low=1, high=MAX_DRAFT_LENGTH, unset=str(DRAFT_LENGTH))
    text: str | None = same_as(CommonConfig, "text", default=None)
    prompt_tokens: int | None = same_as(CommonConfig, "prompt_tokens", default=None)
    output_tokens: int | None = same_as(CommonConfig, "output_tokens", default=None)
    configuration: str | None = setting(None)
    device: str | None = setting(None, known=known_device)
    prompts: int | None = setting(None)


#: The study that writes a draft for other engines.
EXPORT = Study(
    name="export",
    config=ExportConfig,
    run="jaxspec.studies.export.run:export_draft",
    out=Out(
        "The directory.",
        "<name of the run>-<configuration> here",
        "Replace an earlier export that is there.",
        names=("-o",),
        check=checked_later,
    ),
    argument="run",
    argument_name="run",
)
