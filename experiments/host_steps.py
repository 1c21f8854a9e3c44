"""Steps of a network on this machine, predicted and measured: `python -m experiments.host_steps [--device FILE]`.

Some minutes. The network is the embedded one, or random weights in the shape of another (--architecture llama-3.1-8b), held in
16 bits if they are more than 64 million. Without a device file the machine is calibrated first (`jaxspec calibrate`).
Predictions are written before anything is timed (to --json, with no measured times yet). Two times are measured: a step of the
target over so many tokens (forward pass, choice of tokens, KV written), and a cycle of the decoding engine at that width with a
draft that does nothing, which adds drafting's bookkeeping and the acceptance test. The device prices steps; what a cycle adds
is the engine's.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.command_line import add_outputs, carry_out
from hwmodels import OPERATORS, Architecture, Device, DraftCost, step_cost, step_operators, uniform_weight_bits
from hwmodels.analysis.uncertainty.kernel_errors import step_interval
from hwmodels.step.priced_steps import PricedStep
from jaxspec.files import to_json, write_text
from jaxspec.models.architecture import architecture_of
from jaxspec.models.config import DecoderConfig
from jaxspec.models.decoder import Params, abstract_params
from jaxspec.models.embedded import load_model
from jaxspec.models.stored import SMALL, as_computed
from jaxspec.report.terminal import Table
from jaxspec.report.terminal import show as terminal_show
from jaxspec.runs.machine import load_per_core
from jaxspec.runs.progress import Reporter
from jaxspec.runs.provenance import versions
from jaxspec.speculate.drafts.interface import Committed, Level, Root
from jaxspec.speculate.engine import decode
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.calibrate.config import CalibrateConfig
from jaxspec.studies.calibrate.programs import Timed, dense_config, measure, random_params, step_program
from jaxspec.studies.calibrate.run import calibrate, dense_network
from jaxspec.studies.measured.clock_prediction import computed_bits
from jaxspec.studies.measured.pricing import resolve_device
from jaxspec.trees.public_trees import chain_tree

__all__ = ["IdleDraft", "cycle_times"]


#: Cycles between the two lengths of decoding whose difference is timed.
_SHORT, _LONG = 4, 28


@dataclasses.dataclass(frozen=True)
class IdleDraft:
    """A draft that proposes the same tokens whatever happens, at no cost: what remains of a cycle is the engine's."""

    vocab_size: int
    name: str = dataclasses.field(default="idle", compare=False)

    def num_parameters(self, params: Any) -> int:
        """None."""
        return 0

    def cost(self, target: Any, priced: Architecture, called: str) -> DraftCost:
        """Nothing."""
        return DraftCost(passes=0.0, statement="nothing")

    def empty(self, params: Any, batch: int, slots: int, numbers: Any) -> tuple[()]:
        """No memory."""
        return ()

    def commit(self, params: Any, memory: tuple[()], committed: Committed) -> tuple[()]:
        """Nothing to remember."""
        return memory

    def open(self, params: Any, memory: tuple[()], root: Root) -> tuple[jax.Array, tuple[()]]:
        """Logits of nothing, "batch vocab"."""
        return jnp.zeros((root.token.shape[0], self.vocab_size)), memory

    def extend(self, params: Any, memory: tuple[()], root: Root, level: Level) -> tuple[jax.Array, tuple[()]]:
        """Logits of nothing, "batch token vocab"."""
        return jnp.zeros((*level.tokens.shape, self.vocab_size)), memory


def _cycle_program(params: Params, config: DecoderConfig, batch: int, width: int, context: int) -> tuple[Timed, Any]:
    """Decoding to a number of tokens, as turns; and how many cycles a number of tokens takes."""
    prompts = jnp.asarray(np.random.default_rng(0).integers(32, 127, (batch, context - _LONG)), jnp.int32)
    draft = IdleDraft(config.vocab_size) if width > 1 else None

    def run(tokens: int) -> Any:
        return decode(
            params,
            (),
            prompts,
            jnp.arange(batch),
            chain_tree(width - 1, width),
            jax.random.key(0),
            GREEDY,
            draft=draft,
            config=config,
            num_tokens=tokens,
            room=_LONG,
        )

    return Timed(run), lambda tokens: int(np.max(np.asarray(run(tokens).cycles)))


