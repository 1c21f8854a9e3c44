"""Settings of `jaxspec export`."""

from __future__ import annotations

import dataclasses

from jaxspec.settings.base import Settings
from jaxspec.settings.fields import setting
from jaxspec.studies.study import Out, Study, checked_later


@dataclasses.dataclass(frozen=True)
class ExportConfig(Settings):
    """`jaxspec export`."""

    run: str = setting(dataclasses.MISSING, "Run directory of `jaxspec tune` or `jaxspec evaluate`, finished.")
    configuration: str | None = setting(
        None,
        "Configuration of the run: default, grid, uniform or tuned.",
        unset="tuned, or given for a run of evaluate",
    )
    device: str | None = setting(
        None, "Device whose configuration is taken, where the run has several.", unset="the run's first"
    )
    prompts: int | None = setting(
        None,
        "Held-out prompts to decode as engines run the draft, with its own KV cache; 0: none.",
        low=0,
        high=100_000,
        unset="all that the run decoded",
    )


_HELP = """Export the draft of RUN as a Hugging Face directory.

RUN is a finished run of tune or evaluate.

\b
jaxspec export runs/tune-0123456789ab -o draft              the tuned draft of the first device
jaxspec export runs/tune-0123456789ab -o draft --device jetson-agx-orin --configuration grid

Where the run's scheme rounds the target (cassandra2, mxint8, any-precision and others), that network is written as well,
into the folder target in the directory: the draft belongs to it, not to the checkpoint.

transformers, vLLM and SGLang open it as the draft of the run's target, llama.cpp after its own conversion. README.md in
the directory gives the flags for each engine, with the tuned number of drafted tokens. The acceptance carries over, the
predicted speed does not, because these engines read all bits of every weight.
"""


#: The study that writes a draft for other engines.
EXPORT = Study(
    name="export",
    config=ExportConfig,
    help=_HELP,
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
