"""Tree searches and the AAT law on our own network: `python -m experiments.tree_search [--json FILE] [--out FOLDER]`.

A few minutes. Prints, for each draft and context: tokens per cycle by search, how far the prior score leads, the law's R², and
one tree decoded for proof.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments.command_line import add_outputs, carry_out
from experiments.tree_search.comparison import BASELINES, PRIOR, compare, tree_growths
from experiments.tree_search.recording import (
    Recorded,
    Settings,
    Target,
    compressed_target,
    load_target,
    pooled,
    record,
)
from jaxspec.models.embedded import EMBEDDED_NAME, HEAD_NAME, SMALL_NAME, load_model
from jaxspec.report.terminal import Table, new_console
from jaxspec.runs.progress import Reporter
from jaxspec.speculate.drafts import ReadyDraft, make_draft
from jaxspec.speculate.proof import decode_prompts
from jaxspec.speculate.sampling import GREEDY
from jaxspec.trees.rank_traces import cycles_along_text
from jaxspec.trees.ranked_tree import RankedTree

#: Nodes of the tree that is decoded for proof.
PROOF_NODES = 15


def prove(
    target: Target, draft: ReadyDraft, recorded: Recorded, growth: RankedTree, settings: Settings
) -> dict[str, Any]:
    """Decode held-out prompts with one tree: what is counted, and what the ranks said."""
    nodes = min(PROOF_NODES, settings.nodes)
    tree = growth.first(nodes).tree()
    assert recorded.context is not None, "prompts of several lengths cannot be decoded together"
    texts = target.texts[recorded.context, "held_out"]
    counted = decode_prompts(
        target.params,
        target.loaded.config,
        draft,
        texts[:, : recorded.context],
        tree,
        num_tokens=settings.output_tokens,
        decoding=GREEDY,
        seed=settings.seed,
    )
    predicted = cycles_along_text(tree, recorded.held_out, num_tokens=settings.output_tokens)
    part = slice(recorded.context, recorded.context + settings.output_tokens)
    return {
        "context_tokens": recorded.context,
        "verification_length": nodes + 1,
        "tokens_per_cycle_predicted": float(np.sum(predicted.generated) / np.sum(predicted.cycles)),
        "tokens_per_cycle_counted": float(counted["generated"].sum() / counted["cycles"].sum()),
        "texts_with_other_cycles": int(np.sum(counted["cycles"] != np.asarray(predicted.cycles))),
        "tokens": int(texts[:, part].size),
        "mismatches": int(np.sum(counted["tokens"][:, part] != texts[:, part])),
    }


def run(drafts: list[str], settings: Settings, reporter: Reporter) -> dict[str, Any]:
    """All drafts on the same texts."""
    loaded = load_model(EMBEDDED_NAME)
    # Before any work, so that a misspelt name costs nothing.
    known = {name: make_draft(name, loaded) for name in drafts if name != "self"}
    target = load_target(loaded, settings, reporter)
    result: dict[str, Any] = {"settings": dataclasses.asdict(settings), "drafts": {}}
    for name in drafts:
        draft = known[name] if name in known else compressed_target(target)
        recorded = record(target, draft, settings, reporter)
        growths = [tree_growths(part, settings) for part in recorded]
        entries = [compare(part, growth, settings) for part, growth in zip(recorded, growths, strict=True)]
        together = pooled(recorded)
        result["drafts"][name] = {
            "contexts": entries,
            "pooled": compare(together, tree_growths(together, settings), settings),
            "proof": prove(target, draft, recorded[0], growths[0][PRIOR], settings),
            "status": "measured",
        }
    return result


def show(result: dict[str, Any]) -> None:
    """Tables on standard output."""
    console = new_console()
    for name, found in result["drafts"].items():
        table = Table(title=f"{name}: tokens per cycle on held-out text (measured), and what the prior score gains")
        for column in ("context", "x = 2", "x = 16", f"x = {result['settings']['nodes'] + 1}", "law's R²"):
            table.add_column(column, justify="right")
        for other in (*BASELINES, "independent"):
            table.add_column(f"over {other}: mean, p, lowest", justify="right")
        for entry in (*found["contexts"], found["pooled"]):
            tokens = entry["tokens_per_cycle"][PRIOR]
            picked = [f"{tokens[min(place, len(tokens) - 1)]:.3f}" for place in (0, 14, len(tokens) - 1)]
            leads = [
                f"{lead['mean_gain']:+.3f}, {lead['p_value']:.1g}, {lead['lowest_in_standard_errors']:+.1f} SE at "
                f"{lead['lowest_at']}"
                for lead in (entry["prior_score_leads"][other] for other in (*BASELINES, "independent"))
            ]
            table.add_row(str(entry["context_tokens"] or "all"), *picked, f"{entry['law']['r_squared']:.3f}", *leads)
        console.print(table)
        proof = found["proof"]
        console.print(
            f"  decoded with {proof['verification_length']} tokens at context {proof['context_tokens']}: "
            f"{proof['tokens_per_cycle_counted']:.4f} tokens per cycle counted, "
            f"{proof['tokens_per_cycle_predicted']:.4f} predicted, {proof['texts_with_other_cycles']} texts with other "
            f"cycles; {proof['mismatches']} mismatches in {proof['tokens']} tokens\n"
        )


def plot(result: dict[str, Any], folder: Path) -> None:
    """Two figures for each draft, as PNG."""
    from experiments.tree_search.figures import law_figure, search_figure

    folder.mkdir(parents=True, exist_ok=True)
    for name, found in result["drafts"].items():
        context = found["contexts"][len(found["contexts"]) // 2]["context_tokens"]
        stem = Path(name).name
        for what, figure in (
            ("law", law_figure(name, found["contexts"])),
            ("searches", search_figure(name, found["contexts"], context)),
        ):
            assert figure is not None
            figure.savefig(folder / f"tree_search_{stem}_{what}.png", dpi=150)


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.strip().isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} came; give a whole number from {least}")
        return int(text)

    return read


def main() -> None:
    """Run, show, write."""
    default = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m experiments.tree_search",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--draft",
        default=f"{SMALL_NAME},{HEAD_NAME},ngram",
        help="drafts, separated by commas: names, or directories of a network or head (default %(default)s)",
    )
    parser.add_argument(
        "--context",
        type=lambda text: tuple(map(_at_least(2), text.split(","))),
        default=",".join(map(str, default.contexts)),
        help="tokens of a prompt, several separated by commas; default %(default)s",
    )
    parser.add_argument(
        "--prompts", type=_at_least(1), default=default.prompts, help="held out, per context; default %(default)s"
    )
    parser.add_argument(
        "--calibration-prompts",
        type=_at_least(1),
        default=default.calibration_prompts,
        help="per context; default %(default)s",
    )
    parser.add_argument("--seed", type=_at_least(0), default=default.seed)
    add_outputs(parser)
    args = parser.parse_args()
    settings = dataclasses.replace(
        default,
        contexts=args.context,
        prompts=args.prompts,
        calibration_prompts=args.calibration_prompts,
        seed=args.seed,
    )
    carry_out(parser, args, lambda: run(args.draft.split(","), settings, Reporter()), show, plot)


if __name__ == "__main__":
    main()
