"""Published measurements of speculative decoding, read from CSV and checked: what was run, what was accepted, what was timed.

Columns as `published.csv` has them. A measurement's own clock counts: the decode speedup (`tpot_speedup` in the notes) before
that of whole runs, and the time of a cycle (`itl_sd_ms`, `cycle_ms`) before one derived from tokens per second.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from pathlib import Path

from experiments.field.stored import BESIDES, kv_bits
from jaxspec.errors import InputError
from jaxspec.settings.coercion import shown

__all__ = ["PUBLISHED", "FieldRow", "read_rows", "seen_batch"]

#: The rows that this project ships, third-party measurements with their addresses.
PUBLISHED = Path(__file__).with_name("published.csv")

_COLUMNS = (
    *("id", "source_url", "device", "device_count", "engine", "target_model", "target_precision"),
    *("draft_kind", "draft_model", "draft_length", "tree_nodes", "batch", "prompt_tokens", "output_tokens", "dataset"),
    *("acceptance_value", "acceptance_definition", "ar_tokens_per_s", "sd_tokens_per_s", "speedup", "notes"),
)

#: How definitions begin that are accepted over drafted tokens, as llama.cpp and MLX print them.
_SHARES = ("accepted_over_drafted", "alpha_fraction", "draft acceptance", "accept_ratio")

#: The note of a run that held another number of sequences than asked.
_OTHER_BATCH = "DISAGREE"

#: A run that is a thousand times slower did not happen, and 0 has no relative error.
_LEAST_SPEEDUP = 1e-3

#: What is meant as a number in the notes: a sign, commas and exponents belong to it, so that no part of it is taken for all.
_NOTED = r"[-+]?[0-9.,]*[0-9](?:[eE][-+]?[0-9]+)?"


@dataclasses.dataclass(frozen=True)
class FieldRow:
    """One measurement. None: not published.

    Attributes:
        group: rows of one run on one machine and network, whose numbers can be compared with each other.
        batch, ar_batch: sequences that really ran together, with and without speculation, as a token sees them (`seen_batch`).
        tokens_per_cycle: the bonus token included.
        speedup: of decoding.
        cycle_s, ar_s: time of a draft-verify cycle, and of a step without speculation.
        excluded: why the row says nothing about its batch; empty: it does.
        unread: what is wrong with cells of the row, which then is not priced; empty: nothing.
        acceptance: as it was published, for messages; empty: it was not.
    """

    id: str
    source: str
    group: str
    device: str
    device_count: int
    engine: str
    target: str
    target_precision: str
    draft_kind: str
    draft: str
    draft_precision: str
    draft_length: float
    tree_nodes: float | None
    batch: float
    ar_batch: float
    prompt_tokens: float | None
    output_tokens: float | None
    dataset: str
    tokens_per_cycle: float | None
    speedup: float | None
    cycle_s: float | None
    ar_s: float | None
    excluded: str = ""
    kv_bits: float = 16.0  # per element of cached keys and values
    tensor_parallel: int | None = None  # devices that share every matrix
    unread: str = ""
    acceptance: str = ""


def read_rows(path: Path = PUBLISHED) -> list[FieldRow]:
    """All rows of a file. A row with a cell that cannot be read says so itself (`FieldRow.unread`).

    Raises:
        InputError: no such file, columns missing or twice, an id twice, no rows.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: cannot be read as a text file in UTF-8: {error}; give a CSV file of measurements"
        ) from None
    table = csv.DictReader(io.StringIO(text, newline=""))
    try:
        found = list(table)
    except csv.Error as error:
        raise InputError(f"{path}, line {table.line_num}: not valid CSV ({error}); fix the line") from None
    missing = [name for name in _COLUMNS if name not in (table.fieldnames or ())]
    if missing:
        raise InputError(f"{path}: columns missing: {', '.join(missing)}; needed: {', '.join(_COLUMNS)}")
    columns = list(table.fieldnames or ())
    if twice := [name for name in dict.fromkeys(columns) if columns.count(name) > 1]:
        raise InputError(f"{path}: column {twice[0]} stands {columns.count(twice[0])} times; leave one")
    rows = [_row(cells, f"row {line}") for line, cells in enumerate(found, 2)]
    names = [row.id for row in rows]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: id {name!r} stands {names.count(name)} times; give each row an id of its own")
    if not rows:
        raise InputError(f"{path}: holds no rows; give at least one measurement")
    return rows


