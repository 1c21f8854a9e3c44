"""More bits, rows, sequences or context never take less time, whatever the GPU, engine and format."""

import dataclasses

import jax
import numpy as np
import pytest

from hwmodels import catalog, step_cost, uniform_weight_bits
from hwmodels.catalog.calibrations import calibrated_engines, calibrated_formats
from hwmodels.network.operators import step_operators

CALIBRATED = tuple(name for name in catalog.device_names() if catalog.device_entry(name).calibration is not None)
SHAPES = [catalog.architecture(name) for name in catalog.architecture_names()]

#: Of 10^4 random points and over all kernels, and a sample of those with as many formats, which share a compilation.
EVERYTHING = [
    (name, engine, kind)
    for name in CALIBRATED
    for engine in calibrated_engines(catalog.device_entry(name).calibration or "")
    for kind in (None, *calibrated_formats(catalog.device_entry(name).calibration or "", engine))
]
SAMPLE = [("b200-sxm", "trtllm", None), ("rtx-pro-6000", "vllm", None), ("b200-sxm", "sglang", None)]
GROUP = 100

#: What grows, and by which factor at most. Rows are new tokens per sequence; each sequence then has them.
GROWING = {"tokens": 8.0, "batch": 8.0, "context_tokens": 8.0, "bits": 4.0, "kv": 4.0}


def quiet(name, engine, kind):
    device = catalog.device(name, engine=engine, weight_format=kind)
    unit = dataclasses.replace(device.matrix_unit, remarks=(), spreads=(), engine="", weight_format=None)
    return device.replace(matrix_unit=unit)


@jax.jit
def seconds(device, shapes, point):
    def one(shape, p):
        sizes = {name: p[name] for name in ("tokens", "batch", "context_tokens")}
        work = step_operators(shape, **sizes, weight_bits=uniform_weight_bits(p["bits"]), kv_bits=p["kv"])
        return step_cost(device, work).total_s

    return jax.vmap(one)(shapes, point)


def points(draw):
    return {
        "tokens": np.round(2.0 ** draw.uniform(0, 11, GROUP)),
        "batch": np.round(2.0 ** draw.uniform(0, 7, GROUP)),
        "context_tokens": np.round(2.0 ** draw.uniform(0, 15, GROUP)),
        "bits": draw.uniform(1.0, 16.0, GROUP),
        "kv": draw.uniform(1.0, 16.0, GROUP),
    }


def check(device, seed):
    draw = np.random.default_rng(seed)
    chosen = draw.integers(len(SHAPES), size=GROUP)
    shapes = jax.tree.map(lambda *leaves: np.asarray(leaves, np.float32)[chosen], *SHAPES)
    point = {name: np.float32(values) for name, values in points(draw).items()}
    once = np.asarray(seconds(device, shapes, point))
    assert np.all(np.isfinite(once))
    assert np.all(once > 0)
    for name, most in GROWING.items():
        more = point[name] * draw.uniform(1.0, most, GROUP)
        if name in ("bits", "kv"):
            more = np.minimum(more, 16.0)
        grown = np.asarray(seconds(device, shapes, point | {name: np.float32(more)}))
        worst = int(np.argmin(grown / once))
        assert np.all(grown >= once * (1 - _ALLOWED[name])), (name, worst, {n: v[worst] for n, v in point.items()})


#: Single precision.
_ALLOWED = dict.fromkeys(GROWING, 1e-5)


@pytest.mark.parametrize("kernels", SAMPLE)
def test_more_never_takes_less(kernels):
    check(quiet(*kernels), seed=3)


def test_one_more_sequence_never_takes_less_of_a_mixture():
    """Step by step, as factors skip over the batches at which a count is rounded to one more tile."""
    shape, batches = catalog.architecture("qwen3-30b-a3b"), np.arange(1, 513, dtype=np.float32)
    shapes = jax.tree.map(lambda leaf: np.full(batches.shape, leaf, np.float32), shape)
    device = quiet("h100-sxm", "vllm", None)
    for tokens, bits in ((1, 16.0), (4, 4.0)):
        fixed = {"tokens": tokens, "context_tokens": 1024, "bits": bits, "kv": 16.0}
        point = {name: np.full(batches.shape, value, np.float32) for name, value in fixed.items()}
        taken = np.asarray(seconds(device, shapes, point | {"batch": batches}))
        assert np.all(taken[1:] >= taken[:-1] * (1 - _ALLOWED["batch"])), (
            tokens,
            bits,
            np.argmin(taken[1:] / taken[:-1]),
        )


@pytest.mark.slow
@pytest.mark.parametrize("kernels", EVERYTHING)
def test_more_never_takes_less_on_any_kernels(kernels):
    for seed in range(-(-10_000 // (GROUP * len(EVERYTHING))) + 1):
        check(quiet(*kernels), seed)
