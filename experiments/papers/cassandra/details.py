"""Numbers beside the tables: bars of Fig. 12, its alternative, Fig. 14's readings, measurements for Fig. 6 and 7."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.papers.cassandra import area_power, capacity
from experiments.papers.cassandra.area_power import BFLOAT16_MACS, MM2, NPU, npu_decoder, npu_encoder, printed_value
from experiments.papers.cassandra.speedups import (
    BENCHMARKS,
    BOTH_CODED,
    DEVICES,
    ENDS_CODED,
    FROZEN,
    METHODS,
    MODELS,
    PRUNED_CODED,
    decoder_places,
    int8_terms,
    orders,
    speedups,
)
from experiments.papers.huffllm.hardware import printed_areas as huffllm_areas
from experiments.reproduce.paper import Outcome, detail
from hwmodels import (
    LAYER_MATRICES,
    Case,
    DraftCost,
    Workload,
    catalog,
    chain_plan,
    kv_elements_per_token,
    parameters,
    price,
)
from hwmodels.decoders import decoder, encoder, huffman_cam
from hwmodels.network.architecture import UNCOMPRESSED_BITS
from hwmodels.numerics.units import BITS_PER_BYTE, GB
from jaxspec.compress.footprint import mean_draft_bits, uniform
from jaxspec.compress.knobs import uniform_knobs
from jaxspec.compress.kv import stored_kv, token_rows
from jaxspec.compress.schemes import find_scheme
from jaxspec.formats.fields import counted_entropy_bits
from jaxspec.formats.patterns import BFLOAT16, to_bits
from jaxspec.models.chat_template import load_chat_template
from jaxspec.models.decoder import forward_text
from jaxspec.models.embedded import model_place
from jaxspec.models.matrix import stack_of
from jaxspec.models.stored import as_computed
from jaxspec.partial_files import to_json, write_text
from jaxspec.speculate.chunks import Prompts
from jaxspec.speculate.proof import continue_texts
from jaxspec.speculate.sampling import GREEDY
from jaxspec.studies.measured.run_context import load_target
from jaxspec.text import load_text
from jaxspec.tuning.calibration import calibrate
from jaxspec.tuning.compression_objective import left_bits, measure_hard, objective_j

__all__ = [
    "DETAILS",
    "LENGTH",
    "MEASURED",
    "POINTS",
    "better_together",
    "bounds",
    "checks",
    "main",
    "missed_bars",
    "on_the_grid",
    "scored",
    "trade_off",
    "ways_of_storing",
]


#: Networks that were measured, and where their numbers are.
MEASURED = {
    "embedded": Path(__file__).parent / "data" / "measured.json",
    "smollm2-135m": Path(__file__).parent / "data" / "measured_smollm2.json",
}

#: Tokens of a prompt.
_PROMPT = 48

#: Drafted tokens: Fig. 7.
LENGTH = 5

#: What is varied: pruned share and cut bits, by the paper's abbreviations.
POINTS = {
    "VP": [(prune / 100, 0) for prune in (20, 30, 40, 50, 55, 60, 65, 70, 75, 80)],
    "MT": [(0.0, cut) for cut in range(1, 8)],
    "VP+MT": list(itertools.product((0.2, 0.3, 0.4, 0.5, 0.6), (3, 4, 5, 6))),
}


def _exponents(patterns: Any) -> dict[str, float]:
    """Entropy and mean unary length of exponents, one codebook for all of a tensor."""
    fields = (np.asarray(patterns).reshape(-1) >> BFLOAT16.mantissa_bits) & 0xFF
    counts = np.sort(np.bincount(fields, minlength=256))[::-1]
    unary = float(counts @ np.arange(1, counts.size + 1)) / counts.sum()
    return {"entropy_bits": float(counted_entropy_bits(counts)), "unary_bits": unary, "values": int(counts.sum())}


def _mean(rows: list[dict[str, float]]) -> dict[str, float]:
    total = sum(each["values"] for each in rows)
    names = ("entropy_bits", "unary_bits")
    return {name: sum(each[name] * each["values"] for each in rows) / total for name in names} | {"values": total}


def main() -> None:
    """Measure and write: `python -m experiments.papers.cassandra.details [--model smollm2-135m --text FILE]`."""
    parser = argparse.ArgumentParser(prog="python -m experiments.papers.cassandra.details", description=__doc__)
    parser.add_argument("--model", choices=list(MEASURED), default="embedded")
    parser.add_argument(
        "--text",
        default="stdlib",
        help="as `jaxspec tune --text` reads it; of conversations the answers are written anew",
    )
    parser.add_argument("--windows", type=int, default=64, help="prompts out of the text (default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=96, help="that a prompt is continued by (default: %(default)s)")
    args = parser.parse_args()
    loaded, scheme = load_target(args.model).loaded, find_scheme("cassandra1")
    config, stored = loaded.config, loaded.params
    text = load_text(args.text, loaded.tokenizer, chat=load_chat_template(model_place(args.model)))
    if text.calibration_answers:
        prompts = text.calibration_windows(args.windows, _PROMPT, 0, ahead=_PROMPT)
    else:
        prompts = text.held_out_windows(args.windows, _PROMPT, 0)
    decoded = continue_texts(
        as_computed(stored), config, Prompts(prompts, num_tokens=args.tokens, decoding=GREEDY, seed=0)
    )
    tokens = jnp.asarray(decoded["tokens"][:, : _PROMPT + args.tokens])
    cache = forward_text(
        as_computed(stored), config, tokens, kv_codec=stored_kv(config), logits_from=tokens.shape[1]
    ).cache
    layers = [type(cache)(cache.key[i], cache.value[i]) for i in range(config.num_layers)]
    cached = [_exponents(to_bits(rows.astype(jnp.bfloat16))) for layer in layers for rows in token_rows(layer)]
    result: dict[str, Any] = {"model": args.model, "fig6": {"kv_cache": _mean(cached)}, "fig7": {}}
    if not loaded.packed:  # values read back from few bits do not have the exponents of a network in 16 bits
        matrices = [stack_of(stored["layers"][kind]).values() for kind in config.matrix_kinds]
        weights = [_exponents(to_bits(jnp.asarray(x))) for stack in matrices for x in stack]
        result["fig6"]["weights"] = _mean(weights)
    calibration = calibrate(stored, config, tokens, scheme=scheme, first=_PROMPT - 1)
    for name, points in POINTS.items():
        rows = []
        for prune, cut in points:
            knobs = uniform_knobs(
                scheme, config, weight_prune=prune, weight_cut_bits=cut, kv_prune=0.0, kv_cut_bits=0.0
            )
            measurement = measure_hard(calibration, knobs, GREEDY)
            bits, alpha = float(mean_draft_bits(measurement.footprint)), float(jnp.mean(measurement.survival[:LENGTH]))
            rows.append({"weight_prune": prune, "cut_bits": cut, "bits_per_weight": bits, "alpha_fraction": alpha})
            print(name, json.dumps(rows[-1]), flush=True)
        result["fig7"][name] = rows
    write_text(MEASURED[args.model], to_json(result))


if __name__ == "__main__":
    main()


#: What drafts are priced on and for.
DEVICE, ARCHITECTURE, CONTEXT_TOKENS = "rtx-4090", "llama-3.1-8b", 1024.0


def on_the_grid(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Drafts whose pruned share and cut bits are among those that the paper searches."""
    searched = functools.partial(printed_value, "algorithm_config", parameter="grid search")

    def points(name: str) -> np.ndarray:
        low, high, step = (searched(f"{name}_{end}") for end in ("min", "max", "step"))
        return low + step * np.arange(round((high - low) / step) + 1)

    prune, cut = points("pruning_ratio") / 100, points("truncation")
    among = lambda value, allowed: bool(np.isclose(value, allowed).any())
    return [row for row in rows if among(row["weight_prune"], prune) and among(row["cut_bits"], cut)]


