"""What the processor that programs run on can do."""

from __future__ import annotations

import functools
import pathlib

__all__ = ["processor_features"]

#: Where Linux says it.
_PROCESSOR = pathlib.Path("/proc/cpuinfo")


@functools.cache
def processor_features() -> frozenset[str]:
    """Names of features, as Linux prints them; empty where nothing tells."""
    try:
        return frozenset(_PROCESSOR.read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError):
        return frozenset()
