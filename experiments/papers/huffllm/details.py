"""Numbers beside Huff-LLM's tables: where bits go, errors of savings in points, roofline and CAMs."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from experiments.papers.huffllm import compression, hardware, savings
from experiments.papers.huffllm.compression import CODED_SPLIT, DATA
from experiments.papers.huffllm.savings_model import BENCHMARK_TOKENS, FITTED_BOUNDS, MODELS, Fitted
from experiments.reproduce.paper import Outcome, detail, printed_cells, printed_value
from hwmodels import (
    ALL_LAYER_MATRICES,
    Device,
    Workload,
    catalog,
    price_steps,
    uniform_footprint,
    uniform_weight_bits,
)
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.network.operators import prefill_step
from jaxspec.formats import fields
from jaxspec.formats.huffman import MAX_CODE_LENGTH

__all__ = [
    "BARS",
    "DETAILS",
    "Solved",
    "compare_savings",
    "explain_gap",
    "from_sample",
    "missed_bars",
    "put_back",
    "solve",
]

# Shared parts of Huff-LLM's models, and the bars of its reproduction.

#: What a reproduction must reach: entropies of the coded split in bits, bits per weight relative.
BARS = {"entropy_bits": 0.1, "bits_per_weight": 0.015}


class Solved(NamedTuple):
    """Drawn weights, bits per FP16 weight by model, and the savings' four numbers fitted with these bits."""

    sample: compression.Sample
    own_bits: Mapping[str, float]
    fitted: Fitted


def solve(seed: int = 0) -> Solved:
    """Draw and fit; about eight seconds."""
    return from_sample(compression.sample(seed))


def put_back(solved: Solved, architectures: tuple[str, ...]) -> Fitted:
    """The savings' numbers fitted anew with the chips of some architectures as printed."""
    return _fitted(tuple(solved.own_bits.items()), architectures)


@functools.cache
def _fitted(own_bits: tuple[tuple[str, float], ...], architectures: tuple[str, ...]) -> Fitted:
    cells = [savings.put_back(cell, architectures) for cell in savings.cells(compression.printed_bits())]
    return savings.calibrate(cells, dict(own_bits))


def from_sample(sample: compression.Sample) -> Solved:
    """Fit the savings with the sample's bits per weight."""
    bits = compression.own_bits(sample)
    return Solved(sample, bits, savings.calibrate(savings.cells(compression.printed_bits()), bits))


def missed_bars(outcome: Outcome) -> list[str]:
    """The cells and the means that miss their bar, in words."""
    missed = []
    for row in outcome.rows:
        error = abs(row["model_value"] - row["paper_value"])
        name, bar = None, 0.0
        if row["conditions"].get("split") == compression.CODED_SPLIT and row["metric"] == "entropy":
            name, bar = "entropy_bits", BARS["entropy_bits"]
        elif row["metric"] == "bits_per_param":
            name, bar = "bits_per_weight", BARS["bits_per_weight"] * row["paper_value"]
        if name and error > bar:
            missed.append(f"{name}: {row['conditions']} off by {error:.3f}, allowed {bar:.3f}")
    return missed + savings.missed_bars(outcome.details["savings"]["own"])


