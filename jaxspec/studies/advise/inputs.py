"""What a configuration of `jaxspec advise` names: the draft, its acceptance, measured kernels, and an engine's weights."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from hwmodels import (
    ALL_LAYER_MATRICES,
    EXPERT_MATRICES,
    Architecture,
    Case,
    Device,
    DraftCost,
    Footprint,
    Workload,
    catalog,
    uniform_footprint,
)
from hwmodels.analysis.uncertainty.cycle_errors import conditional_errors
from hwmodels.compute.vector_tile_kernels import VectorTileKernels
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.scalars import Leaf
from hwmodels.speculation.draft_cost import EAGLE3_VOCABULARY, block_head, eagle_head, medusa_head, multi_token_head
from jaxspec.errors import InputError, hint
from jaxspec.models.gguf import gguf_in, is_gguf
from jaxspec.partial_files import read_json
from jaxspec.results.records import Status
from jaxspec.settings import CommonConfig, build_config
from jaxspec.settings.common import PARALLEL, ParallelSettings
from jaxspec.settings.draft_kinds import SELF
from jaxspec.settings.schemes import RELEASED, scheme_facts
from jaxspec.studies.advise.config import HEADS, LOOKUP, AdviseConfig
from jaxspec.studies.config_files import head_in_file
from jaxspec.studies.engine_flags import ServedDraft
from jaxspec.studies.engine_pricing import copy_by_scheme, with_expert_bits
from jaxspec.studies.given_acceptance import given_rates, known_acceptance
from jaxspec.studies.measured.pricing import longest_text, resolve_architecture, resolve_draft, resolve_pricing
from jaxspec.studies.predict.config import BLOCK, PredictConfig
from jaxspec.studies.release import priced_form, scheme_footprint, stored_form

#: Configurations of a run, the first of which that it has is taken.
_CONFIGURATIONS = ("tuned", "given")


@dataclasses.dataclass(frozen=True, eq=False)
class DraftAcceptance:
    """Acceptance of a chain.

    Attributes:
        conditional: "position".
        error: "position cause", a factor of its covariance; 0 where nothing is known.
        status: "input" or "measured".
        source: where it comes from, in words.
        notes: what a user should know of it.
    """

    conditional: Float[np.ndarray, " position"]
    error: Float[np.ndarray, "position cause"]
    status: Status
    source: str
    notes: tuple[str, ...] = ()


def draft_acceptance(config: AdviseConfig) -> DraftAcceptance:
    """The acceptance that a configuration means.

    Raises:
        InputError: a run without it, or a kind of draft of which none is published.
    """
    if config.run is not None:
        return _counted(config, config.run)
    if (given := given_rates(config, longest=config.max_draft_length)) is None:
        return _published(config)
    chances = np.asarray(given.of_positions(config.max_draft_length), np.float64)
    if given.error is not None:
        return DraftAcceptance(chances, given.error, "input", given.source, given.notes)
    if given.cycles is None:
        return DraftAcceptance(chances, np.zeros((chances.size, 1)), "input", given.source, given.notes)
    error = np.diag(np.asarray(conditional_errors(chances, given.cycles), np.float64))
    source = f"{given.source}, counted over {given.cycles:,.0f} cycles"
    return DraftAcceptance(chances, error, "input", given.source if config.acceptance_log else source, given.notes)


def of_another_draft(config: AdviseConfig) -> tuple[str, ...]:
    """What is said where a run counted the acceptance of another draft than the one that is priced."""
    if config.run is None or config.draft == SELF or "contestants" in _result_of(config.run):
        return ()
    return (
        f"the acceptance of {config.run} is that of the target's compressed copy, which evaluate and tune measure, and the "
        f"price is that of {config.draft}; --draft {SELF} prices the copy, --acceptance gives that of another draft",
    )


def _published(config: AdviseConfig) -> DraftAcceptance:
    known, length = known_acceptance(config.kind, config.scheme), config.max_draft_length
    # One cause: a workload that is easier for a draft is so at every position.
    return DraftAcceptance(
        np.full(length, known.alpha_token), np.full((length, 1), known.deviation), known.status, known.source
    )


#: Runs that hold an acceptance by position.
_RUNS = "give a finished run of evaluate, tune or compare"


def _result_of(path: str) -> Mapping[str, Any]:
    """What a run says of its first device.

    Raises:
        InputError: it cannot be read.
    """
    file = Path(path) / "result.json" if os.path.isdir(path) else Path(path)
    try:
        raw = read_json(file)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"run {path!r} cannot be read ({getattr(error, 'strerror', error)}); {_RUNS}") from error
    except ValueError as error:
        raise InputError(f"{str(file)!r} is not valid JSON ({error}); give a result.json") from error
    first = raw[0] if isinstance(raw, list) and raw else raw
    return first if isinstance(first, Mapping) else {}


def _counted(config: AdviseConfig, path: str) -> DraftAcceptance:
    """Of the tuned or given draft, or of the one that is priced among those that were compared."""
    result = _result_of(path)
    what = "configuration" if "contestants" not in result else "draft"
    counts = result.get("contestants", result.get("configurations"))
    counts = counts if isinstance(counts, Mapping) else {}
    # A draft is called as in the comparison, a compressed copy by its scheme, a folder by any path to it.
    draft = os.path.abspath(config.draft) if os.path.exists(config.draft) else None
    named = {config.scheme if config.draft == SELF else config.draft} | (
        {name for name in counts if os.path.abspath(name) == draft} if draft else set()
    )
    name = next((name for name in (_CONFIGURATIONS if what == "configuration" else named) if name in counts), None)
    try:
        if name is None:
            has = "no configuration that tune or evaluate writes"
            raise TypeError(
                has if what == "configuration" else f"of the draft it is {', '.join(named)!r}, not compared"
            )
        return _of_configuration(counts[name], f"counted in {path}, {what} {name}")
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputError(f"run {path!r} holds no acceptance by position ({error}); {_RUNS}") from error


def _of_configuration(entry: Mapping[str, Any], source: str) -> DraftAcceptance:
    raw = entry["acceptance"]["conditional"]
    numbers = np.array([np.nan if value is None else float(value) for value in raw], np.float64)
    reached = np.flatnonzero(~np.isfinite(numbers))
    chances = numbers[: reached[0]] if reached.size else numbers
    if not chances.size or np.any((chances < 0) | (chances > 1)):
        raise ValueError(f"conditional acceptance is {raw!r}")
    tokens, error = 1.0 + np.sum(np.cumprod(chances)), entry.get("tokens_per_cycle_standard_error")
    if error is not None and not math.isfinite(float(error)):
        raise ValueError(f"tokens_per_cycle_standard_error is {error!r}")
    if error is None or not float(error) > 0:
        return DraftAcceptance(chances, np.zeros((chances.size, 1)), "measured", source)
    # As many independent cycles as explain the standard error of tokens per cycle, which is taken over prompts.
    one = np.asarray(conditional_errors(chances, 1000.0), np.float64)
    slopes = np.array([_slope(chances, position) for position in range(chances.size)])
    scale = float(error) / float(np.sqrt(np.sum((slopes * one) ** 2)))
    return DraftAcceptance(chances, np.diag(one * scale), "measured", f"{source}: {tokens:.2f} ± {float(error):.2f}")


def _slope(chances: Float[np.ndarray, " position"], position: int) -> float:
    """Derivative of tokens per cycle by the acceptance of a position."""
    before = np.prod(chances[:position])
    return float(before * (1.0 + np.sum(np.cumprod(chances[position + 1 :]))))


def measured_kernels(config: AdviseConfig, device: str) -> Case:
    """What is priced on a device, alone or as one of a group.

    Raises:
        InputError: an unknown device, a malformed file, a format that the device was not measured with, or a parallelism that
            the architecture does not allow.
    """
    own = {name: getattr(config, name) for name in PARALLEL}
    given = {
        "architecture": config.architecture,
        "engine": config.engine,
        "weight_format": config.weight_format,
        "context": max(config.context),
        "prompt_tokens": max(config.prompt_tokens, 2),
        **own,
    }
    common = build_config(CommonConfig, {name: value for name, value in given.items() if value is not None})
    workload = Workload(
        batch=1.0,
        context_tokens=float(config.context[0]),
        prompt_tokens=float(config.prompt_tokens),
        output_tokens=float(config.output_tokens),
    )
    return dataclasses.replace(resolve_pricing(common, device, None), workload=workload)


def no_known_engine(device: Device, name: str) -> tuple[str, ...]:
    """A note on what makes a device another one than engines are known to run on; none where nothing does."""
    why = _no_gpu(device)
    said = f"no engine is known here to run on {name}, {why}: its settings are those for a device that it runs on"
    return (said,) if why else ()


def _no_gpu(device: Device) -> str:
    unit = device.matrix_unit
    # A roofline is that of a GPU by its data sheet; kernels of a unit are measured where an engine runs.
    if unit is not None and unit.measured is None and not isinstance(unit, VectorTileKernels):
        return "whose matrix unit is neither that of a GPU nor of a measured host"
    if device.decoder is not None:
        return "which decodes compressed weights in hardware, as no GPU does"
    return ""


def named_draft(config: AdviseConfig | PredictConfig, target: Architecture) -> DraftCost:
    """The cost of a lookup, of a head on the target, of a block drafter, of the target's compressed copy, or of a network.

    Args:
        target: architecture of the settings' target.
    Raises:
        InputError: none of these, or a network that cannot draft for this target or be shared so.
    """
    name = config.draft
    if name == BLOCK:
        return block_head(target)
    if name == LOOKUP:
        return DraftCost(passes=0.0, statement="a lookup, which runs no network")
    if name == SELF:
        return copy_by_scheme(config.scheme, target)
    if name in HEADS:
        makers = {
            "eagle": eagle_head,
            "eagle3": lambda shape: eagle_head(shape, EAGLE3_VOCABULARY),
            "medusa": medusa_head,
            "mtp": multi_token_head,
        }
        return makers[name](target)
    if head_in_file(name) is None:
        try:
            resolve_architecture(name, None)
        except InputError as error:
            known = hint(name, (LOOKUP, SELF, BLOCK, *HEADS), quote=False)
            raise InputError(f"draft {name!r} is no head, lookup or network{known}; as a network: {error}") from error
    return file_draft(config, name, config.architecture, target, longest_text(config))


def file_draft(
    config: ParallelSettings, name: str, target: str, architecture: Architecture, tokens: float
) -> DraftCost:
    """The cost of a network by catalog name or config.json, or of the head that a config.json describes.

    Args:
        others: see `resolve_draft`.
    Raises:
        InputError: neither, a network that cannot draft for this target or be shared so, or a head that is not priced.
    """
    head = head_in_file(name)
    if head is None:
        own = resolve_draft(config, name, target, architecture, tokens)
        return DraftCost(architecture=own, statement=f"a network, {name}")
    if head.drafts_as is None:
        raise InputError(
            f"draft {name!r} is {head.title} ({head.sign}), which is not priced; give a kind that is: {', '.join(HEADS)}"
        )
    if head.drafts_as == "mtp":
        return multi_token_head(architecture)
    if head.drafts_as == "medusa":
        return medusa_head(architecture, float(head.sizes.get("medusa_num_layers") or 1))
    try:
        own = catalog.head_architecture(head, architecture, where=name)
    except (NotImplementedError, ValueError) as error:
        raise InputError(f"draft {name!r}: {error}") from error
    rows = own.vocab_size if head.vocabulary is None else head.vocabulary
    cost = eagle_head(own, float(rows))
    assert cost.architecture is not None  # a head is no copy of its target
    made = dataclasses.replace(cost.architecture, num_layers=own.num_layers)
    whole = float(rows == float(architecture.vocab_size))
    said = f"{head.title}: a layer of its own sizes, with a projection and a head of {rows:,.0f} rows"
    return dataclasses.replace(cost, architecture=made, shares_ends=whole, maps_logits=1.0 - whole, statement=said)


def read_widths(config: AdviseConfig) -> Footprint:
    """Bits read: of the target as its scheme says, of the draft those given, or 16; its cache is not compressed.

    A compressed copy is read as the scheme says. Routed experts have bits of their own where those are given.
    """
    return with_expert_bits(_widths(config), config.expert_bits)


def _widths(config: AdviseConfig) -> Footprint:
    scheme = scheme_facts(config.scheme)
    stored = scheme_footprint(config, {spec.name: spec.default for spec in scheme.knob_specs} if scheme else {})
    if config.draft == SELF:
        if config.draft_bits is None:
            return stored
        own = dict.fromkeys(ALL_LAYER_MATRICES, config.draft_bits)
        return dataclasses.replace(stored, draft_weight_bits=stored.draft_weight_bits | own)
    return dataclasses.replace(
        stored, draft_weight_bits=bits_beside(config, stored.target_weight_bits), draft_kv_bits=UNCOMPRESSED_BITS
    )


def bits_beside(config: AdviseConfig | PredictConfig, target_bits: Mapping[str, Leaf]) -> dict[str, Leaf]:
    """Bits read of a draft that is no copy of its target, by kind: those given, or 16, or as its file states.

    Args:
        target_bits: of the target's weights, by kind.
    """
    bits = draft_weight_bits(config.draft) if config.draft_bits is None else None
    if config.draft == "mtp" and config.draft_bits is None and priced_form(config) is not None:
        # One dense layer, stored as those of the network: what experts are there, its feed-forward network is here.
        experts = {kind.removeprefix("expert_"): target_bits[kind] for kind in EXPERT_MATRICES}
        bits = dict(target_bits) | {kind: min(width, target_bits[kind]) for kind, width in experts.items()}
    width = UNCOMPRESSED_BITS if config.draft_bits is None else config.draft_bits
    return bits or dict(uniform_footprint(width).draft_weight_bits)


def draft_weight_bits(name: str) -> dict[str, float] | None:
    """Bits per weight by kind of a draft whose config.json states a quantized form; None: 16."""
    form = stored_form(name)
    return dict(form.weight_bits) if form is not None and os.path.exists(name) else None


#: Schemes of targets as they are released.
_PLAIN = ("bf16", "raw", RELEASED.name)


#: Endings of files with weights.
_WEIGHTS = (".safetensors", ".bin", ".gguf")


def served_target(config: AdviseConfig) -> str:
    """What an engine loads as the target."""
    return config.target_weights or _network(config.architecture)


def served_draft(config: AdviseConfig, *, other_rows: bool = False) -> ServedDraft:
    """The draft for an engine's flags. Args: other_rows: see `ServedDraft`."""
    if config.kind in (LOOKUP, SELF, "mtp"):
        return ServedDraft(config.kind)
    if config.draft in (*HEADS, BLOCK):
        # A network has no such draft, or several.
        what = "drafter" if config.draft == BLOCK else "head"
        unnamed = f"<{config.kind} {what} for {config.target_weights or config.architecture}>"
        return ServedDraft(config.kind, config.draft_weights or unnamed)
    return ServedDraft(config.kind, config.draft_weights or _network(config.draft), other_rows)


