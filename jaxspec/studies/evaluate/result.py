"""Result of `jaxspec evaluate` for one device."""

from __future__ import annotations

import dataclasses

from jaxspec.results.network_results import ConfigurationsResult

__all__ = ["EvaluateResult"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateResult(ConfigurationsResult):
    """What one draft reached: the configuration "given"."""
