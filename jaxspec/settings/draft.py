"""Settings of the knobs of all schemes, generated from the registry: a knob's default, range and help are stated there.

A scheme that is registered adds those of its knobs, here and to every class that is derived of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.fields import add_field, derived, setting
from jaxspec.settings.knobs import MANTISSA_BITS, KnobSpec
from jaxspec.settings.schemes import KNOBS, OWN_SCHEMES, SCHEME_FACTS, SchemeFacts, all_knobs, scheme_facts

__all__ = [
    "KnobSettings",
    "NetworkKnobSettings",
    "PackedKnobSettings",
    "add_knobs",
    "knob_values",
    "knobs_of_other_schemes",
    "packed_knobs",
]


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
