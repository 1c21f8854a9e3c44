"""Packs a checkpoint into a container, chunk by chunk, and proves each chunk before the next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from jaxspec.formats.container.codec import Chunk, Codec, Raw, Selection
from jaxspec.formats.container.schemes import Scheme
from jaxspec.formats.container.source import Checkpoint, SafetensorsFile
from jaxspec.formats.container.tensors import StoredTensor, TensorForm, chunk_elements
from jaxspec.formats.container.writer import ContainerWriter

__all__ = ["Division", "Packed", "pack"]


class Division(Protocol):
    """Which values of a matrix its draft keeps; asked only by schemes with a draft."""

    def selection(self, form: TensorForm) -> Selection | None:
        """How much of a tensor the draft reads; None: all of it, as it is."""
        ...

    def keep(self, form: TensorForm, rows: np.ndarray, kept_per_row: int) -> np.ndarray:
        """ "row column" True where a value is kept, `kept_per_row` times in each row; from patterns "row column"."""
        ...


class Packed(NamedTuple):
    """What packing made.

    Attributes:
        file_bytes: of the container.
        tensor_bytes: of the tensors as they were.
    """

    file_bytes: int
    tensor_bytes: int


def pack(
    checkpoint: Checkpoint,
    out: Path,
    scheme_name: str,
    scheme: Scheme,
    *,
    division: Division | None = None,
    options: dict[str, Any] | None = None,
    on_bytes: Callable[[int, str], None] = lambda count, name: None,
) -> Packed:
    """Write a container, whole or not at all.

    Tensors are read from a memory map and written in pieces, so that no tensor is ever held whole. Each piece is decoded
    again and compared before it counts as written.

    Args:
        division: for schemes with a draft.
        options: noted in the container.
        on_bytes: called after each piece with its bytes and its tensor's name.
    """
    entries: list[StoredTensor] = []
    chosen = division if scheme.has_draft else None
    with ContainerWriter(out) as writer:
        headers = {file.path: writer.add(file.header) for file in checkpoint.files}
        beside = {name: list(writer.add(content)) for name, content in checkpoint.beside.items()}
        for file, form in checkpoint.tensors():
            index = checkpoint.files.index(file)
            entries.append(_pack_tensor(writer, file, index, form, scheme.codec, chosen, on_bytes))
        directory = {
            "scheme": scheme_name,
            "options": options or {},
            "jaxspec": version("jaxspec"),
            "files": [{"name": file.path.name, "header": list(headers[file.path])} for file in checkpoint.files],
            "beside": beside,
            "tensors": [entry.listed() for entry in entries],
        }
        size = writer.finish(directory)
    return Packed(size, sum(entry.form.bytes for entry in entries))


def _pack_tensor(
    writer: ContainerWriter,
    file: SafetensorsFile,
    index: int,
    form: TensorForm,
    codec: Codec,
    division: Division | None,
    on_bytes: Callable[[int, str], None],
) -> StoredTensor:
    selection = division.selection(form) if division else None
    masks: dict[int, np.ndarray] = {}  # packed, for the second time that the chunks are asked for
    step = chunk_elements(codec.unit(form))

    def chunks() -> Iterator[Chunk]:
        for first in range(0, form.elements, step):
            patterns = file.read(form, first, min(step, form.elements - first))
            yield Chunk(patterns, _kept(form, patterns, first, division, selection, masks))
            file.release()

    coding = codec.plan(form, chunks, selection)
    if coding is None:
        codec, coding, selection = Raw(), {}, None
        step = chunk_elements(1)
    whole, draft, listed = hashlib.sha256(), hashlib.sha256(), []
    divided = False
    for chunk in chunks():
        sections = codec.encode(coding, form, chunk)
        listed.append({role: writer.add(content) for role, content in sections.items()})
        decoded, drafted = _proved(codec, coding, form, chunk, sections)
        whole.update(decoded.view(np.uint8).data)
        if drafted is not decoded:
            divided = True
            draft.update(drafted.view(np.uint8).data)
        on_bytes(chunk.patterns.nbytes, form.name)
    digests = whole.hexdigest(), (draft if divided else whole).hexdigest()
    return StoredTensor(form, index, *digests, codec.name, coding, step, listed)


def _kept(
    form: TensorForm,
    patterns: np.ndarray,
    first: int,
    division: Division | None,
    selection: Selection | None,
    masks: dict[int, np.ndarray],
) -> np.ndarray | None:
    if selection is None or division is None:
        return None
    if first not in masks:
        kept = division.keep(form, patterns.reshape(-1, form.columns), selection.kept_per_row)
        masks[first] = np.packbits(kept)
    return np.unpackbits(masks[first], count=patterns.size).astype(bool)


def _proved(
    codec: Codec, coding: dict[str, Any], form: TensorForm, chunk: Chunk, sections: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """What a reader will get from these sections: the target's patterns and the draft's."""
    stored = {role: content.tobytes() for role, content in sections.items()}
    decoded = np.ascontiguousarray(codec.decode(coding, form, chunk.patterns.size, stored))
    if codec.lossless and not np.array_equal(decoded, chunk.patterns):
        raise AssertionError(f"tensor {form.name!r} does not survive the codec {codec.name}; this is a bug in it")
    parts = {role: content for role, content in stored.items() if codec.part(role) == "draft"}
    if codec.decode == codec.draft:
        return decoded, decoded
    return decoded, np.ascontiguousarray(codec.draft(coding, form, chunk.patterns.size, parts))
