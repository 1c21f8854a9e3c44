"""Fig. 12: speedups of both variants on three devices, from Table IV's acceptance; every choice is fixed in `Choices`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from experiments.papers.cassandra import area_power
from experiments.papers.cassandra.area_power import printed_value
from hwmodels import ALL_LAYER_MATRICES, Architecture, Case, Device, Footprint, Workload, catalog, uniform_weight_bits
from hwmodels.analysis.design_point import priced_steps
from hwmodels.numerics.fast_compile import jit_fast_compile
from jaxspec.formats import mx_truncated

__all__ = [
    "BENCHMARKS",
    "BOTH_CODED",
    "BY_TOKEN",
    "DEVICES",
    "ENDS_CODED",
    "FROZEN",
    "METHODS",
    "MODELS",
    "PRUNED_CODED",
    "Choices",
    "Speedups",
    "decode_share",
    "decoder_places",
    "int8_baseline",
    "int8_terms",
    "orders",
    "speedups",
    "token_rate",
]

#: As the paper calls them -> entries of the catalog.
DEVICES = {"RTX 4090": "rtx-4090", "Jetson AGX Orin": "jetson-agx-orin", area_power.NPU: "cassandra-npu-roofline"}
MODELS = {"DS-Llama-8B": "llama-3.1-8b", "Qwen3-8B": "qwen3-8b", "Qwen3-4B": "qwen3-4b"}
BENCHMARKS = ("LiveCodeBench", "GPQA-Diamond", "Longbench", "Math-500")

#: Method -> draft length of its acceptance in Table IV.
METHODS = {"Cassandra-1": 5, "Cassandra-2": 3}

#: Draft lengths of which the best is taken: Cassandra, VI-C.
LENGTHS = (3, 4, 5)

#: Rows of Table I whose lengths stand for a model; it has none of Qwen3-8B, which takes those of Qwen3-4B.
_LENGTHS_OF = {"DS-Llama-8B": "Deepseek-R1-Llama3-8B", "Qwen3-8B": "Qwen3-4B-Thinking", "Qwen3-4B": "Qwen3-4B-Thinking"}


@dataclasses.dataclass(frozen=True)
class Choices:
    """What the paper leaves open. `FROZEN` was written down before any speedup was computed.

    Attributes:
        pruned: how verification reads pruned weights: "raw", 16 bits as V-A says (13.9 bits per weight with unary exponents),
            or "coded" (11.85 bits; in blocks of shared exponents 10.25).
        ends: how embedding and head are read: "raw", 16 bits, or "coded", with the exponents coded as those of the layers.
        overhead_s: seconds added to every step, of drafts, verifications and autoregressive decoding alike.
        by_token: Table IV is the probability of each token, given those before it, and not a fraction of the drafted ones.
    """

    pruned: str = "raw"
    ends: str = "raw"
    overhead_s: float = 0.0
    by_token: bool = False

    def in_words(self) -> tuple[str, ...]:
        """For a reader, before any number."""
        footprints = footprint("Cassandra-1", self), footprint("Cassandra-2", self)
        read = [(float(f.draft_weight_bits["q"]), float(f.target_weight_bits["q"])) for f in footprints]
        return (
            f"Cassandra-1 reads {read[0][0]:.2f} bits per weight in a draft step and {read[0][1]:.2f} in a verification, "
            f"Cassandra-2 {read[1][0]:.2f} and {read[1][1]:.2f}: pruned values {self.pruned}",
            "embedding, norms and LM head stay at 16 bits, in drafts too; the KV cache is not pruned, 4 bits are cut",
            "Table IV is the accepted fraction of the 5 and 3 drafted tokens; a token rate with this mean, independent of the "
            "place, is solved there and moved to the best length of 3 to 5",
            "one sequence; context: prompt and half of the output of Table I's reasoning models on GPQA-Diamond, for all "
            "benchmarks",
            "rooflines of published rates; decoders keep up; nothing is fitted"
            if self.overhead_s == 0
            else f"rooflines of published rates, and {self.overhead_s * 1e6:.0f} us in every step, fitted",
        )


#: Fixed before scoring.
FROZEN = Choices()

#: The named alternative, the reading of Fig. 14's ends, another reading of Table IV, and both alternatives at once.
PRUNED_CODED, ENDS_CODED, BY_TOKEN = Choices(pruned="coded"), Choices(ends="coded"), Choices(by_token=True)
BOTH_CODED = Choices(pruned="coded", ends="coded")


class Speedups(NamedTuple):
    """Over autoregressive decoding in 16 bits, "device method model benchmark", and the draft lengths that are best."""

    speedup: np.ndarray
    length: np.ndarray


def footprint(method: str, choices: Choices) -> Footprint:
    """Bits that the evaluated configuration reads: 40 % of the weights pruned, 4 bits cut of weights and KV (VI-A)."""
    config = functools.partial(printed_value, "algorithm_config", parameter="evaluated configuration")
    prune = config("pruning_ratio") / 100
    cut, kv_cut = (config("mantissa_truncation", target=target) for target in ("weights", "kv_cache"))
    kept = 1 - prune
    if method == "Cassandra-1":
        code = area_power.MEAN_CODE_BITS
        draft = 1 + kept * (1 + code + 7 - cut)
        pruned = 16 if choices.pruned == "raw" else 8 + code
        kv = (8 + code - kv_cut, 8 + code)
        target = draft + kept * cut + prune * pruned
    elif choices.pruned == "raw":
        draft, target = mx_truncated.expected_bits(kept, cut)
        kv = mx_truncated.expected_bits(1.0, kv_cut, bitmap=0.0)
    else:
        draft, target = mx_truncated.nested_bits(kept, cut, bitmap=1.0, columns=mx_truncated.BLOCK_SIZE)
        kv = mx_truncated.expected_bits(1.0, kv_cut, bitmap=0.0)
    ends = dict.fromkeys(("embed", "lm_head"), 16.0 if choices.ends == "raw" else 8.0 + area_power.MEAN_CODE_BITS)
    return Footprint(
        draft_weight_bits=uniform_weight_bits(draft, ALL_LAYER_MATRICES) | ends,
        target_weight_bits=uniform_weight_bits(target, ALL_LAYER_MATRICES) | ends,
        draft_kv_bits=kv[0],
        target_kv_bits=kv[1],
    )


def token_rate(fraction: float, length: int) -> float:
    """The rate a at which (a + a^2 + ... + a^length) / length is this accepted fraction; by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        mean = sum(middle**depth for depth in range(1, length + 1)) / length
        low, high = (middle, high) if mean < fraction else (low, middle)
    return (low + high) / 2


