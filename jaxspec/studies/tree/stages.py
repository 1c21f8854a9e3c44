"""What `jaxspec tree` measures, stage by stage: texts, ranks, the order of growth, and decoding with trees."""

from __future__ import annotations

import dataclasses
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

import hwmodels
from hwmodels.network.footprint import UNCOMPRESSED_BITS
from jaxspec.compress import find_scheme
from jaxspec.compress.expert_pool import has_pool
from jaxspec.compress.knobs import Knobs, knob_defaults, uniform_knobs
from jaxspec.models.embedded import load_model
from jaxspec.models.streamed import is_streamed
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.progress import Reporter
from jaxspec.runs.stages import Arrays
from jaxspec.settings import knob_values
from jaxspec.speculate.drafts import ReadyDraft, check_draft, make_draft
from jaxspec.speculate.drafts.making import kind_of, own_footprint
from jaxspec.speculate.engine import autoregressive_tree
from jaxspec.speculate.expansion import TreeLimits, tree_limits
from jaxspec.speculate.measured_ranks import record_ranks
from jaxspec.speculate.predicted_cycles import predict_trees
from jaxspec.speculate.proof import continuation_length, decode_prompts
from jaxspec.speculate.sampling import Decoding
from jaxspec.studies.measured.checking import CheckedInputs, check_inputs
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.work import Work, begin_work, way_of
from jaxspec.studies.tree.config import TreeConfig
from jaxspec.studies.tree.growth import candidate_shape, grow
from jaxspec.trees.rank_traces import RankTraces, cycles_along_text
from jaxspec.trees.ranked_tree import RankedTree
from jaxspec.trees.topology import Tree
from jaxspec.tuning.objective import priced_footprint

__all__ = ["TreeStages", "begin_tree"]


