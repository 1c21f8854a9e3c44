"""What engines load: a repository of Hugging Face, a folder with weights, or a placeholder that a person replaces."""

from __future__ import annotations

import os
from pathlib import Path

from hwmodels import catalog
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.schemes import RELEASED
from jaxspec.studies.advise.config import HEADS, LOOKUP, AdviseConfig
from jaxspec.studies.engine_flags import ServedDraft
from jaxspec.studies.release import stored_form

__all__ = ["served_draft", "served_target", "weights_notes"]

#: Schemes of targets as they are released.
_PLAIN = ("bf16", "raw", RELEASED.name)

#: Endings of files with weights.
_WEIGHTS = (".safetensors", ".bin", ".gguf")


def served_target(config: AdviseConfig) -> str:
    """What an engine loads as the target."""
    return config.target_weights or _network(config.architecture)


def served_draft(config: AdviseConfig, *, other_rows: bool = False) -> ServedDraft:
    """The draft for an engine's flags. Args: other_rows: see `ServedDraft`."""
    if config.kind in (LOOKUP, SELF, "mtp"):
        return ServedDraft(config.kind)
    if config.draft in HEADS:
        # A network has no such head, or several.
        unnamed = f"<{config.kind} head for {config.target_weights or config.architecture}>"
        return ServedDraft(config.kind, config.draft_weights or unnamed)
    return ServedDraft(config.kind, config.draft_weights or _network(config.draft), other_rows)


def weights_notes(config: AdviseConfig) -> tuple[str, ...]:
    """Which weights the engines' commands name that the settings do not, and which of them a person has to name."""
    given = {"target": config.target_weights, "draft": config.draft_weights}
    served = {"target": served_target(config), "draft": served_draft(config).weights}
    found = {part: weights for part, weights in served.items() if weights and not given[part]}
    notes = []
    for missing, said in (
        (False, "the engines' commands load {}; {} gives others"),
        (True, "replace {} in the engines' commands, or give {}"),
    ):
        parts = [part for part, weights in found.items() if weights.startswith("<") == missing]
        if parts:
            flags = " or ".join(f"--{part}-weights" for part in parts)
            notes.append(said.format(" and ".join(found[part] for part in parts), flags))
    form = stored_form(config.architecture)
    if "target" in found and config.scheme not in _PLAIN:
        notes.append(f"these commands do not store the target by {config.scheme}, as it is priced; name such weights")
    elif "target" in found and form is not None and config.scheme != RELEASED.name:
        notes.append(f"these commands load the release, in {form.name}, and {config.scheme} is priced")
    if form is not None and form.name != "MXFP4":
        notes.append(
            f"llama.cpp has no {form.name}: its command converts the target to another form than the release's"
        )
    return tuple(notes)


def _network(name: str) -> str:
    """The folder of a config.json, where weights lie there; the repository whose sizes the catalog has; else a placeholder."""
    if os.path.exists(name):
        folder = Path(name) if os.path.isdir(name) else Path(name).parent
        has_weights = any(file.suffix in _WEIGHTS for file in folder.iterdir())
        return str(folder) if has_weights else f"<weights of {name}>"
    return catalog.architecture_repository(name) or f"<weights of {name}>"
