"""Whole steps as a peer prices them, GenZ: its seconds for the composed cells are committed, and `ask` makes them anew."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, cast

import numpy as np

from experiments.genz import genz_step
from experiments.silicon.steps import DEVICES, Cell
from hwmodels import catalog

__all__ = ["PEER", "PEER_CELLS", "PeerKey", "ask", "peer_errors", "read_peer", "write_peer"]

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
