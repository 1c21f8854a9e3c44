"""Whole steps of mixtures that one GPU holds, beside the calibration package's composition: every device and engine.

Qwen3-30B-A3B in 16 bits, and gpt-oss-20b with experts in MXFP4 and everything else in 16 bits, as it is published. The model
touches as many experts as the package's tables do.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from experiments.silicon.mixture_steps import DISTRIBUTION, times_of, tokens_of
from experiments.silicon.refit import CATALOG
from experiments.silicon.steps import (
    DEVICES,
    Cell,
    Composed,
    by_key,
    cells_of,
    composed,
    errors_of,
    marked,
    section,
    step_of,
    summary,
    sums_by,
)
from hwmodels import Footprint, catalog, uniform_weight_bits
from hwmodels.analysis.calibration.experts import CACHE_BYTES
from hwmodels.analysis.calibration.kernel_tables import KERNEL_FORMATS, touched_in_table
from hwmodels.network.architecture import EXPERT_MATRICES
from hwmodels.network.operators import OPERATORS
from hwmodels.network.operators.work import EXPERT_OPERATORS

__all__ = [
    "CELLS",
    "PARTS",
    "beyond_cache",
    "compose",
    "page_section",
    "priced",
    "read_cells",
]

CELLS = Path(__file__).with_suffix(".csv")
#: The part of the page, with the heads of its table.
_PAGE = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").rstrip("\n")

#: Network -> its name in the package, the format of its experts.
NETWORKS = {
    "qwen3-30b-a3b": ("Qwen/Qwen3-30B-A3B", "bfloat16"),
    "gpt-oss-20b": ("openai/gpt-oss-20b", "w4a16_mxfp4"),
}
BATCHES, CONTEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (128, 512, 1024, 2048, 4096, 8192, 16384, 32768)
PROMPT_BATCHES, PROMPTS = (1, 4, 16), (512, 1024, 2048, 4096, 8192)
PARTS: tuple[str, ...] = ("experts_s", "attention_s", "products_s", "rest_s")
#: Mean error that a row of the page should keep to, and the largest one.
BAR, LARGEST = 0.08, 0.20

#: By the end of an operator's name in the package; the others are the rest.
_PARTS = {"_moe": "experts_s", "attention": "attention_s", "gemm": "products_s"}


def compose() -> list[Cell]:
    """All cells from the package. Raises KernelTableError: the package is not installed."""
    engines = [
        Composed(
            {"network": network, "gpu": gpu, "engine": engine},
            path,
            (BATCHES, CONTEXTS, PROMPT_BATCHES, PROMPTS),
            {"moe_quant_mode": kind},
        )
        for network, (path, kind) in NETWORKS.items()
        for gpu, system in CATALOG.items()
        for engine in system.versions
    ]

    def parts(operators: Mapping[str, float]) -> dict[str, float]:
        each = sums_by(_PARTS, operators)
        return each | {"total_s": sum(each.values())}

    return composed(engines, parts)


#: The committed cells.
read_cells = functools.partial(cells_of, CELLS)


def footprint_of(network: str) -> Footprint:
    """Experts in the network's own format, all else in 16 bits; leaves scalar."""
    bits = uniform_weight_bits(KERNEL_FORMATS[NETWORKS[network][1]].weight_bits, EXPERT_MATRICES)
    return Footprint(bits, bits, 16.0, 16.0)


def beyond_cache(cell: Cell) -> bool:
    """Whether the touched experts of a layer exceed the GPU's second-level cache, from which its table may have read them."""
    architecture = catalog.architecture(cell.network)
    sizes = int(architecture.num_experts), int(architecture.experts_per_token)
    touched = touched_in_table(DISTRIBUTION, tokens_of(cell), *sizes)
    matrices = 3.0 * float(architecture.hidden_size) * float(architecture.expert_intermediate_size)
    bits = KERNEL_FORMATS[NETWORKS[cell.network][1]].weight_bits
    return touched * matrices * bits / 8 > CACHE_BYTES[CATALOG[cell.gpu].system]


def priced(cells: Sequence[Cell]) -> dict[str, npt.NDArray[np.float64]]:
    """Seconds of each cell by the model, "cell": its parts, and "total_s"."""
    times = {name: np.zeros(len(cells)) for name in (*PARTS, "total_s")}
    for (network, gpu, engine), rows in by_key(cells, ("network", "gpu", "engine")).items():
        architecture, device = catalog.architecture(network), catalog.device(DEVICES[gpu], engine=engine)
        footprint = footprint_of(network)
        steps = [step_of(cells[i], footprint) for i in rows]
        by_name = dict(zip(OPERATORS, times_of(device, architecture, steps, [cells[i] for i in rows]).operator_s.T))
        # A prefill's composition ends before the head.
        by_name["lm_head"] = by_name["lm_head"] * np.array([cells[i].phase == "decode" for i in rows])
        names = {
            "experts_s": EXPERT_OPERATORS,
            "attention_s": ("attention",),
            "products_s": ("qkv", "o", "router", "lm_head"),
            "rest_s": ("norm", "embed"),
        }
        for part, operators in names.items():
            times[part][rows] = sum(by_name[name] for name in operators)
    times["total_s"] = sum((times[part] for part in PARTS), np.zeros(len(cells)))
    return times


def page_section(cells: Sequence[Cell]) -> str:
    """The part of the page about mixtures on one GPU, in Markdown."""
    ours, beyond = priced(cells), np.array([beyond_cache(cell) for cell in cells])
    error, experts, attention = (errors_of(ours[part], cells, part) for part in ("total_s", "experts_s", "attention_s"))

    def row(rows: list[int], of: Cell) -> str:
        streamed = np.abs(error[rows])[beyond[rows]]
        return (
            f"{of.network} | {of.gpu} | {of.engine} | {of.phase} | {summary(cells, error, rows, BAR, LARGEST)} "
            f"| {len(streamed)} | {marked(streamed, BAR, LARGEST)} "
            f"| {100 * np.abs(experts[rows]).mean():.1f} % | {100 * np.abs(attention[rows]).mean():.1f} %"
        )

    return section(_PAGE.format(bar=100 * BAR, largest=100 * LARGEST), cells, ("network", "gpu", "engine"), row)
