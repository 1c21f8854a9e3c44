"""Keeps what the papers' pages show of a reproduction in `docs/residuals`: a summary for each paper, and its figures.

    python -m experiments.reproduce --json results.json --out figures
    python docs/write_residuals.py results.json figures

Papers that are not in the result stay as they are. Rows are left out: they are many, and the command writes them anew.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from run_notebooks import plain_png

FOLDER = Path(__file__).parent / "residuals"

#: What is kept of a table's summary.
_KEPT = (
    "title",
    "cells",
    "covered",
    "relative_error",
    "judged",
    "in_doubt",
    "simplest_predictors",
    "fitted",
    "fitted_to",
    "choices",
    "choices_by_outcome",
    "inherits",
    "doubts",
    "reproduced",
    "verdict",
    "cause",
)


def rounded(value: Any) -> Any:
    """Numbers to four digits, further ones depend on the machine; without the model's errors per predictor."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(inner) for key, inner in value.items() if key != "model"}
    return [rounded(inner) for inner in value] if isinstance(value, list) else value


def kept(result: dict[str, Any], paper: str) -> dict[str, Any]:
    """What the page of a paper shows of a result of `python -m experiments.reproduce`."""
    tables = {name: table for name, table in result["summary"].items() if name.split("/")[0] == paper}
    summary = {name: {key: table[key] for key in _KEPT} for name, table in tables.items()}
    title = result["papers"][paper]["title"]
    return {"schema_version": result["schema_version"], "title": title, "summary": rounded(summary)}


def main() -> None:
    """Read a result, write a file and the figures of each of its papers."""
    parser = argparse.ArgumentParser(prog="python docs/write_residuals.py", description=__doc__)
    parser.add_argument("result", type=Path, help="JSON of `python -m experiments.reproduce`")
    parser.add_argument("figures", type=Path, help="the folder of its figures")
    arguments = parser.parse_args()
    result = json.loads(arguments.result.read_text(encoding="utf-8"))
    FOLDER.mkdir(exist_ok=True)
    for paper in result["papers"]:
        text = json.dumps(kept(result, paper), indent=1, sort_keys=True, ensure_ascii=False)
        (FOLDER / f"{paper}.json").write_text(text + "\n", encoding="utf-8")
        for old in FOLDER.glob(f"{paper}_*.png"):
            old.unlink()
        for figure in sorted(arguments.figures.glob(f"{paper}_*.png")):
            (FOLDER / figure.name).write_bytes(plain_png(figure.read_bytes()))


if __name__ == "__main__":
    main()
