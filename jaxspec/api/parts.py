"""Devices, architectures, schemes and containers by name or path, and the names that there are."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import jax
from jax.core import Tracer

from hwmodels import Architecture, Device, Footprint
from hwmodels.analysis.design_point import leaf_names
from hwmodels.catalog.architecture_entries import DESIGN_RULES
from hwmodels.numerics.fields import Rule, check_number, check_numbers
from jaxspec.api.calls import notebook_reporter
from jaxspec.api.results import StudyResults
from jaxspec.compress.knobs import checked_values
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.errors import InputError, hint
from jaxspec.registries import registry_of
from jaxspec.report.terminal import Table
from jaxspec.runs.progress import Reporter
from jaxspec.settings.catalog_names import catalog_architectures, catalog_devices, known_architecture, known_device
from jaxspec.settings.coercion import as_path, coerce
from jaxspec.settings.draft_kinds import draft_names
from jaxspec.studies.measured.pricing import resolve_architecture, resolve_device
from jaxspec.studies.pack.config import PACK, PackConfig
from jaxspec.studies.pack.result import UnpackResult
from jaxspec.studies.pack.run import inspect_file, unpack_container

if TYPE_CHECKING:
    from jaxspec.models import LoadedModel

__all__ = [
    "SchemeCard",
    "architecture",
    "architectures",
    "device",
    "devices",
    "drafts",
    "inspect",
    "load",
    "scheme",
    "schemes",
    "unpack",
]

Tree = TypeVar("Tree")


def device(name: str | os.PathLike[str], /, **numbers: float) -> Device:
    """A device of the catalog by name, or of your own from a TOML file.

    Args:
        numbers: in place of its own, by the names that `jaxspec devices NAME` prints with _ for dots, as in
            memory_bandwidth_bytes_per_s=2e12; traced ones too, as `price` takes them.
    Raises:
        InputError: an unknown name, a file that is no device, or a number that it does not have or that breaks its rule.
    """
    return _with_numbers(resolve_device(known_device(as_path("device", name))), str(name), numbers)


def architecture(name: str | os.PathLike[str], /, **numbers: float) -> Architecture:
    """Shapes of a network: of the catalog by name, of a Hugging Face config.json or its directory, or of a GGUF file.

    Args:
        numbers: in place of its own, as of `device`: num_layers=20.
    Raises:
        InputError: an unknown name, a file that cannot be used, or a number that it does not have or that breaks its rule.
    """
    shapes = resolve_architecture(known_architecture(as_path("architecture", name)), None)
    return _with_numbers(shapes, str(name), numbers, DESIGN_RULES)


def _with_numbers(tree: Tree, name: str, numbers: dict[str, float], rules: Mapping[str, Rule] | None = None) -> Tree:
    leaves, treedef = jax.tree.flatten(tree)
    places = {known.replace(".", "_"): place for place, known in enumerate(leaf_names(tree))}
    for given, value in numbers.items():
        if given not in places:
            raise InputError(f"{name} has no number {given!r}{hint(given, places)}")
        leaves[places[given]] = value if isinstance(value, Tracer) else coerce(given, value, float)
    try:
        for given, value in numbers.items():
            if rules is not None:
                check_number(given, value, rules[given])
        changed = treedef.unflatten(leaves)
        check_numbers(changed if numbers else ())
    except ValueError as error:
        raise InputError(str(error)) from error
    return changed


def devices() -> tuple[str, ...]:
    """Names that `device` takes, sorted."""
    return catalog_devices()


def architectures() -> tuple[str, ...]:
    """Names that `architecture` takes, sorted."""
    return catalog_architectures()


def schemes() -> tuple[str, ...]:
    """Names of storage schemes, that `scheme` takes, sorted."""
    return tuple(sorted(registry_of("scheme").names()))


def drafts() -> tuple[str, ...]:
    """Names of drafts that decode, sorted; directories of networks and heads are others."""
    return tuple(sorted(draft_names()))


@dataclasses.dataclass(frozen=True, repr=False)
class SchemeCard:
    """A storage scheme with its knobs.

    Attributes:
        scheme: the object that compresses.
    """

    scheme: Scheme

    @property
    def name(self) -> str:
        """As commands take it."""
        return self.scheme.name

    @property
    def knobs(self) -> dict[str, float]:
        """Default of each knob."""
        return checked_values(self.scheme, {})

    def footprint(self, knobs: Mapping[str, float] | None = None, /, **more: float) -> Footprint:
        """Bits read per weight and per KV element on Gaussian weights, by a draft step and by a verification.

        Args:
            knobs, more: knob -> value, the same for all matrices; those not given keep their defaults.
        Raises:
            InputError: an unknown knob, or a value out of its range.
        """
        if knobs is not None and not isinstance(knobs, Mapping):
            raise InputError(f"knobs are {knobs!r}; give a mapping from knob to number, as {self.knobs}")
        given = {name: coerce(f"knob {name}", value, float) for name, value in {**(knobs or {}), **more}.items()}
        return self.scheme.expected_footprint(checked_values(self.scheme, given))

    def table(self) -> Table:
        """The knobs, a row each."""
        scheme = self.scheme
        kind = "lossless" if scheme.lossless else "not lossless"
        table = Table(f"{scheme.name}: {scheme.title}", f"{kind}; knobs: {len(scheme.knob_specs) or 'none'}")
        for heading in ("knob", "default", "range", "meaning"):
            table.add_column(heading)
        for spec in scheme.knob_specs:
            table.add_row(spec.name, f"{spec.default:g}", f"{spec.low:g} to {spec.high:g}", spec.help)
        return table

    def __repr__(self) -> str:
        knobs = ", ".join(f"{name}={value:g}" for name, value in self.knobs.items())
        return f"<scheme {self.name}: {knobs or 'no knobs'}>"

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def scheme(name: str) -> SchemeCard:
    """A storage scheme by name. Raises InputError: an unknown name."""
    return SchemeCard(find_scheme(name))


def inspect(path: str | os.PathLike[str], *, reporter: Reporter | None = None) -> StudyResults:
    """What a container, or a checkpoint not packed yet, is made of, tensor by tensor, as `jaxspec inspect` shows it.

    Reads all of the file, and so checks it.

    Args:
        path: container, safetensors file or directory.
        reporter: shows progress; None: that of a notebook, elsewhere nothing is shown.
    Returns:
        a result with `table()`, `plot()`, `to_frame("tensors")` and `to_json()`.
    Raises:
        InputError: no such file, or a damaged one.
    """
    name = as_path("path", path)
    description = inspect_file(name, reporter=reporter or notebook_reporter())
    return StudyResults.of(PACK, PackConfig(model=name), description)


def unpack(
    container: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    force: bool = False,
    reporter: Reporter | None = None,
) -> UnpackResult:
    """Restore the checkpoint in a container, as `jaxspec unpack` does: byte for byte if its scheme is lossless.

    Args:
        out: folder, or a .safetensors file if one was packed; None: the folder <name of the container> here.
        force: replace files that are there.
        reporter: shows progress; None: that of a notebook, elsewhere nothing is shown.
    Returns:
        the files, their bytes, and how long it took.
    Raises:
        InputError: bad input; no file is left half-written.
    """
    name = as_path("container", container)
    place = None if out is None else as_path("out", out)
    return unpack_container(name, place, force=force, reporter=reporter or notebook_reporter())


def load(
    path: str | os.PathLike[str], *, part: Literal["target", "draft"] = "target", dtype: Any = None
) -> LoadedModel:
    """A network by name or path: "embedded", a Hugging Face directory, or a container that `jaxspec pack` wrote.

    Args:
        part: "draft" opens the draft inside a container, and reads no byte of the file that only the target needs.
        dtype: of all parameters; None keeps what is stored.
    Returns:
        configuration, parameters, tokenizer; for a container also the number of bytes that were read.
    Raises:
        InputError: anything about the path that cannot be used, in one line.
    """
    from jaxspec.models import load_model

    path = as_path("path", path)
    if os.path.isfile(os.path.join(path, "config.toml")) and not os.path.exists(os.path.join(path, "config.json")):
        raise InputError(f"{path!r} is a run directory, not a network; jaxspec.open_result opens what the run found")
    return load_model(path, part=part, dtype=dtype)
