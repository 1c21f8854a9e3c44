"""How fast this package is, beside a peer in the same run: `python -m experiments.benchmarks [NAME ...] [--json FILE]`."""

from __future__ import annotations

import argparse
from pathlib import Path

from experiments.benchmarks.cases import CASES
from experiments.command_line import check_page, print_table, write_table
from jaxspec.partial_files import to_json, write_text


def main() -> None:
    """Run the named benchmarks, or all; failures stay in the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"out of {', '.join(CASES)}; default: all")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path, help="page whose table is written anew")
    args = parser.parse_args()
    if unknown := set(args.names) - set(CASES):
        parser.error(f"unknown benchmark {sorted(unknown)[0]!r}; allowed are {', '.join(CASES)}")
    check_page(parser, args.page)
    rows = []
    for name in args.names or CASES:
        try:
            measured = CASES[name]()
            rows += measured if isinstance(measured, list) else [measured]
        except Exception as error:  # a failed benchmark is a result too
            rows.append({"name": name, "failed": f"{type(error).__name__}: {error}"})
        if args.json:  # what is measured stays, however far the next ones come
            write_text(args.json, to_json({"schema_version": 1, "rows": rows}))
    shown = lambda row: (f"{row['ours']:.4g}", f"{row['peer']:.4g}", row["unit"], f"{row['ratio']:.3g}")
    cells = [
        (row["name"], row["failed"])
        if "failed" in row
        else (row["name"], row["workload"], *shown(row), row["peer_name"])
        for row in rows
    ]
    headings = ("name", "workload", "ours", "peer", "unit", "ratio", "peer name")
    title = "Benchmarks: ours beside a peer in the same run; compile time left out, but for starts"
    print_table(title, headings, cells, left=len(headings))
    if args.page:
        whole = (cell + ("",) * (len(headings) - len(cell)) for cell in cells)
        write_table(args.page, parser.prog, headings, whole, left=len(headings))


if __name__ == "__main__":
    main()
