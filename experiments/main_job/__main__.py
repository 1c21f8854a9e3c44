"""Measure what the main job must reach: `python -m experiments.main_job [--json FILE]`. About half an hour on two cores.

For each seed: tune on three devices, decode 200 held-out prompts of 64 tokens greedily, compare the tuned draft with the
default, the best grid point and the best continuous pair, and predicted with counted tokens per cycle; for the first seed the
same by sampling. Then greedy equality for drafts that are bad on purpose: 95 % pruned, and of random weights.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxspec.compress import uniform_knobs
from jaxspec.files import to_json, write_text
from jaxspec.models import init_params
from jaxspec.report.terminal import Table, new_console
from jaxspec.runs import Reporter, RunDirectory
from jaxspec.speculate import GREEDY, count_mismatches, decode_chains
from jaxspec.speculate.drafts import self_draft
from jaxspec.speculate.proof import continuation_length
from jaxspec.studies import TuneConfig, tune
from jaxspec.studies.measured.comparison import ChainDecoding
from jaxspec.studies.measured.hard_drafts import HardDrafts
from jaxspec.studies.measured.work import begin_work

DEVICES = ("rtx-4090", "jetson-agx-orin", "cassandra-npu")
BARS = {"tuned_vs_grid": 1.06, "tuned_vs_uniform": 1.03, "tuned_vs_default": 1.12}


def tuned_rows(
    seeds: list[int], all_devices: list[str], prompts: int, out: Path, reporter: Reporter
) -> list[dict[str, Any]]:
    """One row per seed, way of decoding and device."""
    rows = []
    for seed in seeds:
        for temperature in (0.0, 1.0) if seed == seeds[0] else (0.0,):
            devices = tuple(all_devices if temperature == 0 else all_devices[:1])
            config = TuneConfig(device=devices, prompts=prompts, seed=seed, temperature=temperature)
            results, _ = tune(config, out=str(out / f"seed-{seed}-temperature-{temperature:g}"), reporter=reporter)
            for result in results:
                entry = result.plain()
                tuned = result.configurations["tuned"]
                gaps = {
                    name: found.tokens_per_cycle_gap_in_standard_errors.value
                    for name, found in result.configurations.items()
                }
                rows.append(
                    {
                        "seed": seed,
                        "temperature": temperature,
                        "device": result.device,
                        "speedup_vs_bf16_ar": tuned.speedup_vs_bf16_ar.value,
                        "speedup_vs_stored_ar": tuned.speedup_vs_stored_ar.value,
                        "ratios": entry["ratios"],
                        "gap_in_standard_errors": gaps,
                        "lossless": entry["lossless"],
                    }
                )
    return rows


def equality_rows(prompts: int, out: Path, reporter: Reporter) -> list[dict[str, Any]]:
    """Greedy equality for drafts that no one would build."""
    config = TuneConfig(prompts=prompts)
    directory = RunDirectory("tune", config, inputs={}, out=out / "equality", force=True)
    run = begin_work(config, directory, reporter)
    hard = HardDrafts(run, continuation_length(config.output_tokens))
    reference = ChainDecoding(hard).autoregressive(GREEDY)
    extreme = {spec.name: spec.high for spec in run.setup.scheme.knob_specs}
    pruned = uniform_knobs(run.setup.scheme, run.setup.config, extreme)
    random_draft = jax.tree.map(jnp.asarray, init_params(run.setup.config, jax.random.key(1)))
    drafts = {"95 % pruned, 7 bits cut": hard.params(pruned), "random weights": random_draft}
    rows = []
    for name, draft in drafts.items():
        counted = decode_chains(
            run.setup.params,
            run.setup.config,
            self_draft(run.setup.config, draft, pruned),
            run.setup.prompts,
            5,
            num_tokens=config.output_tokens,
            decoding=GREEDY,
            seed=config.seed,
        )
        found = count_mismatches(counted, reference, config.prompt_tokens, config.output_tokens)
        per_cycle = float(counted["generated"].sum() / counted["cycles"].sum())
        rows.append({"draft": name, "tokens_per_cycle_counted": per_cycle, **found})
    return rows


def show(rows: list[dict[str, Any]], equality: list[dict[str, Any]]) -> None:
    """Tables on standard output."""
    console = new_console()
    table = Table(title="Tuned draft: held-out speedup (tokens per cycle counted, time predicted) and ratios")
    for column in ("seed", "T", "device", "vs 16-bit AR", "vs stored AR", *BARS, "largest gap, SE", "mismatches"):
        table.add_column(column, justify="right")
    for row in rows:
        ratios = [f"{r['ratio']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r in (row["ratios"][k] for k in BARS)]
        table.add_row(
            str(row["seed"]),
            f"{row['temperature']:g}",
            row["device"],
            f"{row['speedup_vs_bf16_ar']:.3f}",
            f"{row['speedup_vs_stored_ar']:.3f}",
            *ratios,
            f"{max(row['gap_in_standard_errors'].values()):.2f}",
            f"{row['lossless']['mismatches']} of {row['lossless']['tokens']}",
        )
    console.print(table)
    for device in dict.fromkeys(row["device"] for row in rows):
        greedy = [row for row in rows if row["device"] == device and row["temperature"] == 0]
        for name, bar in BARS.items():
            ratios = np.asarray([row["ratios"][name]["ratio"] for row in greedy])
            spread = ratios.std(ddof=1) if len(ratios) > 1 else float("nan")
            console.print(f"{device} {name}: mean {ratios.mean():.3f}, spread {spread:.3f} (bar {bar})")
    for row in equality:
        console.print(
            f"{row['draft']}: {row['mismatches']} mismatches in {row['tokens']} tokens, "
            f"{row['tokens_per_cycle_counted']:.3f} tokens per cycle"
        )


def main() -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.main_job", description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--devices", nargs="+", default=list(DEVICES))
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("runs/main_job"))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    reporter = Reporter()
    rows = tuned_rows(args.seeds, args.devices, args.prompts, args.out, reporter)
    equality = equality_rows(args.prompts, args.out, reporter)
    show(rows, equality)
    if args.json:
        write_text(args.json, to_json({"schema_version": 1, "rows": rows, "equality": equality, "bars": BARS}))


if __name__ == "__main__":
    main()