def _tokens_per_cycle(rate: float) -> list[float]:
    """At each of `LENGTHS`, when each drafted token is accepted at this rate given those before it."""
    return [1 + sum(rate**depth for depth in range(1, length + 1)) for length in LENGTHS]


def acceptance(method: str, model: str, benchmark: str) -> float:
    """A cell of Table IV."""
    return printed_value("table4_acceptance_rate", method=method, model=model, benchmark=benchmark)


def workload(model: str) -> Workload:
    """One sequence, half-way through its output."""
    tokens = functools.partial(printed_value, "table1_context_length", model=_LENGTHS_OF[model])
    prompt, output = tokens(phase="prefill"), tokens(phase="decode")
    return Workload(batch=1.0, context_tokens=prompt + output / 2, prompt_tokens=prompt, output_tokens=output)


class StepTimes(NamedTuple):
    """Seconds of a step: autoregressive in 16 bits, of a draft, and of verifications of `LENGTHS` drafted tokens."""

    plain: float
    draft: float
    verify: tuple[float, ...]


@jit_fast_compile
def _seconds(device: Device, architecture: Architecture, load: Workload, read: Footprint) -> tuple[Array, Array, Array]:
    def of(length: Array) -> tuple[Array, Array, Array]:
        steps = priced_steps(Case(device, architecture, workload=load, footprint=read), length)
        return steps.ar_bf16.cost.total_s, steps.draft.cost.total_s, steps.verify.cost.total_s

    return jax.vmap(of)(jnp.asarray(LENGTHS, jnp.float32))


@functools.cache
def step_times(device: str, method: str, model: str, choices: Choices) -> StepTimes:
    """Of one device, method and model, overhead included."""
    name, architecture = catalog.device(DEVICES[device]), catalog.architecture(MODELS[model])
    times = _seconds(name, architecture, workload(model), footprint(method, choices))
    plain, draft, verify = (np.asarray(seconds, float) + choices.overhead_s for seconds in times)
    return StepTimes(float(plain[0]), float(draft[0]), tuple(verify.tolist()))


@functools.cache
def speedups(choices: Choices = FROZEN) -> Speedups:
    """All 72 bars of Fig. 12."""
    shape = (len(DEVICES), len(METHODS), len(MODELS), len(BENCHMARKS))
    best, length = np.zeros(shape), np.zeros(shape, int)
    for place in itertools.product(*map(range, shape)):
        device, method, model, benchmark = (
            list(names)[i] for names, i in zip((DEVICES, METHODS, MODELS, BENCHMARKS), place, strict=True)
        )
        times = step_times(device, method, model, choices)
        rate = acceptance(method, model, benchmark)
        rate = rate if choices.by_token else token_rate(rate, METHODS[method])
        candidates = [
            tokens * times.plain / (drafted * times.draft + verify_s)
            for tokens, drafted, verify_s in zip(_tokens_per_cycle(rate), LENGTHS, times.verify, strict=True)
        ]
        best[place], length[place] = max(candidates), LENGTHS[int(np.argmax(candidates))]
    return Speedups(best, length)


