"""The objects of all schemes, loaded from where the registry says they are."""

from __future__ import annotations

import importlib

from jaxspec.compress.schemes.interface import Scheme
from jaxspec.errors import InputError
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, SCHEME_FACTS, SchemeFacts
from jaxspec.suggestions import hint

__all__ = ["DEFAULT_SCHEME", "SCHEMES", "find_scheme"]


def _load(facts: SchemeFacts) -> Scheme:
    module, _, name = facts.place.partition(":")
    return getattr(importlib.import_module(f"jaxspec.compress.schemes.{module}"), name)


#: Every scheme by the name that users give.
SCHEMES: dict[str, Scheme] = {facts.name: _load(facts) for facts in SCHEME_FACTS.values()}

#: What a user gets who names none.
DEFAULT_SCHEME = SCHEMES[DEFAULT_SCHEME_NAME]


def find_scheme(name: str, *, runs: bool = False, packs: bool = False) -> Scheme:
    """A scheme by name.

    Args:
        runs: it must run networks. packs: a container must be able to hold it.
    Raises:
        InputError: an unknown name, or a scheme that cannot do what is asked.
    """
    able = [s.name for s in SCHEME_FACTS.values() if (s.runs or not runs) and (s.packs or not packs)]
    if name not in able:
        why = "" if name not in SCHEMES else ", which can be priced but not " + ("run" if runs else "packed") + " yet"
        raise InputError(f"scheme is {name!r}{why}{hint(name, able)}")
    return SCHEMES[name]
