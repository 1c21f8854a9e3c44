"""Digests of every file that a configuration names, so that no run mixes two versions of one, or reprints an old result."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxspec.errors import InputError
from jaxspec.formats.container import NETWORK_FILES, weight_files, weight_notes
from jaxspec.runs.progress import Reporter
from jaxspec.settings.draft_kinds import has_files

if TYPE_CHECKING:
    pass

__all__ = [
    "InputWatch",
    "changed_inputs",
    "input_digests",
    "input_files",
    "input_notes",
    "input_sizes",
]

#: Files of a model's folder that decide what it computes, apart from its weights.
_BESIDE_WEIGHTS = (".json", ".jinja")

#: Of these, the one that every model has.
_CONFIG = "config.json"

#: Files are read in pieces of this size, 16 MiB.
_PIECE_BYTES = 1 << 24

#: Inputs of this size and more have a bar: they take more than a second.
_SHOWN_BYTES = 1 << 30


def input_digests(config: Any, reporter: Reporter | None = None) -> dict[str, str]:
    """Of the files that a configuration's fields name: network, text, prompts, architectures, devices, knobs, draft.

    Args:
        reporter: shows progress, where there is a gigabyte or more to read.
    Returns:
        name (of network, text and prompts) or path of the file, after its kind where two are alike -> SHA-256. Names of the
        catalog are not files.
    Raises:
        InputError: an embedded network that this installation lacks; an index of shards that is none.
    """
    return _digests(input_files(config), reporter)


def input_sizes(config: Any) -> dict[str, int]:
    """Bytes of the same files, from the file system, without reading them."""
    return {key: path.stat().st_size for key, path in input_files(config).items()}


def input_files(config: Any) -> dict[str, Path]:
    """The files that a configuration's fields name and that are there; of the others, the loaders say what is wrong."""
    files: dict[str, Path] = {}

    def add(kind: str, key: str, path: Path) -> None:
        files[f"{kind} {key}" if files.get(key, path) != path else key] = path

    names = _several(getattr(config, "model", ()))
    for name in names:
        for path in _model_files(name):
            add(f"model {name}" if len(names) > 1 else "model", path.name, path)
    if (judge := getattr(config, "judging", None)) is not None:
        for path in _model_files(judge):
            add(f"judge {judge}", path.name, path)
    if (getattr(config, "text", None) or "stdlib") != "stdlib":  # None: not given
        add("text", Path(config.text).name, Path(config.text))
    if getattr(config, "own_prompts", False):
        add("prompts", Path(config.prompts).name, Path(config.prompts))
    networks = (
        *_several(getattr(config, "architecture", ())),
        *_several(getattr(config, "draft_architecture", None) or ()),
    )
    for name in networks:
        path = Path(name) / "config.json" if os.path.isdir(name) else Path(name)
        add("architecture", str(path), path)
        # How a release is stored may be in a second file.
        if path.name == _CONFIG:
            beside = path.with_name("hf_quant_config.json")
            add("architecture", str(beside), beside)
    for name in _several(getattr(config, "device", None) or ()):
        add("device", str(Path(name)), Path(name))
    if getattr(config, "trace", None) is not None:
        add("trace", Path(config.trace).name, Path(config.trace))
    if getattr(config, "measurements", None) is not None:
        add("measurements", str(Path(config.measurements)), Path(config.measurements))
    if getattr(config, "knobs", None) is not None:
        add("knobs", str(Path(config.knobs)), Path(config.knobs))
    for key, path in getattr(config, "input_files", {}).items():
        add("input", key, path)
    for name in getattr(config, "named_drafts", ()):
        for path in _model_files(name) if os.path.exists(name) else ():
            add("input", f"{name}/{path.name}" if path != Path(name) else name, path)
    draft = getattr(config, "draft", "self")
    files |= {f"draft/{path.name}": path for path in (_model_files(draft) if has_files(draft) else ())}
    return {key: path for key, path in files.items() if os.path.isfile(path)}


def input_notes(config: Any) -> list[str]:
    """See `weight_notes`, of the folders of networks that a configuration names; loaders say what is wrong with them."""
    from jaxspec.models.embedded import SHIPPED_NAMES  # loads all that networks need

    names = (*_several(getattr(config, "model", ())), getattr(config, "judging", None), getattr(config, "draft", None))
    folders = [name for name in (*names, *getattr(config, "named_drafts", ())) if name not in (None, *SHIPPED_NAMES)]
    notes: list[str] = []
    for name in filter(os.path.isdir, dict.fromkeys(folders)):
        with contextlib.suppress(InputError):
            notes += weight_notes(name)
    return notes


