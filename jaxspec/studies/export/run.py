"""`jaxspec export` from end to end: open the run, make its draft again, decode with it as engines do, write the directory."""

from __future__ import annotations

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from hwmodels.networks import Running, running_row
from jaxspec.compress.knobs import Knobs, knobs_from_json
from jaxspec.compress.schemes.scheme import OwnKnobs
from jaxspec.compress.weights import HEAD, hard_head, knobs_of_matrix, rows_of
from jaxspec.errors import InputError, hint
from jaxspec.formats.shard_index import read_json_object
from jaxspec.models.config import LayerParameter, family_of
from jaxspec.models.gguf import is_gguf
from jaxspec.models.layer_files import SHARD_BYTES, LayeredTensors
from jaxspec.models.matrix import Matrix, stack_of
from jaxspec.partial_files import GGUF_SUFFIX, to_json
from jaxspec.results import measured
from jaxspec.results.network_results import Configuration, ConfigurationsResult
from jaxspec.runs.execute import out_of_memory_as_input_error
from jaxspec.runs.inputs import InputWatch, changed_inputs
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import RECORD, check_result_file, check_settings_file, read_object, versions
from jaxspec.runs.stages import Stages
from jaxspec.settings import CommonConfig, expect
from jaxspec.settings.base import build_config, read_layer
from jaxspec.settings.coercion import as_path, shown
from jaxspec.settings.draft_kinds import SELF, check_draft_name
from jaxspec.settings.fields import fields_of, key_of
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import NetworkDraft, ReadyDraft
from jaxspec.speculate.drafts.factory import kind_of
from jaxspec.studies.engine_flags import ServedDraft, engines_for
from jaxspec.studies.evaluate.run import evaluate_drafts
from jaxspec.studies.export.config import ExportConfig
from jaxspec.studies.export.forms import (
    TargetFiles,
    check_no_model_settings,
    decoded_alone,
    export_model,
    names_model,
    target_files,
)
from jaxspec.studies.export.readme import MANIFEST, TARGET, check_place, readme, write_directory
from jaxspec.studies.export.result import DecodedDraft, ExportResult
from jaxspec.studies.measured.checking import check_inputs
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.run_context import LoadedInputs, RunContext, load_within_memory
from jaxspec.studies.study import find_study
from jaxspec.studies.tune.run import tune_drafts

#: Command -> its configuration that is meant where none is named, and how its drafts are made.
_COMMANDS: dict[str, tuple[str, Callable[[Any, RunContext], HardDrafts]]] = {
    "tune": ("tuned", tune_drafts),
    "evaluate": ("given", evaluate_drafts),
}


#: The command whose runs have drafts of other kinds.
_TREE = "tree"


#: Numbers of a configuration that an export tells, or is made by.
_NEEDED = ("knobs", "draft_length", "bits_per_weight", "speedup_vs_bf16_ar")


#: Why the head of a tree's run cannot be exported.
_HEAD = (
    "a draft head of this form cannot be exported: it mixes token and hidden state by one matrix before its layer, while "
    "EAGLE-3 as vLLM's speculators store it attends to the two side by side and keeps the hidden state as the residual; "
    "missing is a head trained in that form"
)


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """One configuration of a finished run on one device.

    Attributes:
        path: run directory; `command` made it.
        result: of the device.
        inputs: SHA-256 of every file that the run's settings name, unchanged since.
        check_inputs: raises InputError where one of those files is another one by now.
    """

    path: Path
    command: str
    config: CommonConfig
    result: ConfigurationsResult
    configuration: str
    inputs: dict[str, str]
    check_inputs: Callable[[], None]

    @property
    def measured(self) -> Configuration:
        """Numbers of the configuration in the run's result."""
        return self.result.configurations[self.configuration]

    def drafts(self, scratch: Path, reporter: Reporter) -> HardDrafts:
        """Calibration text of the run and its drafts.

        Args:
            scratch: where stages are kept whose results the run directory has no longer: nothing is written into it.
        Raises:
            InputError: something that the run's settings name cannot be used.
        """
        kept = (self.path / "checkpoints").absolute()
        stages = Stages(kept if (kept / "stages" / "calibration_text").exists() else scratch)
        checked = check_inputs(self.config)
        setup = load_within_memory(self.config, checked, reporter)
        work = RunContext(self.config, setup, stages, reporter, checked.pricings, self.inputs)
        return _COMMANDS[self.command][1](self.config, work)

    def knobs(self, drafts: HardDrafts) -> Knobs:
        """The configuration's knobs.

        Raises:
            InputError: the result holds none that fit the network.
        """
        setup = drafts.work.setup
        return knobs_from_json(self.measured.knobs.known, setup.scheme, setup.config)