def weights_notes(config: AdviseConfig) -> tuple[str, ...]:
    """Which weights the engines' commands name that the settings do not, and which of them a person has to name."""
    given = {"target": config.target_weights, "draft": config.draft_weights}
    served = {"target": served_target(config), "draft": served_draft(config).weights}
    unread = {part: weights for part, weights in served.items() if weights and not given[part]}
    notes = []
    for missing, said in (
        (False, "the engines' commands load {}; {} gives others"),
        (True, "replace {} in the engines' commands, or give {}"),
    ):
        parts = [part for part, weights in unread.items() if weights.startswith("<") == missing]
        if parts:
            flags = " or ".join(f"--{part}-weights" for part in parts)
            notes.append(said.format(" and ".join(unread[part] for part in parts), flags))
    form = stored_form(config.architecture)
    if "target" in unread and config.scheme not in _PLAIN:
        notes.append(f"these commands do not store the target by {config.scheme}, as it is priced; name such weights")
    elif "target" in unread and form is not None and config.scheme != RELEASED.name:
        notes.append(f"these commands load the release, in {form.name}, and {config.scheme} is priced")
    if form is not None and form.name != "MXFP4" and not is_gguf(served["target"]):
        notes.append(
            f"llama.cpp has no {form.name}: its command converts the target to another form than the release's"
        )
    return tuple(notes)


def _network(name: str) -> str:
    """A GGUF file, or the folder of a config.json with weights; the repository of the catalog's sizes; else a placeholder."""
    if os.path.exists(name):
        if is_gguf(file := gguf_in(name) or name):
            return str(file)
        folder = Path(name) if os.path.isdir(name) else Path(name).parent
        has_weights = any(file.suffix in _WEIGHTS for file in folder.iterdir())
        return str(folder) if has_weights else f"<weights of {name}>"
    return catalog.architecture_repository(name) or f"<weights of {name}>"
