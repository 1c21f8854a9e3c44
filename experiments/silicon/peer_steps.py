"""Whole steps as a peer prices them, GenZ: its seconds for the composed cells are committed, and `ask` makes them anew."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, cast

import numpy as np

from experiments.silicon.steps import DEVICES, Cell
from hwmodels import Architecture, Device, catalog

__all__ = ["PEER", "PEER_CELLS", "PeerKey", "ask", "genz_step", "peer_errors", "read_peer", "write_peer"]


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


PEER_CELLS = Path(__file__).with_name("genz_steps.csv")
PEER = "GenZ 0.0.16 (genz-llm, MIT)"

_COLUMNS = ("gpu", "network", "phase", "batch", "tokens", "genz_s")

#: GPU, network, phase, batch and tokens of a cell: the peer knows no engines.
PeerKey: TypeAlias = tuple[str, str, str, int, int]


def _key(cell: Cell) -> PeerKey:
    return cell.gpu, cell.network, cell.phase, cell.batch, cell.tokens


def ask(cells: Iterable[Cell]) -> dict[PeerKey, float]:
    """GenZ's seconds of all cells with keys and values of 16 bits, at the data sheets' rates and its own defaults.

    Args:
        cells: each step is asked for once, whatever its engines.
    Raises:
        ImportError: genz-llm is not installed.
    """
    found: dict[PeerKey, float] = {}
    for key in dict.fromkeys(_key(cell) for cell in cells if cell.kv_bits == 16):
        gpu, network, phase, batch, tokens = key
        which = cast(Literal["decode", "prefill"], phase)
        step = genz_step(
            catalog.device(DEVICES[gpu]), catalog.architecture(network), phase=which, batch=batch, tokens=tokens
        )
        found[key] = step()
    return found


def write_peer(found: Mapping[PeerKey, float]) -> str:
    """The file's text: one step per line, five digits."""
    rows = [",".join([*map(str, key), f"{seconds:.5g}"]) for key, seconds in found.items()]
    return "\n".join([f"# {PEER}, one GPU, seconds", ",".join(_COLUMNS), *rows, ""])


def read_peer(path: Path = PEER_CELLS) -> dict[PeerKey, float]:
    """The committed seconds."""
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return {
        (row["gpu"], row["network"], row["phase"], int(row["batch"]), int(row["tokens"])): float(row["genz_s"])
        for row in csv.DictReader(lines)
    }


def peer_errors(cells: Sequence[Cell], peer: Mapping[PeerKey, float]) -> tuple[float | None, float | None]:
    """Mean error of a peer's seconds on cells, and of those times one factor, the median of composed over the peer's.

    Args:
        cells: of one device, engine and phase.
        peer: without some of them, or where keys and values are narrow, there are no errors.
    """
    if any(cell.kv_bits != 16 or _key(cell) not in peer for cell in cells):
        return None, None
    measured, theirs = (np.array(each) for each in zip(*((cell.total_s, peer[_key(cell)]) for cell in cells)))
    factor = np.median(measured / theirs)
    plain, scaled = (float(np.abs(times / measured - 1).mean()) for times in (theirs, factor * theirs))
    return plain, scaled
