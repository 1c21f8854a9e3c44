"""Seconds of requests along the paper's accepted lengths, by this package's price of an H100 with vLLM.

`data/performance_or_illusion_cycles.csv` counts, request by request, the cycles that each draft length takes along the
accepted lengths that the authors' simulator publishes for Llama-3.1-8B-Instruct. Its own times stand beside ours, to tell how
much of a gap is the price of a cycle.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.interpolate import RegularGridInterpolator

from hwmodels import Case, CycleCost, Workload, catalog, chain_plan, price, price_steps
from hwmodels.network.operators import prefill_step
from hwmodels.numerics.fast_compile import jit_fast_compile
from jaxspec.studies.advise.config import AdviseConfig
from jaxspec.studies.advise.inputs import measured_kernels, named_draft

__all__ = [
    "BATCHES",
    "DATASETS",
    "FOLDER",
    "HEAD",
    "LOOKUP",
    "LOOKUP_ENGINE",
    "PAPER",
    "TARGET",
    "Solved",
    "Times",
    "case_of",
    "cycle_costs",
    "requests",
    "solve",
    "speedup",
]

PAPER, FOLDER = "performance_or_illusion", Path(__file__).parent

TARGET, DEVICE, ENGINE = "llama-3.1-8b", "h100-sxm", "vllm"

#: Lookups spend what they do in the releases that were measured: without asynchronous scheduling, as all else there.
LOOKUP, LOOKUP_ENGINE = "ngram", "vllm-2025"

#: What the traced head is priced as (see `paper`).
HEAD = "eagle3"

BATCHES = (1, 8, 16, 32, 64, 128)
DATASETS = ("gsm8k", "cnn", "sharegpt", "instructcoder")

#: Share of the steps without an accepted token in which the lookup had drafted all the same, as the authors' simulator
#: guesses.
MATCHED = {"sharegpt": 0.2, "cnn": 0.4, "gsm8k": 0.2, "instructcoder": 0.8}

#: Where seconds are priced; between these they are interpolated. The lookup drafts 20 tokens at most.
_CONTEXTS = (1.0, 512.0, 1024.0, 2048.0, 4096.0, 16384.0)
_LENGTHS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 20)


@cache
def requests() -> dict[str, np.ndarray]:
    """Counts along the accepted lengths, " request"."""
    with (FOLDER / "data" / f"{PAPER}_cycles.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    names = list(rows[0])
    return {name: np.array([row[name] for row in rows], str if name == "dataset" else float) for name in names}


def case_of(architecture: str, draft: str, devices: int = 1) -> Case:
    """What is priced; energy is not asked for. Args: devices: that share each matrix."""
    config = AdviseConfig(
        architecture=architecture, device=(DEVICE,), engine=ENGINE, draft=draft, tensor_parallel=devices, batch=(1,)
    )
    case = measured_kernels(config, DEVICE)
    cost = dataclasses.replace(named_draft(config, case.architecture), statement="")
    engine = catalog.engine(LOOKUP_ENGINE) if draft == LOOKUP else case.engine
    return dataclasses.replace(case, device=dataclasses.replace(case.device, chip=None), draft=cost, engine=engine)


def _on_grid(priced: Callable[..., Any], *axes: Sequence[float]) -> Any:
    """What a function of one number of each axis gives for all of them, leaves "*axis ..."."""
    places = [jnp.asarray(each.ravel(), jnp.float32) for each in np.meshgrid(*axes, indexing="ij")]
    shape = tuple(map(len, axes))
    of_places = jit_fast_compile(jax.vmap(priced))(*places)
    return jax.tree.map(lambda leaf: np.asarray(leaf).reshape(*shape, *leaf.shape[1:]), of_places)


def cycle_costs(case: Case, batches: Sequence[float], contexts: Sequence[float], lengths: Sequence[float]) -> CycleCost:
    """Costs of all batches, contexts and draft lengths, leaves "batch context length ..."."""

    def cycle(batch: Any, context: Any, length: Any) -> CycleCost:
        load = Workload(batch=batch, context_tokens=context)
        return price(dataclasses.replace(case, workload=load), chain_plan(length))

    return _on_grid(cycle, batches, contexts, lengths)


class Times(NamedTuple):
    """Seconds by batch.

    Attributes:
        cycle: by drafter, "batch context length"; a length of 0 is plain decoding.
        prefill: "batch context", of prompts of so many tokens.
    """

    cycle: dict[str, Float[np.ndarray, "batch context length"]]
    prefill: Float[np.ndarray, "batch context"]


class Solved(NamedTuple):
    """Seconds on Llama-3.1-8B by this package's price, and by the line that the simulator has."""

    ours: Times
    theirs: Times