def open_run(path: str, *, configuration: str | None = None, device: str | None = None) -> FinishedRun:
    """Open a finished run.

    Args:
        configuration: of it; None: that which the run was made for.
        device: of it; None: the first.
    Raises:
        InputError: no run of a command whose draft can be exported, an unfinished one, one whose inputs changed, or an unknown
            configuration or device.
    """
    place = Path(path)
    if not os.path.isfile(place / "config.toml"):
        raise InputError(
            f"run {path!r} is no run directory (it has no config.toml); give one of `jaxspec tune` or `jaxspec evaluate`"
        )
    check_settings_file(place)
    check_result_file(place, read_object(place / RECORD))
    layer = read_layer(place / "config.toml")
    command = next((name for name in (*_COMMANDS, _TREE) if set(layer.values) <= _keys(name)), None)
    if command is None:
        raise InputError(f"run {path!r} has no draft to export; give a run of `jaxspec tune` or `jaxspec evaluate`")
    if command == _TREE:
        raise InputError(_about_tree(str(layer.values.get("draft", SELF))))
    config = build_config(find_study(command).config, layer)
    assert isinstance(config, CommonConfig)
    if not (place / "result.json").is_file():
        raise InputError(f"run {path!r} is not finished; run the same `jaxspec {command}` again, which resumes it")
    results = ConfigurationsResult.load(place / "result.json")
    if not any(result.configurations for result in results):
        raise InputError(f"{place / 'result.json'} holds no configurations; start the run anew with --force")
    result = _of_device(results, device)
    if not SCHEME_FACTS[config.scheme].has_draft:
        able = [name for name, facts in SCHEME_FACTS.items() if facts.runs and facts.has_draft]
        raise InputError(
            f"run {path!r} has no draft to export: of scheme {config.scheme} it is the target itself; export a run of one of "
            f"{', '.join(able)}"
        )
    wanted = configuration or _COMMANDS[command][0]
    if wanted not in result.configurations:
        raise InputError(f"configuration {shown(wanted)} is unknown{hint(wanted, sorted(result.configurations))}")
    for name in _NEEDED:
        if getattr(result.configurations[wanted], name).value is None:
            raise InputError(
                f"{place / 'result.json'} holds no {name} of {wanted}; run the same `jaxspec {command}` with --force"
            )
    watch = InputWatch(config)
    inputs = _same_inputs(place, watch)
    return FinishedRun(place, command, config, result, wanted, inputs, watch.check)


def _keys(command: str) -> set[str]:
    return {key_of(field) for field in fields_of(find_study(command).config)}


def _about_tree(draft: str) -> str:
    """Why the draft of a run of `jaxspec tree` is not exported, and what to do."""
    check_draft_name(draft)
    kind = kind_of(draft)
    if kind.calibrated:
        return "a run of `jaxspec tree` has no tuned chain; `jaxspec evaluate` its knobs, and export that run"
    if kind.directory == "head":
        return _HEAD
    if kind.directory:
        return f"draft {draft!r} is a network of its own; give its directory to the engine as it is"
    if kind.suffix:
        return f"draft {draft!r} lies in a container; `jaxspec evaluate` its knobs, and export that run"
    if draft != "ngram":
        return f"draft {draft!r} is made of the target where it runs, and has no files that an engine could read"
    return f"draft {draft!r} has no weights; engines that draft so have it built in: vLLM and SGLang call it ngram"