@dataclasses.dataclass(frozen=True, eq=False)
class TreeStages:
    """A network, its text and a draft's stages, for one run.

    Attributes:
        copies: hard drafts of the target, of which one drafts unless another draft is named.
        other: the draft, unless it is the target's compressed copy, which takes calibration to make.
    """

    config: TreeConfig
    work: Work
    copies: HardDrafts
    other: ReadyDraft | None
    _decoded: dict[str, Arrays] = dataclasses.field(default_factory=dict)  # by stage

    @property
    def contexts(self) -> tuple[int, ...]:
        """Those of the configuration with the workload's own, rising."""
        return tuple(sorted({*self.config.contexts, self.config.context}))

    @property
    def sizes(self) -> dict[str, int]:
        """Of the largest tree."""
        return _sizes(self.config, self.work.setup.config.vocab_size)

    @cached_property
    def knobs(self) -> Knobs | None:
        """Of the target's compressed copy; None for another draft."""
        if self.other is not None:
            return None
        return uniform_knobs(self.work.setup.scheme, self.work.setup.config, knob_values(self.config))

    @cached_property
    def draft(self) -> ReadyDraft:
        """What proposes tokens."""
        if self.other is not None:
            return self.other
        assert self.knobs is not None
        return self.copies.ready(self.knobs)

    def _ranks(self, which: str, texts: np.ndarray, prompt_tokens: int, **lengths: np.ndarray) -> RankTraces:
        """How the draft ranks texts; a stage.

        Args:
            prompt_tokens, lengths: as for `record_ranks`.
        """
        setup, config = self.work.setup, self.config
        _ = self.copies.text  # a stage of its own, which making the draft may need

        def compute() -> Arrays:
            draft = self.draft
            with self.work.bar(f"ranking the {which} text by the draft", len(texts)) as bar:
                traces = record_ranks(
                    setup.params,
                    setup.config,
                    draft,
                    texts,
                    prompt_tokens=prompt_tokens,
                    depth=config.depth,
                    **lengths,
                    advance=bar.advance,
                )
            return {"rank": traces.rank, "num_starts": traces.num_starts}

        found = self.work.stages.run(f"ranks/{which}", compute)
        return RankTraces(rank=jnp.asarray(found["rank"]), num_starts=jnp.asarray(found["num_starts"]))

    @cached_property
    def growth(self) -> RankedTree:
        """The nodes in the order in which the tree grows, by calibration text alone."""
        traces = self._ranks("calibration", self.copies.text, self.config.prompt_tokens)
        return grow(self.config.search, candidate_shape(self.config.search, **self.sizes), traces, **self.sizes)

    @cached_property
    def limits(self) -> TreeLimits:
        """Static sizes of the largest tree, within which everything is decoded."""
        return tree_limits(self.growth.tree())

    @cached_property
    def traces(self) -> RankTraces:
        """Ranks of held-out text, as the target itself decodes it."""
        texts, lengths = self._continued
        return self._ranks("held-out", texts, self.work.setup.prompts.shape[1], **lengths)

    @property
    def _continued(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Held-out prompts with what the target puts out after them, and the tokens of both."""
        setup, room = self.work.setup, self.copies.continuation_tokens
        found = self.decode_autoregressively(setup.decoding)
        lengths = {"lengths": setup.prompt_lengths, "generated": np.minimum(found["generated"], room)}
        return found["tokens"][:, : setup.prompts.shape[1] + room], lengths

    def _tree(self, nodes: int) -> Tree:
        return self.growth.first(nodes).tree(size=self.growth.parent.size)

    def expected_with(self, nodes: int) -> Arrays:
        """Cycles of the held-out prompts with the tree of the first nodes, from its ranks, or followed along the texts where
        what a draft proposes depends on earlier cycles."""
        setup, config = self.work.setup, self.config
        if self.knobs is None or not has_pool(self.knobs, setup.config):
            found = jax.jit(cycles_along_text)(self._tree(nodes), self.traces, num_tokens=config.output_tokens)
            return {"generated": np.asarray(found.generated), "cycles": np.asarray(found.cycles)}
        texts, lengths = self._continued

        def compute() -> Arrays:
            with self.work.bar("following the draft along the texts", len(texts)) as bar:
                return predict_trees(
                    setup.params,
                    self.draft,
                    setup.config,
                    texts,
                    self._tree(nodes),
                    limits=self.limits,
                    prompt_tokens=setup.prompts.shape[1],
                    num_tokens=config.output_tokens,
                    decoding=setup.decoding,
                    seed=config.seed,
                    **lengths,
                    advance=bar.advance,
                )

        return self.work.stages.run(f"expected/{way_of(setup.decoding)}-tree-{nodes}", compute)

    def _decode_tree(self, tree: Tree, decoding: Decoding, *, tokens: int, name: str, what: str) -> Arrays:
        setup, limits = self.work.setup, self.limits

        def compute() -> Arrays:
            draft = self.draft
            with self.work.bar(what, len(setup.prompts)) as bar:
                return decode_prompts(
                    setup.params,
                    setup.config,
                    draft,
                    setup.prompts,
                    tree,
                    num_tokens=tokens,
                    decoding=decoding,
                    seed=self.config.seed,
                    limits=limits,
                    room=self.copies.continuation_tokens,
                    lengths=setup.prompt_lengths,
                    stop=setup.stop,
                    advance=bar.advance,
                )

        stage = f"decoded/{way_of(decoding)}-{name}"
        if stage not in self._decoded:
            self._decoded[stage] = self.work.stages.run(stage, compute)
        return self._decoded[stage]

    def decode_autoregressively(self, decoding: Decoding) -> Arrays:
        """Held-out prompts without a tree, at the width of the largest one."""
        tree, what = autoregressive_tree(self.limits), "decoding without a tree"
        return self._decode_tree(
            tree, decoding, tokens=self.copies.continuation_tokens, name="autoregressive", what=what
        )

    def decode_with(self, nodes: int, decoding: Decoding) -> Arrays:
        """Held-out prompts with the tree of the first nodes; what several devices choose is decoded once."""
        tree, what = self._tree(nodes), f"decoding with a tree of {nodes} nodes"
        return self._decode_tree(tree, decoding, tokens=self.config.output_tokens, name=f"tree-{nodes}", what=what)

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

        found = jax.tree.map(jnp.asarray, self.work.stages.run("footprint", compute))
        return priced_footprint(hwmodels.Footprint(**found))

    def _beside_another_draft(self) -> hwmodels.Footprint:
        """Bits read of a draft that is no compressed copy, and of its target."""
        if (own := own_footprint(self.config.draft)) is not None:
            found = priced_footprint(own)
        else:
            found, stored_as = hwmodels.uniform_footprint(UNCOMPRESSED_BITS), kind_of(self.config.draft).stored_as
            if stored_as:
                own_bits = find_scheme(stored_as).expected_footprint({}).draft_weight_bits
                found = dataclasses.replace(found, draft_weight_bits=own_bits)
        if not self.config.changes_target:
            return found
        scheme = self.work.setup.scheme
        stored = scheme.expected_footprint(knob_defaults(scheme))
        return dataclasses.replace(
            found, target_weight_bits=stored.target_weight_bits, target_kv_bits=stored.target_kv_bits
        )


def check_tree(config: TreeConfig) -> CheckedInputs:
    """Read and check all that a configuration names, its draft included, without reading weights.

    Raises:
        InputError: bad input, or a tree of impossible sizes.
    """
    checked = check_inputs(config)
    candidate_shape(config.search, **_sizes(config, checked.network.vocab_size))
    check_draft(config.draft, checked.network)
    return checked


def begin_tree(
    config: TreeConfig, directory: RunDirectory, reporter: Reporter, checked: CheckedInputs | None = None
) -> TreeStages:
    """Load all that a configuration names, its draft included.

    Args:
        checked: from `check_tree`, which is called unless it is given.
    Raises:
        InputError: bad input.
    """
    work = begin_work(config, directory, reporter, checked or check_tree(config))
    # Every root within `output_tokens` has ranks down to the largest depth, and no less than drafts are measured on.
    continuation = max(config.output_tokens + config.depth, continuation_length(config.output_tokens))
    other = None
    if config.draft != "self":
        other = make_draft(config.draft, load_model(config.model, stream=is_streamed(work.setup.stored)))
    return TreeStages(config, work, HardDrafts(work, continuation), other)


def _sizes(config: TreeConfig, vocab_size: int) -> dict[str, int]:
    return {"nodes": config.nodes, "depth": config.depth, "vocabulary": vocab_size}
