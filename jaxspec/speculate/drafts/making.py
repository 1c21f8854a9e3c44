"""Drafts by name, for commands and experiments: what the registry's entries point to."""

from __future__ import annotations

import importlib
from pathlib import Path

from jaxspec.errors import InputError
from jaxspec.formats.shard_index import read_json_object
from jaxspec.models.hf_load import LoadedModel
from jaxspec.settings.draft_kinds import DRAFT_KINDS, DraftKind, check_draft_name
from jaxspec.speculate.drafts.interface import ReadyDraft

__all__ = ["kind_of", "make_draft"]


def make_draft(name: str, target: LoadedModel) -> ReadyDraft:
    """A draft that needs no calibration: a name of the registry, or a directory.

    Raises:
        InputError: an unknown name, a broken directory, another vocabulary, a head of another target, or a draft that is made
            on calibration text.
    """
    check_draft_name(name)
    kind = kind_of(name)
    module, _, function = kind.place.partition(":")
    if kind.calibrated:
        raise InputError(f"draft {name!r} is the target, compressed on calibration text; make it with {function}")
    make = vars(importlib.import_module(f"jaxspec.speculate.drafts.{module}"))[function]
    return make(name, target)


def kind_of(name: str) -> DraftKind:
    """The kind of a draft that `check_draft_name` allows, which for a directory stands in its config.json.

    Raises:
        InputError: a directory without one.
    """
    for kind in DRAFT_KINDS:
        if name in kind.names:
            return kind
    kinds = {kind.model_type: kind for kind in DRAFT_KINDS if kind.directory}
    return kinds.get(read_json_object(Path(name) / "config.json").get("model_type"), kinds[None])
