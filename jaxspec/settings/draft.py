"""Settings of the knobs of all schemes, generated from the registry: a knob's default, range and help are stated there."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxspec.settings.base import Settings, Unused
from jaxspec.settings.fields import setting
from jaxspec.settings.knobs import MANTISSA_BITS, KnobSpec
from jaxspec.settings.schemes import KNOBS, SCHEME_FACTS, scheme_facts

__all__ = [
    "PACKED_KNOBS",
    "KnobSettings",
    "NetworkKnobSettings",
    "PackedKnobSettings",
    "knob_values",
    "knobs_of_other_schemes",
]


#: Types that a network may be stored in, in words: as many bits as each has can be cut.
_MANTISSAS = ", ".join(f"{dtype} has {bits}" for dtype, bits in MANTISSA_BITS.items())


def _settings(name: str, specs: list[KnobSpec], *, hard: bool = False, any_dtype: bool = False) -> Any:
    """A configuration with one field per knob.

    Args:
        hard: knobs that a hard configuration rounds are whole numbers.
        any_dtype: of a network in a file, which may be stored in any type: its own range is checked once the type is known
            (see `check_range`). Otherwise of networks that are stored in bfloat16.
    """

    def field(spec: KnobSpec) -> tuple[str, type, Any]:
        kind, told = int if hard and spec.whole else float, spec.help
        if any_dtype and spec.cut_of is not None:
            told, spec = f"{told.rstrip('.')} ({_MANTISSAS}).", spec.of_dtype(_LONGEST)
        return spec.name, kind, setting(kind(spec.default), told, low=spec.low, high=spec.high)

    namespace = {"__doc__": "One field for each knob.", "__module__": __name__, "heading": "Knobs of the draft"}
    return dataclasses.make_dataclass(name, map(field, specs), bases=(Settings,), frozen=True, namespace=namespace)


#: The type whose mantissa is the longest.
_LONGEST = max(MANTISSA_BITS, key=lambda dtype: MANTISSA_BITS[dtype])

#: One field for each knob of any scheme, the same for the whole network; of architectures, which are priced in bfloat16.
KnobSettings = _settings("KnobSettings", list(KNOBS.values()))

#: The same of a network in a file.
NetworkKnobSettings = _settings("NetworkKnobSettings", list(KNOBS.values()), any_dtype=True)

#: Names of the knobs of weights, the LM head's and pools of experts among them, of the schemes that a container can hold.
PACKED_KNOBS = tuple(
    name
    for name, spec in KNOBS.items()
    if spec.per != "layer" and any(facts.packs for facts in SCHEME_FACTS.values() if spec in facts.knob_specs)
)

#: One field for each of them, as a hard draft has it.
PackedKnobSettings = _settings("PackedKnobSettings", [KNOBS[name] for name in PACKED_KNOBS], hard=True, any_dtype=True)


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


def knobs_of_other_schemes(names: tuple[str, ...] = tuple(KNOBS)) -> tuple[Unused, ...]:
    """A rule for each of some knobs: it is refused where the scheme does not have it."""
    return tuple(Unused((name,), lambda config, name=name: _lacks(name, config)) for name in names)
