"""From a device to rows: each group of ways is compiled and counted, predicted on disk, and only then timed.

A folder holds `settings.json`, and of each group `NAME-predicted.json`, written before its clock starts, and `NAME-timed.json`.
What is there is kept, so that a killed run goes on and a finished one is read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hwmodels import Device, EngineTerms
from hwmodels.analysis.uncertainty.cycle_errors import COVERAGE, LogNormal
from jaxspec.errors import InputError
from jaxspec.host.measuring import load_per_core, machine_name
from jaxspec.host.stopwatch import (
    AUTOREGRESSIVE,
    CountedWay,
    TimedWay,
    Way,
    chain_way,
    noise_of,
    repeat_statistics,
    time_ways,
    timed_prompts,
    tree_way,
)
from jaxspec.models.architecture import architecture_of
from jaxspec.models.embedded import HEAD_NAME, SMALL_NAME, load_model
from jaxspec.models.hf_load import LoadedModel
from jaxspec.models.stored import as_computed
from jaxspec.partial_files import plain, read_json, to_json, write_text
from jaxspec.runs.progress import Reporter
from jaxspec.runs.run_index import versions
from jaxspec.settings.draft_kinds import DraftKind
from jaxspec.speculate import GREEDY
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.drafts import ReadyDraft, make_draft
from jaxspec.speculate.drafts.factory import kind_of
from jaxspec.studies.measured.stopwatch import WayErrors, computed_bits, predict_ways
from jaxspec.text import load_text, windows
from jaxspec.trees import PUBLIC_TREES, chain_like_paths, k_ary_paths, star_paths, tree_from_paths
from jaxspec.tuning import target_params

__all__ = ["BATCHES", "LENGTHS", "PROMPT_TOKENS", "TREES", "Group", "Host", "groups", "measure", "read_groups"]


# What is predicted and timed: chains of three drafts, trees of one, alone and in a batch.

#: Drafts of chains.
DRAFTS = ("ngram", HEAD_NAME, SMALL_NAME)

#: Draft lengths.
LENGTHS = tuple(range(1, 9))

#: Sequences decoded together.
BATCHES = (1, 16)

#: Name -> paths of a tree that the head drafts: wide, bushy, deep, and one that was released.
TREES = {
    "star of 4": star_paths(4),
    "binary of 6": k_ary_paths(2, depth=2),
    "chain-like of 8": chain_like_paths(8),
    "chain-like of 16": chain_like_paths(16),
    "EAGLE's of 25": PUBLIC_TREES["eagle_25"].paths,
}


@dataclasses.dataclass(frozen=True)
class Group:
    """Ways of one draft that are timed together, each against the same decoding without speculation.

    Attributes:
        name: of its files.
        draft: name.
        shapes: of what is drafted: "chain of 4", or a tree's name.
    """

    name: str
    draft: str
    batch: int
    shapes: tuple[str, ...]

    @property
    def kind(self) -> DraftKind:
        """Of the draft."""
        return kind_of(self.draft)

    def row_ids(self) -> list[str]:
        """A name for each way that no other has."""
        return [f"{self.draft}, {shape}, batch {self.batch}" for shape in self.shapes]

    def ways(self, target: LoadedModel) -> tuple[ReadyDraft, dict[str, Way]]:
        """The draft and its ways by row."""
        ready = make_draft(self.draft, target)
        return ready, {name: _way(ready, shape) for name, shape in zip(self.row_ids(), self.shapes, strict=True)}

    def parents(self) -> list[np.ndarray]:
        """Of each way's nodes, -1 for the root."""
        return [np.arange(_length(shape)) - 1 if _length(shape) else _parents(shape) for shape in self.shapes]


def groups(batches: Sequence[int] = BATCHES, lengths: Sequence[int] = LENGTHS, *, trees: bool = True) -> list[Group]:
    """All of them, batch by batch."""
    chains, groups = tuple(f"chain of {length}" for length in lengths), []
    for batch in batches:
        groups += [Group(f"{draft}-chains-{batch}", draft, batch, chains) for draft in DRAFTS]
        groups += [Group(f"{HEAD_NAME}-trees-{batch}", HEAD_NAME, batch, tuple(TREES))] if trees else []
    return groups


