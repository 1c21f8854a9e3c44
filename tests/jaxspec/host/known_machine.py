"""A machine whose times are known: tables of measured times come from its numbers, with noise."""

import dataclasses
import math

import numpy as np

from hwmodels import Device, MemoryTier, catalog, step_cost, step_operators, uniform_weight_bits
from hwmodels.compute.measured_host import Between, HostAttention, HostProducts, MeasuredHost
from hwmodels.compute.roofline import RowCosts
from hwmodels.network.operators import StepShape
from jaxspec.host.table import Row

#: Matrices: their layers' stacks lie in the cache or beyond it.
MATRICES = ((200, 300), (300, 700), (700, 300), (900, 900), (1000, 3000), (3000, 1000))
ROWS = (1, 2, 3, 5, 8, 9, 17, 40, 130)
FLOPS_PER_S, LAUNCH_S, CACHE_BYTES, FAR = 1e11, 3e-6, 3e7, 0.4
RATES = {32.0: 2e10, 16.0: 6e9}
SLOT_S = 4e-8


def step_of(rows):
    """One row is multiplied as a vector; the first row beyond a multiple of eight costs more."""
    return 0.5 if rows == 1 else 1.2 if rows % 8 == 1 else 1.0


def product_s(row):
    """Its time without noise."""
    near = 1 / (1 + (row.read / CACHE_BYTES) ** 2)
    rate = RATES[row.weight_bits] / (near + (1 - near) / FAR)
    m, k, n = row.rows, row.inner, row.outer
    moved = n * k * row.weight_bits / 8 + 2 * (m * k + m * n)
    return step_of(m) * (LAUNCH_S + 2 * m * k * n / FLOPS_PER_S + moved / rate)


def attention_s(row):
    """Likewise."""
    scores = row.batch * row.heads * row.tokens * (row.context_tokens + (row.tokens + 1) / 2)
    cached = 8 * row.batch * row.context_tokens * row.kv_heads * row.head_dim
    moved_s = scores * (2e-9 + 4 * row.head_dim / 4e10) + cached / 1.5e10
    return 8e-6 + 2e-7 * row.batch * row.kv_heads + SLOT_S * (row.context_tokens + (row.tokens + 1) / 2) + moved_s


def known_rows(bits=(32.0, 16.0)):
    """A table without steps: row -> its time."""
    found = []
    for width in bits:
        for inner, outer in MATRICES:
            for rows in ROWS:
                for layers in (2, 60) if rows in (2, 9) else (2,):
                    row = Row("product", math.nan, weight_bits=width, batch=1.0, tokens=float(rows))
                    read = inner * outer * width / 8 * layers
                    row = dataclasses.replace(row, inner=float(inner), outer=float(outer), read_bytes=read)
                    found.append(dataclasses.replace(row, seconds=product_s(row)))
    for context in (64.0, 256.0, 1024.0):
        for heads, size in ((4.0, 64.0), (14.0, 64.0)):
            for batch, tokens in ((1.0, 1.0), (1.0, 9.0), (16.0, 1.0)):
                row = Row("attention", math.nan, batch=batch, tokens=tokens, context_tokens=context, heads=heads)
                row = dataclasses.replace(row, kv_heads=2.0, head_dim=size)
                found.append(dataclasses.replace(row, seconds=attention_s(row)))
    for rows in (1.0, 16.0, 256.0):
        found.append(Row("lookup", 1e-6 + 5e-8 * rows, batch=1.0, tokens=rows, inner=64.0, vocab_size=256.0))
        for vocab in (256.0, 4096.0):
            found.append(Row("sampling", 2e-6 + rows * (1e-6 + 4e-9 * vocab), batch=1.0, tokens=rows, vocab_size=vocab))
    found += [Row("stream", size / rate, read_bytes=size) for size, rate in ((1e6, 3e10), (2.5e8, 1.2e10))]
    return [*found, Row("turn", 2e-8), Row("launch", 1.5e-5)]


def true_device(within_steps=1.0):
    """The machine as a device; within steps, a product of one row may take another time than by itself."""
    factors = tuple(step_of(rows) * (within_steps if rows == 1 else 1.0) for rows in ROWS)
    unit = MeasuredHost(
        formats=(HostProducts(LAUNCH_S, 1.0, RATES[32.0] / 1e11, FAR * RATES[32.0] / 1e11),),
        cache_bytes=CACHE_BYTES,
        cache_sharpness=2.0,
        attention=HostAttention(8e-6, 2e-7, 2e-9, 0.4, 0.15, slot_s=SLOT_S),
        between=Between(4e-5, 5e-8, 1.2e-5, 2e-9, 1e-6, 4e-9),
        row_costs=(RowCosts((1e5,), tuple(map(float, ROWS)), (factors,)),),
    )
    memory = MemoryTier(bandwidth_bytes_per_s=1e11, efficiency=0.1, capacity_bytes=2e10)
    return Device(
        peak_flops_per_s=FLOPS_PER_S, compute_efficiency=1.0, memory=memory, operator_latency_s=0.0, matrix_unit=unit
    )


def work_of(row):
    """The work of a step."""
    network = catalog.architecture(row.architecture).replace(num_layers=row.layers, vocab_size=row.vocab_size)
    return step_operators(
        network,
        StepShape(
            tokens=row.tokens,
            batch=row.batch,
            context_tokens=row.context_tokens,
            weight_bits=uniform_weight_bits(row.weight_bits),
            kv_bits=32.0,
        ),
    )


def step_rows(within_steps=1.0):
    """Steps of two networks."""
    rows = [
        Row(
            "step",
            math.nan,
            weight_bits=32.0,
            batch=batch,
            tokens=tokens,
            context_tokens=128.0,
            architecture=name,
            layers=layers,
            vocab_size=256.0,
        )
        for name, layers in (("embedded", 2.0), ("embedded", 4.0), ("qwen2.5-0.5b", 2.0))
        for batch, tokens in ((1.0, 1.0), (1.0, 2.0), (1.0, 9.0), (16.0, 1.0))
    ]
    device = true_device(within_steps)
    return [dataclasses.replace(row, seconds=float(step_cost(device, work_of(row)).total_s)) for row in rows]


def noisy(rows, noise=0.02, seed=0):
    """The same with times that scatter."""
    scatter = np.exp(noise * np.random.default_rng(seed).standard_normal(len(rows)))
    return [dataclasses.replace(row, seconds=row.seconds * float(one)) for row, one in zip(rows, scatter, strict=True)]
