"""Runs the commands of the tutorial, puts their numbers into its page and draws its pictures: `python docs/write_tutorial.py`.

`jaxspec tune` is left out: its last digits depend on the processor, and it takes minutes.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure
from page_commands import split_commands
from run_notebooks import plain_png

import jaxspec as js
from hwmodels.catalog.device_entries import DEVICE_TEMPLATE
from jaxspec.studies.study import find_study

ROOT = Path(__file__).parents[1]

TARGET = ROOT / "docs" / "images"

PAGE = ROOT / "docs" / "pages" / "tutorial.md"

#: Commands, and below them what they print, "..." for lines that are left out.
TRANSCRIPT = re.compile(r"```bash\n([^`]*)```\n\n```text\n([^`]*)```")


def printed(*words: str, folder: Path) -> str:
    """Standard output of a command of jaxspec, piped, 110 columns wide."""
    own = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "110"}
    command = [sys.executable, "-m", "jaxspec", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=own, timeout=900).stdout


def output_of(commands: str, folder: Path) -> str:
    """What the last command of a block prints; outputs of others go to files where they say so."""
    output = ""
    for words, target in split_commands(commands):
        output = printed(*words[1:], folder=folder)
        if target:
            (folder / target).write_text(output, encoding="utf-8")
    return output


def alike(line: str, other: str) -> bool:
    """Whether two lines differ in numbers and widths alone."""
    first, second = (" ".join(re.sub(r"[\d.,]+", "#", re.sub("─+", "─", each)).split()) for each in (line, other))
    return first == second


def renumbered(shown: str, output: str) -> str:
    """Lines that are shown, with the numbers that they have in an output.

    Raises:
        ValueError: a line differs in more than numbers: write it anew.
    """
    rest, found = output.splitlines(), []
    for line in shown.splitlines():
        if line != "...":
            # Of rows of numbers alone, the one that has most of them in common, the first of several.
            same = lambda i, line=line, rest=rest: sum(
                a == b for a, b in zip(rest[i].split(), line.split(), strict=False)
            )
            place = max((i for i, each in enumerate(rest) if alike(line, each)), key=same, default=None)
            if place is None:
                raise ValueError(f"no such line is printed any more, in this order: {line}")
            line, rest = rest[place], rest[place + 1 :]
        found.append(line)
    return "\n".join(found) + "\n"


def _renumber_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for commands, shown in TRANSCRIPT.findall(text):
            if "tune" not in commands:
                text = text.replace(shown, renumbered(shown, output_of(commands, Path(folder))))
    PAGE.write_text(text, encoding="utf-8")


def _written(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def _pictures() -> dict[str, Callable[[], Figure]]:
    """A picture by the name of its section: settings are those of the page."""
    loads = {"batch": [1, 2, 4, 8, 16, 32, 64], "context": [1024, 8192, 32768]}
    sweep, npu = find_study("sweep").example, find_study("codesign").examples["npu"]
    chip = {"device": _written("my-chip.toml", DEVICE_TEMPLATE), "acceptance": 0.9}
    return {
        "predict": lambda: js.predict(device="rtx-4090", acceptance=0.9, **loads).plot(),
        "advise": lambda: js.advise(device="h100-sxm", engine="vllm").plot("gain"),
        "device": lambda: js.predict(**chip).plot(),
        "sweep": lambda: js.sweep(_written("sweep.toml", sweep)).plot(),
        "codesign": lambda: js.codesign(_written("problem.toml", npu)).plot("elasticity"),
    }


def main() -> None:
    """Write the page, then draw."""
    _renumber_page()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name, draw in _pictures().items():
            stream = io.BytesIO()
            draw().savefig(stream, format="png", dpi=110)
            (TARGET / f"tutorial-{name}.png").write_bytes(plain_png(stream.getvalue()))


if __name__ == "__main__":
    main()
