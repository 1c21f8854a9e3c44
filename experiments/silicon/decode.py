"""A decoding step of Llama-3.1-8B from calibrated kernels alone: its matrix products and its attention, nothing else.

Norms, rotary embedding, the gated product and the sampler are not in it; the step model adds their launches.
"""

from __future__ import annotations

from typing import Any

from hwmodels.catalog import architecture
from hwmodels.compute.gpu import GpuGemm, gemm_time
from hwmodels.compute.gpu_attention import GpuAttention, decode_attention_time

#: The RTX 4090's data sheet: dense bfloat16 with 32-bit accumulation, GDDR6X, multiprocessors.
RTX_4090 = {"peak_flops_per_s": 165.2e12, "bandwidth_bytes_per_s": 1008e9, "multiprocessors": 128.0}


def decode_step(
    unit: GpuGemm,
    attention: GpuAttention,
    *,
    batch: float,
    context_tokens: float = 1024.0,
    weight_bits: float = 16.0,
    name: str = "llama-3.1-8b",
) -> dict[str, Any]:
    """Seconds of one step: fused q, k, v; o; fused gate, up; down; head at 16 bits; attention.

    Args:
        unit, attention: single numbers.
        batch, context_tokens, weight_bits: of the layers' matrices; the head stays at 16 bits.
        name: an architecture of the catalog.
    """
    a = architecture(name)
    hidden, queries, keys = a.hidden_size, a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    shapes = (
        (hidden, queries + 2 * keys),
        (queries, hidden),
        (hidden, 2 * a.intermediate_size),
        (a.intermediate_size, hidden),
    )
    layer = sum(float(gemm_time(unit, batch, k, n, weight_bits=weight_bits)) for k, n in shapes)
    read = decode_attention_time(
        attention, batch=batch, context_tokens=context_tokens, num_kv_heads=a.num_kv_heads, head_dim=a.head_dim
    )
    parts = {
        "layers_s": a.num_layers * layer,
        "head_s": float(gemm_time(unit, batch, hidden, a.vocab_size)),
        "attention_s": a.num_layers * float(read),
    }
    return {"batch": batch, "weight_bits": weight_bits, **parts, "total_s": sum(parts.values())}
