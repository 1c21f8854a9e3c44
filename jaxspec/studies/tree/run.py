"""`jaxspec tree`: which draft tree to verify, with how many tokens, at every context length; measured, priced, proven.

How the draft ranks the target's own continuation of calibration prompts decides in which order a tree grows; how it ranks that
of held-out prompts tells what every size gains; the cost model tells what it takes. The tree that pays then decodes the
held-out prompts.

Source: Boosting the Performance of Tree-Based Speculative Decoding of LLMs on FPGAs, Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxspec.files import plain
from jaxspec.runs.carrying_out import carry_out
from jaxspec.runs.directory import RunDirectory
from jaxspec.runs.inputs import draft_digests
from jaxspec.runs.progress import Reporter
from jaxspec.settings import expect
from jaxspec.speculate.drafts import SelfDraft
from jaxspec.studies.kernel_notes import kernel_notes
from jaxspec.studies.measured.measuring import GREEDY
from jaxspec.studies.tree.config import TreeConfig
from jaxspec.studies.tree.drafts import NamedDraft
from jaxspec.studies.tree.entries import (
    STATUS,
    contexts_entry,
    curve_entry,
    draft_entry,
    growth_entry,
    law_entry,
    proof_entry,
    schedule_entry,
)
from jaxspec.studies.tree.pricing import PricedDraft, price_growth, priced_draft
from jaxspec.studies.tree.report import write_tree_report
from jaxspec.studies.tree.stages import TreeMeasuring
from jaxspec.trees.rank_traces import AATBySize, aat_by_size
from jaxspec.tune.proof import count_mismatches

__all__ = ["TreeSearch", "draft_digests", "search_tree"]


class TreeSearch(TreeMeasuring):
    """One run of `jaxspec tree`."""

    def run(self) -> list[dict[str, Any]]:
        """All stages; the entries of result.json, one per device."""
        curve = aat_by_size(self.growth, self.traces, num_tokens=self.config.output_tokens)
        measured = {
            "growth": growth_entry(self.growth, self.traces),
            "curve": curve_entry(curve),
            "law": law_entry(curve),
        }
        found = {device: self._device_entry(device, curve) for device in self.pricings}
        # Heads come last: they tell how long all stages took.
        return [self.head(device) | measured | parts for device, parts in found.items()]

    def _device_entry(self, device: str, curve: AATBySize) -> dict[str, Any]:
        config, pricing = self.config, self.pricings[device]
        priced = self._priced(device)
        times = price_growth(pricing, self.growth, footprint=self.widths, contexts=self.contexts, draft=priced)
        rows = contexts_entry(self.contexts, curve, times)
        own = rows[self.contexts.index(config.context)]["decision"]
        pays = own["speculate"]
        nodes = own["verification_length"] - 1 if pays else config.nodes
        chosen = (
            "fastest at the workload's context" if pays else "the largest, since none pays at the workload's context"
        )
        proof = proof_entry(
            self.growth,
            nodes,
            traces=self.traces,
            counted=self.decode_with(nodes, self.setup.decoding),
            num_tokens=config.output_tokens,
            chosen=chosen,
            seed=config.seed,
        )
        lossless = count_mismatches(
            self.decode_with(nodes, GREEDY),
            self.decode_autoregressively(GREEDY),
            config.prompt_tokens,
            config.output_tokens,
        )
        return {
            "draft": draft_entry(config.draft, self.other, self.knobs, priced, self.widths),
            "scheme": config.scheme if self.knobs is not None else None,  # others leave the target uncompressed
            "search": {"name": config.search, "nodes": config.nodes, "depth": config.depth},
            "pays": pays,
            "contexts": rows,
            "schedule": schedule_entry(self.contexts, curve, times),
            "proof": proof,
            "lossless": lossless,
            "status": STATUS | {"footprint": "measured" if self.knobs is not None else "input"},
            **kernel_notes(pricing.device, [self.widths]),
        }

    def _priced(self, device: str) -> PricedDraft:
        # The target's copy needs no parameters to be priced, and making them takes seconds.
        named = self.other or NamedDraft("self", SelfDraft(self.setup.config), None, None)
        target = self.pricings[device].architecture
        return priced_draft(named, self.setup.config, target, self.config.architecture)


def search_tree(
    config: TreeConfig,
    *,
    out: str | None = None,
    force: bool = False,
    reporter: Reporter | None = None,
) -> tuple[list[dict[str, Any]], RunDirectory]:
    """Find the draft tree for every device and context of the configuration, or return what a finished run found.

    Returns:
        The entries of result.json (one per device), and the run directory, which also holds the report.
    Raises:
        InputError: bad input; nothing is lost.
    """

    def prepare(directory: RunDirectory, reporter: Reporter) -> Callable[[], list[dict[str, Any]]]:
        run = TreeSearch(config, directory, reporter)

        def work() -> list[dict[str, Any]]:
            entries = plain(run.run())
            reporter.line("writing the report ...")
            write_tree_report(entries, directory.path)
            return entries

        return work

    expect(TreeConfig, config)
    return carry_out("tree", config, prepare, out=out, force=force, reporter=reporter)
