"""The printed numbers: Table 3 as arrays over model, method and batch, and single cells of the other tables.

The networks of Table 3: targets and drafts, and the bits that they are stored in.

What the paper does not print of drafts is chosen here: EAGLE heads are one dense layer over two hidden states, the projection
of three and an LM head of the whole vocabulary; those of Qwen3 and GPT-OSS bring an embedding, the others take the target's.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from experiments.reproduce.paper import PrintedCell, printed_cells, printed_value
from hwmodels import catalog
from hwmodels.network.architecture import EXPERT_MATRICES, KINDS, Architecture, parameters

__all__ = [
    "BATCHES",
    "CAPACITIES",
    "CONTEXT_TOKENS",
    "DRAFT_KV_BITS",
    "INT8_BITS",
    "KV_BITS",
    "LOW_BITS",
    "METHODS",
    "MODELS",
    "NAME",
    "TableThree",
    "claim",
    "draft_bits",
    "eagle_head",
    "expert_bits",
    "place_of",
    "small_model",
    "table_three",
    "target",
    "target_bits",
]

NAME = "elmoe3d"

#: Targets as Table 3 names them, each with its architecture in the catalog.
MODELS = {
    "Qwen3-30B-A3B": "qwen3-30b-a3b",
    "GLM-4.7-Flash": "glm-4.7-flash",
    "DeepSeek-V2-Lite": "deepseek-v2-lite",
    "GPT-OSS-20B": "gpt-oss-20b",
}

METHODS = ("EAGLE3", "SLM-SD", "Quant-SD", "Elastic-SD")
BATCHES = (1, 4, 8, 16)

#: Gigabytes of hybrid-bonded memory: the half that is fitted, and the half that is predicted.
CAPACITIES = (8, 4)

_DATA = Path(__file__).parent / "data"

Cells = npt.NDArray[np.float64]


class TableThree(NamedTuple):
    """One half of Table 3, "model method batch" each."""

    acceptance: Cells
    autoregressive: Cells
    speculative: Cells
    flagged: npt.NDArray[np.bool_]  # autoregressive cells that contradict their row


def place_of(cell: PrintedCell) -> tuple[int, int, int]:
    """Model, method and batch of a cell of Table 3."""
    return list(MODELS).index(cell["model"]), METHODS.index(cell["method"]), BATCHES.index(int(cell["batch_size"]))


@functools.cache
def table_three(capacity_gb: int) -> TableThree:
    """The half of Table 3 for a capacity."""
    shape = (len(MODELS), len(METHODS), len(BATCHES))
    names = ("acceptance_rate_alpha", "speedup_ar_phi_ar", "speedup_sd_phi_sd")
    by_metric = {metric: np.full(shape, np.nan) for metric in names}
    flagged = np.zeros(shape, bool)
    for cell in printed_cells(_DATA / f"{NAME}_table3_sd_schemes.csv"):
        if int(cell["hb_capacity_gb"]) == capacity_gb:
            by_metric[cell.metric][place_of(cell)] = cell.value
            flagged[place_of(cell)] |= bool(cell.note)
    acceptance, alone, together = (by_metric[metric] for metric in names)
    return TableThree(acceptance, alone, together, flagged)


def claim(claim_id: str) -> float:
    """The number of a claim."""
    return printed_value(_DATA / f"{NAME}_claims.csv", claim_id=claim_id)


#: Groups of 32 weights with an FP16 scale (sec. 7), and the microscaling format with an 8-bit one.
INT8_BITS = 8.0 + 16.0 / 32.0
LOW_BITS = 4.0 + 16.0 / 32.0
MXFP4_BITS = 4.0 + 8.0 / 32.0

#: "1k sequence length" (sec. 7).
CONTEXT_TOKENS = 1024

#: Not printed. 16 bits of the target's KV: with 8, Quant-SD's speedups, which know no cache, fall too slowly with the batch.
KV_BITS = 16.0
DRAFT_KV_BITS = INT8_BITS

#: Targets whose experts are MXFP4 as released: a draft reads them as they are (sec. 7).
_MXFP4 = ("GPT-OSS-20B",)

#: Targets whose public EAGLE-3 heads bring an embedding of their own.
_OWN_EMBEDDING = ("Qwen3-30B-A3B", "GPT-OSS-20B")


@dataclasses.dataclass(frozen=True)
class Draft:
    """A draft network of its own.

    Attributes:
        stored_embedding: elements of an embedding table that takes room in the hybrid-bonded memory.
    """

    architecture: Architecture
    stored_embedding: float


def target(model: str) -> Architecture:
    """Architecture of a target, by its name in Table 3."""
    return catalog.architecture(MODELS[model])


def expert_bits(model: str) -> float:
    """Stored bits per weight of routed experts."""
    return MXFP4_BITS if model in _MXFP4 else INT8_BITS


def target_bits(model: str) -> dict[str, float]:
    """Stored bits per weight by kind: INT8 in groups of 32, vectors in 16 bits."""
    return dict.fromkeys(KINDS, INT8_BITS) | dict.fromkeys(EXPERT_MATRICES, expert_bits(model)) | {"norm": 16.0}


def draft_bits(model: str) -> dict[str, float]:
    """Bits per weight that Quant-SD and Elastic-SD draft with: 4 and a scale, MXFP4 experts as they are."""
    low = min(LOW_BITS, expert_bits(model))
    return dict.fromkeys(KINDS, LOW_BITS) | dict.fromkeys(EXPERT_MATRICES, low) | {"norm": 16.0}


#: Key-value heads of a head whose target has latents instead.
_HEAD_KV_HEADS = 4.0


@functools.cache
def eagle_head(model: str) -> Draft:
    """EAGLE-3 head of a target, of its width and heads."""
    a = target(model)
    latent = a.kv_lora_rank > 0
    head = Architecture(
        num_layers=1.0,
        hidden_size=a.hidden_size,
        # GPT-OSS has no dense layer: its head is as wide as one expert.
        intermediate_size=a.intermediate_size or a.expert_intermediate_size,
        num_heads=a.num_heads,
        num_kv_heads=_HEAD_KV_HEADS if latent else a.num_kv_heads,
        head_dim=a.head_dim + a.rope_head_dim if model == "GLM-4.7-Flash" else a.head_dim,
        vocab_size=a.vocab_size,
    )
    stored = parameters(head)
    # Queries, keys and values see two hidden states, and one projection turns three into one.
    more = stored["q"] + stored["k"] + stored["v"] + 3.0 * a.hidden_size**2
    embedding = float(stored["embed"]) if model in _OWN_EMBEDDING else 0.0
    return Draft(dataclasses.replace(head, vectors_per_layer=float(more)), embedding)


@functools.cache
def small_model() -> Draft:
    """Qwen2.5-1.5B with embedding and head stored apart, as engines that quantise both do."""
    a = dataclasses.replace(catalog.architecture("qwen2.5-1.5b"), tied_embeddings=0.0)
    return Draft(a, float(parameters(a)["embed"]))
