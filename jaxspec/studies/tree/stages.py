"""What `jaxspec tree` measures, stage by stage: texts, ranks, the order of growth, and decoding with trees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from hwmodels import DraftCost
from hwmodels.speculation.draft_cost import with_pool
from jaxspec.compress.expert_pool import has_pool, pool_share
from jaxspec.compress.knobs import Knobs, knob_defaults
from jaxspec.errors import InputError
from jaxspec.models.architecture import architecture_of
from jaxspec.models.hf_load import LoadedModel
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.processes import ONE_PROCESS, Processes
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Arrays, Stages
from jaxspec.settings.draft_kinds import SELF
from jaxspec.speculate.drafts import ReadyDraft, compressed_copy, make_draft
from jaxspec.speculate.drafts.factory import is_searched, own_knobs, search_draft
from jaxspec.speculate.drafts.layer_skip_draft import CalibrationText
from jaxspec.speculate.engine import autoregressive_tree
from jaxspec.speculate.expansion import TreeLimits, tree_limits
from jaxspec.speculate.measured_ranks import ContinuedTexts, KeptTraces, record_ranks
from jaxspec.speculate.predicted_cycles import predict_trees
from jaxspec.speculate.proof import continuation_length, continue_texts, decode_prompts
from jaxspec.speculate.sampling import GREEDY, Decoding
from jaxspec.studies.draft_widths import widths_beside
from jaxspec.studies.feasibility import check_positions, contexts_within
from jaxspec.studies.given_acceptance import given_trace
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs, given_knobs
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.run_context import RunContext, begin_run, sampling_mode
from jaxspec.studies.tree.config import Search, TreeConfig
from jaxspec.trees.rank_traces import (
    ENDED,
    RankTraces,
    acceptance_table,
    chain_gains,
    cycles_along_text,
    prior_scores_from_traces,
)
from jaxspec.trees.searches import (
    depth_first_growth,
    greedy_growth,
    maximal_tree,
    prior_score_growth,
    width_first_growth,
)
from jaxspec.trees.topology import NestedTrees, Tree
from jaxspec.tuning.objective import priced_footprint

#: Nodes that a search by prior score chooses from, for each that it takes: ranks cost nothing once they are recorded.
_CHOICE = 8


def candidate_shape(search: Search, *, nodes: int, depth: int, vocabulary: int) -> NestedTrees | None:
    """The shape that a search takes its nodes from; None for the one that makes up its own.

    Raises:
        InputError: more levels than nodes, or more nodes than a tree of so many levels and tokens has.
    """
    if search == "greedy":
        return None
    try:
        return maximal_tree(nodes * (_CHOICE if search == "prior" else 1), depth=depth, max_branching=vocabulary)
    except ValueError as error:
        raise InputError(f"{error} (nodes {nodes}, depth {depth}, search {search})") from error


def grow(
    search: Search,
    shape: NestedTrees | None,
    traces: RankTraces,
    *,
    nodes: int,
    depth: int,
    vocabulary: int,
    num_tokens: int | None = None,
) -> NestedTrees:
    """The first `nodes` nodes in the order of the search.

    Args:
        shape: from `candidate_shape`.
        traces: of calibration text; the trees are judged on another.
        num_tokens: count prior scores while so many tokens of each text are decoded; None: at every root.
    Raises:
        InputError: there are not so many nodes.
    Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, III-C and IV-E.
    """
    if shape is None:
        chances = acceptance_table(traces, depth=depth, ranks=min(nodes, vocabulary)).table
        try:
            return greedy_growth(np.asarray(chances), nodes)
        except ValueError as error:
            raise InputError(f"{error} (nodes {nodes}, depth {depth}, search {search})") from error
    growth = {
        "prior": lambda: prior_score_growth(shape, prior_scores_from_traces(shape, traces, num_tokens=num_tokens)),
        "width": lambda: width_first_growth(shape),
        "depth": lambda: depth_first_growth(shape),
    }[search]()
    return growth.first(nodes)


@dataclasses.dataclass(frozen=True, eq=False)
class TreeStages:
    """A network, its text and a draft's stages, for one run.

    Attributes:
        copies: hard drafts of the target, of which one drafts unless another draft is named.
        made: the draft, unless it takes calibration text to make.
        given: knobs of the target's compressed copy; None: the configuration's, the same everywhere.
        loaded: the target, as a draft that is searched on calibration text needs it; None for others.
        target: store of what follows from the target alone, which several drafts on it share; None: the work's own. Where it
            is shared, trees are chains.
        kept: passes of targets over texts, which drafts share too, with the name of this one; None: they share none.
    """

    config: TreeConfig
    work: RunContext
    copies: HardDrafts
    made: ReadyDraft | None
    loaded: LoadedModel | None = None
    given: Knobs | None = None
    target: Stages | None = None
    kept: tuple[KeptTraces, str] | None = None
    _decoded: dict[str, Arrays] = dataclasses.field(default_factory=dict)  # by stage

    @property
    def contexts(self) -> tuple[int, ...]:
        """Those of the configuration that the priced network has positions for, with the workload's own, rising."""
        priced = next(iter(self.work.pricings.values()))
        return contexts_within(priced.architecture, (*self.config.contexts, self.config.context))

    @property
    def sizes(self) -> dict[str, int]:
        """Of the largest tree."""
        return tree_sizes(self.config, self.work.setup.config.vocab_size)

    @cached_property
    def other(self) -> ReadyDraft | None:
        """What proposes tokens, unless it is the target's compressed copy. A search for it is a stage."""
        if self.loaded is None:
            return self.made
        target, setup, name = self.loaded, self.work.setup, self.config.draft
        text = CalibrationText(self.copies.text, self.config.prompt_tokens, setup.decoding)

        def compute() -> Arrays:
            self.work.reporter.line(f"searching draft {name} on calibration text ...")
            return search_draft(name, target, text)

        return make_draft(name, target, self.work.stages.run(f"searched/{name}", compute))

    @cached_property
    def knobs(self) -> Knobs | None:
        """Of the target's compressed copy; None for another draft."""
        if self.config.draft != SELF:
            return None
        if self.given is not None:
            return self.given
        return given_knobs(self.config, self.work.setup.config)

    @cached_property
    def copied_by(self) -> Knobs | None:
        """Of a compressed copy of the target, made here or read from a container; None for another draft."""
        return self.knobs or own_knobs(self.config.draft, self.work.setup.config)

    @cached_property
    def draft(self) -> ReadyDraft:
        """What proposes tokens."""
        if self.other is not None:
            return self.other
        assert self.knobs is not None
        return self.copies.ready(self.knobs)

    def release(self) -> None:
        """Let go of the draft and of what it was made from; who asks for it again has it made anew."""
        for owner, name in ((self, "draft"), (self, "other"), (self.copies, "calibration")):
            vars(owner).pop(name, None)

    @property
    def cost_here(self) -> hwmodels.DraftCost:
        """Cost of the draft beside the network that runs."""
        own = self.work.setup.config
        if self.other is None:
            return hwmodels.COMPRESSED_COPY
        return self.other.draft.cost(own, architecture_of(own), self.work.setup.model_name)

    def _ranks(self, which: str, texts: ContinuedTexts, prompt_tokens: int) -> RankTraces:
        """How the draft ranks texts; a stage.

        Args:
            prompt_tokens: as for `record_ranks`.
        """
        setup, config = self.work.setup, self.config
        _ = self.copies.text  # a stage of its own, which making the draft may need
        # Of chains nobody reads more than the roots of tokens that are decoded; a text that stopped is recorded to its end.
        roots = config.output_tokens if self.target is not None and not setup.stop else None

        def compute() -> Arrays:
            draft = self.draft
            with self.work.bar(f"ranking the {which} text by the draft", len(texts.tokens)) as bar:
                traces = record_ranks(
                    setup.params,
                    setup.config,
                    draft,
                    texts,
                    prompt_tokens=prompt_tokens,
                    depth=config.depth,
                    roots=roots,
                    kept=None if self.kept is None else (self.kept[0], (self.kept[1], which)),
                    advance=bar.advance,
                )
            return {"rank": traces.rank, "num_starts": traces.num_starts}

        stored = self.work.stages.run(f"ranks/{which}", compute)
        return RankTraces(rank=jnp.asarray(stored["rank"]), num_starts=jnp.asarray(stored["num_starts"]))

    @cached_property
    def growth(self) -> NestedTrees:
        """The nodes in the order in which the tree grows, by calibration text alone; of a given trace its chains."""
        if self.config.acceptance_trace is not None:
            return self.chains
        shape = candidate_shape(self.config.search, **self.sizes)
        return grow(self.config.search, shape, self.calibration_traces, **self.sizes)

    @property
    def chains(self) -> NestedTrees:
        """The draft's likeliest tokens in a row, as deep as trees may be: what a tree has to beat."""
        length = min(self.config.depth, self.config.nodes)
        return NestedTrees(parent=np.arange(length, dtype=np.int32) - 1, rank=np.zeros(length, np.int32))

    @cached_property
    def calibration_traces(self) -> RankTraces:
        """Ranks of calibration text."""
        texts, prompt_tokens = self.copies.text, self.config.prompt_tokens
        whole = lambda tokens: np.full(len(texts), tokens, np.int32)
        known = ContinuedTexts(texts, whole(prompt_tokens), whole(texts.shape[1] - prompt_tokens))
        return self._ranks("calibration", known, prompt_tokens)

    @cached_property
    def limits(self) -> TreeLimits:
        """Static sizes of the largest tree, within which everything is decoded."""
        return tree_limits(self.growth.tree())

    @cached_property
    def traces(self) -> RankTraces:
        """Ranks of held-out text, as the target itself decodes it."""
        return self._ranks("held-out", self._continued, self.work.setup.prompts.shape[1])

    @property
    def follows_cycles(self) -> bool:
        """Whether what is drafted depends on earlier cycles: of copies with pools of experts, and of drafts that say so."""
        copied = self.copied_by is not None and has_pool(self.copied_by, self.work.setup.config)
        return copied or (self.made is not None and self.made.follows_cycles)

    @property
    def has_trace(self) -> bool:
        """Whether ranks tell what chains gain: greedily, and where no draft depends on earlier cycles; a given one is kept."""
        if self.config.acceptance_trace is not None:
            return False
        return self.work.setup.decoding == GREEDY and not self.follows_cycles

    @property
    def gains(self) -> np.ndarray:
        """What chains gain at each token that follows a held-out prompt; "text start"."""
        return np.asarray(chain_gains(self.traces))

    @property
    def trace_tokens(self) -> np.ndarray:
        """Tokens after each held-out prompt that decoding generates. One that stopped ends with its stop token."""
        ended = np.any(np.asarray(self.traces.rank) == ENDED, axis=(1, 2))
        recorded = np.asarray(self.traces.num_starts)
        return np.where(ended, recorded, np.minimum(recorded, self.config.output_tokens))

    @property
    def _continued(self) -> ContinuedTexts:
        """Held-out prompts with what the target puts out after them."""
        setup, room = self.work.setup, self.copies.continuation_tokens
        decoded = self.decode_autoregressively(setup.decoding)
        tokens = decoded["tokens"][:, : setup.prompts.shape[1] + room]
        return ContinuedTexts(tokens, setup.prompt_lengths, np.minimum(decoded["generated"], room))

    def _tree(self, nodes: int) -> tuple[Tree, TreeLimits]:
        """The tree of the first nodes: padded to the largest, so that all share a program; a chain as wide as it is, of which
        a run decodes one."""
        first = self.growth.first(nodes)
        if self.target is None:
            return first.tree(size=self.growth.parent.size), self.limits
        chain = first.tree()
        return chain, tree_limits(chain)

    def expected_with(self, nodes: int) -> Arrays:
        """Cycles of the held-out prompts with the tree of the first nodes, from its ranks, or followed along the texts where
        what a draft proposes depends on earlier cycles."""
        setup, config = self.work.setup, self.config
        tree, limits = self._tree(nodes)
        if not self.follows_cycles:
            cycles = jax.jit(cycles_along_text)(tree, self.traces, num_tokens=config.output_tokens)
            return {"generated": np.asarray(cycles.generated), "cycles": np.asarray(cycles.cycles)}
        texts = self._continued

        def compute() -> Arrays:
            with self.work.bar("following the draft along the texts", len(texts.tokens)) as bar:
                return predict_trees(
                    setup.params,
                    self.draft,
                    setup.config,
                    self.work.asked(config.output_tokens, setup.decoding),
                    texts,
                    tree,
                    limits=limits,
                    advance=bar.advance,
                )

        return self.work.stages.run(f"expected/{sampling_mode(setup.decoding)}-tree-{nodes}", compute)

    def _decode_tree(
        self, tree: Tree, limits: TreeLimits, decoding: Decoding, *, tokens: int, name: str, what: str
    ) -> Arrays:
        setup = self.work.setup

        def compute() -> Arrays:
            draft = self.draft
            with self.work.bar(what, len(setup.prompts)) as bar:
                return decode_prompts(
                    setup.params,
                    setup.config,
                    draft,
                    self.work.asked(tokens, decoding),
                    tree,
                    limits=limits,
                    room=self.copies.continuation_tokens,
                    advance=bar.advance,
                )

        return self._decoded_once(self.work.stages, f"decoded/{sampling_mode(decoding)}-{name}", compute)

    def _decoded_once(self, store: Stages, stage: str, compute: Callable[[], Arrays]) -> Arrays:
        if stage not in self._decoded:
            self._decoded[stage] = store.run(stage, compute)
        return self._decoded[stage]

    def decode_autoregressively(self, decoding: Decoding, *, beside: int | None = None) -> Arrays:
        """Held-out prompts without a tree, at the width of the largest one; of a target that drafts share a token at a time.

        Args:
            beside: at the width, and by the program, of the tree of so many nodes instead.
        """
        tokens, what = self.copies.continuation_tokens, "decoding without a tree"
        if self.target is None or beside is not None:
            limits, name = self.limits, "autoregressive"
            if beside is not None:
                limits, name = self._tree(beside)[1], f"autoregressive-{beside}"
            return self._decode_tree(autoregressive_tree(limits), limits, decoding, tokens=tokens, name=name, what=what)
        setup, asked = self.work.setup, self.work.asked(tokens, decoding)

        def compute() -> Arrays:
            with self.work.bar(what, len(setup.prompts)) as bar:
                return continue_texts(setup.params, setup.config, asked, advance=bar.advance)

        return self._decoded_once(self.target, f"decoded/{sampling_mode(decoding)}-autoregressive", compute)

    def decode_with(self, nodes: int, decoding: Decoding) -> Arrays:
        """Held-out prompts with the tree of the first nodes; what several devices choose is decoded once."""
        what, tokens = f"decoding with a tree of {nodes} nodes", self.config.output_tokens
        return self._decode_tree(*self._tree(nodes), decoding, tokens=tokens, name=f"tree-{nodes}", what=what)

    def cost_on(self, device: str) -> DraftCost:
        """What a draft step costs on the architecture that is priced there."""
        # The target's copy needs no parameters to be priced, and making them takes seconds.
        setup, priced = self.work.setup, self.work.pricings[device].architecture
        ready = self.draft if self.knobs is None else compressed_copy(setup.config, setup.params, self.knobs)
        cost = ready.draft.cost(setup.config, priced, self.config.architecture)
        return with_pool(cost, priced, pool_share(self.copied_by, setup.config))

    @cached_property
    def widths(self) -> hwmodels.Footprint:
        """Bits read: of the scheme for the target's copy, of a container by its own bytes; of another draft as its kind says,
        of the target then as a scheme stores it that changes it, or 16."""
        knobs = self.knobs
        if knobs is None:
            return self._beside_another_draft()
        _ = self.copies.text

        def compute() -> Arrays:
            return dict(vars(self.copies.measure(knobs).footprint))

        bits = jax.tree.map(jnp.asarray, self.work.stages.run("footprint", compute))
        priced = next(iter(self.work.pricings.values())).architecture  # of all devices alike
        return priced_footprint(hwmodels.Footprint(**bits), priced)

    def _beside_another_draft(self) -> hwmodels.Footprint:
        """Bits read of a draft that is no compressed copy, and of its target."""
        widths = widths_beside(self.config.draft, self.config.model, codes=self.work.setup.config.in_codes)
        if not self.config.changes_target:
            return widths
        scheme = self.work.setup.scheme
        stored = scheme.expected_footprint(knob_defaults(scheme))
        return dataclasses.replace(
            widths, target_weight_bits=stored.target_weight_bits, target_kv_bits=stored.target_kv_bits
        )


