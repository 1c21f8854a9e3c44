"""The numbers of `m3-ultra` against the runs that they are derived from, and against others of the same machine.

Medians of github.com/raullenchai/Rapid-MLX, community-benchmarks/aggregated.json of June 2026: MLX, Apple M3 Ultra with
256 GB and 60 GPU cores, networks in 4 bits and groups of 64, one sequence. A bucket's prompt has 531 or 2159 tokens (their
rate times the time to the first token), its answer 128 or 512.
"""

import dataclasses

import pytest

from hwmodels import Footprint, Workload, catalog, decode_operators, step_cost
from hwmodels.network.architecture import uniform_weight_bits
from hwmodels.network.operators import step_operators
from hwmodels.network.operators.steps import prefill_step

DEVICE = catalog.device("m3-ultra")
#: The machine of these runs: 60 of 80 cores, the same memory.
SIXTY = dataclasses.replace(DEVICE, peak_flops_per_s=DEVICE.peak_flops_per_s * 60 / 80)
#: Four bits, a scale and an offset of 16 bits for 64 weights.
BITS = uniform_weight_bits(4.0 + 32 / 64)
STORED = Footprint(target_weight_bits=BITS, draft_weight_bits=BITS, target_kv_bits=16.0, draft_kv_bits=16.0)

#: Network -> decoded tokens/s of the short and the long bucket, prompt tokens/s of the long one.
RUNS = {
    "qwen3-0.6b": (387.64, 340.12, 9353.2),
    "llama-3.1-8b": (119.39, 110.45, 1193.6),
    "qwen3-8b": (112.89, 103.74, 1093.5),
    "qwen2.5-14b": (66.36, 60.47, 622.3),
    "gemma-3-27b": (35.19, 34.94, 310.3),
}
FITTED = ("qwen3-0.6b", "qwen2.5-14b")
LARGE = tuple(name for name in RUNS if name != "qwen3-0.6b")


def decoded(name, context):
    work = decode_operators(catalog.architecture(name), Workload(batch=1.0, context_tokens=context), footprint=STORED)
    return 1.0 / float(step_cost(SIXTY, work).total_s)


def prompted(name, tokens):
    step = prefill_step(Workload(batch=1.0, context_tokens=1.0, prompt_tokens=tokens), footprint=STORED)
    return tokens / float(step_cost(SIXTY, step_operators(catalog.architecture(name), step)).total_s)


@pytest.mark.parametrize("name", FITTED)
def test_latency_and_bandwidth_give_the_runs_that_they_are_solved_from(name):
    # Rounded to three digits.
    assert decoded(name, 531.0 + 64.0) == pytest.approx(RUNS[name][0], rel=2e-3)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in FITTED])
def test_other_networks_decode_as_fast_as_measured(name):
    assert decoded(name, 531.0 + 64.0) == pytest.approx(RUNS[name][0], rel=0.025)


@pytest.mark.parametrize("name", RUNS)
def test_longer_contexts_decode_as_fast_as_measured(name):
    assert decoded(name, 2159.0 + 256.0) == pytest.approx(RUNS[name][1], rel=0.065)


def test_prompts_of_large_networks_give_the_efficiency():
    shares = [RUNS[name][2] / prompted(name, 2159.0) for name in LARGE]
    # Above 1: faster than the mean of them.
    assert sum(shares) / len(shares) == pytest.approx(1.0, abs=0.01)
    assert max(abs(share - 1.0) for share in shares) < 0.06
