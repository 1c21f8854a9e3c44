"""The registry of drafts: what each kind is called, and where it is made.

A new draft is a file under `speculate/drafts/` and an entry here, or an entry point of a package. Configurations, command
line and help read the entries, so that none of them has to load JAX; `jaxspec.speculate.drafts.make_draft` makes the objects.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from typing import Any, TypeAlias

from jaxspec.errors import InputError
from jaxspec.files import CONTAINER_SUFFIX, GGUF_SUFFIX
from jaxspec.registries import Registry
from jaxspec.settings.catalog_names import PRETRAINED
from jaxspec.settings.coercion import shown
from jaxspec.suggestions import hint

__all__ = [
    "DRAFT_KINDS",
    "KV_OPTION",
    "SELF",
    "DraftKind",
    "check_draft_name",
    "draft_help",
    "draft_names",
    "has_files",
    "no_own_network",
]


#: "module:function", or the function.
Place: TypeAlias = str | Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class DraftKind:
    """A kind of draft.

    Attributes:
        place: "module:function", or the function: from a name and the loaded target to the draft, ready to run. In the table
            below, modules are in `jaxspec.speculate.drafts`.
        check: likewise, from a name and the target's shape, and its name or None, to notes: raises InputError for what can be
            known without reading weights.
        names: what users call its members that need no directory.
        directory: what a directory of one holds, in words; empty where there is none.
        model_type: of a directory's config.json; None for any that no other kind has.
        stored_as: scheme that says in how many bits the draft's matrices are read; empty: 16.
        calibrated: whether it is made of the target on calibration text, which a run does itself.
        suffix: of files that hold one; empty where none does.
        footprint: likewise "module:function", from a name and the target's to the bits that both read, where files say so.
        knobs: likewise "module:function", from a name and the target's shape to the knobs of a compressed copy of the target
            that its files hold; `place` is then told `sharing`, the sequences that share a pool of experts. Empty: it is none.
        takes_in: places that it processes anew in a cycle beside those that the cycle may commit; None: it does no such thing.
        search: likewise "module:function", from a name, the loaded target and calibration text to arrays that `place` gets as a
            third argument; empty: nothing of the draft is chosen on text.
    """

    place: Place
    names: tuple[str, ...]
    check: Place = ""
    directory: str = ""
    model_type: str | None = None
    stored_as: str = ""
    calibrated: bool = False
    suffix: str = ""
    footprint: Place = ""
    knobs: Place = ""
    takes_in: int | None = None
    search: Place = ""


#: Name of the target's compressed copy.
SELF = "self"

#: Our own kinds, in the order of the help.
_ALL = (
    DraftKind("self_draft:self_draft", (SELF,), calibrated=True),
    DraftKind("ngram_draft:ngram_draft", ("ngram",)),
    DraftKind("lookahead_draft:lookahead_draft", ("lookahead",), check="lookahead_draft:check_lookahead"),
    DraftKind("quantized_draft:quantized_draft", ("q4",), stored_as="q4_0"),
    DraftKind(
        "head_draft:load_head_draft",
        ("embedded-head",),
        check="head_draft:check_head_draft",
        directory="head",
        model_type="jaxspec_draft_head",
        takes_in=0,
    ),
    DraftKind("head_draft:own_head_draft", ("mtp",), check="head_draft:check_head_draft", takes_in=0),
    DraftKind(
        "medusa_draft:medusa_draft",
        (),
        check="medusa_draft:check_medusa",
        directory="set of Medusa heads",
        model_type="medusa",
        takes_in=0,
    ),
    DraftKind("medusa_draft:medusa_draft", ("medusa",), check="medusa_draft:check_medusa", takes_in=0),
    DraftKind("layer_skip_draft:layer_skip_draft", ("layer-skip",), search="layer_skip_draft:search_layer_skip"),
    DraftKind(
        "sparse_kv_draft:sparse_kv_draft",
        ("sparse-kv-50", "sparse-kv-25", "sparse-kv-10"),
        check="sparse_kv_draft:check_sparse_kv",
    ),
    DraftKind(
        "network_draft:load_network_draft",
        ("embedded-small",),
        check="network_draft:check_network_draft",
        directory="network",
        takes_in=1,  # the old root too
    ),
    DraftKind(
        "container_draft:load_container_draft",
        (),
        check="container_draft:check_container_draft",
        suffix=CONTAINER_SUFFIX,
        footprint="container_draft:container_footprint",
        knobs="container_draft:container_knobs",
    ),
)


def _in_drafts(kind: DraftKind) -> DraftKind:
    """The kind with whole names of modules."""
    places = {part: getattr(kind, part) for part in ("place", "check", "footprint", "knobs", "search")}
    return dataclasses.replace(kind, **{part: f"jaxspec.speculate.drafts.{at}" for part, at in places.items() if at})


def _accept(name: str, given: Any) -> DraftKind:
    """The kind, or the function that makes its draft."""
    kind = given if isinstance(given, DraftKind) else DraftKind(given, (name,))
    if not isinstance(given, DraftKind) and not callable(given):
        raise ValueError(
            f"draft {name!r} is of type {type(given).__name__}; give the function that makes it, or a DraftKind"
        )
    taken = {one for other in DRAFT_KINDS.values() if other.names[:1] != (name,) for one in other.names}
    if name not in kind.names or taken & set(kind.names):
        raise ValueError(
            f"draft {name!r} has the names {', '.join(kind.names) or 'none'}; its own must be among them, "
            f"and no other draft may have one"
        )
    return kind


#: All kinds, by their first name, what a file of one ends with, or what a directory of one holds.
DRAFT_KINDS: Registry[DraftKind] = Registry(
    "draft",
    {next(filter(None, (*kind.names, kind.suffix, kind.directory))): _in_drafts(kind) for kind in _ALL},
    _accept,
)


def draft_names() -> tuple[str, ...]:
    """Names that stand for a draft wherever one is asked for; directories are the others."""
    return tuple(name for kind in DRAFT_KINDS.values() for name in kind.names)


_DIRECTORIES = " or ".join(kind.directory for kind in reversed(_ALL) if kind.directory)

_PLACES = f"a directory of a {_DIRECTORIES}, a GGUF file, or a container ({CONTAINER_SUFFIX}), whose draft is read"


def draft_help() -> str:
    """What may be given, for the command line."""
    return f"{', '.join(draft_names())}, {_PLACES}."


#: Option of a container that holds the knobs of its draft's KV cache.
KV_OPTION = "kv_knobs"


def check_draft_name(name: str) -> None:
    """Raise InputError unless a draft is one of `draft_names`, a directory or a file of a kind that has files."""
    # `os.path.isdir`, not `Path.is_dir`, which raises on names too long for one.
    is_file = name.endswith((CONTAINER_SUFFIX, GGUF_SUFFIX)) and os.path.isfile(name)
    if name not in (*draft_names(), *PRETRAINED) and not os.path.isdir(name) and not is_file:
        raise InputError(f"draft {shown(name)} is unknown{hint(name, draft_names())}, {_PLACES}")


def has_files(name: str) -> bool:
    """Whether a draft is read from files: a directory, or a shipped one."""
    return not any(name in kind.names for kind in DRAFT_KINDS.values() if not kind.directory)


def no_own_network(name: str) -> str | None:
    """Why a draft by name has no network or head of its own, in words; None where files may hold one."""
    return None if has_files(name) else f"draft {name!r} is a part of the target, or has no weights"