def tree_sizes(config: TreeConfig, vocab_size: int) -> dict[str, int]:
    """Of the largest tree."""
    return {"nodes": config.nodes, "depth": config.depth, "vocabulary": vocab_size}


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
    """Contexts that nobody asked for and the priced network has no positions for are left out, with a note.

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
    work = begin_run(config, directory, reporter, checked or check_tree(config), processes=processes)
    return tree_stages(config, work)


def tree_stages(
    config: TreeConfig,
    work: RunContext,
    given: Knobs | None = None,
    target: Stages | None = None,
    kept: tuple[KeptTraces, str] | None = None,
) -> TreeStages:
    """The stages of a run that has begun, with its draft, unless this takes calibration text.

    Args:
        given: knobs of the target's compressed copy, in place of the configuration's.
        target, kept: see `TreeStages`.
    Raises:
        InputError: see `make_draft`.
    """
    # Every root within `output_tokens` has ranks down to the largest depth, and no less than drafts are measured on.
    continuation = max(config.output_tokens + config.depth, continuation_length(config.output_tokens))
    copies = HardDrafts(work if target is None else dataclasses.replace(work, stages=target), continuation)
    if config.draft == SELF:
        return TreeStages(config, work, copies, None, given=given, target=target, kept=kept)
    loaded = work.setup.loaded
    if is_searched(config.draft):
        return TreeStages(config, work, copies, None, loaded, target=target, kept=kept)
    made = make_draft(config.draft, loaded, sharing=config.batch)
    return TreeStages(config, work, copies, made, target=target, kept=kept)
