"""A run of a study that decodes a network: its loaded inputs, its stages and its prices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hwmodels import Case, write_trace
from jaxspec.compress.expert_pool import without_experts
from jaxspec.compress.schemes import Scheme, find_scheme
from jaxspec.compress.weights import target_network
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import load_model
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.mesh import make_mesh, on_mesh
from jaxspec.models.stored import as_computed, stored_dtypes
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.processes import ONE_PROCESS, Processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.settings import CommonConfig
from jaxspec.speculate.chunks import Prompts, chunk_size, padded
from jaxspec.speculate.sampling import Decoding
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs, window_tokens
from jaxspec.studies.measured.memory import plan_memory
from jaxspec.text import TextSplit
from jaxspec.tuning.calibration import target_params

#: Types that a target's values keep.
_NARROW = frozenset({"bfloat16", "float16"})


class Target(NamedTuple):
    """A network that drafts are made of and decoded with.

    Attributes:
        loaded: the checkpoint, its parameters in 16 bits where the run has them; those of `LoadedModel.exact` in float32.
        stored_as: types of the values in its files, but for those.
    """

    loaded: LoadedModel
    stored_as: frozenset[str]

    @property
    def wide(self) -> frozenset[str]:
        """Types of the values that were rounded to 16 bits."""
        return self.stored_as - _NARROW


def load_target(
    model: str, *, stream: bool = False, mesh: tuple[int, int] | None = None, codes: bool = False
) -> Target:
    """Read a network's weights.

    Args:
        model: name or path.
        stream: leave layers in host memory (see `Streamed`).
        mesh: devices along data and tensor; None: one device.
        codes: see `load_directory`.
    Raises:
        InputError: files that cannot be used.
    """
    loaded = load_model(model, stream=stream if mesh is None else "all", codes=codes)
    dtypes = frozenset(stored_dtypes(_without(loaded.params, loaded.exact)))
    params = target_params(loaded.params, exact=loaded.exact)
    if mesh is not None:
        params = on_mesh(params, loaded.config, make_mesh(*mesh))
    # The target's matrices are these very arrays, or are made of them where they are used.
    return Target(dataclasses.replace(loaded, params=params, rounded=bool(dtypes - _NARROW)), dtypes)


def _without(params: Params, exact: frozenset[tuple[str, ...]]) -> Params:
    """Parameters but for some."""
    left = {name: leaf for name, leaf in params.items() if (name,) not in exact}
    return left | {"layers": {name: leaf for name, leaf in params["layers"].items() if ("layers", name) not in exact}}


@dataclasses.dataclass(frozen=True)
class LoadedInputs:
    """A loaded network with its text, ready to be measured.

    Attributes:
        loaded: the checkpoint, its parameters in 16 bits where the run has them: drafts are made of it.
        stored: the target's parameters, as the scheme makes them of the checkpoint's in 16 bits.
        params: the same to decode with (see `as_computed`).
        prompts: int32 "prompt token", held-out prompts, each followed by zeros up to the longest one's length.
        prompt_lengths: " prompt", tokens of each.
        categories: of the held-out prompts, empty where a prompt has none.
        stop: tokens after which a held-out prompt's decoding ends, rising.
        calibration_prompts: int32 "count token", windows of calibration text.
        bytes_per_token: of the calibration text.
        notes: what the user should know about the input.
    """

    model_name: str
    loaded: LoadedModel
    config: DecoderConfig
    stored: Params
    params: Params
    text: TextSplit
    prompts: np.ndarray
    prompt_lengths: np.ndarray
    categories: tuple[str, ...]
    stop: tuple[int, ...]
    calibration_prompts: np.ndarray
    decoding: Decoding
    scheme: Scheme
    bytes_per_token: float
    notes: tuple[str, ...]


def load_inputs(
    config: CommonConfig,
    checked: CheckedInputs | None = None,
    *,
    stream: bool = False,
    mesh: tuple[int, int] | None = None,
) -> LoadedInputs:
    """Load what the configuration names.

    Args:
        checked: from `check_inputs`, which is called unless it is given.
        stream: leave layers in host memory (see `Streamed`).
        mesh: devices along data and tensor; None: one device.
    Raises:
        InputError: anything missing, malformed or too small.
    """
    checked = checked or check_inputs(config)
    text, window = checked.text, window_tokens(config)[0]
    target = load_target(config.model, stream=stream, mesh=mesh, codes=checked.network.in_codes)
    loaded, dtypes = target.loaded, target.stored_as
    notes = list(checked.notes)
    if wide := target.wide:
        others = f"; its {' and '.join(sorted(dtypes - wide))} values stay as they are" if dtypes - wide else ""
        notes.append(
            f"the checkpoint stores {', '.join(sorted(dtypes))}; target and draft have its {' and '.join(sorted(wide))} values "
            f"rounded to bfloat16{others}"
        )
    if loaded.packed:
        notes.append(
            f"the checkpoint stores matrices in {' and '.join(sorted(loaded.packed))}; they are run and priced as "
            + (
                "stored: codes and scales, of which each product makes the values that it multiplies"
                if loaded.config.in_codes
                else "the bfloat16 values that they stand for, so that AR as stored reads 16 bits too; in how many bits a "
                "lossless code stores such values says nothing about a network in 16 bits"
            )
        )
    scheme = find_scheme(config.scheme, runs=True).of_dtype(loaded.config.stored_dtype)
    stored = target_network(scheme, loaded.params)
    shape = _stored_shape(loaded.config, scheme)
    if not scheme.lossless:
        notes.append(
            f"the target is the network as {scheme.name} stores it; acceptance and losslessness are about that one"
        )
    if note := without_experts(config.model, scheme, loaded.config):
        notes.append(note)
    prompts, lengths = padded(checked.prompts)
    count, ahead = config.calibration_prompts, config.prompt_tokens
    calibration = text.calibration_windows(count, window, config.seed, ahead=ahead)
    notes += text.answers_note(count, window, ahead)
    sample = text.calibration[:4096]
    return LoadedInputs(
        model_name=config.model,
        loaded=loaded,
        config=shape,
        stored=stored,
        params=as_computed(stored),
        text=text,
        prompts=prompts,
        prompt_lengths=lengths,
        categories=checked.categories,
        stop=checked.stop,
        calibration_prompts=calibration,
        decoding=Decoding(
            greedy=config.temperature == 0, temperature=config.temperature, top_k=config.top_k, top_p=config.top_p
        ),
        scheme=scheme,
        bytes_per_token=checked.tokenizer.num_bytes(sample) / max(len(sample), 1),
        notes=tuple(notes),
    )


def stored_by(setup: LoadedInputs, scheme: Scheme) -> LoadedInputs:
    """The same network as another scheme stores it.

    Args:
        setup: of a lossless scheme, whose target is the uncompressed network.
    """
    assert setup.scheme.lossless, "what a scheme has changed, another cannot undo"
    scheme = scheme.of_dtype(setup.config.stored_dtype)
    stored = target_network(scheme, setup.stored)
    params = setup.params if scheme.lossless else as_computed(stored)
    return dataclasses.replace(
        setup, config=_stored_shape(setup.config, scheme), stored=stored, params=params, scheme=scheme
    )


def _stored_shape(config: DecoderConfig, scheme: Scheme) -> DecoderConfig:
    """The network's shape with the form in which the scheme's target keeps its KV cache."""
    return dataclasses.replace(config, shared_kv_exponents=scheme.facts.shared_exponents or config.shared_kv_exponents)


@dataclasses.dataclass(frozen=True, eq=False)
class RunContext:
    """What the stages of a begun run share: inputs, prices, storage and progress.

    Attributes:
        pricings: by device, in the order of the configuration.
        inputs: SHA-256 of every file that the configuration names.
    """

    config: CommonConfig
    setup: LoadedInputs
    stages: Stages
    reporter: Reporter
    pricings: dict[str, Case]
    inputs: dict[str, str]

    def asked(self, num_tokens: int, decoding: Decoding) -> Prompts:
        """The held-out prompts, to be decoded so far."""
        setup = self.setup
        return Prompts(setup.prompts, num_tokens, decoding, self.config.seed, setup.prompt_lengths, setup.stop)

    def bar(self, description: str, prompts: int) -> AbstractContextManager[Any]:
        """Progress over so many prompts, which advances by chunks of them."""
        return self.reporter.bar(description, prompts, step=chunk_size(prompts))


def write_gains(work: RunContext, path: Path, gains: Mapping[str, np.ndarray], tokens: np.ndarray) -> None:
    """Write the trace of held-out prompts for `--acceptance-trace`.

    All processes of a run call this, since they read the stages of its arguments together; the one that owns the files writes.

    Args:
        path: its folder is made where it does not exist.
        gains: drafter -> "text start", tokens that a cycle gains at each token that follows a prompt.
        tokens: " text", so many follow each.
    """
    if not work.stages.processes.owns:
        return
    setup, rows = work.setup, []
    for place, (count, prompt) in enumerate(zip(tokens.tolist(), setup.prompt_lengths.tolist(), strict=True)):
        dataset = {"dataset": setup.categories[place]} if setup.categories else {}
        row = {"request": str(place), "prompt_tokens": prompt, "generated_tokens": count, **dataset}
        rows.append(row | {name: np.rint(each[place, :count]).astype(int) for name, each in gains.items()})
    path.parent.mkdir(exist_ok=True)
    write_trace(path, rows)


def begin_run(
    config: CommonConfig,
    directory: RunDirectory,
    reporter: Reporter,
    checked: CheckedInputs | None = None,
    *,
    gradient_windows: int = 0,
    drafts: Sequence[str] | None = None,
    processes: Processes = ONE_PROCESS,
) -> RunContext:
    """Load all that a configuration names.

    Args:
        checked: from `check_inputs`, which is called unless it is given.
        gradient_windows: windows of calibration text in each gradient step; 0: there are no such steps.
        drafts: names of those that the run holds at the same time; None: the one of the configuration.
        processes: that do all of it together.
    Raises:
        InputError: bad input.
    """
    checked = checked or check_inputs(config)
    setup = load_within_memory(config, checked, reporter, gradient_windows=gradient_windows, drafts=drafts)
    stages = Stages(directory.checkpoints, processes, directory.check_inputs)
    return RunContext(config, setup, stages, reporter, checked.pricings, directory.inputs)


def load_within_memory(
    config: CommonConfig,
    checked: CheckedInputs,
    reporter: Reporter,
    *,
    gradient_windows: int = 0,
    drafts: Sequence[str] | None = None,
) -> LoadedInputs:
    """Print how much memory a network will need, then load it with its text. Arguments as for `begin_run`."""
    lengths = [len(prompt) for prompt in checked.prompts]
    memory = plan_memory(config, checked.network, lengths, gradient_windows=gradient_windows, drafts=drafts)
    reporter.line(memory.line)
    reporter.line(f"loading {config.model} ...")
    setup = load_inputs(config, checked, stream=memory.stream, mesh=memory.mesh)
    for note in setup.notes:
        reporter.line(f"note: {note}")
    return setup


def sampling_mode(decoding: Decoding) -> str:
    """How tokens are chosen, as names of stages have it."""
    return "greedy" if decoding.greedy else "sampled"
