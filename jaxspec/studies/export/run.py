"""`jaxspec export` from end to end: open the run, make its draft again, decode with it as engines do, write the directory."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from hwmodels.catalog.huggingface import Running
from jaxspec.compress.knobs import Knobs
from jaxspec.files import GGUF_SUFFIX, to_json
from jaxspec.models.families import family_of, running
from jaxspec.models.gguf import is_gguf
from jaxspec.models.layer_files import SHARD_BYTES, LayeredTensors
from jaxspec.results import given, measured
from jaxspec.results.network_results import AcceptanceRates
from jaxspec.runs.memory import told_in_one_line
from jaxspec.runs.progress import Reporter
from jaxspec.runs.provenance import versions
from jaxspec.settings import expect
from jaxspec.settings.coercion import as_path
from jaxspec.speculate.drafts import NetworkDraft, ReadyDraft
from jaxspec.speculate.proof import decode_chains
from jaxspec.speculate.statistics import acceptance_rates
from jaxspec.studies.engine_flags import ServedDraft, engines_for
from jaxspec.studies.export.config import ExportConfig
from jaxspec.studies.export.directory import MANIFEST, TARGET, check_place, write_directory
from jaxspec.studies.export.finished import FinishedRun, open_run
from jaxspec.studies.export.readme import readme
from jaxspec.studies.export.result import DecodedDraft, ExportResult
from jaxspec.studies.export.source import TargetFiles, target_files
from jaxspec.studies.export.weights import DraftLayers, Layers, TargetLayers, format_of_all
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.trees.text_ratios import ratio_of_totals

__all__ = ["export_draft"]


def export_draft(
    config: ExportConfig, out: str | Path | None = None, *, force: bool = False, reporter: Reporter | None = None
) -> ExportResult:
    """Write the hard draft of a finished run as a Hugging Face directory, with the target in it where the scheme rounds that.

    Args:
        out: the directory; None is `<name of the run>-<configuration>` in the working directory.
        force: replace an earlier export that is there.
    Raises:
        InputError: bad input, or an input file that changes meanwhile; nothing is written then.
    """
    reporter = reporter or Reporter()
    expect(ExportConfig, config)
    reporter.doing("opening the run")
    with reporter.alive(), told_in_one_line(config):
        run = open_run(config.run, configuration=config.configuration, device=config.device)
        files = target_files(run.config.model)
        place = Path(f"{run.path.resolve().name}-{run.configuration}" if out is None else as_path("out", out))
        check_place(place, force=force, kept={"the run directory": run.path, "the target's folder": files.path})
        started = time.perf_counter()
        reporter.line(f"making the {run.configuration} draft of {run.path} for {run.result.device} again ...")
        with tempfile.TemporaryDirectory() as scratch:
            drafts = run.drafts(Path(scratch), reporter)
            run.check_inputs()
            knobs = run.knobs(drafts)
            alone = _decoded_alone(drafts, knobs, config.prompts)
            result = dataclasses.replace(_about(run, files, knobs, place), alone=alone)
            result = _write(place, run, files, drafts, knobs, result)
    seconds = {"export": measured(time.perf_counter() - started)}
    return dataclasses.replace(result, timing_s=seconds)


def _decoded_alone(drafts: HardDrafts, knobs: Knobs, prompts: int | None) -> DecodedDraft:
    """Held-out prompts decoded with the draft as a network of its own, as engines run it."""
    work = drafts.work
    setup, wanted = work.setup, work.setup.prompts[:prompts]
    if len(wanted) == 0:
        return DecodedDraft()
    # Engines keep no cache in blocks that share exponents: neither the target's nor the draft's.
    network = dataclasses.replace(setup.config, shared_kv_exponents=None)
    draft = ReadyDraft(NetworkDraft(network), drafts.params(knobs))
    with work.bar("decoding with the draft as engines run it", len(wanted)) as bar:
        counts = decode_chains(
            setup.params,
            network,
            draft,
            wanted,
            knobs.draft_length,
            num_tokens=work.config.output_tokens,
            decoding=setup.decoding,
            seed=work.config.seed,
            lengths=setup.prompt_lengths[:prompts],
            stop=setup.stop,
            advance=bar.advance,
        )
    rates: dict[str, Any] = acceptance_rates(
        counts["accepted_at"], counts["ended_at"], counts["cycles"], knobs.draft_length
    )
    ratio = ratio_of_totals(counts["generated"].astype(np.float64), counts["cycles"].astype(np.float64))
    return DecodedDraft(
        prompts=given(len(wanted)),
        acceptance=AcceptanceRates(**{name: measured(rate) for name, rate in rates.items()}),
        tokens_per_cycle=measured(float(ratio.mean), float(ratio.standard_error)),
    )


def _about(run: FinishedRun, files: TargetFiles, knobs: Knobs, place: Path) -> ExportResult:
    """What is known before anything is written."""
    found, result = run.found, run.result
    compressed = any(
        bool(np.any(np.asarray(knobs.values[s.name]))) for s in knobs.scheme.knob_specs if s.per == "layer"
    )
    return ExportResult(
        run=str(run.path),
        command=run.command,
        configuration=run.configuration,
        device=result.device,
        architecture=result.architecture,
        target=_target(files) if knobs.scheme.lossless else str(place.absolute() / TARGET),
        container=str(files.path) if files.packed and knobs.scheme.lossless else None,
        checkpoint=None if knobs.scheme.lossless else str(files.path),
        directory=str(place),
        scheme=result.scheme,
        draft_length=found.draft_length,
        bits_per_weight=found.bits_per_weight,
        speedup_vs_bf16_ar=found.speedup_vs_bf16_ar,
        compressed_kv=compressed,
        in_run=DecodedDraft(
            prompts=result.decoding.prompts,
            acceptance=found.acceptance,
            tokens_per_cycle=found.tokens_per_cycle_counted,
        ),
        versions=versions(),
    )


def _target(files: TargetFiles) -> str:
    """Where an engine finds the target."""
    path = files.path.absolute()
    if is_gguf(path):
        return str(Path.cwd() / f"{path.name.removesuffix(GGUF_SUFFIX)}-unpacked")
    return str(path.with_suffix("")) if files.packed else str(path)


def _write(
    place: Path, run: FinishedRun, files: TargetFiles, drafts: HardDrafts, knobs: Knobs, result: ExportResult
) -> ExportResult:
    """Write the directory."""
    target = TargetLayers(drafts.work.setup)
    draft = DraftLayers(target, drafts, knobs)
    own_head = draft.config.tie_embeddings != target.config.tie_embeddings
    row = running(family_of(files.config))
    networks = {"": _tensors(draft, row)}
    result = dataclasses.replace(result, dtype=str(format_of_all(draft)))
    beside = files.copied
    if result.checkpoint is not None:
        networks[TARGET] = _tensors(target, row)
        result = dataclasses.replace(result, target_dtype=str(format_of_all(target)))
        copied = files.copied | {"config.json": to_json(files.written_config(str(result.target_dtype))).encode()}
        beside = beside | {f"{TARGET}/{name}": content for name, content in copied.items()}
    engines = engines_for(
        str(result.target),
        ServedDraft("network", str(place.absolute())),
        knobs.draft_length,
        tokenizer=files.has_tokenizer,
        float32="float32" in (result.dtype, result.target_dtype) or bool(drafts.work.setup.loaded.exact),
    )
    made: list[ExportResult] = []

    def finish(weights: dict[str, int]) -> dict[str, bytes]:
        complete = dataclasses.replace(
            result,
            zero_share=measured(draft.zeros / draft.weights),
            engines={engine.title: engine.content for engine in engines},
        )
        others = beside | {f"engines/{engine.file}": engine.content.encode() for engine in engines}
        others["README.md"] = readme(complete, engines).encode()
        others["config.json"] = to_json(files.written_config(str(result.dtype), own_head=own_head)).encode()
        complete = dataclasses.replace(complete, files=weights | {name: len(text) for name, text in others.items()})
        made.append(complete)
        run.check_inputs()  # a streamed target is read while the files are written
        return others | {MANIFEST: to_json(complete.plain()).encode()}

    total = sum(form.bytes for tensors in networks.values() for form in tensors.forms)
    with drafts.work.reporter.bytes_bar(f"writing {place}", total) as advance:
        write_directory(place, networks, finish, shard_bytes=SHARD_BYTES, on_bytes=advance)
    return made[0]


def _tensors(layers: Layers, row: Running) -> LayeredTensors:
    return LayeredTensors(layers.config, row, outside=layers.outside, layer=layers, dtype=layers.dtype)
