"""What `jaxspec compare` measures: chains of every draft on its target, and what changed networks make of held-out prompts."""

from __future__ import annotations

import dataclasses
import math
import os
import time
from collections.abc import Callable
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from hwmodels import Footprint
from jaxspec.compress.fitted import CalibrationSample, fitted_config, fitted_footprint, fitted_network
from jaxspec.compress.knobs import knob_defaults
from jaxspec.compress.kv import stored_kv
from jaxspec.compress.schemes import find_scheme
from jaxspec.compress.weights import sum_of_squares
from jaxspec.models.blocks.interface import Attend
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, forward_text
from jaxspec.models.mesh import filled_rows, mesh_of, on_host, split_rows
from jaxspec.models.rounded_inputs import plane_partners
from jaxspec.models.stored import as_computed
from jaxspec.models.tokenizer import Tokenizer
from jaxspec.partial_files import part_of
from jaxspec.results import measured
from jaxspec.runs.progress import in_words
from jaxspec.runs.stages import Arrays
from jaxspec.settings.compressions import COMPRESSIONS
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.chunks import prompt_chunks
from jaxspec.speculate.drafts.factory import is_searched
from jaxspec.speculate.drafts.layer_skip_draft import num_searched
from jaxspec.speculate.measured_ranks import KeptTraces
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies.compare.config import CompareConfig
from jaxspec.studies.compare.entries import CheckedTask, Entry, task_accuracy
from jaxspec.studies.compare.result import Quality
from jaxspec.studies.measured.run_context import LoadedInputs, RunContext, stored_by
from jaxspec.studies.tree.stages import TreeStages, tree_stages
from jaxspec.trees.rank_traces import AATBySize, RankTraces, aat_by_size, ratio_of_totals

#: Seconds to compile one program, roughly, and programs of a draft and of a network that is read.
_COMPILING_S, _OF_DRAFT, _OF_NETWORK = 5.0, 4, 2

#: Tokens of a cycle, roughly, before any was counted.
_GAINED = 2.5

#: Rows of calibration text that a space for inputs is found with.
_SAMPLE = 128


def read_prompts_with(
    params: Params,
    config: DecoderConfig,
    prompts: Int[np.ndarray, "prompt token"],
    advance: Callable[[], None],
    attend: Attend | None = None,
) -> Arrays:
    """Nats of each token of the prompts but the first, and the likeliest token in its place; "prompt place".

    Args:
        config: with the form in which the network keeps its KV cache.
        advance: called after each chunk of prompts.
        attend: see `StepInput`.
    """
    parts: dict[str, list[np.ndarray]] = {"nats": [], "likeliest": []}
    for chunk in prompt_chunks(prompts, mesh_of(params)):
        nats, likeliest = on_host(_read(params, config, *split_rows(params, chunk.prompts), attend=attend))
        parts["nats"].append(np.asarray(nats)[: chunk.real])
        parts["likeliest"].append(np.asarray(likeliest)[: chunk.real])
        advance()
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


@partial(jax.jit, static_argnames=("config", "attend"))
def _read(
    params: Params, config: DecoderConfig, tokens: Int[Array, "batch token"], *, attend: Attend | None
) -> tuple[Float[Array, "batch place"], Int[Array, "batch place"]]:
    # A prompt of one token has nothing to predict, and a pass needs a token.
    logits = forward_text(params, config, tokens, kv_codec=stored_kv(config), attend=attend).logits[:, :-1]
    own = jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1)[..., 0]
    return -own, jnp.argmax(logits, axis=-1)


def quality_of(
    changed: Arrays, plain: Arrays, lengths: Int[np.ndarray, " prompt"], num_bytes: Int[np.ndarray, " prompt"]
) -> Quality:
    """Bits per byte and agreement, with standard errors over prompts; unknown where prompts have a single token.

    Args:
        arrays, plain: from `read_prompts_with`, of the network and of the 16-bit one.
        lengths: tokens of each prompt; what stands behind them is padding.
        num_bytes: of all tokens of each prompt but the first.
    """
    there = np.arange(1, changed["nats"].shape[1] + 1) < np.asarray(lengths)[:, None]
    if not there.any():
        return Quality()
    bits = np.sum(changed["nats"].astype(np.float64) * there, axis=1) / math.log(2)
    same = np.sum((changed["likeliest"] == plain["likeliest"]) & there, axis=1)
    per_byte = ratio_of_totals(bits, num_bytes.astype(np.float64))
    agreement = ratio_of_totals(same.astype(np.float64), there.sum(axis=1).astype(np.float64))
    return Quality(
        bits_per_byte=measured(float(per_byte.mean), float(per_byte.standard_error)),
        agreement=measured(float(agreement.mean), float(agreement.standard_error)),
    )


