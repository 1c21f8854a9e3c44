"""What can knobs of its own for every matrix gain over one pair for all? `python -m experiments.coding_gain RUN`.

RUN is the directory of a finished `jaxspec tune`, whose text, network and best pair are read. At that pair a knob of
matrix i loses log speedup at a rate l_i, by acceptance, and gains it at a rate g_i, by what is not read. Where losses
grow as exp(c x) along a knob x, moving every knob to where its two rates are equal gains (1/c) (sum g) (log(sum l / sum
g) - mean of log(l_i / g_i), weighted by g_i) more than moving all alike: the logarithm of an arithmetic over a
geometric mean, as the coding gain of a transform is. Noise in l_i looks like such a gain, so what half of the passes
show beyond all of them is taken off.

Source: Jayant & Noll 1984, Digital Coding of Waveforms, section 12.1; Shoham & Gersho 1988, doi:10.1109/29.90373.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.command_line import add_outputs, run_and_write
from jaxspec.compress.knobs import Knobs, knobs_from_json
from jaxspec.errors import InputError
from jaxspec.partial_files import read_json
from jaxspec.report.terminal import Table, new_console
from jaxspec.runs import Reporter
from jaxspec.runs.stages import Stages
from jaxspec.settings.base import build_config, read_layer
from jaxspec.settings.knobs import KnobSpec
from jaxspec.studies import TuneConfig
from jaxspec.studies.measured.checking import check_inputs
from jaxspec.studies.measured.run_context import RunContext, load_within_memory
from jaxspec.studies.tune.run import tune_drafts
from jaxspec.tuning.gradient import GROWTH, GROWTH_PER_BIT, Goal, marginal_returns


def log_gain(loss: np.ndarray, gain: np.ndarray, growth: float) -> float:
    """Log speedup that equal slopes gain over one shift of all knobs.

    Args:
        loss, gain: rates of log speedup along each knob, of its whole range.
        growth: of losses along the whole range, in nats.
    """
    paying = (gain > 0) & (loss > 0)
    loss, gain = loss[paying], gain[paying]
    means = math.log(loss.sum() / gain.sum()) - float(np.average(np.log(loss / gain), weights=gain))
    return float(gain.sum()) * means / growth


def without_noise(losses: np.ndarray, gain: np.ndarray, growth: float) -> tuple[float, float]:
    """The gain of the mean over passes, and the same less what noise adds: it is twice as large in half of the passes.

    Args:
        losses: "pass ...", of passes over disjoint windows.
    """
    whole = log_gain(losses.mean(axis=0), gain, growth)
    halves = np.mean([log_gain(losses[first::2].mean(axis=0), gain, growth) for first in (0, 1)])
    return whole, 2 * whole - float(halves)


def within_range(loss: np.ndarray, gain: np.ndarray, growth: float, at: np.ndarray, places: np.ndarray) -> float:
    """Log speedup that the best place of each knob gains over the best place of all, where places are few and end somewhere.

    Args:
        at: " knob", where rates were measured; places: that knobs may take. Both in [0, 1], of the whole range.
    """
    moves = places - at[:, None]
    change = gain[:, None] * moves - np.maximum(loss, 0.0)[:, None] * np.expm1(growth * moves) / growth
    return float(change.max(axis=1).sum() - change.sum(axis=0).max())


def measure(run: Path, device: int, reporter: Reporter) -> dict[str, Any]:
    """Coding gains at the best pair of a run of `jaxspec tune`, by knob."""
    entry = read_json(run / "result.json")[device]
    config = build_config(TuneConfig, read_layer(run / "config.toml"))
    checked = check_inputs(config)
    setup = load_within_memory(config, checked, reporter, gradient_windows=config.windows_per_step)
    work = RunContext(config, setup, Stages(run / "checkpoints"), reporter, checked.pricings, {})
    drafts = tune_drafts(config, work)
    pair = knobs_from_json(entry["configurations"]["uniform"]["knobs"], setup.scheme, setup.config)
    pricing = checked.pricings[config.device[device]]
    goal = Goal(windows_per_step=config.windows_per_step, decode_temperature=config.surrogate_temperature)
    passes = len(drafts.text) // config.windows_per_step // 2 * 2
    if not passes:
        raise InputError(f"{len(drafts.text)} windows came; allowed are twice --windows-per-step or more")
    seed, returns = jnp.asarray(config.seed), []
    calibration = drafts.calibration
    with reporter.bar("measuring marginal returns at the best pair", passes) as bar:
        for step in range(passes):
            returns.append(jax.device_get(marginal_returns(pair, calibration, pricing, seed, jnp.asarray(step), goal)))
            bar.advance()
    gains = {spec.name: _of_knob(spec, returns) for spec in setup.scheme.knob_specs if _own(spec, pair)}
    speedup = {name: entry["configurations"][name]["speedup_vs_bf16_ar"] for name in ("grid", "uniform", "tuned")}
    return {"gains": gains, "speedup": speedup, "passes": passes, "model": config.model, "scheme": config.scheme}


def _own(spec: KnobSpec, pair: Knobs) -> bool:
    """Whether every matrix has its own: without pruning there is no bitmap, which a small share does not pay for."""
    return spec.per == "matrix" and (spec.whole or bool(np.any(pair.values[spec.name])))


def _of_knob(spec: KnobSpec, returns: list[Any]) -> dict[str, float]:
    sign = 1.0 if spec.reads_less else -1.0
    losses = -sign * np.stack([np.asarray(each.quality[spec.name], float) for each in returns])
    gain = sign * np.mean([np.asarray(each.cost[spec.name], float) for each in returns], axis=0)
    growth = (spec.high - spec.low) * GROWTH_PER_BIT if spec.whole else GROWTH
    whole, less_noise = without_noise(losses, gain, growth)
    places = np.linspace(0.0, 1.0, int(spec.high - spec.low) + 1 if spec.whole else 101)
    at, loss = np.asarray(returns[0].places[spec.name], float), losses.mean(axis=0)
    less = lambda place: place if spec.reads_less else 1.0 - place
    ranged = within_range(loss.ravel(), gain.ravel(), growth, less(at).ravel(), less(places))
    logs = {"with_noise": whole, "without_noise": less_noise, "within_range": ranged}
    return {name: math.exp(value) for name, value in logs.items()}


def show(result: dict[str, Any]) -> None:
    """A table on standard output."""
    speedup = result["speedup"]
    table = Table(
        f"{result['model']}, {result['scheme']}: what knobs of its own can gain over the best pair",
        f"predicted from marginal returns of {result['passes']} passes; tuned over pair, counted: "
        f"{speedup['tuned'] / speedup['uniform']:.3f}x, over grid: {speedup['tuned'] / speedup['grid']:.3f}x",
    )
    for heading in ("knob", "as measured", "less noise", "at allowed places"):
        table.add_column(heading)
    for name, row in result["gains"].items():
        table.add_row(name, *(f"{row[kind]:.3f}x" for kind in ("with_noise", "without_noise", "within_range")))
    new_console().print(table)


def main() -> None:
    """Measure, show, write."""
    parser = argparse.ArgumentParser(prog="python -m experiments.coding_gain", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--device", type=int, default=0, help="place of a device among those of the run")
    add_outputs(parser, plots=False)
    args = parser.parse_args()
    run_and_write(parser, args, lambda: measure(args.run, args.device, Reporter()), show)


if __name__ == "__main__":
    main()