def scored(rows: list[dict[str, float]], drafted: int) -> list[dict[str, Any]]:
    """Each draft with J, relative to the best, and its predicted speedup over 16-bit decoding; the best J first.

    Args:
        rows: of Fig. 7: weight_prune, cut_bits, bits_per_weight, alpha_fraction of `drafted` tokens.
    """
    architecture = catalog.architecture(ARCHITECTURE)
    stored = parameters(architecture)
    layer_weights = float(sum(stored[kind] for kind in LAYER_MATRICES))
    kv_values = CONTEXT_TOKENS * float(kv_elements_per_token(architecture))
    values = [
        float(
            objective_j(
                row["alpha_fraction"],
                [(layer_weights, left_bits(row["weight_prune"], row["cut_bits"])), (kv_values, left_bits(0.0, 0.0))],
            )
        )
        for row in rows
    ]
    column = lambda name: jnp.array([row[name] for row in rows], jnp.float32)
    cycle_s, plain_s = _seconds(*map(column, ("bits_per_weight", "weight_prune", "cut_bits")), jnp.float32(drafted))
    tokens = 1.0 + drafted * np.array([row["alpha_fraction"] for row in rows])
    speedup = tokens * np.asarray(plain_s) / np.asarray(cycle_s)
    scored_rows = [
        row | {"J": value / max(values), "speedup": float(one), "status": "predicted"}
        for row, value, one in zip(rows, values, speedup, strict=True)
    ]
    return sorted(scored_rows, key=lambda row: -row["J"])