def channel_norms(
    params: Params, config: DecoderConfig, texts: Int[np.ndarray, "text token"], advance: Callable[[], None]
) -> dict[str, Float[np.ndarray, "layer column"]]:
    """L2 norm of what flows through each input channel over texts, by input group (see `INPUT_OF`); `advance` as above."""
    squares: dict[str, Any] = {}
    for chunk in prompt_chunks(texts):
        # A chunk is filled up with further copies of texts, which do not count.
        tokens, counted = filled_rows(mesh_of(params), chunk.prompts[: chunk.real])
        given = split_rows(params, tokens, *(() if counted is None else (counted,)))
        squared = on_host(_squares(params, config, *given))
        squares = {name: squares.get(name, 0.0) + np.asarray(value, np.float64) for name, value in squared.items()}
        advance()
    return {name: np.sqrt(value).astype(np.float32) for name, value in squares.items()}


@partial(jax.jit, static_argnames="config")
def _squares(
    params: Params,
    config: DecoderConfig,
    tokens: Int[Array, "batch token"],
    counted: Float[Array, " batch"] | None = None,
) -> dict[str, Array]:
    squares = partial(sum_of_squares, counted=counted)
    options = {"kv_codec": stored_kv(config), "keep_activations": squares, "logits_from": tokens.shape[1]}
    activations = forward_text(params, config, tokens, **options).activations
    assert activations is not None
    return activations


def calibration_sample(
    params: Params, config: DecoderConfig, texts: Int[np.ndarray, "text token"]
) -> CalibrationSample:
    """Rows at even distances out of the first texts, as many as are read together, and the largest sizes of their keys.

    Args:
        config: of a network without latent attention.
    """
    first = prompt_chunks(texts)[0]
    (tokens,) = split_rows(params, filled_rows(mesh_of(params), first.prompts[: first.real])[0])
    inputs, largest = on_host(_sampled(params, config, tokens, first.real))
    return CalibrationSample(inputs, np.maximum(largest, largest[..., plane_partners(config)]))


@partial(jax.jit, static_argnames=("config", "texts"))
def _sampled(
    params: Params, config: DecoderConfig, tokens: Int[Array, "batch token"], texts: int
) -> tuple[dict[str, Array], Float[Array, "layer head element"]]:
    # Behind so many texts stand copies of the last one, which change no largest key.
    def rows(inputs: Array) -> Array:
        flat = inputs[:texts].reshape(-1, inputs.shape[-1])  # of experts as many for each token as it chooses
        places = np.linspace(0, len(flat) - 1, min(_SAMPLE, len(flat))).astype(np.int32)
        return flat[places].astype(jnp.float32)

    options = {"kv_codec": stored_kv(config), "keep_activations": rows, "logits_from": tokens.shape[1]}
    forwarded = forward_text(params, config, tokens, **options)
    assert forwarded.activations is not None
    return forwarded.activations, jnp.max(jnp.abs(forwarded.cache.key), axis=(1, 4)).astype(jnp.float32)


@dataclasses.dataclass(frozen=True, eq=False)
class Drafted:
    """One draft of a run.

    Attributes:
        stages: of trees that are chains, on its own target.
    """

    entry: Entry
    stages: TreeStages

    @property
    def setup(self) -> LoadedInputs:
        """Its target with the prompts that all share."""
        return self.stages.work.setup

    def gained(self, traces: RankTraces) -> AATBySize:
        """Tokens per cycle of chains of 1, 2, ... drafted tokens."""
        return aat_by_size(self.stages.growth, traces, num_tokens=self.stages.config.output_tokens)

    @cached_property
    def on_calibration_text(self) -> AATBySize:
        """The calibration text, where lengths are chosen."""
        return self.gained(self.stages.calibration_traces)

    @cached_property
    def on_held_out_text(self) -> AATBySize | None:
        """Looked at afterwards; None of a draft that depends on earlier cycles, which is followed along the cycles it has."""
        return None if self.stages.follows_cycles else self.gained(self.stages.traces)