def _of_device(results: list[ConfigurationsResult], device: str | None) -> ConfigurationsResult:
    by_device = {str(result.device): result for result in results}
    wanted = device or next(iter(by_device))
    if wanted not in by_device:
        raise InputError(f"device {shown(wanted)} is none of the run's{hint(wanted, by_device)}")
    return by_device[wanted]


def _same_inputs(place: Path, watch: InputWatch) -> dict[str, str]:
    """Digests of the files that the settings name, which are those of the run."""
    digests = watch.digest()
    watch.compare_with(digests)
    if (place / "inputs.json").is_file():
        recorded = read_json_object(place / "inputs.json")
        if changed := changed_inputs(recorded, digests):
            raise InputError(
                f"{', '.join(changed)} has changed since run {str(place)!r} or is gone; export where its files are as they "
                "were, or run it again"
            )
    return digests


class TargetLayers:
    """Parameters of a run's target, which a scheme may have rounded; those of a layer when they are asked for.

    Attributes:
        config: of the network by itself.
        outside: parameters outside the layers.
    """

    def __init__(self, setup: LoadedInputs):
        self.config, self._stored = setup.config, setup.stored["layers"]
        self.outside = {name: stack_of(leaf).values() for name, leaf in setup.stored.items() if name != "layers"}
        # Compiled, as where the run decodes.
        self._made = jax.jit(lambda stack: stack.values())

    def stack(self, name: str, number: int) -> Matrix:
        """A parameter of one layer, not made yet."""
        return stack_of(self._stored[name]).take(jnp.asarray(self._parameter(name).before(number)))

    def dtype(self, name: str) -> np.dtype:
        """Number format of a parameter: that of its values, which it holds exactly."""
        if name in self.outside:
            return np.dtype(self.outside[name].dtype)
        return np.dtype(jax.eval_shape(self._made, self.stack(name, self.layer_with(name))).dtype)

    def layer_with(self, name: str) -> int:
        """The first layer that has a parameter."""
        return next(iter(self._parameter(name).layers()))

    def __call__(self, number: int) -> dict[str, Any]:
        """Parameters of one layer by name."""
        return {name: self.parameter(name, number) for name in self.names(number)}

    def names(self, number: int) -> list[str]:
        """Of the parameters that a layer has."""
        return [name for name, parameter in self.config.layer_parameters.items() if parameter.in_layer(number)]

    def parameter(self, name: str, number: int) -> Array:
        """A parameter of one layer."""
        return self._made(self.stack(name, number))

    def _parameter(self, name: str) -> LayerParameter:
        return self.config.layer_parameters[name]


