"""Settings of `jaxspec export`."""

from __future__ import annotations

import dataclasses
from typing import Literal

from jaxspec.settings.base import Settings
from jaxspec.settings.catalog_names import known_device, known_model
from jaxspec.settings.common import CommonConfig
from jaxspec.settings.fields import same_as, setting
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.studies.study import Out, Study, checked_later, help_beside

#: Tokens that a model's copy drafts per cycle.
DRAFT_LENGTH = 4

#: Numbers that matrices are written in.
Type = Literal["f16", "bf16", "q8_0", "q4_0", "fp8", "w4a16"]


@dataclasses.dataclass(frozen=True)
class ExportConfig(Settings):
    """`jaxspec export`."""

    run: str = setting(
        dataclasses.MISSING,
        "Run directory of `jaxspec tune` or `jaxspec evaluate`, finished, whose draft is written; or a model (a name, a "
        "folder, a GGUF file or a container), which is written in few bits, and in fewer as its draft.",
        known=known_model,
    )
    format: Literal["gguf", "compressed-tensors"] | None = setting(
        None, "Of a model: files of llama.cpp, or folders of vLLM, SGLang and transformers.", unset="gguf"
    )
    target_type: Type | None = setting(
        None,
        "Of a model: numbers of the target's matrices; f16, bf16, q8_0 or q4_0 as gguf, fp8 or w4a16 as compressed-tensors.",
        unset="q8_0 or fp8",
    )
    draft_type: Type | None = setting(
        None, "Of a model: numbers of the draft's matrices, likewise.", unset="q4_0 or w4a16"
    )
    draft_length: int | None = setting(
        None, "Of a model: tokens drafted per cycle.", low=1, high=MAX_DRAFT_LENGTH, unset=str(DRAFT_LENGTH)
    )
    text: str | None = same_as(
        CommonConfig,
        "text",
        "Of a model: held-out prompts are cut from its second half; as for jaxspec tune.",
        default=None,
        unset="stdlib",
    )
    prompt_tokens: int | None = same_as(
        CommonConfig, "prompt_tokens", "Of a model: tokens of each prompt.", default=None, unset="128"
    )
    output_tokens: int | None = same_as(
        CommonConfig, "output_tokens", "Of a model: tokens decoded per prompt.", default=None, unset="64"
    )
    configuration: str | None = setting(
        None,
        "Configuration of the run: default, grid, uniform or tuned.",
        unset="tuned, or given for a run of evaluate",
    )
    device: str | None = setting(
        None,
        "Device whose configuration is taken, where the run has several; of a model, the one whose speed is predicted.",
        unset="the run's first, or rtx-4090",
        known=known_device,
    )
    prompts: int | None = setting(
        None,
        "Held-out prompts to decode as engines run the draft, with its own KV cache; 0: none.",
        low=0,
        high=100_000,
        unset="all that the run decoded, or 24",
    )


#: The study that writes a draft for other engines.
EXPORT = Study(
    name="export",
    config=ExportConfig,
    help=help_beside(__file__),
    run="jaxspec.studies.export.run:export_draft",
    present="jaxspec.studies.export.view:shown",
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
