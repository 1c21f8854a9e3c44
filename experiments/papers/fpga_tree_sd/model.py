"""Time and tokens of a draft-verify cycle on the paper's boards, from the catalog's devices and five fitted numbers.

Verification: the step's whole traffic against its whole arithmetic, T_v(x) = max(sum of memory times, sum of compute times), as
Eq. (1) has it: the array computes one operator while another one's weights come in. `hwmodels.step_cost` takes the maximum
operator by operator; the two agree but at long contexts, where attention is bound by memory and products are by arithmetic.

Drafting: Eq. (10) and (11), T_d(x) = alpha(x) T_v(1), with the parameters that a pass reads: LongSpec's draft is one layer of
the target's sizes and the target's head. Its own tree has 4, 16, 16, 16 and 16 nodes by level, with the root 69 tokens: five
passes. Pruned to x tokens by score it has about ln(x) / ln(b) levels, b = 69^(1/5), as a tree has that branches evenly.

Tokens: Eq. (3), its slope B linear in log2 of the context.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.reproduce.paper import PrintedCell, printed_cells, printed_value
from hwmodels import Architecture, Device, Workload, catalog, parameters, price_steps, uniform_footprint
from hwmodels.network.operators import verify_step
from hwmodels.numerics.fast_compile import jit_fast_compile

__all__ = [
    "BOARDS",
    "CONTEXTS",
    "DATA",
    "LENGTHS",
    "NAIVE_SLOPE",
    "ORIGINAL_LENGTH",
    "PAPER",
    "SETS",
    "Choices",
    "Cycle",
    "Fitted",
    "TableOne",
    "Times",
    "accepted_tokens",
    "at_lengths",
    "board_times",
    "cells",
    "claim",
    "cycle",
    "depth",
    "draft_share",
    "read_parameters",
    "table_one",
]


#: Boards of Table IV, in its order, by their names in the catalog.
BOARDS = {"U280": "alveo-u280", "VHK158": "vhk158", "V80": "alveo-v80", "U250": "alveo-u250"}

#: LongSpec's default tree, 4 + 4 * 16 nodes and the root, and its levels.
ORIGINAL_LENGTH, ORIGINAL_DEPTH = 69, 5
_LEVELS = (4, 16, 16, 16, 16)

#: Verification lengths from which the best is chosen: none of the paper's is longer than its original one.
LENGTHS = np.arange(2, ORIGINAL_LENGTH + 1)

#: Context at which the law's slope is its `log_slope`.
REFERENCE_CONTEXT = 1024.0


class Fitted(NamedTuple):
    """What is fitted to Table I."""

    intercept: float  # A, tokens
    log_slope: float  # B at 1024 tokens of context
    slope_per_doubling: float  # what B gains with each doubling of the context
    shift: float  # C, tokens
    frequency_hz: float  # of the arrays on all boards
    intercept_per_doubling: float = 0.0  # of A; 0 but in one variant


@dataclasses.dataclass(frozen=True)
class Choices:
    """Modelling choices; the defaults are the model, everything else is tried in `variants`."""

    roof: str = "step"  # or "operator": the maximum of traffic and arithmetic operator by operator
    drafting: str = "resolved"  # or "printed": Eq. (14), where drafting takes longer along with the verification
    draft_head: bool = True  # whether a pass of the draft reads the head
    draft_attention: str = "ratio"  # or "layer": a pass attends as one layer of the target does
    levels: str = "even"  # or "filled": level by level; "all": five passes always


class Times(NamedTuple):
    """Seconds of a verification by operator, and of what it is compared with."""

    contexts: np.ndarray  # "context"
    lengths: np.ndarray  # "length"
    memory_s: np.ndarray  # "context length operator"
    compute_s: np.ndarray  # "context length operator", at the catalog's clock
    step_memory_s: np.ndarray  # "context operator", of one token
    step_compute_s: np.ndarray  # "context operator"
    frequency_hz: float  # the catalog's clock
    layer_share: float  # parameters of a draft's layer over those that a step of the target reads
    head_share: float  # of the head
    layers: float


class Cycle(NamedTuple):
    """A cycle's times and tokens, "context length"."""

    accepted: np.ndarray
    verify_s: np.ndarray
    draft_s: np.ndarray
    autoregressive_s: np.ndarray  # "context"

    @property
    def performance(self) -> np.ndarray:
        """Eq. (7), tokens/s in double precision; `hwmodels.speculation.verification_length` for all that is reported."""
        return self.accepted / (self.verify_s + self.draft_s)