def explain_gap(llama: np.ndarray, *, column_weights: int = 4096) -> list[dict[str, Any]]:
    """Items from the entropies' sum to Huffman bits, then what neither the paper's table nor this one counts.

    The lower mantissa takes four values almost equally often, and rarely one of 28 others. Entropy hardly sees these, but a
    Huffman code must give one of the four a third bit to make room for them: 0.25 bits times nearly one.

    Args:
        llama: occurrences of every float16 pattern, "matrix pattern".
        column_weights: weights of a column, whose banks are padded to words of 32 bits.
    """
    widths = fields.parse_widths(CODED_SPLIT)
    entropies, bits = compression.field_entropies(llama, widths), compression.coded_bits(llama, "float16")
    excess = bits.mean(axis=0) - entropies
    weights_of_matrix = float(llama.sum(axis=1).mean())
    # Symbol, length and codeword of 32 entries in three fields; a bank ends within a word at any of 32 places.
    codebook = 3 * 32 * (5 + 4 + MAX_CODE_LENGTH) / weights_of_matrix
    items = [
        ("sum of the fields' entropies", float(entropies.sum())),
        ("sign stored raw", float(excess[0])),
        ("Huffman redundancy of the exponent", float(excess[1])),
        ("Huffman redundancy of the upper mantissa", float(excess[2])),
        ("Huffman redundancy of the lower mantissa", float(excess[3])),
        (
            "mean of ratios instead of ratio of means",
            compression.huffman_bits(llama, "float16") - float(bits.sum(axis=1).mean()),
        ),
    ]
    total = sum(value for _, value in items)
    ratio = printed_value(
        DATA / "huffllm_compression_ratios.csv", "compression_ratio", model="Llama-3-8B", number_format="FP16"
    )
    extras = [
        ("Huffman bits per weight (in the table)", total),
        ("not counted: codebooks of a matrix", codebook),
        (f"not counted: padding of three banks of {column_weights} weights", 3 * 15.5 / column_weights),
        (
            "not counted: a buffer of three equally large banks (3.2), in all",
            1 + 3 * float(bits.mean(axis=0)[1:].max()),
        ),
        (f"printed: 16 over a ratio that rounds to {ratio}, least", 16 / (ratio + 0.005)),
        (f"printed: 16 over a ratio that rounds to {ratio}, most", 16 / (ratio - 0.005)),
    ]
    return [{"item": name, "bits_per_weight": value} for name, value in items + extras]


def compare_savings(solved: Solved) -> dict[str, Any]:
    """Errors of the savings in points, with bits per weight from this project's compression and from the printed ratios."""
    printed_bits = compression.printed_bits()
    cells = savings.cells(printed_bits)
    fitted = savings.calibrate(cells, printed_bits)
    return {
        "own": savings.compare(cells, solved.own_bits, solved.fitted),
        "printed": savings.compare(cells, printed_bits, fitted),
        "rows_printed_ratio": [
            {
                "table": cell.table,
                "metric": cell.metric,
                "benchmark": cell.benchmark,
                **cell.case._asdict(),
                "paper_value": cell.saving,
                "model_value": savings.predict(cell, printed_bits, fitted),
                "doubt": cell.doubt,
            }
            for cell in cells
        ],
    }


def _energy_terms() -> dict[str, Any]:
    printed_bits = compression.printed_bits()
    cells = savings.cells(printed_bits)
    caption = {model: savings.CAPTION_BITS[model.split()[0].split("-")[0]] for model in MODELS}
    bits = {"captions": caption, "printed ratios": printed_bits}
    return {name: savings.energy_terms(cells, own) for name, own in bits.items()}


def _errors(errors: Mapping[str, Any]) -> str:
    return f"{errors['mean']:.2f} ({errors['max']:.2f}), {errors['cells']} cells" if errors["cells"] else "none"


def _compared(value: Mapping[str, Any]) -> Iterable[dict[str, str]]:
    for source in ("own", "printed"):
        sets = dict(value[source]["by_table"])
        for metric, by_name in value[source]["by_metric"].items():
            sets |= {f"{metric}: {name}": compared for name, compared in by_name.items()}
        for name, compared in sets.items():
            yield {
                "bits": source,
                "name": name,
                "model": _errors(compared["model"]),
                "constants": _errors(compared["constants"]),
                "order": "/".join(map(str, compared["order"].values())),
                "in_doubt": _errors(compared["in_doubt"]) if "in_doubt" in compared else "",
            }
        for metric, errors in value[source]["transferred"].items():
            yield _left_out(source, f"{metric}: predicted on fitted architectures, constants fitted there", errors)
        for metric, benchmarks in value[source]["leave_one_benchmark_out"].items():
            for benchmark, errors in benchmarks.items():
                yield _left_out(source, f"{metric}: {benchmark}, fitted to the other benchmarks", errors)