def cycle_times(
    params: Params, config: DecoderConfig, batch: int, width: int, context: int, repeats: int
) -> list[float]:
    """Seconds of a cycle, a number for each repeat: what more cycles take longer, so that the prompt does not count.

    Args:
        width: tokens of a verification; 1: without a draft.
        context: cached tokens of each sequence at the end.
    """
    program, cycles = _cycle_program(params, config, batch, width, context)
    more = cycles(_LONG) - cycles(_SHORT)
    found = []
    for _ in range(repeats):
        seconds = []
        for tokens in (_SHORT, _LONG):
            began = time.perf_counter()
            jax.block_until_ready(program.run(tokens))
            seconds.append(time.perf_counter() - began)
        found.append((seconds[1] - seconds[0]) / more)
    return found


#: Tokens of a step: one, and a root with so many drafted ones.
WIDTHS = (1, 2, 5, 9, 17)
BATCHES = (1, 16)
#: Cached tokens of each sequence.
CONTEXT = 128
#: Cached keys and values are of 32 bits, whatever the weights are.
_KV_BITS = 32.0
_EMBEDDED = "embedded"
#: Seconds of a timed call: its start copies the KV cache, 0.6 GB of 16 sequences of an 8B network, which a step does not.
_CALL_S = 0.1


@dataclasses.dataclass(frozen=True)
class Network:
    """What steps are of: weights as they decode."""

    config: DecoderConfig
    params: Params

    @classmethod
    def named(cls, name: str) -> Network:
        """The embedded one, or random weights in a shape."""
        if name == _EMBEDDED:
            model = load_model(name)
            return cls(model.config, as_computed(model.params))
        shape = dense_network(name)
        config = dense_config(shape, int(shape.num_layers), int(shape.vocab_size))
        is_small = sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config))) <= SMALL
        return cls(config, random_params(config, "float32" if is_small else "bfloat16"))


def predicted_step(device: Device, network: Architecture, batch: int, width: int, bits: float) -> dict[str, Any]:
    """Seconds of a step with its 90 % interval, and where they go.

    Args:
        bits: of a weight.
    """
    work = step_operators(
        network,
        tokens=float(width),
        batch=float(batch),
        context_tokens=float(CONTEXT),
        weight_bits=uniform_weight_bits(bits),
        kv_bits=_KV_BITS,
    )
    cost = step_cost(device, work)
    interval = step_interval(device, PricedStep(work, cost))
    parts = {name: float(seconds) for name, seconds in zip(OPERATORS, cost.operator_s, strict=True) if seconds > 0}
    return {
        "predicted_s": float(cost.total_s),
        "low_s": None if interval is None else interval.low_s,
        "high_s": None if interval is None else interval.high_s,
        "operators_s": parts,
    }


