"""The registry of drafts: what each kind is called, and where it is made.

A new draft is a file under `speculate/drafts/` and an entry of `draft_kinds.toml`, or an entry point of a package.
Configurations, command line and help read the entries, so that none of them has to load JAX;
`jaxspec.speculate.drafts.make_draft` makes the objects.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from jaxspec.errors import InputError, hint
from jaxspec.partial_files import CONTAINER_SUFFIX, GGUF_SUFFIX, read_toml_beside
from jaxspec.registries import Registry
from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.catalog_names import PRETRAINED
from jaxspec.settings.coercion import shown
from jaxspec.settings.fields import add_field, derived, setting
from jaxspec.settings.knobs import MANTISSA_BITS, KnobSpec
from jaxspec.settings.schemes import KNOBS, OWN_SCHEMES, SCHEME_FACTS, SchemeFacts, all_knobs, scheme_facts

__all__ = [
    "DRAFT_KINDS",
    "KV_OPTION",
    "SELF",
    "DraftKind",
    "KnobSettings",
    "NetworkKnobSettings",
    "PackedKnobSettings",
    "add_knobs",
    "check_draft_name",
    "draft_help",
    "draft_names",
    "has_files",
    "knob_values",
    "knobs_of_other_schemes",
    "no_own_network",
    "packed_knobs",
]

# Settings of the knobs of all schemes, generated from the registry: a knob's default, range and help are stated there.

#: Types that a network may be stored in, in words: as many bits as each has can be cut.
_MANTISSAS = ", ".join(f"{dtype} has {bits}" for dtype, bits in MANTISSA_BITS.items())


def _field(spec: KnobSpec, *, hard: bool = False, any_dtype: bool = False) -> tuple[str, type, Any]:
    """The field of a knob.

    Args:
        hard: knobs that a hard configuration rounds are whole numbers.
        any_dtype: of a network in a file, which may be stored in any type: its own range is checked once the type is known
            (see `check_range`). Otherwise of networks that are stored in bfloat16.
    """
    kind, help_text = int if hard and spec.whole else float, spec.help
    if any_dtype and spec.cut_of is not None:
        help_text, spec = f"{help_text.rstrip('.')} ({_MANTISSAS}).", spec.of_dtype(_LONGEST)
    return spec.name, kind, setting(kind(spec.default), help_text, low=spec.low, high=spec.high)


def _settings(name: str, specs: Iterable[KnobSpec], **form: bool) -> Any:
    """A configuration with one field per knob of our own schemes."""
    complete = classmethod(lambda _: len(SCHEME_FACTS))
    namespace = {"__doc__": "One field for each knob.", "__module__": __name__, "complete": complete}
    namespace["heading"] = "Knobs of the draft"
    fields = [_field(spec, **form) for spec in specs]
    return dataclasses.make_dataclass(name, fields, bases=(Settings,), frozen=True, namespace=namespace)


#: The type whose mantissa is the longest.
_LONGEST = max(MANTISSA_BITS, key=lambda dtype: MANTISSA_BITS[dtype])

#: One field for each knob of any scheme, the same for the whole network; of architectures, which are priced in bfloat16.
KnobSettings = _settings("KnobSettings", KNOBS.values())

#: The same of a network in a file.
NetworkKnobSettings = _settings("NetworkKnobSettings", KNOBS.values(), any_dtype=True)


def _packed(schemes: Iterable[SchemeFacts]) -> dict[str, KnobSpec]:
    return {spec.name: spec for facts in schemes if facts.packs for spec in facts.knob_specs if spec.per != "layer"}


def packed_knobs() -> tuple[str, ...]:
    """Names of the knobs of weights, the LM head's and pools of experts among them, of schemes that a container can hold."""
    packed = _packed(SCHEME_FACTS.values())
    return tuple(name for name in all_knobs() if name in packed)


#: One field for each of them, as a hard draft has it.
PackedKnobSettings = _settings(
    "PackedKnobSettings",
    [spec for name, spec in KNOBS.items() if name in _packed(OWN_SCHEMES)],
    hard=True,
    any_dtype=True,
)


def add_knobs(facts: SchemeFacts) -> None:
    """Give all settings the knobs of a scheme that they lack.

    Raises:
        ValueError: a knob has the name of another setting, or one that no setting can have.
    """
    specs = {spec.name: spec for spec in facts.knob_specs}
    of = ((KnobSettings, specs, {}), (NetworkKnobSettings, specs, {"any_dtype": True}))
    of = (*of, (PackedKnobSettings, _packed([facts]), {"hard": True, "any_dtype": True}))
    known = lambda kind: {field.name for field in dataclasses.fields(kind)}
    missing = [(kind, specs[name], form) for kind, wanted, form in of for name in wanted.keys() - known(kind)]
    for kind, spec, _ in missing:
        if not spec.name.isidentifier() or any(hasattr(one, spec.name) for one in (kind, *derived(kind))):
            raise ValueError(
                f"knob {spec.name!r} has the name of another setting, or one that none can have; rename it"
            )
    for kind, spec, form in missing:
        add_field(kind, *_field(spec, **form))


def knob_values(config: Any) -> dict[str, float]:
    """The knobs of a configuration's own scheme."""
    facts = scheme_facts(config.scheme)
    assert facts is not None  # schemes are checked with the other settings
    return {spec.name: getattr(config, spec.name) for spec in facts.knob_specs}


def _lacks(name: str, config: Any) -> str | None:
    facts = scheme_facts(config.scheme)
    if facts is None or any(spec.name == name for spec in facts.knob_specs):
        return None
    return f"scheme {config.scheme} has no such knob" if facts.knob_specs else f"scheme {config.scheme} has no knobs"


def knobs_of_other_schemes() -> tuple[Unused, ...]:
    """A rule for each knob: it is refused where the scheme does not have it."""
    return tuple(Unused((name,), lambda config, name=name: _lacks(name, config)) for name in all_knobs())


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


def _own(*, names: list[str], **facts: Any) -> DraftKind:
    """A kind of `draft_kinds.toml`."""
    places: dict[str, Any] = {part: f"jaxspec.speculate.drafts.{facts[part]}" for part in _PLACE_KEYS if part in facts}
    return DraftKind(names=tuple(names), **facts | places)


#: Keys that name functions.
_PLACE_KEYS = ("place", "check", "footprint", "knobs", "search")

#: Our own kinds, by their first name, what a file of one ends with, or what a directory of one holds.
_ALL = {name: _own(**facts) for name, facts in read_toml_beside(__file__, "draft_kinds.toml").items()}


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


#: All kinds; those of users by their name.
DRAFT_KINDS: Registry[DraftKind] = Registry("draft", _ALL, _accept)


def draft_names() -> tuple[str, ...]:
    """Names that stand for a draft wherever one is asked for; directories are the others."""
    return tuple(name for kind in DRAFT_KINDS.values() for name in kind.names)


_DIRECTORIES = " or ".join(kind.directory for kind in reversed(_ALL.values()) if kind.directory)

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
