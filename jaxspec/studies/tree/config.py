"""Settings of `jaxspec tree`, and the names of drafts."""

from __future__ import annotations

import dataclasses
import os
from typing import Literal

from jaxspec.errors import InputError
from jaxspec.settings.base import Unused
from jaxspec.settings.coercion import shown
from jaxspec.settings.common import CommonConfig
from jaxspec.settings.draft import KnobSettings, knobs_of_other_schemes
from jaxspec.settings.fields import setting
from jaxspec.settings.schemes import KNOBS
from jaxspec.suggestions import hint

__all__ = ["DRAFT_NAMES", "Search", "TreeConfig", "check_draft_name"]

#: How trees of drafted tokens grow.
Search = Literal["prior", "width", "depth", "greedy"]

#: Names that stand for a draft wherever one is asked for; directories of a network or a head are the others.
DRAFT_NAMES = ("self", "embedded-head", "embedded-small", "ngram")


def check_draft_name(name: str) -> None:
    """Raise InputError unless a draft is one of `DRAFT_NAMES` or a directory."""
    # `os.path.isdir`, not `Path.is_dir`, which raises on names too long for one.
    if name not in DRAFT_NAMES and not os.path.isdir(name):
        raise InputError(
            f"draft {shown(name)} is unknown{hint(name, DRAFT_NAMES)}, or a directory of a network or head"
        )


@dataclasses.dataclass(frozen=True)
class TreeConfig(KnobSettings, CommonConfig):
    """`jaxspec tree`."""

    draft: str = setting(
        "self",
        "self, ngram, embedded-head, embedded-small, or a directory of a network or head.",
        check=check_draft_name,
    )
    nodes: int = setting(
        32, "Drafted tokens of the largest tree; verifying it takes one token more.", low=1, high=512, quick=16
    )
    depth: int = setting(8, "Largest depth of a tree, in drafted tokens.", low=1, high=64, quick=6)
    search: Search = setting("prior", "How trees grow.")
    contexts: tuple[int, ...] = setting(
        (128, 512, 2048, 4096, 8192, 16384),
        "Context lengths to decide at, beside --context, separated by commas.",
        low=0,
        high=10_000_000,
    )

    unused = (
        *knobs_of_other_schemes(),
        Unused(
            (*KNOBS, "scheme"),
            lambda config: None if config.draft == "self" else f"draft {config.draft!r} is not a compressed copy",
        ),
    )