def measured_rows(
    network: Network, rows: list[dict[str, Any]], repeats: int, reporter: Reporter, *, with_cycles: bool
) -> None:
    """Add measured times to the rows: widths of a batch in turn."""
    params, config = network.params, network.config
    with reporter.bar("timing", len(rows) if with_cycles else len(BATCHES)) as bar:
        for batch in BATCHES:
            mine = [row for row in rows if row["batch"] == batch]
            programs = [step_program(params, config, batch=batch, tokens=row["width"], context=CONTEXT) for row in mine]
            timings = measure(programs, repeats=repeats, call_s=_CALL_S)
            for row, timing in zip(mine, timings, strict=True):
                row |= {"measured_s": timing.median, "least_s": timing.least, "spread": timing.spread}
                row |= {"cycle_s": None, "cycle_least_s": None}
            if not with_cycles:
                bar.advance()
                continue
            for row in mine:
                cycles = cycle_times(params, config, batch, row["width"], CONTEXT, repeats)
                row |= {"cycle_s": statistics.median(cycles), "cycle_least_s": min(cycles)}
                bar.advance()


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Errors of predicted against measured steps: by the median of the repeats, and by the least."""
    found: dict[str, Any] = {"load_per_core": load_per_core(), "rows": len(rows)}
    for name in ("measured_s", "least_s"):
        errors = [abs(row["predicted_s"] / row[name] - 1) for row in rows]
        found[name] = {"mean": statistics.mean(errors), "median": statistics.median(errors), "largest": max(errors)}
    known = [row for row in rows if row["low_s"] is not None]
    inside = [row["low_s"] <= row["measured_s"] <= row["high_s"] for row in known]
    return found | {"covered": sum(inside) / len(inside) if inside else None}


def table_of(name: str, rows: list[dict[str, Any]], summary: dict[str, Any]) -> Table:
    """Predicted beside measured."""
    table = Table(
        f"Steps of {name} on this machine, µs",
        "predicted: from the device file; measured: median of interleaved repeats, least and spread beside it; cycle: of the "
        "engine with a draft that does nothing\n"
        + "; ".join(
            f"error by {what}: mean {summary[name]['mean']:.1%}, median {summary[name]['median']:.1%}, largest "
            f"{summary[name]['largest']:.1%}"
            for what, name in (("median", "measured_s"), ("least", "least_s"))
        ),
    )
    for heading in ("batch x width", "predicted", "interval", "measured", "least", "spread", "error", "cycle"):
        table.add_column(heading, justify="right")
    micro = lambda seconds: "" if seconds is None else f"{1e6 * seconds:.0f}"
    for row in rows:
        ends = "" if row["low_s"] is None else f"{micro(row['low_s'])} to {micro(row['high_s'])}"
        table.add_row(
            f"{row['batch']} x {row['width']}",
            micro(row["predicted_s"]),
            ends,
            micro(row["measured_s"]),
            micro(row["least_s"]),
            f"{row['spread']:.0%}",
            f"{row['predicted_s'] / row['measured_s'] - 1:+.1%}",
            micro(row["cycle_s"]),
        )
    return table


def run(
    device_file: str,
    repeats: int,
    json_file: Path | None,
    reporter: Reporter,
    *,
    name: str = _EMBEDDED,
    with_cycles: bool = True,
) -> dict[str, Any]:
    """Predictions, then times; the predictions are written before anything is timed.

    Args:
        name: of the network: the embedded one, another of the catalog, a config.json.
        with_cycles: whether cycles of the engine are timed too.
    Raises:
        InputError: a device file that cannot be used, or no such network.
    """
    network = Network.named(name)
    if not Path(device_file).exists():
        calibrate(CalibrateConfig(), out=device_file, reporter=reporter)
    device, bits = resolve_device(device_file), computed_bits(network.params)
    rows = [
        {"batch": batch, "width": width} | predicted_step(device, architecture_of(network.config), batch, width, bits)
        for batch in BATCHES
        for width in WIDTHS
    ]
    if json_file is not None:
        write_text(json_file, to_json({"schema_version": 1, "rows": rows}))
    measured_rows(network, rows, repeats, reporter, with_cycles=with_cycles)
    return {
        "device": device_file,
        "architecture": name,
        "weight_bits": bits,
        "context": CONTEXT,
        "versions": versions(),
        "rows": rows,
        "summary": summary_of(rows),
    }


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    terminal_show(table_of(result["architecture"], result["rows"], result["summary"]))


def main() -> None:
    """Run, show, write."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.host_steps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--device", default="my-machine.toml", help="device file, made if it is not there; default %(default)s"
    )
    parser.add_argument(
        "--architecture",
        default=_EMBEDDED,
        help="network: of the catalog, or a config.json; other than the default, weights are random; default %(default)s",
    )
    parser.add_argument("--steps-only", action="store_true", help="leave the engine's cycles out")
    parser.add_argument("--repeats", type=int, default=15, help="of each program; default %(default)s")
    add_outputs(parser, plots=False)
    args = parser.parse_args()
    options = {"name": args.architecture, "with_cycles": not args.steps_only}
    carry_out(parser, args, lambda: run(args.device, args.repeats, args.json, Reporter(), **options), show)


if __name__ == "__main__":
    main()
