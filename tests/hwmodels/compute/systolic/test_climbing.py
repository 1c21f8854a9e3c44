"""One jitted objective of memory tiers, systolic array and decoders: its slopes, and what it tends to."""

import jax
import jax.numpy as jnp
import pytest

from hwmodels import MemoryTier, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.network.operators import StepShape

#: All widths are multiples of 128.
SHAPE = catalog.architecture("llama-3.2-1b")
BASE = catalog.device("huffllm-ws")
FAR = MemoryTier(bandwidth_bytes_per_s=40e9, efficiency=0.9, capacity_bytes=64e9, energy_j_per_bit=8e-12)
#: Array, decoders, two memories.
CENTRE = {"rows": 128.0, "columns": 128.0, "count": 128.0, "near": 128e9, "room": 1.2e9, "far": 40e9}


def cycle_s(numbers, temperature):
    """Two draft steps and a verification, where array, decoders and memories take about as long as each other."""
    unit = BASE.matrix_unit.replace(rows=numbers["rows"], columns=numbers["columns"])
    near = BASE.memory.replace(bandwidth_bytes_per_s=numbers["near"], capacity_bytes=numbers["room"])
    spill = (FAR.replace(bandwidth_bytes_per_s=numbers["far"]),)
    decoder = BASE.decoder.replace(count=numbers["count"])
    device = BASE.replace(matrix_unit=unit, memory=near, spill=spill, decoder=decoder)
    step = lambda tokens, bits: (
        step_cost(
            device,
            step_operators(
                SHAPE,
                StepShape(
                    tokens=tokens, batch=1.0, context_tokens=500.0, weight_bits=uniform_weight_bits(bits), kv_bits=16.0
                ),
            ),
            temperature=temperature,
        ).total_s
    )
    return 2 * step(1.0, 6.3) + step(3.0, 10.9)


@jax.jit
def elasticities(numbers, temperature):
    logs = {name: jnp.log(value) for name, value in numbers.items()}
    of = lambda logs: jnp.log(cycle_s({name: jnp.exp(value) for name, value in logs.items()}, temperature))
    return jax.value_and_grad(of)(logs)


@pytest.mark.parametrize("rows", [128.0, 127.9, 96.3])
def test_slopes_are_those_of_the_value(x64, rows):
    numbers = {name: jnp.float64(value) for name, value in (CENTRE | {"rows": rows}).items()}
    _, slopes = elasticities(numbers, 0.05)
    largest = max(abs(float(slope)) for slope in slopes.values())
    for name in CENTRE:
        ends = [elasticities(numbers | {name: numbers[name] * jnp.exp(sign * 1e-4)}, 0.05)[0] for sign in (1, -1)]
        difference = float(ends[0] - ends[1]) / 2e-4
        assert float(slopes[name]) == pytest.approx(difference, rel=1e-2, abs=1e-3 * largest), name
