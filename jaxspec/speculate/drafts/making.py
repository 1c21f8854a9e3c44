"""Drafts by name, for commands and experiments: what the registry's entries point to."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxspec.compress.footprint import Footprint
from jaxspec.errors import InputError
from jaxspec.formats.shard_index import read_json_object
from jaxspec.models.config import DecoderConfig
from jaxspec.models.hf_load import LoadedModel
from jaxspec.settings.draft_kinds import DRAFT_KINDS, DraftKind, check_draft_name
from jaxspec.speculate.drafts.interface import ReadyDraft

__all__ = ["check_draft", "kind_of", "make_draft", "own_footprint"]


def make_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """A draft that needs no calibration: a name of the registry, or a directory.

    Raises:
        InputError: an unknown name, a broken directory, another vocabulary, a head of another target, or a draft that is made
            on calibration text.
    """
    check_draft_name(name)
    kind = kind_of(name)
    make = _function(kind.place)
    if kind.calibrated:
        raise InputError(f"draft {name!r} is the target, compressed on calibration text; make it with {make.__name__}")
    return make(name, target)


def check_draft(name: str, target: DecoderConfig) -> None:
    """Raise InputError for what can be told of a draft without reading weights.

    Args:
        target: shape of the network that it drafts for.
    """
    check_draft_name(name)
    if place := kind_of(name).check:
        _function(place)(name, target)


def own_footprint(name: str) -> Footprint | None:
    """Bits that a draft and its target read by the draft's own files; None where they do not say.

    Raises:
        InputError: a broken file.
    """
    place = kind_of(name).footprint
    return _function(place)(name) if place else None


def _function(place: str) -> Callable[..., Any]:
    """The function behind "module:function" of this package."""
    module, _, function = place.partition(":")
    return vars(importlib.import_module(f"jaxspec.speculate.drafts.{module}"))[function]


def kind_of(name: str) -> DraftKind:
    """The kind of a draft that `check_draft_name` allows; a directory's stands in its config.json, a file's is its suffix.

    Raises:
        InputError: a directory without one.
    """
    for kind in DRAFT_KINDS:
        if name in kind.names or (kind.suffix and name.endswith(kind.suffix) and not os.path.isdir(name)):
            return kind
    kinds = {kind.model_type: kind for kind in DRAFT_KINDS if kind.directory}
    return kinds.get(read_json_object(Path(name) / "config.json").get("model_type"), kinds[None])