def decoder_places() -> list[dict[str, Any]]:
    """V-B: decoders behind the GPU's L2, or in its memory controllers; Llama with Table IV's acceptance, by benchmark."""
    gpu, model, lengths = catalog.device("cassandra-gpu"), "DS-Llama-8B", np.asarray(LENGTHS)
    rows = []
    for (method, drafted), place in itertools.product(METHODS.items(), ("l2", "dma")):
        device = dataclasses.replace(gpu, decoder=dataclasses.replace(gpu.decoder, place=place))
        priced = _seconds(device, catalog.architecture(MODELS[model]), workload(model), footprint(method, FROZEN))
        plain, draft, verify = (np.asarray(seconds, float) for seconds in priced)
        rates = [token_rate(acceptance(method, model, benchmark), drafted) for benchmark in BENCHMARKS]
        tokens = np.array([_tokens_per_cycle(rate) for rate in rates])
        speedup = tokens * plain / (lengths * draft + verify)
        rows.append(
            {
                "method": method,
                "place": place,
                "draft_s": float(draft[0]),
                "verify_s": float(verify[-1]),
                "speedups": speedup.max(axis=1).tolist(),
                "status": "predicted",
            }
        )
    return rows


class Int8(NamedTuple):
    """The W8A8 baseline on the RTX 4090.

    Attributes:
        without_overhead: speedup of reading 8 bits per weight of the layers, head and KV at 16.
        overhead_s: per step, that leaves the printed 1.3.
        per_activation_s: the same for each of the four quantized inputs of a layer.
    """

    without_overhead: float
    overhead_s: float
    per_activation_s: float


#: Inputs of a layer that W8A8 quantizes: of the QKV, output, gate and up, and down projections.
_QUANTIZED = 4


def _eight_bits() -> Footprint:
    """Of W8A8: layers alone."""
    eight = uniform_weight_bits(8.0, ALL_LAYER_MATRICES)
    return Footprint(draft_weight_bits=eight, target_weight_bits=eight, draft_kv_bits=16.0, target_kv_bits=16.0)


@functools.cache
def int8_baseline(model: str = "DS-Llama-8B") -> Int8:
    """What online quantization of activations and scaling must take for the printed speedup of INT8 (VII-A.2)."""
    name, architecture = catalog.device(DEVICES["RTX 4090"]), catalog.architecture(MODELS[model])
    plain, quantized, _ = (
        float(seconds[0]) for seconds in _seconds(name, architecture, workload(model), _eight_bits())
    )
    over = plain / printed_value("claims", claim_id="CAS019") - quantized
    return Int8(plain / quantized, over, over / (_QUANTIZED * float(architecture.num_layers)))


@functools.cache
def int8_terms() -> list[dict[str, float | str]]:
    """INT8's speedup by what is counted: bytes alone, kernels that dequantize weights, kernels that quantize activations too.

    Kernels are vLLM's as measured on a GPU of the same generation. Those with activations in 8 bits are FP8, which the paper
    has within 3 % of its INT8 (VI-C).
    """
    measured = functools.partial(catalog.device, "rtx-4090-calibrated", engine="vllm")
    counted = {"bytes": catalog.device(DEVICES["RTX 4090"]), "dequantizing": measured()}
    counted["quantizing"] = measured(weight_format="fp8")
    rows = []
    for model, name in MODELS.items():
        architecture, row = catalog.architecture(name), {}
        for what, device in counted.items():
            plain, eight, _ = (
                float(seconds[0]) for seconds in _seconds(device, architecture, workload(model), _eight_bits())
            )
            row |= {what: plain / eight, f"{what}_s": eight}
        rows.append({"model": model, "status": "predicted"} | row)
    return rows


@functools.cache
def decode_share(tokens: int = 1024) -> float:
    """Fig. 3: percent of the latency that decoding takes, prompt and output of so many tokens: Llama 3 8B, RTX 4090."""
    load = Workload(batch=1.0, context_tokens=1.5 * tokens, prompt_tokens=float(tokens), output_tokens=float(tokens))
    steps = priced_steps(
        Case(catalog.device(DEVICES["RTX 4090"]), catalog.architecture(MODELS["DS-Llama-8B"]), workload=load), 1.0
    )
    decode = tokens * float(steps.ar_bf16.cost.total_s)
    return 100.0 * decode / (decode + float(steps.prefill.cost.total_s))


def orders() -> dict[str, bool]:
    """Whether the text's two orders hold in every group of bars: of the models (in the mean), and of the benchmarks."""
    values = speedups(FROZEN).speedup
    of_models = values.mean(axis=(0, 3))
    easier, harder = values[..., [2, 3]], values[..., [0, 1]]
    return {
        "DS-Llama-8B, Qwen3-8B, Qwen3-4B, in the mean of each method": bool(np.all(np.diff(of_models, axis=1) < 0)),
        "Longbench and Math-500 above LiveCodeBench and GPQA-Diamond, every bar": bool(
            np.all(easier.min(axis=-1) >= harder.max(axis=-1))
        ),
    }
