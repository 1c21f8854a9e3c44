"""Who takes part: from settings to entries that name a target, a draft and knobs, checked without reading weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int

from jaxspec.compress.knobs import Knobs, check_stored_dtype, knobs_of_result
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params
from jaxspec.models.embedded import ARITHMETIC_NAME, HEAD_NAME, NETWORK_NAMES, load_draft_head, load_model
from jaxspec.partial_files import read_json
from jaxspec.results import measured
from jaxspec.runs.stages import Arrays
from jaxspec.scaling.estimators import mean_and_error, rate_interval
from jaxspec.settings.compressions import COMPRESSIONS, LOSSY_NAMES, CompressionFacts
from jaxspec.settings.draft_kinds import SELF, draft_names
from jaxspec.settings.fields import fields_of
from jaxspec.settings.schemes import DEFAULT_SCHEME_NAME, SCHEME_FACTS
from jaxspec.speculate.chunks import Prompts, generated_tokens, padded
from jaxspec.speculate.drafts import check_draft
from jaxspec.speculate.proof import continue_texts
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.compare.config import NONE, CompareConfig, self_drafts, tuned_result
from jaxspec.studies.compare.result import DRAFT, SELF_DRAFT, TaskAccuracy
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs, given_knobs
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.inputs import Network, Problems, check_length, check_network, make_problems
from jaxspec.studies.tree.config import TreeConfig


@dataclasses.dataclass(frozen=True, eq=False)
class CheckedTask:
    """Problems, and the network that reads them.

    Attributes:
        settings: of the problems, as `jaxspec scale` has them.
        reader: prompts to tokens and back; its weights are not asked for.
    """

    settings: ScaleConfig
    problems: Problems
    reader: Network

    @cached_property
    def prompts(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens of the problems, "problem place", and how many each has."""
        return padded([self.reader.encoded(prompt) for prompt in self.problems.prompts])

    def written(
        self, params: Params, config: DecoderConfig, advance: Callable[[], None]
    ) -> Int[np.ndarray, "problem place"]:
        """What a network writes behind each problem, greedily: tokens, −1 behind the last.

        Args:
            config: with the form in which the network keeps its KV cache.
            advance: called after each chunk of problems.
        """
        prompts, lengths = self.prompts
        most = self.settings.most_tokens
        continued = continue_texts(
            params,
            config,
            Prompts(
                prompts,
                num_tokens=most,
                decoding=GREEDY,
                seed=self.settings.seed,
                lengths=lengths,
                stop=self.reader.stop(self.problems).tolist(),
            ),
            advance=advance,
        )
        return generated_tokens(continued["tokens"], lengths, continued["generated"], most)

    def right(self, written: Int[np.ndarray, "problem place"]) -> Arrays:
        """Which problems were answered rightly: `right`, " problem"."""
        answers = [[self._answer(number, row[row >= 0])] for number, row in enumerate(written)]
        return {"right": self.problems.right(range(len(answers)), answers)[:, 0]}

    def _answer(self, problem: int, tokens: np.ndarray) -> bytes:
        # What stands behind the end of an answer is no part of it; without an end, the whole is looked at.
        return self.reader.decoded(tokens[: self.reader.spent(self.problems, problem, tokens)])


def check_task(config: CompareConfig, checked: CheckedInputs) -> tuple[CheckedTask | None, str | None]:
    """The task of a run, and why there is none where nobody asked for one or for none.

    Raises:
        InputError: a task that was named, and the text or the network does not allow.
    """
    if config.task == NONE:
        return None, None
    task = config.task or ("arithmetic" if config.model == ARITHMETIC_NAME else "python")
    settings = ScaleConfig(model=(config.model,), task=task, prompts=config.problems, seed=config.seed)
    if task == "python":
        settings = dataclasses.replace(settings, text=config.text)
    try:
        problems = make_problems(settings, checked.text, checked.tokenizer)
        network = check_network(config.model, settings)
        check_length(network, settings, problems)
        return CheckedTask(settings, problems, network), None
    except InputError as error:
        if config.task is not None:
            raise
        return None, str(error)


