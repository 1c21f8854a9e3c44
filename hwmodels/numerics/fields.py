"""Fields of trees of numbers that a catalog file may give: what each must be, stated once, beside the field itself.

@flax.struct.dataclass
class Memory:
    bandwidth_bytes_per_s: Leaf = number(POSITIVE)  # required
    energy_j_per_bit: Leaf = number(NOT_NEGATIVE, default=0.0)
    coupled: bool = flag()
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from html import escape
from typing import Any, NamedTuple

import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from hwmodels.numerics.units import engineering

__all__ = [
    "AMOUNT",
    "AREA",
    "AT_LEAST_ONE",
    "BYTE_RATE",
    "CAPACITY",
    "CHANCE",
    "COUNT",
    "ENERGY",
    "FINITE",
    "FLAG",
    "FLOP_RATE",
    "FREQUENCY",
    "LATENCY",
    "NOT_NEGATIVE",
    "POSITIVE",
    "SHARE",
    "WHOLE",
    "Rule",
    "check_at_most",
    "check_number",
    "check_numbers",
    "check_types",
    "choice",
    "flag",
    "leaf_text",
    "number",
    "part",
    "short_line",
    "tag",
    "tree_html",
    "variant",
]

# Trees of numbers as a person sees them in a session: one short line, and a table for a notebook.


def leaf_text(leaf: Any) -> str:
    """A number with five digits; of an array its shape and range, of a traced value its shape."""
    if isinstance(leaf, Tracer):
        return f"traced {leaf.shape}"
    if getattr(leaf, "ndim", 0) and leaf.size:
        return f"{leaf.shape}, {engineering(float(jnp.min(leaf)), 5)} to {engineering(float(jnp.max(leaf)), 5)}"
    try:
        return engineering(float(leaf), 5)
    except (TypeError, ValueError):  # axes of a `vmap`, shardings, an empty array
        return str(leaf)


def short_line(tree: Any, *names: str) -> str:
    """ "Chip(static_power_w=12, area_m2=0.0006, ...)": some fields of a tree.

    Args:
        names: dotted names of the fields that are shown.
    """
    leaves = dict(_leaves(tree))
    shown = [f"{name}={leaves[name]}" for name in names if name in leaves]
    return f"{type(tree).__name__}({', '.join([*shown, '...'])})"


def tree_html(tree: Any) -> str:
    """Every leaf of a tree in a table, by its dotted name."""
    rows = "".join(
        f'<tr><td style="text-align: left">{escape(name)}</td><td>{escape(text)}</td></tr>'
        for name, text in _leaves(tree)
    )
    return f"<div><p><b>{escape(type(tree).__name__)}</b> (SI units)</p><table><tbody>{rows}</tbody></table></div>"


def _leaves(tree: Any) -> list[tuple[str, str]]:
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf_text(leaf)) for path, leaf in pairs]


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a number must be, in words and as a test of a finite float."""

    words: str
    holds: Callable[[float], bool]


#: Rates and sizes of hardware, of which an infinite one is no limit.
POSITIVE = Rule("a positive number", lambda value: value > 0)
#: Sizes of what is computed.
AMOUNT = Rule("a finite number > 0", lambda value: 0 < value < math.inf)
#: Latencies, energies, areas: what may be nothing.
NOT_NEGATIVE = Rule("a number >= 0", lambda value: 0 <= value < math.inf)
# Numbers of hardware in SI units. One beyond these bounds was meant in another unit, and would be priced as it is.
#: Rates of memories and links.
BYTE_RATE = Rule("a positive number of bytes per second, at least 1e6: 400 GB/s are 400e9", lambda value: value >= 1e6)
#: Rates of arithmetic.
FLOP_RATE = Rule("a positive number of operations per second, at least 1e6: 50 TFLOP/s are 50e12", BYTE_RATE.holds)
#: Clocks.
FREQUENCY = Rule("a positive number of hertz, at least 1e4: 1.5 GHz are 1.5e9", lambda value: value >= 1e4)
#: Sizes of memories.
CAPACITY = Rule("a positive number of bytes, at least 1024: 32 GB are 32e9", lambda value: value >= 1024)
#: Fixed times of launches, accesses and messages.
LATENCY = Rule("a number >= 0 of seconds, at most 0.1: 5 microseconds are 5e-6", lambda value: 0 <= value <= 0.1)
#: Energies of a bit or an operation.
ENERGY = Rule("a number >= 0 of joules, at most 1e-6: 4 pJ are 4e-12", lambda value: 0 <= value <= 1e-6)
#: Areas of dies and their parts.
AREA = Rule("a positive number of square metres, at most 1: 800 mm2 are 8e-4", lambda value: 0 < value <= 1)
#: What may have any sign.
FINITE = Rule("a finite number", math.isfinite)
#: Counts that may lie between whole numbers.
AT_LEAST_ONE = Rule("a number >= 1", lambda value: 1 <= value < math.inf)
#: Probabilities, shares that may be nothing, and truth values that may lie between.
CHANCE = Rule("a number from 0 to 1", lambda value: 0 <= value <= 1)
#: Efficiencies.
SHARE = Rule("a number in (0, 1]", lambda value: 0 < value <= 1)
#: What there is at least one of.
COUNT = Rule("a positive whole number", lambda value: value > 0 and value.is_integer())
#: What may be absent.
WHOLE = Rule("a whole number >= 0", lambda value: value >= 0 and value.is_integer())
#: A truth value that is swept like a number.
FLAG = Rule("true or false", lambda value: value in (0.0, 1.0))