def begin_drafts(work: RunContext, entries: tuple[Entry, ...]) -> list[Drafted]:
    """The drafts of a run, each with the target that its scheme makes; those that need no text are loaded.

    Raises:
        InputError: see `make_draft`.
    """
    drafts, kept = [], KeptTraces()
    for entry, folder in zip(entries, _folders([entry.name for entry in entries]), strict=True):
        config = entry.config
        setup = stored_by(work.setup, find_scheme(config.scheme, runs=True))
        own = dataclasses.replace(work, config=config, setup=setup, stages=work.stages.within(folder))
        # Drafts on one target share its text, and what it decodes alone.
        name = "16-bit" if SCHEME_FACTS[config.scheme].lossless else config.scheme
        target = work.stages.within(f"targets/{name}")
        drafts.append(Drafted(entry, tree_stages(config, own, entry.knobs, target, (kept, name))))
    return drafts


def _folders(names: list[str]) -> list[str]:
    """Where the stages of each draft lie: no two in one folder, or the second would be given what the first one measured."""
    folders: list[str] = []
    for name in names:
        folder = part_of(name.replace("/", "_"))
        while folder in (os.curdir, os.pardir, *folders):
            folder += "_"
        folders.append(folder)
    return folders


class _Read(NamedTuple):
    """What a network makes of the held-out prompts, and which problems it answers rightly."""

    scores: Arrays
    right: np.ndarray | None


@dataclasses.dataclass(frozen=True, eq=False)
class CompareStages:
    """All that a run measures.

    Attributes:
        work: on the 16-bit network.
        compressions: names of those that take part.
        task: problems that every network answers.
    """

    config: CompareConfig
    work: RunContext
    drafts: list[Drafted]
    compressions: tuple[str, ...]
    tokenizer: Tokenizer
    task: CheckedTask | None = None
    _spaces: dict[tuple[str, ...], Any] = dataclasses.field(default_factory=dict)  # that compressions share

    def quality_of_scheme(self, scheme: str) -> Quality:
        """Of a scheme's target."""
        if SCHEME_FACTS[scheme].lossless:
            return self._quality(self._plain)
        setup = stored_by(self.work.setup, find_scheme(scheme, runs=True))
        return self._quality(self._read_with(scheme, setup.config, lambda: setup.params))

    def quality_of_compression(self, name: str) -> Quality:
        """Of a network in a lossy compression, fitted or a scheme."""
        if name not in COMPRESSIONS:
            return self.quality_of_scheme(name)
        config = fitted_config(name, self.work.setup.config)
        return self._quality(self._read_with(name, config, lambda: self._fitted(name)))

    def _quality(self, read: _Read) -> Quality:
        quality = quality_of(read.scores, self._plain.scores, self.work.setup.prompt_lengths, self._num_bytes)
        if read.right is None or self._plain.right is None:
            return quality
        return dataclasses.replace(quality, task=task_accuracy(read.right, self._plain.right))

    @cached_property
    def _plain(self) -> _Read:
        """Of the 16-bit network."""
        setup = self.work.setup
        return self._read_with("16-bit", setup.config, lambda: setup.params)

    def _read_with(self, name: str, config: DecoderConfig, params: Callable[[], Params]) -> _Read:
        # Either stage may be done already: a network is made when one of them needs it, and once.
        params = cache(params)
        return _Read(self._scores(name, config, params), self._right(name, config, params))

    def _right(self, name: str, config: DecoderConfig, params: Callable[[], Params]) -> np.ndarray | None:
        """Which problems a network answers rightly; None where there are none."""
        task = self.task
        if task is None:
            return None

        def compute() -> Arrays:
            with self.work.bar(f"answering the problems with {name}", len(task.problems.prompts)) as bar:
                written = task.written(params(), config, bar.advance)
            return self.work.stages.processes.run_on_rank0(lambda: task.right(written))

        return self.work.stages.run(f"answered/{name}", compute)["right"]

    def _scores(self, name: str, config: DecoderConfig, params: Callable[[], Params]) -> Arrays:
        prompts = self.work.setup.prompts

        def compute() -> Arrays:
            with self.work.bar(f"reading the prompts with {name}", len(prompts)) as bar:
                return read_prompts_with(params(), config, prompts, bar.advance)

        return self.work.stages.run(f"read/{name}", compute)

    @cached_property
    def _num_bytes(self) -> np.ndarray:
        """Of all tokens of each prompt but the first."""
        setup = self.work.setup
        rows = zip(setup.prompts, setup.prompt_lengths, strict=True)
        return np.array([self.tokenizer.num_bytes(row[:length], behind=1) for row, length in rows], np.int64)

    def _fitted(self, name: str) -> Params:
        sample = self._sample if COMPRESSIONS[name].needs_sample else None
        return as_computed(fitted_network(name, self.work.setup.stored, self._norms, sample, self._spaces))

    @cached_property
    def _sample(self) -> CalibrationSample:
        setup = self.work.setup
        return calibration_sample(setup.params, setup.config, setup.calibration_prompts)

    @cached_property
    def _norms(self) -> Arrays:
        setup = self.work.setup

        def compute() -> Arrays:
            with self.work.bar("norms of the channels", len(setup.calibration_prompts)) as bar:
                return channel_norms(setup.params, setup.config, setup.calibration_prompts, bar.advance)

        return self.work.stages.run("channel_norms", compute)

    @staticmethod
    def footprint_of_compression(name: str, head_elements: float) -> Footprint:
        """Bits that reading a network in a lossy compression takes.

        Args:
            head_elements: of a head's key or value in the architecture that is priced.
        """
        if name in COMPRESSIONS:
            return fitted_footprint(name, head_elements)
        scheme = find_scheme(name)
        return scheme.expected_footprint(knob_defaults(scheme))


