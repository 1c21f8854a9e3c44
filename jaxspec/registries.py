"""`register`: a scheme, a draft, a device, a command, ... of the user's own, beside those that installed packages bring.

See docs/decisions/0121-open-registries.md.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jaxspec.errors import InputError, hint

__all__ = [
    "KINDS",
    "Registry",
    "entry_names",
    "known_names",
    "lacking",
    "load_object",
    "name_of",
    "register",
    "registry_of",
    "table_of",
    "tell_by",
]


def _without_jax(name: str) -> None:
    """Load a module of `hwmodels` without its package, which would load JAX."""
    if name not in sys.modules:
        package = importlib.util.find_spec("hwmodels")
        assert package is not None
        file = Path(str(package.origin)).with_name("registry.py")
        spec: Any = importlib.util.spec_from_file_location(name, file)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])


_without_jax("hwmodels.registry")

from hwmodels.registry import KINDS as KNOWN_KINDS  # noqa: E402
from hwmodels.registry import REGISTRIES, Registry, entry_names, lacking, load_object, tell_by  # noqa: E402

#: Kind -> the module that has its registry.
KINDS = {
    "scheme": "jaxspec.settings.schemes",
    "codec": "jaxspec.formats.container.opened",
    "draft": "jaxspec.settings.draft_kinds",
    "study": "jaxspec.studies.study",
    "unit": "hwmodels.catalog.units",
    "placement": "hwmodels.memory.placement.registry",
    "device": "hwmodels.catalog.loader",
    "architecture": "hwmodels.catalog.loader",
    "engine": "hwmodels.catalog.loader",
    "family": "hwmodels.networks.families",
}
KNOWN_KINDS.update(KINDS)


def known_names(kind: str, own: Iterable[str]) -> tuple[str, ...]:
    """Names of a kind, of our own members and the others, without loading what makes its registry."""
    registry = REGISTRIES.get(kind)
    return tuple(dict.fromkeys([*own, *entry_names(kind)] if registry is None else registry.names()))


def registry_of(kind: str) -> Registry[Any]:
    """The members of a kind.

    Raises:
        InputError: there is no such kind.
    """
    if kind not in KINDS:
        raise InputError(f"kind is {kind!r}{hint(kind, KINDS)}")
    importlib.import_module(KINDS[kind])
    return REGISTRIES[kind]


def register(kind: str, member: Any, name: str | None = None) -> str:
    """Add an object of your own, which commands, their help, files of settings and devices then know by its name.

    An entry point of group "jaxspec.<kind>" does the same for whoever installs a package.

    Args:
        kind: "scheme", "draft", "unit", "device", "engine", "study", "architecture", "placement", "codec" or "family".
        member: what an object of that kind is: see the page on extending.
        name: by which it is known; its own unless given.
    Returns:
        The name.
    Raises:
        InputError: no such kind, a name that is taken, or another object than a member is.
    """
    registry = registry_of(kind)
    own = getattr(member, "name", None) or next(iter(getattr(member, "names", ())), None)
    if name is None and not isinstance(own, str):
        raise InputError(f"{kind} came without a name; give one: register({kind!r}, ..., name=...)")
    name = str(own) if name is None else name
    try:
        registry[name] = member
    except ValueError as error:
        raise InputError(str(error)) from error
    return name


def name_of(kind: str, given: Any) -> str:
    """The name of an object of the user's own, or of its table in a file of settings, which is registered by it.

    Raises:
        InputError: no object of this kind, or of a device or architecture one that no file can say.
    """
    if kind not in ("device", "architecture"):
        member, registry = getattr(given, kind, given), registry_of(kind)  # what js.scheme returns has its scheme
        facts = getattr(member, "facts", None)
        if facts is not None and registry.get(facts.name) is facts and not registry.is_registered(facts.name):
            return facts.name
        return register(kind, member)
    from hwmodels.catalog import own_name

    try:
        return own_name(kind, given)
    except ValueError as error:
        raise InputError(str(error)) from error


def table_of(kind: str, name: str) -> Any:
    """What a file of settings has in place of a name that this program alone knows: all of it; other names are themselves."""
    registry = REGISTRIES.get(kind)
    if kind not in ("device", "architecture") or registry is None or not registry.is_registered(name):
        return name
    from hwmodels.catalog import document_of

    try:
        return {"name": name, **document_of(kind, name)}
    except ValueError as error:
        raise InputError(str(error)) from error
