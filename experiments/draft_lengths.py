"""Price policies of draft lengths along an acceptance trace, on a device, by batch and data set.

    python -m experiments.draft_lengths trace.jsonl.gz --drafters eagle,ngram --drafts eagle3,ngram --json FILE --out FOLDER

Each rule's numbers are chosen on every second request and judged on the others, as a fixed length is. Seconds of a cycle are
those of `jaxspec advise`, at the trace's mean context; sequences of a batch are taken to draft alike. Only requests count whose
lists are equally long for all drafters.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from experiments.command_line import add_outputs, print_table, run_and_write
from hwmodels import AcceptanceTrace, TraceError, read_trace
from hwmodels.speculation.draft_policies import (
    AdditiveLength,
    DraftPolicy,
    FastestDraft,
    FixedLength,
    ThresholdLength,
    fastest_way,
    walk_policies,
)
from jaxspec.errors import InputError
from jaxspec.report.figure_style import BLUE, VERMILLION, legend_below, new_figure, styled
from jaxspec.studies.advise.config import LOOKUP, AdviseConfig
from jaxspec.studies.advise.inputs import DraftAcceptance, measured_kernels, named_draft, read_widths
from jaxspec.studies.advise.pricing import price_advice

__all__ = ["speedup_figure"]


@styled
def speedup_figure(result: dict[str, Any]) -> Figure:
    """A panel for each data set; bars are 90 % intervals over requests."""
    sets, batches = result["speedups"], result["settings"]["batches"]
    drafters = result["settings"]["drafters"]
    who = drafters[0] if len(drafters) == 1 else "any drafter"
    lines = [(f"fixed, {name}", "0.5", style) for name, style in zip(drafters, (":", "-.", "--"))]
    lines += [(f"fastest at recent rates, {who}", BLUE, "-"), (f"best way, {who}", VERMILLION, "-")]
    figure = new_figure(
        "Draft lengths along an acceptance trace",
        f"speedup over no draft by batch, {result['settings']['device']} with {result['settings']['engine']} (predicted)",
        height_inches=3.4,
    )
    panels = figure.subplots(1, len(sets), squeeze=False, sharey=True)[0]
    for axes, (dataset, rules) in zip(panels, sets.items(), strict=True):
        for rule, color, style in lines:
            middle, low, high = (np.array(rules[rule][name]) for name in ("speedup", "low", "high"))
            ends = [middle - low, high - middle]
            axes.errorbar(batches, middle, yerr=ends, color=color, linestyle=style, capsize=2, label=rule)
        axes.axhline(1.0, color="0.6", lw=0.8, zorder=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(batches, list(map(str, batches)))
        axes.tick_params(axis="x", labelsize="x-small")
        axes.set(xlabel="batch", title=dataset)
    panels[0].set(ylabel="speedup over no draft")
    legend_below(figure, panels[0])
    return figure


#: Longest draft of any rule.
LONGEST = 16

#: Of the bootstrap over requests: draws, and the ends of its interval.
DRAWS, ENDS = 1000, (0.05, 0.95)

#: Seconds of a draft that a rule does not have.
NEVER = 1e6

#: All data sets together, a choice among drafters, and the rule that can make it.
ALL, ANY, FASTEST = "all", "any drafter", "fastest at recent rates"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is priced."""

    architecture: str
    device: str
    engine: str | None
    drafts: tuple[str, ...]
    batches: tuple[int, ...]


def cycle_seconds(settings: Settings, draft: str, context: int) -> Float[np.ndarray, "batch length"]:
    """Seconds of a cycle with 0, 1, ... drafted tokens, as `jaxspec advise` predicts them."""
    config = AdviseConfig(
        architecture=settings.architecture,
        device=(settings.device,),
        engine=settings.engine,  # pyright: ignore[reportArgumentType] - checked there
        draft=draft,
        batch=settings.batches,
        context=(context,),
        max_draft_length=LONGEST,
    )
    pricing = measured_kernels(config, settings.device)
    none_known = DraftAcceptance(np.full(LONGEST, 0.5), np.zeros((LONGEST, 1)), "input", "not used")
    own = named_draft(config, pricing.architecture)
    case = dataclasses.replace(pricing, footprint=read_widths(config), draft=own)
    advised = price_advice(case, acceptance=none_known, batches=config.batch, scatter=0.0)
    plain = advised.cycles.baselines.stored.cost.total_s + advised.cycles.plain_engine_s
    return np.concatenate([plain[:, :1], advised.numbers["cycle_s"].value], axis=1)


def rules(free: np.ndarray) -> dict[str, DraftPolicy]:
    """Every rule with the numbers among which it is chosen, leaves " policy"; `free`: drafters without cost."""
    drafters = range(len(free))

    def grid(kind: type, **axes: Any) -> Any:
        columns = zip(*itertools.product(*axes.values()), strict=True)
        return kind(**dict(zip(axes, map(np.array, columns), strict=True)))

    rates = {"rate": (0.02, 0.05, 0.1, 0.2), "prior": (0.3, 0.6), "strength": (4.0, 16.0)}
    fastest = grid(FastestDraft, **rates, free=(0.0,))
    return {
        "fixed": grid(FixedLength, drafter=drafters, length=range(LONGEST + 1)),
        "additive": grid(AdditiveLength, drafter=drafters, more=(1, 2), most=(2, 4, 8, 16)),
        "threshold": grid(
            ThresholdLength,
            drafter=drafters,
            length=(1, 2, 3, 4, 6),
            least=(0.3, 0.6, 1.0),
            rate=(0.1,),
            period=(8, 32),
        ),
        FASTEST: fastest.replace(free=np.tile(free, (fastest.rate.size, 1))),
    }


