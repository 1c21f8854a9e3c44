"""`jaxspec inspect`: what a container or a checkpoint is made of, tensor by tensor."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxspec.formats.container import SUFFIX, Container, StoredTensor, TensorForm
from jaxspec.formats.container.field_codec import field_counts
from jaxspec.formats.container.schemes import CODECS, drafted_bytes, packed_form
from jaxspec.formats.container.tensors import CHUNK_ELEMENTS, NAMED_FIELDS
from jaxspec.formats.entropy import counted_entropy_bits
from jaxspec.models.checkpoint_files import checkpoint_at
from jaxspec.models.embedded import model_place
from jaxspec.results import measured
from jaxspec.runs.progress import Reporter
from jaxspec.settings.coercion import as_path
from jaxspec.studies.pack.result import PackResult, TensorResult, WholeTensor

#: Option of a container whose weights a file had in fewer bits: the types that they were stored in.
DEQUANTIZED = "dequantized_from"


def inspect_file(path: str | Path, *, reporter: Reporter | None = None) -> PackResult:
    """Describe a container, or a checkpoint that could become one, with the entropies of every tensor.

    Returns:
        what `describe` says (of a checkpoint: what holds before packing), each tensor with its `entropy`.
    Raises:
        InputError: no such file, or a damaged one.
    """
    reporter = reporter or Reporter()
    path = as_path("path", path)
    path = str(model_place(path))
    if path.endswith(SUFFIX) and not os.path.isdir(path):
        with Container(path) as container:
            found = describe(container)
            tensors = []
            with reporter.bar(f"reading {Path(path).name}, tensors", len(container.tensors)) as bar:
                for tensor in found.tensors:
                    entropy = entropies(container.tensors[tensor.name].form, container.chunks(tensor.name))
                    tensors.append(dataclasses.replace(tensor, entropy=entropy))
                    bar.advance(tensor.name)
        return dataclasses.replace(found, tensors=tensors)
    checkpoint = checkpoint_at(Path(path))
    tensors = []
    pairs = list(checkpoint.tensors())
    with reporter.bar(f"reading {Path(path).name}, tensors", len(pairs)) as bar:
        for file, form in pairs:
            starts = range(0, form.elements, CHUNK_ELEMENTS)
            chunks = (file.read(form, first, min(CHUNK_ELEMENTS, form.elements - first)) for first in starts)
            tensors.append(TensorResult(**_form(form), entropy=entropies(form, chunks)))
            file.release()
            bar.advance(form.name)
    return PackResult(checkpoint=path, tensor_bytes=sum(tensor.bytes for tensor in tensors), tensors=tensors)


def describe(container: Container) -> PackResult:
    """A container from its directory alone.

    Returns:
        sizes in bytes and in bits per stored weight: `target_bits_per_weight` counts all sections of a tensor,
        `draft_bits_per_weight` the draft's; `ratio` is uncompressed over stored. `whole` says why a tensor is stored as it is
        (see `formats.container.Whole`), None where it is coded or the scheme codes nothing. Of weights that were stored in
        fewer bits before, no ratio is given.
    """
    known = DEQUANTIZED not in container.options
    tensors = [_stored(tensor, container.has_draft, ratio=known) for tensor in container.tensors.values()]
    total, stored = sum(tensor.bytes for tensor in tensors), sum(tensor.stored_bytes or 0 for tensor in tensors)
    elements = sum(tensor.elements for tensor in tensors)
    drafted = sum(tensor.draft_bytes or 0 for tensor in tensors)
    return PackResult(
        container=str(container.path),
        scheme=container.scheme,
        options=dict(container.options),
        lossless=container.lossless,
        file_bytes=container.path.stat().st_size,
        tensor_bytes=total,
        ratio=measured(_over(total, stored) if known else None),
        target_bits_per_weight=measured(_over(8 * stored, elements)),
        draft_bits_per_weight=measured(_over(8 * drafted, elements) if container.has_draft else None),
        tensors=tensors,
    )


def entropies(form: TensorForm, chunks: Iterable[np.ndarray]) -> dict[str, float] | None:
    """Shannon entropy of each named field in bits per value; None for dtypes without fields."""
    named = NAMED_FIELDS.get(form.dtype)
    if named is None or not form.elements:
        for _ in chunks:  # a container's checks are at the end of its chunks
            pass
        return None
    counts = field_counts(chunks, tuple(named.values()))
    return {name: counted_entropy_bits(count) for name, count in zip(named, counts)}


def _over(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator else None


def _form(form: TensorForm) -> dict[str, Any]:
    return {
        "name": form.name,
        "dtype": form.dtype,
        "shape": list(form.shape),
        "bytes": form.bytes,
        "elements": form.elements,
    }


def _stored(tensor: StoredTensor, has_draft: bool, *, ratio: bool) -> TensorResult:
    by_role = tensor.stored_bytes()
    stored = by_role.total()
    codec = CODECS[tensor.codec]
    drafted = drafted_bytes(tensor) if has_draft else None
    packed, elements = packed_form(tensor), tensor.form.elements
    return TensorResult(
        **_form(packed),
        unpacked_dtype=None if packed == tensor.form else tensor.form.dtype,
        codec=tensor.codec,
        sha256=tensor.sha256,
        stored_bytes=stored,
        draft_bytes=drafted,
        ratio=measured(_over(packed.bytes, stored) if ratio else None),
        target_bits_per_weight=measured(_over(8 * stored, elements)),
        draft_bits_per_weight=measured(None if drafted is None else _over(8 * drafted, elements)),
        bits_by_section={role: 8 * length / elements for role, length in sorted(by_role.items()) if elements},
        code_tables={
            what: {str(symbol): bits for symbol, bits in table.items()}
            for what, table in codec.code_tables(tensor.coding, tensor.form).items()
        },
        whole=None if tensor.whole is None else WholeTensor(**tensor.whole._asdict()),
    )
