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
        "Held-out prompts decoded with the draft as engines run it, with a KV cache of its own; 0: none.",
        low=0,
        high=100_000,
        unset="as many as the run decoded",
    )