def _row(cells: dict[str, str | None], where: str) -> FieldRow:
    wrong: list[str] = []
    if None in cells or None in cells.values():
        wrong.append(f"{where} has {'more' if None in cells else 'fewer'} cells than the file's first line has columns")
    values = {name: str(cell or "").strip() for name, cell in cells.items() if name is not None}
    notes = values["notes"]

    def number(text: str, what: str, least: float = 0.0) -> float | None:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if least <= value < 1e12:
            return value
        wrong.append(f"{where}: {what} is {shown(text)}; it must be a number >= {least:g}")
        return None

    def cell(name: str, least: float = 0.0) -> float | None:
        return number(values[name], name, least) if values[name] else None

    def noted(name: str) -> float | None:
        found = re.search(rf"\b{name}\s*=\s*(?:[A-Za-z*]+\s*=\s*)?({_NOTED})", notes)
        return number(found[1], f"{name} in the notes") if found else None

    def milliseconds(name: str) -> float | None:
        value = noted(name)
        return None if value is None else value * 1e-3

    asked = cell("batch", 1.0) or 1.0
    batch, ar_batch = (seen_batch(noted(f"in_flight_{arm}") or asked, asked) for arm in ("sd", "ar"))
    length, accepted = cell("draft_length"), cell("acceptance_value")
    shares = re.search(r"per_position_pct\s*=\s*([0-9./, ]+)", notes)
    if accepted is None and shares:
        found = [number(part, "per_position_pct in the notes") for part in re.findall(r"[0-9.]*[0-9]", shares[1])]
        tokens = 1.0 + sum(filter(None, found)) / 100.0
    else:
        tokens = _tokens_per_cycle(accepted, values["acceptance_definition"], length)
    if tokens is not None and length and accepted and values["acceptance_definition"].startswith(_SHARES):
        # A block's width is the most that is drafted: how much is follows from what was accepted of it.
        share, whole = (accepted / 100.0 if accepted > 1.0 else accepted), tokens
        printed, mean = noted("emitted_per_verify_incl_bonus"), re.search(r"mean drafted nearer ([0-9.]+)", notes)
        if printed is not None:
            tokens, length = printed, min(length, (printed - 1.0) / share)
        elif mean is not None and float(mean[1]) < length:
            length, tokens = float(mean[1]), 1.0 + share * float(mean[1])
        tokens = min(tokens, whole)
    devices = cell("device_count", 1.0) or 1.0
    if not devices.is_integer():
        wrong.append(f"{where}: device_count is {devices:g}; it must be a whole number")
    whole_run = cell("speedup", _LEAST_SPEEDUP)
    ar_rate, rate = cell("ar_tokens_per_s"), cell("sd_tokens_per_s")
    ar_s = milliseconds("tpot_ar_ms") or (ar_batch / ar_rate if ar_rate else None)
    cycle_s = (
        milliseconds("itl_sd_ms") or milliseconds("cycle_ms") or (batch * tokens / rate if rate and tokens else None)
    )
    fields = {
        "tree_nodes": cell("tree_nodes"),
        "prompt_tokens": cell("prompt_tokens"),
        "output_tokens": cell("output_tokens", 1.0),
        "speedup": noted("tpot_speedup") or whole_run,
    }
    defined = f"as {definition}" if (definition := values["acceptance_definition"]) else "without a definition"
    unread = BESIDES.join(dict.fromkeys(wrong))
    other_batch = "ran another batch than asked" if _OTHER_BATCH in notes else ""
    return FieldRow(
        id=values["id"] or where,
        source=re.sub(r"^https?://([^/]+/[^/]+/[^/]+).*$", r"\1", values["source_url"]) or "no address",
        group=" | ".join(
            values[name] for name in ("device", "device_count", "engine", "target_model", "target_precision")
        ),
        device=values["device"],
        device_count=int(devices),
        engine=_engine(values),
        target=values["target_model"],
        target_precision=values["target_precision"],
        draft_kind=values["draft_kind"],
        draft=values["draft_model"],
        draft_precision=values.get("draft_precision", ""),
        draft_length=length or 0.0,
        batch=batch,
        ar_batch=ar_batch,
        dataset=values["dataset"],
        tokens_per_cycle=tokens,
        cycle_s=cycle_s,
        ar_s=ar_s,
        tensor_parallel=int(found[1]) if (found := re.search(r"\btp\s*=\s*([1-9][0-9]*)\b", notes)) else None,
        kv_bits=kv_bits(values["target_precision"], notes),
        excluded=other_batch or ("has a cell that cannot be read" if unread else ""),
        unread=unread,
        acceptance="" if accepted is None else f"{values['acceptance_value']} {defined}",
        **fields,
    )


#: Devices whose kernels are Metal's, and files of MLX.
_APPLE = re.compile(r"\bapple\b|\bmac|\bm[1-9] (?:pro|max|ultra)\b")
_OF_MLX = re.compile(r"\bmlx\b")


def _engine(values: dict[str, str]) -> str:
    """An engine's name, with what other columns say of its kernels: LM Studio has MLX's for files of MLX, and engines on a GPU
    of Apple have Metal's."""
    name, files = values["engine"], f"{values['target_precision']} {values['target_model']}".lower()
    if re.fullmatch(r"lm ?studio\b(?!.*(?:mlx|llama)).*", name.lower()) and _OF_MLX.search(files):
        return f"{name} (MLX)"
    is_apple = _APPLE.search(values["device"].lower()) is not None
    return f"{name} (Metal)" if is_apple and not re.search(r"mlx|mtplx|metal", name.lower()) else name


def seen_batch(mean: float, most: float) -> float:
    """Sequences that a token is generated beside, on average over the tokens of a run that ends with an emptying batch.

    The run holds `most` sequences for a share s of its time and empties evenly over the rest, so that its mean over time is
    most * (1 + s) / 2. A token's own mean is E[batch^2] / E[batch], as full batches generate more of the tokens.

    Args:
        mean: of the batch over time, as throughput times time per token has it. most: that were asked for.
    Returns:
        `mean` where the batch was full throughout, at most a third more where it emptied throughout.
    """
    if mean >= most:
        return mean
    return most * (4.0 * mean - most) / (3.0 * mean) if 2.0 * mean >= most else 4.0 * mean / 3.0


def _tokens_per_cycle(value: float | None, definition: str, length: float | None) -> float | None:
    """Tokens per cycle, the bonus token included, from whatever was published of acceptance."""
    if value is None:
        return None
    if definition.startswith("mean_acceptance_length_with_bonus"):
        return value
    if definition.startswith("mean_accepted"):
        return 1.0 + value
    if length is None:
        return None
    share = value / 100.0 if value > 1.0 else value
    if definition.startswith(_SHARES):
        return 1.0 + share * length
    if definition.startswith(("alpha_token", "acceptance_rate")):
        if share >= 1.0:  # beyond 1 it is refused where it is priced, as more tokens than were drafted
            return 1.0 + share * length
        return (1.0 - share ** (length + 1.0)) / (1.0 - share)
    return None
