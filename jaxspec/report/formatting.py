"""Numbers as a person reads them: scaled units, few digits, "n/a" for what is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from hwmodels import catalog
from hwmodels.numerics.units import GB, GIGA, KB, MB, MEGA, MICRO, MILLI, NANO, TB, TERA
from jaxspec.results.network_results import Configuration, ConfigurationsResult, MeasuredResult
from jaxspec.results.records import finite, significant

__all__ = [
    "CONFIGURATIONS",
    "architecture_title",
    "bytes_in_words",
    "configurations",
    "device_name",
    "device_title",
    "fixed",
    "fixed_or_small",
    "in_order",
    "knobs_in_words",
    "milliseconds",
    "model_title",
    "provenance",
    "quantity",
    "scale_of",
    "three_digits",
    "times",
]

# Names that a person reads: of networks, architectures, devices and configurations, in their order.


#: Order of configurations; others that a result holds follow.
CONFIGURATIONS = ("default", "j_grid", "grid", "uniform", "tuned")


def in_order(names: Iterable[str], order: Iterable[str]) -> list[str]:
    """`names` in a given order, those that the order does not know last and as they came."""
    names, order = list(names), list(order)
    return [name for name in order if name in names] + [name for name in names if name not in order]


def configurations(result: ConfigurationsResult) -> dict[str, Configuration]:
    """The configurations of a result, in the order of `CONFIGURATIONS`."""
    present = {name: each for name, each in result.configurations.items() if each is not None}
    return {name: present[name] for name in in_order(present, CONFIGURATIONS)}


def architecture_title(result: Any) -> str:
    """What a person calls the priced architecture."""
    name = result.architecture or "unnamed architecture"
    return catalog.architecture_title(name) if name in catalog.architecture_names() else name


def device_title(result: Any) -> str:
    """What a person calls the device."""
    name = device_name(result)
    if title := getattr(result, "device_title", None):
        return str(title)
    return catalog.device_title(name) if name in catalog.device_names() else name


def device_name(result: Any) -> str:
    """The device as the result names it."""
    return result.device or "unnamed device"


def model_title(result: MeasuredResult) -> str:
    """The network that ran, with its size."""
    name, size = result.model.name or "unnamed model", result.model.parameters.number
    if size is None:
        return name
    scale, letter = next(((s, c) for s, c in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if size >= s), (1.0, ""))
    return f"{name} ({size / scale:.3g}{f' {letter}' if letter else ''} parameters)"


def provenance(result: MeasuredResult) -> str:
    """Which network ran and what was priced: the sentence that every table and figure carries."""
    return (
        f"acceptance measured on {model_title(result)}, "
        f"cost predicted for {architecture_title(result)} on {device_title(result)}"
    )


NOT_KNOWN = "n/a"

#: Suffix of a field's name -> scales, largest first, with their units.
_SCALES = {
    "_flops_per_s": ((TERA, "TFLOP/s"), (GIGA, "GFLOP/s"), (MEGA, "MFLOP/s")),
    "_bytes_per_s": ((TB, "TB/s"), (GB, "GB/s"), (MB, "MB/s")),
    "_bytes": ((GB, "GB"), (MB, "MB"), (KB, "kB"), (1.0, "B")),
    "_hz": ((GIGA, "GHz"), (MEGA, "MHz"), (1.0, "Hz")),
    "_s": ((1.0, "s"), (MILLI, "ms"), (MICRO, "µs")),
    "_m2": ((MILLI * MILLI, "mm²"),),
    "_j_per_bit": ((1e-12, "pJ/bit"),),
    "_j": ((1.0, "J"), (MILLI, "mJ"), (MICRO, "µJ"), (NANO, "nJ"), (1e-12, "pJ")),
    "_w": ((1.0, "W"), (MILLI, "mW")),
}


def fixed(value: float | None, digits: int) -> str:
    """A number with so many digits behind the point."""
    return NOT_KNOWN if value is None else f"{value:.{digits}f}"


def fixed_or_small(value: float | None, digits: int) -> str:
    """A number with so many digits behind the point; a smaller one, of which they would leave fewer than three, with three."""
    if value is None or abs(value) >= 10.0 ** (2 - digits) - 0.5 * 10.0**-digits:
        return fixed(value, digits)
    return three_digits(value)


def milliseconds(seconds: float | None) -> str:
    """A time in milliseconds, as in "41.302" or "0.000412"."""
    return fixed_or_small(None if seconds is None else seconds / MILLI, 3)


def three_digits(value: float | None) -> str:
    """A number of any size with three digits, as in "0.00123", "41.3" or "1,235"; of larger ones all before the point."""
    return NOT_KNOWN if value is None else significant(value, 3)


def times(value: float | None, digits: int = 2) -> str:
    """A factor, as in "2.40x"."""
    return NOT_KNOWN if value is None else f"{value:.{digits}f}x"


def quantity(name: str, value: float) -> str:
    """A number in SI, in the unit that fits its size; the suffix of its field's name says which dimension it has."""
    scale, unit = scale_of(name, abs(value) or math.inf)
    return f"{significant(value / scale, 4)} {unit}".strip()


def bytes_in_words(count: float) -> str:
    """Bytes of memory, as in "16.1 GB", "13 MB" or "0.3 MB"."""
    return f"{count / GB:.1f} GB" if count >= GB / 10 else f"{count / MB:.{0 if count >= MB else 1}f} MB"


def scale_of(name: str, largest: float) -> tuple[float, str]:
    """Scale and unit that a column of numbers is written or drawn in; 1 and nothing where its name says no dimension.

    Args:
        largest: absolute value, which the unit fits: of the largest number, or of the least that is to be 1 or more.
    """
    last = name.rpartition(".")[2]
    if last.endswith("_per_s") and not last.endswith(("_flops_per_s", "_bytes_per_s")):
        return 1.0, ""
    for suffix, scales in _SCALES.items():
        if last.endswith(suffix):
            return next((pair for pair in scales if largest >= pair[0]), scales[-1])
    return 1.0, ""


def knobs_in_words(knobs: Mapping[str, Any] | None, what: str) -> str:
    """The knobs of weights, KV or the head in a few words, as in "40 % pruned, 4 bits cut".

    Args:
        knobs: as in result.json.
        what: "weight", "kv" or "head".
    """
    if not knobs:
        return NOT_KNOWN
    prune = _flat(knobs.get(f"{what}_prune"))
    cut = _flat(knobs.get(f"{what}_cut_bits"))
    if not prune or not cut:
        return NOT_KNOWN
    span_cut = _span(cut, ".3g")
    bits = "bit" if span_cut == "1" else "bits"
    return f"{_span([100.0 * value for value in prune], '.0f')} % pruned, {span_cut} {bits} cut"


def _flat(values: Any) -> list[float]:
    if isinstance(values, Mapping):
        return [x for inner in values.values() for x in _flat(inner)]
    if isinstance(values, (list, tuple)):
        return [x for inner in values for x in _flat(inner)]
    value = finite(values)
    return [] if value is None else [value]


def _span(values: list[float], spec: str) -> str:
    low, high = format(min(values), spec), format(max(values), spec)
    return low if low == high else f"{low} to {high}"