def _length(shape: str) -> int:
    """Of a chain; 0 of a tree."""
    before, _, after = shape.partition("chain of ")
    return 0 if before else int(after)


def _parents(shape: str) -> np.ndarray:
    return np.asarray(tree_from_paths(TREES[shape]).parent)


def _way(ready: ReadyDraft, shape: str) -> Way:
    if length := _length(shape):
        return chain_way(ready, length, GREEDY)
    return tree_way(ready, tree_from_paths(TREES[shape]))


MODEL = "embedded"
PROMPT_TOKENS = 128

#: Version of the files.
_SCHEMA = 1

#: Prompts that are timed one at a time.
_PROMPTS = 4


@dataclasses.dataclass(frozen=True)
class Host:
    """What times are predicted from.

    Attributes:
        name: of the device.
        terms: of this package as an engine.
    """

    name: str
    device: Device
    terms: EngineTerms


def measure(
    host: Host, every: list[Group], folder: Path, *, repeats: int, output_tokens: int, reporter: Reporter
) -> list[dict[str, Any]]:
    """Rows of all groups, those of earlier runs in this folder included.

    Raises:
        InputError: the folder holds another run.
    """
    settings = {
        "machine": machine_name(),
        "device": host.name,
        "terms": dataclasses.asdict(host.terms),
        "repeats": repeats,
        "output_tokens": output_tokens,
        "versions": versions(),
    }
    _keep_to(folder / "settings.json", plain(settings))
    left = [group for group in every if not _done(folder, group)]
    if left:
        target = load_model(MODEL)
        text = load_text("stdlib", target.tokenizer).held_out
        with reporter.bar("predicting, then timing", sum(_programs(group, repeats) for group in left)) as bar:
            for group in left:
                advance = lambda name=group.name: bar.advance(name)
                options = {"repeats": repeats, "output_tokens": output_tokens, "advance": advance}
                _measure_group(host, group, folder, target, text, **options)
                # No other group runs these programs, and a process may map only so many: XLA ends for want of memory.
                jax.clear_caches()
    return read_groups(every, folder)


def read_groups(every: list[Group], folder: Path) -> list[dict[str, Any]]:
    """Rows of the groups that a folder holds, predicted and measured.

    Raises:
        InputError: a file that is not what a run writes.
    """
    rows = []
    for group in every:
        if not _done(folder, group):
            continue
        told = _rows(_predicted(folder, group), group, "predicted_speedup")
        timed = _rows(_timed(folder, group), group, "measured_speedup")
        rows += [{"id": name, **told[name], **timed[name]} for name in group.row_ids()]
    return rows


def _measure_group(
    host: Host,
    group: Group,
    folder: Path,
    target: LoadedModel,
    text: np.ndarray,
    *,
    repeats: int,
    output_tokens: int,
    advance: Callable[[], None],
) -> None:
    params, config = as_computed(target_params(target.params)), target.config
    ready, ways = group.ways(target)
    told = predict_ways(
        host.device,
        architecture_of(config),
        ready.draft.cost(config, architecture_of(config), MODEL),
        group.parents(),
        takes_in=group.kind.takes_in,
        batch=group.batch,
        slots=PROMPT_TOKENS + output_tokens,
        bits=computed_bits(params),
        terms=host.terms,
    )

    def write_predictions(counted: Mapping[str, CountedWay]) -> None:
        alone = counted[AUTOREGRESSIVE]
        speedups = {
            name: counted[name].tokens_per_turn / alone.tokens_per_turn * way.step_s / way.cycle_s
            for name, way in zip(group.row_ids(), told, strict=True)
        }
        rows = {
            name: {
                "draft": group.draft,
                "shape": shape,
                "batch": group.batch,
                "drafted_tokens": int(ways[name].tree.num_nodes),
                "draft_steps": counted[name].steps,
                "tokens_per_cycle": counted[name].tokens_per_cycle,
                "gain_per_turn": counted[name].tokens_per_turn / alone.tokens_per_turn,
                "equal_tokens": counted[name].agree,
                "predicted_ar_s": way.step_s,
                "predicted_cycle_s": way.cycle_s,
                "predicted_draft_s": way.draft_s,
                "predicted_verify_s": way.verify_s,
                "predicted_speedup": speedups[name],
                "predicted_speedup_interval": _ends(speedups[name], way.errors),
            }
            for (name, shape), way in zip(zip(group.row_ids(), group.shapes, strict=True), told, strict=True)
        }
        write_text(_predicted(folder, group), to_json({"schema_version": _SCHEMA, "status": "predicted", "rows": rows}))

    prompts = windows(text, _prompts(group), PROMPT_TOKENS, 0)
    timed = time_ways(
        params,
        config,
        Prompts(prompts, num_tokens=output_tokens, decoding=GREEDY, seed=0),
        ways,
        batch=group.batch,
        repeats=repeats,
        counted=write_predictions,
        advance=advance,
    )
    rows = {name: _measured(timed[name], timed[AUTOREGRESSIVE]) for name in ways}
    content = {"schema_version": _SCHEMA, "status": "measured", "load": load_per_core(), "rows": rows}
    write_text(_timed(folder, group), to_json(content))