def task_accuracy(right: Bool[np.ndarray, " problem"], plain: Bool[np.ndarray, " problem"]) -> TaskAccuracy:
    """Share of right answers with its 95 % interval, and how much that is above the 16-bit network's on the same problems.

    Args:
        right, plain: of two problems or more, of the network and of the 16-bit one.
    """
    share, of_plain = right.astype(np.float64), plain.astype(np.float64)
    low, high = rate_interval(share)
    return TaskAccuracy(
        accuracy=measured(float(share.mean())),
        low=measured(low),
        high=measured(high),
        change=measured(*mean_and_error(share - of_plain)),
    )


@dataclasses.dataclass(frozen=True)
class Entry:
    """A draft that takes part.

    Attributes:
        name: unlike the others'.
        kind: self-draft or draft.
        config: what makes its chain, as settings of a tree search.
        knobs: of a tuned self-draft; None: those of the settings.
    """

    name: str
    kind: str
    config: TreeConfig
    knobs: Knobs | None = None


@dataclasses.dataclass(frozen=True)
class CheckedComparison:
    """Everything that is known without weights.

    Attributes:
        compressions: names of those that take part.
        left_out: draft or compression that ships and does not fit -> why.
        task: problems that are answered, if any; no_task: why there are none, unless the settings say so.
    """

    inputs: CheckedInputs
    entries: tuple[Entry, ...]
    compressions: tuple[str, ...]
    left_out: dict[str, str]
    task: CheckedTask | None
    no_task: str | None

    @property
    def drafts(self) -> tuple[str, ...]:
        """Names of the drafts that the run holds; all self-drafts have the same."""
        return tuple(entry.config.draft for entry in self.entries)


def check_comparison(config: CompareConfig) -> CheckedComparison:
    """Read and check all that a configuration names.

    Raises:
        InputError: bad input; a draft, a compression or a task that was named and does not fit, a run without tuned knobs.
    """
    checked = check_inputs(config)
    drafts, left_out, notes = _drafts(config, checked.network)
    compressions, unfit = _compressions(config, checked.network)
    schemes = []
    for name in config.self_drafts:
        try:
            check_stored_dtype(find_scheme(name), checked.network)
            schemes.append(name)
        except InputError as error:
            if config.schemes != CompareConfig.schemes:
                raise
            left_out[name] = str(error)
    own = [Entry(name, SELF_DRAFT, _chain(config, SELF, scheme=name)) for name in schemes]
    for entry in own:
        given_knobs(entry.config, checked.network)
    entries = [
        *own,
        *_apart([_tuned(config, run, checked.network) for run in config.tuned or ()], config.tuned or ()),
        *(Entry(name, DRAFT, _chain(config, name)) for name in drafts),
    ]
    if not entries and not config.compressions:
        raise InputError("schemes, drafts and lossy are all none, and tuned is not given; there is nothing to compare")
    checked = dataclasses.replace(checked, notes=(*checked.notes, *notes))
    return CheckedComparison(checked, tuple(entries), compressions, left_out | unfit, *check_task(config, checked))


def _drafts(config: CompareConfig, network: DecoderConfig) -> tuple[list[str], dict[str, str], tuple[str, ...]]:
    """Names of the other drafts, and of those that ship and do not fit, with the reason; notes on those that fit.

    Drafts that are named must fit, which `check_inputs` sees to.
    """
    if config.drafts is not None:
        return list(config.named_drafts), {}, ()
    fitting, left_out, notes = [], {}, ()
    for name in draft_names():
        if name == SELF:
            continue
        try:
            notes += check_draft(name, network, config.model)
            if name == HEAD_NAME and config.model not in NETWORK_NAMES:
                # Of its target's widths, so a small network: only the weights can tell.
                load_draft_head(name, load_model(config.model, stream="all"))
            fitting.append(name)
        except InputError as error:
            left_out[name] = str(error)
    return fitting, left_out, notes