@jax.jit
def _seconds(bits: Array, prune: Array, cut: Array, drafted: Array) -> tuple[Array, Array]:
    """Of a cycle, and of a step of autoregressive decoding in 16 bits, "draft"."""

    def one(bits: Array, prune: Array, cut: Array) -> tuple[Array, Array]:
        # A verification reads pruned values in 16 bits, and the bits that were cut off the others (V-A).
        target = bits + prune * UNCOMPRESSED_BITS + (1.0 - prune) * cut
        priced = price(
            Case(
                catalog.device(DEVICE),
                catalog.architecture(ARCHITECTURE),
                workload=Workload(context_tokens=CONTEXT_TOKENS),
                footprint=uniform(bits, target),
                draft=DraftCost(),
            ),
            chain_plan(drafted),
        )
        return priced.total_s, priced.baselines.bf16.cost.total_s

    return jax.vmap(one)(bits, prune, cut)


#: What Fig. 12, 3 and 14 must reach, relative or in percentage points.
_BARS = {"fig12": 0.05, "fig3_points": 2.0, "fig14": 0.05}


def _measured(model: str) -> dict[str, Any]:
    return json.loads(MEASURED[model].read_text(encoding="utf-8"))


def _bars() -> list[dict[str, Any]]:
    best = speedups(FROZEN)
    names = list(itertools.product(DEVICES, METHODS, MODELS, BENCHMARKS))
    values = zip(names, best.speedup.reshape(-1).tolist(), best.length.reshape(-1).tolist(), strict=True)
    keys = ("device", "method", "model", "benchmark")
    return [
        dict(zip(keys, place, strict=True)) | {"speedup": value, "draft_length": length, "status": "predicted"}
        for place, value, length in values
    ]


def ways_of_storing() -> list[dict[str, Any]]:
    """Both ends of Fig. 12, and the nearest that Fig. 14 comes, by how pruned values, embedding and head are stored."""
    printed = [printed_value("claims", claim_id=claim) for claim in ("CAS002", "CAS001")]
    rows = []
    readings = {
        "all in 16 bits (frozen)": FROZEN,
        "pruned values coded": PRUNED_CODED,
        "embedding and head coded": ENDS_CODED,
        "both coded": BOTH_CODED,
    }
    for name, choices in readings.items():
        values = speedups(choices).speedup
        ends = [float(values.min()), float(values.max())]
        errors = [value / paper - 1 for value, paper in zip(ends, printed, strict=True)]
        rows.append(
            {
                "choices": name,
                "low": ends[0],
                "high": ends[1],
                "low_error": errors[0],
                "high_error": errors[1],
                "fig14_error": min(
                    one.error
                    for one in capacity.readings()
                    if (one.pruned, one.end_bits < UNCOMPRESSED_BITS) == (choices.pruned, choices.ends == "coded")
                ),
            }
        )
    return rows


def trade_off(model: str) -> dict[str, list[dict[str, float]]]:
    """Fig. 7 of a network by abbreviation: compression and accepted fraction of each draft, rising compression."""
    return {
        name: sorted(
            (row | {"compression": 16 / row["bits_per_weight"]} for row in rows), key=lambda row: row["compression"]
        )
        for name, rows in _measured(model)["fig7"].items()
    }


def better_together(drafts: dict[str, list[dict[str, float]]]) -> list[dict[str, float]]:
    """At each compression of a combined draft, what either alone accepts there, between its neighbouring drafts.

    Of combined drafts those that no other of less bits beats. NaN where no draft of one kind compresses as much.
    """
    kept, best = [], -1.0
    for row in sorted(drafts["VP+MT"], key=lambda row: -row["compression"]):
        if row["alpha_fraction"] > best:
            best = row["alpha_fraction"]
            kept.append(row)

    def alone(name: str, compression: float) -> float:
        points = drafts[name]
        x, y = ([row[key] for row in points] for key in ("compression", "alpha_fraction"))
        return float(np.interp(compression, x, y, right=np.nan, left=np.nan))

    return [
        {"compression": row["compression"], "VP+MT": row["alpha_fraction"]}
        | {name: alone(name, row["compression"]) for name in ("VP", "MT")}
        for row in reversed(kept)
    ]


