"""Records results of predictions beside measurements, and writes them at the top of the page "Does it come true?".

    python -m experiments.field --json field.json
    python -m experiments.host_speedups --device host.toml --json host.json
    python docs/write_evidence.py --field field.json --host E host.json "two cores of a server"

Without arguments it writes the page anew from what is recorded in `docs/residuals`, in the files of calibrated GPUs and in
the priced steps of `experiments/silicon`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from generated.evidence import BEFORE, FIELD, HOST, PAGE, with_summary
from write_residuals import rounded

#: What is kept of a field result's summary.
_KEPT = ("rows", "predicted", "stated", "without_prediction", "notes", "classes", "sources")

#: What predicted a host's speedups, in its result.
_MODEL, _CONSTANT = "this model", "a constant, the median of the answers"


def field_record(result: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a result of `python -m experiments.field`."""
    kept = {name: result["summary"][name] for name in _KEPT}
    return {"schema_version": result["schema_version"]} | rounded(kept)


def host_run(result: dict[str, Any], machine: str) -> dict[str, Any]:
    """What is kept of a result of `python -m experiments.host_speedups`, which writes predictions before it times anything."""
    summary = result["summary"]
    errors = {
        part: {name: errors["speedup"][_MODEL][name] for name in ("median", "p90", "largest", "spearman")}
        | {"constant": errors["speedup"][_CONSTANT]["median"]}
        for part, errors in summary["parts"].items()
    }
    picked = summary["picked"]
    return rounded(
        {
            "machine": machine,
            "predicted": BEFORE,
            "noise": summary["largest_noise"],
            "speedup": errors,
            "picked": {part: errors[_MODEL]["share_of_fastest"] for part, errors in picked.items()},
            "fastest": {part: choice["fastest_speedup"] for part, choice in picked.items()},
            "covered": {part: errors["covered"] for part, errors in summary["parts"].items()},
        }
    )


def main() -> None:
    """Record what is given, and write the page."""
    parser = argparse.ArgumentParser(prog="python docs/write_evidence.py", description=__doc__)
    parser.add_argument("--field", type=Path, metavar="FILE", help="JSON of `python -m experiments.field`")
    parser.add_argument(
        "--host",
        nargs=3,
        metavar=("NAME", "FILE", "MACHINE"),
        help="a run's name, JSON of `python -m experiments.host_speedups`, and what the machine is",
    )
    arguments = parser.parse_args()
    if arguments.field:
        _write(FIELD, field_record(json.loads(arguments.field.read_text(encoding="utf-8"))))
    if arguments.host:
        _add(HOST, host_run, *arguments.host)
    PAGE.write_text(with_summary(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def _add(
    place: Path, kept: Callable[[dict[str, Any], str], dict[str, Any]], name: str, path: str, machine: str
) -> None:
    held = json.loads(place.read_text(encoding="utf-8"))
    held["runs"][name] = kept(json.loads(Path(path).read_text(encoding="utf-8")), machine)
    _write(place, held)


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
