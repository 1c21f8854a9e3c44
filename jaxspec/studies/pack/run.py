"""`jaxspec pack` and `jaxspec unpack`: from settings to a container and back, with progress and a summary."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from jaxspec.compress.expert_pool import without_experts
from jaxspec.compress.knobs import knobs_of_result
from jaxspec.compress.schemes import SCHEMES
from jaxspec.errors import InputError
from jaxspec.formats.container import (
    SUFFIX,
    WEIGHTS_SUFFIX,
    Container,
    StoredTensor,
    TensorForm,
    check_container_output,
    codec_of,
    default_container,
    default_folder,
    pack,
    unpack,
    weight_notes,
)
from jaxspec.formats.container.field_codec import field_counts
from jaxspec.formats.container.opened import CODECS, drafted_bytes, packed_form
from jaxspec.formats.container.tensors import CHUNK_ELEMENTS, NAMED_FIELDS
from jaxspec.formats.fields import counted_entropy_bits
from jaxspec.models.checkpoint_files import checkpoint_at
from jaxspec.models.embedded import model_place
from jaxspec.models.gguf import is_gguf, open_gguf
from jaxspec.models.layerwise import StoredNetwork, open_network
from jaxspec.output_places import check_file_place
from jaxspec.results import measured
from jaxspec.runs.directory import is_run_directory
from jaxspec.runs.execute import out_of_memory_as_input_error
from jaxspec.runs.inputs import changed_inputs, input_digests
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import find_run
from jaxspec.settings import expect, notes
from jaxspec.settings.coercion import as_path
from jaxspec.settings.draft_kinds import packed_knobs
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.drafts.container_draft import knob_options
from jaxspec.studies.pack.config import RANKING, PackConfig
from jaxspec.studies.pack.draft_split import (
    MatrixSplit,
    head_name,
    left_out,
    matrix_names,
    measured_norms,
    named_knobs,
    named_norms,
)
from jaxspec.studies.pack.result import DEQUANTIZED, PackResult, TensorResult, UnpackedFile, UnpackResult, WholeTensor


def of_other_weights(config: PackConfig, reporter: Reporter) -> str | None:
    """What to tell where the run of `knobs` recorded digests of other weights; None where they are the same, or not known.

    Not refused: knobs that were tuned on a network may be meant for one that was trained on from it.

    Raises:
        InputError: the run's files are damaged.
    """
    if config.knobs is None or not is_run_directory(folder := Path(config.knobs).parent):
        return None
    weights = {name: digest for name, digest in find_run(folder).inputs.items() if _is_weights(name)}
    if not weights or not (changed := changed_inputs(weights, input_digests(config, reporter))):
        return None
    return (
        f"{', '.join(changed)} is not what run {str(folder)!r} was made with, or is gone; acceptance that it found is not "
        "this draft's"
    )


def _is_weights(name: str) -> bool:
    """Of the model's folder alone: keys of other networks have their folder before the name."""
    return name.endswith(WEIGHTS_SUFFIX) and os.path.basename(name) == name


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
            description = describe(container)
            tensors = []
            with reporter.bar(f"reading {Path(path).name}, tensors", len(container.tensors)) as bar:
                for tensor in description.tensors:
                    entropy = entropies(container.tensors[tensor.name].form, container.chunks(tensor.name))
                    tensors.append(dataclasses.replace(tensor, entropy=entropy))
                    bar.advance(tensor.name)
        return dataclasses.replace(description, tensors=tensors)
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
    total, options = sum(tensor.bytes for tensor in tensors), _dequantized(Path(path)) or None
    return PackResult(checkpoint=path, options=options, tensor_bytes=total, tensors=tensors)


def _dequantized(source: Path) -> dict[str, Any]:
    """What options say of a file whose weights are in blocks: they are read as the bfloat16 values that these stand for."""
    types = open_gguf(source).quantized if is_gguf(source) else ()
    return {DEQUANTIZED: ", ".join(sorted(types))} if types else {}


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