def _objective() -> list[dict[str, Any]]:
    """Drafts of Fig. 7 on the paper's grid, with its objective and their predicted speedup."""
    drafts = {model: _measured(model)["fig7"] for model in MEASURED}
    return [
        {"model": model} | row
        for model, own in drafts.items()
        for row in scored(on_the_grid([*own["VP+MT"], *own["VP"]]), LENGTH)
    ]


_detail = functools.partial(detail, Path(__file__).parent)

DETAILS = (
    _detail(
        "places",
        lambda outcome: decoder_places(),
        lambda value: [row | {"low": min(row["speedups"]), "high": max(row["speedups"])} for row in value],
    ),
    _detail("fig12_choices", lambda outcome: [{"choice": text} for text in FROZEN.in_words()]),
    _detail("fig12_ranges", lambda outcome: ways_of_storing()),
    _detail(
        "fig12_orders",
        lambda outcome: orders(),
        lambda value: [{"name": name, "holds": holds} for name, holds in value.items()],
    ),
    _detail("fig12_bars", lambda outcome: _bars()),
    _detail("int8_terms", lambda outcome: int8_terms()),
    _detail(
        "fig14_readings", lambda outcome: [reading.listed() for reading in capacity.readings()], lambda value: value[:6]
    ),
    _detail(
        "fig6",
        lambda outcome: [
            {"model": model, "what": what} | row | {"status": "measured"}
            for model in MEASURED
            for what, row in _measured(model)["fig6"].items()
        ],
    ),
    _detail(
        "fig7",
        lambda outcome: {
            model: {"drafts": drafts, "equal_compression": better_together(drafts)}
            for model, drafts in ((model, trade_off(model)) for model in MEASURED)
        },
        lambda value: [{"model": model} | row for model, one in value.items() for row in one["equal_compression"]],
    ),
    _detail("objective", lambda outcome: _objective()),
)


def missed_bars(outcome: Outcome) -> list[str]:
    """Of the hardware, and of Fig. 3, 12 and 14."""
    missed = area_power.missed_bars(outcome)
    for row in outcome.rows:
        error, claim = row["relative_error"], row["conditions"].get("claim_id", "")
        if row["table"] in ("fig12", "fig14") and error > _BARS[row["table"]]:
            missed.append(f"{row['table']}: {claim} off by {error:.1%}, allowed {_BARS[row['table']]:.0%}")
        elif row["table"] == "fig3" and (points := abs(row["model_value"] - row["paper_value"])) > _BARS["fig3_points"]:
            missed.append(f"fig3: off by {points:.1f} points, allowed {_BARS['fig3_points']:g}")
    for place, holds in orders().items():
        missed += [] if holds else [f"fig12: the order of {place} does not hold"]
    return missed


# What follows from the units of Table V beyond its cells: other chips, energy, stalls, encoding, other papers'
# decoders.

#: Cassandra's evaluated configuration, VI-A: 40 % of the weights pruned, 4 bits of their mantissas cut.
_PRUNED, _CUT_BITS = (
    printed_value("algorithm_config", metric, parameter="evaluated configuration", target="weights")
    for metric in ("pruning_ratio", "mantissa_truncation")
)
KEPT_SHARE = 1.0 - _PRUNED / 100.0

#: Bits read per weight in a draft step: bitmap, and sign, exponent and what is left of 7 mantissa bits of the kept.
DRAFT_BITS = 1 + KEPT_SHARE * (1 + area_power.MEAN_CODE_BITS + 7 - _CUT_BITS)  # Cassandra, IV-B and VI-A

#: The GPUs of VI-D by their names in the catalog, and the model whose KV is encoded.
GPUS, KV_OF = {"RTX 4090": "rtx-4090", "Jetson AGX Orin": "jetson-agx-orin"}, "llama-3.1-8b"

#: Weights of the model whose draft step is timed.
_WEIGHTS = 8e9

#: Bytes that one Huffman decoder of a float16 weight, three CAMs, delivers per cycle.
_HUFFMAN_BYTES = 2.0


def _bandwidths() -> dict[str, float]:
    """Bytes per second by device: the NPU's as printed in VI-A, the GPUs' of the catalog."""
    npu = printed_value("hardware_specs", "memory_bandwidth", device=NPU) * GB
    return {
        NPU: npu,
        **{name: float(catalog.device(entry).memory.bandwidth_bytes_per_s) for name, entry in GPUS.items()},
    }


def _kv_values() -> float:
    """Keys and values of a token: layers, heads, elements of a head, both."""
    model = catalog.architecture(KV_OF)
    return float(model.num_layers * model.num_kv_heads * model.head_dim * 2)


