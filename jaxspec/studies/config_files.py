"""What settings take from a config.json that they name; nothing is loaded for names of the catalog."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxspec.errors import InputError
from jaxspec.settings.schemes import RELEASED

if TYPE_CHECKING:
    from hwmodels.catalog import ConfigReading, DraftHead

__all__ = ["NETWORK", "head_in_file", "kind_in_file", "own_scheme", "reading_of"]

#: Kind of a draft that is a network of its own, as tables call it.
NETWORK = "network"


def reading_of(architecture: Any) -> ConfigReading | None:
    """What a config.json describes; None for names of the catalog, for "own", and for files that cannot be priced.

    Args:
        architecture: catalog name or path; a file that cannot be read is refused where it is priced.
    """
    if not isinstance(architecture, str | Path) or not os.path.exists(architecture):
        return None
    from hwmodels import catalog  # numerics, which only a file needs

    try:
        return catalog.read_config_file(architecture)
    except (NotImplementedError, ValueError):
        return None


def own_scheme(architecture: Any, otherwise: str) -> str:
    """The scheme of a priced network for which none is given: its release's form, where its config.json states one.

    Args:
        architecture: see `reading_of`.
        otherwise: of all other networks.
    """
    reading = reading_of(architecture)
    return otherwise if reading is None or reading.stored is None else RELEASED.name


def head_in_file(name: str) -> DraftHead | None:
    """The draft head that a config.json, or the one of a directory, describes; None: no head, or no file.

    Raises:
        InputError: a vocabulary of its own that is no whole number.
    """
    if not os.path.exists(name):
        return None
    from hwmodels import catalog  # numerics, which only a file needs

    try:
        return catalog.draft_head_in_file(name)
    except catalog.EntryError as error:
        raise InputError(f"draft {name!r}: {error}") from error


def kind_in_file(name: str) -> str:
    """What a draft by name is, as engines call it: the head that a file describes, or `NETWORK`.

    Raises:
        InputError: see `head_in_file`.
    """
    head = head_in_file(name)
    return NETWORK if head is None or head.drafts_as is None else head.drafts_as