def announced(stages: CompareStages) -> list[str]:
    """What a run is going to do, and about how long that takes here, for the first lines of its progress."""
    setup, config, task = stages.work.setup, stages.config, stages.task
    lossless = lambda scheme: SCHEME_FACTS[scheme].lossless
    schemes = {drafted.entry.config.scheme for drafted in stages.drafts}
    changed = {scheme for scheme in schemes if not lossless(scheme)}
    networks = 1 + len(changed | {name for name in stages.compressions if name in COMPRESSIONS or not lossless(name)})
    prompts, texts = len(setup.prompts), len(setup.calibration_prompts)
    room = continuation_length(config.output_tokens)
    # Rows that pass through a network of this size: of targets, of drafts on them, and of networks that are read.
    read = prompts * (setup.prompts.shape[1] + room) + texts * (config.prompt_tokens + room)
    length, cycles = config.max_draft_length, prompts * config.output_tokens / _GAINED
    rows = (len(changed) + any(map(lossless, schemes))) * read
    for drafted in stages.drafts:
        name = drafted.entry.config.draft
        proposes, searched = 0.0 if name == "ngram" else 1.0, is_searched(name)
        rows += read + cycles * (length + 1) + proposes * length * (cycles + (prompts + texts) * config.output_tokens)
        if searched:
            rows += 2 * texts * room * num_searched(setup.config)
        else:
            rows += float(drafted.stages.cost_here.lookahead_tokens) * (2 * cycles + texts * config.output_tokens)
    problems, tokens = (0, 0) if task is None else (len(task.problems.prompts), task.settings.most_tokens)
    answers = networks * problems * (config.prompt_tokens + tokens)
    rows += networks * prompts * setup.prompts.shape[1] + answers
    programs = _OF_DRAFT * len(stages.drafts) + _OF_NETWORK * networks
    row_s = _seconds_of_a_row(setup.config, prompts)
    seconds = rows * row_s + programs * _COMPILING_S
    beside = f"; problems take {in_words(answers * row_s)} of it, --task none leaves them out" if problems else ""
    names = ", ".join(drafted.entry.name for drafted in stages.drafts) or "none"
    return [
        f"drafts: {names}; networks that are read: {networks}, each answering {problems} problems of up to {tokens} tokens",
        f"{prompts} held-out prompts of {setup.prompts.shape[1]} tokens, {config.output_tokens} decoded for each, "
        f"{texts} calibration prompts: about {in_words(seconds)} on this machine as busy as it is (estimated){beside}",
    ]


def _seconds_of_a_row(shape: DecoderConfig, rows: int) -> float:
    """Of one token through all matrices, by a product of the network's own width that is timed here."""
    inputs, matrix = jnp.ones((rows, shape.hidden_size)), jnp.ones((shape.hidden_size, 8 * shape.hidden_size))
    product = jax.jit(jnp.matmul)
    jax.block_until_ready(product(inputs, matrix))
    began = time.perf_counter()
    for _ in range(5):
        jax.block_until_ready(product(inputs, matrix))
    return (time.perf_counter() - began) / (5 * rows * matrix.size) * shape.num_parameters()