def _left_out(source: str, name: str, errors: Mapping[str, Any]) -> dict[str, str]:
    ours, constants = _errors(errors["model"]), _errors(errors["constants"])
    return {"bits": source, "name": name, "model": ours, "constants": constants, "order": "", "in_doubt": ""}


def _bounds(value: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    for source in ("own", "printed"):
        for name, number in value[source].items():
            low, high = FITTED_BOUNDS[name]
            yield {"bits": source, "name": name, "value": number, "low": low, "high": high}


def _roofline(value: Mapping[str, Any]) -> list[dict[str, float]]:
    points = value["roofline"]
    return [dict(zip(points, entry, strict=True)) for entry in zip(*points.values(), strict=True)]


def _hardware(outcome: Outcome) -> dict[str, Any]:
    return hardware.curves(outcome.solved.own_bits, outcome.solved.fitted)


#: The paper's arrays in the catalog, and what the question of array and split is priced for.
_ARRAYS = ("huffllm-ws", "huffllm-os", "huffllm-simba", "huffllm-simba-256")
_NETWORK, _QUERY = "llama-3.2-3b", "MMLU"


def _arrays_and_splits(outcome: Outcome) -> list[dict[str, Any]]:
    """A prefill of the average query on each array, by split: bits as the fields' entropies; head and embedding in 16 bits."""
    llama = outcome.solved.sample.counts["Llama", "float16"]
    network, load = catalog.architecture(_NETWORK), Workload(prompt_tokens=float(BENCHMARK_TOKENS[_QUERY]))
    splits = dict.fromkeys(cell["split"] for cell in printed_cells(DATA / "huffllm_entropy_splits.csv"))
    widths = {split: fields.parse_widths(split) for split in splits}
    bits = {split: float(compression.field_entropies(llama, of).sum()) for split, of in widths.items()}
    rows = []
    for name in _ARRAYS:
        device = catalog.device(name)

        def step(stored: float, device: Device = device) -> tuple[float, float]:
            layers = uniform_weight_bits(stored, ALL_LAYER_MATRICES)
            read = dataclasses.replace(uniform_footprint(UNCOMPRESSED_BITS), target_weight_bits=layers)
            cost = price_steps(device, network, [prefill_step(load, footprint=read)])[0].cost
            assert cost.energy is not None
            return float(cost.total_s), float(cost.energy.total_j)

        plain_s, plain_j = step(UNCOMPRESSED_BITS)
        for split, stored in bits.items():
            seconds, joules = step(stored)
            rows.append(
                {
                    "device": name,
                    "split": split,
                    "bits": stored,
                    "codewords": 1 << max(widths[split]),
                    "plain_s": plain_s,
                    "seconds": seconds,
                    "time_saved": 1 - seconds / plain_s,
                    "energy_saved": 1 - joules / plain_j,
                    "status": "predicted",
                }
            )
    return rows


_detail = functools.partial(detail, Path(__file__).parent)

DETAILS = (
    _detail("arrays", _arrays_and_splits),
    _detail("explanation", lambda outcome: explain_gap(outcome.solved.sample.counts["Llama", "float16"])),
    _detail("savings", lambda outcome: compare_savings(outcome.solved), _compared),
    _detail(
        "energy_terms",
        lambda outcome: _energy_terms(),
        lambda value: [{"bits": name} | row for name, rows in value.items() for row in rows],
    ),
    _detail(
        "fitted",
        lambda outcome: {source: outcome.details["savings"][source]["fitted"] for source in ("own", "printed")},
        _bounds,
    ),
    _detail("hardware", _hardware, _roofline),
    _detail(
        "cams",
        lambda outcome: outcome.details["hardware"]["cam_percent"],
        lambda value: [{"bits": bits, "percent": percent} for bits, percent in value.items()],
    ),
)
