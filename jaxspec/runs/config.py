"""The configuration of a run: one frozen dataclass, written to and read from TOML; flag over file over default."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

import tomli_w

from jaxspec.errors import InputError

Scheme = Literal["cassandra1", "cassandra1-coded"]
Objective = Literal["speedup", "kl", "bits_per_byte"]
Search = Literal["prior", "width", "depth", "greedy"]


@dataclasses.dataclass(frozen=True)
class CommonConfig:
    """What every command that runs a network needs to know."""

    model: str = "embedded"  # "embedded" or a Hugging Face directory
    architecture: str = "llama-3.1-8b"  # whose cost is predicted: a catalog name, "own", or a config.json
    device: tuple[str, ...] = ("rtx-4090",)  # catalog names or TOML files
    batch: int = 1  # sequences decoded together, for the cost
    context: int = 1024  # cached tokens per sequence, for the cost
    scheme: Scheme = "cassandra1"
    text: str = "stdlib"  # "stdlib" or a text file
    temperature: float = 0.0  # of decoding; 0 is greedy
    prompts: int = 96  # held-out prompts that are decoded
    prompt_tokens: int = 128
    output_tokens: int = 64
    calibration_prompts: int = 96
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class TuneConfig(CommonConfig):
    """`jaxspec tune`."""

    objective: Objective = "speedup"
    max_kl: float | None = None  # nats per token: constraint beside the objective
    max_bits_per_byte: float | None = None  # constraint beside the objective
    draft_bits: float | None = None  # bits per weight: the budget under which KL or bits per byte are minimised
    steps: int = 60  # of the gradient over all knobs
    uniform_steps: int = 15  # of the gradient over one pair for all matrices
    learning_rate: float = 0.03  # knobs scaled to [0, 1]
    windows_per_step: int = 16
    surrogate_temperature: float = 0.5  # of the smooth acceptance under greedy decoding


@dataclasses.dataclass(frozen=True)
class EvaluateConfig(CommonConfig):
    """`jaxspec evaluate`."""

    weight_prune: float = 0.4
    weight_cut_bits: float = 4.0
    kv_prune: float = 0.0
    kv_cut_bits: float = 4.0
    draft_length: int = 5
    knobs: str | None = None  # result.json whose tuned knobs are taken instead


@dataclasses.dataclass(frozen=True)
class TreeConfig(CommonConfig):
    """`jaxspec tree`."""

    draft: str = "self"  # "self", "ngram", "embedded-head", "embedded-small", or a directory of a network or head
    weight_prune: float = 0.4  # the knobs of draft "self", the same everywhere
    weight_cut_bits: float = 4.0
    kv_prune: float = 0.0
    kv_cut_bits: float = 4.0
    nodes: int = 32  # of the largest tree; its verification takes one token more
    depth: int = 8  # drafted tokens below one another, at most
    search: Search = "prior"  # how trees grow
    contexts: tuple[int, ...] = (128, 512, 2048, 4096, 8192, 16384)  # cached tokens to decide at, beside `context`


#: What `--quick` changes: a look at everything, with wider error bars.
QUICK = {
    "prompts": 24,
    "output_tokens": 32,
    "calibration_prompts": 24,
    "steps": 15,
    "uniform_steps": 5,
    "nodes": 16,
    "depth": 6,
}

#: Smallest and largest value of a number, where there is one.
_LIMITS: dict[str, tuple[float, float]] = {
    "batch": (1, 4096),
    "context": (0, 10_000_000),
    "temperature": (0, 10),
    "prompts": (1, 100_000),
    "prompt_tokens": (2, 1_000_000),
    "output_tokens": (1, 1_000_000),
    "calibration_prompts": (1, 100_000),
    "steps": (1, 100_000),
    "uniform_steps": (1, 100_000),
    "learning_rate": (1e-6, 1),
    "windows_per_step": (1, 100_000),
    "surrogate_temperature": (0.05, 10),
    "max_kl": (1e-6, 100),
    "max_bits_per_byte": (1e-6, 100),
    "draft_bits": (0.5, 16),
    "seed": (0, 2**31 - 1),
    "weight_prune": (0, 0.95),
    "weight_cut_bits": (0, 7),
    "kv_prune": (0, 0.95),
    "kv_cut_bits": (0, 7),
    "draft_length": (1, 8),
    "nodes": (1, 512),
    "depth": (1, 64),
    "contexts": (0, 10_000_000),
}

#: A frozen dataclass of settings; and one of a command that runs a network.
ConfigType = TypeVar("ConfigType")
CommonType = TypeVar("CommonType", bound=CommonConfig)


def _coerce(name: str, value: Any, annotation: Any) -> Any:
    """The value in the field's type, or InputError."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _coerce(name, value, next(a for a in arguments if a is not type(None)))
    if origin is Literal:
        if value not in arguments:
            raise InputError(f"{name} is {value!r}; allowed are {', '.join(map(str, arguments))}")
        return value
    if origin is tuple and arguments[0] is int:
        return _whole_numbers(name, value)
    if origin is tuple:
        items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
        if not isinstance(items, (list, tuple)) or not items or not all(isinstance(i, str) and i for i in items):
            raise InputError(f"{name} is {value!r}; give one or more names, separated by commas")
        return tuple(dict.fromkeys(items))
    allowed = (int, float) if annotation is float else annotation
    if isinstance(value, bool) or not isinstance(value, allowed):
        raise InputError(f"{name} is {value!r}; it must be of type {annotation.__name__}")
    value = annotation(value)
    if not isinstance(value, str):
        _check_limits(name, value)
    return value


