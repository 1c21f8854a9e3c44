"""Digests of every file that a configuration names, so that no run mixes two versions of one, or reprints an old result."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jaxspec.formats.container import SUFFIX
from jaxspec.models.embedded import EMBEDDED_NAME, HEAD_NAME, SMALL_NAME, embedded_directory
from jaxspec.settings.draft_kinds import has_files

__all__ = ["changed_inputs", "digests_of", "draft_digests", "input_digests", "unrecorded_inputs"]

#: Files of a model's folder that decide what it computes.
_MODEL_SUFFIXES = (".json", ".safetensors", SUFFIX)


def digests_of(files: Mapping[str, Path]) -> dict[str, str]:
    """SHA-256 of each file, under its key; files that are not there are left out, the loaders say what is wrong."""
    found = {}
    for key, path in files.items():
        if os.path.isfile(path):
            with path.open("rb") as stream:
                found[key] = hashlib.file_digest(stream, "sha256").hexdigest()
    return found


def input_digests(config: Any) -> dict[str, str]:
    """Of the files that a configuration's fields name: network, text, architectures, devices, knobs, draft.

    Returns:
        name (of network and text) or path of the file, after its kind where two are alike -> SHA-256. Names of the catalog
        are not files.
    Raises:
        InputError: an embedded network that this installation lacks.
    """
    files: dict[str, Path] = {}

    def add(kind: str, key: str, path: Path) -> None:
        files[f"{kind} {key}" if files.get(key, path) != path else key] = path

    for path in _model_files(config.model) if hasattr(config, "model") else ():
        add("model", path.name, path)
    if getattr(config, "text", "stdlib") != "stdlib":
        add("text", Path(config.text).name, Path(config.text))
    for name in _several(getattr(config, "architecture", ())):
        path = Path(name) / "config.json" if os.path.isdir(name) else Path(name)
        add("architecture", str(path), path)
    for name in _several(getattr(config, "device", ())):
        add("device", str(Path(name)), Path(name))
    if getattr(config, "knobs", None) is not None:
        add("knobs", str(Path(config.knobs)), Path(config.knobs))
    return digests_of(files) | draft_digests(config)


def draft_digests(config: Any) -> dict[str, str]:
    """Of the files of a draft that is a network or a head.

    Raises:
        InputError: an embedded draft that this installation lacks.
    """
    draft = getattr(config, "draft", "self")
    if not has_files(draft):
        return {}
    return digests_of({f"draft/{path.name}": path for path in _model_files(draft)})


def changed_inputs(recorded: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Files that a run recorded and that now differ or are gone."""
    return sorted(name for name in recorded if recorded[name] != current.get(name))


def unrecorded_inputs(recorded: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Files of which a run has no digest, as those of earlier versions; whether they changed cannot be known."""
    return sorted(set(current) - set(recorded))


def _several(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _model_files(name: str) -> list[Path]:
    shipped = name in (EMBEDDED_NAME, SMALL_NAME, HEAD_NAME)
    place = embedded_directory(name) if shipped else Path(name)
    if os.path.isdir(place):
        return sorted(path for path in place.iterdir() if path.suffix in _MODEL_SUFFIXES)
    return [place]