def _digests(there: Mapping[str, Path], reporter: Reporter | None) -> dict[str, str]:
    """SHA-256 of each file, under its key."""
    total = sum(path.stat().st_size for path in there.values())
    if reporter is None or total < _SHOWN_BYTES:
        return {key: _digest(path, lambda _: None) for key, path in there.items()}
    with reporter.bar("digesting inputs, MiB", total >> 20) as bar:
        done, digests = 0, {}

        def advance(count: int) -> None:
            nonlocal done
            done += count
            bar.jump(done >> 20, note)

        for key, path in there.items():
            note = path.name
            digests[key] = _digest(path, advance)
    return digests


def _digest(path: Path, advance: Callable[[int], None]) -> str:
    """SHA-256 of a file.

    Args:
        advance: gets how many more bytes have been read.
    """
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as stream:
        while piece := stream.read(_PIECE_BYTES):
            digest.update(piece)
            advance(len(piece))
    return digest.hexdigest()


def changed_inputs(recorded: Mapping[str, str], current: Mapping[str, str]) -> list[str]:
    """Files that a run recorded and that now differ or are gone, and those that came into a model's folder since."""
    changed = {name for name in recorded if recorded[name] != current.get(name)}
    return sorted(changed | {f"{name} (new)" for name in _later(recorded, current)})


def _later(recorded: Mapping[str, str], current: Mapping[str, str]) -> set[str]:
    """Files that decide what a model computes, or how text becomes tokens, beside a config.json that the run recorded: every
    version recorded these together, so that one without a digest was not there.
    """
    of_config = lambda key, name: f"{key.removesuffix(name)}{_CONFIG}"
    names = {key: re.split("[/ ]", key)[-1] for key in current.keys() - recorded.keys()}
    return {key for key, name in names.items() if name in NETWORK_FILES and of_config(key, name) in recorded}


def _several(names: str | Iterable[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _model_files(name: str) -> list[Path]:
    from jaxspec.models.embedded import SHIPPED_NAMES, embedded_directory, model_place  # loads all that networks need
    from jaxspec.models.gguf import is_gguf, split_files
    from jaxspec.models.medusa_heads import MEDUSA_FILES

    place = embedded_directory(name) if name in SHIPPED_NAMES else model_place(name)
    if is_gguf(place):
        return split_files(place)
    if not os.path.isdir(place):
        return [place]
    beside = {path for path in place.iterdir() if path.suffix in _BESIDE_WEIGHTS}
    heads = {path for name in MEDUSA_FILES if (path := place / name).is_file()}
    return sorted(beside | heads | {place / file for file in weight_files(place)})


# Whether the files that a run reads are still those that were digested.
#
# A network that is replaced between its digest and its loading would otherwise be recorded under the digest of the old
# one.


class _Mark(NamedTuple):
    """What a file's entry tells without reading it."""

    size: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> _Mark | None:
        """None where the file is gone."""
        try:
            status = path.stat()
        except OSError:
            return None
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


class InputWatch:
    """The files that a configuration names, watched from now on."""

    def __init__(self, config: Any, reporter: Reporter | None = None):
        """Args: reporter: see `input_digests`."""
        self._config, self._reporter = config, reporter
        self._digests: Mapping[str, str] = {}
        self._marks = self._seen()

    def digest(self) -> dict[str, str]:
        """See `input_digests`.

        Raises:
            InputError: a file has changed since this was made, or while it was read.
        """
        digests = input_digests(self._config, self._reporter)
        before, now = self._marks, self._seen()
        # Not by inodes, which some file systems make anew at every look; nothing but a second digest would tell then.
        known = lambda mark: mark and (mark.size, mark.modified_ns)
        if changed := [key for key, mark in now.items() if known(before.get(key, mark)) != known(mark)]:
            raise InputError(f"{_named(changed)} since this command began; run it again when nothing writes there")
        self._marks = now
        return digests

    def compare_with(self, digests: Mapping[str, str]) -> None:
        """Take the digests that the run records: files have them from now on."""
        self._digests = digests

    def check(self) -> None:
        """Look whether a file is another one; those that look so are read again, since a copy of the same is no change.

        Raises:
            InputError: one has another content, or is gone.
        """
        now = self._seen()
        if now == self._marks:
            return
        if changed := changed_inputs(self._digests, input_digests(self._config, self._reporter)):
            raise InputError(
                f"{_named(changed)} since this command took its digest, so that what it reads may be of either version; "
                "nothing of that is recorded: put the old version back, or give the new one a run of its own"
            )
        self._marks = now

    def _seen(self) -> dict[str, _Mark | None]:
        with contextlib.suppress(InputError):  # whoever loads the files says what is wrong with them
            return {key: _Mark.of(path) for key, path in input_files(self._config).items()}
        return {}


def _named(changed: list[str]) -> str:
    return f"{', '.join(changed)} {'has' if len(changed) == 1 else 'have'} changed"