@jit_fast_compile
def _verification_times(
    device: Device, architecture: Architecture, context: float, tokens: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Seconds of traffic and of arithmetic, "length operator", at one context, so that all grids share one compilation."""
    # Of the other new tokens one sees about half the levels; beside the context that is nothing.
    steps = verify_step(
        Workload(context_tokens=context),
        footprint=uniform_footprint(16.0),
        verify_tokens=tokens,
        visible_new_tokens=2.0,
    )
    (priced,) = price_steps(device, architecture, [steps])
    return priced.cost.memory_s, priced.cost.compute_s


def read_parameters(architecture: Architecture) -> float:
    """Parameters that a step reads."""
    return sum(float(count) for kind, count in parameters(architecture).items() if kind not in ("embed", "norm"))


def draft_share(architecture_name: str) -> tuple[float, float]:
    """Parameters of one layer, and of the head, over all that a step of the target reads."""
    architecture = catalog.architecture(architecture_name)
    read, head = read_parameters(architecture), float(parameters(architecture)["lm_head"])
    return (read - head) / float(architecture.num_layers) / read, head / read


def board_times(
    board: str,
    contexts: Sequence[float],
    lengths: Sequence[float] | np.ndarray = LENGTHS,
    *,
    architecture_name: str = "llama-3.1-8b",
) -> Times:
    """Times of verifications of all lengths at all contexts, at the catalog's clock."""
    device = catalog.device(BOARDS[board])
    grid = jnp.concatenate([jnp.ones(1), jnp.asarray(lengths, float)])
    architecture = catalog.architecture(architecture_name)
    times = [_verification_times(device, architecture, float(context), grid) for context in contexts]
    memory, compute = (np.stack([np.asarray(part, np.float64) for part in parts]) for parts in zip(*times, strict=True))
    layer, head = draft_share(architecture_name)
    return Times(
        contexts=np.asarray(contexts, np.float64),
        lengths=np.asarray(lengths, np.float64),
        memory_s=memory[:, 1:],
        compute_s=compute[:, 1:],
        step_memory_s=memory[:, 0],
        step_compute_s=compute[:, 0],
        frequency_hz=float(device.matrix_unit.frequency_hz),
        layer_share=layer,
        head_share=head,
        layers=float(architecture.num_layers),
    )


def depth(lengths: np.ndarray, levels: str = "even") -> np.ndarray:
    """Passes of the draft for a tree of x tokens, not rounded: the mean over trees of about this size."""
    lengths = np.asarray(lengths, np.float64)
    if levels == "all":
        return np.full(lengths.shape, float(ORIGINAL_DEPTH))
    if levels == "filled":
        ends = 1 + np.cumsum(_LEVELS)
        return np.minimum(np.searchsorted(ends, lengths) + 1.0, ORIGINAL_DEPTH)
    return np.clip(ORIGINAL_DEPTH * np.log(lengths) / np.log(ORIGINAL_LENGTH), 1.0, ORIGINAL_DEPTH)


def accepted_tokens(fitted: Fitted, contexts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Eq. (3) at each context, "context length"."""
    doublings = np.log2(np.asarray(contexts, np.float64) / REFERENCE_CONTEXT)[:, None]
    intercept = fitted.intercept + fitted.intercept_per_doubling * doublings
    slope = fitted.log_slope + fitted.slope_per_doubling * doublings
    return intercept + slope * np.log(np.asarray(lengths, np.float64) - fitted.shift)


_DEFAULT = Choices()


def cycle(times: Times, fitted: Fitted, choices: Choices = _DEFAULT, *, passes: np.ndarray | None = None) -> Cycle:
    """Tokens and times of every cycle.

    Args:
        passes: "length"; those of the draft, by `depth` unless given.
    """
    slower = times.frequency_hz / fitted.frequency_hz

    def roof(memory: np.ndarray, compute: np.ndarray) -> np.ndarray:
        if choices.roof == "operator":
            return np.sum(np.maximum(memory, slower * compute), axis=-1)
        return np.maximum(np.sum(memory, axis=-1), slower * np.sum(compute, axis=-1))

    verify = roof(times.memory_s, times.compute_s)
    step = roof(times.step_memory_s, times.step_compute_s)
    share = times.layer_share + (times.head_share if choices.draft_head else 0.0)
    passes = depth(times.lengths, choices.levels) if passes is None else passes
    if choices.draft_attention == "layer":
        # Weights in proportion to their number, attention as one of the layers' of the target.
        weights = np.min(step)
        one_pass = share * weights + (step - weights) / times.layers
        draft = one_pass[:, None] * passes
    else:
        draft = share * passes * (verify if choices.drafting == "printed" else step[:, None])
    return Cycle(accepted_tokens(fitted, times.contexts, times.lengths), verify, draft, step)


def at_lengths(values: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Entries of "context length" over `LENGTHS` at given lengths "context ...", whole numbers."""
    index = np.asarray(lengths, np.int64) - int(LENGTHS[0])
    return np.take_along_axis(values, index.reshape(len(values), -1), axis=1).reshape(np.shape(lengths))


# The paper's printed cells, and those that numbers are fitted to as arrays.

PAPER = "fpga_tree_sd"

DATA = Path(__file__).parent / "data"

#: Context lengths of Table I, and its configurations beside autoregressive decoding.
CONTEXTS = (128, 512, 2048, 4096, 8192, 16384)
SETS = ("Ori set", "Naive set", "Best set")


def cells(table: str) -> tuple[PrintedCell, ...]:
    """Numbers of a table."""
    return printed_cells(DATA / f"{PAPER}_{table}.csv")


def claim(claim_id: str) -> float:
    """A number of the prose."""
    return printed_value(DATA / f"{PAPER}_claims.csv", claim_id=claim_id)


#: Tokens gained per further token at which the naive set ends (IV-B).
NAIVE_SLOPE = claim("FPG013") / 100.0


class TableOne(NamedTuple):
    """Table I as arrays over `CONTEXTS` and `SETS`."""

    lengths: np.ndarray  # "context set", tokens
    performance: np.ndarray  # "context set", tokens/s
    autoregressive: np.ndarray  # "context", tokens/s


def table_one() -> TableOne:
    """Lengths and throughputs of Table I."""
    values = {
        (int(cell["context_length"]), cell["method"], cell.metric): cell.value for cell in cells("table1_llama31_8b")
    }
    over_sets = lambda metric: np.array([[values[context, name, metric] for name in SETS] for context in CONTEXTS])
    return TableOne(
        lengths=over_sets("verification_length"),
        performance=over_sets("performance"),
        autoregressive=np.array([values[context, "AR", "performance"] for context in CONTEXTS]),
    )