def pack_checkpoint(
    config: PackConfig, out: str | Path | None = None, *, force: bool = False, reporter: Reporter | None = None
) -> PackResult:
    """Pack a checkpoint.

    Args:
        out: the container; None is `<name of the model>.jspk` in the working directory (see `default_container`).
        force: replace a file that is there.
    Returns:
        what `describe` says of the container, its options, and how long it took.
    Raises:
        InputError: bad input; nothing is written then.
    """
    reporter = reporter or Reporter()
    expect(PackConfig, config)
    out = None if out is None else as_path("out", out)
    for note in notes(config):
        reporter.line(f"note: {note}")
    has_draft = SCHEME_FACTS[config.scheme].has_draft
    source = model_place(config.model)
    checkpoint = checkpoint_at(source)
    whole = not (is_gguf(source) or source.name.endswith(WEIGHTS_SUFFIX))
    for note in weight_notes(checkpoint.folder, packed=True) if whole else ():
        reporter.line(f"note: {note}")
    target = check_container_output(default_container(source) if out is None else out, checkpoint)
    if os.path.exists(target) and not (os.path.isfile(target) or os.path.isdir(target)):  # a device, a pipe
        raise InputError(f"container {str(target)!r} is there already and is not a file; give another place")
    check_file_place(target, "container", replace=force)
    # What the scheme or the importance does not use must not look as if it had been used.
    options = {"scheme": config.scheme} | _dequantized(source)
    if DEQUANTIZED in options:
        reporter.line(
            f"note: weights are the bfloat16 values that {options[DEQUANTIZED]} stand for; how well these compress says "
            "nothing about a 16-bit network, and no ratio is printed"
        )
    split = None
    if has_draft:
        with reporter.alive(), out_of_memory_as_input_error(config):
            split, used = _split(config, source, [form for _, form in checkpoint.tensors()], reporter)
            if warning := of_other_weights(config, reporter):
                reporter.line(f"note: {warning}")
        facts = SCHEME_FACTS[config.scheme]
        own = {spec.name for spec in facts.knob_specs}
        unused = {"model", "scheme", *(set(packed_knobs()) - own), *(() if facts.prunes else RANKING)}
        options |= {k: v for k, v in dataclasses.asdict(config).items() if k not in unused} | used
        # A container goes to other machines; the places of files on this one do not.
        options |= {key: _printable(Path(options[key]).name) for key in ("knobs", "text") if options.get(key)}
    started = time.perf_counter()
    total = sum(form.bytes for _, form in checkpoint.tensors())
    with (
        reporter.bytes_bar(f"packing {source.name} ({config.scheme})", total) as advance,
        out_of_memory_as_input_error(config),
    ):
        packed = pack(checkpoint, target, config.scheme, split=split, options=options, on_bytes=advance)
    with Container(target) as container:
        description = describe(container)
    if has_draft and all(tensor.codec == "raw" for tensor in description.tensors):
        reporter.line(
            f"note: {config.scheme} divides two-dimensional tensors of {' or '.join(codec_of(config.scheme).dtypes)} and "
            "found none; the draft is as large as the target"
        )
    seconds = {"pack": measured(time.perf_counter() - started)}
    return dataclasses.replace(description, timing_s=seconds, tensor_bytes=packed.tensor_bytes)


def unpack_container(
    path: str | Path, out: str | Path | None = None, *, force: bool = False, reporter: Reporter | None = None
) -> UnpackResult:
    """Unpack a container.

    Args:
        out: a folder, or a file for a container with one file of weights; None is the folder `NAME` of `NAME.jspk` in the
            working directory.
        force: replace files that are there.
    Returns:
        the files, their bytes, and how long it took.
    Raises:
        InputError: bad input; no file is left half-written.
    """
    reporter = reporter or Reporter()
    path, out = as_path("container", path), None if out is None else as_path("out", out)
    started = time.perf_counter()
    with Container(path) as container:
        total = sum(tensor.form.bytes for tensor in container.tensors.values())
        with reporter.bytes_bar(f"unpacking {Path(path).name}", total) as advance:
            files = unpack(
                container, default_folder(container.path) if out is None else Path(out), force=force, on_bytes=advance
            )
        if not container.lossless:
            reporter.line(
                f"note: scheme {container.scheme} is not lossless; these are the weights that its target computes with"
            )
        lossless = container.lossless
    return UnpackResult(
        container=str(path),
        lossless=lossless,
        files=[UnpackedFile(file=str(file), bytes=file.stat().st_size) for file in files],
        timing_s={"unpack": measured(time.perf_counter() - started)},
    )


