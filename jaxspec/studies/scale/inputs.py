"""What settings name, read and checked without reading weights."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from hwmodels import Architecture
from jaxspec.compress.knobs import check_stored_dtype
from jaxspec.compress.schemes import find_scheme
from jaxspec.errors import InputError
from jaxspec.models.architecture import architecture_of
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.embedded import check_model, model_place
from jaxspec.models.tokenizer import load_tokenizer
from jaxspec.scaling.verifiers import isolation
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.knobs import MAX_DRAFT_LENGTH
from jaxspec.settings.parallel import PARALLEL
from jaxspec.settings.schemes import SCHEME_FACTS
from jaxspec.speculate.drafts import check_draft
from jaxspec.speculate.drafts.making import is_searched
from jaxspec.studies.given_acceptance import GivenRates, given_rates
from jaxspec.studies.measured.checking import check_processes, given_mesh
from jaxspec.studies.measured.pricing import resolve_architecture, resolve_device, resolve_pricing
from jaxspec.studies.scale.config import ScaleConfig
from jaxspec.studies.scale.networks import Network, check_judge, check_length, check_network
from jaxspec.studies.scale.problems import Problems, make_problems
from jaxspec.text import TextSplit, check_text, load_text
from jaxspec.tuning.objective import Pricing

__all__ = ["Checked", "check_scale"]


class _Priced(NamedTuple):
    """What `resolve_pricing` reads."""

    architecture: str
    engine: str | None
    weight_format: str | None
    batch: int
    context: int
    prompt_tokens: int
    tensor_parallel: int
    expert_parallel: int
    data_parallel: int
    pipeline: int
    draft_tensor_parallel: int | None
    link: str | None


@dataclasses.dataclass(frozen=True)
class Checked:
    """What a configuration names, apart from weights.

    Attributes:
        pricings: by device, then by model.
        judge: architecture that a judge is priced with; None: none is asked.
        text: None where problems do not come from a text.
        notes: what the user should know about them.
        rates: acceptance, where it was given.
    """

    networks: dict[str, Network]
    problems: Problems
    pricings: dict[str, dict[str, Pricing]]
    judge: Architecture | None
    text: TextSplit | None
    notes: tuple[str, ...]
    rates: GivenRates | None


def check_scale(config: ScaleConfig) -> Checked:
    """Read and check all that a configuration names, what costs least first.

    Raises:
        InputError: anything missing, malformed or too small.
    """
    known = {name: given for name, given in config.priced.items() if given != "own"}
    # Names are resolved before any file is opened, so that a misspelt device costs nothing.
    for name in known.values():
        resolve_architecture(name, None)
    for device in config.device:
        resolve_device(device, engine=config.engine, weight_format=config.weight_format)
    isolated_by = isolation(unsafe=config.unsafe_run_code) if config.runs_code else None
    check_processes(config)
    given_mesh(config)
    rates = given_rates(config, longest=MAX_DRAFT_LENGTH)
    text = tokenizer = None
    if config.task == "python":
        check_text(config.text, (1, 1))
    shapes = {name: check_model(name) for name in config.model}
    tokens: tuple[str, ...] = ()
    for name, shape in shapes.items():
        if SCHEME_FACTS[config.scheme].runs:
            check_stored_dtype(find_scheme(config.scheme), shape)
        if config.draft != SELF:
            tokens += check_draft(config.draft, shape, name)
            if is_searched(config.draft):
                raise InputError(
                    f"draft {config.draft!r} is searched on calibration text, of which problems have none; give another draft"
                )
    judge = None if config.judging is None else check_judge(config.judging)
    first = config.model[0]
    if config.task == "python":
        tokenizer = load_tokenizer(model_place(first), vocab_size=shapes[first].vocab_size)
        text = load_text(config.text, tokenizer, needed=(1, 1), chat=load_chat_template(model_place(first)))
    problems = make_problems(config, text, tokenizer)
    networks = {name: check_network(name, config) for name in config.model}
    # What a draft is made for is told once.
    lengths = dict.fromkeys(note for network in networks.values() for note in check_length(network, config, problems))
    pricings = {
        device: {
            name: resolve_pricing(_priced(config, given), device, shapes[name]) for name, given in config.priced.items()
        }
        for device in config.device
    }
    return Checked(
        networks=networks,
        problems=problems,
        pricings=pricings,
        judge=None if judge is None else _judge_architecture(config, architecture_of(judge)),
        text=text,
        notes=(
            *(rates.notes if rates is not None else ()),
            *(text.notes if text is not None else ()),
            *_notes(config, networks, problems, isolated_by),
            *tokens,
            *lengths,
        ),
        rates=rates,
    )


def _priced(config: ScaleConfig, architecture: str) -> _Priced:
    kernels, sizes = (config.engine, config.weight_format), (config.batch, config.context, config.context)
    return _Priced(architecture, *kernels, *sizes, *(getattr(config, name) for name in PARALLEL))


def _judge_architecture(config: ScaleConfig, own: Architecture) -> Architecture:
    """A judge's own shapes where networks are priced with theirs, else those of the first network: a judge is as large."""
    name = next(iter(config.priced.values()))
    return own if name == "own" else resolve_architecture(name, None)


def _notes(config: ScaleConfig, networks: dict[str, Network], problems: Problems, isolated_by: str | None) -> list[str]:
    found = []
    if len(problems.prompts) < config.prompts:
        found.append(f"the text has {len(problems.prompts)} functions, of which all are problems")
    facts = SCHEME_FACTS[config.scheme]
    if any(network.changed for network in networks.values()):
        found.append(f"the network that answers is the one that {config.scheme} makes of the checkpoint")
    elif not facts.lossless:
        found.append(
            f"{config.scheme} changes the network and cannot run here: accuracy is that of the uncompressed one"
        )
    if isolated_by is not None:
        found.append("few functions have doctests; one without is not right")
        found.append(f"{isolated_by} isolates the code of samples")
    return found