def _compressions(config: CompareConfig, network: DecoderConfig) -> tuple[tuple[str, ...], dict[str, str]]:
    """Names of the compressions, and of those that do not fit, with the reason. Those that are named must fit."""
    unfit = {
        name: f"{name} {reason}; leave it out of lossy"
        for name in config.compressions
        if (reason := _misfit(COMPRESSIONS.get(name), network))
    }
    if unfit and config.lossy != LOSSY_NAMES:
        raise InputError(next(iter(unfit.values())))
    return tuple(name for name in config.compressions if name not in unfit), unfit


def _misfit(facts: CompressionFacts | None, network: DecoderConfig) -> str | None:
    """Why a network cannot be compressed so; None: it can. Args: facts: None: of a scheme."""
    if network.in_codes:
        return "compresses 16-bit weights, and this network's are stored in codes of fewer bits (quantization_config)"
    if facts is None:
        return None
    if network.latent is not None and facts.inputs is not None:
        # Its products are taken with its projections or with what these make of the cache, whichever is cheaper.
        return (
            f"rounds activations to {facts.activation_bits} bits, which networks with latent attention do not support"
        )
    if network.latent is not None and facts.kv is not None:
        return f"rounds keys and values to {facts.kv.bits} bits, and networks with latent attention cache neither"
    if network.linear is not None and facts.inputs is not None:
        return (
            f"rounds activations to {facts.activation_bits} bits, which networks with linear attention do not support"
        )
    if network.linear is not None and facts.kv is not None:
        return f"rounds keys and values to {facts.kv.bits} bits, and layers with linear attention cache neither"
    if network.experts is not None and facts.spaces is not None:
        return "rotates inputs by what it finds in them, which mixtures of experts do not support"
    return None


def _chain(config: CompareConfig, draft: str, scheme: str = DEFAULT_SCHEME_NAME) -> TreeConfig:
    """Settings of a tree search whose trees are chains."""
    own = {spec.name for spec in SCHEME_FACTS[scheme].knob_specs} if draft == SELF else set()
    shared = {field.name for field in dataclasses.fields(config)}
    knobs = {spec.name for facts in SCHEME_FACTS.values() for spec in facts.knob_specs}
    given = {
        field.name: getattr(config, field.name)
        for field in fields_of(TreeConfig)
        if field.name in shared and (field.name not in knobs or field.name in own)
    }
    length = config.max_draft_length
    chains = {"draft": draft, "scheme": scheme, "search": "depth", "nodes": length, "depth": length}
    return TreeConfig(**given | chains | {"contexts": (config.context,)})


def _apart(entries: list[Entry], runs: tuple[str, ...]) -> list[Entry]:
    """Entries of tuned runs, with names of their own where several share a scheme."""
    names = [entry.name for entry in entries]
    return [
        entry if names.count(entry.name) == 1 else dataclasses.replace(entry, name=f"{entry.name} of {run}")
        for entry, run in zip(entries, runs, strict=True)
    ]


def _tuned(config: CompareConfig, run: str, network: DecoderConfig) -> Entry:
    """The tuned self-draft of a finished run."""
    result = tuned_result(run)
    try:
        first = read_json(result)[0]
        # Other commands name no scheme, or tune none of it.
        scheme = first["scheme"] if "tuned" in first["configurations"] else None
    except OSError as error:
        raise InputError(
            f"tuned {run!r} has no result ({error.strerror}); give the directory of a finished jaxspec tune"
        ) from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{result} is no result of jaxspec tune; give the directory of a finished one") from error
    if scheme is None:
        raise InputError(f"{result} has no tuned draft; give the directory of a finished jaxspec tune")
    if scheme not in self_drafts():
        raise InputError(
            f"{result} was tuned with scheme {scheme!r}, which has no draft; allowed are {', '.join(self_drafts())}"
        )
    knobs = knobs_of_result(str(result), find_scheme(scheme, runs=True), network)
    return Entry(f"tuned {scheme}", SELF_DRAFT, _chain(config, SELF, scheme), knobs)
