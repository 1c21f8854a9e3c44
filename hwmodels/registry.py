"""Registries that stay open: members of these packages, of installed packages by entry point, and of the program at hand.

The group of an entry point is "jaxspec." and a kind, as in "jaxspec.device", and its name is that of the member. Entry points
are read once, when a registry is first asked for what it does not have itself, and each is loaded when it is asked for. One
that fails is left out, which a line says, and everything else goes on.

Nothing here loads more than the standard library: `jaxspec` reads it before it loads JAX.
"""

from __future__ import annotations

import functools
import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["REGISTRIES", "Registry", "entry_names", "lacking", "load_object", "tell_by"]

T = TypeVar("T")

#: Kind -> its registry, of those whose module was imported.
REGISTRIES: dict[str, Registry[Any]] = {}

#: All kinds, also of registries whose module was not imported; none where `jaxspec` is not at hand.
KINDS: set[str] = set()

#: What the group of an entry point begins with.
GROUPS = "jaxspec."

#: File names, columns, keys of TOML and options are made of names.
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")

_tell: Callable[[str], object] = functools.partial(warnings.warn, stacklevel=2)


def tell_by(tell: Callable[[str], object]) -> None:
    """Report packages that cannot be used by another function than `warnings.warn`."""
    global _tell
    _tell = tell


@functools.cache
def _entry_points() -> dict[str, list[EntryPoint]]:
    """Kind -> entry points of installed packages, by name and package."""
    from difflib import get_close_matches
    from importlib.metadata import entry_points

    entries = entry_points()
    groups = [group for group in entries.groups if group.startswith(GROUPS)]
    for group in groups:
        if KINDS and (kind := group.removeprefix(GROUPS)) not in KINDS:
            package, near = _package(next(iter(entries.select(group=group)))), get_close_matches(kind, KINDS, 1)
            words = f"did you mean {GROUPS}{near[0]}?" if near else f"kinds are {', '.join(sorted(KINDS))}"
            _tell(f"entry points of group {group!r} of {package} are left out: {words}")
    in_order = lambda one: (one.name, _package(one))
    return {group.removeprefix(GROUPS): sorted(entries.select(group=group), key=in_order) for group in groups}


def entry_names(kind: str) -> list[str]:
    """Names of the entry points of a kind, without loading one."""
    return [entry.name for entry in _entry_points().get(kind, ())]


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else f"package {entry.dist.name} {entry.dist.version}"


def load_object(place: Any) -> Any:
    """The object behind "module:name"; what is no text is the object itself."""
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    return functools.reduce(getattr, name.split("."), importlib.import_module(module))


def _load(entry: EntryPoint) -> Any:
    """Its object; of "package:file.toml" the file, which lies in the package."""
    module, _, name = entry.value.partition(":")
    if not name.endswith(".toml"):
        return load_object(entry.value)
    from importlib.resources import files

    return files(module) / name


def lacking(member: Any, members: str) -> str:
    """Members, separated by spaces, that an object lacks, in words; "" where it has all."""
    missing = [name for name in members.split() if not hasattr(member, name)]
    return f"{type(member).__name__} has no {', '.join(missing)}" if missing else ""


class Registry(MutableMapping[str, T], Generic[T]):
    """Members of one kind by name, in the order in which they came.

    Attributes:
        kind: in words, as `register` and the group of entry points name it.
    """

    def __init__(self, kind: str, members: Mapping[str, T], accept: Callable[[str, Any], T], taken: Iterable[str] = ()):
        """Args: members: of these packages. accept: from name and object to the member; raises ValueError in words.
        taken: further names that no member may have."""
        self.kind, self._accept = kind, accept
        self._members, self._own = dict(members), frozenset([*members, *taken])
        self._waiting: dict[str, EntryPoint] | None = None
        self._registered: set[str] = set()
        REGISTRIES[kind] = self

    def __getitem__(self, name: str) -> T:
        if name not in self._members and name in self._entries():
            self._take(name)
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        for name in list(self._entries()):
            self._take(name)
        return iter(tuple(self._members))

    def __len__(self) -> int:
        return len(tuple(iter(self)))

    def __setitem__(self, name: str, member: Any) -> None:
        """Add an object under a name; what was registered so before is replaced.

        Raises:
            ValueError: a name that is none or is taken, or no object of this kind.
        """
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ValueError(f"{self.kind} is called {name!r}; a name has small letters, digits, '.', '_' and '-'")
        if (name in self or name in self._own) and name not in self._registered:
            raise ValueError(f"the name of {self.kind} {name!r} is taken; give another name")
        self._members[name] = self._accept(name, member)
        self._registered.add(name)

    def __delitem__(self, name: str) -> None:
        """Forget what was registered. Raises KeyError: it was not."""
        self._registered.remove(name)
        del self._members[name]

    def packages(self) -> dict[str, str]:
        """Names of members that no one has asked for yet, and the packages that have them; loads none."""
        return {name: _package(entry) for name, entry in self._entries().items()}

    def names(self) -> list[str]:
        """Names of all members, those among them that cannot be loaded; loads none."""
        return [*self._members, *self._entries()]

    def is_registered(self, name: str) -> bool:
        """Whether the program at hand registered it, so that no other program knows it."""
        return name in self._registered

    def _entries(self) -> dict[str, EntryPoint]:
        if self._waiting is None:
            self._waiting = {}
            for entry in _entry_points().get(self.kind, ()):
                if entry.name in self._own or entry.name in self._waiting:
                    other = self._waiting.get(entry.name)
                    self._leave_out(entry, f"the name is taken{f' by {_package(other)}' if other else ''}")
                elif not _NAME.fullmatch(entry.name):
                    self._leave_out(entry, "a name has small letters, digits, '.', '_' and '-'")
                else:
                    self._waiting[entry.name] = entry
        return self._waiting

    def _take(self, name: str) -> None:
        entry = self._entries().pop(name, None)
        if entry is None:  # by another one, while this was loaded
            return
        try:
            self._members[name] = self._accept(name, _load(entry))
        except (Exception, SystemExit) as error:  # whatever a module of somebody else does
            words = " ".join(str(error).split())
            self._leave_out(entry, words if type(error) is ValueError else f"{type(error).__name__}: {words}")

    def _leave_out(self, entry: EntryPoint, why: str) -> None:
        _tell(f"{self.kind} {entry.name!r} of {_package(entry)} is left out ({why}); update or uninstall the package")
