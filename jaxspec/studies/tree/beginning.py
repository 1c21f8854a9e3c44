"""From the settings of `jaxspec tree` to its stages: what they name is checked, then loaded."""

from __future__ import annotations

import dataclasses

from jaxspec.compress.knobs import Knobs
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.processes import ONE_PROCESS, Processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.settings.draft_kinds import SELF
from jaxspec.speculate.drafts import make_draft
from jaxspec.speculate.drafts.making import is_searched
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies.feasibility import check_positions, contexts_within
from jaxspec.studies.given_acceptance import given_trace
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs, given_knobs
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.work import Work, begin_work
from jaxspec.studies.tree.config import TreeConfig
from jaxspec.studies.tree.growth import candidate_shape
from jaxspec.studies.tree.stages import TreeStages, tree_sizes

__all__ = ["begin_tree", "check_tree", "tree_stages"]


def check_tree(config: TreeConfig) -> CheckedInputs:
    """Read and check all that a configuration names, its draft included, without reading weights.

    Raises:
        InputError: bad input, a tree of impossible sizes, or a context behind the network's last position.
    """
    checked = check_inputs(config)
    if config.acceptance_trace is not None:
        given_trace(config)
    checked = dataclasses.replace(checked, notes=checked.notes + _left_out(config, checked))
    candidate_shape(config.search, **tree_sizes(config, checked.network.vocab_size))
    if config.draft == SELF:
        given_knobs(config, checked.network)
    return checked


def _left_out(config: TreeConfig, checked: CheckedInputs) -> tuple[str, ...]:
    """Contexts that nobody asked for and the priced network has no positions for are left out, and told.

    Raises:
        InputError: somebody asked for one.
    """
    architecture = next(iter(checked.pricings.values())).architecture  # all devices price the same network
    if config.contexts != TreeConfig.contexts:
        check_positions(config.architecture, architecture, max(config.contexts, default=0) + 1)
    within = contexts_within(architecture, config.contexts)
    beyond = [f"{context:,}" for context in sorted(config.contexts) if context not in within]
    if not beyond:
        return ()
    return (
        f"architecture {config.architecture!r} has a table of {float(architecture.learned_positions):,.0f} positions: no tree "
        f"is chosen at {', '.join(beyond)} cached tokens",
    )


def begin_tree(
    config: TreeConfig,
    directory: RunDirectory,
    reporter: Reporter,
    checked: CheckedInputs | None = None,
    *,
    processes: Processes = ONE_PROCESS,
) -> TreeStages:
    """Load all that a configuration names, its draft included.

    Args:
        checked: from `check_tree`, which is called unless it is given.
        processes: that do all of it together.
    Raises:
        InputError: bad input.
    """
    work = begin_work(config, directory, reporter, checked or check_tree(config), processes=processes)
    return tree_stages(config, work)


def tree_stages(config: TreeConfig, work: Work, given: Knobs | None = None, target: Stages | None = None) -> TreeStages:
    """The stages of a run that has begun, with its draft, unless this takes calibration text.

    Args:
        given: knobs of the target's compressed copy, in place of the configuration's.
        target: see `TreeStages`.
    Raises:
        InputError: see `make_draft`.
    """
    # Every root within `output_tokens` has ranks down to the largest depth, and no less than drafts are measured on.
    continuation = max(config.output_tokens + config.depth, continuation_length(config.output_tokens))
    copies = HardDrafts(work if target is None else dataclasses.replace(work, stages=target), continuation)
    if config.draft == SELF:
        return TreeStages(config, work, copies, None, given=given, target=target)
    loaded = work.setup.loaded
    if is_searched(config.draft):
        return TreeStages(config, work, copies, None, loaded, target=target)
    made = make_draft(config.draft, loaded, sharing=config.batch)
    return TreeStages(config, work, copies, made, target=target)