def _check_limits(name: str, value: float) -> None:
    low, high = _LIMITS.get(name, (float("-inf"), float("inf")))
    if not low <= value <= high:
        raise InputError(f"{name} is {value:g}; allowed is {low:g} to {high:g}")


def _whole_numbers(name: str, value: Any) -> tuple[int, ...]:
    """Rising, each once; from a list, or from text with commas."""
    try:
        items = [int(part) for part in value.split(",")] if isinstance(value, str) else list(value)
    except (TypeError, ValueError):
        items = []
    if not items or any(isinstance(item, bool) or not isinstance(item, int) for item in items):
        raise InputError(f"{name} is {value!r}; give one or more whole numbers, separated by commas")
    for item in items:
        _check_limits(name, item)
    return tuple(sorted(set(items)))


def build_config(kind: type[ConfigType], *layers: dict[str, Any]) -> ConfigType:
    """A configuration from layers of settings, later ones winning; keys with the value None are not set.

    Raises:
        InputError: an unknown key, a wrong type, a value out of range.
    """
    hints = typing.get_type_hints(kind)
    settings: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if key not in hints:
                near = difflib.get_close_matches(key, hints, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; allowed are {', '.join(sorted(hints))}"
                raise InputError(f"unknown setting {key!r}{hint}")
            if value is not None:
                settings[key] = _coerce(key, value, hints[key])
    return kind(**settings)


def read_toml(path: str | Path) -> dict[str, Any]:
    """Settings of a TOML file.

    Raises:
        InputError: missing, unreadable or no TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"configuration {str(path)!r} cannot be read ({error.strerror}); give a TOML file") from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or numbers beyond what Python reads
        raise InputError(f"configuration {str(path)!r} is no valid TOML ({error}); mend it") from error


def to_toml(config: Any) -> str:
    """A complete configuration, any dataclass of settings; those without a value are left out."""
    settings = {key: value for key, value in dataclasses.asdict(config).items() if value is not None}
    return tomli_w.dumps(settings)


def config_hash(config: Any) -> str:
    """Twelve hexadecimal digits that name a resolved configuration."""
    return hashlib.sha256(to_toml(config).encode()).hexdigest()[:12]
