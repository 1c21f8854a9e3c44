"""The page of whole steps: errors by device, engine and phase, of the model, the bare roofline and GenZ, on committed cells."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from experiments.silicon.steps import DEVICES, SOURCE, Cell, by_key, cells_of, errors_of, priced
from hwmodels import Architecture, Device, catalog

__all__ = [
    "PAGE",
    "PEER",
    "PEER_CELLS",
    "PRICED",
    "PeerKey",
    "StepErrors",
    "ask",
    "genz_step",
    "page",
    "peer_errors",
    "priced_csv",
    "read_peer",
    "step_errors",
    "write_peer",
]


# Whole steps as a peer prices them, GenZ: its seconds for the composed cells are committed, and `ask` makes them anew.


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
    answers: dict[PeerKey, float] = {}
    for key in dict.fromkeys(_key(cell) for cell in cells if cell.kv_bits == 16):
        gpu, network, phase, batch, tokens = key
        which = cast(Literal["decode", "prefill"], phase)
        step = genz_step(
            catalog.device(DEVICES[gpu]), catalog.architecture(network), phase=which, batch=batch, tokens=tokens
        )
        answers[key] = step()
    return answers


def write_peer(answers: Mapping[PeerKey, float]) -> str:
    """The file's text: one step per line, five digits."""
    rows = [",".join([*map(str, key), f"{seconds:.5g}"]) for key, seconds in answers.items()]
    return "\n".join([f"# {PEER}, one GPU, seconds", ",".join(_COLUMNS), *rows, ""])


def read_peer(path: Path = PEER_CELLS) -> dict[PeerKey, float]:
    """The committed seconds."""
    return {_key(cell): cell.genz_s for cell in cells_of(path)}


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


PAGE = Path(__file__).parents[2] / "docs" / "pages" / "whole-steps.md"
PRICED = Path(__file__).with_name("steps_priced.csv")

#: Largest mean and largest single error that a row of the page should keep to.
BARS = {"decode": (0.05, 0.15), "prefill": (0.08, 0.20)}


@dataclasses.dataclass(frozen=True)
class StepErrors:
    """Relative errors of one device, engine, phase and width of keys and values."""

    gpu: str
    engine: str
    phase: str
    kv_bits: int
    cells: int
    mean: float
    largest: float
    bias: float
    worst: Cell
    products: float
    attention: float
    rest: float
    roofline: float
    peer: float | None = None  # None: the peer was not asked
    peer_scaled: float | None = None

    @property
    def within(self) -> bool:
        """Whether the bars are kept."""
        mean, largest = BARS[self.phase]
        return self.mean <= mean and self.largest <= largest


def step_errors(
    cells: Sequence[Cell], peer: Mapping[PeerKey, float] | None = None
) -> tuple[list[StepErrors], dict[str, npt.NDArray[np.float64]]]:
    """Errors by group, and the seconds of each cell: "model" and "roofline".

    Args:
        peer: seconds of GenZ, see `genz_step`; groups that it has no cells of have no errors of it.
    """
    ours, bare = priced(cells), priced(cells, measured=False)
    error = {name: errors_of(ours[name], cells, name) for name in ("total_s", "products_s", "attention_s", "rest_s")}
    plain = errors_of(bare["total_s"], cells)
    errors = []
    groups = by_key(cells, ("gpu", "engine", "phase", "kv_bits"))
    for key, rows in sorted(groups.items(), key=lambda item: (item[0][2], item[0][0], item[0][1], -item[0][3])):
        total = error["total_s"][rows]
        size = lambda name, rows=rows: float(np.abs(error[name][rows]).mean())
        asked, scaled = peer_errors([cells[row] for row in rows], peer or {})
        errors.append(
            StepErrors(
                *key,
                cells=len(rows),
                mean=size("total_s"),
                largest=float(np.abs(total).max()),
                bias=float(total.mean()),
                worst=cells[rows[int(np.abs(total).argmax())]],
                products=size("products_s"),
                attention=size("attention_s"),
                rest=size("rest_s"),
                roofline=float(np.abs(plain[rows]).mean()),
                peer=asked,
                peer_scaled=scaled,
            )
        )
    return errors, {"model": ours["total_s"], "roofline": bare["total_s"]}


def priced_csv(cells: Sequence[Cell], seconds: dict[str, npt.NDArray[np.float64]]) -> str:
    """Every cell with its composed time, the model's and the roofline's."""
    names = ("gpu", "engine", "network", "phase", "kv_bits", "batch", "tokens")
    rows = [
        ",".join([*(str(getattr(cell, name)) for name in names), f"{cell.total_s:.4g}", f"{model:.4g}", f"{roof:.4g}"])
        for cell, model, roof in zip(cells, seconds["model"], seconds["roofline"])
    ]
    return "\n".join([",".join([*names, "composed_s", "model_s", "roofline_s"]), *rows, ""])


_INTRODUCTION = Path(__file__).with_name("steps_page.md").read_text(encoding="utf-8")


def page(errors: Sequence[StepErrors]) -> str:
    """The page in Markdown."""
    lines = [_INTRODUCTION.format(source=SOURCE.split(",")[0], peer=PEER)]
    head = (
        "| GPU | engine | KV | cells | mean | largest | at batch, tokens | bias | products | attention | rest | roofline "
        "| GenZ | GenZ, one factor |"
    )
    for phase in dict.fromkeys(one.phase for one in errors):
        lines += [f"## {phase.capitalize()}", "", head, "| --- | --- |" + " ---: |" * 12]
        for one in (row for row in errors if row.phase == phase):
            mark = "" if one.within else "**"
            percent = lambda value: "" if value is None else f"{100 * value:.1f} %"
            lines.append(
                f"| {one.gpu} | {one.engine} | {one.kv_bits} | {one.cells} | {mark}{percent(one.mean)}{mark} "
                f"| {mark}{percent(one.largest)}{mark} | {one.worst.batch}, {one.worst.tokens} | {100 * one.bias:+.1f} % "
                f"| {percent(one.products)} | {percent(one.attention)} | {percent(one.rest)} | {percent(one.roofline)} "
                f"| {percent(one.peer)} | {percent(one.peer_scaled)} |"
            )
        lines.append("")
    return "\n".join(lines)