def _ends(speedup: float, errors: WayErrors | None) -> list[float] | None:
    """Of the interval that `COVERAGE` of measured speedups should lie in; None: the device's file has no errors."""
    if errors is None:
        return None
    return [float(end) for end in LogNormal(jnp.asarray(speedup), jnp.asarray(errors.speedup)).ends(COVERAGE)]


def _prompts(group: Group) -> int:
    return timed_prompts(max(group.batch, _PROMPTS), group.batch)


def _programs(group: Group, repeats: int) -> int:
    """How often a group's timing advances: each way and each verification, none of which are alike, then each round."""
    return _prompts(group) // group.batch * (2 * len(group.shapes) + 1 + repeats)


def _measured(timed: TimedWay, alone: TimedWay) -> dict[str, Any]:
    """Medians with the intervals that hold 90 % of the repeats."""
    samples = {
        "speedup": timed.speedup(alone),
        "tokens_per_s": timed.tokens_per_s,
        "cycle_s": timed.cycle_s,
        "draft_step_s": timed.draft_step_s,
        "verify_s": timed.verify_s,
        "ar_s": alone.cycle_s,
        "cycle_over_step": timed.cycle_over_step,
    }
    spreads = {f"measured_{name}": repeat_statistics(values)._asdict() for name, values in samples.items()}
    return {**spreads, "noise": noise_of(timed.speedup(alone)), "compile_s": timed.compile_s}


def _predicted(folder: Path, group: Group) -> Path:
    return folder / f"{group.name}-predicted.json"


def _timed(folder: Path, group: Group) -> Path:
    return folder / f"{group.name}-timed.json"


def _done(folder: Path, group: Group) -> bool:
    """Whether a group is timed; without what was predicted before, times say nothing."""
    return _predicted(folder, group).exists() and _timed(folder, group).exists()


def _rows(path: Path, group: Group, field: str) -> dict[str, dict[str, Any]]:
    """Rows of a file by name, each with its main field. Raises InputError: it is not what a run of this version writes."""
    document = _read(path)
    rows: Any = document.get("rows")
    named = [rows.get(name) if isinstance(rows, dict) else None for name in group.row_ids()]
    if document.get("schema_version") != _SCHEMA or not all(isinstance(row, dict) and field in row for row in named):
        raise InputError(f"{path} is not what a run of this version writes; delete it, and the group is measured anew")
    return rows


def _keep_to(path: Path, settings: dict[str, Any]) -> None:
    if not path.exists():
        write_text(path, to_json(settings))
        return
    document = _read(path)
    if changed := sorted(name for name in settings if document.get(name) != settings[name]):
        raise InputError(f"{path.parent} holds a run with another {', '.join(changed)}; give another folder (--out)")


def _read(path: Path) -> dict[str, Any]:
    try:
        document = read_json(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); delete it, and it is made anew") from error
    if not isinstance(document, dict):
        raise InputError(f"{path} is no object; delete it, and it is made anew")
    return document