def _printable(name: str) -> str:
    """A file name as a container may hold it: names on a disk need not be UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")


def _network(source: Path) -> StoredNetwork | str:
    """The checkpoint as a network, or why it cannot be run."""
    if is_gguf(source):
        return open_network(source)
    folder = source if source.is_dir() else source.parent
    if source.is_file() and source.name != "model.safetensors":
        return f"{source} is a file of weights alone, of no known family"
    if not (folder / "config.json").is_file():
        return f"{folder} has no config.json, so that its family is not known"
    try:
        return open_network(folder)
    except InputError as error:
        return str(error)


def _split(
    config: PackConfig, source: Path, forms: list[TensorForm], reporter: Reporter
) -> tuple[MatrixSplit, dict[str, Any]]:
    """What the draft keeps of tensors of these forms, and how that was decided."""
    scheme = SCHEMES[config.scheme]
    head, ranks = scheme.facts.head, scheme.facts.prunes
    alike = ranks and config.importance == "magnitude" and config.knobs is None and not head
    network = "" if alike else _network(source)
    model = None if isinstance(network, str) else network
    if model is None and head:
        raise InputError(
            f"scheme {config.scheme} divides the LM head, and which tensor that is only a network that can be run here tells: "
            f"{network}; use --scheme {scheme.facts.codec}, or correct that first"
        )
    if model is None and (config.importance == "wanda" or config.knobs is not None):
        asked, instead = "--importance wanda", "use --importance magnitude"
        if config.knobs is not None:
            asked, instead = "--knobs", f"leave --knobs out and {instead}"
        raise InputError(f"{asked} needs a network that can be run here: {network}; {instead}, or correct that first")
    importance = "magnitude" if model is None or config.importance == "magnitude" or not ranks else "wanda"
    norms, knobs, kept = {}, {}, {}
    if model is not None and config.knobs is not None:
        tuned = knobs_of_result(config.knobs, scheme, model.config)
        knobs, kept = named_knobs(model, tuned), knob_options(tuned)
    only = None if model is None else frozenset(matrix_names(model))
    whose = head_name(model) if model is not None and head else None
    if only is not None and whose is not None:
        only |= {whose}
        knobs = {whose: (config.head_prune, config.head_cut_bits)} | knobs
    own = {spec.name for spec in scheme.knob_specs}
    prune, cut = left_out({name: getattr(config, name) for name in packed_knobs() if name in own})
    split = MatrixSplit(float(prune), int(cut), knobs, {}, only, scheme, whose)
    split.check(forms)
    if model is not None and config.knobs is not None:
        norms = named_norms(model, config.knobs, head=head) if importance == "wanda" else {}
        if norms:
            reporter.line("note: values are ranked with the channel norms of the run")
    if model is not None and importance == "wanda" and not norms:
        reporter.line(f"measuring activations on {config.calibration_windows} windows of text ...")
        norms = measured_norms(
            model,
            config.text,
            num_windows=config.calibration_windows,
            window_tokens=config.window_tokens,
            seed=config.seed,
            head=head,
        )
    elif model is None and config.importance == "auto" and ranks:
        reporter.line(f"note: values are ranked by magnitude, as the network cannot be run here: {network}")
    elif model is None and not ranks:
        reporter.line(f"note: matrices are known by their names, as the network cannot be run here: {network}")
    if model is not None and (note := without_experts(config.model, scheme, model.config)):
        reporter.line(f"note: {note}")
    return dataclasses.replace(split, norms=norms), ({"importance": importance} if ranks else {}) | kept