class DraftLayers:
    """Parameters of a hard draft: matrices of its own, everything else of the target; members are those of `TargetLayers`.

    Attributes:
        config: of the draft by itself.
        outside: parameters outside the layers, the target's but for a head that the scheme compresses.
        weights, zeros: of the matrices that the scheme decides, of all layers made so far.
    """

    def __init__(self, target: TargetLayers, drafts: HardDrafts, knobs: Knobs):
        self._target, self._prepared, self._knobs = target, drafts.calibration.prepared, knobs
        self.config, self.outside = target.config, dict(target.outside)
        if knobs.scheme.facts.head:
            self.outside[HEAD] = stack_of(hard_head(drafts.work.setup.stored, self._prepared[HEAD], knobs)).values()
            self.config = dataclasses.replace(self.config, tie_embeddings=False)
        self.weights = self.zeros = 0

        def hard(kind: str, matrix: Matrix, statistics: Any, own: OwnKnobs) -> Array:
            values = matrix.values()
            return knobs.scheme.of_kind(kind).matrix.hard(rows_of(values), statistics, own).values.reshape(values.shape)

        self._hard = jax.jit(hard, static_argnums=0)

    def dtype(self, name: str) -> np.dtype:
        """See `TargetLayers`."""
        if name in self.outside:
            return np.dtype(self.outside[name].dtype)
        if name not in self._prepared:
            return self._target.dtype(name)
        made = jax.eval_shape(lambda: self._hard(name, *self._given(name, self._target.layer_with(name))))
        return np.dtype(made.dtype)

    def __call__(self, number: int) -> dict[str, Any]:
        """See `TargetLayers`."""
        return {
            name: self._matrix(name, number) if name in self._prepared else self._target.parameter(name, number)
            for name in self._target.names(number)
        }

    def _matrix(self, kind: str, number: int) -> Array:
        matrix = self._hard(kind, *self._given(kind, number))
        self.weights += matrix.size
        self.zeros += matrix.size - int(np.count_nonzero(np.asarray(matrix)))
        return matrix

    def _given(self, kind: str, number: int) -> tuple[Matrix, Any, OwnKnobs]:
        """What a matrix of one layer is made of."""
        own = knobs_of_matrix(self._knobs.values, self._knobs.scheme, self.config.matrix_kinds.index(kind))
        place = self.config.layer_parameters[kind].before(number)
        prepared = jax.tree.map(lambda leaf: leaf[place], self._prepared[kind])
        return self._target.stack(kind, number), prepared, jax.tree.map(lambda leaf: leaf[number], own)


def format_of_all(layers: TargetLayers | DraftLayers) -> np.dtype:
    """The narrowest number format that holds all matrices exactly; vectors do not count, which many releases have wider."""
    dtypes = [layers.dtype(kind) for kind in layers.config.matrix_kinds]
    dtypes += [layers.dtype(name) for name, value in layers.outside.items() if value.ndim > 1]
    return reduce(jnp.promote_types, dtypes)


def export_draft(
    config: ExportConfig, out: str | Path | None = None, *, force: bool = False, reporter: Reporter | None = None
) -> ExportResult:
    """Write the hard draft of a finished run as a Hugging Face directory, with the target in it where the scheme rounds that;
    or a model and its low-bit copy (see `export_model`).

    Args:
        out: the directory; None is `<name of the run>-<configuration>` in the working directory.
        force: replace an earlier export that is there.
    Raises:
        InputError: bad input, or an input file that changes meanwhile; nothing is written then.
    """
    reporter = reporter or Reporter()
    expect(ExportConfig, config)
    reporter.doing("opening the run")
    with reporter.alive(), out_of_memory_as_input_error(config):
        if names_model(config.run):
            return export_model(config, None if out is None else as_path("out", out), force=force, reporter=reporter)
        run = open_run(config.run, configuration=config.configuration, device=config.device)
        check_no_model_settings(config)
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
    asked = Prompts(
        wanted, work.config.output_tokens, setup.decoding, work.config.seed, setup.prompt_lengths[:prompts], setup.stop
    )
    return decoded_alone(setup.params, network, draft, asked, knobs.draft_length, work.reporter)


def _about(run: FinishedRun, files: TargetFiles, knobs: Knobs, place: Path) -> ExportResult:
    """What is known before anything is written."""
    configuration, result = run.measured, run.result
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
        draft_length=configuration.draft_length,
        bits_per_weight=configuration.bits_per_weight,
        speedup_vs_bf16_ar=configuration.speedup_vs_bf16_ar,
        compressed_kv=compressed,
        in_run=DecodedDraft(
            prompts=result.decoding.prompts,
            acceptance=configuration.acceptance,
            tokens_per_cycle=configuration.tokens_per_cycle_counted,
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
    row = running_row(family_of(files.config))
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


def _tensors(layers: TargetLayers | DraftLayers, row: Running) -> LayeredTensors:
    return LayeredTensors(layers.config, row, outside=layers.outside, layer=layers, dtype=layers.dtype)