def bounds() -> list[dict[str, Any]]:
    """Area of the NPU's units on other chips, in percent of the die; the paper prints none, only that it should be smaller.

    As synthesised at 28 nm it is an upper bound. Scaled by the square of the node it is a lower one: real nodes shrink less.
    Decoders for the memory: as many as keep up with drafting straight from it, at the assumed clock.
    """
    decoders, encoders = npu_decoder(), npu_encoder()
    area_mm2 = float(decoders.total_area_m2 + encoders.total_area_m2) / MM2
    power_w = float(decoders.count * decoders.power_w + encoders.power_w)
    from_nm = printed_value("hardware_specs", "technology_node", device=NPU)
    rows = []
    for device, bandwidth in _bandwidths().items():
        decoded_bytes_per_cycle = bandwidth / area_power.CLOCK_HZ * 16 / DRAFT_BITS
        row: dict[str, Any] = {
            "device": device,
            "decoders_for_memory": decoder.decoders_needed(
                decoders, decoded_bytes_per_cycle, KEPT_SHARE * area_power.MEAN_CODE_BITS
            ),
        }
        if device != NPU:
            die = printed_value("hardware_specs", "die_area", device=device)
            node = printed_value("hardware_specs", "technology_node", device=device)
            row |= {
                "die_mm2": die,
                "node_nm": node,
                "percent_unscaled": 100.0 * area_mm2 / die,
                "percent_ideally_scaled": 100.0 * area_mm2 * (node / from_nm) ** 2 / die,
                "power_percent": 100.0 * (power_w / printed_value("hardware_specs", "power", device=device)),
            }
        rows.append(row)
    return rows


def checks() -> list[dict[str, Any]]:
    """Numbers that no cell holds: energy, stalls with fewer units, the encoder's time, and comparisons across papers."""
    decoders, encoders = npu_decoder(), npu_encoder()
    bits = area_power.MEAN_CODE_BITS
    kept_bits = KEPT_SHARE * bits
    memory_s = _WEIGHTS * DRAFT_BITS / BITS_PER_BYTE / _bandwidths()[NPU]
    other = huffllm_areas()
    scale = (printed_value("hardware_specs", "technology_node", device=NPU) / other["node_nm"]) ** 2
    unit_bytes = float(decoder.decoded_bytes_per_cycle(decoders, bits))
    bytes_per_s = float(decoder.decoded_bytes_per_s(decoders, bits))
    joules = decoders.count * decoders.power_w / bytes_per_s / BITS_PER_BYTE
    entries: list[tuple[str, float, str]] = [
        ("energy of decoding, unpruned", joules * 1e12, "pJ per decoded bit"),
        ("decoded by 40 units, unpruned", bytes_per_s / GB, "GB/s"),
    ]
    for count in (40, 20, 10, 5):
        kept_per_s = decoder.decoded_bytes_per_s(dataclasses.replace(decoders, count=float(count)), kept_bits)
        decode_s = _WEIGHTS * decoders.symbol_bytes / float(kept_per_s)
        entries.append((f"stall factor of a draft step, {count} units", max(decode_s / memory_s, 1.0), "x"))
    cams, element_m2 = other["decoders_per_weight"], other["element_m2"]
    huffman = cams * other["decoder_m2"] / _HUFFMAN_BYTES
    overhead = huffman_cam.area_overhead(
        other["decoder_m2"], rows=128, columns=128, pe_area_m2=element_m2, decoders_per_column=cams
    )
    printed_mac = printed_value("table5_area_power", "area", module="BF16 MAC")
    entries += [
        ("encoding a token's KV, one value per cycle", float(encoder.encode_time(encoders, _kv_values())) * 1e6, "us"),
        ("a draft step's reading, 8e9 weights", memory_s * 1e6, "us"),
        ("encoders needed for it", float(encoder.encoders_needed(encoders, _kv_values(), memory_s)), "units"),
        ("unary area per decoded byte and cycle", decoders.area_m2 / unit_bytes * 1e12, "um^2 at 28 nm"),
        ("Huffman CAM area per decoded byte and cycle", huffman * 1e12, "um^2 at 12 nm"),
        ("the same, ideally scaled", huffman * scale * 1e12, "um^2 at 28 nm"),
        ("overhead of Huff-LLM's three decoders per column", 100.0 * float(overhead), "percent of the elements"),
        (
            f"MAC area from Huff-LLM's element, ideally scaled (printed: {printed_mac:g})",
            element_m2 * scale * BFLOAT16_MACS / MM2,
            "mm^2 at 28 nm",
        ),
    ]
    return [{"item": item, "value": value, "unit": unit} for item, value, unit in entries]
