"""The objects of all schemes, each loaded from where the registry says it is when it is first asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jaxspec.compress.schemes.scheme import Scheme
from jaxspec.errors import InputError
from jaxspec.registries import load_object
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, SCHEME_FACTS, SCHEME_OBJECTS
from jaxspec.suggestions import hint

__all__ = ["DEFAULT_SCHEME", "SCHEMES", "find_scheme"]


class _Schemes(Mapping[str, Scheme]):
    def __getitem__(self, name: str) -> Scheme:
        facts = SCHEME_FACTS[name]
        return SCHEME_OBJECTS[name] if name in SCHEME_OBJECTS else load_object(facts.place)

    def __iter__(self) -> Iterator[str]:
        return iter(SCHEME_FACTS)

    def __len__(self) -> int:
        return len(SCHEME_FACTS)


#: Every scheme by the name that users give.
SCHEMES: Mapping[str, Scheme] = _Schemes()

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
