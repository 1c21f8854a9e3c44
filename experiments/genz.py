"""Steps as GenZ (genz-llm) prices them: a peer, which is optional and is asked by its own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from hwmodels import Architecture, Device

__all__ = ["genz_step"]


def genz_step(
    device: Device, network: Architecture, *, phase: Literal["decode", "prefill"], batch: int, tokens: int
) -> Callable[[], float]:
    """Seconds of one step of a dense network in 16 bits on one device, by GenZ: model, device and table anew.

    `decode_moddeling` and `prefill_moddeling`, its usual entries, make the table twice and sum it up in several ways; this
    makes it once.

    Args:
        device: its peak, its memory's bandwidth and size count, all at an efficiency of 1, which is GenZ's default.
        network: shapes of a decoder with a gated feed-forward block.
        batch: sequences.
        tokens: cached ones of a decode step, of a prefill those of each prompt.
    Raises:
        ImportError: genz-llm is not installed.
    """
    from GenZ.analyse_model import (  # pyright: ignore[reportMissingImports] - optional
        get_model_df,
        get_summary_table,
    )
    from GenZ.LLM_inference.utils import get_inference_system  # pyright: ignore[reportMissingImports]
    from GenZ.Models import (  # pyright: ignore[reportMissingImports]
        ModelConfig,
        create_full_decode_model,
        create_full_prefill_model,
    )
    from GenZ.unit import Unit  # pyright: ignore[reportMissingImports]

    unit, gib = Unit(), 2.0**30
    # Tera is 10^12 for rates of arithmetic, giga 2^30 for bytes.
    system = {
        "Flops": float(device.peak_flops_per_s) / 1e12,
        "Memory_size": float(device.memory.capacity_bytes) / gib,
        "Memory_BW": float(device.memory.bandwidth_bytes_per_s) / gib,
        "ICN": 1.0,
        "real_values": True,
    }
    shapes = ModelConfig(
        model="network",
        vocab_size=int(network.vocab_size),
        hidden_size=int(network.hidden_size),
        intermediate_size=int(network.intermediate_size),
        num_ffi=2,  # gate and up
        num_decoder_layers=int(network.num_layers),
        num_attention_heads=int(network.num_heads),
        num_key_value_heads=int(network.num_kv_heads),
        head_dim=int(network.head_dim),
    )
    one = {"name": shapes, "tensor_parallel": 1, "pipeline_parallel": 1, "expert_parallel": 1}

    def seconds() -> float:
        if phase == "decode":
            model = create_full_decode_model(input_sequence_length=tokens, output_gen_tokens=0, **one)
        else:
            model = create_full_prefill_model(input_sequence_length=tokens, **one)
        built = get_inference_system(system_name=system, bits="bf16")
        table = get_model_df(model, built, unit, batch, intermediate_on_chip=True, beam_merge=False, beam_size=1)
        return float(get_summary_table(table, unit)["Latency (msec)"].values[0]) / 1e3

    return seconds
