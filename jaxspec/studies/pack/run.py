"""`jaxspec pack` and `jaxspec unpack`: from settings to a container and back, with progress and a summary."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from jaxspec.compress.expert_pool import without_experts
from jaxspec.compress.knob_files import knobs_of_result
from jaxspec.compress.schemes import SCHEMES
from jaxspec.errors import InputError
from jaxspec.formats.container import (
    WEIGHTS_SUFFIX,
    Container,
    TensorForm,
    check_container_output,
    codec_of,
    default_container,
    default_folder,
    pack,
    unpack,
    weight_notes,
)
from jaxspec.models.checkpoint_files import checkpoint_at
from jaxspec.models.embedded import model_place
from jaxspec.models.gguf import is_gguf, open_gguf
from jaxspec.models.layerwise import StoredNetwork, open_network
from jaxspec.output_places import check_file_place
from jaxspec.results import measured
from jaxspec.runs.memory import told_in_one_line
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect, notes
from jaxspec.settings.coercion import as_path
from jaxspec.settings.draft import PACKED_KNOBS
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.drafts.container_draft import knob_options
from jaxspec.studies.pack.config import RANKING, PackConfig
from jaxspec.studies.pack.division import (
    MatrixDivision,
    head_name,
    left_out,
    matrix_names,
    measured_norms,
    named_knobs,
    named_norms,
)
from jaxspec.studies.pack.inspection import DEQUANTIZED, describe
from jaxspec.studies.pack.provenance import of_other_weights
from jaxspec.studies.pack.result import PackResult, UnpackedFile, UnpackResult


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
    options = {"scheme": config.scheme}
    if is_gguf(source) and (types := open_gguf(source).quantized):
        options[DEQUANTIZED] = ", ".join(sorted(types))
        reporter.line(
            f"note: weights are the bfloat16 values that {options[DEQUANTIZED]} stand for; how well these compress says "
            "nothing about a 16-bit network, and no ratio is printed"
        )
    division = None
    if has_draft:
        with reporter.alive(), told_in_one_line(config):
            division, used = _division(config, source, [form for _, form in checkpoint.tensors()], reporter)
            if told := of_other_weights(config, reporter):
                reporter.line(f"note: {told}")
        facts = SCHEME_FACTS[config.scheme]
        own = {spec.name for spec in facts.knob_specs}
        unused = {"model", "scheme", *(set(PACKED_KNOBS) - own), *(() if facts.prunes else RANKING)}
        options |= {k: v for k, v in dataclasses.asdict(config).items() if k not in unused} | used
        # A container goes to other machines; the places of files on this one do not.
        options |= {key: _printable(Path(options[key]).name) for key in ("knobs", "text") if options.get(key)}
    started = time.perf_counter()
    total = sum(form.bytes for _, form in checkpoint.tensors())
    with reporter.bytes_bar(f"packing {source.name} ({config.scheme})", total) as advance, told_in_one_line(config):
        packed = pack(checkpoint, target, config.scheme, division=division, options=options, on_bytes=advance)
    with Container(target) as container:
        found = describe(container)
    if has_draft and all(tensor.codec == "raw" for tensor in found.tensors):
        reporter.line(
            f"note: {config.scheme} divides two-dimensional tensors of {' or '.join(codec_of(config.scheme).dtypes)} and "
            "found none; the draft is as large as the target"
        )
    seconds = {"pack": measured(time.perf_counter() - started)}
    return dataclasses.replace(found, timing_s=seconds, tensor_bytes=packed.tensor_bytes)


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


def _division(
    config: PackConfig, source: Path, forms: list[TensorForm], reporter: Reporter
) -> tuple[MatrixDivision, dict[str, Any]]:
    """What the draft keeps of tensors of these forms, and how that was decided."""
    scheme = SCHEMES[config.scheme]
    head, ranks = scheme.facts.head, scheme.facts.prunes
    alike = ranks and config.importance == "magnitude" and config.knobs is None and not head
    found = "" if alike else _network(source)
    model = None if isinstance(found, str) else found
    if model is None and head:
        raise InputError(
            f"scheme {config.scheme} divides the LM head, and which tensor that is only a network that can be run here tells: "
            f"{found}; use --scheme {scheme.facts.codec}, or correct that first"
        )
    if model is None and (config.importance == "wanda" or config.knobs is not None):
        asked, instead = "--importance wanda", "use --importance magnitude"
        if config.knobs is not None:
            asked, instead = "--knobs", f"leave --knobs out and {instead}"
        raise InputError(f"{asked} needs a network that can be run here: {found}; {instead}, or correct that first")
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
    prune, cut = left_out({name: getattr(config, name) for name in PACKED_KNOBS if name in own})
    division = MatrixDivision(float(prune), int(cut), knobs, {}, only, scheme, whose)
    division.check(forms)
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
        reporter.line(f"note: values are ranked by magnitude, as the network cannot be run here: {found}")
    elif model is None and not ranks:
        reporter.line(f"note: matrices are known by their names, as the network cannot be run here: {found}")
    if model is not None and (told := without_experts(config.model, scheme, model.config)):
        reporter.line(f"note: {told}")
    return dataclasses.replace(division, norms=norms), ({"importance": importance} if ranks else {}) | kept