def seconds_of(
    trace: AcceptanceTrace, rule: DraftPolicy, seconds: np.ndarray
) -> Float[np.ndarray, "request batch policy"]:
    """Seconds of each request with each of a rule's numbers. Args: seconds: "batch drafter length"."""
    batches, count = len(seconds), len(jax.tree.leaves(rule)[0])
    lanes = jax.tree.map(lambda leaf: np.tile(leaf, (batches, *[1] * (leaf.ndim - 1))), rule)
    walked = walk_policies(trace, lanes, np.repeat(seconds, count, axis=0)).seconds
    return walked.reshape(-1, batches, count)


def judged(
    trace: AcceptanceTrace, seconds: np.ndarray, free: np.ndarray
) -> dict[str, Float[np.ndarray, "request batch"]]:
    """Seconds of every request by rule and drafters; numbers of a rule are those that take least on requests 0, 2, 4, ..."""
    subsets = {name: [place] for place, name in enumerate(trace.drafters)}
    if len(subsets) > 1:
        subsets[ANY] = list(range(len(trace.drafters)))
    by_rule = {"no draft": trace.generated[:, None] * seconds[None, :, 0, 0]}
    for who, places in subsets.items():
        own = np.full_like(seconds, NEVER)
        own[:, places] = seconds[:, places]
        own[:, :, 0] = seconds[:, :, 0]  # no draft is everybody's
        for name, rule in rules(free).items():
            if who == ANY and name != FASTEST:  # the others use one drafter
                continue
            each = seconds_of(trace, rule, own)
            best = each[::2].sum(axis=0).argmin(axis=1)
            by_rule[f"{name}, {who}"] = np.take_along_axis(each, best[None, :, None], axis=2)[:, :, 0]
        by_rule[f"best way, {who}"] = fastest_way(trace, own)
    return by_rule


def run(path: str, drafters: tuple[str, ...], settings: Settings) -> dict[str, Any]:
    """Speedups over no draft of the judged requests, by data set, rule and batch."""
    try:
        trace = read_trace(path, drafters)
    except TraceError as error:
        raise InputError(str(error)) from error
    weights = trace.generated / trace.generated.sum()
    context = int(np.sum(weights * (trace.prompt_tokens + trace.generated / 2)))
    seconds = np.stack([cycle_seconds(settings, draft, context) for draft in settings.drafts], axis=1)
    free = np.array([float(draft == LOOKUP) for draft in settings.drafts])
    by_rule = judged(trace, seconds, free)
    sets = {ALL: np.ones(len(trace.generated), bool)}
    sets |= {name: np.array(trace.datasets) == name for name in dict.fromkeys(trace.datasets)}
    speedups: dict[str, Any] = {}
    for dataset, chosen in sets.items():
        chosen = chosen & (np.arange(len(chosen)) % 2 == 1)
        if (count := int(chosen.sum())) == 0:
            continue
        drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=DRAWS)
        plain = by_rule["no draft"][chosen]
        speedups[dataset] = {"requests": count}
        for name, each in by_rule.items():
            low, high = np.quantile((drawn @ plain) / (drawn @ each[chosen]), ENDS, axis=0)
            numbers = {"speedup": plain.sum(axis=0) / each[chosen].sum(axis=0), "low": low, "high": high}
            speedups[dataset][name] = {key: value.round(4).tolist() for key, value in numbers.items()}
    return {
        "settings": dataclasses.asdict(settings) | {"drafters": trace.drafters, "context_tokens": context},
        "requests": len(trace.generated),
        "tokens": int(trace.generated.sum()),
        "speedups": speedups,
        "status": "predicted",
    }


def show(result: dict[str, Any]) -> None:
    """A table for each data set."""
    for dataset, rules in result["speedups"].items():
        speedups = {rule: numbers["speedup"] for rule, numbers in rules.items() if rule != "requests"}
        print_table(
            f"{dataset}: speedup over no draft by batch, {rules['requests']} requests (predicted)",
            ["rule", *map(str, result["settings"]["batches"])],
            ([rule, *(f"{speedup:.2f}" for speedup in some)] for rule, some in speedups.items()),
        )


def plot(result: dict[str, Any], folder: Path) -> None:
    """Speedup by batch of every rule with any drafter, and of fixed lengths, as PNG."""

    folder.mkdir(parents=True, exist_ok=True)
    speedup_figure(result).savefig(folder / "draft-lengths.png", dpi=150)


def main() -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.draft_lengths",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = lambda text: tuple(text.split(","))
    parser.add_argument("trace", help="JSON lines, as they are or in gzip")
    parser.add_argument("--drafters", type=names, required=True, help="of the trace, separated by commas")
    parser.add_argument(
        "--drafts", type=names, required=True, help="what each is priced as, see jaxspec advise --draft"
    )
    parser.add_argument("--architecture", default="llama-3.1-8b")
    parser.add_argument("--device", default="h100-sxm")
    parser.add_argument("--engine", default="vllm")
    parser.add_argument("--batches", type=lambda text: tuple(map(int, text.split(","))), default="1,2,4,8,16,32,64,128")
    add_outputs(parser)
    args = parser.parse_args()
    if len(args.drafts) != len(args.drafters):
        parser.error(
            f"{len(args.drafters)} drafters and {len(args.drafts)} drafts came; give one draft for each drafter"
        )
    settings = Settings(args.architecture, args.device, args.engine, args.drafts, args.batches)
    run_and_write(parser, args, lambda: run(args.trace, args.drafters, settings), show, plot)


if __name__ == "__main__":
    main()