def check_numbers(tree: Any, name: str = "") -> None:
    """Hold all numbers within a tree of dataclasses to the rules of their fields, as the numbers of files are held.

    Tracers and arrays of other types pass. An infinite rate is no limit, which a file would leave out.

    Args:
        name: of the tree, for messages.
    Raises:
        ValueError: a number that breaks its rule, or something else in place of a number, by its dotted name.
    """
    dot = f"{name}." if name else ""
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            check_numbers(part, dot + str(key))
    elif isinstance(tree, (tuple, list)):
        for place, part in enumerate(tree):
            check_numbers(part, f"{dot}{place}")
    elif dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        for field in _fields(type(tree)):
            part = getattr(tree, field.name)
            if part is None and field.optional:
                continue
            if field.rule is not None:
                check_number(dot + field.name, part, field.rule)
            elif field.part is not None and not isinstance(part, field.part):
                raise _other_type(dot + field.name, part, field.part)
            else:
                check_numbers(part, dot + field.name)
        if check := getattr(tree, "check_together", None):  # rules of several fields
            check()


def check_number(name: str, value: Any, rule: Rule) -> None:
    """Hold a number, an array, or a table of them to a rule. Tracers and objects that hold no numbers pass.

    Raises:
        ValueError: one that breaks the rule; a text, a list or None.
    """
    if isinstance(value, Mapping):
        for key, part in value.items():
            check_number(f"{name}.{key}", part, rule)
    elif value is None or isinstance(value, _NO_NUMBERS):
        raise ValueError(f"{name} is {repr(value)[:60]}; it must be {rule.words}{_ARRAY if value else ''}")
    else:
        for number in _numbers(value):
            if not rule.holds(number):
                raise ValueError(f"{name} is {number:g}; it must be {rule.words}")


#: What somebody may give in place of a number, and JAX puts into no tree that is priced.
_NO_NUMBERS = (str, bytes, list, set)
_ARRAY = ", or an array of them"


class _Field(NamedTuple):
    name: str
    rule: Rule | None
    part: type | None
    optional: bool  # None is its default


@functools.cache
def _fields(kind: type) -> tuple[_Field, ...]:
    return tuple(
        _Field(field.name, field.metadata.get("rule"), field.metadata.get("part"), field.default is None)
        for field in dataclasses.fields(kind)
    )


def _other_type(name: str, value: Any, kind: type) -> ValueError:
    return ValueError(f"{name} is {repr(value)[:60]}; it must be of type {kind.__name__}")


def check_at_most(tree: Any, small: str, large: str) -> None:
    """Hold one field to another. Tracers pass. Raises ValueError: the largest number of `small` is beyond all of `large`."""
    numbers, limits = _numbers(getattr(tree, small)), _numbers(getattr(tree, large))
    if numbers and limits and max(numbers) > max(limits):
        raise ValueError(f"{small} is {max(numbers):g} and {large} is {max(limits):g}; {small} must be at most {large}")


def check_types(kinds: Mapping[str, type], arguments: Mapping[str, Any]) -> None:
    """Hold arguments to their types.

    Raises:
        ValueError: one of another type.
    """
    for name, kind in kinds.items():
        if name in arguments and not isinstance(arguments[name], kind):
            raise _other_type(name, arguments[name], kind)


def _numbers(leaf: Any) -> list[float]:
    """The different numbers of a leaf that are at hand; of an array of several processes none are."""
    if isinstance(leaf, (int, float)):
        return [float(leaf)]
    if isinstance(leaf, Tracer) or (isinstance(leaf, jax.Array) and not leaf.is_fully_addressable):
        return []
    is_number = isinstance(leaf, (np.ndarray, np.generic, jax.Array)) and jnp.issubdtype(leaf.dtype, jnp.number)
    return np.unique(np.asarray(leaf, float)).tolist() if is_number else []


def number(rule: Rule, **default: Any) -> Any:
    """A leaf that a file gives; required unless it has a `default`."""
    return flax.struct.field(metadata={"rule": rule}, **default)


def part(kind: type, **default: Any) -> Any:
    """A tree of leaves that a file gives as a table of its own; required unless it has a `default`."""
    return flax.struct.field(metadata={"part": kind}, **default)


def variant(kinds: Mapping[str, type], **default: Any) -> Any:
    """A tree of leaves of one of several classes, which a file's table names as its `kind`; required without a `default`."""
    return flax.struct.field(metadata={"variants": kinds}, **default)


def choice(*allowed: str) -> Any:
    """A static text out of a few, the first unless another is given."""
    return flax.struct.field(pytree_node=False, default=allowed[0], metadata={"choices": allowed})


def flag() -> Any:
    """A static truth value, false unless given."""
    return flax.struct.field(pytree_node=False, default=False, metadata={"flag": True})


def tag(name: str) -> Any:
    """A static text that tells a class from others in the same place. No file gives it.

    jaxlib 0.10 holds the structures of two dataclasses of equally many leaves for equal, so that a compiled program of one may
    be found for the other unless static fields differ.
    """
    return flax.struct.field(pytree_node=False, default=name, repr=False, kw_only=True)
