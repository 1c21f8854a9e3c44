"""Settings of `jaxspec export`."""

from __future__ import annotations

import dataclasses

from jaxspec.settings.base import Settings
from jaxspec.settings.fields import setting

__all__ = ["ExportConfig"]


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