def solve(seed: int) -> Solved:
    """Everything that the figures on Llama-3.1-8B need. Nothing is drawn."""
    del seed
    return Solved(_priced(), _simulated())


def _simulated() -> Times:
    """The simulator's seconds, which its authors fitted to steps of vLLM with 1 to 64 sequences of InstructCoder."""
    batch, context, length = np.meshgrid(BATCHES, _CONTEXTS, _LENGTHS, indexing="ij")
    step = 5.88590713e-3 + 2.10103129e-5 * batch * (1.0 + length) + 3.92645679e-8 * batch * context
    other = 1.20683946e-3
    head = 2.13526175e-3 + 2.37768493e-9 * batch * context
    prefill = 5.88590713e-3 + 2.10103129e-5 * batch * context + other
    cycle = {"ngram": 1.005875 * step + other, "eagle": step + head + other}
    for seconds in cycle.values():
        seconds[..., 0] = (step + other)[..., 0]
    return Times(cycle, prefill[..., 0])


def _priced() -> Times:
    cases = {"ngram": case_of(TARGET, "ngram"), "eagle": case_of(TARGET, HEAD)}
    cycle = {}
    for drafter, case in cases.items():
        costs = cycle_costs(case, BATCHES, _CONTEXTS, _LENGTHS[1:])
        plain = costs.baselines.stored.cost.total_s[..., :1]
        cycle[drafter] = np.concatenate([plain, costs.total_s], axis=-1)

    def prefill(batch: Any, prompt: Any) -> Any:
        case = cases["ngram"]
        step = prefill_step(Workload(batch=batch, prompt_tokens=prompt), footprint=case.footprint)
        return price_steps(case.device, case.architecture, [step])[0].cost.total_s

    return Times(cycle, _on_grid(prefill, BATCHES, _CONTEXTS))


def speedup(
    times: Times, dataset: str, drafter: str, policy: str, batch: int, *, with_head: bool = False
) -> tuple[float, float]:
    """Speedup over no draft as the mean of requests' rates, and as the ratio of all seconds.

    Each request is decoded `batch` times at once, as the simulator has it: prefill, then cycles at the request's mean context.

    Args:
        drafter: "ngram", "eagle", or "both": the longer of the two.
        policy: draft length, or "oracle": as many tokens as are accepted.
        with_head: cycles of "both" in which the head drafts take its time; else all take a lookup's, as in the simulator.
    """
    rows = {name: column[requests()["dataset"] == dataset] for name, column in requests().items()}
    tokens, cycles = rows[f"{drafter}_tokens"], rows[f"{drafter}_{policy}"]
    if policy == "oracle":
        drafted = tokens / cycles - 1.0
    else:
        idle = (1.0 - MATCHED[dataset]) * rows[f"ngram_{policy}_refused"] / cycles if drafter == "ngram" else 0.0
        drafted = float(policy) * (1.0 - idle)
    place, context = BATCHES.index(batch), rows["prompt_tokens"] + tokens / 2.0
    prefill = np.interp(rows["prompt_tokens"], _CONTEXTS, times.prefill[place])

    def seconds(who: str, drafted: Any) -> np.ndarray:
        of = RegularGridInterpolator((_CONTEXTS, _LENGTHS), times.cycle[who][place])
        return of(np.stack(np.broadcast_arrays(context, np.minimum(drafted, _LENGTHS[-1])), axis=-1))

    cycle_s = seconds("ngram" if drafter == "both" else drafter, drafted)
    if with_head:
        lookups = rows["both_oracle_ngram"] / cycles
        cycle_s = lookups * cycle_s + (1.0 - lookups) * seconds("eagle", drafted)
    plain, drafting = prefill + tokens * seconds("ngram", 0.0), prefill + cycles * cycle_s
    return float(np.mean(tokens / drafting) / np.mean(tokens / plain)), float(plain.sum() / drafting.sum())
