"""Tables of `jaxspec pack` and `jaxspec inspect`."""

from __future__ import annotations

import re
from typing import Any

from jaxspec.errors import InputError
from jaxspec.report.formatting import fixed, quantity, times
from jaxspec.report.shown import Shown
from jaxspec.report.terminal import Table

#: Rows of a table that was not asked to show every tensor; the largest kinds come first where there are more.
_MOST_ROWS = 200

#: What is said of tensors that are stored as they are.
_WHY_WHOLE = {
    "gain": "coded it would be no smaller",
    "asked": "to be whole in the draft as well (embedding, head, or not a matrix of the network)",
    "form": "the scheme codes no tensor of this dtype and shape",
}


def tensor_table(summary: dict[str, Any], *, every: bool = False) -> Table:
    """One row per kind of tensor (names that differ in a number only, means over them), or one per tensor."""
    packed = "scheme" in summary
    entries = summary["tensors"] if every else grouped(summary["tensors"])
    left_out = 0 if every else max(0, len(entries) - _MOST_ROWS)
    if left_out:
        entries = sorted(entries, key=lambda entry: -entry["bytes"])[:_MOST_ROWS]
    lines = [container_caption(summary), *whole_lines(summary)]
    lines += [f"{left_out} more kinds of tensors, all smaller: see --all or --json"] if left_out else []
    table = Table(container_title(summary), "\n".join(lines))
    table.add_column("tensor")
    columns = ["form"]
    columns += ["entropy"] if any(entry.get("entropy") for entry in entries) else []
    columns += ["codec", "target\nbits"] if packed else []
    columns += ["draft\nbits"] if packed and summary["draft_bits_per_weight"] is not None else []
    columns += ["ratio"] if packed else []
    for heading in columns:
        table.add_column(heading, justify="left" if heading in ("form", "codec") else "right")
    for entry in entries:
        entropy = entry.get("entropy")
        cells = {
            "form": f"{printable(entry['dtype'])} {'x'.join(map(str, entry['shape'])) or 'scalar'}",
            "entropy": fixed(sum(entropy.values()), 2) if entropy else "",
        }
        if packed:
            cells |= {
                "codec": entry["codec"],
                "target\nbits": fixed(entry["target_bits_per_weight"], 2),
                "draft\nbits": fixed(entry["draft_bits_per_weight"], 2),
                "ratio": times(entry["ratio"]),
            }
        count = f" ({entry['count']})" if entry.get("count", 1) > 1 else ""
        table.add_row(printable(entry["name"]) + count, *(cells[heading] for heading in columns))
    return table


def whole_lines(summary: dict[str, Any]) -> list[str]:
    """Why tensors of a coding scheme are stored as they are: one line per reason, with the worst tensor as an example."""
    lines = []
    for why, meaning in _WHY_WHOLE.items():
        entries = [entry for entry in summary["tensors"] if (entry.get("whole") or {}).get("why") == why]
        if not entries:
            continue
        largest = max(entries, key=lambda entry: (entry["whole"]["coded_bytes"] or 0, entry["bytes"]))
        count = f"{len(entries)} tensors raw" if len(entries) > 1 else "1 tensor raw"
        line = f"{count}: {meaning}"
        if (coded := largest["whole"]["coded_bytes"]) is not None:
            sizes = f"{quantity('_bytes', coded)} or more instead of {quantity('_bytes', largest['bytes'])}"
            line += f" ({printable(largest['name'])}: {sizes})"
        lines.append(line)
    return lines


def printable(text: str) -> str:
    """A name from a file, without characters that a terminal would obey."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def grouped(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Tensors whose names differ in a number only, and that have one form and codec, as one entry of means."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for entry in entries:
        pattern = re.sub(r"(?<=\.)\d+(?=\.)", "*", entry["name"])
        groups.setdefault((pattern, entry["dtype"], *entry["shape"], entry.get("codec")), []).append(entry)
    merged = []
    for (name, *_), members in groups.items():
        keys = ("ratio", "target_bits_per_weight", "draft_bits_per_weight")
        sections = [member["bits_by_section"] for member in members if "bits_by_section" in member]
        roles = sorted({role for found in sections for role in found})
        entropy = [member["entropy"] for member in members if member.get("entropy")]
        merged.append(
            members[0]
            | {key: _mean([member.get(key) for member in members]) for key in keys}
            | {"bytes": sum(member["bytes"] for member in members)}
            | {"bits_by_section": {role: _mean([found.get(role, 0.0) for found in sections]) for role in roles}}
            | {"name": name if len(members) > 1 else members[0]["name"], "count": len(members)}
            | {"entropy": {key: _mean([e[key] for e in entropy]) for key in entropy[0]} if entropy else None}
        )
    return merged


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def container_title(summary: dict[str, Any]) -> str:
    """What the file is, in a line."""
    if "scheme" not in summary:
        return (
            f"{printable(summary['checkpoint'])}: {quantity('_bytes', summary['tensor_bytes'])} of tensors, not packed"
        )
    kind = "lossless" if summary["lossless"] else "NOT lossless"
    return f"{printable(summary['container'])}: scheme {summary['scheme']}, {kind}, {quantity('_bytes', summary['file_bytes'])}"


def container_caption(summary: dict[str, Any]) -> str:
    """Its measured sizes, in a line."""
    if "scheme" not in summary:
        return (
            "entropy in bits per value (measured): below it no code of that field alone can go; pack with: jaxspec pack"
        )
    line = (
        f"measured: {fixed(summary['target_bits_per_weight'], 3)} bits per weight, ratio {times(summary['ratio'], 3)}"
    )
    if summary["draft_bits_per_weight"] is not None:
        line += f"; the draft reads {fixed(summary['draft_bits_per_weight'], 3)} bits per weight"
    return line


def code_tables(summary: dict[str, Any], name: str) -> list[Table]:
    """Codewords of one tensor: symbol, bits.

    Raises:
        InputError: no such tensor, or one without codes.
    """
    entry = next((entry for entry in summary["tensors"] if entry["name"] == name), None)
    if entry is None:
        near = ", ".join(entry["name"] for entry in summary["tensors"][:3])
        raise InputError(f"tensor {name!r} is not in this file; there are {near}, ...: see jaxspec inspect")
    if not entry.get("code_tables"):
        raise InputError(f"tensor {name!r} has no code tables: it is stored as {entry.get('codec', 'bytes')}")
    tables = []
    for what, lengths in entry["code_tables"].items():
        table = Table(title=f"{printable(name)}: {what}, {len(lengths)} symbols")
        table.add_column("symbols")
        table.add_column("bits each", justify="right")
        by_length: dict[int, list[str]] = {}
        for symbol, bits in lengths.items():
            by_length.setdefault(bits, []).append(symbol)
        for bits, symbols in sorted(by_length.items()):
            table.add_row(" ".join(symbols), str(bits))
        tables.append(table)
    return tables


def shown(summary: dict[str, Any]) -> Shown:
    """The table of a container for the terminal."""
    return Shown(summary, [tensor_table(summary)])
